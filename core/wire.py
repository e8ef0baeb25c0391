"""Every message between manager and agent, one tagged and versioned Struct each.

Framing: a u32 big-endian length, then that many bytes of msgpack (see `runtime.frames`). Each message is an array whose
first element is its tag; the number after the slash is raised when its meaning changes, and fields are only ever appended
with a default, so old and new peers understand each other.

Theory of operation
-------------------
*Joining* needs no certificate. The agent connects without checking the manager, asks for the CA (`CaRequest`), compares
its digest with the one in the join token, hangs up, connects again trusting that CA alone, and sends `JoinRequest`.

A *session* needs a certificate of the cluster's CA whose OU is a role and whose CN is the node id. The agent opens with
`Hello`; the manager answers `Welcome`, then one complete `Assignments`, then incremental ones. Each set names the set it
applies to; an agent that sees a gap sends `Resync` and gets a complete one. A node has one session: a newer one ends it.

A set of any size goes in *parts*: frames of about 1 MiB, all with the same three numbers and all but the last with `more`.
Other messages may come between them, parts of another set may not. The agent collects them and applies the set as one when
the last has come, so it never believes that a task is gone which is only named further on; a connection that breaks before
that leaves the agent with the set it had. What a single task needs must fit one frame; one that does not is never sent.

*Routes* lead a host to tasks on other hosts whose addresses nobody on the LAN answers for (ipvlan in its routed modes). They
are told beside the tasks, whole before the first set of a session and then as changes; a session in which none came before
that set has none, and the host keeps none. They too may go in parts.

*Statuses* go up in `StatusReport`s with rising numbers; the manager answers `StatusAck` once they are durable, and until
then the agent keeps them. *Heartbeats* are one-way. A *lease* is how long a shim keeps a link up without word from the
manager: `LeaseRenewed` names the heartbeat that the manager has counted from, and the agent counts from the moment it
*sent* that heartbeat, so that its end of the lease is never later than the manager's, whatever the network did. A *probe*
asks for one more heartbeat than is due; an agent whose `Hello` does not say that it answers them gets none.
"""

from __future__ import annotations

import msgspec

from beeyard.core.grant import AnyGrant
from beeyard.core.model import NodeDescription, TaskSpec, TaskStatus
from beeyard.core.states import TaskState

PROTOCOL_VERSION = 1
# 16 MiB: sets of assignments go in parts of 1 MiB and one task is at most half of it; anything near this is an attack.
FRAME_BYTES_MAX = 16 << 20


class _Message(msgspec.Struct, frozen=True, kw_only=True, gc=False, array_like=True):
    """Base of all messages: an array on the wire."""


class CaRequest(_Message, frozen=True, kw_only=True, gc=False, array_like=True, tag="ca_request/1"):
    """Agent → manager, on a connection without a certificate: which CA is this?"""


class CaReply(_Message, frozen=True, kw_only=True, gc=False, array_like=True, tag="ca_reply/1"):
    """Manager → agent: the CA's certificate, to be checked against the token's digest."""

    ca_certificate_pem: bytes


class JoinRequest(_Message, frozen=True, kw_only=True, gc=False, array_like=True, tag="join_request/1"):
    """Agent → manager, without a certificate: let me in."""

    token: str
    csr_pem: bytes
    hostname: str
    node_id: str = ""  # one that this host had before in the same cluster, to be kept when it is still free


class RenewRequest(_Message, frozen=True, kw_only=True, gc=False, array_like=True, tag="renew_request/1"):
    """Agent → manager, in a session: a fresh certificate for the same node."""

    csr_pem: bytes


class IdentityReply(_Message, frozen=True, kw_only=True, gc=False, array_like=True, tag="identity_reply/1"):
    """Manager → agent: the answer to JoinRequest and RenewRequest."""

    node_id: str
    certificate_pem: bytes
    ca_certificate_pem: bytes


class Refused(_Message, frozen=True, kw_only=True, gc=False, array_like=True, tag="refused/1"):
    """Manager → agent, before it hangs up: why. `retry`: whether trying again as it is can help."""

    reason: str
    retry: bool = False
    # In a session: this node is no member any more. The agent stops all its tasks, links first, and forgets who it was.
    removed: bool = False
    # With `retry`: not before so long. For what only a person can change, such as the release of either side.
    pause_s: float = 0.0


class Hello(_Message, frozen=True, kw_only=True, gc=False, array_like=True, tag="hello/1"):
    """Agent → manager: opens a session."""

    protocol_version: int
    description: NodeDescription
    answers_probes: bool = False  # it knows `Probe`


class Welcome(_Message, frozen=True, kw_only=True, gc=False, array_like=True, tag="welcome/1"):
    """Manager → agent: the session is open."""

    session_id: str
    node_id: str
    heartbeat_s: float
    manager_addresses: tuple[str, ...] = ()  # to try when this one is gone


class Heartbeat(_Message, frozen=True, kw_only=True, gc=False, array_like=True, tag="heartbeat/1"):
    """Agent → manager, one-way: still here. `number` rises by one within a session."""

    number: int


class Probe(_Message, frozen=True, kw_only=True, gc=False, array_like=True, tag="probe/1"):
    """Manager → agent that answers them: send a heartbeat at once. Others have tried to reach this node in vain."""


class LeaseRenewed(_Message, frozen=True, kw_only=True, gc=False, array_like=True, tag="lease_renewed/1"):
    """Manager → agent: leases count anew from the moment you sent this heartbeat."""

    heartbeat_number: int


class AssignedTask(msgspec.Struct, frozen=True, kw_only=True, gc=False, array_like=True):
    """All that an agent needs to know of one task."""

    id: str
    service_id: str
    service_name: str
    slot: int
    spec: TaskSpec
    desired_state: TaskState
    grants: tuple[AnyGrant, ...] = ()
    # State as the manager last stored it: an agent that lost its disk learns here what it must not start again.
    state: TaskState = TaskState.ASSIGNED
    # Seconds for which the shim keeps the task's links up without word from the manager; see `fence`.
    lease_s: float = 86400.0
    # Whether the shim also stops the task when the lease lapses (label beeyard.on-isolation=fence).
    fence: bool = False
    service_labels: dict[str, str] = {}


class Assignments(_Message, frozen=True, kw_only=True, gc=False, array_like=True, tag="assignments/2"):
    """Manager → agent: what this node must run. A complete set removes every task that it does not name."""

    complete: bool
    applies_to: int  # number of the set that this one changes; 0 for a complete set
    results_in: int
    tasks: tuple[AssignedTask, ...] = ()
    removed: tuple[str, ...] = ()  # task ids
    more: bool = False  # this is a part of the set, and not the last


class HostRoute(msgspec.Struct, frozen=True, kw_only=True, gc=False, array_like=True):
    """The way to one task of another host."""

    destination: str  # "10.8.0.5/32"
    via: str  # the other host's own address; "" when it has none that could be used
    parent: str  # the interface of this host to leave through, as the network has it: "eth0" or "eth0.10"
    node: str = ""  # the other host's name, for a person


class Routes(_Message, frozen=True, kw_only=True, gc=False, array_like=True, tag="routes/1"):
    """Manager → agent: routes that this host must have. A complete set takes away every other one."""

    complete: bool
    routes: tuple[HostRoute, ...] = ()  # one of a destination that is known already replaces it
    removed: tuple[str, ...] = ()  # destinations
    more: bool = False  # this is a part of the set, and not the last


class Resync(_Message, frozen=True, kw_only=True, gc=False, array_like=True, tag="resync/1"):
    """Agent → manager: a set is missing, send a complete one."""

    last_seen: int


class TaskReport(msgspec.Struct, frozen=True, kw_only=True, gc=False, array_like=True):
    """One task's newest status."""

    task_id: str
    status: TaskStatus


class StatusReport(_Message, frozen=True, kw_only=True, gc=False, array_like=True, tag="status_report/1"):
    """Agent → manager: statuses of this node's tasks; those of one task come in order.

    One without reports only asks for its `StatusAck`: an agent that has heard nothing for a while learns so whether the
    manager is still there.
    """

    number: int
    reports: tuple[TaskReport, ...]


class StatusAck(_Message, frozen=True, kw_only=True, gc=False, array_like=True, tag="status_ack/1"):
    """Manager → agent: every report up to this number is durable."""

    number: int


class DescriptionChanged(_Message, frozen=True, kw_only=True, gc=False, array_like=True, tag="description/1"):
    """Agent → manager: the host is not what it was (links, resources)."""

    description: NodeDescription


FromAgent = CaRequest | JoinRequest | RenewRequest | Hello | Heartbeat | Resync | StatusReport | DescriptionChanged
FromManager = CaReply | IdentityReply | Refused | Welcome | Probe | LeaseRenewed | Assignments | Routes | StatusAck

from_agent_decoder = msgspec.msgpack.Decoder(FromAgent)
from_manager_decoder = msgspec.msgpack.Decoder(FromManager)
encoder = msgspec.msgpack.Encoder()
