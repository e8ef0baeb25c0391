"""The kinds of resources as the kernel numbers them: CPU, memory, then generic ones by their names.

A generic kind gets its number, a column of the table, when the first node offers some. Who asks for a kind that no node
offers, or that found no number left, fits nowhere.
"""

from __future__ import annotations

from beeyard.core.demand import AMOUNT_MAX, Demand
from beeyard.core.model import Node
from beeyard.core.node_table import KIND_COUNT_MAX, Needs, NodeTable
from beeyard.core.resources import GenericResource, Resources, Room

CPU, MEMORY = 0, 1

# Far more than the services of a cluster differ in; the tasks of a service share what was worked out once.
_NEEDS_MAX = 1024


class Kinds:
    """Numbers of the generic kinds, and amounts of demands and nodes by number."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._number: dict[str, int] = {}
        self._needs: dict[tuple[int, int, tuple[tuple[str, int], ...]], Needs] = {}
        self._nowhere = Needs([(CPU, AMOUNT_MAX)])

    def copy(self, table: NodeTable) -> Kinds:
        """The same numbers for a copy of the table."""
        twin = Kinds(table)
        twin._number, twin._needs = dict(self._number), dict(self._needs)
        return twin

    @property
    def names(self) -> list[str]:
        """Of the generic kinds, in order of their numbers, which begin at 2."""
        return list(self._number)

    def number(self, name: str) -> int:
        """The number of a generic kind; -1 when no node ever offered it."""
        return self._number.get(name, -1)

    def know(self, node: Node) -> list[str]:
        """Give numbers to what a node offers. Returns the kinds that had none."""
        new = []
        for name, _ in node.description.resources.generic_amounts:
            if name not in self._number and self._table.n_kinds < KIND_COUNT_MAX:
                self._number[name] = self._table.add_kind()
                new.append(name)
        if new:
            self._needs.clear()
        return new

    def totals(self, node: Node) -> list[int]:
        """What a node offers to tasks, by number: less than `AMOUNT_MAX`, so that who asks for that much fits nowhere."""
        has, reserved = node.description.resources, node.description.reserved
        kept = dict(reserved.generic_amounts)
        totals = [0] * self._table.n_kinds
        totals[CPU], totals[MEMORY] = has.cpu_nano - reserved.cpu_nano, has.memory_bytes - reserved.memory_bytes
        for name, amount in has.generic_amounts:
            if name in self._number:
                totals[self._number[name]] = amount - kept.get(name, 0)
        return [max(0, min(total, AMOUNT_MAX - 1)) for total in totals]

    def room(self, row: int) -> Room:
        """What a row has and what of it is free, with every kind of which there is or was some."""
        free, total, n_tasks, _ = self._table.row(row)
        kinds = [(name, number) for name, number in sorted(self._number.items()) if total[number] or free[number]]

        def named(amounts: list[int]) -> Resources:
            generic = tuple(GenericResource(kind=name, value=amounts[number]) for name, number in kinds)
            return Resources(cpu_nano=amounts[CPU], memory_bytes=amounts[MEMORY], generic=generic)

        return Room(total=named(total), free=named(free), n_tasks=n_tasks)

    def needs(self, demand: Demand) -> Needs:
        """What each task of a demand takes from its node. Kinds without a number are left out: no node has them."""
        key = (*demand.amounts, demand.generic)
        needs = self._needs.get(key)
        if needs is None:
            generic = [(self._number[name], amount) for name, amount in demand.generic if name in self._number]
            pairs = [(CPU, key[0]), (MEMORY, key[1]), *generic]
            needs = Needs(sorted((kind, max(0, min(amount, AMOUNT_MAX))) for kind, amount in pairs))
            if len(self._needs) >= _NEEDS_MAX:
                self._needs.clear()
            self._needs[key] = needs
        return needs

    def asked(self, demand: Demand) -> Needs:
        """What a node must have free for a demand: more than any has when a kind has no number."""
        unknown = any(amount > 0 and name not in self._number for name, amount in demand.generic)
        return self._nowhere if unknown else self.needs(demand)


__all__ = ["CPU", "MEMORY", "Kinds"]
