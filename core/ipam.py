"""What the manager has asked Docker remote IPAM plugins for, as it is stored: written before the plugin hears of it.

Theory of operation
-------------------
A plugin keeps books of its own, and nothing makes its books and ours change together. So each thing that it may give has a
record here that is durable before the plugin is asked, and is deleted only when the plugin has acknowledged that it got the
thing back (or has answered that it never gave it). Whatever crashes in between, there is a record of it.

* `PoolLease`: one network's pools at a plugin, one part for each family; its id is the network's. It outlives its network
  until the plugin has taken all addresses and the pools back.
* `AddressLease`: the addresses of one grant; its id is the grant's. ASKING: the plugin may have given something that nobody
  knows. HELD: it gave these addresses. Whether a task uses them is not written here: that the stored task has the grant says
  so, and a lease without such a task is to be given back. So there is no state "releasing" that a crash could lose.
"""

from __future__ import annotations

import enum

import msgspec


class LeaseState(enum.StrEnum):
    """How much is known of what a plugin has given."""

    ASKING = "asking"  # asked for or about to be: it may have given something
    HELD = "held"  # it gave what is written


class PoolPart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One subnet of a network as its plugin knows it; the first five are what it is asked for, also when that is repeated."""

    subnet: str = ""  # "": the plugin chooses
    ip_range: str = ""
    v6: bool = False
    gateway: str = ""  # asked for when given, or when the plugin chooses the subnet
    reserved: tuple[str, ...] = ()  # addresses that are asked for by name, so that the plugin gives them to nobody
    pool_id: str = ""  # the plugin's name for it; "": not obtained yet
    given: str = ""  # the subnet that the plugin gave
    # Addresses, without prefix length, that were obtained for the pool itself: its gateway and reserved ones.
    taken: tuple[str, ...] = ()


class PoolLease(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="pool_lease"):
    """What a network has at its IPAM plugin. Written by `manager.ipam` alone."""

    id: str  # of the network, which may not exist yet, or no more
    version: int = 0
    created_at_s: float = 0.0
    updated_at_s: float = 0.0
    plugin: str
    network_name: str
    options: dict[str, str] = {}
    state: LeaseState = LeaseState.ASKING
    parts: tuple[PoolPart, ...] = ()


class AddressLease(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="address_lease"):
    """What one grant has at an IPAM plugin. Written by `manager.ipam` alone."""

    id: str  # of the grant
    version: int = 0
    created_at_s: float = 0.0
    updated_at_s: float = 0.0
    plugin: str
    pool_id: str  # of the `PoolLease`
    network_id: str
    node_id: str
    task_id: str
    state: LeaseState = LeaseState.ASKING
    options: dict[str, str] = {}  # what the plugin was told, to repeat the question word by word
    addresses: tuple[str, ...] = ()  # with prefix length; one for each part of the pool, in its order


__all__ = ["AddressLease", "LeaseState", "PoolLease", "PoolPart"]
