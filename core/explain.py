"""Why a task has no place, in full: the first filters that nodes fail, everything that each node lacks, what would help."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec
import numpy as np

from beeyard.core import reasons
from beeyard.core.counterfactual import Counterfactuals
from beeyard.core.demand import Demand, ReasonCount
from beeyard.core.pool_rows import PoolRows
from beeyard.core.reasons import Reason
from beeyard.core.relaxation import Relaxation
from beeyard.core.requirements import Requirements

# (demand, masked nodes) → how many of the nodes it may go to fit, and the first filters that the others fail.
Why = Callable[[Demand, Collection[str]], tuple[int, list[ReasonCount]]]


class NodeLacks(msgspec.Struct, frozen=True):
    """Everything that keeps a task from one node; nothing where it fits."""

    node_id: str
    lacks: tuple[tuple[Reason, str], ...]  # in the order of the filters, with what is meant where there may be several


class Explanation(msgspec.Struct, frozen=True):
    """Why a task has a place or none."""

    n_nodes: int  # nodes that it may go to at all
    n_fitting: int
    counts: list[ReasonCount]  # as a decision has them: each node under the first filter that it fails
    sentence: str  # "" when some node fits
    relaxations: list[Relaxation]  # smallest first; none when some node fits
    nodes: list[NodeLacks]  # in order of the rows; only when they were asked for


class Explainer:
    """Explains demands, over the parts of one placement index."""

    def __init__(self, requirements: Requirements, pools: PoolRows, why: Why) -> None:
        self._requirements = requirements
        self.counterfactuals = Counterfactuals(requirements, pools)
        self._why = why

    def explain(
        self, demand: Demand, *, masked: Collection[str] = (), n_tasks: int = 1, nodes: bool = False
    ) -> Explanation:
        """All that is known of where a demand fits now. Changes nothing; O(nodes * what is required).

        Args:
            masked: nodes that a hook refused.
            n_tasks: how many tasks wait.
            nodes: whether to say of every node what it lacks.
        """
        n_fitting, counts = self._why(demand, masked)
        rows = self._requirements.rows(demand)
        return Explanation(
            n_nodes=len(rows),
            n_fitting=n_fitting,
            counts=counts,
            sentence="" if n_fitting else reasons.of_demand(demand.node_id, counts),
            relaxations=[] if n_fitting else self.counterfactuals.find(demand, masked, n_tasks),
            nodes=self.nodes(demand, masked) if nodes else [],
        )

    def nodes(self, demand: Demand, masked: Collection[str] = ()) -> list[NodeLacks]:
        """What each node that a demand may go to lacks."""
        required, rows = self._requirements.of(demand, masked), self._requirements.rows(demand)
        words = [(one.reason, _detail(one.what, one.name)) for one in required]
        ids = self._requirements.asking.columns.ids
        lacking = [one.lacking[rows] for one in required]
        table = np.array(lacking, dtype=bool).reshape(len(required), len(rows)).T.tolist()
        return [
            NodeLacks(ids[row], tuple(word for word, lacks in zip(words, of_row, strict=True) if lacks))
            for row, of_row in zip(rows.tolist(), table, strict=True)
        ]


def _detail(what: str, name: str) -> str:
    return name or {"cpu": "CPU", "memory": "memory"}.get(what, "")


__all__ = ["Explainer", "Explanation", "NodeLacks"]
