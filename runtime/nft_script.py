"""What is said to nftables to lead ports of a host to tasks, as text, and its answers as data. Pure.

Theory of operation
-------------------
One table of family inet belongs to one agent. It has a map for each protocol and family, `port : address . port`; two chains
translate by them, for packets that come from outside and for those of the host itself. A script says the whole table: nft
commits it as one transaction, in which the kernel shows packets either the old table or the new one, so a table that
somebody flushed is whole again after the next change.

*Not a router.* The host forwards what was translated to and from our links, and nothing else of theirs. Interfaces whose
forwarding the agent switched on (`opened4`, `opened6`) forward nothing else either: whoever wants this host to be a router
says so in its own settings, and then they are not ours.

*Not a way in.* From a task's end of the link the host itself answers nothing but what it asked for.

Source: nft(8); the priorities are just before those of other users (dstnat is -100, filter is 0).
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Sequence

from beeyard.runtime.host_ports import Forward

PROTOCOLS = ("tcp", "udp", "sctp")
_FAMILIES = {4: ("ipv4_addr", "ip"), 6: ("ipv6_addr", "ip6")}
# A flow that is asked nothing for so long has to be asked again; conntrack forgets a silent one after 120 s.
_ASKED_S = 180


def whole_table(
    table: str, forwards: Iterable[Forward], links: str, opened4: Sequence[str], opened6: Sequence[str]
) -> str:
    """The script that makes a table what it should be, whatever it was."""
    name = f"inet {table}"
    lines = [f"add table {name}"]
    for map_name, _, kind in _maps():
        lines += [
            f"add map {name} {map_name} {{ type inet_service : {kind} . inet_service; }}",
            f"flush map {name} {map_name}",
        ]
    for set_name, members in (("opened4", opened4), ("opened6", opened6)):
        lines += [f"add set {name} {set_name} {{ type ifname; }}", f"flush set {name} {set_name}"]
        if members:
            lines.append(f"add element {name} {set_name} {{ {', '.join(f'{chr(34)}{m}{chr(34)}' for m in members)} }}")
    for chain, hook in _CHAINS:
        lines += [f"add chain {name} {chain} {hook}".rstrip(), f"flush chain {name} {chain}"]
    lines += [f"add rule {name} {rule}" for rule in _rules(links)]
    by_map: dict[str, list[str]] = {}
    for forward in sorted(forwards):
        element = f"{forward.published} : {forward.address} . {forward.target}"
        by_map.setdefault(_map_of(forward), []).append(element)
    lines += [f"add element {name} {map_name} {{ {', '.join(elements)} }}" for map_name, elements in by_map.items()]
    return "\n".join(lines) + "\n"


def no_table(table: str) -> str:
    """The script that takes a table away, there or not."""
    return f"add table inet {table}\ndelete table inet {table}\n"


def trial(table: str) -> str:
    """A script that has the kernel try everything that a table needs, and leaves nothing."""
    forwards = [
        Forward(protocol="tcp", published=1, address="169.254.192.1", target=1),
        Forward(protocol="tcp", published=1, address="fd62::1", target=1),
    ]
    return whole_table(table, forwards, "trial", ["lo"], ["lo"]) + no_table(table)


def answers(interface: str, addresses: Sequence[str]) -> str:
    """The script for a task's namespace: who asks over the interface gets its datagrams back from this address.

    A socket without an address of its own takes one by the route that leads to the client, so the answer would leave
    another way and from another address. The last to ask from an address and port is remembered, and what is sent back to
    there from the port that was asked is given the right source, by which its route is looked up anew.
    """
    lines = ["add table inet beeyard", "delete table inet beeyard", "add table inet beeyard"]
    lines.append("add chain inet beeyard asked { type filter hook prerouting priority -300; }")
    lines.append("add chain inet beeyard answered { type route hook output priority -150; }")
    for address in addresses:
        version = ipaddress.ip_address(address).version
        kind, ip = _FAMILIES[version]
        nfproto = f"ipv{version}"
        lines += [
            f"add set inet beeyard askers{version} {{ type {kind} . inet_service . inet_service; "
            f"flags dynamic,timeout; timeout {_ASKED_S}s; size 65535; }}",
            f'add rule inet beeyard asked iifname "{interface}" meta nfproto {nfproto} meta l4proto udp '
            f"update @askers{version} {{ {ip} saddr . udp sport . udp dport }}",
            f"add rule inet beeyard answered {ip} daddr . udp dport . udp sport @askers{version} {ip} saddr set {address}",
        ]
    return "\n".join(lines) + "\n"


def read_table(listing: bytes) -> list[Forward]:
    """The forwards in what `nft --json list table` printed, sorted.

    Raises:
        ValueError: it is not what nft prints.
    """
    forwards = []
    by_name = {name: protocol for name, protocol, _ in _maps()}
    try:
        for item in json.loads(listing)["nftables"]:
            protocol = by_name.get(item.get("map", {}).get("name", ""))
            for key, value in item["map"].get("elem", ()) if protocol else ():
                address, target = value["concat"]
                assert protocol is not None
                forwards.append(
                    Forward(protocol=protocol, published=int(key), address=str(address), target=int(target))
                )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"nft printed something unexpected: {listing[:200]!r}") from error
    return sorted(forwards)


def read_opened(listing: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The interfaces in the sets `opened4` and `opened6` of the same listing.

    Raises:
        ValueError: it is not what nft prints.
    """
    found: dict[str, tuple[str, ...]] = {}
    try:
        for item in json.loads(listing)["nftables"]:
            if "set" in item:
                found[item["set"]["name"]] = tuple(sorted(str(member) for member in item["set"].get("elem", ())))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"nft printed something unexpected: {listing[:200]!r}") from error
    return found.get("opened4", ()), found.get("opened6", ())


def read_rules(listing: bytes) -> tuple[str, ...]:
    """The chains and rules that a script of ours makes, in the same listing: in a form that is equal when they are.

    Raises:
        ValueError: it is not what nft prints.
    """
    names = [chain for chain, _ in _CHAINS]
    found = []
    try:
        for item in json.loads(listing)["nftables"]:
            for kind, place in (("chain", "name"), ("rule", "chain")):
                if kind in item and item[kind][place] in names:
                    found.append(json.dumps({**item[kind], "handle": 0}, sort_keys=True))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"nft printed something unexpected: {listing[:200]!r}") from error
    return tuple(found)


_CHAINS = (
    ("published", ""),
    ("prerouting", "{ type nat hook prerouting priority -105; }"),
    ("output", "{ type nat hook output priority -105; }"),
    ("forward", "{ type filter hook forward priority -5; }"),
    ("input", "{ type filter hook input priority -5; }"),
)


def _maps() -> list[tuple[str, str, str]]:
    """(name, protocol, type of its addresses) of each map."""
    return [
        (f"{protocol}{version}", protocol, kind) for protocol in PROTOCOLS for version, (kind, _) in _FAMILIES.items()
    ]


def _map_of(forward: Forward) -> str:
    return f"{forward.protocol}{ipaddress.ip_address(forward.address).version}"


def _rules(links: str) -> list[str]:
    ours_in, ours_out = f'iifname "{links}*"', f'oifname "{links}*"'
    translate = [
        f"published meta nfproto ipv{version} meta l4proto {protocol} dnat {ip} to {protocol} dport map @{protocol}{version}"
        for protocol in PROTOCOLS
        for version, (_, ip) in _FAMILIES.items()
    ]
    return [
        # An address of the host's own; its loopback's would need answers from there, which no link brings.
        "published fib daddr type != local return",
        "published ip daddr 127.0.0.0/8 return",
        "published ip6 daddr ::1 return",
        *translate,
        "prerouting jump published",
        "output jump published",
        f"forward {ours_out} ct status dnat accept",
        f"forward {ours_in} ct status dnat accept",
        f"forward {ours_out} drop",
        f"forward {ours_in} drop",
        "forward meta nfproto ipv4 iifname @opened4 drop",
        "forward meta nfproto ipv6 iifname @opened6 drop",
        f"input {ours_in} ct status dnat accept",
        f"input {ours_in} drop",
    ]


__all__ = ["PROTOCOLS", "answers", "no_table", "read_opened", "read_rules", "read_table", "trial", "whole_table"]
