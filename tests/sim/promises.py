"""What users may expect of services after all that was answered, and after what was not.

Theory of operation
-------------------
An *outcome* is how many replicas a service has, or `ABSENT`. A request has one outcome if it is carried out. When it is
answered, that outcome is a promise. When it is refused, nothing has happened. When there is no answer, it has happened, or
not, or *it may still happen*: what a client has sent lies in the socket of a manager that is paused. So a request stays
*open* until `is_over` says that it can have no effect any more, and until then its outcome may follow any other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final

ABSENT: Final = None
Outcome = int | None


@dataclasses.dataclass(frozen=True)
class _Open:
    """A request without an answer; `is_new`: its outcome was not possible before."""

    outcome: Outcome
    is_over: Callable[[], bool]
    is_new: bool


class Promise:
    """What one service may be like."""

    def __init__(self) -> None:
        self._possible: dict[Outcome, None] = {ABSENT: None}
        self._open: dict[int, _Open] = {}
        self._n_asked = 0

    @property
    def possible(self) -> tuple[Outcome, ...]:
        """Every outcome that may be found now."""
        return tuple(self._possible)

    @property
    def may_still_change(self) -> bool:
        """Whether a request that was not answered may still be carried out."""
        self._forget_what_is_over()
        return bool(self._open)

    def asked(self, outcome: Outcome, is_over: Callable[[], bool]) -> int:
        """A request goes out, after the one before was answered or given up; gives its number."""
        self._n_asked += 1
        self._open[self._n_asked] = _Open(outcome, is_over, outcome not in self._possible)
        self._possible[outcome] = None
        return self._n_asked

    def answered(self, number: int) -> None:
        """It was carried out: only what is still open may have come after it."""
        self._narrow(self._open.pop(number).outcome)

    def refused(self, number: int, *, absent: bool) -> None:
        """It was not and will not be carried out; `absent`: because there is no such service."""
        request = self._open.pop(number)
        if absent:
            self._narrow(ABSENT)
        elif request.is_new:
            del self._possible[request.outcome]

    def _narrow(self, outcome: Outcome) -> None:
        self._forget_what_is_over()
        self._possible = {outcome: None, **{request.outcome: None for request in self._open.values()}}

    def _forget_what_is_over(self) -> None:
        self._open = {number: request for number, request in self._open.items() if not request.is_over()}
