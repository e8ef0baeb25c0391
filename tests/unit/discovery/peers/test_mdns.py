"""What is answered to a question of mDNS, and what is taken from an answer."""

from __future__ import annotations

import msgspec
import pytest

from beeyard.discovery.gossip.message import Address
from beeyard.discovery.peers import dns
from beeyard.discovery.peers.mdns import Offer, answer, peers_in, service_name
from tests.unit.discovery.peers.test_dns import REAL_ANSWER

OFFER = Offer(service="yard", instance="n1.rack", address=Address("10.5.5.1", 3388))
PTR, SRV, A, TXT = dns.PTR, dns.SRV, dns.A, dns.TXT


@pytest.mark.parametrize(
    ("name", "kind", "kinds"),
    [
        (("_serf_yard", "_tcp", "local"), PTR, [PTR, SRV, A, TXT]),
        (("_SERF_Yard", "_TCP", "local"), dns.ANY, [PTR, SRV, A, TXT]),
        (("n1.rack", "_serf_yard", "_tcp", "local"), PTR, [SRV, A, TXT]),
        (("n1.rack", "_serf_yard", "_tcp", "local"), SRV, [SRV, A, TXT]),
        (("n1-rack", "local"), A, [A]),
        (("n1-rack", "local"), TXT, []),
        (("_services", "_dns-sd", "_udp", "local"), PTR, [PTR]),
        (("_serf_other", "_tcp", "local"), PTR, []),
        (("_serf_yard", "_tcp", "local"), A, []),
    ],
)
def test_a_question_is_answered_in_the_order_that_real_agents_understand(name, kind, kinds):
    """SRV before A, and nothing about others."""
    assert [record.kind for record in answer(OFFER, dns.Question(name, kind), 120)] == kinds


def test_an_offer_is_found_in_its_own_answer():
    """Over the wire and back."""
    records = answer(OFFER, dns.Question(service_name("yard"), PTR), 10)
    message = dns.decode(dns.encode(dns.DnsMessage(is_answer=True, records=records)))
    assert peers_in(message, "YARD") == [("n1.rack", OFFER.address)]
    assert peers_in(message, "other") == []


def test_an_ipv6_member_is_found_too():
    """With an AAAA record."""
    offer = msgspec.structs.replace(OFFER, address=Address("fd77::1", 1))
    records = answer(offer, dns.Question(offer.service_name, PTR), 10)
    assert peers_in(dns.DnsMessage(is_answer=True, records=records), "yard") == [("n1.rack", offer.address)]


def test_a_real_agent_is_found():
    """In the bytes that it sent."""
    assert peers_in(dns.decode(REAL_ANSWER), "yard") == [("n1", Address("10.5.5.1", 7946))]


def test_farewells_and_places_without_an_address_find_nobody():
    """Nor does port 0."""
    for changes in ({"ttl_s": 0}, {"port": 0}, {"target": ("elsewhere",)}):
        records = tuple(
            msgspec.structs.replace(record, **changes) if record.kind == SRV else record
            for record in dns.decode(REAL_ANSWER).records
        )
        assert peers_in(dns.DnsMessage(is_answer=True, records=records), "yard") == []
