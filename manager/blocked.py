"""Groups of tasks that wait for a place: when to look at them again, and when to say again why they wait."""

from __future__ import annotations

import dataclasses
import math

from beeyard.core.placement import Demand

# (service id, spec version, slot, node id): tasks that are decided on together. The slot is 0 for all whose slot does not
# matter, the node id "" for all that may go to any node.
Group = tuple[str, int, int, str]

# Least time between two different reasons told of one group. The counts in a reason change whenever a node does, and each
# time is a write for every task that waits: at 10,000 of them about half a second of work.
RETELL_S = 10.0
# How long a group is left alone after an error of ours: what raised once does so again, and each time logs it.
FAILED_S = 30.0


@dataclasses.dataclass(eq=False)
class _Block:
    demand: Demand  # of any service
    reason: str  # as all of its tasks were told
    told_s: float
    seen: int  # the last change that was looked at
    due_s: float = math.inf  # when to look though nothing changed
    failed: bool = False  # deciding on it raised: it rests until `due_s` whatever changes


class Blocked:
    """Which groups found no place for some task, until something happens that may change that."""

    def __init__(self) -> None:
        self._blocks: dict[Group, _Block] = {}
        self._n_changes = 0

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def something_changed(self) -> None:
        """There may be a place now: a node or network changed, a task ended, an address has rested."""
        self._n_changes += 1

    def forget(self, group: Group) -> None:
        """Look at a group as if for the first time: it has tasks that were told nothing. Idempotent."""
        self._blocks.pop(group, None)

    def forget_all(self) -> None:
        """The same for every group."""
        self._blocks.clear()

    def rests(self, group: Group, now_s: float) -> bool:
        """Whether there is no reason to look at a group."""
        block = self._blocks.get(group)
        return block is not None and now_s < block.due_s and (block.failed or block.seen == self._n_changes)

    def demand(self, group: Group) -> Demand | None:
        """What each task of a blocked group asks for, of any service; None when that is not known to have no place."""
        block = self._blocks.get(group)
        return None if block is None or block.failed else block.demand

    def still(self, group: Group, reason: str, now_s: float) -> bool:
        """Whether a blocked group that has no place for `reason` ("": it may have one) can be left as it is."""
        block = self._blocks[group]
        if not reason:
            return False
        may_tell_s = block.told_s + RETELL_S
        if reason != block.reason and now_s >= may_tell_s:
            return False
        block.seen = self._n_changes
        block.due_s = math.inf if reason == block.reason else may_tell_s
        return True

    def block(self, group: Group, demand: Demand, reason: str, now_s: float) -> bool:
        """Note that some task of a group found no place; True when all of its tasks are to be told why.

        Otherwise only those that were told nothing yet are: the others were told another reason a moment ago.
        """
        before = self._blocks.get(group)
        if before is not None and not before.failed and self.still(group, reason, now_s):
            return False
        self._blocks[group] = _Block(demand.of_any_service(), reason, now_s, self._n_changes)
        return True

    def fail(self, group: Group, demand: Demand, reason: str, now_s: float) -> None:
        """Note that nobody could decide on a group: it is tried anew after a while."""
        self._blocks[group] = _Block(demand, reason, now_s, self._n_changes, now_s + FAILED_S, failed=True)

    def next_due_s(self) -> float:
        """When to look though nothing changed."""
        return min((block.due_s for block in self._blocks.values()), default=math.inf)


__all__ = ["FAILED_S", "RETELL_S", "Blocked", "Group"]
