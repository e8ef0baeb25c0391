"""Large numbers of waiting tasks that are to be packed: decided together, bin by bin, and how good that was.

One after another a task takes the best node for itself; together the nodes take the best tasks for themselves, which fills
them further (`core.bin_packing`). What was achieved is logged and told to Prometheus, beside what no packing can beat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import structlog

from beeyard.core.batch import TASKS_MIN, PackingReport
from beeyard.core.placement import Decision, Demand, PlacementIndex
from beeyard.manager.blocked import Group

# Tries to pack better, once all tasks have a place: some 0.1 s while nothing else is done. More find little.
ROUNDS = 1000
# Most tasks * groups of a lot, which is what filling the nodes costs: about 0.2 s.
LOT_MAX = 10_000_000

log = structlog.get_logger(__name__)


class Lot(NamedTuple):
    """Groups that are decided at once."""

    groups: list[Group]
    packed: bool  # together, bin by bin; else it is one group


class Batches:
    """Places batches, and remembers how the last one came out."""

    def __init__(self) -> None:
        self.n_batches = 0  # packed bin by bin
        self.n_tasks = 0  # that got their places so
        self.last: PackingReport | None = None  # None: there was none yet
        self._kinds: list[str] = []  # of the last report

    def place(
        self, index: PlacementIndex, groups: Sequence[tuple[Demand, Sequence[str]]], now_s: float
    ) -> list[Decision]:
        """Decide on groups at once: see `PlacementIndex.place_many`."""
        decisions, report = index.place_many(groups, now_s=now_s, rounds=ROUNDS)
        if report is not None and report.n_tasks:
            self.n_batches += 1
            self.n_tasks += report.n_tasks
            self.last, self._kinds = report, index.kind_names
            gaps = {kind: round(gap, 4) for kind, _, gap in self.by_kind() if gap is not None}
            log.info(
                "packed", stage="PENDING", placed=report.n_tasks, opened=report.opened, bound=report.bound, gap=gaps
            )
        return decisions

    def by_kind(self) -> list[tuple[str, int, float | None]]:
        """Of the last batch: for each kind, how many empty nodes any packing opens for it, and by what part more were opened.

        The gap is None where nodes in use had room enough of the kind: it bounds nothing.
        """
        if self.last is None:
            return []
        columns = zip(self._kinds, self.last.bound_by_kind, self.last.gap_by_kind, strict=True)
        return [(kind, bound, gap if bound else None) for kind, bound, gap in columns]


def in_lots(groups: Sequence[Group], n_tasks: Callable[[Group], int], may_join: Callable[[Group], bool]) -> list[Lot]:
    """The same groups in lots: those that may be packed together, when enough of their tasks wait; each other by itself.

    Those that can go to one node alone come first, as before: they are never packed.
    """
    joining: list[Group] = []
    if sum(map(n_tasks, groups)) >= TASKS_MIN:
        joining = [group for group in groups if may_join(group)]
        if sum(map(n_tasks, joining)) < TASKS_MIN:
            joining = []
    packed: list[Lot] = []
    n_in_last = 0
    for group in joining:
        n_in_last += n_tasks(group)
        if not packed or n_in_last * (len(packed[-1].groups) + 1) > LOT_MAX:
            packed.append(Lot([], packed=True))
            n_in_last = n_tasks(group)
        packed[-1].groups.append(group)
    packs = frozenset(joining)
    alone = [Lot([group], packed=False) for group in groups if group not in packs]
    bound = [lot for lot in alone if lot.groups[0][3]]
    return [*bound, *packed, *(lot for lot in alone if not lot.groups[0][3])]


__all__ = ["LOT_MAX", "ROUNDS", "Batches", "Lot", "in_lots"]
