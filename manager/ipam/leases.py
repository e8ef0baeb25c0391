"""Which lease has which address of which pool, and what is written when that changes.

The store has all leases; this adds what has to be known at the very moment at which a plugin answers: whether another lease
has the address. `owners` is ahead of the store by what is being written.
"""

from __future__ import annotations

from functools import partial

import msgspec
import structlog

from beeyard.core.ipam import AddressLease, LeaseState, PoolLease
from beeyard.manager.store import Store, Transaction

Key = tuple[str, str]  # (pool id, address without prefix length)

log = structlog.get_logger(__name__)


class Leases:
    """The leases of all plugins."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._owners: dict[Key, str] = {}
        # By lease: the address that is being sent back. The plugin may hand it out again before it says that it took note.
        self.going_back: dict[str, str] = {}
        # Whose addresses the plugin, told of them again, did not say that they have: it may give them to others.
        self._doubted: dict[Key, str] = {}
        for lease in store.address_leases.values():
            for address in lease.addresses:
                self._owners[_key(lease.pool_id, address)] = lease.id

    def get(self, lease_id: str) -> AddressLease | None:
        """A stored lease."""
        return self._store.address_leases.get(lease_id)

    def pool(self, pool_id: str) -> PoolLease | None:
        """What is known of a pool at its plugin; None when there is none that could be used."""
        pool = self._store.pool_leases.get(pool_id)
        return pool if pool is not None and all(part.pool_id for part in pool.parts) else None

    def part_id(self, pool_id: str, i: int) -> str:
        """What the plugin calls one part of a pool now."""
        return self._store.pool_leases[pool_id].parts[i].pool_id

    def of_pool(self, pool_id: str) -> list[tuple[AddressLease, str]]:
        """All that is out of a pool: who has which address, without prefix length."""
        owned = [(self.get(lease_id), ip) for (of, ip), lease_id in self._owners.items() if of == pool_id]
        return [(lease, ip) for lease, ip in owned if lease is not None]

    def has(self, lease: AddressLease, ip: str) -> bool:
        """Whether an address is still a lease's; on its way back it is, until the plugin has taken note."""
        return self._owners.get((lease.pool_id, ip)) == lease.id

    def note_told(self, lease: AddressLease, ip: str, *, is_confirmed: bool) -> None:
        """The plugin was told again that a lease has an address, and said that this is so, or something else."""
        if is_confirmed:
            self._doubted.pop((lease.pool_id, ip), None)
        else:
            self._doubted[lease.pool_id, ip] = lease.id

    def is_doubted(self, lease: AddressLease, ip: str) -> bool:
        """Whether the plugin may give a lease's address to another one, for all that it said when it was told again."""
        return self._doubted.get((lease.pool_id, ip)) == lease.id

    async def begin(self, lease: AddressLease) -> None:
        """Store the intent. Raises DiskError."""
        await self._store.commit(lambda tx: tx.create(lease))

    def take(self, lease: AddressLease, address: str) -> str:
        """Note that the plugin gave a lease an address; the id of the lease, or pool, that has it and keeps it, if any.

        An address on its way back that comes again has arrived there: `keep` takes it from its former lease.
        """
        key = _key(lease.pool_id, address)
        owner = self._owners.get(key)
        if owner is not None and owner != lease.id and self.going_back.get(owner) != key[1]:
            return owner
        pool = self._store.pool_leases.get(lease.pool_id)
        if pool is not None and any(key[1] in part.taken for part in pool.parts):
            return pool.id  # its gateway: giving it back would take it from the pool
        self._owners[key] = lease.id
        return ""

    async def keep(self, lease: AddressLease, state: LeaseState, addresses: tuple[str, ...]) -> None:
        """Store what a lease has, whatever it takes."""
        mine = [_ip(address) for address in addresses]
        over = [
            (lease_id, ip) for lease_id, ip in self.going_back.items() if ip in mine and self._is_of(lease_id, lease)
        ]
        for lease_id, _ in over:
            del self.going_back[lease_id]
        for ip in mine:
            if self._doubted.get((lease.pool_id, ip), lease.id) != lease.id:
                del self._doubted[lease.pool_id, ip]
        await self._store.commit_patiently(
            partial(_keep, msgspec.structs.replace(lease, state=state, addresses=addresses), over)
        )

    async def gave_back(self, lease: AddressLease, address: str) -> None:
        """The plugin has taken this address back, or somebody else has it from there by now."""
        ip = _ip(address)
        if self._owners.get((lease.pool_id, ip)) == lease.id:
            del self._owners[lease.pool_id, ip]
        if self.is_doubted(lease, ip):
            del self._doubted[lease.pool_id, ip]
        self.going_back.pop(lease.id, None)
        await self._store.commit_patiently(lambda tx: _drop(tx, lease.id, ip))

    async def forget(self, lease: AddressLease) -> None:
        """The plugin has nothing of this lease any more."""
        for address in lease.addresses:
            if self._owners.get(_key(lease.pool_id, address)) == lease.id:
                del self._owners[_key(lease.pool_id, address)]
            if self.is_doubted(lease, _ip(address)):
                del self._doubted[_key(lease.pool_id, address)]
        self.going_back.pop(lease.id, None)
        await self._store.commit_patiently(lambda tx: _forget(tx, lease.id))

    def _is_of(self, lease_id: str, other: AddressLease) -> bool:
        lease = self.get(lease_id)
        return lease is not None and lease.pool_id == other.pool_id and lease.id != other.id

    def orphans(self) -> list[AddressLease]:
        """Leases that no task uses: what a crash has left. Right only while nothing is under way."""
        used = {
            grant.id
            for task in self._store.tasks.values()
            if not task.status.state.is_terminal
            for grant in task.grants
        }
        return [lease for lease in self._store.address_leases.values() if lease.id not in used]


def _keep(lease: AddressLease, over: list[tuple[str, str]], tx: Transaction) -> None:
    for lease_id, ip in over:
        _drop(tx, lease_id, ip)
    tx.update(lease)


def _drop(tx: Transaction, lease_id: str, ip: str) -> None:
    """Take an address out of a lease; one that has nothing left is over."""
    lease = tx.get(AddressLease, lease_id)
    if lease is None:
        return
    left = tuple(address for address in lease.addresses if _ip(address) != ip)
    if left:
        tx.update(msgspec.structs.replace(lease, addresses=left))
    else:
        tx.delete(AddressLease, lease_id)


def _forget(tx: Transaction, lease_id: str) -> None:
    if tx.get(AddressLease, lease_id) is not None:
        tx.delete(AddressLease, lease_id)


def _key(pool_id: str, address: str) -> Key:
    return pool_id, _ip(address)


def _ip(address: str) -> str:
    return address.partition("/")[0]


__all__ = ["Leases"]
