"""What subscribers of the store are told, and that it is little however long they sleep."""

from __future__ import annotations

import msgspec

from beeyard.core.model import Node, Service, ServiceSpec
from beeyard.manager.store import Change
from beeyard.manager.store.change import GROUPS_MAX
from tests.support.running_store import running_store


def a_service(service_id: str) -> Service:
    return Service(id=service_id, spec=ServiceSpec(name=service_id))


async def test_wakes_coalesce_and_keep_first_old_and_last_new() -> None:
    """A slow subscriber gets one entry an object, from what it last knew to what is now; other kinds do not wake it."""
    async with running_store() as (store, _), store.subscribe("service") as wakeups:
        await store.commit(lambda tx: tx.create(Node(id="n")))
        first = await store.commit(lambda tx: tx.create(a_service("a")))
        second = await store.commit(lambda tx: tx.update(msgspec.structs.replace(first, spec_version=2)))
        wake = await anext(wakeups)
        assert wake.changes == [Change("service", "a", None, second, 3)]
        await store.commit(lambda tx: tx.delete(Service, "a"))
        wake = await anext(wakeups)
        assert wake.changes == [Change("service", "a", second, None, 4)]
        assert wakeups.take_nowait().changes == []


async def test_a_subscriber_that_never_reads_is_told_of_each_object_once() -> None:
    """However many writes it sleeps through: what waits for it is bounded by the objects there are."""
    async with running_store() as (store, _), store.subscribe("service", "node") as wakeups:
        first = await store.commit(lambda tx: tx.create(a_service("a")))
        last = first
        for number in range(2, 3 * GROUPS_MAX):
            last = await store.commit(
                lambda tx, last=last, number=number: tx.update(msgspec.structs.replace(last, spec_version=number))
            )
        node = await store.commit(lambda tx: tx.create(Node(id="a")))
        assert wakeups.take_nowait().changes == [
            Change("service", "a", None, last, 3 * GROUPS_MAX - 1),
            Change("node", "a", None, node, 3 * GROUPS_MAX),
        ]
