"""All that the manager does with Docker remote IPAM plugins, put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from beeyard.core.address_pool import COOL_DOWN_S
from beeyard.core.ipam import LeaseState
from beeyard.core.model import Network
from beeyard.core.pools import IPAM_DEFAULT, IPAM_NULL, ipam_driver_of
from beeyard.manager.config import IpamConfig
from beeyard.manager.control.network import create_network
from beeyard.manager.hooks import Hook
from beeyard.manager.hooks.books import AddressLedger
from beeyard.manager.ipam.ask import Ask, Asker
from beeyard.manager.ipam.desk import Desk
from beeyard.manager.ipam.give_back import GiveBack
from beeyard.manager.ipam.hook import ipam_hook
from beeyard.manager.ipam.leases import Leases
from beeyard.manager.ipam.plugin import Plugin
from beeyard.manager.ipam.pools import Pools
from beeyard.manager.store import Store
from beeyard.runtime.host import Host


class _Counter:
    """What there is for one plugin."""

    def __init__(self, desk: Desk, give_back: GiveBack, asker: Asker) -> None:
        self.desk = desk
        self.give_back = give_back
        self.asker = asker


class IpamService:
    """`run` must be running before the lifecycle is started; `retry` is to be set to `Lifecycle.retry`."""

    def __init__(
        self,
        host: Host,
        store: Store,
        ledger: AddressLedger,
        pools_for: Callable[[str, str, str], Sequence[str]],
        config: IpamConfig,
        cool_down_s: float = COOL_DOWN_S,
    ) -> None:
        self.retry: Callable[[str], None] = lambda until: None
        self._host = host
        self._store = store
        self._ledger = ledger
        self._config = config
        self._cool_down_s = cool_down_s
        self._leases = Leases(store)
        self._pools = Pools(store, self._leases, lambda name: self._counter(name).desk, config.deadline_s)
        self._counters: dict[str, _Counter] = {}
        self._nursery: trio.Nursery
        self.hook: Hook = ipam_hook(self, ledger, pools_for, host.new_id)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Work until cancelled; started once everything that an earlier life has left is on its way back."""
        async with trio.open_nursery() as self._nursery:
            for lease in self._leases.orphans():
                # Whether it was released before, and how long ago, nobody knows any more.
                rest_s = self._cool_down_s if lease.state is LeaseState.HELD else 0.0
                self._counter(lease.plugin).give_back.put(lease.id, trio.current_time() + rest_s, repeated=True)
            self._nursery.start_soon(self._pools.run)
            task_status.started()
            await trio.sleep_forever()

    async def create_network(self, network: Network) -> Network:
        """As `control.network.create_network`, with the pools of its plugin if it names one.

        Raises:
            FailedPrecondition: the plugin does not give them.
        """
        if ipam_driver_of(network) in (IPAM_DEFAULT, IPAM_NULL):
            return await create_network(self._store, network)
        return await self._pools.create(network)

    async def ask(self, ask: Ask) -> tuple[str, ...]:
        """Have a plugin give addresses. Cancellation: nothing is held. Raises PluginRefused."""
        asker = self._counter(ask.lease.plugin).asker
        self._nursery.start_soon(asker.work, ask)
        return await asker.answer(ask)

    def release(self, lease_id: str, *, used: bool) -> None:
        """Give up what a grant holds. Idempotent; what an agent may have used rests before it goes back."""
        lease = self._leases.get(lease_id)
        if lease is None:
            self._ledger.release(lease_id, used=used)
        else:
            self._counter(lease.plugin).asker.release(lease_id, used=used, rest_s=self._cool_down_s)

    @property
    def plugins(self) -> list[str]:
        """Names of the plugins that networks name."""
        return sorted({lease.plugin for lease in self._store.pool_leases.values()})

    @property
    def warnings(self) -> list[str]:
        """What an operator should know now, a sentence for each plugin."""
        now_s = trio.current_time()
        found = []
        for name, counter in sorted(self._counters.items()):
            if counter.desk.outage is not None:
                found.append(str(counter.desk.outage))
            if n_late := counter.give_back.n_late(now_s):
                found.append(f"IPAM plugin {name} has not taken back {n_late} addresses yet")
        return found

    def _counter(self, name: str) -> _Counter:
        if name not in self._counters:
            plugin = Plugin(self._host, self._config, name)
            plugin.replay = self._pools.replay
            desk = Desk(plugin, self._config, lambda key: self.retry(key))
            give_back = GiveBack(desk, self._leases, self._ledger, self._config.calls_max)
            asker = Asker(desk, self._leases, give_back, self._ledger, self._config.deadline_s)
            self._counters[name] = _Counter(desk, give_back, asker)
            self._nursery.start_soon(desk.run)
            self._nursery.start_soon(give_back.run)
        return self._counters[name]


__all__ = ["IpamService"]
