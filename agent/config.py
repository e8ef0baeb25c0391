"""What an operator tells an agent."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from beeyard.agent.hook_policy import HookPolicy
from beeyard.discovery.settings import AGENT_SOCKET, DiscoverySettings
from beeyard.runtime.settings_declared import about, reloadable, secret

Count = Annotated[int, msgspec.Meta(ge=0)]
# Up to a minute, or an hour: more is a typing mistake that would keep the agent from its work without a word.
Moment = Annotated[float, msgspec.Meta(ge=0, le=60)]
# Of what is done again and again: without a least an agent would do nothing else.
Interval = Annotated[float, msgspec.Meta(ge=0.1, le=3600)]


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one agent. The defaults suit a cluster of any size; tests shorten them."""

    # "self://:3388" looks for peers on its own, "serf://10.0.0.7,host2:7946" begins with these; their gossip tells of
    # managers.
    managers: Annotated[
        tuple[str, ...],
        about(
            "managers to join, in this order, `HOST:PORT`; or `self://`, `serf://HOST` to find them", group="joining"
        ),
    ] = ()
    join_token: Annotated[str, about("secret; needed until the node has joined once"), secret()] = ""
    join_token_file: Annotated[
        str, about("a file that holds the join token; may be removed once the node has joined")
    ] = ""
    # HOST or HOST:PORT. Only with self:// or serf://.
    advertise: Annotated[
        str, about("address by which other hosts know this one; empty: the address that leads to them")
    ] = ""
    backoff_base_s: Annotated[  # a random time in [0, min(cap, base · 2ⁿ)]
        Moment, about("waits between attempts to connect to a manager grow from this, doubled each time")
    ] = 0.2
    # A smaller cap finds a returning manager sooner and costs it more handshakes when all nodes come at once.
    backoff_cap_s: Annotated[Interval, about("waits between attempts to connect to a manager grow up to this")] = 8.0

    # Losing it costs the node its identity; tasks that run are found all the same.
    state_dir: Annotated[
        str, about("identity, what is known of the tasks, their work directories", group="this node")
    ] = "/var/lib/beeyard/agent"
    node_name: Annotated[str, about("name in `docker node ls`; empty: the hostname")] = ""
    # Those of `docker node update` are the cluster's.
    labels: Annotated[
        tuple[str, ...], about("labels of this host, `disk=ssd`: the `engine.labels` of constraints and preferences")
    ] = ()
    # "SSD=3" is a number of them, "GPU=uuid1", "GPU=uuid2" are their names.
    generic_resources: Annotated[
        tuple[str, ...], about("what tasks may reserve besides CPU and memory, `SSD=3`, `GPU=uuid1`")
    ] = ()
    reserve_cpu: Annotated[float, msgspec.Meta(ge=0, le=8192), about("cores of this host that no task gets")] = 0.0
    reserve_memory_mib: Annotated[
        int, msgspec.Meta(ge=0, le=1 << 32), about("memory of this host that no task gets")
    ] = 0
    # Of the driver `dir`, each in a directory of its name.
    volumes_dir: Annotated[str, about("directory below which cluster volumes are; empty: none are here")] = ""
    # A changed link is seen by the scheduler so much later.
    describe_interval_s: Annotated[Interval, about("how often the host's links are looked at")] = 20.0

    discovery: DiscoverySettings = DiscoverySettings()
    gossip_socket: Annotated[
        str, about("where `beeyard members` and its like ask this agent, if it gossips; empty: nowhere")
    ] = AGENT_SOCKET

    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], about("how much is logged", group="logs"), reloadable()
    ] = "info"
    log_dir: Annotated[str, about("output of tasks, `TASK_ID.log`; empty: `log/` in the state directory")] = ""
    logs_kept: Annotated[Count, about("the output of so many removed tasks is kept, the newest")] = 1000
    log_mib_kept: Annotated[Count, about("so much output of removed tasks is kept, the newest")] = 1024

    # Else tasks run on without their agent. The node is back with the next start.
    drain_on_stop: Annotated[
        bool,
        about("when the agent is told to stop, its tasks are first started elsewhere and stopped here", group="tasks"),
        reloadable(),
    ] = False
    drain_timeout_s: Annotated[
        float, msgspec.Meta(ge=0), about("how long that may take; what is left then runs on"), reloadable()
    ] = 300.0
    # As beeyard-launcher.socket.
    launcher: Annotated[str, about("socket of a service that starts tasks; empty: a child of the agent does")] = ""
    cgroup_root: Annotated[
        str,
        about("a delegated cgroup v2 directory for the tasks; empty: that of `beeyard-tasks.service`, or `/beeyard`"),
    ] = ""
    # Each start takes so much longer. A machine that answers later than that is not found.
    probe_s: Annotated[
        Moment, about("how long the LAN is asked whether somebody has an address before a task uses it; 0: not at all")
    ] = 0.1
    # They take each other's VLANs, routes and host-side links for their own, so that is for tests, and for agents whose tasks
    # have no networks.
    share_network: Annotated[bool, about("another agent may be in this network namespace")] = False
    # Below what a person notices, long enough that the five states of a task that starts become one message.
    coalesce_s: Annotated[Moment, about("statuses are collected for so long before they are sent")] = 0.010

    hooks: HookPolicy = HookPolicy()


__all__ = ["AgentConfig"]
