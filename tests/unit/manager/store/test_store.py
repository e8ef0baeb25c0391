"""The store: order, isolation of failures, durability before visibility, wake-ups and watches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
import trio
import trio.testing

from beeyard.core.errors import DiskError, InvalidSpec, NameConflict, NotFound, OutOfSequence
from beeyard.core.model import Network, Service, ServiceSpec, Task, TaskStatus
from beeyard.core.states import TaskState
from beeyard.manager.store import Store, Transaction
from beeyard.runtime.host import Compacted, Host
from tests.support.memory_database import MemoryDatabase
from tests.support.running_store import StoreHost, running_store


def a_service(service_id: str, name: str | None = None) -> Service:
    return Service(id=service_id, spec=ServiceSpec(name=name or service_id))


def a_task(task_id: str, slot: int = 1, **fields: Any) -> Task:
    spec = ServiceSpec(name="web").task
    return Task(id=task_id, service_id="s", service_name="web", slot=slot, spec=spec, **fields)


async def test_commit_stores_versions_and_times() -> None:
    """A created object carries the index of its write and the transaction's time, and survives a reopening."""
    async with running_store() as (store, database):
        stored = await store.commit(lambda tx: tx.create(a_service("a")))
        assert (stored.version, stored.created_at_s, stored.updated_at_s) == (1, 1000.0, 1000.0)
        assert store.services["a"] == stored
        assert store.by_name(Service, "a") == stored
    assert database.closed
    async with running_store(database) as (again, _):
        assert again.index == 1
        assert again.services["a"] == stored
        assert again.by_name(Service, "a") == stored


async def test_update_of_nothing_writes_nothing() -> None:
    """An update that changes no field keeps the version and does not touch the disk."""
    async with running_store() as (store, database):
        stored = await store.commit(lambda tx: tx.create(a_service("a")))
        again = await store.commit(lambda tx: tx.update(msgspec.structs.replace(stored, version=0)))
        assert again == stored
        assert database.n_commits == 1


async def test_failing_builder_hurts_nobody_else() -> None:
    """Of three callers in one group the failing one gets its error, its writes vanish, the others are stored once."""
    async with running_store() as (store, database):
        await store.commit(lambda tx: tx.create(a_service("first")))

        def bad(tx: Transaction) -> None:
            tx.create(a_service("half"))
            tx.update(msgspec.structs.replace(tx.find(Service, "first"), spec=ServiceSpec(name="renamed")))
            tx.delete(Service, "first")
            raise InvalidSpec("name", "no")

        errors: list[Exception] = []

        async def fails() -> None:
            with pytest.raises(InvalidSpec) as caught:
                await store.commit(bad)
            errors.append(caught.value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.commit, lambda tx: tx.create(a_service("x")))
            nursery.start_soon(fails)
            nursery.start_soon(store.commit, lambda tx: tx.create(a_service("y")))
        assert sorted(store.services) == ["first", "x", "y"]
        assert store.by_name(Service, "first") is not None
        assert store.by_name(Service, "renamed") is None
        assert len(errors) == 1
        assert database.n_batches == [1, 2]
        assert [r.index for r in database.log] == [1, 2, 3]


async def test_bug_in_builder_reaches_its_caller_alone() -> None:
    """A programmer error in one builder is raised at its caller and the committer goes on."""
    async with running_store() as (store, _):
        with pytest.raises(ZeroDivisionError):
            await store.commit(lambda tx: 1 // 0)
        await store.commit(lambda tx: tx.create(a_service("a")))
        assert list(store.services) == ["a"]


async def test_names_are_unique_within_a_group() -> None:
    """Two callers who want one name at the same time: exactly one gets it. A service and a network may share one."""
    async with running_store() as (store, database):
        outcomes: list[str] = []

        async def create(service_id: str) -> None:
            try:
                await store.commit(lambda tx: tx.create(a_service(service_id, "web")))
                outcomes.append("stored")
            except NameConflict as error:
                outcomes.append(str(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(create, "a")
            nursery.start_soon(create, "b")
        assert sorted(outcomes) == ["service with name web already exists", "stored"]
        await store.commit(lambda tx: tx.create(Network(id="n", name="web")))
        taken = next(iter(store.services))
        await store.commit(lambda tx: tx.delete(Service, taken))
        await store.commit(lambda tx: tx.create(a_service("c", "web")))
        assert database.n_commits == 4


async def test_refused_group_tells_nobody_of_what_never_was() -> None:
    """The disk refuses a group: who read before its first write has its answer, all others hear of the disk alone."""
    async with running_store() as (store, database):
        await store.commit(lambda tx: tx.create(a_service("old")))
        database.fail_when = lambda n: n == 3
        outcomes: dict[str, str] = {}

        async def commit(name: str, build: Callable[[Transaction], Any]) -> None:
            try:
                outcomes[name] = str(await store.commit(build))
            except (DiskError, NameConflict, NotFound) as error:
                outcomes[name] = type(error).__name__

        group: dict[str, Callable[[Transaction], Any]] = {
            "reads before": lambda tx: sorted(tx.services),
            "fails before": lambda tx: tx.create(a_service("x", "old")),
            "first": lambda tx: tx.create(a_service("a", "web")),
            "second": lambda tx: tx.create(a_service("b", "web")),
            "reads after": lambda tx: sorted(tx.services),
            "deletes": lambda tx: (tx.delete(Service, "a"), tx.find(Service, "a")),
        }
        async with trio.open_nursery() as nursery:
            database.hold = trio.Event()
            nursery.start_soon(commit, "held", lambda tx: tx.create(a_service("held")))
            for name, build in group.items():
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(commit, name, build)
            await trio.testing.wait_all_tasks_blocked()
            database.hold.set()
        del outcomes["held"]
        assert sorted(store.services) == ["held", "old"]
        assert outcomes == {
            "reads before": "['held', 'old']",
            "fails before": "NameConflict",
            "first": "DiskError",
            "second": "DiskError",
            "reads after": "DiskError",
            "deletes": "DiskError",
        }


async def test_versions_are_checked_in_commit_order() -> None:
    """Of two updates that read the same version the second is out of sequence; a fresh read works."""
    async with running_store() as (store, _):
        read = await store.commit(lambda tx: tx.create(a_service("a")))
        one = msgspec.structs.replace(read, spec_version=2)
        await store.commit(lambda tx: tx.update(one, expected_version=read.version))
        with pytest.raises(OutOfSequence):
            await store.commit(lambda tx: tx.update(msgspec.structs.replace(read, spec_version=3), expected_version=1))
        now = store.services["a"]
        assert now.spec_version == 2
        await store.commit(lambda tx: tx.update(msgspec.structs.replace(now, spec_version=3), expected_version=2))
        assert store.services["a"].version == 3
        with pytest.raises(NotFound):
            await store.commit(lambda tx: tx.update(a_service("gone")))
        with pytest.raises(NotFound):
            await store.commit(lambda tx: tx.delete(Service, "gone"))


async def test_refusing_disk_fails_the_group_and_shows_nothing() -> None:
    """When the database refuses, every caller of the group learns it, nothing is visible, and the next commit works."""
    database = MemoryDatabase()
    database.fail_when = lambda n: n == 2
    async with running_store(database) as (store, _):
        await store.commit(lambda tx: tx.create(a_task("t", slot=1)))
        failed: list[str] = []

        async def change(slot: int) -> None:
            with pytest.raises(DiskError):
                await store.commit(lambda tx: tx.create(a_task(f"t{slot}", slot=slot)))
            failed.append(f"t{slot}")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(change, 2)
            nursery.start_soon(change, 3)
        assert sorted(failed) == ["t2", "t3"]
        assert [t.id for t in store.tasks_of_service("s")] == ["t"]
        assert await store.commit(lambda tx: [t.id for t in tx.tasks_of_service("s")]) == ["t"]
        await store.commit(lambda tx: tx.create(a_task("t4", slot=4)))
        assert [r.index for r in database.log] == [1, 2]
        assert [t.id for t in store.tasks_of_service("s")] == ["t", "t4"]


async def test_lost_disk_ends_the_daemon() -> None:
    """When nobody can say what is on the disk the committer ends, callers with it, and nothing of the group is shown."""
    database = MemoryDatabase()
    database.fail_when, database.failures_are_fatal = lambda n: True, True
    store = await Store.open(cast("Host", StoreHost(database)), "/state/store.db")

    async def daemon() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            nursery.start_soon(store.commit, lambda tx: tx.create(a_service("a")))

    with pytest.raises(ExceptionGroup) as caught:
        await daemon()
    assert caught.group_contains(DiskError)
    assert not store.services
    assert database.closed


async def test_nothing_is_visible_before_it_is_durable() -> None:
    """While the disk is busy readers see the old state; many callers then share one batch."""
    database = MemoryDatabase()
    database.hold = trio.Event()
    async with running_store(database) as (store, _), trio.open_nursery() as nursery:
        nursery.start_soon(store.commit, lambda tx: tx.create(a_service("a")))
        await trio.testing.wait_all_tasks_blocked()
        assert not store.services
        for i in range(50):
            nursery.start_soon(store.commit, lambda tx, i=i: tx.create(a_service(f"s{i:02}")))
        await trio.testing.wait_all_tasks_blocked()
        database.hold.set()
        await store.wait_past(50)
        assert database.n_batches == [1, 50]


async def test_cancelled_caller_still_waits_for_the_result() -> None:
    """A commit that is queued cannot be half cancelled: the write is there when the caller is gone."""
    database = MemoryDatabase()
    database.hold = trio.Event()
    async with running_store(database) as (store, _):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(store.commit, lambda tx: tx.create(a_service("a")))
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
                database.hold.set()
        assert list(store.services) == ["a"]
        with trio.CancelScope() as scope:
            scope.cancel()
            await store.commit(lambda tx: tx.create(a_service("b")))
        await trio.testing.wait_all_tasks_blocked()
        assert list(store.services) == ["a"]


async def test_callers_end_with_the_committer() -> None:
    """When the daemon is cancelled its callers are cancelled with it, however they wait."""
    database = MemoryDatabase()
    store = await Store.open(cast("Host", StoreHost(database)), "/state/store.db")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.commit, lambda tx: tx.create(a_service("never run")))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        nursery.start_soon(store.run)
    assert not store.services


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xc1", "MessagePack data is malformed: invalid opcode '\\xc1' (byte 0)"),
        (b"", "Input data was truncated"),
        (msgspec.msgpack.encode({"type": "node", "id": 7}), "Expected `str`, got `int` - at `$.id`"),
        (msgspec.msgpack.encode(a_service("b")), "it is another object than it is filed as"),
        (cast("bytes", "text"), "a bytes-like object is required, not 'str'"),
    ],
)
async def test_damaged_object_is_named(data: bytes, reason: str) -> None:
    """At the start and to watchers alike; the database is closed."""
    database = MemoryDatabase()
    async with running_store(database) as (store, _):
        await store.commit(lambda tx: tx.create(a_service("a")))
    record = database.log[0]
    database.log[0] = msgspec.structs.replace(record, data=data)
    with pytest.raises(DiskError) as refused:
        await Store.open(cast("Host", StoreHost(database)), "/state/store.db")
    assert str(refused.value) == (
        f"cannot read /state/store.db: the service a in it is damaged ({reason}); restore the file from a backup"
    )
    assert database.closed

    database.log[0] = record
    async with running_store(database) as (store, _):
        database.log[0] = msgspec.structs.replace(record, data=data)
        with pytest.raises(DiskError, match="the service a in it is damaged"):
            await anext(store.watch(0))


async def test_indexes_follow_tasks() -> None:
    """Tasks are found by service in order of slot, and by node from the commit that places them until deleted."""
    async with running_store() as (store, _):
        for task_id, slot in (("b", 2), ("c", 1), ("a", 2)):
            await store.commit(lambda tx, i=task_id, s=slot: tx.create(a_task(i, slot=s)))
        assert [t.id for t in store.tasks_of_service("s")] == ["c", "a", "b"]
        assert store.tasks_of_node("n1") == []

        def place(tx: Transaction) -> None:
            task = tx.find(Task, "a")
            pending = tx.update(msgspec.structs.replace(task, status=TaskStatus(state=TaskState.PENDING)))
            tx.update(msgspec.structs.replace(pending, node_id="n1", status=TaskStatus(state=TaskState.ASSIGNED)))
            assert [t.id for t in tx.tasks_of_node("n1")] == ["a"]

        await store.commit(place)
        assert [t.id for t in store.tasks_of_node("n1")] == ["a"]
        await store.commit(lambda tx: tx.delete(Task, "a"))
        assert store.tasks_of_node("n1") == []
        assert [t.id for t in store.tasks_of_service("s")] == ["c", "b"]


async def test_tasks_of_a_service_come_in_order_of_slot_and_id() -> None:
    """Whatever the order in which they were made, moved and deleted."""
    async with running_store() as (store, _):
        for task_id, slot in (("b", 10), ("c", 2), ("a", 10), ("d", 1), ("e", 10)):
            await store.commit(lambda tx, task_id=task_id, slot=slot: tx.create(a_task(task_id, slot)))
        await store.commit(lambda tx: tx.delete(Task, "b"))
        assert [t.id for t in store.tasks_of_service("s")] == ["d", "c", "a", "e"]
        assert [t.id for t in store.tasks_of_slot("s", 10)] == ["a", "e"]
        assert store.tasks_of_slot("s", 3) == []


async def test_watch_resumes_from_an_index_and_goes_on_live() -> None:
    """A watch from index v gives everything after v once, in order: from memory, from the database, then live."""
    database = MemoryDatabase()
    async with running_store(database) as (store, _):
        for i in range(3):
            await store.commit(lambda tx, i=i: tx.create(a_service(f"s{i}")))
    async with running_store(database) as (store, _):
        watch = store.watch(1)
        assert [(await anext(watch)).id for _ in range(2)] == ["s1", "s2"]
        await store.commit(lambda tx: tx.delete(Service, "s0"))
        change = await anext(watch)
        assert (change.id, change.new, change.index) == ("s0", None, 4)
        live = store.watch(None)
        with trio.move_on_after(0):
            await anext(live)
            raise AssertionError("nothing was written")
        await store.commit(lambda tx: tx.create(a_service("new")))
        assert (await anext(live)).id == "new"


async def test_watch_from_an_index_that_is_gone() -> None:
    """A watch whose start is no longer kept, or was never written, says so."""
    database = MemoryDatabase(keep=2)
    async with running_store(database) as (store, _):
        for i in range(5):
            await store.commit(lambda tx, i=i: tx.create(a_service(f"s{i}")))
    async with running_store(database) as (store, _):
        with pytest.raises(Compacted):
            await anext(store.watch(1))
        with pytest.raises(Compacted):
            await anext(store.watch(99))
        assert (await anext(store.watch(3))).index == 4
