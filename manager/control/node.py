"""Changing and removing nodes."""

from __future__ import annotations

import msgspec

from beeyard.core.errors import FailedPrecondition
from beeyard.core.model import Node, NodeSpec
from beeyard.core.states import NodeState, TaskState
from beeyard.manager.store import Store, Transaction


async def update_node(store: Store, node_id: str, version: int, spec: NodeSpec) -> Node:
    """Replace what the operator decides about a node.

    Raises:
        NotFound, OutOfSequence, DiskError
    """

    def build(tx: Transaction) -> Node:
        node = tx.find(Node, node_id)
        return tx.update(msgspec.structs.replace(node, spec=spec), expected_version=version)

    return await store.commit(build)


async def remove_node(store: Store, node_id: str, *, force: bool) -> None:
    """Remove a node from the cluster; its certificate is worth nothing from then on.

    With `force` a person vouches that the machine is gone: tasks that may still run there become ORPHANED in the same
    transaction, and with that their addresses may be handed out again.

    Raises:
        NotFound, DiskError
        FailedPrecondition: it is the manager; or, without `force`, it is not down or may still run tasks.
    """

    def build(tx: Transaction) -> None:
        node = tx.find(Node, node_id)
        _check_removable(tx, node, force)
        for task in tx.tasks_of_node(node.id):
            if task.holds_room:
                status = msgspec.structs.replace(
                    task.status,
                    state=TaskState.ORPHANED,
                    message="node removed by force",
                    err=f"node {node.description.hostname or node.id} was removed by force",
                    at_s=tx.now_s,
                )
                tx.update(msgspec.structs.replace(task, status=status))
        tx.delete(Node, node.id)

    await store.commit(build)


def _check_removable(tx: Transaction, node: Node, force: bool) -> None:
    if tx.cluster is not None and node.id == tx.cluster.manager_node_id:
        raise FailedPrecondition(f"node {node.id} is a cluster manager and cannot be removed")
    if force:
        return
    if node.status.state not in (NodeState.DOWN, NodeState.DISCONNECTED):
        raise FailedPrecondition(f"node {node.id} is not down and can't be removed")
    n_tasks = sum(task.holds_room for task in tx.tasks_of_node(node.id))
    if n_tasks:
        raise FailedPrecondition(
            f"node {node.id} may still run {n_tasks} task{'s' if n_tasks > 1 else ''} and hold their addresses: "
            "make sure that the machine is off, then use --force"
        )


__all__ = ["remove_node", "update_node"]
