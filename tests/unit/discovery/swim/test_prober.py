"""Probes: direct, by helpers, over TCP; nacks and health; answering and helping."""

import pytest

from beeyard.discovery.gossip.command import Command, Exchange, PingByStream, SendPacket
from beeyard.discovery.gossip.message import Ack, Address, IndirectPing, Nack, Ping, Suspect
from beeyard.discovery.gossip.swim.prober import ERRANDS_MAX
from tests.support.swim import Scene, alive, at, dead, messages_of, suspect

OTHERS = "abcde"


def suspicions(commands: list[Command]) -> set[str]:
    """Who is accused in them by me."""
    said = [message for message, _ in messages_of(commands)]
    return {message.node for message in said if isinstance(message, Suspect) and message.from_node == "me"}


def helpers_of(commands: list[Command]) -> dict[Address, IndirectPing]:
    return {to: message for message, to in messages_of(commands) if isinstance(message, IndirectPing)}


def test_a_ping_names_its_target_and_nothing_that_the_packet_says() -> None:
    scene = Scene("a")
    ping = scene.until_probe("a")
    assert ping == Ping(seq_no=ping.seq_no, node="a")


def test_an_answer_ends_a_probe_and_tells_the_round_trip() -> None:
    scene = Scene("a")
    ping = scene.until_probe("a")
    scene.now_s += 0.02
    scene.hear(Ack(seq_no=ping.seq_no, payload=b"coordinate"), source=at("a"))
    assert scene.notes.rtts == [("a", pytest.approx(0.02), b"coordinate")]
    scene.hear(Ack(seq_no=ping.seq_no), source=at("a"))
    wanted = scene.until(scene.now_s + 0.9)
    assert helpers_of(wanted) == {}
    assert len(scene.notes.rtts) == 1


def test_without_an_answer_helpers_and_tcp_are_asked_after_the_timeout() -> None:
    scene = Scene(*OTHERS)
    ping = scene.until_probe()
    sent_s = scene.now_s
    assert helpers_of(scene.until(sent_s + 0.49)) == {}
    wanted = scene.until(sent_s + 0.51)
    helpers = helpers_of(wanted)
    assert len(helpers) == 3
    assert at(ping.node) not in helpers
    for request in helpers.values():
        assert (request.seq_no, request.target, request.node) == (ping.seq_no, at(ping.node), ping.node)
        assert (request.nack, request.source, request.source_node) == (True, Address("10.9.9.9", 7946), "me")
    [stream] = [command for command in wanted if isinstance(command, PingByStream)]
    assert stream == PingByStream(to=at(ping.node), ping=ping, seq_no=ping.seq_no, timeout_s=pytest.approx(0.5))


def test_what_a_member_does_not_understand_is_not_asked_of_it() -> None:
    """Nacks came with protocol 4, pings over TCP with 3. Who does not say is asked neither."""
    scene = Scene()
    scene.hear(alive("a", vsn=b""), alive("b", vsn=bytes((1, 3, 2, 2, 5, 5))))
    scene.until_probe("a")
    wanted = scene.until(scene.now_s + 0.6)
    assert [request.nack for request in helpers_of(wanted).values()] == [False]
    assert not any(isinstance(command, PingByStream) for command in wanted)


@pytest.mark.parametrize("way", ["direct", "helper"])
def test_an_answer_within_the_interval_is_in_time_whoever_brings_it(way: str) -> None:
    scene = Scene(*OTHERS)
    ping = scene.until_probe()
    scene.until(scene.now_s + 0.9)
    scene.hear(Ack(seq_no=ping.seq_no), source=at(ping.node) if way == "direct" else at("stranger"))
    assert suspicions(scene.until(scene.now_s + 0.11)) == set()
    assert scene.state(ping.node) == "alive"
    assert scene.notes.rtts == []  # a helper's answer has another way behind it


def test_no_answer_from_anybody_is_an_accusation() -> None:
    scene = Scene(*OTHERS)
    ping = scene.until_probe()
    assert suspicions(scene.until(scene.now_s + 0.99)) == set()
    wanted = scene.until(scene.now_s + 0.02)
    assert suspicions(wanted) == {ping.node}
    assert scene.state(ping.node) == "suspect"
    # It hears of it itself at once, should it be there.
    assert at(ping.node) in {to for message, to in messages_of(wanted) if isinstance(message, Suspect)}
    assert scene.rules.counts.probes_failed == 1


def test_an_answer_over_tcp_alone_is_enough() -> None:
    scene = Scene(*OTHERS)
    ping = scene.until_probe()
    scene.until(scene.now_s + 0.6)
    scene.rules.stream_ack(scene.now_s, ping.seq_no)
    assert suspicions(scene.until(scene.now_s + 0.5)) == set()
    assert scene.rules.counts.probes_by_stream == 1


def test_a_suspect_that_tcp_alone_reaches_is_told_in_an_exchange_once() -> None:
    scene = Scene(*OTHERS)
    scene.hear(suspect("a", 1, by="y"))
    told = []
    for _ in range(2):
        ping = scene.until_probe("a")
        scene.until(scene.now_s + 0.6)
        scene.rules.stream_ack(scene.now_s, ping.seq_no)
        scene.hear(*[Nack(seq_no=ping.seq_no)] * 3)
        wanted = scene.until(scene.now_s + 0.41)
        told.append([command for command in wanted if isinstance(command, Exchange)])
    assert told == [[Exchange(to=at("a"))], []]


def test_a_member_that_refuted_during_the_probe_is_not_accused_anew() -> None:
    scene = Scene(*OTHERS)
    ping = scene.until_probe()
    scene.hear(alive(ping.node, 2))
    scene.until(scene.now_s + 1.01)
    assert scene.state(ping.node) == "alive"


def test_a_suspect_is_told_of_it_with_the_ping() -> None:
    scene = Scene("a")
    scene.hear(alive("a", 3), suspect("a", 3, by="y"))
    scene.settle()
    sent = [command for command in scene.until(scene.now_s + 1.01) if isinstance(command, SendPacket)]
    [packet] = [command for command in sent if isinstance(messages_of([command])[0][0], Ping)]
    assert messages_of([packet])[1] == (suspect("a", 3, by="me"), at("a"))
    assert packet.crc


# --- refused connections ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refused", "answers", "after_s"), [(False, False, 24.0), (True, False, 2.0), (True, True, 24.0)]
)
def test_a_host_that_refuses_connections_has_no_such_process(refused: bool, answers: bool, after_s: float) -> None:
    scene = Scene(*OTHERS)
    ping = scene.until_probe()
    scene.until(scene.now_s + 0.6)
    if refused:
        scene.rules.stream_refused(scene.now_s, ping.seq_no)
    scene.until(scene.now_s + 0.41)
    if answers:  # late, but it is there
        scene.hear(Ack(seq_no=ping.seq_no), source=at(ping.node))
    suspicion = scene.rules._context.roster.by_name[ping.node].suspicion
    assert suspicion is not None
    assert suspicion.due_s - suspicion.since_s == pytest.approx(after_s)


def test_a_refused_connection_alone_accuses_nobody() -> None:
    scene = Scene(*OTHERS)
    ping = scene.until_probe()
    scene.until(scene.now_s + 0.6)
    scene.rules.stream_refused(scene.now_s, ping.seq_no)
    scene.hear(Ack(seq_no=ping.seq_no))
    scene.until(scene.now_s + 0.41)
    assert scene.state(ping.node) == "alive"


# --- health ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_nacks", "health"), [(0, 3), (1, 2), (3, 0), (9, 0)])
def test_helpers_that_say_nothing_are_a_sign_of_own_troubles(n_nacks: int, health: int) -> None:
    scene = Scene(*OTHERS)
    ping = scene.until_probe()
    scene.until(scene.now_s + 1.05)
    for _ in range(n_nacks):  # just after the verdict, as the peer's
        scene.hear(Nack(seq_no=ping.seq_no))
    scene.until(scene.now_s + 0.3)
    assert scene.rules.health == health


def test_without_helpers_a_failed_probe_is_a_sign_of_own_troubles() -> None:
    scene = Scene("a")
    scene.until_probe("a")
    scene.until(scene.now_s + 1.3)
    assert scene.rules.health == 1


def test_a_sick_member_waits_longer_and_recovers_by_what_goes_well() -> None:
    scene = Scene(*OTHERS)
    scene.rules._context.health = 2
    ping = scene.until_probe()
    sent_s = scene.now_s
    wanted = scene.until(sent_s + 2.9)
    assert suspicions(wanted) == set()
    [stream] = [command for command in wanted if isinstance(command, PingByStream)]
    assert stream.timeout_s == pytest.approx(2.5)
    scene.hear(Ack(seq_no=ping.seq_no))
    assert scene.rules.health == 1


@pytest.mark.parametrize(("delta", "expected"), [(-1, 0), (3, 3), (50, 7)])
def test_health_stays_within_its_bounds(delta: int, expected: int) -> None:
    scene = Scene()
    scene.rules._context.trouble(delta)
    assert scene.rules.health == expected


# --- for others ------------------------------------------------------------------------------------------------------


def test_a_member_gets_a_coordinate_and_news_with_its_answer() -> None:
    scene = Scene("a", "b")
    scene.hear(suspect("b"))
    scene.hear(Ping(seq_no=7, node="me", source=at("a"), source_node="a"), source=at("a"))
    [(ack, to), (news, _)] = messages_of(scene.drain())
    assert (ack, to) == (Ack(seq_no=7, payload=b"here"), at("a"))
    assert news == suspect("b")


@pytest.mark.parametrize(
    ("node", "source", "wanted", "expected"),
    [
        ("me", "stranger", "", "stranger"),
        ("", "stranger", "", "stranger"),
        ("", "stranger", "victim", "stranger"),  # not a reflector
        ("me", "stranger", "a", "a"),  # behind a translation of addresses, as it wishes
        ("me", "a", "victim", "a"),
        ("other", "a", "", None),
    ],
)
def test_answers_go_to_the_sender_or_to_a_member(node: str, source: str, wanted: str, expected: str | None) -> None:
    scene = Scene("a")
    ping = Ping(seq_no=7, node=node, source=at(wanted)) if wanted else Ping(seq_no=7, node=node)
    scene.hear(ping, source=at(source))
    assert [to for _, to in messages_of(scene.drain())] == ([at(expected)] if expected else [])


def test_a_stranger_gets_no_more_than_an_answer() -> None:
    scene = Scene("a")
    scene.hear(suspect("a"))
    scene.hear(Ping(seq_no=7), source=at("stranger"))
    assert messages_of(scene.drain()) == [(Ack(seq_no=7), at("stranger"))]


@pytest.mark.parametrize(("node", "answered"), [("me", True), ("", True), ("other", False)])
def test_a_ping_over_tcp_is_answered_by_whom_it_names(node: str, answered: bool) -> None:
    answer = Scene().rules.answer_stream_ping(Ping(seq_no=9, node=node))
    assert answer == (Ack(seq_no=9) if answered else None)


def ask(scene: Scene, *, nack: bool = True, node: str = "b", seq_no: int = 77) -> list[Command]:
    """Member a asks me to ping another one; what I do at once."""
    target = at(node)
    scene.hear(IndirectPing(seq_no=seq_no, target=target, node=node, nack=nack, source=at("a")), source=at("a"))
    return scene.drain()


def test_a_helper_pings_and_passes_the_answer_on() -> None:
    scene = Scene("a", "b")
    [(ping, to)] = messages_of(ask(scene))
    assert isinstance(ping, Ping)
    assert (to, ping.node) == (at("b"), "b")
    assert ping.seq_no != 77
    scene.hear(Ack(seq_no=ping.seq_no, payload=b"coordinate"), source=at("b"))
    assert messages_of(scene.drain()) == [(Ack(seq_no=77), at("a"))]
    scene.hear(Ack(seq_no=ping.seq_no), source=at("b"))
    assert scene.drain() == []


@pytest.mark.parametrize("nack", [True, False])
def test_a_helper_without_an_answer_says_so_if_asked_to(nack: bool) -> None:
    scene = Scene("a", "b")
    ask(scene, nack=nack)
    said = [(m, to) for m, to in messages_of(scene.until(scene.now_s + 0.45)) if isinstance(m, Nack)]
    assert said == ([(Nack(seq_no=77), at("a"))] if nack else [])


def test_an_answer_after_the_nack_is_passed_on_while_it_may_be_of_use() -> None:
    scene = Scene("a", "b")
    [(ping, _)] = messages_of(ask(scene))
    assert isinstance(ping, Ping)
    scene.until(scene.now_s + 0.45)
    scene.hear(Ack(seq_no=ping.seq_no), source=at("b"))
    assert (Ack(seq_no=77), at("a")) in messages_of(scene.drain())


def test_nobody_but_members_is_pinged_for_others() -> None:
    scene = Scene("a", "b")
    assert messages_of(ask(scene, node="victim")) == [(Nack(seq_no=77), at("a"))]
    scene.hear(IndirectPing(seq_no=78, target=Address("10.66.6.6", 53), node="b", nack=False), source=at("a"))
    assert scene.drain() == []


def test_no_more_is_done_for_others_at_a_time_than_allowed_and_nothing_remains() -> None:
    scene = Scene("a", "b")
    pings = 0
    for seq_no in range(2 * ERRANDS_MAX):
        pings += sum(isinstance(message, Ping) for message, _ in messages_of(ask(scene, seq_no=seq_no)))
    assert pings == ERRANDS_MAX
    scene.until(scene.now_s + 0.6)
    assert scene.rules._prober._errands == {}


def test_answers_that_nobody_waits_for_do_nothing() -> None:
    scene = Scene("a")
    scene.hear(Ack(seq_no=1), Nack(seq_no=1))
    scene.rules.stream_ack(scene.now_s, 1)
    scene.rules.stream_refused(scene.now_s, 1)
    assert scene.drain() == []


def test_the_dead_and_the_gone_are_not_probed() -> None:
    scene = Scene("a", "b", "c")
    scene.hear(dead("a"), dead("b", by="b"))
    for _ in range(5):
        ping = scene.until_probe()
        assert ping.node == "c"
        scene.hear(Ack(seq_no=ping.seq_no))
