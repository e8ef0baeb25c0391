"""Every error that Beeyard raises on purpose, sorted by who has to act.

    ClusterError
    ├── RequestError             the caller must change the request               → HTTP 4xx/501
    │   ├── InvalidSpec     400  .field, .reason
    │   ├── NotFound        404  .kind, .id
    │   ├── Ambiguous       400  .kind, .id, .n_matches
    │   ├── FailedPrecondition 400 .reason: right in itself, but not as the cluster is now
    │   ├── Forbidden       403  .reason
    │   ├── Conflict        409
    │   │   ├── NameConflict     .kind, .name
    │   │   └── OutOfSequence    .kind, .id, .version_seen, .version_now
    │   └── Unsupported     501  .feature, .instead: a Docker feature that Beeyard does not have
    ├── AllocationError          nothing wrong with the request, not now          → the task waits and says why
    │   ├── PoolExhausted        .pool, .family
    │   ├── AddressUnavailable   .address, .use
    │   ├── PortsExhausted       .protocol, .first, .last
    │   └── HookRefused          .hook, .scope ("node" | "everywhere"), .reason, .until
    │       └── PluginRefused    .plugin
    ├── HostError                this machine failed us
    │   ├── NetlinkError         .errno, .operation, .interface, .advice
    │   ├── ExecutorError        .phase, .reason, .exit_code
    │   ├── AddressTaken         .conflicts: what machines outside the cluster answer for
    │   ├── NodeHookError        .hook, .reason
    │   ├── FirewallError        .operation, .reason
    │   ├── PortTaken            .protocol, .port, .by
    │   └── DiskError            .operation, .path, .reason, .fatal
    ├── PeerError                the other side of a connection
    │   ├── LocalProtocolError   we were about to break the protocol (our bug)
    │   ├── RemoteProtocolError  they broke it
    │   ├── NoSuchSocket         there is no such unix socket at all
    │   ├── PortClosed           their host says that nothing listens there
    │   └── PeerRefused          they said no, with a reason
    └── NotLeader                .leader: ask there

Each class says in `retry` what a caller may do: "no", "later" or "elsewhere". The sentence is built once, in `__str__`,
lower case and without a full stop. Programmer errors are assertions and no part of this tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from beeyard.core.model import AddressConflict

Retry = Literal["no", "later", "elsewhere"]


class ClusterError(Exception):
    """Root of all errors raised on purpose. Subclasses carry fields; `str()` gives the sentence for a person."""

    retry: ClassVar[Retry] = "no"


class RequestError(ClusterError):
    """The caller must change the request. `http_status` is what the API answers with."""

    http_status: ClassVar[int] = 400


class InvalidSpec(RequestError):
    """A field of a request has a value that cannot work; `reason` says what would be right."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field = field
        self.reason = reason

    def __str__(self) -> str:
        return f"invalid {self.field}: {self.reason}"


class NotFound(RequestError):
    """No object of this kind has this id or name."""

    http_status: ClassVar[int] = 404

    def __init__(self, kind: str, object_id: str) -> None:
        super().__init__(kind, object_id)
        self.kind = kind
        self.id = object_id

    def __str__(self) -> str:
        return f"{self.kind} {self.id} not found"


class Ambiguous(RequestError):
    """Several objects of this kind have this name or id prefix: the caller must give an id."""

    def __init__(self, kind: str, object_id: str, n_matches: int) -> None:
        super().__init__(kind, object_id, n_matches)
        self.kind = kind
        self.id = object_id
        self.n_matches = n_matches

    def __str__(self) -> str:
        return f"{self.kind} {self.id} is ambiguous ({self.n_matches} matches found)"


class FailedPrecondition(RequestError):
    """Nothing is wrong with the request itself, but something in the cluster has to change first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class Forbidden(RequestError):
    """The request is understood and never allowed."""

    http_status: ClassVar[int] = 403

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class Conflict(RequestError):
    """The request contradicts what is stored now."""

    http_status: ClassVar[int] = 409


class NameConflict(Conflict):
    """The name is taken by another object of the same kind."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(kind, name)
        self.kind = kind
        self.name = name

    def __str__(self) -> str:
        return f"{self.kind} with name {self.name} already exists"


class OutOfSequence(Conflict):
    """The object changed since the caller read it: read again, then repeat the change."""

    retry: ClassVar[Retry] = "later"

    def __init__(self, kind: str, object_id: str, version_seen: int, version_now: int) -> None:
        super().__init__(kind, object_id, version_seen, version_now)
        self.kind = kind
        self.id = object_id
        self.version_seen = version_seen
        self.version_now = version_now

    def __str__(self) -> str:
        seen = f"version {self.version_seen} was given, {self.version_now} is stored"
        return f"{self.kind} {self.id}: {seen}: update out of sequence"


class Unsupported(RequestError):
    """A Docker feature that Beeyard does not have; `instead` names what to use, when there is something."""

    http_status: ClassVar[int] = 501

    def __init__(self, feature: str, instead: str = "") -> None:
        super().__init__(feature, instead)
        self.feature = feature
        self.instead = instead

    def __str__(self) -> str:
        # "docker secrets are", but "--dns-options is".
        verb = "are" if self.feature.startswith("docker ") and self.feature.endswith("s") else "is"
        sentence = f"{self.feature} {verb} not supported by beeyard"
        return f"{sentence}: {self.instead}" if self.instead else sentence


class AllocationError(ClusterError):
    """Nothing is wrong with the request, but it cannot be served now: the task waits and says why."""

    retry: ClassVar[Retry] = "later"


class PoolExhausted(AllocationError):
    """No address is free in a pool; cooling addresses count as taken."""

    def __init__(self, pool: str, family: int) -> None:
        super().__init__(pool, family)
        self.pool = pool
        self.family = family

    def __str__(self) -> str:
        return f"no address left in pool {self.pool}"


class AddressUnavailable(AllocationError):
    """An address that a task must have, and no other, cannot be given; `use`: what it is to others."""

    def __init__(self, address: str, use: str) -> None:
        super().__init__(address, use)
        self.address = address
        self.use = use

    def __str__(self) -> str:
        return f"address {self.address}, which {self.use}, cannot be given"


class PortsExhausted(AllocationError):
    """No port of the range is free on a node."""

    def __init__(self, protocol: str, first: int, last: int) -> None:
        super().__init__(protocol, first, last)
        self.protocol = protocol
        self.first = first
        self.last = last

    def __str__(self) -> str:
        return f"no {self.protocol} port from {self.first} to {self.last} is free on this node"


class HookRefused(AllocationError):
    """An allocation hook said no, for this node ("node") or for the subject wherever it goes ("everywhere").

    `until` names what may end the wait before its time, such as "plugin racks": see `Lifecycle.retry`; "": nothing does.
    """

    def __init__(self, hook: str, scope: Literal["node", "everywhere"], reason: str, *, until: str = "") -> None:
        super().__init__(hook, scope, reason)
        self.hook = hook
        self.scope = scope
        self.reason = reason
        self.until = until

    def __str__(self) -> str:
        return f"{self.hook}: {self.reason}"


class PluginRefused(HookRefused):
    """An IPAM plugin gave a task no address, or one that it cannot have."""

    def __init__(self, plugin: str, scope: Literal["node", "everywhere"], reason: str, *, until: str = "") -> None:
        super().__init__("ipam", scope, reason, until=until)
        self.plugin = plugin

    def __str__(self) -> str:
        return f"IPAM plugin {self.plugin}: {self.reason}"


class HostError(ClusterError):
    """The machine this daemon runs on failed it."""


class NetlinkError(HostError):
    """The kernel refused a network operation; `advice` says what to do about it."""

    def __init__(self, errno: int, operation: str, interface: str, advice: str) -> None:
        super().__init__(errno, operation, interface, advice)
        self.errno = errno
        self.operation = operation
        self.interface = interface
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.operation} {self.interface}: {self.advice}"


class ExecutorError(HostError):
    """A task could not be prepared, started or stopped."""

    def __init__(self, phase: str, reason: str, exit_code: int | None = None) -> None:
        super().__init__(phase, reason, exit_code)
        self.phase = phase
        self.reason = reason
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.phase}: {self.reason}"


class NodeHookError(HostError):
    """A hook of this node refused a task, failed, or is not what the operator allows; `reason` continues its name."""

    def __init__(self, hook: str, reason: str) -> None:
        super().__init__(hook, reason)
        self.hook = hook
        self.reason = reason

    def __str__(self) -> str:
        return f"node hook {self.hook} {self.reason}"


class AddressTaken(HostError):
    """Machines outside the cluster have addresses that a task was given. `conflicts` goes into the task's status."""

    retry: ClassVar[Retry] = "elsewhere"

    def __init__(self, taken: Sequence[tuple[AddressConflict, str]]) -> None:
        """`taken`: each with the parent interface on whose LAN it was found."""
        super().__init__(taken)
        self.taken = tuple(taken)

    @property
    def conflicts(self) -> tuple[AddressConflict, ...]:
        """What was found, without the interfaces."""
        return tuple(conflict for conflict, _ in self.taken)

    def __str__(self) -> str:
        found = [f"address {c.address} is in use on {parent} by {c.mac}" for c, parent in self.taken]
        return f"{', '.join(found)}: {'it is' if len(found) == 1 else 'they are'} put aside"


class FirewallError(HostError):
    """nftables did not do what was asked; `reason` says what to do about it."""

    def __init__(self, operation: str, reason: str) -> None:
        super().__init__(operation, reason)
        self.operation = operation
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.operation}: {self.reason}"


class PortTaken(HostError):
    """A port of this node that a task was given belongs to something else."""

    def __init__(self, protocol: str, port: int, by: str) -> None:
        super().__init__(protocol, port, by)
        self.protocol = protocol
        self.port = port
        self.by = by

    def __str__(self) -> str:
        return f"port {self.port}/{self.protocol} of this node is in use by {self.by}"


class DiskError(HostError):
    """A file or the database could not be read or written; `fatal`: only a new start of the daemon tells what is on disk."""

    retry: ClassVar[Retry] = "later"

    def __init__(self, operation: str, path: str, reason: str, *, fatal: bool = False) -> None:
        super().__init__(operation, path, reason)
        self.operation = operation
        self.path = path
        self.reason = reason
        self.fatal = fatal

    def __str__(self) -> str:
        return f"cannot {self.operation} {self.path}: {self.reason}"


class PeerError(ClusterError):
    """Something about the other side of a connection. `pause_s`: the least time before trying again, when it said one."""

    retry: ClassVar[Retry] = "later"

    def __init__(self, reason: str, pause_s: float = 0.0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.pause_s = pause_s

    def __str__(self) -> str:
        return self.reason


class LocalProtocolError(PeerError):
    """We were about to break the protocol: a bug of ours."""


class RemoteProtocolError(PeerError):
    """The other side broke the protocol: garbage, an oversized frame, a message out of turn."""


class NoSuchSocket(PeerError):
    """There is no unix socket at the path: nothing that could be asked to come back."""


class PortClosed(PeerError):
    """The other host refused the connection: nothing listens there."""


class PeerRefused(PeerError):
    """The other side understood and said no, for example to a join token."""

    retry: ClassVar[Retry] = "no"


class NotLeader(ClusterError):
    """This manager does not lead; `leader` is the address of the one that does, or empty."""

    retry: ClassVar[Retry] = "elsewhere"

    def __init__(self, leader: str) -> None:
        super().__init__(leader)
        self.leader = leader

    def __str__(self) -> str:
        return f"this manager is not the leader; ask {self.leader}" if self.leader else "the cluster has no leader"
