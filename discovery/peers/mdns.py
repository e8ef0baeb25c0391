"""Peers by mDNS, in the records that Serf's agents ask for and answer with (`serf agent -discover NAME`).

The service is `_serf_NAME._tcp.local.`, an instance of it the member's name. A real agent asks from a port of its own and
understands an answer only when PTR, SRV, A and TXT come in one packet, SRV before A: in the other order it has to ask
again, and does so for the instance by its name.

Source: hashicorp/mdns 1.0.3 zone.go, client.go; Serf 0.9.4 cmd/serf/command/agent/mdns.go; RFC 6762, 6.7 (whoever asks from
another port than 5353 gets a unicast answer with his id and his question).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence

import msgspec
import structlog
import trio

from beeyard.core.errors import HostError, RemoteProtocolError
from beeyard.discovery.gossip.message import Address
from beeyard.discovery.peers import dns
from beeyard.discovery.peers.own_addresses import OwnAddress
from beeyard.runtime.host import Datagrams, Group, Host, Multicast

MDNS_PORT = 5353
GROUP_IPV4, GROUP_IPV6 = "224.0.0.251", "ff02::fb"
SERVICES = dns.name_of("_services._dns-sd._udp.local")
TTL_S = 120
# What is answered to whoever does not take part in mDNS must not be kept for long. Source: RFC 6762, 6.7.
LEGACY_TTL_S = 10
# Nobody on a LAN needs more; a stranger who makes us answer more is refused.
ANSWERS_PER_S = 50
# When the port cannot be had (another responder that does not share it), it is tried again.
RETRY_S = 60.0

log = structlog.get_logger(__name__)


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A member as mDNS shows it."""

    service: str  # the NAME of `serf agent -discover NAME`
    instance: str  # the member's name
    address: Address

    @property
    def service_name(self) -> dns.Name:
        """Who all of them are asked for by."""
        return service_name(self.service)

    @property
    def instance_name(self) -> dns.Name:
        """This one alone."""
        return (self.instance, *self.service_name)

    @property
    def host_name(self) -> dns.Name:
        """Of the address record: one label, whatever is in the member's name."""
        return (self.instance.replace(".", "-"), "local")


def service_name(service: str) -> dns.Name:
    """The name of the service that peers offer."""
    return (f"_serf_{service}", "_tcp", "local")


def answer(offer: Offer, question: dns.Question, ttl_s: int) -> tuple[dns.Record, ...]:
    """What is answered to a question, in this order; nothing if it is about something else."""
    asked, kind = dns.folded(question.name), question.kind
    pointer = dns.Record(name=offer.service_name, kind=dns.PTR, ttl_s=ttl_s, target=offer.instance_name)
    place = dns.Record(
        name=offer.instance_name, kind=dns.SRV, ttl_s=ttl_s, target=offer.host_name, port=offer.address.port
    )
    address_kind = dns.AAAA if ":" in offer.address.host else dns.A
    address = dns.Record(name=offer.host_name, kind=address_kind, ttl_s=ttl_s, address=offer.address.host)
    text = dns.Record(
        name=offer.instance_name, kind=dns.TXT, ttl_s=ttl_s, text=(f"Serf '{offer.service}' cluster".encode(),)
    )
    if asked == dns.folded(offer.service_name) and kind in (dns.PTR, dns.ANY):
        return pointer, place, address, text
    if asked == dns.folded(offer.instance_name):  # of any kind: a real agent asks for PTR
        return place, address, text
    if asked == dns.folded(offer.host_name) and kind in (address_kind, dns.ANY):
        return (address,)
    if asked == SERVICES and kind in (dns.PTR, dns.ANY):
        return (dns.Record(name=SERVICES, kind=dns.PTR, ttl_s=ttl_s, target=offer.service_name),)
    return ()


def peers_in(message: dns.DnsMessage, service: str) -> list[tuple[str, Address]]:
    """The members that an answer tells of: instance and address. Whatever else the LAN says is left out."""
    wanted = dns.folded(service_name(service))
    addresses: dict[dns.Name, list[str]] = {}
    for record in message.records:
        if record.kind in (dns.A, dns.AAAA):
            addresses.setdefault(dns.folded(record.name), []).append(record.address)
    found: list[tuple[str, Address]] = []
    for record in message.records:
        is_instance = record.kind == dns.SRV and dns.folded(record.name)[1:] == wanted
        if is_instance and record.port and record.ttl_s:  # ttl 0: a farewell
            hosts = addresses.get(dns.folded(record.target), ())
            found += [(record.name[0], Address(host, record.port)) for host in hosts]
    return list(dict.fromkeys(found))


class Responder:
    """Answers for one member until cancelled. Its address may change, and so may those of the host."""

    def __init__(self, host: Host, offer: Callable[[], Offer], own: Callable[[], Sequence[OwnAddress]]) -> None:
        self._host = host
        self._offer = offer
        self._own = own
        self._second = 0
        self._n_answers = 0

    async def run(self) -> None:
        """Answer questions. A port that cannot be had is told once and tried again."""
        told = False
        while True:
            try:
                socket = await self._socket()
            except HostError as error:
                if not told:
                    log.warning("peers cannot find this host by mDNS", reason=str(error))
                told = True
                await trio.sleep(RETRY_S)
                continue
            try:
                await self._answer(socket)
            finally:
                with trio.CancelScope(shield=True):  # Safety: closing a socket does not wait
                    await socket.aclose()

    async def _socket(self) -> Datagrams:
        address = self._offer().address.host
        six = ":" in address
        group = GROUP_IPV6 if six else GROUP_IPV4
        interfaces = list(dict.fromkeys(own.interface for own in self._own() if (":" in own.address) == six))
        by = next((own.interface for own in self._own() if own.address == address), "")
        multicast = Multicast(groups=[Group(address=group, interface=name) for name in interfaces], interface=by)
        return await self._host.net.datagrams(f"udp://{'[::]' if six else '0.0.0.0'}:{MDNS_PORT}", multicast=multicast)

    async def _answer(self, socket: Datagrams) -> None:
        while True:
            data, source = await socket.receive()
            try:
                query = dns.decode(data)
            except RemoteProtocolError:
                continue
            if query.is_answer:
                continue
            offer, legacy = self._offer(), source[1] != MDNS_PORT
            ttl_s = LEGACY_TTL_S if legacy else TTL_S
            records = tuple(record for question in query.questions[:8] for record in answer(offer, question, ttl_s))
            if not records or not self._may_answer(source[0]):
                continue
            alone = legacy or all(question.unicast for question in query.questions)
            group = GROUP_IPV6 if ":" in offer.address.host else GROUP_IPV4
            reply = dns.DnsMessage(
                id=query.id if legacy else 0,
                is_answer=True,
                questions=query.questions[:8] if legacy else (),
                records=tuple(dict.fromkeys(records)),
            )
            await socket.send(source if alone else (group, MDNS_PORT), dns.encode(reply))

    def _may_answer(self, source: str) -> bool:
        """Only neighbours are answered, and not without end: an answer is longer than its question."""
        now_s = int(trio.current_time())
        if now_s != self._second:
            self._second, self._n_answers = now_s, 0
        self._n_answers += 1
        address = ipaddress.ip_address(source.partition("%")[0])
        return self._n_answers <= ANSWERS_PER_S and (
            address.is_link_local or any(_holds(own, address) for own in self._own())
        )


def _holds(own: OwnAddress, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    # Without a kernel that tells networks (prefix length 32 and no interface) everybody is a neighbour.
    return not own.interface or address in own.network


async def browse(
    host: Host, service: str, own: Sequence[OwnAddress], found: Callable[[str, Address], None], *, wait_s: float
) -> None:
    """Ask once on each of the host's networks and tell of each answer; over after `wait_s`."""
    query = dns.encode(dns.DnsMessage(questions=(dns.Question(service_name(service), dns.PTR),)))
    places = dict.fromkeys((address.interface, ":" in address.address) for address in own)

    async def ask(interface: str, six: bool) -> None:
        wildcard, group = ("[::]", GROUP_IPV6) if six else ("0.0.0.0", GROUP_IPV4)
        multicast = Multicast(interface=interface, share=False)
        try:
            socket = await host.net.datagrams(f"udp://{wildcard}:0", multicast=multicast)
        except HostError:
            return
        try:
            await socket.send((group, MDNS_PORT), query)
            while True:
                data, _ = await socket.receive()
                try:
                    peers = peers_in(dns.decode(data), service)
                except RemoteProtocolError:
                    continue
                for instance, address in peers:
                    found(instance, address)
        finally:
            with trio.CancelScope(shield=True):  # Safety: closing a socket does not wait
                await socket.aclose()

    with trio.move_on_after(wait_s):
        async with trio.open_nursery() as nursery:
            for interface, six in places:
                nursery.start_soon(ask, interface, six)
            await trio.sleep_forever()


__all__ = ["MDNS_PORT", "Offer", "Responder", "answer", "browse", "peers_in", "service_name"]
