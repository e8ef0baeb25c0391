"""Status of members: what memberlist and intents make of it, as tables."""

import math

import pytest

from beeyard.discovery.gossip.message import Address, NodeRecord
from beeyard.discovery.gossip.serf.config import DAY_S, SerfConfig
from beeyard.discovery.gossip.serf.event import MemberEvent
from beeyard.discovery.gossip.serf.roster import Roster
from beeyard.discovery.gossip.wire.serf_codec import encode_tags

DEAD, LEFT = 2, 3


def a_node(
    name: str = "b", *, state: int = 0, tags: dict[str, str] | None = None, meta: bytes | None = None
) -> NodeRecord:
    return NodeRecord(
        name=name,
        address=Address("10.0.0.2", 7946),
        meta=encode_tags(tags or {}) if meta is None else meta,
        incarnation=1,
        state=state,
        vsn=bytes((1, 5, 2, 2, 5, 5)),
    )


class Story:
    """A roster, and steps written as words: `alive`, `dead`, `gone` (by its own word), `join 5`, `leave 6`, `prune 7`."""

    def __init__(self, **config: float) -> None:
        self.told: list[MemberEvent] = []
        self.roster = Roster(SerfConfig(**config), self.told.append)
        self.now_s = 10.0
        self.news: list[bool] = []

    def do(self, *steps: str) -> "Story":
        for step in steps:
            self.now_s += 1.0
            match step.split():
                case ["alive"]:
                    self.roster.alive(self.now_s, a_node())
                case ["dead"]:
                    self.roster.gone(self.now_s, a_node(state=DEAD))
                case ["gone"]:
                    self.roster.gone(self.now_s, a_node(state=LEFT))
                case ["join", l_time]:
                    self.news.append(self.roster.join_intent(self.now_s, "b", int(l_time)))
                case [("leave" | "prune") as kind, l_time]:
                    news = self.roster.leave_intent(self.now_s, "b", int(l_time), prune=kind == "prune")
                    self.news.append(news)
        return self

    @property
    def kinds(self) -> list[str]:
        return [type(event).__name__.removeprefix("Member") for event in self.told]

    @property
    def status(self) -> str:
        return self.roster.by_name["b"].status if "b" in self.roster.by_name else "none"


@pytest.mark.parametrize(
    ("steps", "status", "kinds"),
    [
        (["alive"], "alive", ["Join"]),
        (["alive", "dead"], "failed", ["Join", "Failed"]),
        (["alive", "leave 5"], "leaving", ["Join"]),
        (["alive", "leave 5", "gone"], "left", ["Join", "Leave"]),
        # Its last word was lost, but that it leaves is known.
        (["alive", "leave 5", "dead"], "left", ["Join", "Leave"]),
        # The intent was overtaken or lost: Serf would call this a failure.
        (["alive", "gone"], "left", ["Join", "Leave"]),
        (["alive", "gone", "leave 5"], "left", ["Join", "Leave"]),
        (["alive", "dead", "leave 5"], "left", ["Join", "Failed", "Leave"]),
        (["alive", "dead", "alive"], "alive", ["Join", "Failed", "Join"]),
        (["alive", "leave 5", "gone", "alive", "join 6"], "alive", ["Join", "Leave", "Join"]),
        (["alive", "leave 5", "join 6"], "alive", ["Join"]),
        (["alive", "join 6", "leave 5"], "alive", ["Join"]),
        (["alive", "leave 5", "join 5"], "leaving", ["Join"]),
        (["alive", "dead", "dead"], "failed", ["Join", "Failed"]),
        # Intents wait for the member.
        (["join 5", "alive", "leave 4"], "alive", ["Join"]),
        (["leave 5", "alive"], "leaving", ["Join"]),
        (["leave 5", "join 6", "alive"], "alive", ["Join"]),
        (["join 6", "leave 5", "alive"], "alive", ["Join"]),
        # Pruning.
        (["alive", "dead", "prune 5"], "none", ["Join", "Failed", "Leave", "Reap"]),
        (["alive", "gone", "prune 5"], "none", ["Join", "Leave", "Reap"]),
        (["alive", "prune 5"], "leaving", ["Join"]),
    ],
)
def test_status_follows_memberlist_and_the_later_intent(steps: list[str], status: str, kinds: list[str]) -> None:
    """One member's story; what the application is told of it."""
    story = Story().do(*steps)
    assert (story.status, story.kinds) == (status, kinds)


@pytest.mark.parametrize(
    ("steps", "news"),
    [
        (["alive", "join 5", "join 5", "join 4", "join 6"], [True, False, False, True]),
        (["alive", "leave 5", "leave 5", "leave 6"], [True, False, True]),
        # Also where nothing changes, the time is kept: else the same intent goes around for ever.
        (["alive", "gone", "leave 5", "leave 5"], [True, False]),
        (["join 5", "join 5", "leave 5", "leave 6"], [True, False, False, True]),
    ],
)
def test_intent_is_passed_on_only_while_it_is_news(steps: list[str], news: list[bool]) -> None:
    """What is no news is not sent again: this is what ends a broadcast."""
    assert Story().do(*steps).news == news


def test_member_that_leaves_is_pruned_when_all_can_know_that_it_left() -> None:
    """Six seconds: the time of the two broadcasts of a leave."""
    story = Story().do("alive", "prune 5")
    assert story.roster.next_prune_at() == story.now_s + 6.0
    assert story.roster.prune_due(story.now_s + 5.9) == []
    assert story.roster.prune_due(story.now_s + 6.0) == ["b"]
    assert story.kinds == ["Join", "Reap"]
    assert story.roster.next_prune_at() == math.inf


@pytest.mark.parametrize("back", ["join 6", "alive"])
def test_member_that_is_back_is_not_pruned(back: str) -> None:
    """It refuted, or was started again."""
    story = Story().do("alive", "prune 5", "gone", back) if back == "alive" else Story().do("alive", "prune 5", back)
    assert story.roster.prune_due(story.now_s + 60.0) == []
    assert story.status == "alive"


@pytest.mark.parametrize(("end", "status"), [("dead", "failed"), ("gone", "left")])
def test_absent_member_is_reaped_after_a_day(end: str, status: str) -> None:
    """Not before; and an alive one never."""
    story = Story().do("alive", end)
    assert story.roster.reap(story.now_s + DAY_S) == []
    assert story.status == status
    assert story.roster.reap(story.now_s + DAY_S + 1.0) == ["b"]
    assert story.kinds[-1] == "Reap"
    assert Story().do("alive").roster.reap(1e9) == []


def test_address_of_a_reaped_failed_member_is_kept_for_reconnecting() -> None:
    """A partition of two days heals too. One that left is let go; one that comes back needs no trying."""
    story = Story().do("alive", "dead")
    story.roster.reap(1e6)
    assert story.roster.lost == {"b": Address("10.0.0.2", 7946)}
    story.do("alive")
    assert story.roster.lost == {}
    story.do("dead")
    story.roster.reap(2e6)
    story.do("leave 9")
    assert story.roster.lost == {}
    gone = Story().do("alive", "gone")
    gone.roster.reap(1e6)
    assert gone.roster.lost == {}


def test_intents_about_strangers_are_bounded_and_expire() -> None:
    """A peer can name as many as it likes: the oldest give way, and five minutes are the end."""
    story = Story(n_recent_intents_max=3)
    for number in range(5):
        story.roster.leave_intent(10.0, f"x{number}", 5, prune=False)
    for number in (0, 4):
        story.roster.alive(11.0, a_node(f"x{number}"))
    assert [story.roster.by_name[f"x{number}"].status for number in (0, 4)] == ["alive", "leaving"]
    story.roster.reap(311.0)
    story.roster.alive(312.0, a_node("x3"))
    assert story.roster.by_name["x3"].status == "alive"


def test_members_are_bounded() -> None:
    """More than the limit are not taken in; those that are there stay."""
    story = Story(n_members_max=2)
    for name in ("a", "b", "c"):
        story.roster.alive(1.0, a_node(name))
    assert sorted(story.roster.by_name) == ["a", "b"]


def test_update_shows_other_tags_and_keeps_the_status() -> None:
    """A member that is leaving and changes a tag is still leaving."""
    story = Story().do("alive", "leave 5")
    story.roster.updated(20.0, a_node(tags={"zone": "b"}))
    member = story.roster.by_name["b"]
    assert (member.tags, member.status, member.status_l_time) == ({"zone": "b"}, "leaving", 5)
    assert story.kinds == ["Join", "Update"]
    story.roster.updated(20.0, a_node("stranger"))
    assert story.kinds == ["Join", "Update"]


@pytest.mark.parametrize(
    ("meta", "tags"),
    [(b"", {"role": ""}), (b"db", {"role": "db"}), (b"\xff\x81", {}), (encode_tags({"a": "b"}), {"a": "b"})],
)
def test_member_counts_whatever_its_meta_says(meta: bytes, tags: dict[str, str]) -> None:
    """Old members have a role alone; one whose tags are garbage has none."""
    story = Story()
    story.roster.alive(1.0, a_node(meta=meta))
    assert story.roster.by_name["b"].tags == tags


def test_versions_of_a_member_are_read_from_its_six_bytes() -> None:
    """Fewer bytes are zeros."""
    story = Story()
    story.roster.alive(1.0, a_node())
    member = story.roster.by_name["b"]
    assert (member.protocol, member.delegate) == ((1, 5, 2), (2, 5, 5))
