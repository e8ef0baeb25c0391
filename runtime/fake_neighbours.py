"""The rest of a simulated host's LAN, as far as its kernel asks it something: who answers for an address.

A question goes out as the bytes that the daemon made; what comes back are the bytes that a Linux machine would answer with.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable, Sequence

import trio

from beeyard.runtime.netlink_format import mac_bytes

_ARP, _IPV6 = b"\x08\x06", b"\x86\xdd"
_ICMPV6, _SOLICITATION, _ADVERTISEMENT = 58, 135, 136
_ALL_NODES = ipaddress.IPv6Address("ff02::1").packed
# Of router, solicited, override: the last. Source: RFC 4861, section 7.2.4, for a solicitation from nowhere.
_OVERRIDE = 0x20000000


class _Question:
    """One that waits for its answer."""

    def __init__(self, is_answer: Callable[[bytes], bool]) -> None:
        self._is_answer = is_answer
        self.answer: bytes | None = None
        self.answered = trio.Event()

    def hear(self, frame: bytes) -> None:
        if self.answer is None and self._is_answer(frame):
            self.answer = frame
            self.answered.set()


class FakeNeighbours:
    """Who else is on a host's LAN.

    Attributes:
        mac_of: the MAC address of the machine that has an address (without prefix length), None when there is none.
    """

    def __init__(self) -> None:
        self.mac_of: Callable[[str], str | None] = _nobody
        self._questions: dict[_Question, None] = {}

    async def ask(
        self,
        send: Callable[[], None],
        frames: Sequence[bytes],
        is_answer: Callable[[bytes], bool],
        *,
        wait_s: float,
        times: int,
    ) -> bytes | None:
        """Ask. `send` is called each time the frames leave the host and raises when they cannot."""
        question = _Question(is_answer)
        self._questions[question] = None
        try:
            for _ in range(times):
                send()
                for frame in frames:
                    if (answer := self._answer(frame)) is not None:
                        question.hear(answer)
                with trio.move_on_after(wait_s / times):
                    await question.answered.wait()
                    break
        finally:
            del self._questions[question]
        return question.answer

    def hear(self, frame: bytes) -> None:
        """Some machine of the LAN sends a frame to everybody."""
        for question in self._questions:
            question.hear(frame)

    def _answer(self, frame: bytes) -> bytes | None:
        if frame[12:14] == _ARP and frame[20:22] == b"\0\1":
            mac = self.mac_of(str(ipaddress.IPv4Address(frame[38:42])))
            return None if mac is None else arp_reply(frame[38:42], mac, to=frame[6:12], to_ip=frame[28:32])
        if frame[12:14] == _IPV6 and frame[20] == _ICMPV6 and frame[54] == _SOLICITATION:
            mac = self.mac_of(str(ipaddress.IPv6Address(frame[62:78])))
            return None if mac is None else advertisement(frame[62:78], mac)
        return None


def arp_reply(address: bytes, mac: str, *, to: bytes, to_ip: bytes) -> bytes:
    """An answer to an ARP request. Source: RFC 826."""
    sender = mac_bytes(mac)
    return to + sender + struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, 2) + sender + address + to + to_ip


def advertisement(address: bytes, mac: str) -> bytes:
    """The answer to a solicitation from the unspecified address: to all nodes. Source: RFC 4861, section 7.2.4.

    Its checksum is left at zero: packets between interfaces of one Linux machine have none yet either.
    """
    sender = mac_bytes(mac)
    body = struct.pack("!BBHI", _ADVERTISEMENT, 0, 0, _OVERRIDE) + address + b"\x02\x01" + sender
    packet = struct.pack("!IHBB", 6 << 28, len(body), _ICMPV6, 255) + address + _ALL_NODES + body
    return b"\x33\x33\0\0\0\x01" + sender + _IPV6 + packet


def arp_probe(address: bytes, mac: str) -> bytes:
    """Another machine is about to take an address. Source: RFC 5227, section 2.1.1."""
    sender = mac_bytes(mac)
    head = b"\xff" * 6 + sender + struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, 1)
    return head + sender + bytes(4) + bytes(6) + address


def _nobody(address: str) -> str | None:
    return None


__all__ = ["FakeNeighbours", "advertisement", "arp_probe", "arp_reply"]
