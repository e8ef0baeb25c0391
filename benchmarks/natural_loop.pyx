# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The loops that one writes first, compiled: what the kernel's forms are compared with.

One task after another looks at every node, filter by filter, and keeps the best. Tables are [row, kind] as natural code has
them.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t


def spread(
    int64_t[:, ::1] free, int32_t[::1] tasks, const uint64_t[::1] tie, const uint8_t[:, ::1] passes,
    const int64_t[:, ::1] needs, int32_t[::1] rows,
):
    """Place tasks on the node with the fewest tasks, then the smallest tie, of those with room that pass all filters.

    Args:
        free, tasks, tie, passes: by row; the first two are changed.
        needs: (n_tasks, kinds).
        rows: (n_tasks,) overwritten, -1 where none fits.
    """
    cdef Py_ssize_t task, row, best, kind, check
    cdef bint fits
    for task in range(needs.shape[0]):
        best = -1
        for row in range(free.shape[0]):
            fits = True
            for check in range(passes.shape[1]):
                if not passes[row, check]:
                    fits = False
                    break
            if not fits:
                continue
            for kind in range(needs.shape[1]):
                if free[row, kind] < needs[task, kind]:
                    fits = False
                    break
            if not fits:
                continue
            if best < 0 or tasks[row] < tasks[best] or (tasks[row] == tasks[best] and tie[row] < tie[best]):
                best = row
        rows[task] = <int32_t>best
        if best >= 0:
            tasks[best] += 1
            for kind in range(needs.shape[1]):
                free[best, kind] -= needs[task, kind]


def best_fit(int64_t[:, ::1] free, const int64_t[:, ::1] total, const int64_t[:, ::1] needs, int32_t[::1] rows):
    """Place tasks where the squares of what is left of each kind, plus half of its spread, are least.

    Args:
        free, total: by row and kind; the first is changed.
        needs: (n_tasks, kinds).
        rows: (n_tasks,) overwritten, -1 where none fits.
    """
    cdef Py_ssize_t task, row, best, kind
    cdef double left, score, most, least, best_score
    cdef bint fits
    for task in range(needs.shape[0]):
        best = -1
        best_score = 1e300
        for row in range(free.shape[0]):
            fits = True
            for kind in range(needs.shape[1]):
                if free[row, kind] < needs[task, kind]:
                    fits = False
                    break
            if not fits:
                continue
            score = 0.0
            most = 0.0
            least = 1e300
            for kind in range(needs.shape[1]):
                left = <double>(free[row, kind] - needs[task, kind]) / <double>total[row, kind]
                score += left * left
                if left > most:
                    most = left
                if left < least:
                    least = left
            score += 0.5 * (most - least)
            if score < best_score:
                best_score = score
                best = row
        rows[task] = <int32_t>best
        if best >= 0:
            for kind in range(needs.shape[1]):
                free[best, kind] -= needs[task, kind]
