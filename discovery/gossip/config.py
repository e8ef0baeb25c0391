"""How a member takes part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from beeyard.discovery.gossip.message import Address
from beeyard.runtime.address import TcpAddress, parse_address

Profile = Literal["lan", "wan", "local"]


class GossipConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Times follow `profile`, which is one of Serf's."""

    name: str  # of the member; the only one of it in the cluster
    bind: str = "0.0.0.0"  # or an IPv6 address; "::" hears IPv6 alone
    port: int = 7946  # for UDP and TCP; 0: one that the kernel chooses
    advertise: str = ""  # HOST or HOST:PORT to be reached at; "": `bind`, or the address that leads to the outside
    tags: Mapping[str, str] = {}
    profile: Profile = "lan"

    # Keys of 16, 24 or 32 bytes, the first encrypts; none: nothing is encrypted. Those in `keyring_path` count instead once
    # that file exists; it is written with each change.
    keys: Sequence[bytes] = ()
    keyring_path: str = ""

    # Staged change to encryption: first keys everywhere with both off, then outgoing on everywhere, then incoming.
    verify_incoming: bool = True  # drop what is not encrypted
    verify_outgoing: bool = True  # encrypt

    snapshot_path: str = ""  # remembers members and clocks as Serf's -snapshot; "": forgets


def reached_at(config: GossipConfig, address: Address) -> GossipConfig:
    """The same for a member that is reached at this address, of whatever family."""
    bind = "::" if ":" in address.host else "0.0.0.0"
    return msgspec.structs.replace(config, bind=bind, advertise=str(address))


def host_and_port(text: str, port: int) -> tuple[str, int]:
    """The parts of HOST or HOST:PORT, an IPv6 host in brackets or without a port; `port` where none is given.

    Raises:
        InvalidSpec: it is neither.
    """
    if text.count(":") > 1 and not text.startswith("["):
        return text, port
    has_port = ":" in text and text.rpartition(":")[2].isdigit()
    given = parse_address(f"tcp://{text}" if has_port else f"tcp://{text}:{port}")
    assert isinstance(given, TcpAddress)
    return given.host, given.port


__all__ = ["GossipConfig", "Profile", "host_and_port", "reached_at"]
