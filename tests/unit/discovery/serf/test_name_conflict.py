"""Votes on a name."""

import pytest

from beeyard.discovery.gossip.message import Address, ConflictResponse, MemberRecord
from beeyard.discovery.gossip.serf.event import ConflictLost, ConflictWon
from beeyard.discovery.gossip.serf.name_conflict import Vote
from beeyard.discovery.gossip.wire.serf_codec import encode_serf

OWN, OTHER = Address("10.0.0.9", 7946), Address("10.0.0.10", 7946)


def ballot(address: Address | None) -> bytes:
    member = None if address is None else MemberRecord(name="b", address=address, status=1)
    return encode_serf(ConflictResponse(member=member))


@pytest.mark.parametrize(
    ("ballots", "n_voters", "kind"),
    [
        ([ballot(OWN)], 1, ConflictWon),
        ([ballot(OTHER)], 1, ConflictLost),
        ([ballot(OWN), ballot(OTHER)], 2, ConflictLost),
        ([ballot(OWN), ballot(OWN), ballot(OTHER)], 3, ConflictWon),
        ([ballot(OWN), ballot(None)], 2, ConflictLost),
        ([ballot(OWN), b"", b"\x06\xc1"], 3, ConflictWon),
        # Lost packets decide nothing, and with nobody else there the smaller address stays: one of two, always.
        ([], 3, None),
        ([], 0, ConflictWon),
    ],
)
def test_majority_decides_whose_a_name_is(ballots: list[bytes], n_voters: int, kind: type | None) -> None:
    """More than half of the answers must mean this member; unreadable ones are none."""
    ended: list[bool] = []
    vote = Vote("b", OWN, OTHER, n_voters, lambda: ended.append(True))
    for number, payload in enumerate(ballots):
        vote.answered(str(number), payload)
    told = vote.done(0, len(ballots))
    assert [type(event) for event in told] == ([] if kind is None else [kind])
    assert ended == [True]


def test_of_two_alone_exactly_one_stays() -> None:
    """Both of Serf's would shut down."""
    sides = [Vote("b", *pair, 0, lambda: None).done(0, 0)[0] for pair in ((OWN, OTHER), (OTHER, OWN))]
    assert sorted(type(event).__name__ for event in sides) == ["ConflictLost", "ConflictWon"]
