"""Builders of stored objects for tests: each gives something valid, and a test says only what it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from beeyard.core.membership import Coordinate, Membership
from beeyard.core.model import (
    HostPort,
    IPAMConfig,
    Link,
    Network,
    Node,
    NodeDescription,
    NodeSpec,
    NodeStatus,
    Platform,
    PublishedPort,
    Resources,
    RestartPolicy,
    Service,
    ServiceSpec,
    Task,
    TaskSpec,
    TaskStatus,
    UpdateConfig,
    fixed_ports,
)
from beeyard.core.mounts import LogDriver, Mount
from beeyard.core.preference import Preference
from beeyard.core.resources import GenericResource
from beeyard.core.states import Availability, NodeState, Role, TaskState

GIB = 1 << 30
CPU = 10**9


def a_link(name: str = "eth0", *addresses: str, child_kind: str = "") -> Link:
    """An interface of a host that is up."""
    return Link(name=name, mac="02:00:00:00:00:01", mtu=1500, up=True, addresses=addresses, child_kind=child_kind)


def a_membership(name: str = "n1", at_ms: float | None = None, **tags: str) -> Membership:
    """A member whose round-trip time to another one is the difference of their places, if it has one."""
    coordinate = None if at_ms is None else Coordinate(vec=(at_ms / 1e3, *(0.0,) * 7), error=0.2, height=0.0)
    return Membership(name=name, tags=tags, coordinate=coordinate)


def a_node(
    node_id: str = "n1",
    *,
    hostname: str | None = None,
    labels: Mapping[str, str] | None = None,
    engine_labels: Mapping[str, str] | None = None,
    cpu_nano: int = 4 * CPU,
    memory_bytes: int = 8 * GIB,
    state: NodeState = NodeState.READY,
    availability: Availability = Availability.ACTIVE,
    role: Role = Role.WORKER,
    address: str = "",
    architecture: str = "x86_64",
    os: str = "linux",
    images: Sequence[str] = ("host",),
    link_kinds: Sequence[str] = ("macvlan",),
    links: Sequence[Link] | None = None,
    listening: Sequence[HostPort] = (),
    forwards_ports: bool = True,
    generic: Mapping[str, int | Sequence[str]] | None = None,
    reserved: Resources | None = None,
    log_drivers: Sequence[str] = (),
    volume_drivers: Sequence[str] = (),
    membership: Membership | None = None,
) -> Node:
    """A READY node with 4 cores, 8 GiB, macvlan and the interface eth0."""
    return Node(
        id=node_id,
        spec=NodeSpec(labels=dict(labels or {}), role=role, availability=availability),
        description=NodeDescription(
            hostname=node_id if hostname is None else hostname,
            platform=Platform(architecture=architecture, os=os),
            resources=Resources(cpu_nano=cpu_nano, memory_bytes=memory_bytes, generic=some_generic(generic or {})),
            reserved=reserved or Resources(),
            engine_labels=dict(engine_labels or {}),
            images=tuple(images),
            link_kinds=tuple(link_kinds),
            links=(a_link(),) if links is None else tuple(links),
            listening=tuple(listening),
            forwards_ports=forwards_ports,
            log_drivers=tuple(log_drivers),
            volume_drivers=tuple(volume_drivers),
            membership=membership,
        ),
        status=NodeStatus(state=state, address=address),
    )


def some_generic(amounts: Mapping[str, int | Sequence[str]]) -> tuple[GenericResource, ...]:
    """Generic resources by kind: a number of them, or their names."""
    return tuple(
        GenericResource(kind=kind, value=amount)
        if isinstance(amount, int)
        else GenericResource(kind=kind, names=tuple(amount))
        for kind, amount in sorted(amounts.items())
    )


def a_task_spec(
    *,
    image: str = "host",
    args: Sequence[str] = (),
    cpu_nano: int = 0,
    memory_bytes: int = 0,
    constraints: Sequence[str] = (),
    platforms: Sequence[Platform] = (),
    network_ids: Sequence[str] = (),
    host_ports: Sequence[HostPort] = (),
    max_replicas_per_node: int = 0,
    restart: RestartPolicy | None = None,
    stop_grace_s: float = 10.0,
    ports: Sequence[PublishedPort] = (),
    generic: Mapping[str, int] | None = None,
    preferences: Sequence[Preference] = (),
    mounts: Sequence[Mount] = (),
    log_driver: str = "",
) -> TaskSpec:
    """What a task of image `host` needs and runs."""
    return TaskSpec(
        image=image,
        args=tuple(args),
        reservations=Resources(cpu_nano=cpu_nano, memory_bytes=memory_bytes, generic=some_generic(generic or {})),
        constraints=tuple(constraints),
        platforms=tuple(platforms),
        network_ids=tuple(network_ids),
        host_ports=(*host_ports, *fixed_ports(tuple(ports))),
        ports=tuple(ports),
        preferences=tuple(preferences),
        mounts=tuple(mounts),
        log_driver=LogDriver(name=log_driver),
        max_replicas_per_node=max_replicas_per_node,
        restart=restart or RestartPolicy(),
        stop_grace_s=stop_grace_s,
    )


def a_task(
    task_id: str = "t1",
    *,
    service_id: str = "s1",
    service_name: str = "web",
    slot: int = 1,
    spec: TaskSpec | None = None,
    state: TaskState = TaskState.PENDING,
    desired_state: TaskState = TaskState.RUNNING,
    node_id: str = "",
    spec_version: int = 1,
    message: str = "",
    strategy: str = "",
) -> Task:
    """A PENDING task of the service web."""
    return Task(
        id=task_id,
        service_id=service_id,
        service_name=service_name,
        slot=slot,
        spec=spec or a_task_spec(),
        spec_version=spec_version,
        desired_state=desired_state,
        status=TaskStatus(state=state, message=message),
        node_id=node_id,
        strategy=strategy,
    )


def a_service(
    service_id: str = "s1",
    *,
    name: str = "web",
    replicas: int = 1,
    task: TaskSpec | None = None,
    update: UpdateConfig | None = None,
    labels: Mapping[str, str] | None = None,
) -> Service:
    """A replicated service of image `host`."""
    spec = ServiceSpec(
        name=name, replicas=replicas, task=task or a_task_spec(), update=update, labels=dict(labels or {})
    )
    return Service(id=service_id, spec=spec)


def an_ipam(
    subnet: str = "10.77.0.0/24", ip_range: str = "", gateway: str = "", aux: Mapping[str, str] | None = None
) -> IPAMConfig:
    """One subnet."""
    return IPAMConfig(subnet=subnet, ip_range=ip_range, gateway=gateway, aux_addresses=dict(aux or {}))


def a_network(
    network_id: str = "net1",
    *,
    name: str = "lan",
    driver: str = "macvlan",
    ipam: Sequence[IPAMConfig] | None = None,
    parent: str = "eth0",
    options: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    internal: bool = False,
    enable_ipv6: bool = False,
    scope: str = "swarm",
) -> Network:
    """A direct macvlan network on eth0, subnet 10.77.0.0/24."""
    return Network(
        id=network_id,
        name=name,
        driver=driver,
        scope=scope,
        ipam=(an_ipam(),) if ipam is None else tuple(ipam),
        options={**({"parent": parent} if parent else {}), **(options or {})},
        labels=dict(labels or {}),
        internal=internal,
        enable_ipv6=enable_ipv6,
    )


def a_config_network(
    network_id: str,
    name: str,
    *,
    ipam: Sequence[IPAMConfig] | None = None,
    parent: str = "eth0",
    config: str = "",
    nodes: str = "",
    segment: str = "",
    options: Mapping[str, str] | None = None,
) -> Network:
    """A config-only network: one pool. `config`, `nodes`, `segment`: its labels beeyard.*, left out when empty."""
    labels = {"beeyard.config": config, "beeyard.nodes": nodes, "beeyard.segment": segment}
    return Network(
        id=network_id,
        name=name,
        config_only=True,
        ipam=(an_ipam(),) if ipam is None else tuple(ipam),
        options={**({"parent": parent} if parent else {}), **(options or {})},
        labels={key: value for key, value in labels.items() if value},
    )


def a_network_from(config: str, network_id: str = "net1", *, name: str = "lan", driver: str = "macvlan") -> Network:
    """A network that draws from config-only networks."""
    return Network(id=network_id, name=name, driver=driver, config_from=config)
