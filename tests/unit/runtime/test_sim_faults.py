"""What goes wrong in a simulated world goes wrong as it does on real machines."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from beeyard.core.errors import DiskError, PeerError
from beeyard.runtime.host import Connection, Host, Record
from beeyard.runtime.sim import EPOCH_S, SimWorld
from beeyard.runtime.sim_stream import GIVE_UP_S, WINDOW_BYTES
from tests.support.conformance import a_record, dial_and_exchange, echo, exchange, serving

PATH = "/var/lib/beeyard/store.db"


async def echo_daemon(host: Host) -> None:
    """Echoes on port 2377."""
    listener = await host.net.listen("tcp://0.0.0.0:2377")
    await listener.serve(echo)


# --- disk ------------------------------------------------------------------------------------------------------------


async def test_committed_batches_survive_a_power_cut_and_torn_ones_vanish_whole(autojump_clock: MockClock) -> None:
    """Whenever the power goes, the store holds what was acknowledged, and a batch whole or not at all."""
    n_torn = 0
    for seed in range(40):
        async with SimWorld(seed) as world:
            acknowledged = 0

            async def writer(host: Host) -> None:
                nonlocal acknowledged
                database = await host.open_database(PATH)
                index, _ = await database.load()
                while True:
                    await database.commit([a_record(index + 1, "a"), a_record(index + 2, "b", b"x" * 500)])
                    index = acknowledged = index + 2

            world.start("m1", writer)
            await trio.sleep(world.generator("test").uniform(0.001, 0.1))
            world.power_cut("m1")
            stored = await stored_index(world)
            assert stored in (acknowledged, acknowledged + 2)
            n_torn += stored == acknowledged
    assert 0 < n_torn < 40


async def stored_index(world: SimWorld) -> int:
    """What the store of m1 holds now, read by another life."""
    database = await world.host("m1").open_database(PATH)
    index, records = await database.load()
    assert [record.index for record in records] == ([index - 1, index] if index else [])
    await database.aclose()
    return index


async def test_crash_keeps_what_was_written(autojump_clock: MockClock) -> None:
    """A killed daemon's pages are still in the cache; the store is free for the next life at once."""
    async with SimWorld(1) as world:
        host = world.host("m1")
        await host.machine.disk.append(host.life, "/x", b"unsynced")
        world.start("d", echo_daemon, machine="m1")
        world.crash("d")
        assert await host.files.read("/x") == b"unsynced"
        await host.open_database(PATH)
        host.life.end()
        with pytest.raises(DiskError, match="crashed"):
            await host.files.read("/x")
        await world.host("m1").open_database(PATH)


async def test_replacement_during_a_power_cut_leaves_old_or_new(autojump_clock: MockClock) -> None:
    """A small file is never torn, and both outcomes happen."""
    outcomes = set()
    for seed in range(20):
        async with SimWorld(seed) as world:
            host = world.host("m1")
            await host.files.replace("/state", b"old")
            async with trio.open_nursery() as nursery:

                async def replace(host: Host = host) -> None:
                    with pytest.raises(DiskError):
                        await host.files.replace("/state", b"new")

                nursery.start_soon(replace)
                await trio.sleep(host.machine.disk.latency_s / 2)
                host.life.end()
                world.power_cut("m1")
            outcomes.add(await world.host("m1").files.read("/state"))
    assert outcomes == {b"old", b"new"}


async def test_every_failing_disk_call_leaves_the_store_whole(autojump_clock: MockClock) -> None:
    """Nth-call faults: a failed write stores nothing, a failed sync is not believed, a reopened store goes on."""
    n_failed = 0
    for nth in range(1, 20):
        async with SimWorld(1) as world:
            host = world.host("m1")
            host.machine.disk.fail_in(nth)
            acknowledged = 0
            try:
                database = await host.open_database(PATH)
                for index in range(1, 5):
                    await database.commit([a_record(index, f"n{index}")])
                    acknowledged = index
                await database.aclose()
                break
            except DiskError:
                n_failed += 1
                host.life.end()
            database = await world.host("m1").open_database(PATH)
            stored, _ = await database.load()
            assert stored in (acknowledged, acknowledged + 1)
            await database.commit([a_record(stored + 1, "retry")])
            assert (await database.load())[0] == stored + 1
    assert n_failed == 2 + 4 * 2  # making the file, then a write and a sync for each batch


async def test_full_disk_stores_nothing_until_there_is_room(autojump_clock: MockClock) -> None:
    """DiskError means that nothing is stored, and the next commit works."""
    async with SimWorld(1) as world:
        host = world.host("m1")
        database = await host.open_database(PATH)
        host.machine.disk.full = True
        with pytest.raises(DiskError, match="the disk is full"):
            await database.commit([a_record(1)])
        with pytest.raises(DiskError, match="the disk is full"):
            await host.files.replace("/state", b"x")
        host.machine.disk.full = False
        assert await database.load() == (0, [])
        await database.commit([Record(index=1, kind="task", id="a", data=b"x")])


# --- network ---------------------------------------------------------------------------------------------------------


async def test_partition_stalls_bytes_and_healing_delivers_them(autojump_clock: MockClock) -> None:
    """Streams are TCP: nothing is lost or reordered, it comes late."""
    async with SimWorld(3) as world:
        client = world.host("a1")
        world.start("m1", echo_daemon)
        await trio.sleep(0.1)
        connection = await client.net.dial("tcp://m1:2377")
        world.partition(["m1"], ["a1"])
        await connection.stream.send_all(b"one")
        await connection.stream.send_all(b"two")
        with trio.move_on_after(60) as scope:
            await connection.stream.receive_some()
        assert scope.cancelled_caught
        with pytest.raises(PeerError, match="no answer within 10 s"):
            await client.net.dial("tcp://m1:2377")
        world.heal()
        got = b""
        with trio.fail_after(200):
            while len(got) < 6:
                got += await connection.stream.receive_some()
        assert got == b"onetwo"
        await dial_and_exchange(client.net, "tcp://m1:2377")


async def test_one_way_partition_stalls_one_direction(autojump_clock: MockClock) -> None:
    """What the isolated side says does not arrive, what it is told does."""
    async with SimWorld(3) as world:
        client, heard = world.host("a1"), []

        async def talk(connection: Connection) -> None:
            async with trio.open_nursery() as nursery:

                async def listen() -> None:
                    while data := await connection.stream.receive_some():
                        heard.append(data)

                nursery.start_soon(listen)
                while True:
                    await connection.stream.send_all(b"tick")
                    await trio.sleep(1)

        server = world.host("m1")
        async with serving(server.net, "tcp://0.0.0.0:1", talk):
            connection = await client.net.dial("tcp://m1:1")
            await connection.stream.receive_some()
            world.partition(["a1"], ["m1"], one_way=True)
            await connection.stream.send_all(b"help")
            await trio.sleep(5)
            assert len(await connection.stream.receive_some()) == 5 * len(b"tick")
            assert heard == []


async def test_connection_breaks_when_it_has_stalled_too_long(autojump_clock: MockClock) -> None:
    """A partition longer than TCP's patience ends the connection for who has sent, as the kernel does."""
    async with SimWorld(3) as world:
        client = world.host("a1")
        world.start("m1", echo_daemon)
        await trio.sleep(0.1)
        connection = await client.net.dial("tcp://m1:2377")
        world.isolate("a1")
        await connection.stream.send_all(b"anybody?")
        with pytest.raises(trio.BrokenResourceError, match="timed out"):
            await connection.stream.receive_some()
        assert trio.current_time() == pytest.approx(GIVE_UP_S, abs=1)


async def test_sender_waits_while_nobody_reads(autojump_clock: MockClock) -> None:
    """Back-pressure: a stalled reader stops its writer."""
    async with SimWorld(3) as world:

        async def ignore(connection: Connection) -> None:
            await trio.sleep_forever()

        async with serving(world.host("m1").net, "tcp://0.0.0.0:1", ignore):
            connection = await world.host("a1").net.dial("tcp://m1:1")
            n_sent = 0
            with trio.move_on_after(100):
                while True:
                    await connection.stream.send_all(b"x" * 10_000)
                    n_sent += 10_000
            assert WINDOW_BYTES <= n_sent < WINDOW_BYTES + 20_000


async def test_crash_ends_connections_and_power_cut_does_not(autojump_clock: MockClock) -> None:
    """The peer of a killed daemon learns it at once; the peer of a dead machine only when it asks the next life."""
    async with SimWorld(5) as world:
        client = world.host("a1")
        world.start("m1", echo_daemon)
        await trio.sleep(0.1)
        connection = await client.net.dial("tcp://m1:2377")
        world.crash("m1")
        with trio.fail_after(1), pytest.raises((trio.BrokenResourceError, EOFError)):
            await exchange(connection, b"hello")
        with pytest.raises(PeerError, match="refused"):
            await client.net.dial("tcp://m1:2377")
        world.restart("m1")
        await trio.sleep(0.1)
        connection = await client.net.dial("tcp://m1:2377")
        assert await exchange(connection, b"hello") == b"hello"
        world.power_cut("m1")
        with trio.move_on_after(60) as scope:
            await exchange(connection, b"hello")
        assert scope.cancelled_caught
        with pytest.raises(PeerError, match="no answer"):
            await client.net.dial("tcp://m1:2377")
        world.restart("m1")
        with trio.fail_after(121), pytest.raises(trio.BrokenResourceError, match="reset"):
            await connection.stream.receive_some()
        await dial_and_exchange(client.net, "tcp://m1:2377")


async def test_cut_breaks_both_sides_and_new_connections_work(autojump_clock: MockClock) -> None:
    """A firewall that restarts: everything that stood is gone."""
    async with SimWorld(5) as world:
        client = world.host("a1")
        world.start("m1", echo_daemon)
        await trio.sleep(0.1)
        connection = await client.net.dial("tcp://m1:2377")
        world.cut("m1", "a1")
        with pytest.raises(trio.BrokenResourceError):
            await connection.stream.receive_some()
        await dial_and_exchange(client.net, "tcp://m1:2377")


async def test_loss_and_delay_come_late_and_whole(autojump_clock: MockClock) -> None:
    """A bad line is slow, not wrong."""
    async with SimWorld(5) as world:
        world.network.loss = 0.3
        world.network.extra_delay_s["a1", "m1"] = 0.5
        async with serving(world.host("m1").net, "tcp://0.0.0.0:1", echo):
            connection = await world.host("a1").net.dial("tcp://m1:1")
            before = trio.current_time()
            for number in range(20):
                text = f"message {number}".encode()
                assert await exchange(connection, text) == text
            assert 20 * 0.5 < trio.current_time() - before < 20 * 5


# --- machines --------------------------------------------------------------------------------------------------------


async def test_paused_machine_does_nothing_and_goes_on(autojump_clock: MockClock) -> None:
    """Every port waits, `running` too; afterwards nothing is lost."""
    async with SimWorld(5) as world:
        client = world.host("a1")
        ticks = []

        async def ticking(host: Host) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(echo_daemon, host)
                while True:
                    await host.running()
                    ticks.append(trio.current_time())
                    await trio.sleep(1)

        world.start("m1", ticking)
        await trio.sleep(0.5)
        connection = await client.net.dial("tcp://m1:2377")
        world.pause("m1")
        await connection.stream.send_all(b"hello")
        await trio.sleep(30)
        assert len(ticks) == 1
        with trio.move_on_after(1) as scope:
            await connection.stream.receive_some()
        assert scope.cancelled_caught
        world.resume("m1")
        assert await connection.stream.receive_some() == b"hello"
        await trio.sleep(2)
        assert len(ticks) >= 3


async def test_crash_of_a_paused_machine_ends_the_daemon(autojump_clock: MockClock) -> None:
    """A daemon that waits for its CPU can be killed."""
    async with SimWorld(5) as world:
        world.start("m1", echo_daemon)
        await trio.sleep(0.1)
        world.pause("m1")
        world.crash("m1")
        await trio.sleep(0.1)
        assert not world.alive("m1")
        world.resume("m1")
        world.restart("m1")
        await trio.sleep(0.1)
        await dial_and_exchange(world.host("a1").net, "tcp://m1:2377")


async def test_clean_up_of_a_killed_daemon_has_no_effect(autojump_clock: MockClock) -> None:
    """Ports die before the scope is cancelled, so a `finally` cannot save what a real crash loses."""
    async with SimWorld(5) as world:
        tried = []

        async def tidy_daemon(host: Host) -> None:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    tried.append("tidy")
                    await host.files.replace("/farewell", b"x")

        world.start("m1", tidy_daemon)
        await trio.sleep(0.1)
        world.crash("m1")
        await trio.sleep(1)
        assert tried == ["tidy"]
        assert await world.host("m1").files.read("/farewell") is None


async def test_daemon_that_ends_is_revived_and_a_bug_fails_the_world(autojump_clock: MockClock) -> None:
    """A tolerated error is an exit, as systemd sees it; any other ends the simulation."""

    async def full(host: Host) -> None:
        raise DiskError("write", "/x", "the disk is full")

    async with SimWorld(5, revive_after_s=1.0) as world:
        world.start("m1", full)
        await trio.sleep(3.5)
        assert [who for _, who, _ in world.exits] == ["m1"] * 4
        assert "the disk is full" in world.exits[0][2]

    async def buggy(host: Host) -> None:
        raise ZeroDivisionError

    async def buggy_world() -> None:
        async with SimWorld(5) as world:
            world.start("m1", buggy)
            await trio.sleep(1)

    with pytest.raises(ExceptionGroup):
        await buggy_world()


async def test_clocks_are_off_and_drift(autojump_clock: MockClock) -> None:
    """Each machine has its own idea of the time, and a change of drift does not make it jump."""
    async with SimWorld(5) as world:
        machine = world.machine("a1", skew_s=5.0, drift=0.01)
        assert machine.wall_now_s() == pytest.approx(EPOCH_S + trio.current_time() + 5)
        await trio.sleep(100)
        assert machine.wall_now_s() - EPOCH_S - trio.current_time() == pytest.approx(6.0, abs=0.01)
        machine.set_clock(drift=0.0)
        assert machine.wall_now_s() - EPOCH_S - trio.current_time() == pytest.approx(6.0, abs=0.01)
        machine.set_clock(skew_s=-3.0)
        assert machine.wall_now_s() - EPOCH_S - trio.current_time() == pytest.approx(-3.0)
