"""How many tasks of each service are on each row of the kernel's table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

# What the columns take together, about; those of other services are made again from the counts when needed. It is 40
# columns of 100,000 rows, or 400 of 10,000.
COLUMNS_BYTES_MAX = 16 << 20
COLUMNS_MIN = 32  # are kept however long they are


class ServiceTasks:
    """Sparse counts for all services, and dense columns for those that were placed or asked for last."""

    def __init__(self, columns_bytes_max: int = COLUMNS_BYTES_MAX) -> None:
        self._columns_bytes_max = columns_bytes_max
        self._below: ServiceTasks | None = None  # whose copy this is: services that nobody touched here are as there
        self._by_service: dict[str, Counter[int]] = {}
        self._columns: dict[str, NDArray[np.int32]] = {}

    def copy(self) -> ServiceTasks:
        """One of its own to try things on, until this one changes. Costs nothing but for the services that are touched."""
        twin = ServiceTasks(self._columns_bytes_max)
        twin._below = self
        return twin

    def n_rows(self, service_id: str) -> int:
        """On how many rows a service has tasks."""
        return len(self.counts(service_id))

    def counts(self, service_id: str) -> Counter[int]:
        """The tasks of a service by row, where it has any. Not to be changed."""
        counts = self._by_service.get(service_id)
        if counts is None:
            return Counter() if self._below is None else self._below.counts(service_id)
        return counts

    def column(self, service_id: str, capacity: int) -> NDArray[np.int32]:
        """The column of a service, at least `capacity` long. The kernel adds to it; `note` says so here.

        It is the service's until the columns of `COLUMNS_MIN` others have been asked for.
        """
        column = self._columns.pop(service_id, None)
        if column is None or len(column) < capacity:
            column = self._zeros(capacity)
            counts = self.counts(service_id)
            if counts:
                rows = np.fromiter(counts.keys(), np.int64, len(counts))
                column[rows] = np.fromiter(counts.values(), np.int32, len(counts))
        self._columns[service_id] = column  # last in the dict: used most recently
        return column

    def note(self, service_id: str, rows: Iterable[int]) -> None:
        """One task more on each of these rows, which the kernel has already added to the column."""
        self._own(service_id).update(rows)

    def add(self, service_id: str, row: int) -> None:
        """One task more."""
        counts = self._by_service.get(service_id)
        if counts is None:
            counts = self._own(service_id)
        counts[row] = counts.get(row, 0) + 1
        self._change_column(service_id, row, 1)

    def remove(self, service_id: str, row: int) -> None:
        """One task less."""
        counts = self._by_service.get(service_id)
        if counts is None:
            counts = self._own(service_id)
        left = counts.pop(row) - 1  # and no `del`, which Counter has made a function of Python
        assert left >= 0
        if left:
            counts[row] = left
        elif not counts and self._below is None:
            del self._by_service[service_id]
        self._change_column(service_id, row, -1)

    def _own(self, service_id: str) -> Counter[int]:
        """The counts of a service, to be changed."""
        counts = self._by_service.get(service_id)
        if counts is None:
            counts = Counter() if self._below is None else self._below.counts(service_id).copy()
            self._by_service[service_id] = counts
        return counts

    def _zeros(self, capacity: int) -> NDArray[np.int32]:
        """A column without tasks: that of the service asked for longest ago, cleaned where it has any, when they are many.

        So a service with few tasks costs as much as it has, however long the table is.
        """
        most = max(COLUMNS_MIN, self._columns_bytes_max // (4 * capacity))
        while len(self._columns) >= most:
            oldest = next(iter(self._columns))
            column = self._columns.pop(oldest)
            if len(column) >= capacity:
                column[list(self.counts(oldest))] = 0
                return column
        return np.zeros(capacity, dtype=np.int32)

    def _change_column(self, service_id: str, row: int, change: int) -> None:
        column = self._columns.get(service_id)
        # A column that is too short is made again before the kernel sees it.
        if column is not None and row < len(column):
            column[row] += change


__all__ = ["COLUMNS_BYTES_MAX", "COLUMNS_MIN", "ServiceTasks"]
