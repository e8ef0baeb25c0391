"""By which rule a task's node is chosen among those that fit: `spread`, `pack`, `shape` or `fgd`.

Whether a node fits is `filters.Ask.check` for all of them; a strategy only says in which order nodes are tried. A service
chooses by its label `beeyard.strategy`, else the cluster's strategy holds. Preferences are a way to spread, and a task that
is bound to a node has nothing to choose: both are placed by `spread` whatever the strategy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from beeyard.core import packing
from beeyard.core.best_fit import FORM_PACK, FORM_SHAPE, BestFit
from beeyard.core.demand import Demand
from beeyard.core.filters import Ask
from beeyard.core.fragments import Fragments
from beeyard.core.kinds import Kinds
from beeyard.core.labels import STRATEGIES
from beeyard.core.node_table import NodeTable

SPREAD, PACK, SHAPE, FGD = STRATEGIES

_FORMS = {PACK: FORM_PACK, SHAPE: FORM_SHAPE}

# The usual tasks that `fgd` looks at: the classes asked for most. The gain of more is below what seeds differ by.
CLASSES_MAX = 64

# Tasks asked for before the usual ones are chosen first; they are chosen again whenever there are twice as many.
TASKS_FIRST = 32

# Classes that are counted; the one asked for least is forgotten when there are more.
_COUNTED_MAX = 1024


class Strategies:
    """Places groups on one table, each by its strategy."""

    def __init__(self, table: NodeTable, kinds: Kinds, default: str = SPREAD) -> None:
        """
        Raises:
            ValueError: there is no such strategy.
        """
        if default not in STRATEGIES:
            raise ValueError(f"strategy {default!r}: one of {', '.join(STRATEGIES)}")
        self.default = default
        self._table = table
        self._kinds = kinds
        self._best_fit = BestFit()
        self._fragments: Fragments | None = None
        self._asked_for: dict[tuple[tuple[int, int], ...], int] = {}  # tasks by what each needs of each kind
        self._n_asked_for = 0
        self._usual: list[tuple[tuple[tuple[int, int], ...], int]] = []  # the mix: those asked for most
        self._learns = True
        self._n_mixed = 0  # how many had been asked for when the mix was chosen

    def of(self, demand: Demand) -> str:
        """The strategy that a demand is placed by."""
        strategy = demand.strategy if demand.strategy in STRATEGIES else self.default
        return SPREAD if demand.preferences or demand.node_id else strategy

    def place(self, demand: Demand, ask: Ask, rows: NDArray[np.int32], pools: NDArray[np.int32]) -> int:
        """Place a group, the same as one task after another. Arguments and result are those of `packing.spread`."""
        self._note(demand, len(rows))
        strategy = self.of(demand)
        if strategy == SPREAD:
            return packing.spread(self._table, ask, rows, pools)
        if strategy == FGD:
            return self._mixed().place(self._table, ask, rows, pools)
        return self._best_fit.place(self._table, ask, _FORMS[strategy], rows, pools)

    @contextmanager
    def unlearned(self) -> Iterator[None]:
        """Tasks are placed only to try: nothing is learned from them."""
        self._learns = False
        try:
            yield
        finally:
            self._learns = True

    def _note(self, demand: Demand, n_tasks: int) -> None:
        """Learn what is usual."""
        if not self._learns:
            return
        needs = tuple(self._kinds.needs(demand).pairs())
        self._asked_for[needs] = self._asked_for.get(needs, 0) + n_tasks
        self._n_asked_for += n_tasks
        if len(self._asked_for) > _COUNTED_MAX:
            del self._asked_for[min(self._asked_for, key=lambda needs: (self._asked_for[needs], needs))]

    def _mixed(self) -> Fragments:
        """Fragments that follow the table and know the usual tasks."""
        n_kinds = self._table.n_kinds
        if self._fragments is None or self._fragments.n_kinds != n_kinds:
            self._fragments = Fragments(n_kinds)
            self._set_mix(self._fragments)
        self._fragments.follow(self._table)
        if self._learns and self._n_asked_for >= max(TASKS_FIRST, 2 * self._n_mixed):
            self._n_mixed = self._n_asked_for
            self._usual = sorted(self._asked_for.items(), key=lambda item: (-item[1], item[0]))[:CLASSES_MAX]
            self._set_mix(self._fragments)
        return self._fragments

    def _set_mix(self, fragments: Fragments) -> None:
        """Tell what is usual, with all kinds that the table has by now."""
        mix = [
            (tuple(dict(needs).get(kind, 0) for kind in range(fragments.n_kinds)), n_tasks)
            for needs, n_tasks in self._usual
        ]
        fragments.set_mix([((amounts, 0, 1000), n_tasks) for amounts, n_tasks in mix])

    def copy(self, table: NodeTable, kinds: Kinds) -> Strategies:
        """The same for a copy of the table: it chooses as this one does, and learns for itself."""
        twin = Strategies(table, kinds, self.default)
        twin._asked_for, twin._n_asked_for = dict(self._asked_for), self._n_asked_for
        twin._usual, twin._n_mixed = list(self._usual), self._n_mixed
        twin._learns = self._learns
        return twin


__all__ = ["FGD", "PACK", "SHAPE", "SPREAD", "Strategies"]
