"""Lines for the snapshot file, as things happen. See `snapshot`."""

from __future__ import annotations

from beeyard.discovery.gossip.serf.event import MemberEvent, MemberJoin, MemberLeave, MemberReap
from beeyard.discovery.gossip.serf.snapshot import LEAVE_LINE, alive_line, clock_lines, is_one_line, not_alive_line

CLOCK_INTERVAL_S = 0.5  # Source: Serf's clockUpdateInterval


class SnapshotLog:
    """Collects in `lines` while `is_kept`."""

    def __init__(self, name: str, *, is_kept: bool) -> None:
        self.lines: list[str] = []
        self._name = name
        self._is_kept = is_kept
        self._clocks = (0, 0, 0)
        self._next_s = 0.0

    def note(self, event: MemberEvent) -> None:
        """Something happened to a member. One that failed stays: it may be the one that comes back."""
        member = event.member
        if not self._is_kept or member.name == self._name or not is_one_line(member.name):
            return
        if isinstance(event, MemberJoin):
            self.lines.append(alive_line(member.name, member.address))
        elif isinstance(event, (MemberLeave, MemberReap)):
            self.lines.append(not_alive_line(member.name))

    def note_clocks(self, now_s: float, clocks: tuple[int, int, int]) -> None:
        """The newest times that were seen; written at most twice a second."""
        if not self._is_kept or clocks == self._clocks or now_s < self._next_s:
            return
        changed = [new if new != old else 0 for new, old in zip(clocks, self._clocks, strict=True)]
        self.lines.append(clock_lines(*changed))
        self._clocks = clocks
        self._next_s = now_s + CLOCK_INTERVAL_S

    def note_leave(self) -> None:
        """This member leaves by its own will."""
        if self._is_kept:
            self.lines.append(LEAVE_LINE)


__all__ = ["SnapshotLog"]
