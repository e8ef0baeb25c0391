"""DNS messages: what a real Serf agent answers is understood, what is garbage is refused and costs nothing."""

from __future__ import annotations

import random

import pytest

from beeyard.core.errors import RemoteProtocolError
from beeyard.discovery.peers import dns

# What `serf agent -discover yard -node n1 -bind 10.5.5.1` (0.9.4) answered to a question of ours.
REAL_ANSWER = bytes.fromhex(
    "0000840000000004000000000a5f736572665f79617264045f746370056c6f63616c00000c0001000000780005026e31c00c"
    "c02d0021000100000078000a000a00011f0a02766d00c044000100010000007800040a050501c02d00100001000000780014"
    "13536572662027796172642720636c7573746572"
)
SERVICE = ("_serf_yard", "_tcp", "local")
INSTANCE = ("n1", *SERVICE)


def test_the_answer_of_a_real_agent_is_read():
    """Names that point back into the message, four kinds of records."""
    message = dns.decode(REAL_ANSWER)
    assert message.is_answer
    assert message.questions == ()
    assert message.records == (
        dns.Record(name=SERVICE, kind=dns.PTR, target=INSTANCE),
        dns.Record(name=INSTANCE, kind=dns.SRV, target=("vm",), port=7946),
        dns.Record(name=("vm",), kind=dns.A, address="10.5.5.1"),
        dns.Record(name=INSTANCE, kind=dns.TXT, text=(b"Serf 'yard' cluster",)),
    )


@pytest.mark.parametrize(
    "message",
    [
        dns.DnsMessage(questions=(dns.Question(SERVICE, dns.PTR),)),
        dns.DnsMessage(id=7, questions=(dns.Question(SERVICE, dns.PTR, unicast=True), dns.Question(INSTANCE, dns.ANY))),
        dns.decode(REAL_ANSWER),
        dns.DnsMessage(is_answer=True, records=(dns.Record(name=("h",), kind=dns.AAAA, ttl_s=0, address="fd77::1"),)),
        dns.DnsMessage(
            is_answer=True, records=(dns.Record(name=("a.b", "local"), kind=dns.TXT, text=(b"", b"x" * 255)),)
        ),
    ],
)
def test_what_is_written_is_read_again(message):
    """Both directions are of one mind."""
    assert dns.decode(dns.encode(message)) == message


def test_records_of_other_kinds_are_left_out():
    """NSEC and its like are on every LAN."""
    nsec = dns.encode(dns.DnsMessage(is_answer=True, records=(dns.Record(name=("h",), kind=47, text=(b"x",)),)))
    assert dns.decode(nsec).records == ()


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "cannot be read"),
        (REAL_ANSWER[:-1], "cut off"),
        (b"\0" * 4 + b"\0\1" + b"\0" * 6 + b"\xc0\x0c\0\1\0\1", "points forwards"),
        (b"\0" * 4 + b"\0\1" + b"\0" * 6 + b"\x80\0\0\1\0\1", "a label of an unknown kind"),
        (b"\0" * 4 + b"\0\1" + b"\0" * 6 + (b"\x3f" + b"x" * 63) * 5 + b"\0\0\1\0\1", "too long"),
    ],
)
def test_what_is_no_message_is_refused(data, fault):
    """With one kind of error."""
    with pytest.raises(RemoteProtocolError, match=fault):
        dns.decode(data)


def test_garbage_is_refused_or_read_but_never_worse():
    """Any bytes and any damage to a real answer."""
    rng = random.Random(1)
    for _ in range(3000):
        data = bytearray(REAL_ANSWER)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        for tried in (bytes(data[: rng.randrange(len(data) + 1)]), rng.randbytes(rng.randrange(60))):
            try:
                dns.decode(tried)
            except RemoteProtocolError:
                continue


def test_counts_in_the_header_cost_nothing():
    """A header may claim 65,535 records that point at each other."""
    bomb = b"\0\0\x84\0\0\0\xff\xff\xff\xff\xff\xff" + b"\1a\0" + b"\0\x0c\0\1\0\0\0\1\0\2\xc0\x0c" * 600
    with pytest.raises(RemoteProtocolError):
        dns.decode(bomb)
