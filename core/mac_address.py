"""Which MAC address a task's link has: it follows from the IP address, so no book of MAC addresses is needed.

An address that is given to another task keeps its MAC address: neighbours that still remember it are right. Within a
segment no IP address is held twice, so no MAC address is either. All are locally administered and unicast.

* IPv4: 02, one byte of the segment's name, the four bytes of the address.
* IPv6: 06, then the last five bytes of the address, mixed with a hash of the segment's name and of the bytes before them.
  Different addresses of one /88 always differ; of different ones, with odds of 2^40 to 1.
"""

from __future__ import annotations

import hashlib
import ipaddress

_IPV4, _IPV6, _NAMED = 0x02, 0x06, 0x0A
_LOW_BYTES = 5


def mac_address(segment: str, address: str) -> str:
    """The MAC address that goes with an IP address, as "02:3f:0a:4d:00:40".

    Args:
        segment: the address is unique in it.
        address: with or without prefix length.
    """
    ip = ipaddress.ip_interface(address).ip
    if ip.version == 4:
        return bytes([_IPV4, *_hash(segment.encode(), 1), *ip.packed]).hex(":")
    high, low = ip.packed[:-_LOW_BYTES], ip.packed[-_LOW_BYTES:]
    mask = _hash(high + segment.encode(), _LOW_BYTES)
    return bytes([_IPV6, *(a ^ b for a, b in zip(low, mask, strict=True))]).hex(":")


def mac_address_of(name: str) -> str:
    """A MAC address that is known before the IP address, for IPAM plugins that want it: 0a, then a hash of a grant's id.

    Different ids have different ones with odds of 2^40 to 1.
    """
    return bytes([_NAMED, *_hash(name.encode(), _LOW_BYTES)]).hex(":")


def _hash(data: bytes, n_bytes: int) -> bytes:
    return hashlib.blake2b(data, digest_size=n_bytes).digest()


__all__ = ["mac_address", "mac_address_of"]
