"""What an operator tells an agent."""

from __future__ import annotations

import msgspec


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one agent. The defaults suit a cluster of any size; tests shorten them."""

    # Where identity and task records live. Losing it costs the node its identity; tasks that run are found all the same.
    state_dir: str
    # Addresses of managers to try, in this order; more are learned from each session.
    managers: tuple[str, ...]
    # "SWMTKN-1-…", needed until the node has joined once.
    join_token: str = ""
    # Name in `docker node ls`; "": the host's own.
    node_name: str = ""
    # Back-off before the n-th attempt to connect: a random time in [0, min(cap, base · 2ⁿ)]. A smaller cap finds a
    # returning manager sooner and costs it more handshakes when all nodes come at once.
    backoff_base_s: float = 0.2
    backoff_cap_s: float = 8.0
    # Statuses are collected for so long before they are sent: below what a person notices, long enough that the five
    # states of a task that starts become one message.
    coalesce_s: float = 0.010
    # How often the host is described anew; a changed link is seen by the scheduler so much later.
    describe_interval_s: float = 20.0


__all__ = ["AgentConfig"]
