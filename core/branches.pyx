"""The tree that the tasks of a service are spread over, with its tasks by branch.

A branch gets tasks in proportion to its weight: the next one goes to where tasks + 1, divided by the weight, is least,
as seats go to parties by d'Hondt. The division is never made; products are compared.
"""


cdef class Branches:
    """Which leaf each row is in, and how many tasks of one service each branch has."""

    def __init__(
        self,
        Py_ssize_t size,
        const int32_t[::1] leaf_of,
        const int32_t[:, ::1] path,
        const int32_t[::1] weight,
        const uint8_t[::1] last,
        int64_t[::1] tasks,
    ):
        """
        Args:
            size: rows of the table.
            leaf_of: (at least size,) numbers of leaves.
            path: (leaves, levels) numbers of branches.
            weight, last, tasks: (branches,).

        Raises:
            ValueError: an array is too short, or a number out of range.
        """
        cdef Py_ssize_t row, level, n_branches = weight.shape[0]
        self.n_leaves = path.shape[0]
        if leaf_of.shape[0] < size or last.shape[0] != n_branches or tasks.shape[0] != n_branches:
            raise ValueError(f"leaves of {leaf_of.shape[0]} rows and {n_branches} branches for a table of {size}")
        for row in range(size):
            if not 0 <= leaf_of[row] < self.n_leaves:
                raise ValueError(f"leaf {leaf_of[row]} of {self.n_leaves}")
        for row in range(self.n_leaves):
            for level in range(path.shape[1]):
                if not 0 <= path[row, level] < n_branches:
                    raise ValueError(f"branch {path[row, level]} of {n_branches}")
        self.leaf_of = leaf_of
        self.path = path
        self.weight = weight
        self.last = last
        self.tasks = tasks

    cdef int compare(self, int32_t leaf, int32_t other) except -2 nogil:
        """-1 when a task goes to a leaf rather than to another one, 1 when the other way round, 0 when nodes decide."""
        cdef Py_ssize_t level
        cdef int32_t one, two
        cdef int64_t difference
        for level in range(self.path.shape[1]):
            one, two = self.path[leaf, level], self.path[other, level]
            if one == two:
                continue
            if self.last[one] != self.last[two]:
                return 1 if self.last[one] else -1
            difference = (self.tasks[one] + 1) * self.weight[two] - (self.tasks[two] + 1) * self.weight[one]
            if difference:
                return -1 if difference < 0 else 1
        return 0

    cdef int add(self, int32_t leaf) except -1 nogil:
        """One task more."""
        cdef Py_ssize_t level
        for level in range(self.path.shape[1]):
            self.tasks[self.path[leaf, level]] += 1
        return 0
