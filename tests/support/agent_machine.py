"""One machine for an agent: simulated disk, fake kernel and fake tasks, which outlive each of the agent's lives."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import AsyncIterator, Sequence

import msgspec
import trio

from beeyard.agent import daemon
from beeyard.agent.config import AgentConfig
from beeyard.agent.hook_policy import HookPolicy
from beeyard.agent.identity import Identity
from beeyard.agent.local_state import KIND
from beeyard.core.errors import ClusterError
from beeyard.core.states import Role
from beeyard.runtime.fake_executor import Behaviour, FakeExecutor, FakeTasks
from beeyard.runtime.fake_firewall import FakeFirewall, GatedFirewall
from beeyard.runtime.fake_kernel import FakeKernel
from beeyard.runtime.host import Database, Executor, Files, Netlink, NodeHooks, Pki, Record
from beeyard.runtime.sim_disk import SimDatabase, SimDisk, SimFiles
from beeyard.runtime.sim_hooks import GatedHooks, SimHooks
from beeyard.runtime.sim_life import Life, PauseSwitch
from beeyard.runtime.sim_pki import SimPki
from tests.support.scripted_manager import MANAGER, ScriptedNet

EPOCH_S = 1_800_000_000.0
STATE_DIR = "/var/lib/beeyard"
RECORDS = f"{STATE_DIR}/tasks.db"


@dataclasses.dataclass(frozen=True, eq=False)
class MachineHost:
    """`Host` of one life of the agent."""

    hostname: str
    rng: random.Random
    net: ScriptedNet
    pki: Pki
    disk: SimDisk
    files: Files
    netlink: Netlink
    executors: Sequence[Executor]
    node_hooks: NodeHooks
    firewall: GatedFirewall
    sockets: GatedFirewall
    life: Life
    size: tuple[int, int]

    def wall_now_s(self) -> float:
        return EPOCH_S + trio.current_time()

    def new_id(self) -> str:
        return f"{self.rng.getrandbits(100):025x}"

    async def running(self) -> None:
        await self.life.gate()

    async def open_database(self, path: str) -> Database:
        return await SimDatabase.open(self.disk, self.life, path)

    def resources(self) -> tuple[int, int]:
        return self.size

    def platform(self) -> tuple[str, str]:
        return "x86_64", "linux"


class Ending:
    """How an agent ended by itself."""

    nursery: trio.Nursery
    error: BaseException | None = None


class Machine:
    """Make one inside the test, since it belongs to the test's clock."""

    def __init__(self, *, seed: int = 1) -> None:
        self.rng = random.Random(seed)
        self.disk = SimDisk(self.rng)
        self.kernel = FakeKernel(seed="n1")
        self.behaviour: dict[str, Behaviour] = {}  # by task id
        self.switch = PauseSwitch()
        self.tasks = FakeTasks(
            self.kernel, script=lambda task: self.behaviour.get(task.id, Behaviour()), running=self.switch.running
        )
        self.hooks = SimHooks(self.switch.running)
        self.firewall = FakeFirewall()
        self.hook_policy = HookPolicy()
        self.pki = SimPki(self.rng)
        self.authority = self.pki.new_authority("cluster1", EPOCH_S)
        self.net = ScriptedNet()
        self.size = (4 * 10**9, 8 << 30)

    @property
    def ca_certificate_pem(self) -> bytes:
        return self.authority[0]

    @property
    def token(self) -> str:
        """A join token of the cluster."""
        return f"SWMTKN-1-{self.pki.digest(self.ca_certificate_pem)}-{'1' * 25}"

    def sign(self, csr_pem: bytes, *, node_id: str = "n1", valid_s: float = 90 * 86400.0) -> bytes:
        """A certificate of the cluster."""
        return self.pki.sign(
            self.authority,
            csr_pem,
            node_id=node_id,
            role=Role.WORKER,
            organization="cluster1",
            now_s=EPOCH_S + trio.current_time(),
            valid_s=valid_s,
        )

    async def make_member(self, *, valid_s: float = 90 * 86400.0) -> None:
        """Put the identity of a node that has joined on the disk."""
        csr_pem, key_pem = self.pki.new_request()
        now_s = EPOCH_S + trio.current_time()
        identity = Identity(
            node_id="n1",
            certificate_pem=self.sign(csr_pem, valid_s=valid_s),
            key_pem=key_pem,
            ca_certificate_pem=self.ca_certificate_pem,
            obtained_at_s=now_s,
            not_after_s=now_s + valid_s,
        )
        await self.files().replace(f"{STATE_DIR}/identity", msgspec.msgpack.encode(identity))

    def files(self) -> SimFiles:
        """The disk, for the test itself."""
        return SimFiles(self.disk, Life("test", PauseSwitch()))

    async def records(self) -> list[str]:
        """Ids of the tasks that the agent keeps a record of, as a restart would find them; it may be running."""
        _, records = await (await self._records_database()).load()
        return [record.id for record in records]

    async def lose_record(self, task_id: str) -> None:
        """Remove a record while no agent runs."""
        database = await self._records_database()
        index, _ = await database.load()
        await database.commit([Record(index=index + 1, kind=KIND, id=task_id, data=None)])
        await database.aclose()

    async def _records_database(self) -> SimDatabase:
        owner = self.disk.opened.pop(RECORDS, None)
        # What a test has in store for the agent's writes is not for its own looks.
        fate, self.disk._fail_at = self.disk._fail_at, {}
        try:
            return await SimDatabase.open(self.disk, Life("test", PauseSwitch()), RECORDS)
        finally:
            self.disk._fail_at = fate
            if owner is not None and owner.alive:
                self.disk.opened[RECORDS] = owner

    def config(self, *, managers: tuple[str, ...] = (MANAGER,), token: str = "") -> AgentConfig:
        """Settings of its agent."""
        return AgentConfig(state_dir=STATE_DIR, managers=managers, join_token=token, hooks=self.hook_policy)

    def host(self) -> MachineHost:
        """A new life."""
        life = Life("n1", self.switch)
        executor = FakeExecutor(self.kernel, self.tasks)
        return MachineHost(
            hostname="n1",
            rng=self.rng,
            net=self.net,
            pki=self.pki,
            disk=self.disk,
            files=SimFiles(self.disk, life),
            netlink=self.kernel,
            executors=(executor,),
            node_hooks=GatedHooks(life, self.hooks),
            firewall=(firewall := GatedFirewall(life, self.firewall, self.firewall)),
            sockets=firewall,
            life=life,
            size=self.size,
        )

    @contextlib.asynccontextmanager
    async def agent(
        self, *, managers: tuple[str, ...] = (MANAGER,), token: str = "", crash: bool = False
    ) -> AsyncIterator[trio.Nursery]:
        """An agent that lives inside the context; gives a nursery for the test's own tasks.

        At its end the agent is stopped cleanly, or with `crash` loses its ports first, as a killed process does.
        """
        host = self.host()
        config = self.config(managers=managers, token=token)
        async with trio.open_nursery() as nursery:
            await nursery.start(lambda task_status: daemon.run(host, config, task_status=task_status))
            yield nursery
            if crash:
                host.life.end()
                for executor in host.executors:
                    assert isinstance(executor, FakeExecutor)
                    executor.crash()
            nursery.cancel_scope.cancel()

    @contextlib.asynccontextmanager
    async def ending_agent(self, *, token: str = "") -> AsyncIterator[Ending]:
        """An agent that must end by itself within an hour, with an error, which is then in what the context gives."""
        ending = Ending()
        try:
            async with self.agent(token=token) as ending.nursery:
                yield ending
                await trio.sleep(3600)
                raise AssertionError("the agent did not end")
        except BaseExceptionGroup as group:
            ours, rest = group.split(ClusterError)
            if ours is None or rest is not None:
                raise
            leaf: BaseException = ours
            while isinstance(leaf, BaseExceptionGroup):
                leaf = leaf.exceptions[0]
            ending.error = leaf

    def addresses_up(self) -> list[str]:
        """Addresses of tasks that answer on the LAN."""
        return [live.address for live in self.kernel.live_addresses() if live.netns]
