"""Packing many waiting tasks at once, bin by bin: each bin is a node, filled with what together leaves the least of it.

One after another a task takes the best node for itself; here a node takes the best tasks for itself, which leaves it
fuller. Of the classes of tasks that fit, a bin takes the one that leaves the least sum of squares of what is left of
each kind (and of its devices), weighted by how scarce the kind is. `improve` then takes all tasks out of two bins,
fills these anew with a little noise, and keeps the result when all tasks are back and the bins are no less uneven, or
one is no longer needed. Uneven is good: bins that are full beside one that is nearly empty.

The noise comes from a generator with a fixed seed: the same calls give the same packing on every machine.

Source: bin-centric greedy with the Euclidean norm, R. Panigrahy et al., Heuristics for Vector Bin Packing, 2011; ruin
and recreate, G. Schrimpf et al., 2000.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

from beeyard.core.fragments cimport DEVICE_WHOLE, FRAGMENT_KINDS_MAX, Class, Fragments, Spot, fits_in, put_in

cdef enum:
    RUINED = 2              # bins that are emptied at a time: more are seldom filled better than they were
    CLASSES_MAX = 4096      # of equal tasks: what a bin has no room for is remembered on the stack

# The most that noise adds to a sum of squares, in steps.
cdef double NOISE = 0.03
cdef int NOISE_STEPS = 4


PACKED_CLASSES_MAX = CLASSES_MAX


cdef struct Bin:
    Spot base           # without the tasks that are packed here
    Spot now
    bint is_open        # in use before
    int32_t n_tasks
    int32_t room        # tasks that `tasks` has room for
    int32_t* tasks      # classes
    uint8_t* barred     # by class: 1 when it may not be here; NULL: all may


cdef class BinPacking:
    """Bins and classes of equal tasks. Needs are (amounts by kind, devices, 1e-3 of each), see `core.fragments`."""

    cdef readonly int n_kinds
    cdef readonly Py_ssize_t n_bins
    cdef readonly int64_t n_left        # tasks that are in no bin
    cdef readonly int64_t n_steps       # scores worked out so far, about 30 million a second
    cdef Py_ssize_t _room
    cdef int _n_classes
    cdef Class* _classes
    cdef int64_t* _left                 # by class: tasks that are in no bin
    cdef Bin* _bins
    cdef double _weights[FRAGMENT_KINDS_MAX + 1]    # by kind; the last is that of devices
    cdef double _scarce[FRAGMENT_KINDS_MAX + 1]     # the same to the fourth: of bins, the scarcest kinds decide
    cdef uint64_t _state                # of the noise

    def __cinit__(self, int n_kinds, list tasks, list weights):
        cdef Fragments reader = Fragments(n_kinds)
        if len(weights) != n_kinds + 1:
            raise ValueError(f"{len(weights)} weights: {n_kinds} kinds and the devices")
        if len(tasks) > CLASSES_MAX:
            raise ValueError(f"{len(tasks)} classes of tasks: at most {CLASSES_MAX}")
        self.n_kinds = n_kinds
        self._state = 88172645463325252
        self._bins = NULL
        self._n_classes = len(tasks)
        self._classes = <Class*>calloc(max(self._n_classes, 1), sizeof(Class))
        self._left = <int64_t*>calloc(max(self._n_classes, 1), sizeof(int64_t))
        if self._classes == NULL or self._left == NULL:
            raise MemoryError
        for number, (needs, n_tasks) in enumerate(tasks):
            if n_tasks < 0:
                raise ValueError(f"{n_tasks} tasks of class {number}: not negative")
            self._classes[number] = reader._class(needs, 1)
            self._left[number] = n_tasks
            self.n_left += n_tasks
        for kind, weight in enumerate(weights):
            self._weights[FRAGMENT_KINDS_MAX if kind == n_kinds else kind] = weight
            self._scarce[FRAGMENT_KINDS_MAX if kind == n_kinds else kind] = weight * weight * weight * weight

    def __dealloc__(self):
        cdef Py_ssize_t number
        for number in range(self.n_bins):
            free(self._bins[number].tasks)
            free(self._bins[number].barred)
        free(self._bins)
        free(self._classes)
        free(self._left)

    def add_bin(self, list room, list total, list devices, bint is_open, bytes barred=b""):
        """Add a bin, to be filled after those before it.

        Args:
            room, total: what is free and all that there is, by kind; devices: free of each, in 1e-3 devices.
            is_open: it is in use already, so that using it costs nothing.
            barred: 1 for each class that may not be in it; empty: all may.
        """
        cdef Fragments reader = Fragments(self.n_kinds)
        cdef Bin* added
        if barred and len(barred) != self._n_classes:
            raise ValueError(f"{len(barred)} classes barred or not: there are {self._n_classes}")
        reader.set_row(0, room, total, devices)
        if self.n_bins == self._room:
            bins = <Bin*>realloc(self._bins, max(64, 2 * self._room) * sizeof(Bin))
            if bins == NULL:
                raise MemoryError
            self._bins, self._room = bins, max(64, 2 * self._room)
        added = &self._bins[self.n_bins]
        added.base = added.now = reader._spots[0]
        added.is_open = is_open
        added.n_tasks = added.room = 0
        added.tasks = NULL
        added.barred = NULL
        if barred:
            added.barred = <uint8_t*>malloc(len(barred))
            if added.barred == NULL:
                raise MemoryError
            memcpy(added.barred, <const char*>barred, len(barred))
        self.n_bins += 1

    def fill(self):
        """Fill the bins in their order. Returns how many tasks are left."""
        cdef Py_ssize_t number
        cdef int32_t every[CLASSES_MAX]
        for number in range(self._n_classes):
            every[number] = <int32_t>number
        with nogil:
            for number in range(self.n_bins):
                if self.n_left == 0:
                    break
                self._fill(&self._bins[number], every, self._n_classes, 0.0)
        return self.n_left

    def improve(self, Py_ssize_t rounds, int64_t steps=INT64_MAX):
        """Try to fill some bins better, so many times or until that took so many steps: counted, not timed, so that
        it ends at the same point on every machine. Returns how many bins fewer are opened. All tasks must be in bins.
        """
        cdef Py_ssize_t number, n = 0, before = self.n_opened()
        cdef int64_t until = INT64_MAX if steps > INT64_MAX - self.n_steps else self.n_steps + steps
        cdef int32_t* used = <int32_t*>malloc(max(self.n_bins, 1) * sizeof(int32_t))
        if used == NULL:
            raise MemoryError
        for number in range(self.n_bins):
            if self._bins[number].n_tasks:
                used[n] = <int32_t>number
                n += 1
        try:
            with nogil:
                while rounds > 0 and self.n_left == 0 and n >= RUINED and self.n_steps < until:
                    n = self._round(used, n)
                    rounds -= 1
        finally:
            free(used)
        return before - self.n_opened()

    def n_opened(self):
        """Bins with tasks that were not in use before."""
        return sum(self._bins[number].n_tasks > 0 and not self._bins[number].is_open for number in range(self.n_bins))

    def tasks_in(self, Py_ssize_t number):
        """The class of each task in a bin."""
        if not 0 <= number < self.n_bins:
            raise IndexError(f"bin {number} of {self.n_bins}")
        return [self._bins[number].tasks[task] for task in range(self._bins[number].n_tasks)]

    cdef Py_ssize_t _round(self, int32_t* used, Py_ssize_t n) except -1 nogil:
        """Empty some bins and fill them anew. Returns how many bins have tasks."""
        cdef Bin old[RUINED]
        cdef Py_ssize_t at[RUINED]
        cdef Py_ssize_t number, task
        cdef int32_t classes[CLASSES_MAX]
        cdef int n_classes = 0
        cdef Bin* one
        cdef double before = 0.0, after = 0.0, noise
        self._choose(used, n, at)
        for number in range(RUINED):
            one = &self._bins[used[at[number]]]
            before += self._uneven(one)
            old[number] = one[0]
            for task in range(one.n_tasks):
                if self._left[one.tasks[task]] == 0:
                    _insert(classes, n_classes, one.tasks[task])
                    n_classes += 1
                self._left[one.tasks[task]] = self._left[one.tasks[task]] + 1
            self.n_left = self.n_left + one.n_tasks
            one.now, one.n_tasks, one.room, one.tasks = one.base, 0, 0, NULL
        noise = NOISE * self._random(NOISE_STEPS)
        for number in range(RUINED):
            if self.n_left:
                self._fill(&self._bins[used[at[number]]], classes, n_classes, noise)
            after += self._uneven(&self._bins[used[at[number]]])
        if self.n_left == 0 and after >= before:
            for number in range(RUINED):
                free(old[number].tasks)
        else:
            for number in range(RUINED):
                one = &self._bins[used[at[number]]]
                for task in range(one.n_tasks):
                    self._left[one.tasks[task]] = self._left[one.tasks[task]] + 1
                self.n_left = self.n_left + one.n_tasks
                free(one.tasks)
                one[0] = old[number]
                for task in range(one.n_tasks):
                    self._left[one.tasks[task]] = self._left[one.tasks[task]] - 1
                self.n_left = self.n_left - one.n_tasks
        return self._drop_empty(used, n, at)

    cdef int _choose(self, int32_t* used, Py_ssize_t n, Py_ssize_t* at) except -1 nogil:
        """Different bins to be emptied, emptier ones rather."""
        cdef Py_ssize_t number = 0, one, other, earlier
        while number < RUINED:
            one = self._random(n)
            other = self._random(n)
            if self._random(2) and self._uneven(&self._bins[used[other]]) > self._uneven(&self._bins[used[one]]):
                one = other
            for earlier in range(number):
                if at[earlier] == one:
                    break
            else:
                at[number] = one
                number += 1
        return 0

    cdef Py_ssize_t _drop_empty(self, int32_t* used, Py_ssize_t n, Py_ssize_t* at) except -1 nogil:
        """Take bins that have no task any more off the list. Returns how many are left on it."""
        cdef Py_ssize_t number, one
        # From the end, so that what is put in a dropped one's place is none of those that are looked at.
        for one in range(n - 1, -1, -1):
            for number in range(RUINED):
                if at[number] == one and self._bins[used[one]].n_tasks == 0:
                    n -= 1
                    used[one] = used[n]
                    break
        return n

    cdef int _fill(self, Bin* one, const int32_t* classes, int n, double noise) except -1 nogil:
        """Put tasks of some classes into a bin until none of those left fits."""
        cdef int number, best, at, kept = 0
        cdef double score, least
        cdef double factors[FRAGMENT_KINDS_MAX + 1]
        cdef int32_t fitting[CLASSES_MAX]
        for at in range(n):
            if one.barred == NULL or not one.barred[classes[at]]:
                fitting[kept] = classes[at]
                kept += 1
        self._factors(&one.now, factors)
        while True:
            n, kept, best = kept, 0, -1
            least = 0.0
            for at in range(n):
                number = fitting[at]
                # What does not fit now will not fit when there is less room.
                if self._left[number] == 0 or not fits_in(&one.now, &self._classes[number]):
                    continue
                fitting[kept] = number
                kept += 1
                score = _change(&one.now, &self._classes[number], factors)
                if noise > 0.0:
                    score += noise * (<double>self._random(1024) / 1024.0)
                if best < 0 or score < least:
                    best, least = number, score
            if best < 0:
                return 0
            self.n_steps = self.n_steps + kept
            self._put(one, best)

    cdef int _put(self, Bin* one, int number) except -1 nogil:
        cdef int32_t room
        if one.n_tasks == one.room:
            room = max(16, 2 * one.room)
            tasks = <int32_t*>realloc(one.tasks, room * sizeof(int32_t))
            if tasks == NULL:
                with gil:
                    raise MemoryError
            one.tasks, one.room = tasks, room
        one.tasks[one.n_tasks] = number
        one.n_tasks += 1
        put_in(&one.now, &self._classes[number])
        self._left[number] = self._left[number] - 1
        self.n_left = self.n_left - 1
        return 0

    cdef int _factors(self, const Spot* spot, double* factors) noexcept nogil:
        """What the square of each amount that is left is multiplied with, so that it counts as a part of the whole."""
        cdef int kind
        for kind in range(self.n_kinds):
            factors[kind] = _factor(self._weights[kind], spot.total[kind])
        factors[FRAGMENT_KINDS_MAX] = _factor(self._weights[FRAGMENT_KINDS_MAX], DEVICE_WHOLE * spot.n_devices)
        return 0

    cdef double _uneven(self, const Bin* one) noexcept nogil:
        """The weighted sum of squares of what is left in a bin: many tasks leave little."""
        cdef const Spot* spot = &one.now
        cdef double squares = 0.0, left
        cdef int kind
        for kind in range(self.n_kinds):
            left = <double>spot.free[kind]
            squares = squares + _factor(self._scarce[kind], spot.total[kind]) * left * left
        left = <double>_in_devices(spot)
        return squares + _factor(self._scarce[FRAGMENT_KINDS_MAX], DEVICE_WHOLE * spot.n_devices) * left * left

    cdef Py_ssize_t _random(self, Py_ssize_t n) noexcept nogil:
        """0 to n - 1. Xorshift: G. Marsaglia, Xorshift RNGs, 2003."""
        self._state = self._state ^ self._state << 13
        self._state = self._state ^ self._state >> 7
        self._state = self._state ^ self._state << 17
        return <Py_ssize_t>(self._state % <uint64_t>n)


cdef inline int _insert(int32_t* numbers, int n, int32_t added) noexcept nogil:
    """Insert a number into ascending ones."""
    while n > 0 and numbers[n - 1] > added:
        numbers[n] = numbers[n - 1]
        n -= 1
    numbers[n] = added
    return 0


cdef inline double _factor(double weight, int64_t total) noexcept nogil:
    return weight / (<double>total * <double>total) if total > 0 else 0.0


cdef inline int64_t _in_devices(const Spot* spot) noexcept nogil:
    """What is free of all devices."""
    cdef int64_t left = 0
    cdef int number
    for number in range(spot.n_devices):
        left += spot.device[number]
    return left


cdef inline double _change(const Spot* spot, const Class* task, const double* factors) noexcept nogil:
    """By what a task changes the weighted sum of squares of what is left: (f - a)^2 - f^2 = a * (a - 2 * f)."""
    cdef double amount, change = 0.0
    cdef int number, kind
    for number in range(task.n_kinds):
        kind, amount = task.kind[number], <double>task.amount[number]
        change += factors[kind] * amount * (amount - 2.0 * <double>spot.free[kind])
    if task.n_devices:
        amount = <double>(task.n_devices * task.milli)
        change += factors[FRAGMENT_KINDS_MAX] * amount * (amount - 2.0 * <double>_in_devices(spot))
    return change
