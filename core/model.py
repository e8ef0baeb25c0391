"""The stored objects: what users asked for, what exists, and what was given to whom.

All are frozen `msgspec.Struct`s, so a snapshot is a reference and one definition serves store, wire and log. Change one
with `msgspec.structs.replace`. Units: CPU in 1e-9 cores (`cpu_nano`), memory in bytes, durations in seconds (`*_s`),
points in time in seconds since the Unix epoch by the manager's wall clock (`*_at_s`). Docker's names and units live in
`manager/api` only. Which component may write which field of Node and Task is said beside the field.

Of tasks, of which there are many, what has its default is left out where they are stored and sent, which takes a third of the
time and space. Those defaults never change, or what was stored before would.

What cannot change cannot become part of a cycle, and there are as many of these as tasks: the garbage collector leaves them
alone (`gc=False`).
"""

from __future__ import annotations

import enum

import msgspec

from beeyard.core.grant import AnyGrant, ResourceGrant, VolumeGrant
from beeyard.core.ipam import AddressLease, PoolLease
from beeyard.core.link import Link as Link
from beeyard.core.membership import Membership
from beeyard.core.mounts import LOCAL_DRIVER, LogDriver, Mount, VolumeMount
from beeyard.core.preference import Preference
from beeyard.core.resources import GenericResource
from beeyard.core.resources import Limits as Limits
from beeyard.core.resources import Resources as Resources
from beeyard.core.states import Availability, NodeState, Role, TaskState
from beeyard.core.volume import Volume, VolumeUse

HOST_NETWORK_NAME = "host"
# The predefined swarm-scope network that gives a task its host's own network; an id as Docker's are, but recognisable.
HOST_NETWORK_ID = "host" + "0" * 21


class RestartCondition(enum.StrEnum):
    """When a task that ended is replaced."""

    NONE = "none"
    ON_FAILURE = "on-failure"
    ANY = "any"


class RestartPolicy(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Replacement of tasks that ended by themselves."""

    condition: RestartCondition = RestartCondition.ANY
    delay_s: float = 5.0
    max_attempts: int = 0  # per slot and spec version; 0: no limit
    window_s: float = 0.0  # count only attempts of the last so many seconds; 0: all


class UpdateOrder(enum.StrEnum):
    """Whether a slot's old task stops before or after its new one runs."""

    STOP_FIRST = "stop-first"
    START_FIRST = "start-first"


class FailureAction(enum.StrEnum):
    """What an update does when too many of its tasks fail."""

    PAUSE = "pause"
    CONTINUE = "continue"
    ROLLBACK = "rollback"


class UpdateConfig(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a change of spec is rolled out over the slots."""

    parallelism: int = 1  # slots at once; 0: all
    delay_s: float = 0.0
    failure_action: FailureAction = FailureAction.PAUSE
    monitor_s: float = 5.0
    max_failure_ratio: float = 0.0
    order: UpdateOrder = UpdateOrder.STOP_FIRST


class Platform(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Architecture and operating system in Docker's names; "" matches any."""

    architecture: str = ""
    os: str = ""


class HostPort(msgspec.Struct, frozen=True, kw_only=True, gc=False, order=True):
    """A port of the node itself that a task occupies."""

    protocol: str = "tcp"
    port: int = 0


class PublishedPort(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A port of each task that is reached at its node, in host mode: never through another node."""

    protocol: str = "tcp"  # "tcp", "udp" or "sctp"
    target: int  # the task's port
    published: int = 0  # the node's port; 0: one is chosen on the node
    name: str = ""  # only kept, for who asked for it


def fixed_ports(ports: tuple[PublishedPort, ...]) -> tuple[HostPort, ...]:
    """The ports of a node that are taken whichever node it is, in order."""
    return tuple(sorted({HostPort(protocol=port.protocol, port=port.published) for port in ports if port.published}))


class TaskSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What each task of a service runs, needs and may do."""

    image: str = ""
    command: tuple[str, ...] = ()  # Docker's Command (entry point)
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()  # "NAME=value"
    user: str = ""  # "": the executor's unprivileged default
    dir: str = ""
    hostname: str = ""
    container_labels: dict[str, str] = {}
    stop_signal: str = "SIGTERM"
    stop_grace_s: float = 10.0
    reservations: Resources = Resources()
    limits: Limits = Limits()
    restart: RestartPolicy = RestartPolicy()
    constraints: tuple[str, ...] = ()  # "node.labels.rack==r1"
    platforms: tuple[Platform, ...] = ()
    preferences: tuple[Preference, ...] = ()  # spread over the first, within its branches over the second, …
    max_replicas_per_node: int = 0  # 0: no limit
    network_ids: tuple[str, ...] = ()
    host_ports: tuple[HostPort, ...] = ()  # what a node must have free: always `fixed_ports(ports)`
    ports: tuple[PublishedPort, ...] = ()
    mounts: tuple[Mount, ...] = ()
    log_driver: LogDriver = LogDriver()
    force_update: int = 0

    @property
    def volume_drivers(self) -> tuple[str, ...]:
        """The drivers of its volumes that not every node has, in order."""
        drivers = {mount.driver for mount in self.mounts if mount.type == "volume"} - {"", LOCAL_DRIVER}
        return tuple(sorted(drivers))

    @property
    def volumes(self) -> tuple[VolumeMount, ...]:
        """The cluster volumes that it asks for."""
        return tuple(
            VolumeMount(source=mount.source, target=mount.target, read_only=mount.read_only)
            for mount in self.mounts
            if mount.type == "cluster"
        )


class ServiceSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a user asked a service to be. Mode: replicated, the only one so far."""

    name: str
    labels: dict[str, str] = {}
    task: TaskSpec = TaskSpec()
    replicas: int = 1
    update: UpdateConfig | None = None  # None: the defaults, and not shown as set

    @property
    def ports(self) -> tuple[PublishedPort, ...]:
        """The ports that it publishes; kept with its tasks, which are replaced when they change."""
        return self.task.ports


class UpdateState(enum.StrEnum):
    """How far a rolling update is."""

    UPDATING = "updating"
    PAUSED = "paused"
    COMPLETED = "completed"


class UpdateStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Progress of the last change of a service's spec."""

    state: UpdateState
    started_at_s: float = 0.0
    completed_at_s: float = 0.0
    message: str = ""


class Service(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="service"):
    """A number of equal tasks that the cluster keeps running."""

    id: str
    version: int = 0  # store index of the last write; 0: not stored yet. Set by the store alone, as the two times are
    created_at_s: float = 0.0
    updated_at_s: float = 0.0
    spec: ServiceSpec
    spec_version: int = 1  # raised by one for each change that is rolled out
    previous_spec: ServiceSpec | None = None
    update_status: UpdateStatus | None = None


class AddressConflict(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An address that a machine outside the cluster answers for."""

    address: str  # without prefix length
    mac: str


class TaskStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What was last observed of a task. Written by the manager below ASSIGNED and for ORPHANED, else by its agent."""

    state: TaskState = TaskState.NEW
    message: str = ""
    err: str = ""  # why it waits or failed, for a person
    at_s: float = 0.0  # by the clock of the one who observed it
    exit_code: int | None = None
    pid: int = 0
    # REJECTED only: what the agent found taken on the LAN. The manager puts these addresses aside and draws others.
    conflicts: tuple[AddressConflict, ...] = ()


class Task(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag="task"):
    """One run of one slot: placed once, never moved, never started again."""

    id: str
    version: int = 0
    created_at_s: float = 0.0
    updated_at_s: float = 0.0
    service_id: str
    service_name: str
    slot: int  # from 1
    spec: TaskSpec  # orchestrator, at creation
    spec_version: int = 1
    # Orchestrator, at creation: its service was labelled beeyard.on-isolation=fence, so its lease is the short one. Kept
    # here because what its agent was told may never turn out longer than what the manager counts with.
    fence: bool = False
    # Orchestrator, at creation: its slot's addresses by the label beeyard.addresses, without prefix length, at most one of
    # each family; and whether its links' MAC addresses follow from its slot, by the label beeyard.mac=per-slot.
    pins: tuple[str, ...] = ()
    mac_per_slot: bool = False
    # Orchestrator, at creation: by which rule it is placed, by its service's label beeyard.strategy; "": the cluster's.
    strategy: str = ""
    # Orchestrator, at creation: the only node it may go to, for a service with one task on each node; "": any.
    bound_node_id: str = ""
    desired_state: TaskState = TaskState.RUNNING  # orchestrator
    status: TaskStatus = TaskStatus()
    node_id: str = ""  # scheduler's commit
    grants: tuple[AnyGrant, ...] = ()  # scheduler's commit; held while `holds_room`

    @property
    def has_slot_addresses(self) -> bool:
        """Whether an address or a MAC address belongs to the task's slot, so that it may have to wait for its predecessor."""
        return bool(self.pins) or self.mac_per_slot

    @property
    def claimed(self) -> tuple[GenericResource, ...]:
        """Which of its node's generic resources it was given, in order of their kinds."""
        return tuple(item for grant in self.grants if isinstance(grant, ResourceGrant) for item in grant.resources)

    @property
    def volumes(self) -> tuple[VolumeUse, ...]:
        """The cluster volumes that it was given, in the order of its mounts."""
        return tuple(use for grant in self.grants if isinstance(grant, VolumeGrant) for use in grant.uses)

    @property
    def holds_room(self) -> bool:
        """Whether the task occupies its node: room and grants count until the *observed* state is terminal."""
        return self.node_id != "" and not self.status.state.is_terminal


class NodeDescription(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an agent says about its host."""

    hostname: str = ""
    platform: Platform = Platform()
    resources: Resources = Resources()
    reserved: Resources = Resources()  # of these, what its operator keeps for the host itself: no task gets it
    engine_version: str = ""
    engine_labels: dict[str, str] = {}
    images: tuple[str, ...] = ()  # images that its executors run; ("host",) for `process`
    link_kinds: tuple[str, ...] = ()  # probed: what this kernel can create, e.g. ("macvlan",)
    links: tuple[Link, ...] = ()
    log_drivers: tuple[str, ...] = ()  # where its executors can send output; none: it was not said, so any may do
    volume_drivers: tuple[str, ...] = ()
    # Ports on which something on the host listens that no task published: not to be given away.
    listening: tuple[HostPort, ...] = ()
    hooks: tuple[str, ...] = ()  # names of the node hooks that each of its tasks goes through
    # Whether it can lead ports of the node to tasks: it has nftables, and its kernel translates addresses.
    forwards_ports: bool = False
    # Its agent is about to stop and wants its tasks to run elsewhere; its next life does not say so any more.
    stopping: bool = False
    membership: Membership | None = None  # in the gossip cluster; None: its agent does not gossip


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an operator decides about a node."""

    name: str = ""
    labels: dict[str, str] = {}
    role: Role = Role.WORKER
    availability: Availability = Availability.ACTIVE


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Whether the node can be reached. Written by the dispatcher."""

    state: NodeState = NodeState.UNKNOWN
    message: str = ""
    address: str = ""  # as the manager saw it connect
    since_s: float = 0.0


class Node(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="node"):
    """A member of the cluster. Not the machine (host), and not a row of the kernel's table."""

    id: str
    version: int = 0
    created_at_s: float = 0.0
    updated_at_s: float = 0.0
    spec: NodeSpec = NodeSpec()  # operator, through the API
    description: NodeDescription = NodeDescription()  # dispatcher, from its agent
    status: NodeStatus = NodeStatus()  # dispatcher
    certificate_serial: str = ""  # CA, at join and when a renewed one is first used: older ones are refused
    # CA: certificates issued since and not seen in use yet, newest last. An agent may lose one on its way.
    renewed_serials: tuple[str, ...] = ()

    @property
    def availability(self) -> Availability:
        """What the node may be used for: as its operator decided, and drained while its agent is about to stop."""
        return Availability.DRAIN if self.description.stopping else self.spec.availability


class IPAMConfig(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One subnet of a network and which of its addresses may be handed out."""

    subnet: str
    ip_range: str = ""  # "": the whole subnet
    gateway: str = ""  # "": none, and none is reserved
    aux_addresses: dict[str, str] = {}  # in use by others; never handed out


class Network(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="network"):
    """A network that services attach to, or (config_only) one pool of addresses that such networks draw from."""

    id: str
    version: int = 0
    created_at_s: float = 0.0
    updated_at_s: float = 0.0
    name: str
    driver: str = ""  # "macvlan", "ipvlan", "host"; "" when config_only
    scope: str = "swarm"
    config_only: bool = False
    config_from: str = ""
    ipam_driver: str = "default"  # or "null", or the name of a Docker remote IPAM plugin
    ipam_options: dict[str, str] = {}  # --ipam-opt
    ipam: tuple[IPAMConfig, ...] = ()
    options: dict[str, str] = {}  # see core.network_options
    labels: dict[str, str] = {}  # beeyard.config, beeyard.nodes, beeyard.segment
    internal: bool = False
    attachable: bool = False
    enable_ipv6: bool = False
    # Of a pool: when an operator took addresses back that had been put aside, by address. Who was found to have one before
    # that counts no more.
    taken_back: dict[str, float] = {}


class ClientCertificate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A certificate with which the API may be used from elsewhere."""

    name: str
    serial: str  # hexadecimal
    created_at_s: float
    not_after_s: float


class Cluster(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="cluster"):
    """The one record of the cluster itself, with its secrets. Its file is readable by the manager alone."""

    id: str
    version: int = 0
    created_at_s: float = 0.0
    updated_at_s: float = 0.0
    name: str = "default"
    labels: dict[str, str] = {}
    ca_certificate_pem: bytes = b""
    ca_key_pem: bytes = b""
    worker_secret: str = ""  # 25 base36 digits; the join token is made of it and the CA's digest
    manager_secret: str = ""
    manager_node_id: str = ""  # the node that is this manager's own host
    heartbeat_s: float = 5.0
    task_history_limit: int = 5
    certificate_valid_s: float = 90 * 86400.0
    clients: tuple[ClientCertificate, ...] = ()  # whoever is not here is refused


StoredObject = Cluster | Node | Network | Service | Task | Volume | PoolLease | AddressLease
