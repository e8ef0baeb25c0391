"""A manager without its doors: store, hooks, lifecycle and orchestrators in memory, and agents played by a script.

The agents write what they would report straight into the store, one virtual instant after they are asked to.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

import msgspec
import trio
import trio.testing

from beeyard.core.claims import ClaimBook
from beeyard.core.grant import AddressGrant, VolumeGrant
from beeyard.core.host_ports import PORT_FIRST, PORT_LAST, PortBook
from beeyard.core.model import Cluster, Network, Node, NodeSpec, NodeStatus, Service, Task, TaskStatus
from beeyard.core.placement import PlacementIndex
from beeyard.core.states import Availability, NodeState, TaskState
from beeyard.core.volume import Volume
from beeyard.manager.config import IpamConfig, ManagerConfig
from beeyard.manager.hooks import Hook, begins_new
from beeyard.manager.hooks.address import address_hook
from beeyard.manager.hooks.books import AddressLedger
from beeyard.manager.hooks.claim import claim_hook
from beeyard.manager.hooks.port import port_hook
from beeyard.manager.hooks.volume import volume_hook
from beeyard.manager.ipam import IpamService
from beeyard.manager.lifecycle import Lifecycle
from beeyard.manager.orchestrators import IsolationWatch, Reaper, ReplicatedOrchestrator, VolumeOrchestrator
from beeyard.manager.planner import Planner
from beeyard.manager.store import Store, Transaction
from beeyard.runtime.host import Files, Host, Net
from tests.support.manager_holdings import check_holdings
from tests.support.memory_database import MemoryDatabase

S = TaskState
Script = Callable[[Task], TaskState | None]


class MemoryHost:
    """As much of a host as these parts ask for; its wall clock goes with trio's, so many seconds ahead."""

    hostname = "m1"
    net: Net
    files: Files

    def __init__(self, database: MemoryDatabase, ahead_s: float = 0.0) -> None:
        self._database = database
        self._ahead_s = ahead_s
        self.rng = random.Random(f"life {database.n_commits}")

    def wall_now_s(self) -> float:
        return 1_800_000_000.0 + self._ahead_s + trio.current_time()

    def new_id(self) -> str:
        return "".join(self.rng.choices("0123456789abcdefghijklmnopqrstuvwxyz", k=25))

    async def running(self) -> None:
        await trio.lowlevel.checkpoint()

    async def open_database(self, path: str) -> MemoryDatabase:
        return self._database


def obedient(task: Task) -> TaskState | None:
    """An agent that does what it is told; its tasks run for ever."""
    if task.desired_state >= S.SHUTDOWN:
        return S.SHUTDOWN
    if task.desired_state == S.READY:
        return S.READY
    return S.RUNNING


class ManagerWorld:
    """One life of a manager, and what tests ask it."""

    def __init__(self, host: MemoryHost, store: Store, ledger: AddressLedger, lifecycle: Lifecycle) -> None:
        self.host = host
        self.store = store
        self.ledger = ledger
        self.lifecycle = lifecycle
        self.orchestrator: ReplicatedOrchestrator
        self.ipam: IpamService
        self.planner: Planner
        self.ports: PortBook
        self.claims: ClaimBook
        self.script: Script = obedient
        self.mass_failure = ""
        self.contact_s: dict[str, float] = {}
        self.kill: Callable[[], None]  # ends this life here and now; the context is left

    async def add(self, *objects: Node | Network | Service | Task | Volume) -> None:
        """Store objects as they are."""

        def build(tx: Transaction) -> None:
            for obj in objects:
                tx.create(obj)

        await self.store.commit(build)

    async def scale(self, replicas: int, service_id: str = "s1") -> None:
        """What `docker service scale` does."""

        def build(tx: Transaction) -> None:
            service = tx.find(Service, service_id)
            tx.update(msgspec.structs.replace(service, spec=msgspec.structs.replace(service.spec, replicas=replicas)))

        await self.store.commit(build)

    async def remove_service(self, service_id: str = "s1") -> None:
        """What `docker service rm` does."""
        await self.store.commit(lambda tx: tx.delete(Service, service_id))

    async def set_node(
        self, node_id: str, state: NodeState | None = None, availability: Availability | None = None
    ) -> None:
        """What the dispatcher and the operator write."""

        def build(tx: Transaction) -> None:
            node = tx.find(Node, node_id)
            status: NodeStatus = msgspec.structs.replace(node.status, state=state) if state else node.status
            spec: NodeSpec = (
                msgspec.structs.replace(node.spec, availability=availability) if availability else node.spec
            )
            tx.update(msgspec.structs.replace(node, status=status, spec=spec))

        await self.store.commit(build)

    async def report(self, task_id: str, state: TaskState) -> None:
        """What the dispatcher writes for an agent."""

        def build(tx: Transaction) -> None:
            task = tx.find(Task, task_id)
            tx.update(msgspec.structs.replace(task, status=TaskStatus(state=state, at_s=tx.now_s)))

        await self.store.commit(build)

    def tasks(self, *, live: bool | None = None, service_id: str = "s1") -> list[Task]:
        """Tasks of a service in order of (slot, creation); `live`: only those (not) wanted to run."""
        tasks = sorted(self.store.tasks_of_service(service_id), key=lambda task: (task.slot, task.created_at_s))
        return [t for t in tasks if live is None or live == (t.desired_state <= S.RUNNING)]

    def running(self, service_id: str = "s1") -> list[Task]:
        """Tasks that run and should."""
        return [t for t in self.tasks(live=True, service_id=service_id) if t.status.state == S.RUNNING]

    def addresses(self) -> list[str]:
        """Addresses of all tasks that hold room."""
        tasks = [task for task in self.store.tasks.values() if task.holds_room]
        return [a for t in tasks for g in t.grants if isinstance(g, AddressGrant) for a in g.addresses]

    def check_books(self) -> None:
        """No address twice, and the book holds exactly what live tasks hold."""
        addresses = self.addresses()
        assert len(addresses) == len(set(addresses)), "an address is held twice"
        self.check_books_of([*self.ledger.grants(), *self.ports.grants(), *self.claims.grants()])

    def check_books_of(self, held: Sequence[str]) -> None:
        """These grants, and no others, are what live tasks hold."""
        grants = [g for t in self.store.tasks.values() if t.holds_room for g in t.grants]
        # Volumes are held with a task's room: see `check_holdings`.
        recorded = sorted(grant.id for grant in grants if not isinstance(grant, VolumeGrant))
        assert sorted(held) == recorded, "hooks do not hold what tasks hold"

    async def play_agents(self) -> None:
        """Report for every task on a READY node what the script says."""
        async with self.store.subscribe("task", "node") as wakeups:
            while True:
                await self._play()
                await wakeups.wait()
                wakeups.take_nowait()

    async def _play(self) -> None:
        def build(tx: Transaction) -> None:
            for task in list(tx.tasks.values()):
                node = tx.get(Node, task.node_id)
                if node is None or node.status.state is not NodeState.READY or not task.holds_room:
                    continue
                state = self.script(task)
                if state is not None and state > task.status.state:
                    status = TaskStatus(state=state, message="played", at_s=tx.now_s)
                    tx.update(msgspec.structs.replace(task, status=status))

        await self.store.commit_patiently(build)


@asynccontextmanager
async def manager_world(
    database: MemoryDatabase | None = None,
    *,
    hooks: Sequence[Hook] = (),
    script: Script = obedient,
    mass_failure: str = "",
    index: PlacementIndex | None = None,
    port_range: tuple[int, int] = (PORT_FIRST, PORT_LAST),
    machine: Host | None = None,
    ipam: IpamConfig | None = None,
    wall_ahead_s: float = 0.0,
) -> AsyncIterator[ManagerWorld]:
    """A manager that runs inside the context, on a database that may have had earlier lives.

    `machine`: has the network and the files that IPAM plugins are found by. `wall_ahead_s`: of its wall clock, before trio's.
    """
    memory_host = MemoryHost(database or MemoryDatabase(), wall_ahead_s)
    if machine is not None:
        memory_host.net, memory_host.files = machine.net, machine.files
    host = cast("Host", memory_host)
    store = await Store.open(host, "/state/store.db")
    ledger = AddressLedger()
    planner = Planner(store, ledger)
    planner.index = index or planner.index
    config = ManagerConfig()
    ports = PortBook(planner.index.ports, *port_range)
    pools_for, new_id = planner.index.pools_for, host.new_id
    service = IpamService(host, store, ledger, pools_for, ipam or config.ipam)
    claims = ClaimBook()
    volumes = volume_hook(planner.index.volumes, new_id)
    of_node = (port_hook(ports, new_id), claim_hook(claims, new_id), volumes)
    hooks = (address_hook(ledger, pools_for, new_id), service.hook, *of_node, *hooks)
    lifecycle = Lifecycle(host, store, planner, hooks, config)
    service.retry = lifecycle.retry
    world = ManagerWorld(memory_host, store, ledger, lifecycle)
    world.planner, world.ports, world.claims = planner, ports, claims
    world.ipam = service
    world.script = script
    world.mass_failure = mass_failure
    world.orchestrator = ReplicatedOrchestrator(host, store, lambda: world.mass_failure, partial(begins_new, hooks))
    contact = IsolationWatch(store, lambda node_id: world.contact_s.get(node_id, 0.0))
    async with trio.open_nursery() as nursery:
        world.kill = nursery.cancel_scope.cancel
        await nursery.start(store.run)
        if store.cluster is None:
            await store.commit(lambda tx: tx.create(Cluster(id="c1")))
        await nursery.start(service.run)
        await nursery.start(lifecycle.run)
        await nursery.start(world.orchestrator.run)
        await nursery.start(VolumeOrchestrator(store).run)
        await nursery.start(Reaper(host, store, config.commit_tasks_max).run)
        await nursery.start(contact.run)
        nursery.start_soon(world.play_agents)
        yield world
        await trio.testing.wait_all_tasks_blocked()
        check_holdings(store, lifecycle)
        nursery.cancel_scope.cancel()
