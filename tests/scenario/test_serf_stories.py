"""Stories of small clusters: several members' rules and a network between them, in virtual time."""

from collections.abc import Mapping

import pytest

from beeyard.discovery.gossip.serf.event import (
    ConflictLost,
    KeysDone,
    MemberFailed,
    MemberJoin,
    MemberLeave,
    QueryAck,
    QueryAnswer,
    QueryAsked,
    QueryDone,
    UserEventCame,
)
from beeyard.discovery.gossip.wire.keyring import Keyring
from tests.support.serf_world import SerfWorld

DEAD, USER, LEAVE, EVENT = 5, 8, 0, 3


def send_event(world: SerfWorld, name: str, event: str) -> None:
    world.serfs[name].send_event(world.now_s, event)
    world.act(name)


def failures(world: SerfWorld, about: str) -> list[str]:
    return [name for name in world.events if any(e.member.name == about for e in world.told(name, MemberFailed))]


def test_members_find_each_other_through_one_of_them() -> None:
    """Within a second, each told of each once."""
    world = SerfWorld()
    names = [f"m{number:02}" for number in range(12)]
    for name in names:
        world.add(name)
    for name in names[1:]:
        world.join(name, names[0])
    world.run(2.0)
    for name in names:
        joined = [event.member.name for event in world.told(name, MemberJoin)]
        assert sorted(joined) == names


@pytest.mark.parametrize("seed", range(3))
def test_crowd_that_joins_at_once_is_complete_within_three_seconds(seed: int) -> None:
    """Who was missed by gossip is found by looking again, not half a minute later."""
    world = SerfWorld(seed)
    names = [f"m{number:02}" for number in range(40)]
    for name in names:
        world.add(name)
    for name in names[1:]:
        world.join(name, names[0])
    world.run(3.0)
    assert {name: len(serf.members()) for name, serf in world.serfs.items()} == dict.fromkeys(names, 40)


@pytest.mark.parametrize("loss", [0.0, 0.25])
def test_graceful_leave_is_nowhere_a_failure(loss: float) -> None:
    """All know that it means to leave before memberlist says that it is dead, which agents of Serf need."""
    world = SerfWorld(2)
    world.cluster(12)
    world.loss = loss
    world.serfs["m03"].leave(world.now_s)
    world.act("m03")
    seen: list[list[str]] = []
    while world.serfs["m03"].state != "left":
        world.run(0.02)
        seen.append(world.statuses("m03"))
    first_left = next(statuses for statuses in seen if "left" in statuses)
    assert set(first_left) <= {"leaving", "left"}
    assert set(seen[-1]) == {"left"}
    assert failures(world, "m03") == []


def test_leave_is_no_failure_though_every_intent_is_late() -> None:
    """The death overtakes the intent by ten seconds: its own word is enough."""
    world = SerfWorld()
    names = world.cluster(8)
    world.overtaking = lambda part: 10.0 if part[:2] == bytes((USER, LEAVE)) else 0.0
    world.serfs["m03"].leave(world.now_s)
    world.act("m03")
    world.run(5.0)
    assert set(world.statuses("m03")) == {"left"}
    world.run(20.0)
    assert failures(world, "m03") == []
    assert all(len(world.told(name, MemberLeave)) == 1 for name in names)


def test_crash_is_a_failure_for_all_and_a_restart_is_a_return() -> None:
    """The new life starts with incarnation 1 and catches up."""
    world = SerfWorld()
    names = world.cluster(6)
    address = world.serfs["m03"].me.address
    world.crash("m03")
    world.run(30.0)
    assert set(world.statuses("m03")) == {"failed"}
    world.add("m03", {"life": "2"}, host=address.host)
    world.join("m03", "m00")
    world.run(3.0)
    assert set(world.statuses("m03")) == {"alive"}
    others = [world.serfs[name].member("m03") for name in names]
    assert all(member is not None and member.tags == {"life": "2"} for member in others)


def test_user_event_reaches_all_and_one_that_missed_it_at_a_push_pull() -> None:
    """Gossip of it is lost on one member, and half a minute later it knows all the same."""
    world = SerfWorld()
    names = world.cluster(10)
    world.overtaking = lambda part: 1e6 if part[:2] == bytes((USER, EVENT)) else 0.0
    send_event(world, "m02", "missed")
    world.run(0.1)
    world.overtaking = lambda part: 0.0
    world.run(2.0)
    send_event(world, "m02", "seen")
    world.run(75.0)
    for name in names:
        assert sorted(event.name for event in world.told(name, UserEventCame)) == ["missed", "seen"]


def test_newcomer_hears_of_new_events_alone() -> None:
    """The cluster's past is not its."""
    world = SerfWorld()
    world.cluster(4)
    send_event(world, "m02", "old")
    world.run(3.0)
    world.add("late")
    world.join("late", "m00")
    world.run(3.0)
    send_event(world, "m01", "new")
    world.run(40.0)
    assert [event.name for event in world.told("late", UserEventCame)] == ["new"]


@pytest.mark.parametrize("days", [0.002, 3])
def test_partition_heals_within_one_retry_interval_however_long_it_was(days: float) -> None:
    """Also when the members of the other side have been forgotten after a day. Events of each side come along."""
    world = SerfWorld(3)
    names = world.cluster(6)
    send_event(world, "m00", "before")
    world.run(1.0)
    world.split(names[:2], names[2:])
    world.run(60.0)
    assert set(world.statuses("m05")) == {"failed", "alive"}
    send_event(world, "m00", "in between")
    skip(world, days * 86400)
    world.split()
    world.run(31.0 + 3.0)
    for name, serf in world.serfs.items():
        assert [member.name for member in serf.members() if member.status == "alive"] == names
        assert [event.name for event in world.told(name, UserEventCame)].count("in between") == 1


def skip(world: SerfWorld, seconds: float) -> None:
    """Let days pass without all their probes: only what is reaped and what is remembered matters."""
    if seconds < 3600:
        world.run(seconds)
        return
    for serf in world.serfs.values():
        roster = serf._context.roster
        roster.reap(world.now_s + seconds)
    assert any(serf._context.roster.lost for serf in world.serfs.values())


def test_query_with_relays_collects_all_answers_on_a_bad_network() -> None:
    """Every second packet is lost; each answer goes four ways."""
    world = SerfWorld(4)
    names = world.cluster(10)
    world.loss = 0.3
    asking = world.serfs["m01"]
    query_id = asking.query(world.now_s, "up", ack=True, relay_factor=4)
    world.act("m01")
    answered: set[str] = set()
    for _ in range(30):
        world.run(0.1)
        for name in names:
            for event in world.told(name, QueryAsked):
                if name not in answered:
                    answered.add(name)
                    world.serfs[name].answer(world.now_s, event.query_id, name.encode())
                    world.act(name)
    world.run(10.0)
    assert sorted(event.payload for event in world.told("m01", QueryAnswer)) == [name.encode() for name in names]
    assert len(world.told("m01", QueryAck)) == 10
    assert world.told("m01", QueryDone) == [QueryDone(query_id=query_id, n_acks=10, n_answers=10)]


def test_query_with_filters_is_asked_of_those_alone() -> None:
    """By an expression on a tag, and by names."""
    world = SerfWorld()
    for name, role in (("a", "web-1"), ("b", "web-2"), ("c", "db")):
        world.add(name, {"role": role})
    world.join("b", "a")
    world.join("c", "a")
    world.run(2.0)
    world.serfs["c"].query(world.now_s, "q", tags={"role": "^web-[0-9]$"}, nodes=["b", "c"])
    world.act("c")
    world.run(2.0)
    assert [name for name in "abc" if world.told(name, QueryAsked)] == ["b"]


def test_second_member_of_a_name_loses_the_vote() -> None:
    """The members that were there mean the first one."""
    world = SerfWorld()
    world.cluster(5)
    world.add("m02", host="10.9.9.9")
    world.join("m02@10.9.9.9", "m00")
    world.run(10.0)
    (lost,) = world.told("m02@10.9.9.9", ConflictLost)
    assert (lost.n_answers > 0, lost.n_matching, lost.other) == (True, 0, world.serfs["m02"].me.address)
    assert world.told("m02", ConflictLost) == []


def test_force_leave_of_a_living_member_is_refuted_everywhere() -> None:
    """It is shown as leaving for a moment at most."""
    world = SerfWorld()
    world.cluster(6)
    world.serfs["m01"].force_leave(world.now_s, "m04", prune=True)
    world.act("m01")
    world.run(8.0)
    assert set(world.statuses("m04")) == {"alive"}


def test_forced_leave_with_prune_forgets_a_failed_member_everywhere() -> None:
    """And it does not come back by a push/pull."""
    world = SerfWorld()
    world.cluster(6)
    world.crash("m04")
    world.run(30.0)
    world.serfs["m01"].force_leave(world.now_s, "m04", prune=True)
    world.act("m01")
    world.run(60.0)
    assert set(world.statuses("m04")) == {"unknown"}


def test_keys_rotate_through_the_whole_cluster() -> None:
    """Install, use, remove: each has worked everywhere when it is done."""
    old, new = b"o" * 16, b"n" * 32
    world = SerfWorld()
    rings = {name: Keyring([old], random_bytes=bytes) for name in "abc"}
    for name, ring in rings.items():
        world.add(name, keyring=ring)
    world.join("b", "a")
    world.join("c", "a")
    world.run(2.0)
    for step in ("install_key", "use_key"):
        getattr(world.serfs["b"], step)(world.now_s, new)
        world.act("b")
        world.run(2.0)
    world.serfs["c"].remove_key(world.now_s, old)
    world.act("c")
    world.run(2.0)
    assert [ring.keys for ring in rings.values()] == [(new,)] * 3
    done = [*world.told("b", KeysDone), *world.told("c", KeysDone)]
    assert [(event.n_members, event.n_good) for event in done] == [(3, 3)] * 3


def test_clusters_of_other_ids_never_merge() -> None:
    """Though one was told the other's address, and keeps trying."""

    def of(cluster: str) -> object:
        def is_welcome(name: str, tags: Mapping[str, str]) -> bool:
            return tags.get("cluster", "") in ("", cluster)

        return is_welcome

    world = SerfWorld()
    for name, cluster in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")):
        world.add(name, {"cluster": cluster}, is_welcome=of(cluster))
    world.join("a2", "a1")
    world.join("b2", "b1")
    world.run(2.0)
    send_event(world, "a1", "of a")
    for _ in range(3):
        world.join("b2", "a1")
        world.run(10.0)
    for name, serf in world.serfs.items():
        assert [member.name for member in serf.members()] == [f"{name[0]}1", f"{name[0]}2"]
    assert world.told("b1", UserEventCame) == []


def test_quiet_cluster_sends_about_a_ping_a_second() -> None:
    """No broadcast goes around for ever."""
    world = SerfWorld()
    names = world.cluster(10)
    send_event(world, "m00", "one")
    world.run(30.0)
    before = world.n_packets
    world.run(60.0)
    assert (world.n_packets - before) / 60.0 / len(names) < 2.2
