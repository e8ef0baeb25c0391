"""Addresses that strangers have: who gets them, for how long, and what is said of them."""

from __future__ import annotations

import msgspec
import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from beeyard.core.model import AddressConflict, Network, Task
from beeyard.core.pools import DEFAULT_SEGMENT, pools_of
from beeyard.core.states import TaskState
from beeyard.manager.hooks.address import address_hook
from beeyard.manager.hooks.aside import SAME_MACHINE_MAX, WARNINGS_MAX, Aside, aside_warnings, closed_by
from beeyard.manager.hooks.books import FREE_UNLIMITED, AddressLedger
from beeyard.manager.planner import Planner
from beeyard.manager.store import Change, View
from beeyard.manager.store.view import Tables
from tests.support.builders import a_network, a_node, a_task, an_ipam
from tests.support.grants import a_grant

NOW_S = 1_700_000_000.0
MAC = "02:00:00:00:00:99"


def a_refused_task(address: str = "10.77.0.1/24", *, age_s: float = 0.0, conflicts: bool = True) -> Task:
    """One whose address its agent found taken, last written so long ago."""
    grant = a_grant(address, network_id="net1", pool_id="net1", pool_name="lan", segment=DEFAULT_SEGMENT)
    task = a_task("t1", state=TaskState.REJECTED, node_id="n1")
    found = (AddressConflict(address=address.partition("/")[0], mac=MAC),) if conflicts else ()
    status = msgspec.structs.replace(task.status, conflicts=found)
    return msgspec.structs.replace(task, grants=(grant,), status=status, updated_at_s=NOW_S - age_s)


def a_manager(*tasks: Task, network: Network | None = None) -> tuple[Planner, AddressLedger]:
    """What a new manager makes of a store with one network and these tasks; its wall clock shows NOW_S."""
    tables = Tables()
    tables.put(network or a_network())
    for task in tasks:
        tables.put(task)
    ledger = AddressLedger(aside_s=3600.0, wall_now_s=lambda: NOW_S)
    planner = Planner(View(tables), ledger)
    planner.hooks = [address_hook(ledger, planner.index.pool_for, lambda: "g")]
    planner.load()
    return planner, ledger


def cooling(ledger: AddressLedger) -> int:
    usage = ledger.usage("net1")
    assert usage is not None
    return usage.cooling


async def test_a_refused_task_has_its_address_put_aside(autojump_clock: MockClock) -> None:
    """Once its end is stored, for the whole time, and then the address is as good as any."""
    running = msgspec.structs.replace(a_refused_task(), status=a_task(state=TaskState.PREPARING).status)
    planner, ledger = a_manager(running)
    with capture_logs() as logs:
        planner.apply([Change(kind="task", id="t1", index=9, old=running, new=a_refused_task())])
    assert [(line["address"], line["mac"], line["node"]) for line in logs if "mac" in line] == [
        ("10.77.0.1", MAC, "n1")
    ]
    (aside,) = ledger.aside("net1")
    assert (aside.address, aside.mac, aside.node_id) == ("10.77.0.1", MAC, "n1")
    await trio.sleep(3599)
    # Told again of the same task, as when its desired state changes: that is no news of the stranger.
    planner.apply([Change(kind="task", id="t1", index=9, old=a_refused_task(), new=a_refused_task())])
    planner.apply([Change(kind="task", id="t1", index=9, old=a_refused_task(), new=None)])
    assert (cooling(ledger), len(ledger.aside())) == (1, 1)
    await trio.sleep(2)
    assert (cooling(ledger), ledger.aside()) == (0, [])


async def test_a_new_manager_puts_aside_what_is_left_of_the_hour(autojump_clock: MockClock) -> None:
    """By the wall clock: a clock that seems to have gone back does not make it longer."""
    _, ledger = a_manager(a_refused_task(age_s=3000.0))
    await trio.sleep(599)
    assert (cooling(ledger), len(ledger.aside("net1"))) == (1, 1)
    await trio.sleep(2)
    assert (cooling(ledger), ledger.aside("net1")) == (0, [])
    _, ledger = a_manager(a_refused_task(age_s=-86400.0))
    await trio.sleep(3601)
    assert ledger.aside("net1") == []


async def test_a_new_manager_forgets_what_is_long_over(autojump_clock: MockClock) -> None:
    """Its address only rests, as that of any task that ended."""
    _, ledger = a_manager(a_refused_task(age_s=3601.0))
    assert ledger.aside() == []
    await trio.sleep(31)
    assert cooling(ledger) == 0


async def test_what_is_put_aside_belongs_to_its_pool(autojump_clock: MockClock) -> None:
    """A pool shows its own; addresses that the task never had are nobody's."""
    _, ledger = a_manager(a_refused_task("192.0.2.5/24"))
    assert (ledger.aside("net1"), len(ledger.aside()), ledger.aside("gone")) == ([], 1, [])
    task = a_refused_task()
    stranger = msgspec.structs.replace(task.status, conflicts=(AddressConflict(address="10.77.0.9", mac=MAC),))
    _, ledger = a_manager(msgspec.structs.replace(task, status=stranger))
    assert ledger.aside() == []


@pytest.mark.parametrize(("driver", "free"), [("default", 254 - SAME_MACHINE_MAX), ("corp", FREE_UNLIMITED)])
async def test_a_closed_pool_has_no_addresses_for_the_scheduler(
    autojump_clock: MockClock, driver: str, free: int
) -> None:
    """Whoever counts them, until the time of the first is over; each is tried anew then, and no more."""
    network = msgspec.structs.replace(a_network(), ipam_driver=driver)
    planner, ledger = a_manager(network=network)
    for number in range(SAME_MACHINE_MAX):
        assert dict(ledger.free())["net1"] > 0
        refused = msgspec.structs.replace(a_refused_task(f"10.77.0.{number + 2}/24"), id=f"t{number}")
        planner.apply([Change(kind="task", id=refused.id, index=9, old=None, new=refused)])
        await trio.sleep(10)
    assert dict(ledger.free()) == {"net1": 0}
    assert ledger.all_closed() == [ledger.closed("net1")]
    assert "answers for 8 addresses of pool lan" in ledger.closed("net1")
    await trio.sleep(3600 - 10 * SAME_MACHINE_MAX + 1)
    assert dict(ledger.free()) == {"net1": free + 1 if driver == "default" else free}
    assert (ledger.closed("net1"), ledger.closed("gone")) == ("", "")


def test_an_operator_is_told_of_the_first_few() -> None:
    """Address, MAC and the node's name; a flood is counted."""
    found = [Aside(DEFAULT_SEGMENT, f"10.77.0.{i}", MAC, "n1", 0.0) for i in range(1, WARNINGS_MAX + 4)]
    nodes = {"n1": a_node("n1", hostname="yard1")}
    sentences = aside_warnings(found, nodes)
    assert sentences[0] == (
        f"address 10.77.0.1 is in use outside the cluster by {MAC}, as node yard1 found: it is put aside"
    )
    assert sentences[-1] == "3 more addresses are in use outside the cluster and put aside"
    assert len(sentences) == WARNINGS_MAX + 1
    assert "as node n1 found" in aside_warnings(found[:1], {})[0]


def some_aside(n: int, *, first: int = 1, mac: str = MAC, prefix: str = "10.77.0.") -> list[Aside]:
    return [Aside(DEFAULT_SEGMENT, f"{prefix}{i}", mac, "n1", 0.0) for i in range(first, first + n)]


def test_a_pool_is_closed_for_one_machine_with_many_of_its_addresses() -> None:
    """Not for several, nor for addresses of another pool or segment, nor for those that the pool leaves out by now."""
    network = a_network(ipam=[an_ipam(), an_ipam("fd77::/64")])
    (pool,) = pools_of(network, [network])
    many = some_aside(SAME_MACHINE_MAX)
    assert closed_by(many, pool).startswith(
        f"{MAC} outside the cluster answers for {SAME_MACHINE_MAX} addresses of pool lan, as a router with proxy ARP does"
    )
    other = [aside._replace(segment="v9") for aside in many]
    half = SAME_MACHINE_MAX // 2
    both = some_aside(half) + some_aside(half, prefix="fd77::")
    two = some_aside(half) + some_aside(half, first=half + 1, mac="02:00:00:00:00:77")
    for found in ([], many[1:], other, both, two, some_aside(SAME_MACHINE_MAX, prefix="10.78.0.")):
        assert closed_by(found, pool) == ""
    known = msgspec.structs.replace(network, ipam=(an_ipam(aux={"nas": "10.77.0.2"}),))
    assert closed_by(many, pools_of(known, [known])[0]) == ""


async def test_what_was_taken_back_is_put_aside_again_when_it_is_found_again(autojump_clock: MockClock) -> None:
    """Whatever the wall clock says, which has gone back since; a new manager asks it and nothing else."""
    planner, ledger = a_manager(a_refused_task(age_s=10.0))
    assert len(ledger.aside("net1")) == 1
    network = msgspec.structs.replace(a_network(), taken_back={"10.77.0.1": NOW_S - 5.0})
    ledger.set_networks([network])
    assert (ledger.aside("net1"), cooling(ledger)) == ([], 0)
    ledger.set_networks([network])
    running = msgspec.structs.replace(a_refused_task(), status=a_task(state=TaskState.PREPARING).status)
    planner.apply([Change(kind="task", id="t1", index=9, old=running, new=a_refused_task(age_s=3600.0))])
    assert (len(ledger.aside("net1")), cooling(ledger)) == (1, 1)
    for age_s, n_aside in ((4.0, 1), (6.0, 0)):
        _, ledger = a_manager(a_refused_task(age_s=age_s), network=network)
        assert len(ledger.aside("net1")) == n_aside
