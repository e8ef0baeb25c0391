"""Taking addresses back that were put aside because a machine outside the cluster had them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from beeyard.core.model import Network
from beeyard.manager.store import Store, Transaction


async def release_addresses(store: Store, found: Mapping[str, Sequence[str]], keep_s: float) -> None:
    """Store that addresses of some pools may be given again.

    Args:
        found: by pool id, the addresses (without prefix length).
        keep_s: how long that has to be remembered: nothing that was found before is put aside any more then.

    Raises:
        NotFound: a pool is gone.
        DiskError
    """

    def build(tx: Transaction) -> None:
        for pool_id, addresses in found.items():
            pool = tx.find(Network, pool_id)
            known = {address: at_s for address, at_s in pool.taken_back.items() if at_s > tx.now_s - keep_s}
            known.update(dict.fromkeys(addresses, tx.now_s))
            tx.update(msgspec.structs.replace(pool, taken_back=known))

    await store.commit(build)


__all__ = ["release_addresses"]
