"""Fragmentation gradient: a task goes where what the usual tasks cannot use grows least.

What a node loses, for one class of the usual tasks, is what would stay idle if it were filled with that class alone,
plus what no task of the class can use as it is now: all of it when none fits, else the devices with too little left.
The first part sees stranding before it is there: where much more GPU than CPU is left, most of the GPU is lost. The
classes have as much weight as tasks of them were asked for. On a node with devices only devices count, in 1e-3
devices; on others all kinds, in 1e-3 of the node's total.

All is counted in whole numbers, so the same calls choose the same nodes on every machine. The growth for a class of
tasks is kept for each row and worked out again only where the row has changed.

Source: F. Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent,
ATC'23, for the second part and the gradient.
"""

from libc.stdint cimport INT64_MAX, int8_t, int32_t, int64_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset

from beeyard.core.filters cimport Ask
from beeyard.core.node_table cimport ROW_READY, NodeTable

import numpy as np

NEVER = INT64_MAX

# Classes whose growths are kept: as many as fit into this many rows, 13 bytes each.
GROWTHS_KEPT = 4_000_000


cdef class Fragments:
    """Rows with room and devices, and the mix of usual tasks. Needs are (amounts by kind, devices, 1e-3 of each)."""

    def __cinit__(self, int n_kinds):
        if not 0 < n_kinds <= FRAGMENT_KINDS_MAX:
            raise ValueError(f"{n_kinds} kinds: 1 to {FRAGMENT_KINDS_MAX}")
        self.n_kinds = n_kinds
        self.n_rows = self._capacity = self._n_mix = 0
        self._spots = NULL
        self._mix = NULL
        self._growths = {}
        self._lost, self._version = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.uint32)

    def __dealloc__(self):
        free(self._spots)
        free(self._mix)

    def set_row(self, Py_ssize_t row, list room, list total, list devices):
        """Write a row, the next one or an earlier one: what is free and all that there is, by kind, and free of each
        device.

        Raises:
            IndexError: the row is beyond the next one.
            ValueError: other kinds, too many devices, or a device with less than nothing or more than a whole one free.
        """
        cdef Spot* spot
        if not 0 <= row <= self.n_rows:
            raise IndexError(f"row {row} of {self.n_rows}")
        if len(room) != self.n_kinds or len(total) != self.n_kinds:
            raise ValueError(f"{len(room)} and {len(total)} kinds: there are {self.n_kinds}")
        if len(devices) > DEVICES_MAX:
            raise ValueError(f"{len(devices)} devices: at most {DEVICES_MAX}")
        if any(not 0 <= milli <= DEVICE_WHOLE for milli in devices):
            raise ValueError(f"devices {devices}: each 0 to {DEVICE_WHOLE}")
        if row == self._capacity:
            self._make_room(max(64, 2 * row))
        self.n_rows = max(self.n_rows, row + 1)
        # Safety: row < _capacity, which the spots are allocated for.
        spot = &self._spots[row]
        memset(spot, 0, sizeof(Spot))
        for kind in range(self.n_kinds):
            spot.free[kind] = room[kind]
            spot.total[kind] = total[kind]
        spot.n_devices = len(devices)
        for number, milli in enumerate(devices):
            spot.device[number] = milli
        self._changed(row)

    def row(self, Py_ssize_t row):
        """What is free on a row, by kind and by device."""
        self._check(row)
        cdef Spot* spot = &self._spots[row]
        devices = [spot.device[number] for number in range(spot.n_devices)]
        return [spot.free[kind] for kind in range(self.n_kinds)], devices

    def lost(self, Py_ssize_t row):
        """What of a row the mix cannot use, weighted."""
        self._check(row)
        return self._lost[row]

    def set_mix(self, list mix):
        """What is usual from now on: (needs, how many tasks) for each class. Everything is worked out again."""
        cdef Class* classes = <Class*>calloc(max(len(mix), 1), sizeof(Class))
        cdef Py_ssize_t row
        if classes == NULL:
            raise MemoryError
        free(self._mix)
        self._mix, self._n_mix = classes, len(mix)
        for number, (needs, weight) in enumerate(mix):
            self._mix[number] = self._class(needs, weight)
        for row in range(self.n_rows):
            self._changed(row)

    def growth(self, needs):
        """By row: how much the loss grows with a task (NEVER where it does not fit), and the device to share,
        -1: none.
        """
        cdef Class task = self._class(needs, 1)
        cdef Py_ssize_t row
        cdef int64_t[::1] growth
        cdef int8_t[::1] device
        cdef uint32_t[::1] seen
        known = self._growths.pop(needs, None)
        if known is None or known[0].shape[0] < self.n_rows:
            known = tuple(np.zeros(self._capacity, dtype=kind) for kind in (np.int64, np.int8, np.uint32))
            while self._growths and len(self._growths) * self._capacity >= GROWTHS_KEPT:
                self._growths.pop(next(iter(self._growths)))
        self._growths[needs] = known  # last in the dict: used most recently
        growth, device, seen = known
        with nogil:
            for row in range(self.n_rows):
                if seen[row] != self._version[row]:
                    self._grow(row, &task, growth, device, seen)
        return known[0][: self.n_rows], known[1][: self.n_rows]

    def follow(self, NodeTable table not None):
        """Take over room and readiness of all rows of a table of the same kinds, without devices. O(rows)."""
        cdef Py_ssize_t row
        if table.n_kinds != self.n_kinds:
            raise ValueError(f"a table of {table.n_kinds} kinds: there are {self.n_kinds}")
        if table.size > self._capacity:
            self._make_room(table.capacity)
        with nogil:
            for row in range(self.n_rows, table.size):
                memset(&self._spots[row], 0, sizeof(Spot))
            self.n_rows = table.size
            for row in range(table.size):
                self._follow_row(table, row)

    def place(self, NodeTable table not None, Ask ask not None, int32_t[::1] rows, int32_t[:, ::1] pools):
        """Place as many equal tasks as fit, one after another, and hold their room in the table, as `packing.spread`
        does.

        `follow` first. Among rows that grow as little, the tie-break decides. O(rows) for each task.

        Returns:
            Number of tasks placed, the first ones.
        """
        cdef Py_ssize_t placed = 0, row
        cdef int64_t[::1] growth, known
        cdef int8_t[::1] device
        cdef uint32_t[::1] seen
        ask.must_be_for(table)
        if table.n_kinds != self.n_kinds or table.size != self.n_rows:
            raise ValueError(f"a table of {table.size} rows and {table.n_kinds} kinds that was not followed")
        if pools.shape[0] != rows.shape[0] or pools.shape[1] != ask.n_networks:
            raise ValueError(f"pools must be {rows.shape[0]} x {ask.n_networks}")
        amounts = [0] * self.n_kinds
        for kind, amount in ask.needs.pairs():
            amounts[kind] = amount
        needs = (tuple(amounts), 0, DEVICE_WHOLE)
        cdef Class task = self._class(needs, 1)
        growth = self.growth(needs)[0].copy()
        known, device, seen = self._growths[needs]
        with nogil:
            while placed < rows.shape[0]:
                row = self._first(table, ask, growth)
                if row < 0:
                    break
                if not ask.take(table, row, pools, placed):
                    growth[row] = INT64_MAX
                    continue
                rows[placed] = <int32_t>row
                placed += 1
                self._follow_row(table, row)
                self._grow(row, &task, known, device, seen)
                growth[row] = known[row]
        return placed

    cdef int _follow_row(self, NodeTable table, Py_ssize_t row) except -1 nogil:
        """Take over a row of the table, if it is not what it was."""
        cdef Spot* spot = &self._spots[row]
        cdef int kind
        cdef int64_t room
        cdef bint changed = self._version[row] == 0
        for kind in range(self.n_kinds):
            # Nothing fits on a row that is not ready: it has less than nothing.
            room = table.free[kind, row] if table.state[row] == ROW_READY else -1
            changed |= room != spot.free[kind] or table.total[kind, row] != spot.total[kind]
            spot.free[kind] = room
            spot.total[kind] = table.total[kind, row]
        return self._changed(row) if changed else 0

    cdef Py_ssize_t _first(self, NodeTable table, Ask ask, int64_t[::1] growth) except -2 nogil:
        """The row that the next task goes to: failures count before all else. -1: none fits."""
        cdef Py_ssize_t row, best = -1
        cdef int32_t penalty, least = 0
        for row in range(self.n_rows):
            if growth[row] == INT64_MAX:
                continue
            penalty = ask.penalty[row] if ask.penalty is not None else 0
            if (
                best < 0
                or penalty < least
                or penalty == least and (
                    growth[row] < growth[best]
                    or growth[row] == growth[best] and table.tie_break[row] < table.tie_break[best]
                )
            ):
                best, least = row, penalty
        return best

    def best(self, needs):
        """The first row whose loss grows least with a task, and the device to share (-1: none). Row -1: none fits."""
        growth, device = self.growth(needs)
        if self.n_rows == 0:
            return -1, -1
        row = int(growth.argmin())
        return (-1, -1) if growth[row] == NEVER else (row, int(device[row]))

    def take(self, Py_ssize_t row, int device, needs):
        """Put a task on a row where it fits; it shares this device, or takes free ones (-1)."""
        self._move(row, device, needs, 1)

    def give_back(self, Py_ssize_t row, int device, needs):
        """Take a task away from a row where it is."""
        self._move(row, device, needs, -1)

    def _move(self, Py_ssize_t row, int device, needs, int sign):
        """Take or give back."""
        self._check(row)
        cdef Class task = self._class(needs, 1)
        cdef Spot* spot = &self._spots[row]
        cdef int number, left = task.n_devices
        if device >= spot.n_devices or (device < 0 and 0 < task.milli < DEVICE_WHOLE):
            raise IndexError(f"device {device} of {spot.n_devices}")
        for number in range(task.n_kinds):
            spot.free[task.kind[number]] -= sign * task.amount[number]
        if device >= 0:
            spot.device[device] -= sign * task.milli
            left = 0
        for number in range(spot.n_devices):
            if left and spot.device[number] == (DEVICE_WHOLE if sign > 0 else 0):
                spot.device[number] -= sign * DEVICE_WHOLE
                left -= 1
        self._changed(row)

    cdef int _changed(self, Py_ssize_t row) except -1 nogil:
        self._lost[row] = self._lost_on(&self._spots[row])
        self._version[row] += 1
        return 0

    cdef int _grow(
        self, Py_ssize_t row, const Class* task, int64_t[::1] growth, int8_t[::1] device, uint32_t[::1] seen
    ) except -1 nogil:
        """Work out for one row how much its loss grows with a task."""
        cdef Spot after = self._spots[row]
        cdef int number, other, left
        cdef int64_t grown
        cdef int32_t before
        seen[row] = self._version[row]
        growth[row] = INT64_MAX
        device[row] = -1
        if not fits_in(&after, task):
            return 0
        for number in range(task.n_kinds):
            after.free[task.kind[number]] -= task.amount[number]
        if task.n_devices == 0 or task.milli == DEVICE_WHOLE:
            left = task.n_devices
            for number in range(after.n_devices):
                if left and after.device[number] == DEVICE_WHOLE:
                    after.device[number] = 0
                    left -= 1
            growth[row] = self._lost_on(&after) - self._lost[row]
            return 0
        for number in range(after.n_devices):
            before = after.device[number]
            if before < task.milli:
                continue
            # Devices with as much free are all the same.
            for other in range(number):
                if after.device[other] == before:
                    break
            else:
                after.device[number] = before - task.milli
                grown = self._lost_on(&after) - self._lost[row]
                after.device[number] = before
                if grown < growth[row]:
                    growth[row] = grown
                    device[row] = <int8_t>number
        return 0

    cdef int64_t _lost_on(self, const Spot* spot) noexcept nogil:
        # Safety: `_mix` has _n_mix classes; kinds and devices are below the lengths of the arrays they index, see
        # `_class` and `set_row`.
        cdef int64_t lost = 0
        cdef int number
        for number in range(self._n_mix):
            lost += self._mix[number].weight * _lost_for(spot, &self._mix[number], self.n_kinds)
        return lost

    cdef Class _class(self, needs, weight):
        """Needs in the form of the loops."""
        cdef Class task
        memset(&task, 0, sizeof(Class))
        amounts, task.n_devices, task.milli = needs
        if len(amounts) != self.n_kinds or min(amounts) < 0:
            raise ValueError(f"amounts {amounts}: {self.n_kinds} kinds, not negative")
        if not 0 <= task.n_devices <= DEVICES_MAX or not (
            task.milli == DEVICE_WHOLE or (0 < task.milli < DEVICE_WHOLE and task.n_devices == 1) or task.n_devices == 0
        ):
            raise ValueError(f"{task.n_devices} devices of {task.milli}: several are taken whole, {DEVICE_WHOLE} each")
        for kind, amount in enumerate(amounts):
            if amount > 0:
                task.kind[task.n_kinds] = kind
                task.amount[task.n_kinds] = amount
                task.n_kinds += 1
        task.weight = weight
        return task

    def _make_room(self, Py_ssize_t capacity):
        """Longer columns."""
        cdef Spot* spots = <Spot*>realloc(self._spots, capacity * sizeof(Spot))
        if spots == NULL:
            raise MemoryError
        self._spots, self._capacity = spots, capacity
        self._lost = np.concatenate([np.asarray(self._lost), np.zeros(capacity - self.n_rows, dtype=np.int64)])
        self._version = np.concatenate([np.asarray(self._version), np.zeros(capacity - self.n_rows, dtype=np.uint32)])
        self._growths.clear()

    def _check(self, Py_ssize_t row):
        """Raise IndexError unless the row is there."""
        if not 0 <= row < self.n_rows:
            raise IndexError(f"row {row} of {self.n_rows}")


cdef int64_t copies_in(const Spot* spot, const Class* task) noexcept nogil:
    """How many tasks of a class a row has room for; not more than a million."""
    cdef int64_t copies = 1_000_000, of_devices = 0
    cdef int number
    for number in range(task.n_kinds):
        if spot.free[task.kind[number]] < task.amount[number]:
            return 0
        copies = min(copies, spot.free[task.kind[number]] // task.amount[number])
    if task.n_devices:
        for number in range(spot.n_devices):
            of_devices += spot.device[number] // task.milli
        copies = min(copies, of_devices // task.n_devices)
    return copies


cdef int put_in(Spot* spot, const Class* task) noexcept nogil:
    """Put a task on a row where it fits; one that shares a device gets the fullest that has room. Returns that,
    -1: none.
    """
    cdef int number, best = -1, left = task.n_devices
    for number in range(task.n_kinds):
        spot.free[task.kind[number]] -= task.amount[number]
    if left == 1 and task.milli < DEVICE_WHOLE:
        for number in range(spot.n_devices):
            if spot.device[number] >= task.milli and (best < 0 or spot.device[number] < spot.device[best]):
                best = number
        spot.device[best] -= task.milli
        return best
    for number in range(spot.n_devices):
        if left and spot.device[number] == DEVICE_WHOLE:
            spot.device[number] = 0
            left -= 1
    return -1


cdef inline int64_t _lost_for(const Spot* spot, const Class* task, int n_kinds) noexcept nogil:
    """What tasks of one class cannot use of a row, in 1e-3 devices, or 1e-3 of its total for each kind."""
    cdef int64_t copies, idle = 0, useless = 0, needed, left
    cdef int number, kind
    if spot.n_devices:
        if task.n_devices == 0:
            # To these tasks devices are of no use wherever they run.
            return 0
        copies = copies_in(spot, task)
        for number in range(spot.n_devices):
            idle += spot.device[number]
            if copies == 0 or spot.device[number] < task.milli:
                useless += spot.device[number]
        return idle - copies * task.n_devices * task.milli + useless
    if task.n_devices:
        return 0
    copies = copies_in(spot, task)
    for kind in range(n_kinds):
        if spot.total[kind] <= 0 or spot.free[kind] <= 0:
            continue
        needed = 0
        for number in range(task.n_kinds):
            if task.kind[number] == kind:
                needed = task.amount[number]
        left = spot.free[kind] - copies * needed
        idle += <int64_t>(<double>left * 1000.0 / <double>spot.total[kind])
        if copies == 0:
            useless += <int64_t>(<double>spot.free[kind] * 1000.0 / <double>spot.total[kind])
    return idle + useless
