"""Noticing that a host no longer has the address by which others know it: a lease that ended, a network that changed."""

from __future__ import annotations

import trio

from beeyard.discovery.peers.own_addresses import configured_addresses
from beeyard.runtime.host import Host

# A lease that is renewed may be without an address for seconds.
CHECK_S = 10.0
TIMES_GONE = 3


async def is_gone(host: Host, address: str) -> None:
    """Return once the host was found without this address so many times in a row, and with others.

    An address on a link without a carrier counts as there: the cable comes back, and others know no better way until then.
    """
    n_times = 0
    while n_times < TIMES_GONE:
        await trio.sleep(CHECK_S)
        found = await configured_addresses(host)
        n_times = n_times + 1 if found and address not in found else 0


__all__ = ["CHECK_S", "TIMES_GONE", "is_gone"]
