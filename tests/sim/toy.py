"""A toy cluster: agents send numbers to a manager that stores them durably and acknowledges.

It proves the simulator and the nemesis without the real daemons: whatever breaks, no acknowledged number is lost, none is
stored twice, and once everything is healed all get through.
"""

from __future__ import annotations

import trio

from beeyard.core.errors import DiskError, PeerError
from beeyard.runtime.host import Connection, Database, Host, Record
from beeyard.runtime.sim import SimWorld
from tests.sim.nemesis import Nemesis

N_AGENTS = 5
SAFETY_S = 300.0
LIVENESS_S = 300.0
STORE = "/var/lib/toy/store.db"
LAST = "/var/lib/toy/last"


class ToyManager:
    """One life of the manager."""

    def __init__(self, host: Host, database: Database) -> None:
        self._host = host
        self._database = database
        self._turn = trio.Lock()
        self._index = 0
        self._stored: dict[str, None] = {}

    async def run(self) -> None:
        """Load, then serve."""
        self._index, records = await self._database.load()
        self._stored = {record.id: None for record in records}
        listener = await self._host.net.listen("tcp://0.0.0.0:2377")
        try:
            await listener.serve(self._serve)
        finally:
            await listener.aclose()

    async def _serve(self, connection: Connection) -> None:
        rest = b""
        while data := await connection.stream.receive_some():
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                try:
                    await self._store(line.decode())
                except DiskError:
                    return  # the agent tries again
                await connection.stream.send_all(line + b"\n")

    async def _store(self, number: str) -> None:
        async with self._turn:
            if number not in self._stored:
                self._index += 1
                record = Record(index=self._index, kind="number", id=number, data=b"")
                try:
                    await self._database.commit([record])
                except DiskError:
                    self._index -= 1
                    raise
                self._stored[number] = None


async def manager(host: Host) -> None:
    """The manager's daemon."""
    await ToyManager(host, await host.open_database(STORE)).run()


def agent_for(name: str, acknowledged: dict[str, None]) -> object:
    """An agent's daemon, which notes in `acknowledged` what it was told is stored."""

    async def agent(host: Host) -> None:
        number = int(await host.files.read(LAST) or b"0")
        while True:
            await host.running()
            try:
                connection = await host.net.dial("tcp://m1:2377", timeout_s=5)
            except PeerError:
                await trio.sleep(host.rng.uniform(0.5, 2))
                continue
            try:
                while True:
                    text = f"{name}-{number}"
                    with trio.fail_after(10):
                        await connection.stream.send_all(text.encode() + b"\n")
                        answer = await connection.stream.receive_some()
                    if answer != text.encode() + b"\n":
                        break
                    acknowledged[text] = None
                    await host.files.replace(LAST, str(number + 1).encode())
                    number += 1
                    await trio.sleep(host.rng.uniform(0.1, 2))
            except (trio.BrokenResourceError, trio.TooSlowError):
                pass
            finally:
                await trio.aclose_forcefully(connection.stream)
            await trio.sleep(host.rng.uniform(0.1, 1))

    return agent


async def scenario(world: SimWorld) -> None:
    """Break everything for a while, heal it, check."""
    acknowledged: dict[str, None] = {}
    agents = [f"a{number}" for number in range(1, N_AGENTS + 1)]
    for name in ("m1", *agents):
        world.machine(name)
    nemesis = Nemesis(world, managers=["m1"], agents=agents)
    nemesis.prepare()
    world.start("m1", manager)
    for name in agents:
        world.start(name, agent_for(name, acknowledged))  # type: ignore[arg-type]
    with trio.move_on_after(SAFETY_S):
        await nemesis.run()
        await trio.sleep_forever()  # a plan without faults has nothing to do
    nemesis.heal()
    before = {name: n_of(name, acknowledged) for name in agents}
    await world.until(
        lambda: all(n_of(name, acknowledged) >= before[name] + 5 for name in agents), timeout_s=LIVENESS_S
    )
    await check_nothing_acknowledged_is_lost(world, acknowledged)


async def check_nothing_acknowledged_is_lost(world: SimWorld, acknowledged: dict[str, None]) -> None:
    """What an agent was told is stored is in the store after a last power cut."""
    world.power_cut("m1")
    database = await world.host("m1").open_database(STORE)
    stored = {record.id: None for record in (await database.load())[1]}
    lost = [number for number in acknowledged if number not in stored]
    assert lost == [], f"acknowledged and lost: {lost}"
    await database.aclose()


def n_of(name: str, acknowledged: dict[str, None]) -> int:
    """How many numbers of an agent are acknowledged."""
    return sum(number.startswith(f"{name}-") for number in acknowledged)
