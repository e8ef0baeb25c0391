"""The bodies of Docker's IPAM plugin protocol, word for word.

Source: moby v28.2.2, libnetwork/ipams/remote/api. Requests have these keys and no others: plugins built on
`docker-plugin-api` fail on an extra one. Answers may have more, which are ignored.
"""

from __future__ import annotations

import msgspec

REQUEST_ADDRESS_TYPE = "RequestAddressType"
GATEWAY = "com.docker.network.gateway"  # as an address type, and in the data of a pool
MAC_ADDRESS = "com.docker.network.endpoint.macaddress"

# What plugins are told of the task that an address is for: see docs/operating.md. Labels of the node follow `OPTION_LABELS`.
OPTION_LEASE = "beeyard.lease.id"
OPTION_NODE_ID = "beeyard.node.id"
OPTION_HOSTNAME = "beeyard.node.hostname"
OPTION_LABELS = "beeyard.node.labels."
OPTION_NETWORK = "beeyard.network.name"
OPTION_TASK = "beeyard.task.id"
OPTION_SERVICE = "beeyard.service.name"
OPTION_SLOT = "beeyard.slot"


class RequestPool(msgspec.Struct, frozen=True, kw_only=True):
    AddressSpace: str
    Pool: str
    SubPool: str
    Options: dict[str, str] | None
    V6: bool


class ReleasePool(msgspec.Struct, frozen=True, kw_only=True):
    PoolID: str


class RequestAddress(msgspec.Struct, frozen=True, kw_only=True):
    PoolID: str
    Address: str
    Options: dict[str, str] | None


class ReleaseAddress(msgspec.Struct, frozen=True, kw_only=True):
    PoolID: str
    Address: str


class Activated(msgspec.Struct, frozen=True):
    Implements: list[str] | None = None


class Capabilities(msgspec.Struct, frozen=True):
    RequiresMACAddress: bool = False
    RequiresRequestReplay: bool = False


class AddressSpaces(msgspec.Struct, frozen=True):
    GlobalDefaultAddressSpace: str = ""


class Pool(msgspec.Struct, frozen=True):
    PoolID: str = ""
    Pool: str = ""
    # A plugin may put anything here; only the gateway is looked for.
    Data: dict[str, object] | None = None


class Address(msgspec.Struct, frozen=True):
    Address: str = ""


class Error(msgspec.Struct, frozen=True):
    """How an answer with status 200 says no: IPAM plugins say `Error`, others `Err`, and some mix them up."""

    Error: str = ""
    Err: str = ""


class Done(msgspec.Struct, frozen=True):
    """An answer of which only the absence of an error is looked at."""
