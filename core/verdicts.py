"""The kernel's verdicts on many nodes, counted and put as reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from beeyard.core import filters, reasons
from beeyard.core.demand import ReasonCount
from beeyard.core.node_columns import Fit
from beeyard.core.reasons import Reason

_VERDICTS = {
    filters.VERDICT_NOT_READY: Reason.NOT_READY,
    filters.VERDICT_RESOURCES: Reason.RESOURCES,
    filters.VERDICT_HOST_PORT: Reason.HOST_PORT,
    filters.VERDICT_MAX_REPLICAS: Reason.MAX_REPLICAS,
    filters.VERDICT_REFUSED: Reason.REFUSED,
}


def count_reasons(
    fit: Fit,
    rows: NDArray[np.intp],
    verdicts: NDArray[np.integer],
    pool_names: Sequence[str],
    link_conflict: Callable[[int, int], str],
) -> list[ReasonCount]:
    """Verdicts in words, counted.

    Args:
        fit: of the demand.
        rows: with a verdict that is not FITS each.
        verdicts: of these rows.
        pool_names: by pool row.
        link_conflict: (number of the network, row) → what is in the way of a link there, as `Reason.PARENT_TAKEN` has it.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for verdict, n_nodes in zip(*(part.tolist() for part in np.unique(verdicts, return_counts=True)), strict=True):
        if verdict >= filters.VERDICT_STATIC:
            counts[fit.reasons[verdict - filters.VERDICT_STATIC - 1]] += n_nodes
        elif verdict >= filters.VERDICT_LINK:
            for row in rows[verdicts == verdict].tolist():
                counts[Reason.PARENT_TAKEN, link_conflict(verdict - filters.VERDICT_LINK, row)] += 1
        elif verdict >= filters.VERDICT_POOL:
            network = verdict - filters.VERDICT_POOL
            begin, end = fit.network_begin[network : network + 2].tolist()
            for pools, n in _distinct(fit.pools[rows[verdicts == verdict], begin:end]):
                names = ", ".join(pool_names[pool] for pool in pools if pool >= 0)
                counts[Reason.POOL_EXHAUSTED, names] += n
        else:
            counts[_VERDICTS[verdict], ""] += n_nodes
    return reasons.in_order((reason, detail, n) for (reason, detail), n in counts.items())


def _distinct(rows: NDArray[np.int32]) -> list[tuple[list[int], int]]:
    """The different rows of a table and how often each occurs."""
    values, counts = np.unique(rows, axis=0, return_counts=True)
    return list(zip(values.tolist(), counts.tolist(), strict=True))


__all__ = ["count_reasons"]
