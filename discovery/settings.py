"""What an operator may set about self-discovery, the same for both daemons."""

from __future__ import annotations

from typing import Annotated

import msgspec

from beeyard.core.errors import InvalidSpec
from beeyard.discovery.gossip.config import Profile
from beeyard.discovery.gossip.wire.serf_codec import encode_tags
from beeyard.runtime.settings_declared import about

# Where daemons that find each other by themselves listen (`self://`), and where Serf does (`serf://`).
SELF_PORT = 3388
SERF_PORT = 7946
# Control sockets. Both daemons of one host may gossip, each as a member of its own. The manager's user owns /run/beeyard,
# so the agent, which is root, has a directory of its own.
AGENT_SOCKET = "unix:///run/beeyard-agent/gossip.sock"
MANAGER_SOCKET = "unix:///run/beeyard/gossip.sock"


class DiscoverySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How peers are looked for besides the addresses that are given and the peers that were known before."""

    # As `serf://` has them.
    peers: Annotated[tuple[str, ...], about("HOST or HOST:PORT of hosts to begin with", group="finding peers")] = ()
    # On a slow way the times of a LAN declare members dead that live; those of a WAN take longer to see that one is dead.
    profile: Annotated[Profile, about("how soon gossip takes a silent member for dead, as Serf's `-profile`")] = "lan"
    # As in `serf agent -discover NAME`.
    mdns: Annotated[str, about("the name under which hosts look for each other by mDNS; empty: not at all")] = "beeyard"
    scan: Annotated[bool, about("whether the addresses of the host's own networks are asked, up to 1,022 of each")] = (
        True
    )
    # What constraints call node.tags.dc, and queries and `beeyard members` select by.
    tags: Annotated[tuple[str, ...], about("more tags of this member, `KEY=VALUE`, 320 bytes in all")] = ()
    keyring_file: Annotated[
        str, about("keys with which gossip is encrypted, as Serf's `-keyring-file`; empty: it is not")
    ] = ""
    # False, False, then False, True on all members takes a running cluster from plain to encrypted gossip.
    verify_incoming: Annotated[bool, about("with keys: whether what is not encrypted is dropped")] = True
    verify_outgoing: Annotated[bool, about("with keys: whether this member encrypts")] = True


# Tags that the daemons set themselves.
RESERVED_TAGS = ("cluster", "role", "manager", "node")
# All tags of a member have 512 bytes. A cluster takes 60 of them, a role 13 and a node, which is known only once the host has
# joined, 31; what is left is enough for the address of a manager.
TAGS_BYTES_MAX = 320


def own_tags(settings: DiscoverySettings) -> dict[str, str]:
    """The tags that an operator gives.

    Raises:
        InvalidSpec: one is not KEY=VALUE, or is one of the daemons' own, or there are too many.
    """
    tags = {}
    for text in settings.tags:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InvalidSpec("discovery.tags", f"{text!r:.80} is not KEY=VALUE, such as dc=ams")
        if key in RESERVED_TAGS:
            raise InvalidSpec("discovery.tags", f"{text!r:.80}: {', '.join(RESERVED_TAGS)} are set by the daemons")
        tags[key] = value
    if (n_bytes := len(encode_tags(tags))) > TAGS_BYTES_MAX:
        raise InvalidSpec(
            "discovery.tags", f"they take {TAGS_BYTES_MAX} bytes at most together as they are sent, not {n_bytes}"
        )
    return tags


__all__ = ["AGENT_SOCKET", "MANAGER_SOCKET", "RESERVED_TAGS", "SELF_PORT", "SERF_PORT", "DiscoverySettings", "own_tags"]
