"""Any messages in any order from anybody: nothing raises, and what a member keeps and sends stays within bounds."""

from hypothesis import given, settings
from hypothesis import strategies as st

from beeyard.core.errors import RemoteProtocolError
from beeyard.discovery.gossip.command import SendPacket
from beeyard.discovery.gossip.message import (
    Address,
    Alive,
    Coordinate,
    Dead,
    EventItem,
    EventsAt,
    JoinIntent,
    LeaveIntent,
    MergeState,
    NodeRecord,
    PushPull,
    Query,
    QueryResponse,
    Relay,
    Suspect,
    User,
    UserEvent,
)
from beeyard.discovery.gossip.wire import codec
from beeyard.discovery.gossip.wire.serf_codec import encode_coordinate, encode_serf, encode_tags
from tests.support.serf_play import ME, VSN, Play

NAMES = st.sampled_from(["a", "b", "c", "x\nleave", "", "ü"])
TIMES = st.sampled_from([0, 1, 2, 5, 600, 2**31, 2**62, 2**64 - 1]) | st.integers(0, 20)
STRANGERS = (("10.0.1.98", 7946), ("192.0.2.66", 53), ("0.0.0.0", 0), ("::1", 1), ("224.0.0.1", 9))
ADDRESSES = st.sampled_from([ME, *(Address(*at) for at in STRANGERS)])
BYTES = st.sampled_from([b"", b"\x01", b"b", b"a", b"x" * 2000, b"\xff", b"\x07\x81\xa3Key\xa0"])
QUERY_NAMES = st.sampled_from(
    ["q", "", *(f"_serf_{name}" for name in ("ping", "conflict", "install-key", "list-keys", "x"))]
)
SMALL = st.integers(0, 3)
RESPONSES = st.builds(QueryResponse, l_time=TIMES, id=SMALL, from_node=NAMES, flags=SMALL, payload=BYTES)

SERF = st.one_of(
    st.builds(JoinIntent, l_time=TIMES, node=NAMES),
    st.builds(LeaveIntent, l_time=TIMES, node=NAMES, prune=st.booleans()),
    st.builds(UserEvent, l_time=TIMES, name=NAMES, payload=BYTES, coalesce=st.booleans()),
    st.builds(
        Query,
        l_time=TIMES,
        id=SMALL,
        address=ADDRESSES,
        source_node=NAMES,
        name=QUERY_NAMES,
        payload=BYTES,
        filters=st.lists(BYTES, max_size=1).map(tuple),
        flags=SMALL,
        relay_factor=st.sampled_from([0, 1, 255]),
        timeout_ns=st.sampled_from([-(2**62), 0, 10**9, 2**63 - 1]),
    ),
    RESPONSES,
    st.builds(Relay, destination=ADDRESSES, destination_node=NAMES, inner=RESPONSES.map(encode_serf) | BYTES),
    st.builds(
        MergeState,
        l_time=TIMES,
        status_l_times=st.dictionaries(NAMES, TIMES, max_size=3),
        left_members=st.lists(NAMES, max_size=2).map(tuple),
        event_l_time=TIMES,
        events=st.lists(
            st.builds(
                EventsAt, l_time=TIMES, events=st.lists(st.builds(EventItem, NAMES, BYTES), max_size=2).map(tuple)
            ),
            max_size=2,
        ).map(tuple),
        query_l_time=TIMES,
    ),
)
METAS = st.sampled_from([b"", b"role", encode_tags({"x": "y"}), b"\xff\xc1"])
SWIM = st.one_of(
    st.builds(Alive, incarnation=SMALL, node=NAMES, address=ADDRESSES, meta=METAS, vsn=st.just(VSN)),
    st.builds(Suspect, incarnation=SMALL, node=NAMES, from_node=NAMES),
    st.builds(Dead, incarnation=SMALL, node=NAMES, from_node=NAMES),
)
STEPS = st.one_of(
    SERF.map(lambda message: User(data=encode_serf(message))),
    SWIM,
    st.builds(
        PushPull,
        nodes=st.lists(
            st.builds(
                NodeRecord,
                name=NAMES,
                address=ADDRESSES,
                meta=METAS,
                incarnation=SMALL,
                state=SMALL,
            ),
            max_size=3,
        ).map(tuple),
        user_state=SERF.map(encode_serf) | BYTES,
        join=st.booleans(),
    ),
    st.floats(0.0, 90.0),
    st.sampled_from(["event", "query", "leave", "tags", "vote", "coordinate"]),
)


def do(play: Play, step: object) -> None:
    """One step, as the driver would do it."""
    serf, now_s = play.serf, play.now_s
    if isinstance(step, float):
        play.pass_time(step)
    elif isinstance(step, PushPull):
        serf.push_pull(now_s, join=step.join)
        try:
            serf.merge(now_s, step, join=step.join)
        except RemoteProtocolError:
            serf.joined(now_s)
    elif step == "event":
        serf.send_event(now_s, "mine")
    elif step == "query":
        serf.query(now_s, "mine", relay_factor=2, ack=True)
    elif step == "leave":
        serf.leave(now_s)
    elif step == "tags":
        serf.set_tags(now_s, {"x": "z"})
    elif step == "vote":
        serf.handle(now_s, Alive(incarnation=9, node="a", address=Address("10.9.9.9", 1), vsn=VSN), ME)
    elif step == "coordinate":
        payload = encode_coordinate(Coordinate(vec=(1e5,) * 8, error=0.0))
        serf._bridge.notify_ping_complete("b", 0.01, payload)
    else:
        assert isinstance(step, Alive | Suspect | Dead | User)
        serf.handle(now_s, step, Address("10.0.1.98", 7946))


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_no_order_of_messages_breaks_a_member(steps: list[object]) -> None:
    """It knows itself to the end, its clocks stay within reason, and every packet can be read by others."""
    play = Play("b")
    for step in steps:
        do(play, step)
    serf = play.serf
    assert serf.me.name == "a"
    assert serf.next_at() > play.now_s or serf.next_at() == float("-inf")
    figures = serf.figures()
    assert all(figures[f"{kind}_time"] <= 2**38 for kind in ("member", "event", "query"))
    for command in serf.out:
        for part in command.parts if isinstance(command, SendPacket) else ():
            codec.decode(part)
