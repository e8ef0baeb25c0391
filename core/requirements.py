"""A demand taken apart into what it requires, one thing at a time, and for each the nodes that do not have it.

A node fits when it has everything; with the kernel's verdict on the whole demand this agrees node by node, which the tests
compare. What does not change with the tasks is asked as a demand for that one thing, so its answers are remembered with those
of whole demands; the rest is read where the kernel reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from beeyard.core import filters
from beeyard.core.asking import Asking
from beeyard.core.demand import Demand
from beeyard.core.holds import Holds
from beeyard.core.kinds import CPU, MEMORY, Kinds
from beeyard.core.node_table import NodeTable
from beeyard.core.reasons import Reason
from beeyard.core.relaxation import Yield

Rows = NDArray[np.bool_]

# Bits of `filters.check_sets`.
_SET_OF_LINK, _ABSENT = 17, 31


class Requirement(msgspec.Struct, frozen=True):
    """One thing that a demand requires, and the rows of the table where it is missing."""

    reason: Reason
    what: Yield  # what would have to give way
    name: str  # as `Yield` has it
    lacking: Rows
    amount: int = 0  # asked for of a resource


class Requirements:
    """Takes demands apart, over the parts of one placement index."""

    def __init__(self, table: NodeTable, kinds: Kinds, holds: Holds, asking: Asking) -> None:
        self.table = table
        self.kinds = kinds
        self.holds = holds
        self.asking = asking

    def rows(self, demand: Demand) -> NDArray[np.intp]:
        """The rows of nodes that a demand may go to at all: those that are there, or the one it is bound to."""
        if demand.node_id:
            return np.array([row for row in [self.holds.rows.get(demand.node_id)] if row is not None], dtype=np.intp)
        return np.array(sorted(self.holds.rows.values()), dtype=np.intp)

    def of(self, demand: Demand, masked: Collection[str] = ()) -> list[Requirement]:
        """All that a demand requires and some node lacks, in the order of the filters."""
        found = [*self._of_node(demand), *self._fixed(demand), *self._changing(demand, masked)]
        return [requirement for requirement in found if requirement.lacking.any()]

    def _raw(self, demand: Demand) -> NDArray[np.uint32]:
        """The kernel's sets of failed filters."""
        raw = np.empty(self.table.size, dtype=np.uint32)
        filters.check_sets(self.table, self.asking.ask(demand), raw)
        return raw

    def _of_node(self, demand: Demand) -> Iterator[Requirement]:
        raw = self._raw(Demand(""))
        yield Requirement(Reason.NOT_READY, Yield.NODE, "", _has(raw, filters.VERDICT_NOT_READY))
        cpu, memory = demand.amounts
        for what, number, amount in ((Yield.CPU, CPU, cpu), (Yield.MEMORY, MEMORY, memory)):
            if amount > 0:
                yield Requirement(Reason.RESOURCES, what, "", self.table.free_of(number) < amount, amount)
        for name, amount in demand.generic:
            if amount > 0:
                lacking = self.free_of(name) < amount
                yield Requirement(Reason.RESOURCES, Yield.GENERIC, name, lacking, amount)

    def free_of(self, name: str) -> NDArray[np.int64]:
        """What is free of a generic kind, by row."""
        number = self.kinds.number(name)
        return np.zeros(self.table.size, dtype=np.int64) if number < 0 else self.table.free_of(number)

    def _fixed(self, demand: Demand) -> Iterator[Requirement]:
        """What does not change with the tasks."""
        if demand.image:
            yield Requirement(Reason.IMAGE, Yield.IMAGE, demand.image, self._ruled_out(image=demand.image))
        if demand.forwards_ports:
            lacking = self._ruled_out(forwards_ports=True)
            yield Requirement(Reason.NO_FORWARDING, Yield.PUBLISHED_PORTS, "", lacking)
        for driver in dict.fromkeys(demand.volume_drivers):
            lacking = self._ruled_out(volume_drivers=(driver,))
            yield Requirement(Reason.PLUGIN, Yield.VOLUME_DRIVER, driver, lacking)
        if demand.log_driver:
            lacking = self._ruled_out(log_driver=demand.log_driver)
            yield Requirement(Reason.PLUGIN, Yield.LOG_DRIVER, demand.log_driver, lacking)
        for expression in dict.fromkeys(demand.constraints):
            lacking = self._ruled_out(constraints=(expression,))
            yield Requirement(Reason.CONSTRAINT, Yield.CONSTRAINT, expression, lacking)
        if demand.platforms:
            yield Requirement(Reason.PLATFORM, Yield.PLATFORM, "", self._ruled_out(platforms=demand.platforms))

    def _ruled_out(self, **fields: object) -> Rows:
        """Rows that a demand for these things alone never fits."""
        rows: Rows = self.asking.fit(Demand("", **fields)).codes[: self.table.size] != 0  # type: ignore[arg-type]
        return rows

    def _changing(self, demand: Demand, masked: Collection[str]) -> Iterator[Requirement]:
        """What depends on other tasks."""
        for port in demand.host_ports:
            taken = self._none()
            taken[[row for id_ in self.holds.ports.nodes(port) if (row := self.holds.rows.get(id_)) is not None]] = True
            yield Requirement(Reason.HOST_PORT, Yield.HOST_PORT, f"{port.port}/{port.protocol}", taken)
        if demand.replicas_limit > 0:
            column = self.holds.services.column(demand.service_id, self.table.capacity)[: self.table.size]
            lacking = column >= demand.replicas_limit
            yield Requirement(Reason.MAX_REPLICAS, Yield.MAX_REPLICAS, "", lacking, demand.replicas_limit)
        yield from self._networks(demand)
        yield from self._volumes(demand)
        if masked:
            refused = self._none()
            refused[[self.holds.rows[node_id] for node_id in masked if node_id in self.holds.rows]] = True
            yield Requirement(Reason.REFUSED, Yield.REFUSALS, "", refused)

    def _networks(self, demand: Demand) -> Iterator[Requirement]:
        """Each network by itself, then what only all of them together lack."""
        unattached, conflicting, exhausted = self._none(), self._none(), self._none()
        for network_id in dict.fromkeys(demand.network_ids):
            one = Demand("", network_ids=(network_id,))
            lacking = self._ruled_out(network_ids=(network_id,))
            yield from self._static(network_id, one, lacking)
            without = lacking
            if demand.pins:
                one = msgspec.structs.replace(one, pins=demand.pins)
                without = self._ruled_out(network_ids=(network_id,), pins=demand.pins)
                pins = ",".join(demand.pins)
                yield Requirement(Reason.NO_PINNED_POOL, Yield.PINS, pins, without & ~lacking)
            raw = self._raw(one)
            conflict = _has(raw, _SET_OF_LINK) & ~without
            yield Requirement(Reason.PARENT_TAKEN, Yield.NETWORK, network_id, conflict)
            exhausted |= _has(raw, filters.VERDICT_POOL) & ~without
            unattached |= without
            conflicting |= conflict
        if not demand.network_ids:
            return
        raw = self._raw(Demand("", network_ids=demand.network_ids, pins=demand.pins))
        together = _has(raw, _SET_OF_LINK) & ~unattached & ~conflicting
        yield Requirement(Reason.PARENT_TAKEN, Yield.NETWORK, demand.network_ids[-1], together)
        exhausted |= _has(raw, filters.VERDICT_POOL) & ~unattached
        yield Requirement(Reason.POOL_EXHAUSTED, Yield.ADDRESSES, "", exhausted)

    def _static(self, network_id: str, one: Demand, lacking: Rows) -> Iterator[Requirement]:
        """One requirement for each reason for which rows never attach to a network."""
        fit = self.asking.fit(one)
        for code in np.unique(fit.codes[: self.table.size][lacking]).tolist():
            rows = fit.codes[: self.table.size] == code
            yield Requirement(fit.reasons[code - 1][0], Yield.NETWORK, network_id, rows)

    def _volumes(self, demand: Demand) -> Iterator[Requirement]:
        if not demand.volumes:
            return
        some = self._none()
        for mount in demand.volumes:
            lacking = ~self.asking.volumes.fitting((mount,))[: self.table.size]
            yield Requirement(Reason.VOLUMES, Yield.VOLUME, mount.source, lacking)
            some |= lacking
        together = ~self.asking.volumes.fitting(demand.volumes)[: self.table.size] & ~some
        yield Requirement(Reason.VOLUMES, Yield.VOLUME, demand.volumes[-1].source, together)

    def _none(self) -> Rows:
        return np.zeros(self.table.size, dtype=bool)


def _has(raw: NDArray[np.uint32], verdict: int) -> Rows:
    """Rows in whose set a verdict is, holes excluded."""
    rows: Rows = (raw >> np.uint32(verdict) & np.uint32(1)).astype(bool)
    return rows


__all__ = ["Requirement", "Requirements", "Rows"]
