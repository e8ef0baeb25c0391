"""Push/pull: when, what is sent, and what becomes of what came."""

import pytest

from beeyard.core.errors import RemoteProtocolError
from beeyard.discovery.gossip.command import Exchange
from beeyard.discovery.gossip.message import Address, Dead, NodeRecord, PushPull, Suspect
from beeyard.discovery.gossip.swim import VSN, Config
from beeyard.discovery.gossip.swim.exchange import push_pull_scale
from tests.support.swim import Scene, at, dead, suspect


def record(name: str, state: int = 0, incarnation: int = 1, **changes: object) -> NodeRecord:
    fields: dict[str, object] = {"address": at(name), "vsn": VSN, **changes}
    return NodeRecord(name=name, state=state, incarnation=incarnation, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("n_known", "expected"), [(1, 1), (32, 1), (33, 2), (64, 2), (65, 3), (128, 3), (1000, 6), (10_000, 10)]
)
def test_exchanges_get_rarer_in_large_clusters(n_known: int, expected: int) -> None:
    """The peer's figures: 30 s, from 33 members on 60 s, from 65 on 90 s, 180 s with 1,000."""
    assert push_pull_scale(n_known) == expected


def test_members_exchange_with_a_living_one_every_interval() -> None:
    scene = Scene("a", "b", config=Config(probe_interval_s=1e6))
    scene.hear(dead("b"))
    begun_s = scene.now_s
    asked = [command for command in scene.until(begun_s + 301.0) if isinstance(command, Exchange)]
    assert asked == [Exchange(to=at("a"))] * 10


def test_joining_asks_for_an_exchange_with_somebody_unknown() -> None:
    scene = Scene()
    scene.rules.join_exchange(Address("10.5.5.5", 7946))
    assert scene.drain() == [Exchange(to=Address("10.5.5.5", 7946), join=True)]


def test_everything_known_is_sent_with_the_state_of_the_layer_above() -> None:
    scene = Scene("a", "b", "c", "d")
    scene.hear(suspect("b"), dead("c"), dead("d", by="d"))
    sent = scene.rules.push_pull(scene.now_s, join=True)
    assert {node.name: node.state for node in sent.nodes} == {"me": 0, "a": 0, "b": 1, "c": 2, "d": 3}
    assert (sent.user_state, sent.join) == (b"joining", True)
    assert scene.rules.push_pull(scene.now_s, join=False).user_state == b"state"


@pytest.mark.parametrize(
    ("state", "expected"),
    # Nobody is killed on hearsay: who is dead to the peer is a suspect here.
    [(0, "alive"), (1, "suspect"), (2, "suspect"), (3, "left")],
)
def test_a_record_is_taken_as_what_it_says_but_death_as_suspicion(state: int, expected: str) -> None:
    scene = Scene("a", "b")
    scene.rules.merge(scene.now_s, PushPull(nodes=(record("a", state),), user_state=b"up"), join=False)
    assert scene.state("a") == expected
    assert scene.notes.states == [b"up"]


@pytest.mark.parametrize("state", [1, 2, 3])
def test_a_stranger_that_is_not_alive_is_not_taken_in(state: int) -> None:
    scene = Scene("a")
    scene.rules.merge(scene.now_s, PushPull(nodes=(record("who", state),)), join=False)
    assert scene.state("who") == "unknown"


@pytest.mark.parametrize("state", [1, 2, 3])
def test_my_own_record_of_an_earlier_life_is_refuted(state: int) -> None:
    scene = Scene("a")
    mine = record("me", state, 7, address=Address("10.9.9.9", 7946))
    scene.rules.merge(scene.now_s, PushPull(nodes=(mine, record("a"))), join=True)
    assert scene.rules.incarnation == 8
    assert scene.state("me") == "alive"


def test_a_list_of_nobody_is_a_question() -> None:
    scene = Scene("a")
    scene.rules.merge(scene.now_s, PushPull(), join=False)
    assert scene.rules.n_known == 2
    assert scene.notes.states == []


def test_another_cluster_is_not_merged_at_all() -> None:
    scene = Scene("a")
    scene.notes.unwelcome = ("b", "c")
    with pytest.raises(RemoteProtocolError, match="none of the 2 given belongs to this cluster"):
        scene.rules.merge(scene.now_s, PushPull(nodes=(record("b"), record("c")), user_state=b"clocks"), join=True)
    assert scene.rules.n_known == 2
    assert scene.notes.states == []


def test_one_bad_record_does_not_keep_the_others_out() -> None:
    """The peer refuses such an exchange whole, so that one wrong member stops every join."""
    scene = Scene("a")
    scene.notes.unwelcome = ("b",)
    old = record("c", vsn=bytes((1, 1, 1, 2, 5, 5)))
    mine = record("me", 2, 3, address=Address("10.9.9.9", 7946))
    remote = PushPull(nodes=(record("b"), mine, old, record("d")), user_state=b"clocks")
    scene.rules.merge(scene.now_s, remote, join=True)
    assert [scene.state(name) for name in "bcd"] == ["unknown", "unknown", "alive"]
    assert scene.rules.incarnation == 4
    assert scene.notes.states == [b"clocks"]


def test_more_members_than_are_kept_are_refused_before_anything_is_done() -> None:
    scene = Scene("a", config=Config(members_max=3))
    nodes = tuple(record(name) for name in "bcde")
    with pytest.raises(RemoteProtocolError, match="4 given, at most 3 are taken"):
        scene.rules.merge(scene.now_s, PushPull(nodes=nodes), join=False)
    assert scene.rules.n_known == 2


def test_a_member_that_was_welcome_and_says_the_same_is_not_asked_about_again() -> None:
    scene = Scene("a", "b")
    scene.notes.unwelcome = ("a", "b")  # it would be refused now
    remote = PushPull(nodes=(record("a", 1), record("b", 1, meta=b"another cluster")))
    scene.rules.merge(scene.now_s, remote, join=False)
    assert [scene.state(name) for name in "ab"] == ["suspect", "alive"]
    assert scene.rules.counts.unwelcome == 1


def exchanges(scene: Scene, for_s: float) -> int:
    return sum(isinstance(command, Exchange) for command in scene.until(scene.now_s + for_s))


def test_exchanges_take_no_more_bytes_in_a_larger_cluster() -> None:
    """Two states of 12,000 bytes at 40 bytes a second are ten minutes."""
    scene = Scene("a", "b", config=Config(probe_interval_s=1e6))
    scene.rules.state_sent(500)
    assert scene.rules.exchange_interval_s == 30.0
    scene.rules.state_sent(12_000)
    assert scene.rules.exchange_interval_s == 600.0
    exchanges(scene, 31.0)  # the next one was due before it was known
    assert exchanges(scene, 6000.0) == 10


def test_what_an_exchange_does_not_mend_is_not_tried_at_each_probe() -> None:
    scene = Scene("a", "b", config=Config(probe_interval_s=1e6))
    scene.rules.state_sent(1 << 20)  # by the clock there is none for hours
    exchanges(scene, 31.0)
    for _ in range(60):
        scene.rules.mend(scene.now_s, "a")
        scene.until(scene.now_s)
        scene.now_s += 1.0
    assert scene.rules.counts.mends == 2


@pytest.mark.parametrize("said", [suspect("a"), dead("a"), dead("a", by="a")])
def test_nobody_exchanges_with_a_member_that_may_be_gone(said: Suspect | Dead) -> None:
    scene = Scene("a", "b")
    scene.hear(said)
    scene.rules.mend(scene.now_s, "a")
    scene.rules.mend(scene.now_s, "nobody")
    assert scene.rules.counts.mends == 0
    scene.rules.mend(scene.now_s, "b")
    assert Exchange(to=at("b")) in scene.drain()
