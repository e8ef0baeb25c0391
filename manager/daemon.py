"""The manager: what it is made of, and in which order that is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import structlog
import trio

from beeyard.core.address_pool import PoolUsage
from beeyard.core.claims import ClaimBook
from beeyard.core.errors import InvalidSpec
from beeyard.core.host_ports import PortBook
from beeyard.core.model import Network, Task
from beeyard.core.placement import PlacementIndex
from beeyard.core.resources import Room
from beeyard.core.states import NodeState, Role
from beeyard.discovery.gossip.control import offer_control
from beeyard.discovery.gossip.metrics import exposition
from beeyard.discovery.self_discovery import SelfDiscovery
from beeyard.manager import ca
from beeyard.manager.api import serve
from beeyard.manager.api.remote import serve_remote
from beeyard.manager.api.status import Packing, PutAside, TokenSource
from beeyard.manager.api.token_service import TokenService, serve_tokens
from beeyard.manager.config import ManagerConfig
from beeyard.manager.control.network_release import release_addresses
from beeyard.manager.decision_log import DecisionLog
from beeyard.manager.dispatch import Dispatcher
from beeyard.manager.gossip import GossipDoubts, manager_gossip
from beeyard.manager.hooks import Hook, begins_new
from beeyard.manager.hooks.address import address_hook
from beeyard.manager.hooks.aside import aside_warnings
from beeyard.manager.hooks.books import AddressLedger
from beeyard.manager.hooks.claim import claim_hook
from beeyard.manager.hooks.port import port_hook
from beeyard.manager.hooks.volume import volume_hook
from beeyard.manager.ipam import IpamService
from beeyard.manager.lifecycle import Lifecycle
from beeyard.manager.orchestrators import IsolationWatch, Reaper, ReplicatedOrchestrator, VolumeOrchestrator
from beeyard.manager.planner import Planner
from beeyard.manager.published import GossipMembers, PublishedLists, owner_name
from beeyard.manager.store import Store
from beeyard.runtime.host import Host

log = structlog.get_logger(__name__)


async def run(
    host: Host,
    config: ManagerConfig,
    *,
    more_hooks: Sequence[Hook] = (),
    task_status: trio.TaskStatus[LiveStatus] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Be a manager until cancelled; started once agents and users can connect.

    What is recorded is restored before anything new is granted: the lifecycle loads the books before it is started, and
    agents and users are let in last.

    Raises:
        InvalidSpec: the range of ports is empty; or gossip cannot choose by which address it is known.
        DiskError: the store cannot be opened.
        HostError: an address cannot be bound.
    """
    if (last := config.host_port_last) < (first := config.host_port_first):
        raise InvalidSpec("host_port_last", f"{last} is below host_port_first, {first}")
    store = await Store.open(host, config.store_path)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        authority = await ca.bootstrap(host, store, config, heartbeat_s=config.heartbeat_s)
        dispatcher = Dispatcher(host, store, config, authority)
        ledger = AddressLedger(config.cool_down_s, aside_s=config.put_aside_s, wall_now_s=host.wall_now_s)
        decisions = DecisionLog(host.files, config) if config.decision_log_mib else None
        planner = Planner(store, ledger, config.strategy, decisions.index if decisions is not None else None)
        pools_for, new_id = planner.index.pools_for, host.new_id
        ipam = IpamService(host, store, ledger, pools_for, config.ipam, config.cool_down_s)
        of_node = _hooks_of_node(planner.index, config, new_id)
        hooks = (address_hook(ledger, pools_for, new_id), ipam.hook, *of_node, *more_hooks)
        lifecycle = Lifecycle(host, store, planner, hooks, config)
        ipam.retry = lifecycle.retry
        orchestrator = ReplicatedOrchestrator(host, store, lambda: dispatcher.mass_failure, partial(begins_new, hooks))
        lifecycle.are_more_to_come = lambda: orchestrator.has_more_to_write
        orchestrator.finished = lifecycle.look
        recording = (decisions,) if decisions is not None else ()
        reaper = Reaper(host, store, config.commit_tasks_max, config.cool_down_s)
        isolation = IsolationWatch(store, dispatcher.last_contact)
        for part in (*recording, ipam, lifecycle, orchestrator, VolumeOrchestrator(store), reaper, isolation):
            await nursery.start(part.run)
        address: str = await nursery.start(dispatcher.run)
        status = LiveStatus(
            config.advertise or _reachable(address, host.hostname),
            authority,
            dispatcher,
            lifecycle,
            orchestrator,
            ledger,
            store,
            ipam,
            planner,
        )
        await _begin_discovery(nursery, host, store, status, config, address)
        api: str = await nursery.start(lambda task_status: _serve_api(host, store, status, config, task_status))
        remote_api = ""
        if config.api_listen:
            remote_api = await nursery.start(partial(serve_remote, host, store, status, config))
        log.info("manager runs", agents=address, api=api, remote_api=remote_api or "off")
        task_status.started(status)


async def _begin_discovery(
    nursery: trio.Nursery, host: Host, store: Store, status: LiveStatus, config: ManagerConfig, address: str
) -> None:
    """Gossip, publish, and serve tokens, as far as this manager is configured to. `address`: where agents connect."""
    cluster = store.cluster
    assert cluster is not None, "the authority has made it"
    if config.self_discovery_port:
        digest = host.pki.digest(cluster.ca_certificate_pem)
        status.gossip = manager_gossip(host, config, digest, address)
        await nursery.start(status.gossip.run)
        status.dispatcher.doubts = GossipDoubts(status.gossip)
        offer = partial(offer_control, group=config.api_group)
        await nursery.start(offer, host.net, status.gossip.node, config.gossip_socket)
    if config.discovery_url:
        owner = owner_name(config.node_name or host.hostname, cluster.manager_node_id)
        members = GossipMembers(status.gossip) if status.gossip is not None else None
        status.published = PublishedLists(host, config, owner, members)
        await nursery.start(status.published.run)
    if config.token_listen:
        tokens = TokenService(host, store)
        await nursery.start(partial(serve_tokens, host, store, config, tokens))
        status.tokens = tokens


def _hooks_of_node(index: PlacementIndex, config: ManagerConfig, new_id: Callable[[], str]) -> tuple[Hook, ...]:
    """The hooks for what a node has besides addresses."""
    ports = PortBook(index.ports, config.host_port_first, config.host_port_last, config.cool_down_s)
    return (port_hook(ports, new_id), claim_hook(ClaimBook(), new_id), volume_hook(index.volumes, new_id))


async def _serve_api(
    host: Host, store: Store, status: LiveStatus, config: ManagerConfig, task_status: trio.TaskStatus[str]
) -> None:
    await serve(host, store, status, config.api_socket, socket_group=config.api_group, task_status=task_status)


class LiveStatus:
    """The running manager, as the API's `ManagerStatus` wants it."""

    def __init__(
        self,
        address: str,
        authority: ca.Authority,
        dispatcher: Dispatcher,
        lifecycle: Lifecycle,
        orchestrator: ReplicatedOrchestrator,
        ledger: AddressLedger,
        store: Store,
        ipam: IpamService,
        planner: Planner,
    ) -> None:
        self._address = address.removeprefix("tcp://")
        self._authority = authority
        self.dispatcher = dispatcher
        self._lifecycle = lifecycle
        self._orchestrator = orchestrator
        self._ledger = ledger
        self._store = store
        self._ipam = ipam
        self._planner = planner
        self.gossip: SelfDiscovery | None = None
        self.published: PublishedLists | None = None
        self.tokens: TokenSource | None = None

    @property
    def address(self) -> str:
        """HOST:PORT at which agents reach this manager."""
        return self._address

    @property
    def warnings(self) -> Sequence[str]:
        """What an operator should know now."""
        mass_failure = self.dispatcher.mass_failure
        aside = aside_warnings(self._ledger.aside(), self._store.nodes)
        lists = self.published.warnings if self.published is not None else ()
        found = (*self._ledger.all_closed(), *aside, *self._ipam.warnings, *lists)
        return (mass_failure, *found) if mass_failure else found

    @property
    def summary(self) -> str:
        """One line for whoever asks how it is."""
        nodes = self._store.nodes.values()
        n_ready = sum(node.status.state is NodeState.READY for node in nodes)
        return "; ".join([f"{n_ready} of {len(nodes)} nodes ready; agents connect to {self._address}", *self.warnings])

    def join_token(self, role: Role) -> str:
        """The token with which a node gets this role."""
        return self._authority.join_token(role)

    async def rotate_join_token(self, role: Role) -> str:
        """Make the token of a role invalid and give its successor. Raises DiskError: the old one is still valid."""
        return await self._authority.rotate_join_token(role)

    def room(self, node_id: str) -> Room | None:
        """What a node has for tasks and what of it is free."""
        return self._planner.index.room(node_id)

    def placement(self) -> PlacementIndex:
        """What decisions are made on, with the pools as they are now."""
        self._planner.refresh_pools()
        return self._planner.index

    @property
    def packing(self) -> Packing:
        """How well tasks were packed that waited in large numbers."""
        batches = self._planner.batches
        opened = 0 if batches.last is None else batches.last.opened
        return Packing(batches.n_batches, batches.n_tasks, opened, batches.by_kind())

    def refusing(self, task: Task) -> Sequence[str]:
        """Ids of the nodes on which hooks refused the tasks of this one's group a while ago."""
        return self._lifecycle.refusing(task)

    def pool_usage(self, pool_id: str) -> PoolUsage | None:
        """How full a pool is now."""
        return self._ledger.usage(pool_id)

    def put_aside(self, pool_id: str) -> Sequence[PutAside]:
        """Addresses of a pool that strangers have, with their MAC addresses."""
        return tuple(
            PutAside(aside.address, aside.mac, self._hostname(aside.node_id), self._ledger.wall_s(aside.until_s))
            for aside in self._ledger.aside(pool_id)
        )

    def _hostname(self, node_id: str) -> str:
        node = self._store.nodes.get(node_id)
        return (node.description.hostname if node is not None else "") or node_id

    def closed_pool(self, pool_id: str) -> str:
        """Why no more addresses of a pool are tried."""
        return self._ledger.closed(pool_id)

    async def take_back(self, found: Mapping[str, Sequence[str]]) -> None:
        """Give addresses that are put aside to tasks again. Raises NotFound, DiskError."""
        await release_addresses(self._store, found, self._ledger.aside_s)

    @property
    def gossip_metrics(self) -> str:
        """Figures of this manager's gossip for Prometheus."""
        return "" if self.gossip is None else exposition(self.gossip.node.figures(), self.gossip.node.me.name)

    @property
    def ipam_plugins(self) -> Sequence[str]:
        """Names of the IPAM plugins that networks use."""
        return self._ipam.plugins

    async def create_network(self, network: Network) -> Network:
        """Store a network, once it has its pools."""
        return await self._ipam.create_network(network)

    def waiting_for(self, task_id: str) -> str:
        """What keeps a planned task from being committed; "" when it is not planned."""
        return self._lifecycle.waiting_for(task_id)

    def next_try_at_s(self, task: Task) -> float | None:
        """When the slot of a task that ended is tried again."""
        return self._orchestrator.next_try_at_s(task.service_id, task.slot)

    def held_back(self, task: Task) -> str:
        """Why a task whose node is down is not replaced; "" for every other."""
        return self._orchestrator.held_back(task)


def _reachable(address: str, hostname: str) -> str:
    """An address that listens on every interface is of no use to anybody else: name the host."""
    port = address.rpartition(":")[2]
    wildcard = address.startswith(("tcp://0.0.0.0:", "tcp://[::]:"))
    return f"tcp://{hostname}:{port}" if wildcard else address
