"""Many different tasks at once, in arrays: for whoever keeps books of its own and needs no holds.

What is placed so occupies the table until it is given back; nobody but the caller knows of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from beeyard.core import packing
from beeyard.core.asking import Asking
from beeyard.core.demand import Demand
from beeyard.core.filters import Ask
from beeyard.core.node_table import NodeTable


class RowBatch:
    """Kinds of tasks in the kernel's form. Void as soon as anything but the kernel changes the index."""

    def __init__(self, table: NodeTable, asking: Asking, demands: Sequence[Demand]) -> None:
        """
        Args:
            demands: the kinds. Each task is of a service of its own, which has no other: `service_id` is not looked at.

        Raises:
            ValueError: a demand asks for what only `place` can give: host ports, volumes, fixed addresses, one node, or a
                limit of replicas.
        """
        for demand in demands:
            for field in ("host_ports", "volumes", "pins", "node_id", "max_replicas_per_node"):
                if getattr(demand, field):
                    raise ValueError(f"{field} {getattr(demand, field)!r}: a batch of rows has none")
        self._table = table
        self._asks: list[Ask] = [asking.ask(demand, alone=True) for demand in demands]
        self.n_networks = max((ask.n_networks for ask in self._asks), default=0)

    def place(
        self,
        kind_of: NDArray[np.int32],
        rows: NDArray[np.int32],
        amounts: NDArray[np.int64] | None = None,
        pools: NDArray[np.int32] | None = None,
    ) -> int:
        """Place tasks in their order, each on the best node of its moment. Returns how many have found room.

        Args:
            kind_of: (n_tasks,) the number of each task's kind.
            rows: (n_tasks,) overwritten: the row of each task's node, -1 where no node has room.
            amounts: (n_tasks, kinds of resources) what each task needs instead of what its demand says: 1e-9 cores, bytes,
                then generic kinds by number. The demand still decides about everything else.
            pools: (n_tasks, n_networks) overwritten: the row of the pool in each of the task's networks that has pools. It
                may be left out when no demand has such a network.

        Raises:
            ValueError, IndexError: shapes disagree, or a kind is not there.
        """
        return packing.spread_each(self._table, self._asks, kind_of, amounts, rows, self._pools(rows, pools))

    def give_back(
        self,
        kind_of: NDArray[np.int32],
        rows: NDArray[np.int32],
        amounts: NDArray[np.int64] | None = None,
        pools: NDArray[np.int32] | None = None,
    ) -> None:
        """Undo a `place`; the arguments are those that it was given and filled."""
        packing.give_back_each(self._table, self._asks, kind_of, amounts, rows, self._pools(rows, pools))

    def _pools(self, rows: NDArray[np.int32], pools: NDArray[np.int32] | None) -> NDArray[np.int32]:
        if pools is not None:
            return pools
        if self.n_networks:
            raise ValueError(f"pools: wanted for {self.n_networks} networks")
        return np.empty((len(rows), 0), dtype=np.int32)


__all__ = ["RowBatch"]
