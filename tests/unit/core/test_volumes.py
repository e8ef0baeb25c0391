"""Cluster volumes as SwarmKit gives them out (its scenarios V1 to V10, and S50), where it is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from beeyard.core.states import Availability
from beeyard.core.volume import Published, PublishState, Volume, VolumeUse
from beeyard.core.volumes import User, VolumeTable
from tests.support.builders import a_node
from tests.support.volumes import a_mount, a_table, a_volume

N1, N2 = a_node("n1", labels={"zone": "z1"}), a_node("n2", labels={"zone": "z2"})


def fitting(table: VolumeTable, *mounts: str, read_only: bool = False) -> list[str]:
    """Ids of the nodes on which mounts of these sources can be had."""
    fits = table.fitting([a_mount(source, read_only=read_only) for source in mounts])
    return [node_id for node_id, fit in zip(("n1", "n2"), fits.tolist(), strict=True) if fit]


def use(table: VolumeTable, task_id: str, node_id: str, source: str = "data-v1", *, read_only: bool = False) -> None:
    uses = table.choose([a_mount(source, read_only=read_only)], node_id)
    assert uses is not None
    table.reserve(task_id, node_id, uses)


def test_v1_only_nodes_inside_the_topology_have_a_volume() -> None:
    table = a_table(N1, N2, a_volume(requisite=[{"zone": "z2"}]), a_volume("v2", requisite=[{"zone": "z3"}]))
    assert fitting(table, "data-v1") == ["n2"]
    assert fitting(table, "data-v2") == []


@pytest.mark.parametrize(
    ("labels", "requisite", "inside"),
    [
        ({}, [], True),
        ({"region": "r1", "zone": "z1"}, [], True),
        ({"region": "r1", "zone": "z1"}, [{"region": "r1"}], True),
        ({"region": "r1", "zone": "z1"}, [{"region": "r1", "zone": "z1"}], True),
        ({"region": "r1", "zone": "z1"}, [{"region": "r2"}], False),
        ({"region": "r1", "zone": "z1"}, [{"region": "r1", "zone": "z2"}, {"region": "r2", "zone": "z1"}], False),
        ({"region": "r1", "zone": "z1"}, [{"region": "r1", "zone": "z2"}, {"region": "r1", "zone": "z1"}], True),
        ({}, [{"region": "r1"}], False),
        ({"region": "R1"}, [{"region": "r1"}], False),
    ],
)
def test_s50_a_node_has_every_label_of_one_topology(
    labels: Mapping[str, str], requisite: Sequence[Mapping[str, str]], inside: bool
) -> None:
    for node in (a_node("n1", labels=labels), a_node("n1", engine_labels=labels)):
        table = a_table(node, a_volume(requisite=requisite))
        assert table.fitting([a_mount()]).tolist() == [inside]


def test_a_node_s_own_label_comes_before_its_engine_s() -> None:
    node = a_node("n1", labels={"zone": "z1"}, engine_labels={"zone": "z2"})
    table = a_table(node, a_volume(requisite=[{"zone": "z2"}]), a_volume("v2", requisite=[{"zone": "z1"}]))
    assert table.fitting([a_mount("data-v1")]).tolist() == [False]
    assert table.fitting([a_mount("data-v2")]).tolist() == [True]


def test_v2_a_volume_of_one_node_s_scope_stays_with_its_node() -> None:
    table = a_table(N1, N2, a_volume(scope="single"), a_volume("v2", scope="multi"))
    assert fitting(table, "data-v1") == ["n1", "n2"]
    use(table, "t1", "n2")
    use(table, "t2", "n2", "data-v2")
    assert fitting(table, "data-v1") == ["n2"]
    assert fitting(table, "data-v2") == ["n1", "n2"]
    table.release("t1")
    assert fitting(table, "data-v1") == ["n1", "n2"]


def test_a_volume_of_one_node_s_scope_is_elsewhere_only_when_it_was_taken_from_the_node() -> None:
    """SwarmKit forgets this: its users are gone before the volume is."""
    volume = a_volume(scope="single", published=[Published(node_id="n1", state=PublishState.PENDING_NODE_UNPUBLISH)])
    table = a_table(N1, N2, volume)
    assert fitting(table, "data-v1") == ["n1"]
    table.set(msgspec.structs.replace(volume, published=()))
    assert fitting(table, "data-v1") == ["n1", "n2"]


@pytest.mark.parametrize(
    ("sharing", "user_reads", "next_reads", "fits"),
    [
        ("all", False, False, True),
        ("onewriter", False, False, False),  # V4
        ("onewriter", False, True, True),
        ("onewriter", True, False, True),
        ("onewriter", True, True, True),
        ("none", True, True, False),  # V5
        ("none", False, False, False),
        ("readonly", True, True, True),
        ("readonly", True, False, False),
    ],
)
def test_v4_v5_who_may_share_with_whom(sharing: str, user_reads: bool, next_reads: bool, fits: bool) -> None:
    table = a_table(N1, N2, a_volume(sharing=sharing))
    use(table, "t1", "n1", read_only=user_reads)
    assert fitting(table, "data-v1", read_only=next_reads) == (["n1", "n2"] if fits else [])
    table.release("t1")
    assert fitting(table, "data-v1", read_only=next_reads) == (
        [] if sharing == "readonly" and not next_reads else ["n1", "n2"]
    )


def test_v6_a_mount_names_a_volume_or_any_of_a_group() -> None:
    table = a_table(
        N1,
        N2,
        a_volume("v1", name="b", group="fast", requisite=[{"zone": "z1"}]),
        a_volume("v2", name="a", group="fast", requisite=[{"zone": "z2"}]),
        a_volume("v3", name="c", availability="pause"),
    )
    assert fitting(table, "group:fast") == ["n1", "n2"]
    assert fitting(table, "b") == ["n1"]
    assert [fitting(table, source) for source in ("c", "d", "group:slow", "fast", "group:", "")] == [[]] * 6
    for node_id, volume_id, name in (("n1", "v1", "b"), ("n2", "v2", "a")):
        uses = table.choose([a_mount("group:fast", target="/x", read_only=True)], node_id)
        use = VolumeUse(volume_id=volume_id, name=name, driver="", source="group:fast", target="/x", read_only=True)
        assert uses == (use,)


def test_all_mounts_of_a_task_have_to_be_satisfied() -> None:
    """In SwarmKit any one is enough for its filter; the task then fails to be committed again and again."""
    table = a_table(N1, N2, a_volume("v1"), a_volume("v2", requisite=[{"zone": "z2"}]))
    assert fitting(table, "data-v1", "data-v2") == ["n2"]
    assert fitting(table, "data-v1", "data-v3") == []
    assert table.choose([a_mount("data-v1"), a_mount("data-v2")], "n1") is None


def test_mounts_of_a_group_get_volumes_of_their_own() -> None:
    """Whichever order the mounts come in: one that writes cannot have the read-only volume, one by name has its very own."""
    volumes = [a_volume("v1", group="g", sharing="readonly"), a_volume("v2", group="g"), a_volume("v3", group="g")]
    table = a_table(N1, N2, *volumes)
    mounts = [
        a_mount("group:g", read_only=True, target="/read"),
        a_mount("group:g", target="/write"),
        a_mount("data-v2", target="/named"),
    ]
    for order in (mounts, mounts[::-1], [mounts[1], *mounts[::2]]):
        uses = table.choose(order, "n1")
        assert uses is not None
        assert {use.target: use.volume_id for use in uses} == {"/read": "v1", "/write": "v3", "/named": "v2"}
    assert table.choose([*mounts, a_mount("group:g", read_only=True)], "n1") is None


def test_a_driver_that_is_named_must_be_on_the_node() -> None:
    description = msgspec.structs.replace(N2.description, volume_drivers=("dir",))
    table = a_table(N1, msgspec.structs.replace(N2, description=description), a_volume(driver="dir"), a_volume("v2"))
    assert fitting(table, "data-v1") == ["n2"]
    assert fitting(table, "data-v2") == ["n1", "n2"]


def test_v8_what_a_task_has_is_noted_and_given_back_once() -> None:
    table = a_table(N1, N2, a_volume("v1"), a_volume("v2"))
    uses = table.choose([a_mount("data-v1"), a_mount("data-v2", read_only=True)], "n1")
    assert uses is not None
    table.reserve("t1", "n1", uses)
    table.reserve("t1", "n2", uses)
    table.reserve("t2", "n2", uses[:1])
    assert table.users("v1") == {"t1": User("n1", False), "t2": User("n2", False)}
    assert table.users("v2") == {"t1": User("n1", True)}
    assert table.release("t1") == uses
    assert table.release("t1") == ()
    assert table.users("v1") == {"t2": User("n2", False)}
    assert table.users("v2") == {}


def test_a_task_that_mounts_a_volume_twice_writes_if_one_mount_does() -> None:
    table = a_table(N1, N2, a_volume(sharing="onewriter"))
    uses = table.choose([a_mount(read_only=False), a_mount(read_only=True, target="/backup")], "n1")
    assert uses is not None
    table.reserve("t1", "n1", uses)
    assert table.users("v1") == {"t1": User("n1", False)}
    assert fitting(table, "data-v1") == []


def test_v9_a_removed_volume_is_gone_from_its_group_and_its_name() -> None:
    table = a_table(N1, N2, a_volume("v1", group="g"), a_volume("v2", group="g"))
    table.remove("v1")
    table.remove("v1")
    assert [volume.id for volume in table.find("group:g")] == ["v2"]
    assert table.find("data-v1") == []
    assert [volume.id for volume in table.find("data-v2")] == ["v2"]
    table.remove("v2")
    assert table.find("group:g") == []


def test_a_volume_that_changes_counts_as_it_is_now() -> None:
    """In SwarmKit a later availability, group or topology never reaches its scheduler."""
    volume = a_volume(group="g")
    table = a_table(N1, N2, volume)
    assert fitting(table, "group:g") == ["n1", "n2"]

    def changed(**changes: object) -> Volume:
        return msgspec.structs.replace(volume, spec=msgspec.structs.replace(volume.spec, **changes))

    for availability in (Availability.PAUSE, Availability.DRAIN):
        table.set(changed(availability=availability))
        assert fitting(table, "data-v1") == []
    table.set(changed(requisite=({"zone": "z2"},), group="h"))
    assert fitting(table, "data-v1") == ["n2"]
    assert fitting(table, "group:g") == []
    table.set(changed(name="other"))
    assert fitting(table, "data-v1") == []


def test_what_more_tasks_change() -> None:
    """Only volumes that nobody's use takes from anybody let a whole group be placed at once."""
    table = a_table(
        N1,
        N2,
        a_volume("v1"),
        a_volume("v2", sharing="readonly"),
        a_volume("v3", scope="single"),
        a_volume("v4", sharing="onewriter"),
        a_volume("v5", sharing="none"),
    )
    settled = {n: table.are_settled([a_mount(f"data-v{n}")]) for n in range(1, 7)}
    assert settled == {1: True, 2: True, 3: False, 4: False, 5: False, 6: True}
    use(table, "t1", "n1", "data-v3")
    assert table.are_settled([a_mount("data-v3"), a_mount("data-v1")])


def test_a_copy_is_on_its_own() -> None:
    table = a_table(N1, N2, a_volume(sharing="none", group="g"))
    twin = table.copy(table._columns, table._row_of)
    use(twin, "t1", "n1")
    assert fitting(table, "data-v1") == ["n1", "n2"]
    assert fitting(twin, "data-v1") == []
    twin.remove("v1")
    assert fitting(table, "group:g") == ["n1", "n2"]
