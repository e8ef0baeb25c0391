"""Whatever peers say, in whatever order: nothing raises, invariants hold, and what is kept stays bounded."""

import contextlib
import random

import pytest

from beeyard.core.errors import RemoteProtocolError
from beeyard.discovery.gossip.command import PingByStream, SendPacket
from beeyard.discovery.gossip.message import (
    NOWHERE,
    Ack,
    Address,
    Alive,
    Dead,
    IndirectPing,
    Message,
    Nack,
    NodeRecord,
    Ping,
    PushPull,
    StreamError,
    Suspect,
    User,
)
from beeyard.discovery.gossip.swim import VSN, Config
from beeyard.discovery.gossip.swim.roster import SUSPECT
from tests.support.swim import Scene, at

NAMES = ["me", "a", "b", "c", "d", "", "n" * 300, "\x00", "\udc80"]
ADDRESSES = [*map(at, "abcd"), Address("10.9.9.9", 7946), NOWHERE, Address("224.0.0.1", 1), Address("fd00::1", 7946)]
NUMBERS = [0, 1, 2, 3, 7, 0xFFFF_0000, 0xFFFF_FFFF]
VERSIONS = [VSN, VSN, b"", b"\x00" * 6, b"\x05", bytes(range(6))]
BOUND = Config(members_max=6)


def any_message(rng: random.Random, seq_no: int) -> Message:
    """One of all kinds; `seq_no` is one that is waited for."""
    name, other, number = rng.choice(NAMES), rng.choice(NAMES), rng.choice(NUMBERS)
    address, seq_no = rng.choice(ADDRESSES), rng.choice([seq_no, number])
    return rng.choice(
        [
            Ping(seq_no=seq_no, node=name, source=address),
            IndirectPing(seq_no=number, target=address, node=name, nack=rng.random() < 0.5, source=address),
            Ack(seq_no=seq_no, payload=b"p"),
            Nack(seq_no=seq_no),
            Suspect(incarnation=number, node=name, from_node=other),
            Dead(incarnation=number, node=name, from_node=other),
            Alive(incarnation=number, node=name, address=address, meta=b"m" * number, vsn=rng.choice(VERSIONS))
            if number < 600
            else Alive(incarnation=number, node=name, address=address, vsn=rng.choice(VERSIONS)),
            User(data=b""),
            StreamError(error="not for a packet"),
        ]
    )


def any_list(rng: random.Random) -> PushPull:
    nodes = tuple(
        NodeRecord(
            name=rng.choice(NAMES),
            address=rng.choice(ADDRESSES),
            incarnation=rng.choice(NUMBERS),
            state=rng.randrange(6),
            vsn=rng.choice(VERSIONS),
        )
        for _ in range(rng.randrange(9))
    )
    return PushPull(nodes=nodes, user_state=rng.choice([b"", b"state"]), join=rng.random() < 0.5)


def check(scene: Scene) -> None:
    """What must hold at any time."""
    context = scene.rules._context
    members = list(context.roster.by_name.values())
    assert len(members) == len(context.roster) <= BOUND.members_max
    assert context.roster.n_up == sum(member.is_up for member in members)
    assert all((member.suspicion is not None) == (member.state == SUSPECT) for member in members)
    assert sum(context.roster._n_at.values()) == len(members)
    assert len(context.timers._heap) < 200
    assert scene.rules.n_queued <= len(NAMES)
    assert 0 <= scene.rules.health < 8
    assert scene.state("me") == ("left" if context.has_left else "alive")
    assert scene.rules.incarnation < 1 << 32


@pytest.mark.parametrize("seed", range(40))
def test_no_sequence_of_messages_breaks_the_rules(seed: int) -> None:
    rng = random.Random(seed)
    scene = Scene("a", "b", seed=seed, config=BOUND)
    seq_no = 1
    for _ in range(200):
        scene.now_s += rng.choice([0.0, 0.001, 0.05, 0.3, 0.6, 1.0, 5.0, 40.0])
        turn = rng.random()
        if turn < 0.7:
            scene.hear(any_message(rng, seq_no), source=rng.choice(ADDRESSES))
        elif turn < 0.8:
            with contextlib.suppress(RemoteProtocolError):
                scene.rules.merge(scene.now_s, any_list(rng), join=rng.random() < 0.5)
        elif turn < 0.97:
            scene.rules.advance(scene.now_s)
        elif turn < 0.99:
            rng.choice([scene.rules.stream_ack, scene.rules.stream_refused])(scene.now_s, seq_no)
        elif rng.random() < 0.2:
            scene.rules.leave(scene.now_s)
        for command in scene.drain():
            if isinstance(command, PingByStream):
                seq_no = command.seq_no
            elif isinstance(command, SendPacket):
                assert 0 < len(command.parts) <= 127
                assert sum(len(part) + 2 for part in command.parts) + 2 <= BOUND.packet_bytes
        check(scene)
