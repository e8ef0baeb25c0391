"""What an operator tells an agent."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from beeyard.agent.hook_policy import HookPolicy
from beeyard.discovery.settings import AGENT_SOCKET, DiscoverySettings
from beeyard.runtime.settings import reloadable, secret

Count = Annotated[int, msgspec.Meta(ge=0)]
# Up to a minute, or an hour: more is a typing mistake that would keep the agent from its work without a word.
Moment = Annotated[float, msgspec.Meta(ge=0, le=60)]
# Of what is done again and again: without a least an agent would do nothing else.
Interval = Annotated[float, msgspec.Meta(ge=0.1, le=3600)]


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one agent. The defaults suit a cluster of any size; tests shorten them."""

    # Where identity and task records live. Losing it costs the node its identity; tasks that run are found all the same.
    state_dir: str = "/var/lib/beeyard/agent"
    # Addresses of managers to try, in this order; more are learned from each session. Or how to find them: "self://:3388"
    # looks for peers on its own, "serf://10.0.0.7,host2:7946" begins with these; their gossip tells of managers.
    managers: tuple[str, ...] = ()
    # HOST or HOST:PORT by which peers know this host; "": the address that leads to them. Only with self:// or serf://.
    advertise: str = ""
    discovery: DiscoverySettings = DiscoverySettings()
    # Where `beeyard members` and its like ask this agent, if it gossips; "": nowhere.
    gossip_socket: str = AGENT_SOCKET
    # "SWMTKN-1-…", needed until the node has joined once; or a file that holds it.
    join_token: Annotated[str, secret()] = ""
    join_token_file: str = ""
    # Name in `docker node ls`; "": the host's own.
    node_name: str = ""
    # What tasks may reserve besides CPU and memory: "SSD=3" is a number of them, "GPU=uuid1", "GPU=uuid2" are their names.
    generic_resources: tuple[str, ...] = ()
    # The `engine.labels` of constraints and preferences: "disk=ssd". Those of `docker node update` are the cluster's.
    labels: tuple[str, ...] = ()
    # Of the host's cores and memory, what no task gets.
    reserve_cpu: Annotated[float, msgspec.Meta(ge=0, le=8192)] = 0.0
    reserve_memory_mib: Annotated[int, msgspec.Meta(ge=0, le=1 << 32)] = 0
    log_level: Annotated[Literal["debug", "info", "warning", "error"], reloadable()] = "info"
    # Output of tasks; "": log/ in the state directory. Of removed tasks the newest are kept: so many, and so much of them.
    log_dir: str = ""
    logs_kept: Count = 1000
    log_mib_kept: Count = 1024
    # Path of the socket of a service that starts tasks, as beeyard-launcher.socket; "": the agent's own child does.
    launcher: str = ""
    # A cgroup v2 directory, delegated, for the tasks; "": that of beeyard-tasks.service, else the whole host's.
    cgroup_root: str = ""
    # Directory below which the cluster volumes of driver `dir` are, each in a directory of its name; "": none are here.
    volumes_dir: str = ""
    # When it is told to stop: leave the tasks running, or have them run elsewhere first and stop them here, for as long at
    # most. The node is back with the next start.
    drain_on_stop: Annotated[bool, reloadable()] = False
    drain_timeout_s: Annotated[float, msgspec.Meta(ge=0), reloadable()] = 300.0
    # Back-off before the n-th attempt to connect: a random time in [0, min(cap, base · 2ⁿ)]. A smaller cap finds a
    # returning manager sooner and costs it more handshakes when all nodes come at once.
    backoff_base_s: Moment = 0.2
    backoff_cap_s: Interval = 8.0
    # Statuses are collected for so long before they are sent: below what a person notices, long enough that the five
    # states of a task that starts become one message.
    coalesce_s: Moment = 0.010
    # How often the host is described anew; a changed link is seen by the scheduler so much later.
    describe_interval_s: Interval = 20.0
    # How long the LAN is asked whether anybody has a task's addresses already, before they are used; 0: not at all. Each
    # start takes so much longer. A machine that answers later than that is not found.
    probe_s: Moment = 0.1
    # Whether other agents may be in this network namespace. They take each other's VLANs, routes and host-side links for
    # their own, so that is for tests, and for agents whose tasks have no networks.
    share_network: bool = False
    # What is called for each task on this node, and what it may add to one; see docs/node-hooks.md.
    hooks: HookPolicy = HookPolicy()


__all__ = ["AgentConfig"]
