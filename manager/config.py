"""What an operator may set for a manager."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from beeyard.core.address_pool import COOL_DOWN_S
from beeyard.core.host_ports import PORT_FIRST, PORT_LAST
from beeyard.discovery.settings import MANAGER_SOCKET, DiscoverySettings
from beeyard.runtime.settings import reloadable

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class IpamConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How Docker remote IPAM plugins are found and how long they may take."""

    plugin_sockets: str = "/run/docker/plugins"  # directory with NAME.sock or NAME/NAME.sock
    plugin_specs: tuple[str, ...] = ("/etc/docker/plugins", "/usr/lib/docker/plugins")  # with NAME.spec or NAME.json
    # How long one answer may take, in seconds. Raising it lets slow plugins work; tasks of a plugin that hangs then take
    # longer to say so, and hold room on their node meanwhile.
    deadline_s: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    # Questions about addresses under way at once, for each plugin. More help a plugin that is slow and works on several.
    calls_max: Annotated[int, msgspec.Meta(ge=1)] = 16


class ManagerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one manager daemon, fixed while it runs."""

    state_dir: str = "/var/lib/beeyard/manager"  # holds the store and the CA's key: for root alone
    listen: str = "tcp://0.0.0.0:2377"  # where agents connect
    api_socket: str = "unix:///run/beeyard/docker.sock"
    api_group: str = "beeyard"  # may use the API besides root
    # The API over TLS for clients elsewhere, "tcp://0.0.0.0:2376"; "": not served. Names and addresses by which they may call
    # this manager, besides its hostname and the addresses that are configured here.
    api_listen: str = ""
    api_names: tuple[str, ...] = ()
    # What agents are told to connect to, "tcp://10.0.0.7:2377"; "": the address that is listened on.
    advertise: str = ""
    # Where this manager gossips, so that agents find it by self:// and its local members are known, usually 3388; 0: it does
    # not. And how it finds the others.
    self_discovery_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    discovery: DiscoverySettings = DiscoverySettings()
    # Where `beeyard members` and its like ask this manager, if it gossips; "": nowhere. `api_group` may use it.
    gossip_socket: str = MANAGER_SOCKET
    # Where this manager puts the list of its local members and reads those of all managers, "etcd://10.0.0.5:2379/racks"; "":
    # nowhere. And how: NAME=VALUE, see discovery.published.url.
    discovery_url: str = ""
    discovery_options: tuple[str, ...] = ()
    # How long this manager's list outlives it, and lists that a server lost are missed before they count as gone. Shorter: a
    # dead manager's nodes are gone sooner, and a slow one's too. ZooKeeper gives no more than 40 s by default.
    discovery_ttl_s: Annotated[float, msgspec.Meta(ge=3, le=3600)] = 30.0
    # The token service, over TLS, "tcp://0.0.0.0:3380"; "": not served.
    token_listen: str = ""
    node_name: str = ""  # of the node on this manager's own host; "": its hostname
    log_level: Annotated[Literal["debug", "info", "warning", "error"], reloadable()] = "info"
    # How often agents say that they are there; a node that is silent for three of these is down and its tasks are replaced.
    # Read when a cluster is made, like `docker swarm init --dispatcher-heartbeat`. Longer suits hosts that restart slowly.
    heartbeat_s: Annotated[float, msgspec.Meta(ge=1, le=60)] = 5.0
    # Tasks in one transaction: some 20 ms to build and encode, so others are not held up. Raising it saves fsyncs when
    # thousands of tasks start, and delays everything that is queued behind.
    commit_tasks_max: Annotated[int, msgspec.Meta(ge=1)] = 1000
    # How long the scheduler waits for more to decide at once, after the last change and in all. Source: SwarmKit
    # `commitDebounceGap`, `maxLatency`. The first change after a quiet time does not wait.
    debounce_gap_s: Seconds = 0.05
    debounce_max_s: Seconds = 1.0
    # By which rule tasks are placed whose service names none (label beeyard.strategy); what they are: docs/scheduling.md.
    strategy: Literal["spread", "pack", "shape", "fgd"] = "spread"
    # How much is kept on disk of what the scheduler decided and on what, for `beeyard replay`, in MiB besides what is in the
    # cluster; 0: nothing. More reaches further back.
    decision_log_mib: Annotated[int, msgspec.Meta(ge=0)] = 0
    # Where ports of nodes are chosen from for tasks that do not care for the number. Outside the range from which kernels
    # choose ports for connections (32768-60999) the two never meet. Source: SwarmKit `dynamicPortStart`, `dynamicPortEnd`.
    host_port_first: Port = PORT_FIRST
    host_port_last: Port = PORT_LAST
    # How long addresses and chosen ports of an ended task rest before another is given them. Longer than neighbours remember
    # whose an address was; shorter needs fewer spare addresses where tasks are replaced often.
    cool_down_s: Seconds = COOL_DOWN_S
    # How long nobody is given an address that an agent found in use by a machine outside the cluster. Shorter gives the
    # address back sooner when that machine leaves; until then each try costs one refused task.
    put_aside_s: Seconds = 3600.0
    ipam: IpamConfig = IpamConfig()

    @property
    def store_path(self) -> str:
        """The database file."""
        return f"{self.state_dir}/store.db"
