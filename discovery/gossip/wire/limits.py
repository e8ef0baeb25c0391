"""What one message may cost, chosen so that none holds up the loop that also answers pings for more than some 50 ms.

memberlist's own limits are 20 MiB a frame, 40 MiB decompressed, 1 Mi nodes and 20 MiB of user state (0.3 and newer; 0.2.2
has none). A member with 10,000 others says some 1.5 MB in a push/pull.
"""

from __future__ import annotations

import msgspec


class StreamLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a peer may send on a stream."""

    frame_bytes_max: int = 4 << 20  # encrypted or compressed
    plain_bytes_max: int = 4 << 20  # decompressed, or sent plainly
    nodes_max: int = 10_000
    user_bytes_max: int = 2 << 20  # of a user message, and of the user state in a push/pull


DEFAULT_LIMITS = StreamLimits()

META_BYTES_MAX = 512  # Source: MetaMaxSize in memberlist's net.go

# Members that cannot be read are left out of a push/pull, so that one of them does not hide all others; a peer that sends
# more of them than could come about by mistake sends garbage.
REFUSED_MAX = 64
