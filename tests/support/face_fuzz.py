"""Calls the compiled kernel with arguments of every wrong kind: what must come back is an exception, never a crash.

    python -m tests.support.face_fuzz random FIRST_SEED LAST_SEED CALLS
    python -m tests.support.face_fuzz hypothesis EXAMPLES CALLS

Run in a process of its own, since what it looks for ends one. It prints how many calls worked and how many were refused. On a
build with run-time checks an index out of bounds, which would be a silent read of foreign memory without them, is told as a
failure.
"""

from __future__ import annotations

import faulthandler
import random
import resource
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beeyard.core import filters, packing
from beeyard.core.best_fit import BestFit, place_at
from beeyard.core.bin_packing import BinPacking
from beeyard.core.branches import Branches
from beeyard.core.filters import Ask
from beeyard.core.fragments import Fragments
from beeyard.core.node_index import NodeIndex
from beeyard.core.node_table import Needs, NodeTable
from beeyard.core.placement import Demand, PlacementIndex, PoolColumn
from tests.support.builders import a_node

MEMORY_MAX = 3 << 30
DTYPES = (np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64, np.bool_)
POWERS = (1 << 31, (1 << 31) - 1, -(1 << 31), 1 << 53, (1 << 63) - 1, -(1 << 63), 1 << 64)
NUMBERS = (0, 1, 2, -1, -2, 3, 7, 64, 255, 256, *POWERS)
ODD = (None, "", "x", b"x", [], {}, (), object(), float("nan"), float("inf"), -float("inf"), 1.5, True, 1 << 200, 3j)
# What the checks of the debug build say where a release build would read foreign memory.
FOREIGN = ("Out of bounds on buffer access", "Cannot index None")


class Fuzz:
    """A table with some tasks, an Ask that fits it, and calls whose arguments are right but for one or two."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.outcomes: Counter[str] = Counter()
        self.table = NodeTable()
        for _ in range(rng.choice([0, 0, 1, 2])):
            self.table.add_kind()
        for row in range(rng.choice([0, 1, 5, 70, 300])):
            self.table.add_row(rng.getrandbits(64))
            for kind in range(self.table.n_kinds):
                self.table.set_total(row, kind, rng.randint(0, 20))
            self.table.set_ready(row, rng.random() < 0.9)
        self.fragments, self.best_fit, self.index = Fragments(self.table.n_kinds), BestFit(), NodeIndex()
        self.packing = BinPacking(2, [(((1, 2), 0, 1000), 5)], [1.0, 1.0, 0.0])
        self.n_networks = rng.choice([0, 0, 1, 2])
        self.ask = Ask(*self.ask_parts(), **self.ask_options())
        self.face = PlacementIndex()
        self.n_tasks = 0
        for number in range(rng.choice([0, 1, 70])):
            self.face.set_node(self.node(number))
        pools = [PoolColumn(f"p{number}", f"lan{number}", "eth0", "", 3) for number in range(2)]
        self.face.set_network("lan", "macvlan", pools)

    # --- arguments ---------------------------------------------------------------------------------------------------

    def number(self) -> Any:
        return self.rng.choice(NUMBERS) if self.rng.random() < 0.8 else self.rng.choice(ODD)

    def small(self) -> int:
        return self.rng.randint(-1, self.table.size + 1)

    def array(self) -> Any:
        """Any shape, type, order, values."""
        rng = self.rng
        shape = tuple(rng.choice([0, 1, 2, 5, 64, self.table.size]) for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3])))
        numbers = np.array([rng.randint(-3, 9) for _ in range(int(np.prod(shape)))], dtype=np.int64).reshape(shape)
        with np.errstate(all="ignore"):
            made = numbers.astype(rng.choice(DTYPES))
        if made.dtype.kind == "f" and made.size:
            made.flat[rng.randrange(made.size)] = rng.choice(
                [np.nan, np.inf, -np.inf, 1e300 if made.itemsize == 8 else 1e30]
            )
        if rng.random() < 0.2:
            made = made.T
        if rng.random() < 0.2 and made.ndim:
            made = made[::-1]
        if rng.random() < 0.2:
            made.flags.writeable = False
        return made

    def needs(self) -> Needs:
        kinds = sorted(self.rng.sample(range(self.table.n_kinds), self.rng.randint(0, self.table.n_kinds)))
        return Needs([(kind, self.rng.randint(0, 4)) for kind in kinds])

    def amounts(self) -> Any:
        n = self.rng.choice([self.table.n_kinds, 1, 16])
        return ([self.rng.randint(0, 9) for _ in range(n)], self.rng.randint(0, 2), self.rng.choice([100, 1000]))

    def column(self, low: int, high: int, dtype: type[Any], length: int | None = None) -> Any:
        n = self.table.size if length is None else length
        return np.array([self.rng.randint(low, high) for _ in range(n)], dtype=dtype)

    def whole(self) -> int:
        return self.rng.choice([n for n in NUMBERS if isinstance(n, int)])

    def node(self, number: int) -> Any:
        """Most have room; some offer what no machine has."""
        odd = self.rng.random() < 0.2
        cpu, memory = (self.whole(), self.whole()) if odd else (8, 8)
        return a_node(f"n{number}", cpu_nano=cpu, memory_bytes=memory, generic={"gpu": self.whole() if odd else 2})

    def demand(self) -> Demand:
        rng = self.rng
        odd = rng.random() < 0.3
        return Demand(
            "s1",
            cpu_nano=self.whole() if odd else 1,
            memory_bytes=self.whole() if odd else 1,
            network_ids=rng.choice([(), (), ("lan",), ("none",)]),
            max_replicas_per_node=self.whole() if odd else 0,
            generic=(("gpu", self.whole()),) if rng.random() < 0.3 else (),
            strategy=rng.choice(["", "pack", "shape", "fgd"]),
        )

    def new_tasks(self, n: int) -> list[str]:
        self.n_tasks += n
        return [f"t{number}" for number in range(self.n_tasks - n, self.n_tasks)]

    def pools_of(self, n_tasks: int) -> Any:
        return np.zeros((n_tasks, self.n_networks), dtype=np.int32)

    def ask_parts(self) -> list[Any]:
        size, networks = self.table.size, self.n_networks
        return [
            self.table,
            self.needs(),
            self.rng.choice([0, 0, 1, 2]),
            self.rng.random() < 0.2,
            self.column(0, 1, np.uint8),
            self.column(0, 1, np.uint8),
            self.column(0, 1, np.uint8),
            self.column(0, 2, np.int32),
            self.column(-1, 1, np.int32, size * networks).reshape(size, networks),
            np.arange(networks + 1, dtype=np.int32),
            self.column(0, 9, np.int64, 2),
            np.zeros(networks, dtype=np.int32),
        ]

    def ask_options(self) -> dict[str, Any]:
        rng, options = self.rng, {}
        if rng.random() < 0.3:
            options["penalty"] = self.column(0, 1, np.int32)
        if rng.random() < 0.3:
            options["passing"] = self.table.index.pack(np.zeros(self.table.size, dtype=np.uint8))
        if rng.random() < 0.2:
            options["only"] = rng.randint(-1, self.table.size + 2)
        if rng.random() < 0.3:
            options["branches"] = Branches(*self.branches())
        if rng.random() < 0.2 and self.n_networks:
            options |= {name: np.zeros((self.n_networks, 2), dtype=np.int32) for name in ("link_parent", "link_kind")}
            options |= {name: np.zeros((1, self.table.size), dtype=np.int32) for name in ("use_kind", "use_count")}
        return options

    def branches(self) -> list[Any]:
        return [
            self.table.size,
            self.column(0, 1, np.int32),
            np.array([[0, 1], [0, 2]], dtype=np.int32),
            np.ones(3, dtype=np.int32),
            np.zeros(3, dtype=np.uint8),
            np.zeros(3, dtype=np.int64),
        ]

    # --- calls -------------------------------------------------------------------------------------------------------

    def calls(self) -> list[tuple[Callable[..., Any], list[Any], dict[str, Any]]]:
        """Every one with arguments that are right, more or less."""
        rng, table = self.rng, self.table
        n = rng.choice([0, 1, 3, 70])
        rows, kinds = self.column(-1, table.size, np.int32, n), np.zeros(n, dtype=np.int32)
        varied = self.column(0, 3, np.int64, n * table.n_kinds).reshape(n, table.n_kinds)
        room = [rng.randint(0, 9) for _ in range(table.n_kinds)]
        plain: list[tuple[Callable[..., Any], list[Any]]] = [
            (Needs, [[(0, self.number())]]),
            (table.add_row, [rng.getrandbits(64)]),
            (table.remove_row, [self.small()]),
            (table.set_ready, [self.small(), True]),
            (table.set_total, [self.small(), rng.randint(0, 3), rng.randint(0, 99)]),
            (table.change_free, [self.small(), rng.randint(0, 3), rng.randint(-9, 9)]),
            (table.hold, [self.small(), self.needs()]),
            (table.give_back, [self.small(), self.needs()]),
            (table.free_of, [rng.randint(0, 3)]),
            (table.row, [self.small()]),
            (table.copy, []),
            (table.index.pack, [self.column(0, 1, np.uint8)]),
            (self.index.pack, [self.column(0, 1, np.uint8)]),
            (filters.check_row, [table, self.ask, self.small()]),
            (filters.check_all, [table, self.ask, self.column(0, 0, np.uint8)]),
            (filters.check_sets, [table, self.ask, self.column(0, 0, np.uint32)]),
            (packing.spread, [table, self.ask, rows, self.pools_of(n)]),
            (packing.spread_each, [table, [self.ask], kinds, rng.choice([None, varied]), rows, self.pools_of(n)]),
            (packing.give_back_each, [table, [self.ask], kinds, rng.choice([None, varied]), rows, self.pools_of(n)]),
            (self.best_fit.place, [table, self.ask, rng.choice([0, 1, 2, -1]), rows, self.pools_of(n)]),
            (self.best_fit.place_each, [table, self.ask, rng.choice([0, 1]), varied, rows]),
            (place_at, [table, self.ask, self.column(0, max(0, table.size - 1), np.int32, n), rows, self.pools_of(n)]),
            (Branches, self.branches()),
            (Fragments, [rng.choice([1, 2, 16, 17])]),
            (self.fragments.set_row, [rng.randint(0, self.fragments.n_rows), room, room, [1000, 500]]),
            (self.fragments.row, [self.small()]),
            (self.fragments.lost, [self.small()]),
            (self.fragments.set_mix, [[(self.amounts(), 3)]]),
            (self.fragments.follow, [table]),
            (self.fragments.place, [table, self.ask, rows, self.pools_of(n)]),
            (self.fragments.take, [self.small(), rng.randint(-2, 9), self.amounts()]),
            (self.fragments.give_back, [self.small(), rng.randint(-2, 9), self.amounts()]),
            (BinPacking, [2, [(((1, 2), 0, 1000), 5)], [1.0, float("nan"), -1.0]]),
            (self.packing.add_bin, [[9, 9], [9, 9], [], True, rng.choice([b"", b"\x00", b"\x00\x00"])]),
            (self.packing.fill, []),
            (self.packing.tasks_in, [self.small()]),
        ]
        plain += self.calls_of_face(rows, kinds)
        return [*((call, arguments, {}) for call, arguments in plain), (Ask, self.ask_parts(), self.ask_options())]

    def calls_of_face(self, rows: Any, kinds: Any) -> list[tuple[Callable[..., Any], list[Any]]]:
        """Those of the index and of its batches of rows, with numbers that are too large, or negative."""
        n, face, n_kinds = len(rows), self.face, self.face._table.n_kinds
        demand = self.demand()
        alone = msgspec.structs.replace(demand, max_replicas_per_node=0)
        batch = face.batch([alone])
        amounts = self.column(0, 3, np.int64, n * n_kinds).reshape(n, n_kinds)
        pools = np.zeros((n, batch.n_networks), dtype=np.int32)
        arrays = [kinds, rows, self.rng.choice([None, amounts]), pools]
        groups = [(self.demand(), self.new_tasks(self.rng.choice([1, 3, 300]))) for _ in range(2)]
        return [
            (batch.place, arrays),
            (batch.give_back, arrays),
            (face.set_node, [self.node(self.rng.randrange(80))]),
            (face.remove_node, [f"n{self.rng.randrange(80)}"]),
            (face.place, [demand, self.new_tasks(3)]),
            (face.place_many, [groups]),
            (face.hold, [*self.new_tasks(1), demand, f"n{self.rng.randrange(80)}"]),
            (face.drop, [f"t{self.rng.randrange(self.n_tasks)}"]),
            (face.set_pool_free, ["p0", self.whole()]),
            (face.explain, [demand]),
        ]

    def spoil(self, value: Any) -> Any:
        """Something else in the place of an argument."""
        rng = self.rng
        if isinstance(value, np.ndarray) and rng.random() < 0.5:
            kind = rng.randrange(4)
            if kind == 0 and value.size and value.ndim:
                return value[: rng.randint(0, len(value))]
            if kind == 1 and value.size and value.dtype.kind in "iu":
                spoiled, info = value.copy(), np.iinfo(value.dtype)
                spoiled.flat[rng.randrange(value.size)] = rng.choice([info.min, info.max, 1 + int(value.flat[0])])
                return spoiled
            with np.errstate(all="ignore"):
                other = value.astype(rng.choice(DTYPES))
            return other if kind == 2 else np.repeat(value, 2, axis=-1) if value.ndim else None
        return rng.choice([self.number, self.array, self.needs, self.amounts, lambda: rng.choice(ODD)])()

    def step(self) -> None:
        """One call. What comes back is a result, or an exception that is not about foreign memory."""
        call, arguments, options = self.rng.choice(self.calls())
        for _ in range(self.rng.choice([0, 1, 1, 2])):
            if options and self.rng.random() < 0.4:
                name = self.rng.choice(sorted(options))
                options[name] = self.spoil(options[name])
            elif arguments:
                at = self.rng.randrange(len(arguments))
                arguments[at] = self.spoil(arguments[at])
        try:
            result = call(*arguments, **options)
        except Exception as error:
            said = str(error)
            assert not any(words in said for words in FOREIGN), f"{call} of {arguments} {options}: {said}"
            self.outcomes["refused"] += 1
            return
        self.outcomes["done"] += 1
        # An Ask of another table, or of this one when it was shorter, is used too.
        if isinstance(result, Ask):
            self.ask = result


def run(rng: random.Random, n_calls: int) -> Counter[str]:
    """One table and so many calls."""
    fuzz = Fuzz(rng)
    for _ in range(n_calls):
        fuzz.step()
    return fuzz.outcomes


def main() -> None:
    """As the arguments say."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    how, *numbers = sys.argv[1:]
    total: Counter[str] = Counter()
    if how == "random":
        first, last, n_calls = map(int, numbers)
        for seed in range(first, last):
            total += run(random.Random(seed), n_calls)
    else:
        n_examples, n_calls = map(int, numbers)

        @settings(max_examples=n_examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(st.randoms(use_true_random=False))
        def any_calls(rng: random.Random) -> None:
            total.update(run(rng, n_calls))

        any_calls()
    print(f"{total['done']} done, {total['refused']} refused")


if __name__ == "__main__":
    main()
