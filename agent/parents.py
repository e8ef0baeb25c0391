"""The step that keeps links off a parent that would disturb those of other tasks there.

The kernel refuses some of it (macvlan beside ipvlan, anything beside passthru) in fewer words. The rest it does without a
word: an ipvlan link of another mode changes every ipvlan link on its parent to that mode. The manager counts all this too,
but learns late what is here.
"""

from __future__ import annotations

import errno

from beeyard.agent.steps import Step
from beeyard.core.errors import NetlinkError
from beeyard.core.grant import AddressGrant
from beeyard.core.network_options import KIND_ALONE, link_kind
from beeyard.core.wire import AssignedTask
from beeyard.runtime.host import NO_ADDITIONS, Additions

_Use = tuple[str, str]  # parent, kind of link in words


class ParentStep(Step):
    """Who uses which parent in which way."""

    def __init__(self) -> None:
        self._uses: dict[str, tuple[_Use, ...]] = {}  # by task id

    def found(self, task: AssignedTask) -> None:
        """See `Step.found`."""
        self._uses[task.id] = _uses_of(task)

    async def before(self, task: AssignedTask) -> Additions:
        """See `Step.before`."""
        present = [(f"task {id_}", use) for id_, uses in self._uses.items() if id_ != task.id for use in uses]
        for use in _uses_of(task):
            for owner, other in present:
                _check(use, owner, other)
            present.append(("another network of the same task", use))
        self._uses[task.id] = _uses_of(task)
        return NO_ADDITIONS

    async def ended(self, task_id: str) -> None:
        """See `Step.ended`."""
        self._uses.pop(task_id, None)


def _uses_of(task: AssignedTask) -> tuple[_Use, ...]:
    return tuple((g.parent, link_kind(g.driver, g.mode, g.flag)) for g in task.grants if isinstance(g, AddressGrant))


def _check(use: _Use, owner: str, other: _Use) -> None:
    (parent, words), (other_parent, other_words) = use, other
    if parent == other_parent and (words != other_words or words == KIND_ALONE):
        advice = f"{owner} has {other_words} on it, which excludes {words}; use another parent or the same mode"
        raise NetlinkError(errno.EBUSY, "use parent", parent, advice)


__all__ = ["ParentStep"]
