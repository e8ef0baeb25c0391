"""The states of tasks and nodes, and which change is allowed.

Theory of operation
-------------------
A task state is a Lamport clock: of two observations of one task the greater is right, so reports may arrive late, twice
or out of order and the task still converges. Nothing ever lowers a state.

* The *observed* state (`Task.status.state`) tells what is. The manager writes it below ASSIGNED and when an agent cannot
  speak for itself (ORPHANED); from ACCEPTED on the agent writes it.
* The *desired* state tells what should be. The orchestrator alone writes it, and only raises it.
* SCHEDULED is a stage of the scheduler's plan and never stored: the node is chosen and its room held, the hooks that need
  the node run, and no agent sees the task. Until the plan is committed the task is PENDING.
* A task is terminal above RUNNING. A terminal state reported by an agent also says that the task's links are down: the
  agent takes them down first. This is what makes it safe to hand its addresses to somebody else.

Numbers are SwarmKit's (`api/types.proto`), with gaps for states that others may add.
"""

from __future__ import annotations

import enum


class TaskState(enum.IntEnum):
    """Where a task is; larger always wins."""

    NEW = 0
    PENDING = 64
    ASSIGNED = 192
    ACCEPTED = 256
    PREPARING = 320
    READY = 384
    STARTING = 448
    RUNNING = 512
    COMPLETE = 576
    SHUTDOWN = 640
    FAILED = 704
    REJECTED = 768
    REMOVE = 800
    ORPHANED = 832

    @property
    def is_terminal(self) -> bool:
        """True when the task will never run again."""
        return self > RUNNING


class NodeState(enum.StrEnum):
    """Whether a node's agent can be reached."""

    UNKNOWN = "unknown"
    DOWN = "down"
    READY = "ready"
    DISCONNECTED = "disconnected"


class Availability(enum.StrEnum):
    """Whether an operator lets a node take tasks: all, no new ones, or none at all."""

    ACTIVE = "active"
    PAUSE = "pause"
    DRAIN = "drain"


class Role(enum.StrEnum):
    """What the holder of a certificate may do in the cluster: its OU. A node is a worker or a manager."""

    WORKER = "worker"
    MANAGER = "manager"
    CLIENT = "client"  # use the API from elsewhere; never a node's


# Members under names of their own, for what is asked once a task or more often: finding one in its enumeration takes longer
# than comparing it, 130 ns on Python 3.11.
NEW, PENDING, ASSIGNED, ACCEPTED = TaskState.NEW, TaskState.PENDING, TaskState.ASSIGNED, TaskState.ACCEPTED
READY, RUNNING, REJECTED = TaskState.READY, TaskState.RUNNING, TaskState.REJECTED
NODE_DOWN, DRAIN = NodeState.DOWN, Availability.DRAIN

_S = TaskState

# What each *observed* state may become. A failure may be reported from anywhere before the end, and an agent that was
# away reports only the last state it reached, so every larger agent state is reachable from a smaller one.
_AGENT_STATES = (_S.ACCEPTED, _S.PREPARING, _S.READY, _S.STARTING, _S.RUNNING)
_AGENT_ENDS = (_S.COMPLETE, _S.SHUTDOWN, _S.FAILED, _S.REJECTED)

OBSERVED_TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    _S.NEW: frozenset({_S.PENDING, _S.SHUTDOWN}),
    _S.PENDING: frozenset({_S.ASSIGNED, _S.SHUTDOWN}),
    _S.ASSIGNED: frozenset({*_AGENT_STATES, *_AGENT_ENDS, _S.ORPHANED}),
    **{
        state: frozenset({*(s for s in _AGENT_STATES if s > state), *_AGENT_ENDS, _S.ORPHANED})
        for state in _AGENT_STATES
    },
    **{state: frozenset({s for s in (*_AGENT_ENDS, _S.ORPHANED) if s > state}) for state in _AGENT_ENDS},
    _S.REMOVE: frozenset(),
    _S.ORPHANED: frozenset(),
}

# What an orchestrator may ask for, from what. READY holds a replacement back until its predecessor has stopped.
DESIRED_TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    _S.READY: frozenset({_S.RUNNING, _S.SHUTDOWN, _S.REMOVE}),
    _S.RUNNING: frozenset({_S.SHUTDOWN, _S.REMOVE}),
    _S.SHUTDOWN: frozenset({_S.REMOVE}),
    _S.REMOVE: frozenset(),
}

# What a manager may make of a node. It is READY when its agent speaks, and DOWN when it was silent for too long or has not
# spoken yet. A node that is DOWN stays so until it speaks, also over a restart of the manager: that makes others UNKNOWN.
NODE_TRANSITIONS: dict[NodeState, frozenset[NodeState]] = {
    NodeState.UNKNOWN: frozenset({NodeState.READY, NodeState.DOWN}),
    NodeState.READY: frozenset({NodeState.DOWN, NodeState.UNKNOWN, NodeState.DISCONNECTED}),
    NodeState.DOWN: frozenset({NodeState.READY}),
    NodeState.DISCONNECTED: frozenset({NodeState.READY, NodeState.DOWN, NodeState.UNKNOWN}),
}


def may_become(now: TaskState, then: TaskState) -> bool:
    """Whether an observed state may follow another. A state may always be repeated (with a newer message)."""
    return then == now or then in OBSERVED_TRANSITIONS[now]


def node_may_become(now: NodeState, then: NodeState) -> bool:
    """Whether a node's state may follow another, or be repeated."""
    return then == now or then in NODE_TRANSITIONS[now]
