"""A machine on the LAN that keeps asking who has each address, and says when two answer.

Run inside the outside's namespace: `python -m tests.support.arp_watch INTERFACE ADDRESS/PREFIX RANGE...`. Asks for every
address of the ranges in turn, some hundred a second, until its standard input closes; then prints one JSON object:
{"rounds": n, "conflicts": [[address, mac, mac, seconds], ...], "seen": {address: [mac, ...]}}.

A conflict is two answers to *the same question*: an address that moved from one task to the next is none. Answers are
counted, not hardware addresses: these follow from the IP address, so two machines that have it would answer alike. A
gratuitous reply, with which a new link announces itself to everybody, answers no question: it has the address as target too.
"""

from __future__ import annotations

import ipaddress
import json
import os
import select
import socket
import struct
import sys
import time

ETH_P_ARP = 0x0806
# Long enough for every host of a bridge on one machine to answer, short enough to come round often.
# Where hosts are slower it may have to be longer.
ANSWER_WAIT_S = float(os.environ.get("ARP_ANSWER_WAIT_S", "0.005"))


# Addresses in whose name we ask in turn, so that an answer which comes a round late is known as such.
N_NAMES = 8


def names(own: ipaddress.IPv4Interface, ranges: list[ipaddress.IPv4Network]) -> list[bytes]:
    """Who asks, one round after the other: the uppermost addresses of our network that we do not ask for.

    In the LANs of the tests these are nobody's. They have to be of the network: Linux answers only whom it could reach. Where
    the whole network is asked for we ask in our own name; a round of so many questions takes longer than an answer is late.
    """
    found: list[bytes] = []
    for number in range(int(own.network.broadcast_address) - 1, int(own.network.network_address), -1):
        address = ipaddress.IPv4Address(number)
        if address != own.ip and not any(address in asked for asked in ranges):
            found.append(address.packed)
        if len(found) == N_NAMES:
            break
    return found or [own.ip.packed]


def question(own_mac: bytes, own_address: bytes, asked: bytes) -> bytes:
    """An ARP request, broadcast. Source: RFC 826."""
    header = b"\xff" * 6 + own_mac + struct.pack("!H", ETH_P_ARP)
    return header + struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + own_mac + own_address + b"\0" * 6 + asked


def answers(watcher: socket.socket, own_address: bytes, asked: bytes, wait_s: float) -> list[str]:
    """Who tells us within `wait_s` that it has the address, once for each answer."""
    macs = []
    until = time.monotonic() + wait_s
    while (left := until - time.monotonic()) > 0:
        if not select.select([watcher], [], [], left)[0]:
            break
        frame = watcher.recv(2048)
        operation, sender_mac, sender, target = struct.unpack("!H6s4s6x4s", frame[20:42])
        if operation == 2 and sender == asked and target == own_address:
            macs.append(sender_mac.hex(":"))
    return macs


def main(interface: str, own: str, *ranges: str) -> None:
    """Ask until standard input closes, then print what was seen."""
    watcher = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ARP))
    watcher.bind((interface, ETH_P_ARP))
    own_mac = watcher.getsockname()[4]
    networks = [ipaddress.IPv4Network(r) for r in ranges]
    askers = names(ipaddress.IPv4Interface(own), networks)
    addresses = [address.packed for network in networks for address in network]
    conflicts: list[tuple[str, str, str, float]] = []
    seen: dict[str, set[str]] = {}
    started, rounds = time.monotonic(), 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        asker = askers[rounds % len(askers)]
        for asked in addresses:
            watcher.send(question(own_mac, asker, asked))
            macs = answers(watcher, asker, asked, ANSWER_WAIT_S)
            name = str(ipaddress.ip_address(asked))
            seen.setdefault(name, set()).update(macs)
            if len(macs) > 1:
                conflicts.append((name, *sorted(macs)[:2], time.monotonic() - started))
        rounds += 1
    print(json.dumps({"rounds": rounds, "conflicts": conflicts, "seen": {a: sorted(m) for a, m in seen.items() if m}}))


if __name__ == "__main__":
    main(*sys.argv[1:])
