"""Who is known: probing in turn, random choice, forgetting."""

import random
from collections import Counter

import pytest

from beeyard.discovery.gossip.message import Address
from beeyard.discovery.gossip.swim.roster import ALIVE, DEAD, LEFT, SUSPECT, Member, Roster


def roster_of(n: int, seed: int = 1) -> tuple[Roster, list[Member]]:
    roster = Roster(random.Random(seed))
    members = [Member(f"m{i}", Address("10.0.0.1", 1000 + i), b"", b"", 0.0) for i in range(n)]
    for member in members:
        roster.add(member)
        roster.set_state(member, ALIVE, 0.0)
    return roster, members


def test_each_member_is_probed_once_a_round_and_never_oneself() -> None:
    roster, members = roster_of(20)
    for _ in range(3):
        probed = [roster.next_to_probe(0.0, members[0], 30.0) for _ in range(19)]
        names = Counter(member.name for member in probed if member is not None)
        assert names == Counter(f"m{i}" for i in range(1, 20))


def test_rounds_differ_in_order() -> None:
    roster, members = roster_of(20)
    rounds = [tuple(roster.next_to_probe(0.0, members[0], 30.0) for _ in range(19)) for _ in range(2)]
    assert rounds[0] != rounds[1]


def test_a_new_member_gets_a_random_place() -> None:
    places = Counter()
    for seed in range(60):
        roster, members = roster_of(4, seed)
        places[roster._order.index(members[3])] += 1
    assert set(places) == {0, 1, 2, 3}


@pytest.mark.parametrize("state", [DEAD, LEFT])
def test_the_dead_and_the_gone_are_not_probed_and_forgotten_in_the_end(state: int) -> None:
    roster, members = roster_of(3)
    roster.set_state(members[1], state, 100.0)
    probed = [roster.next_to_probe(129.0, members[0], 30.0) for _ in range(4)]
    assert set(probed) == {members[2]}
    assert len(roster) == 3
    for _ in range(4):
        roster.next_to_probe(131.0, members[0], 30.0)
    assert len(roster) == 2
    assert roster.get("m1") is None
    assert not roster.is_address(members[1].address)
    assert roster.is_address(members[2].address)


def test_alone_there_is_nobody_to_probe() -> None:
    roster, members = roster_of(1)
    assert roster.next_to_probe(0.0, members[0], 30.0) is None


@pytest.mark.parametrize("n", [3, 5, 13, 200])
def test_a_choice_is_of_different_wanted_members_and_fair(n: int) -> None:
    roster, members = roster_of(n)
    roster.set_state(members[1], DEAD, 0.0)
    chosen = Counter()
    for _ in range(40 * n):
        picked = roster.pick(2, lambda member: member.state == ALIVE and member is not members[0])
        assert len({member.name for member in picked}) == len(picked) == min(2, n - 2)
        chosen.update(member.name for member in picked)
    assert set(chosen) == {f"m{i}" for i in range(2, n)}
    assert max(chosen.values()) < 3 * min(chosen.values())


def test_a_choice_among_many_that_are_not_wanted_ends() -> None:
    roster, _ = roster_of(500)
    assert roster.pick(3, lambda member: False) == []


def test_two_names_at_one_address_are_told_apart() -> None:
    roster, members = roster_of(2)
    roster.move(members[0], members[1].address)
    assert not roster.is_address(Address("10.0.0.1", 1000))
    roster.move(members[0], Address("10.0.0.7", 1))
    assert roster.is_address(members[1].address)


def test_the_number_of_those_that_are_up_is_kept() -> None:
    roster, members = roster_of(4)
    roster.set_state(members[1], DEAD, 1.0)
    roster.set_state(members[1], LEFT, 1.0)
    assert roster.n_up == 3
    roster.set_state(members[1], ALIVE, 2.0)
    assert roster.n_up == 4


def test_a_view_says_who_is_up_under_which_incarnation_in_whatever_order_it_was_learnt() -> None:
    one, members = roster_of(4)
    other = Roster(random.Random(2))
    for member in reversed(members):
        again = Member(member.name, member.address, b"", b"", 9.0)
        other.add(again)
        other.set_state(again, ALIVE, 9.0)
    assert one.view == other.view != 0
    seen = [one.view]
    for change in (
        lambda: one.set_incarnation(members[1], 2),
        lambda: one.set_incarnation(members[2], 2),  # of two alike changes the second does not undo the first
        lambda: one.set_state(members[3], DEAD, 1.0),
    ):
        change()
        seen.append(one.view)
    assert len(set(seen)) == 4
    one.set_state(members[3], LEFT, 1.0)
    one.set_incarnation(members[3], 7)
    one.set_state(members[0], SUSPECT, 1.0)
    assert one.view == seen[-1]  # the dead are forgotten by each at its time, a suspicion passes
    for member in members[:3]:
        one.set_state(member, DEAD, 1.0)
    assert one.view == 0
