"""What an operator may set for a manager."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from beeyard.core.address_pool import COOL_DOWN_S
from beeyard.core.host_ports import PORT_FIRST, PORT_LAST
from beeyard.discovery.settings import MANAGER_SOCKET, DiscoverySettings
from beeyard.runtime.settings_declared import about, reloadable

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class IpamConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How Docker remote IPAM plugins are found and how long they may take."""

    plugin_sockets: Annotated[  # NAME.sock or NAME/NAME.sock
        str, about("where the sockets of Docker IPAM plugins are", group="IPAM plugins")
    ] = "/run/docker/plugins"
    plugin_specs: Annotated[  # NAME.spec or NAME.json
        tuple[str, ...], about("where files lie that say where a plugin answers")
    ] = ("/etc/docker/plugins", "/usr/lib/docker/plugins")
    # Raising it lets slow plugins work; tasks of a plugin that hangs then take longer to say so, and hold room on their node
    # meanwhile.
    deadline_s: Annotated[float, msgspec.Meta(gt=0), about("how long one answer of a plugin may take")] = 10.0
    # More help a plugin that is slow and works on several.
    calls_max: Annotated[int, msgspec.Meta(ge=1), about("questions to one plugin at once")] = 16


class ManagerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one manager daemon, fixed while it runs."""

    # For root alone.
    state_dir: Annotated[str, about("the database, which holds everything, the CA's key too", group="this manager")] = (
        "/var/lib/beeyard/manager"
    )
    listen: Annotated[str, about("where agents connect (TLS 1.3)")] = "tcp://0.0.0.0:2377"
    advertise: Annotated[str, about("what agents are told to connect to; empty: what is listened on")] = ""
    node_name: Annotated[str, about("name of the node on this host; empty: its hostname")] = ""
    log_level: Annotated[Literal["debug", "info", "warning", "error"], about("how much is logged"), reloadable()] = (
        "info"
    )

    api_socket: Annotated[str, about("the Docker API on this host", group="Docker API")] = (
        "unix:///run/beeyard/docker.sock"
    )
    api_group: Annotated[str, about("the group that may use the Docker API besides root")] = "beeyard"
    api_listen: Annotated[
        str, about("the Docker API for other hosts, over TLS with client certificates; empty: not served")
    ] = ""
    api_names: Annotated[
        tuple[str, ...], about("names and addresses by which other hosts call this manager for the Docker API")
    ] = ()

    # So that agents find it by self:// and its local members are known.
    self_discovery_port: Annotated[
        int,
        msgspec.Meta(ge=0, le=65535),
        about("where this manager gossips, usually 3388; 0: it does not", group="gossip"),
    ] = 0
    gossip_socket: Annotated[
        str, about("where `beeyard members` and its like ask this manager, if it gossips; empty: nowhere")
    ] = MANAGER_SOCKET
    discovery: DiscoverySettings = DiscoverySettings()

    # "etcd://10.0.0.5:2379/racks"; the options: discovery.published.url.
    discovery_url: Annotated[
        str,
        about(
            "where this manager publishes its local members and reads what all managers publish; empty: nowhere",
            group="lists of nodes",
        ),
    ] = ""
    discovery_options: Annotated[
        tuple[str, ...],
        about("how lists are published: `kv.path`, `kv.cacertfile`, `kv.certfile`, `kv.keyfile`, each as `NAME=VALUE`"),
    ] = ()
    # Also how long lists that a server lost are missed before they count as gone. Shorter: a dead manager's nodes are gone
    # sooner, and a slow one's too. ZooKeeper gives no more than 40 s by default.
    discovery_ttl_s: Annotated[
        float, msgspec.Meta(ge=3, le=3600), about("how long this manager's list outlives it, 3 to 3600")
    ] = 30.0
    token_listen: Annotated[str, about("where this manager serves tokens over TLS; empty: it does not")] = ""

    # By which rule tasks are placed whose service names none; what they are: docs/scheduling.md.
    strategy: Annotated[
        Literal["spread", "pack", "shape", "fgd"],
        about("by which rule tasks are placed whose service has no label `beeyard.strategy`", group="scheduling"),
    ] = "spread"
    # Read when a cluster is made, like `docker swarm init --dispatcher-heartbeat`. Longer suits hosts that restart slowly.
    heartbeat_s: Annotated[
        float,
        msgspec.Meta(ge=1, le=60),
        about("how often agents of a new cluster say that they are there, 1 to 60; down after three of these"),
    ] = 5.0
    # Some 20 ms to build and encode, so others are not held up. Raising it saves fsyncs when thousands of tasks start, and
    # delays everything that is queued behind.
    commit_tasks_max: Annotated[int, msgspec.Meta(ge=1), about("tasks in one transaction")] = 1000
    # Source: SwarmKit `commitDebounceGap`, `maxLatency`. The first change after a quiet time does not wait.
    debounce_gap_s: Annotated[
        Seconds, about("how long the scheduler waits for more to decide at once, after the last change")
    ] = 0.05
    debounce_max_s: Annotated[Seconds, about("how long it waits for more in all")] = 1.0
    # On disk, besides what is in the cluster. More reaches further back.
    decision_log_mib: Annotated[
        int,
        msgspec.Meta(ge=0),
        about("how much is kept of what the scheduler decided, for `beeyard replay`; 0: nothing"),
    ] = 0

    # Outside the range from which kernels choose ports for connections (32768-60999) the two never meet. Source: SwarmKit
    # `dynamicPortStart`, `dynamicPortEnd`.
    host_port_first: Annotated[
        Port,
        about(
            "the first of the ports that are chosen for tasks which do not care for the number",
            group="addresses and ports",
        ),
    ] = PORT_FIRST
    host_port_last: Annotated[Port, about("the last of the ports that are chosen for tasks")] = PORT_LAST
    # Longer than neighbours remember whose an address was; shorter needs fewer spare addresses where tasks are replaced
    # often.
    cool_down_s: Annotated[
        Seconds, about("how long addresses and chosen ports of an ended task rest before another task is given them")
    ] = COOL_DOWN_S
    # Shorter gives the address back sooner when that machine leaves; until then each try costs one refused task.
    put_aside_s: Annotated[
        Seconds, about("for how long nobody is given an address that a machine outside the cluster was found to use")
    ] = 3600.0
    ipam: IpamConfig = IpamConfig()

    @property
    def store_path(self) -> str:
        """The database file."""
        return f"{self.state_dir}/store.db"
