"""Rows of SwarmKit's scheduler scenarios about resources, platforms and plugins, each with its number: S20 to S49."""

from __future__ import annotations

import pytest

from beeyard.core.demand import Demand
from beeyard.core.model import Platform, Resources
from beeyard.core.mounts import LogDriver, Mount
from beeyard.core.placement import PlacementIndex, PoolColumn
from beeyard.core.states import NodeState, TaskState
from tests.support.builders import GIB, a_node, a_task, a_task_spec, some_generic
from tests.support.placement import nodes_of

FRUIT = Demand("s1", memory_bytes=2 * GIB, generic=(("apple", 2), ("orange", 2)), spec_version=1)


def an_orchard() -> PlacementIndex:
    """One READY node that is too small, two big ones of which nobody knows the state."""
    index = PlacementIndex()
    index.set_node(a_node("n1", memory_bytes=GIB, generic={"apple": 1, "orange": ["blue"]}))
    for node_id in ("n2", "n3"):
        fruit = {"apple": 5, "orange": ["blue", "red", "green"]}
        index.set_node(a_node(node_id, state=NodeState.UNKNOWN, memory_bytes=16 * GIB, generic=fruit))
    return index


def test_s20_what_is_missing_on_most_nodes_comes_first() -> None:
    decision = an_orchard().place(FRUIT, ["t1"])
    assert decision.unplaced == 1
    assert decision.explanation == (
        "no suitable node (2 nodes not available for new tasks; insufficient resources on 1 node)"
    )


def test_s21_a_big_node_takes_the_task() -> None:
    index = an_orchard()
    index.place(FRUIT, ["t1"])
    index.set_node(a_node("n4", memory_bytes=4 * GIB, generic={"apple": 2, "orange": ["gold", "grey"]}))
    assert nodes_of(index.place(FRUIT, ["t1"])) == ["n4"]
    assert index.explain(FRUIT) == (
        "no suitable node (2 nodes not available for new tasks; insufficient resources on 2 nodes)"
    )


def test_s22_room_comes_before_the_number_of_tasks() -> None:
    """Two services of one task each: the emptier node has memory for one of them alone."""
    index = PlacementIndex()
    index.set_node(a_node("n1", memory_bytes=GIB + GIB // 2))
    index.set_node(a_node("n2", memory_bytes=100 * GIB))
    index.hold("h1", Demand("other", memory_bytes=GIB // 2), "n1")
    for number in range(3):
        index.hold(f"g{number}", Demand("other", memory_bytes=GIB // 2), "n2")
    one, two = (Demand(service, memory_bytes=GIB) for service in ("s1", "s2"))
    assert nodes_of(index.place(one, ["t1"])) + nodes_of(index.place(two, ["t2"])) == ["n1", "n2"]


def test_s24_a_task_that_is_over_holds_nothing() -> None:
    spec = a_task_spec(memory_bytes=8 * GIB, generic={"apple": 1})
    ended = a_task("t0", spec=spec, state=TaskState.SHUTDOWN, node_id="n1")
    assert not ended.holds_room
    assert a_task("t0", spec=spec, state=TaskState.RUNNING, node_id="n1").holds_room


def a_zoo() -> PlacementIndex:
    index = PlacementIndex()
    index.set_node(a_node("n1", architecture="x86_64", os="linux"))
    index.set_node(a_node("n2", architecture="amd64", os="windows"))
    index.set_node(a_node("n3", architecture="", os=""))
    return index


def on(*platforms: tuple[str, str]) -> Demand:
    return Demand("s1", platforms=tuple(Platform(architecture=arch, os=os) for arch, os in platforms))


@pytest.mark.parametrize(
    ("wanted", "nodes"),
    [
        ([("amd64", "linux")], ["n1"]),  # S25
        ([("x86_64", "linux")], ["n1"]),
        ([("", "linux")], ["n1"]),  # S28
        ([("arm64", "linux"), ("amd64", "linux"), ("x86_64", "windows")], ["n1", "n2"]),
        ([("amd64", "")], ["n1", "n2"]),
        ([], ["n1", "n2", "n3"]),
    ],
)
def test_s25_s28_platforms_and_their_other_names(wanted: list[tuple[str, str]], nodes: list[str]) -> None:
    index, demand = a_zoo(), on(*wanted)
    assert [node_id for node_id in ("n1", "n2", "n3") if not index.feasible(demand, node_id)] == nodes


def test_s26_a_platform_that_no_node_has() -> None:
    assert a_zoo().explain(on(("arm", "linux"))) == "no suitable node (unsupported platform on 3 nodes)"


def with_mounts(*mounts: Mount) -> Demand:
    return Demand.of(a_task(spec=a_task_spec(mounts=mounts)))


def test_s34_a_bind_mount_asks_for_no_plugin() -> None:
    index = PlacementIndex()
    index.set_node(a_node("n1"))
    demand = with_mounts(Mount(type="bind", source="/v/driver/nfs", target="/foo", driver=""))
    assert demand.plugins == ()
    assert nodes_of(index.place(demand, ["t1"])) == ["n1"]


def test_s34_a_volume_of_every_node_asks_for_none_and_another_for_its_driver() -> None:
    index = PlacementIndex()
    index.set_node(a_node("n1"))
    index.set_node(a_node("n2", volume_drivers=["nfs:latest"]))
    local = with_mounts(*(Mount(type="volume", source="v", target=f"/{d}", driver=d) for d in ("", "local")))
    assert local.plugins == ()
    remote = with_mounts(Mount(type="volume", source="v", target="/v", driver="nfs"))
    assert nodes_of(index.place(remote, ["t1"])) == ["n2"]
    other = with_mounts(Mount(type="volume", source="v", target="/v", driver="nf"))
    assert index.explain(other) == "no suitable node (missing plugin on 2 nodes: volume driver nf)"


def test_s36_a_network_driver_that_no_node_has() -> None:
    index = PlacementIndex()
    for node_id in ("n1", "n2"):
        index.set_node(a_node(node_id, link_kinds=()))
    index.set_network("net1", "macvlan", [PoolColumn("p1", "lan", "eth0", "", 10)], name="lan")
    demand = Demand("s1", network_ids=("net1",))
    assert index.explain(demand) == "no suitable node (missing plugin on 2 nodes: network driver macvlan)"
    index.set_node(a_node("n3"))
    assert nodes_of(index.place(demand, ["t1"])) == ["n3"]


def test_s37_a_log_driver_that_no_node_has() -> None:
    index = PlacementIndex()
    for node_id in ("n1", "n2", "n3"):
        index.set_node(a_node(node_id, log_drivers=["local"]))
    demand = Demand("s1", log_driver="syslog")
    assert index.explain(demand) == "no suitable node (missing plugin on 3 nodes: log driver syslog)"
    index.set_node(a_node("n4", log_drivers=["local", "syslog"]))
    assert nodes_of(index.place(demand, ["t1", "t2"])) == ["n4", "n4"]


@pytest.mark.parametrize("driver", [LogDriver(name="none"), LogDriver(options={"max-size": "1m"})])
def test_s38_no_log_and_no_driver_fit_everywhere(driver: LogDriver) -> None:
    index = PlacementIndex()
    index.set_node(a_node("n1", log_drivers=["local"]))
    assert nodes_of(index.place(Demand("s1", log_driver=driver.name), ["t1"])) == ["n1"]


def test_s38_a_node_that_lists_no_log_driver_takes_any() -> None:
    index = PlacementIndex()
    index.set_node(a_node("n1", log_drivers=()))
    assert nodes_of(index.place(Demand("s1", log_driver="syslog"), ["t1"])) == ["n1"]


def test_s44_s45_generic_resources_are_held_once_and_come_back() -> None:
    index = PlacementIndex()
    index.set_node(a_node("n1", generic={"apple": 5, "orange": ["blue", "red"]}))
    demand = Demand("s1", generic=(("apple", 2), ("orange", 1)))
    for _ in range(2):
        index.hold("t1", demand, "n1")
    room = index.room("n1")
    assert room is not None
    assert room.free.generic == some_generic({"apple": 3, "orange": 1})
    assert room.taken.generic == some_generic({"apple": 2, "orange": 1})
    for task_id in ("unknown", "t1", "t1"):
        index.drop(task_id)
    room = index.room("n1")
    assert room is not None
    assert room.free.generic == some_generic({"apple": 5, "orange": 2})


@pytest.mark.parametrize("offer", [2, ["blue", "red"]])
def test_s49_as_many_as_there_are_fit_and_one_more_does_not(offer: int | list[str]) -> None:
    index = PlacementIndex()
    index.set_node(a_node("n1", generic={"orange": offer}))
    assert index.feasible(Demand("s1", generic=(("orange", 2),)), "n1") == ""
    assert index.feasible(Demand("s1", generic=(("orange", 3),)), "n1") == "insufficient resources on 1 node"
    assert index.feasible(Demand("s1", generic=(("kiwi", 1),)), "n1") == "insufficient resources on 1 node"


def test_what_a_node_keeps_for_itself_is_no_room() -> None:
    index = PlacementIndex()
    reserved = Resources(cpu_nano=1, memory_bytes=2, generic=some_generic({"apple": 1}))
    index.set_node(a_node("n1", cpu_nano=3, memory_bytes=3, generic={"apple": 2}, reserved=reserved))
    room = index.room("n1")
    assert room is not None
    assert room.free == room.total == Resources(cpu_nano=2, memory_bytes=1, generic=some_generic({"apple": 1}))
    assert index.feasible(Demand("s1", cpu_nano=2, memory_bytes=1, generic=(("apple", 1),)), "n1") == ""
    assert index.feasible(Demand("s1", cpu_nano=3), "n1") == "insufficient resources on 1 node"
    assert index.feasible(Demand("s1", memory_bytes=2), "n1") == "insufficient resources on 1 node"
    assert index.feasible(Demand("s1", generic=(("apple", 2),)), "n1") == "insufficient resources on 1 node"


def test_a_node_that_offers_less_than_it_did_owes_what_its_tasks_have() -> None:
    index = PlacementIndex()
    index.set_node(a_node("n1", generic={"apple": 5}))
    demand = Demand("s1", generic=(("apple", 2),))
    index.place(demand, ["t1", "t2"])
    index.set_node(a_node("n1", generic={}))
    room = index.room("n1")
    assert room is not None
    assert room.free.generic_amounts == (("apple", -4),)
    assert index.feasible(demand, "n1") == "insufficient resources on 1 node"
    assert index.feasible(Demand("s1"), "n1") == ""
    index.set_node(a_node("n1", generic={"apple": 6}))
    assert nodes_of(index.place(demand, ["t3"])) == ["n1"]
    assert index.room("gone") is None


def test_a_task_found_before_its_kind_was_known_is_counted_all_the_same() -> None:
    index = PlacementIndex()
    index.set_node(a_node("n1"))
    index.hold("t1", Demand("s1", generic=(("apple", 2),)), "n1")
    index.hold("t2", Demand("s1", generic=(("apple", 2),)), "n2")
    index.set_node(a_node("n2", generic={"apple": 3}))
    index.set_node(a_node("n1", generic={"apple": 3}))
    for node_id in ("n1", "n2"):
        room = index.room(node_id)
        assert room is not None
        assert room.free.generic_amounts == (("apple", 1),)
    index.drop("t1")
    assert index.feasible(Demand("s1", generic=(("apple", 3),)), "n1") == ""


def test_more_kinds_than_the_kernel_counts_fit_nowhere_and_harm_nobody() -> None:
    index = PlacementIndex()
    index.set_node(a_node("n1", generic={f"k{number:02}": 2 for number in range(20)}))
    fits = [not index.feasible(Demand("s1", generic=((f"k{number:02}", 1),)), "n1") for number in range(20)]
    assert fits == [True] * 14 + [False] * 6
    index.hold("t1", Demand("s1", generic=(("k00", 1), ("k19", 1))), "n1")
    index.drop("t1")
    assert index.feasible(Demand("s1", generic=(("k00", 2),)), "n1") == ""
