"""The loop that looks who has fallen silent, and writes what `Liveness` finds into the store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import structlog
import trio

from beeyard.core.errors import DiskError
from beeyard.core.model import Node
from beeyard.core.states import NodeState
from beeyard.manager.ca import JOINED
from beeyard.manager.dispatch.liveness import CLOCK_GAP_S, HEARTBEAT_FAILURE, LIVE_STATES, Liveness
from beeyard.manager.store import Store, Transaction
from beeyard.runtime.host import Host

# Fine enough for a bound of 15 s, and cheap: 10,000 nodes take 2 ms.
TICK_S = 1.0
# An agent opens its first session at once after joining. Who has not within this never got its certificate, and has joined
# again as another node; a clock that jumps costs such an agent a second join.
UNOPENED_S_MAX = 3600.0
RESTARTED = "the manager was restarted and has not heard of this node yet"

log = structlog.get_logger(__name__)


async def mark_unknown(store: Store) -> None:
    """Nodes that were READY when this manager's last life ended may be gone: nothing new goes there until they speak."""

    def build(tx: Transaction) -> None:
        for node in list(tx.nodes.values()):
            if node.status.state in (NodeState.READY, NodeState.DISCONNECTED):
                _set_state(tx, node, NodeState.UNKNOWN, RESTARTED)

    try:
        await store.commit(build)
    except DiskError as error:
        log.error("nodes not marked unknown after the restart", error=str(error))


async def watch_liveness(
    host: Host, store: Store, liveness: Liveness, on_down: Callable[[str], None], before: Callable[[float], None]
) -> None:
    """Judge once a second until cancelled.

    Args:
        on_down: called with each node once it is DOWN in the store.
        before: called with the time before each judgement.
    """
    while True:
        slept_s = trio.current_time()
        await trio.sleep(TICK_S)
        await host.running()
        now_s = trio.current_time()
        if now_s - slept_s > TICK_S + CLOCK_GAP_S:
            log.warning("this manager did not run for a while", seconds=round(now_s - slept_s, 1))
            liveness.clock_gap(now_s)
        if store.cluster is not None:
            liveness.period_s = store.cluster.heartbeat_s
        before(now_s)
        failed = liveness.judge(store.nodes, now_s)
        settled = liveness.settled(store.nodes)
        unopened = _unopened(store, host.wall_now_s())
        if not failed and not settled and not unopened:
            continue
        write = partial(_write, liveness=liveness, failed=failed, settled=settled, unopened=unopened)
        try:
            down = await store.commit(write)
        except DiskError as error:
            log.error("cannot store which nodes are down, trying again", error=str(error))
            continue
        for node in down:
            log.warning("node is down", node=node.id, mass_failure=liveness.mass_failure(store.nodes, now_s))
            on_down(node.id)


def _unopened(store: Store, now_s: float) -> list[Node]:
    """Nodes that joined long ago and never opened a session."""
    limit_s = now_s - UNOPENED_S_MAX
    return [n for n in store.nodes.values() if n.status.message == JOINED and n.status.since_s < limit_s]


def _write(
    tx: Transaction, liveness: Liveness, failed: list[Node], settled: list[Node], unopened: list[Node]
) -> list[Node]:
    """Mark nodes down, tell that a mass failure is over, drop joins that came to nothing; gives the nodes that went down."""
    now_s = trio.current_time()
    down = []
    for node in (tx.get(Node, seen.id) for seen in failed):
        # Who was heard of while this commit waited in the queue is not down.
        if node is not None and node.status.state in LIVE_STATES and liveness.is_silent(node.id, now_s):
            _set_state(tx, node, NodeState.DOWN, liveness.down_message(node.id, now_s))
            down.append(node)
    for node in (tx.get(Node, seen.id) for seen in settled):
        if node is not None and node.status.state is NodeState.DOWN:
            status = msgspec.structs.replace(node.status, message=HEARTBEAT_FAILURE)
            tx.update(msgspec.structs.replace(node, status=status))
    for node in (tx.get(Node, seen.id) for seen in unopened):
        if node is not None and node.status.message == JOINED:
            tx.delete(Node, node.id)
    return down


def _set_state(tx: Transaction, node: Node, state: NodeState, message: str) -> None:
    status = msgspec.structs.replace(node.status, state=state, message=message, since_s=tx.now_s)
    tx.update(msgspec.structs.replace(node, status=status))
