"""What an operator may set about self-discovery, the same for both daemons."""

from __future__ import annotations

import msgspec

# Where daemons that find each other by themselves listen (`self://`), and where Serf does (`serf://`).
SELF_PORT = 3388
SERF_PORT = 7946


class DiscoverySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How peers are looked for besides the addresses that are given and the peers that were known before."""

    # HOST or HOST:PORT of peers to begin with, as `serf://` has them.
    peers: tuple[str, ...] = ()
    # The name under which peers look for each other by mDNS, as in `serf agent -discover NAME`; "": not at all.
    mdns: str = "beeyard"
    # Whether every address of the host's own networks is asked, up to 1,022 of them.
    scan: bool = True
    # A keyring file as Serf's: what members say to each other is encrypted, and nobody without a key of it gets in.
    keyring_file: str = ""


__all__ = ["SELF_PORT", "SERF_PORT", "DiscoverySettings"]
