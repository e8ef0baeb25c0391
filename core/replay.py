"""Runs a decision log again and compares every decision with what was decided then."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from beeyard.core import decision_log as log
from beeyard.core.decision_snapshot import restore
from beeyard.core.demand import Demand
from beeyard.core.errors import InvalidSpec
from beeyard.core.placement import PlacementIndex
from beeyard.core.recorded_index import choices_of

# What an index raises when it is told what nobody tells it, such as a task that is placed twice: a log is from a file.
_IMPOSSIBLE = (ArithmeticError, AssertionError, LookupError, TypeError, ValueError)


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    n_decisions: int  # groups that were placed again
    n_tasks: int  # that found a place
    difference: str  # the first one, "" when all is the same
    digest: str  # SHA-256 of all decisions, the same wherever they are the same
    n_bytes_cut: int  # at the end of the log, of a message that is not there whole


def replay(data: bytes) -> Replay:
    """Run a log again, up to the first difference.

    Raises:
        InvalidSpec: it is no log of this version, or it is damaged.
    """
    messages = log.entries(data)
    begin = next(messages, None)
    if not isinstance(begin, log.Begin):
        raise InvalidSpec("decision log", "does not begin with how its index was made")
    player = _Player(begin)
    for number, entry in enumerate(messages, 2):
        try:
            player.play(entry)
        except _IMPOSSIBLE as error:
            reason = f"message {number}, {type(entry).__name__}, cannot have been: {error or type(error).__name__}"
            raise InvalidSpec("decision log", reason) from error
        if player.difference:
            break
    return Replay(
        n_decisions=player.n_decisions,
        n_tasks=player.n_tasks,
        difference=player.difference,
        digest=player.digest.hexdigest(),
        n_bytes_cut=log.n_bytes_cut(data),
    )


class _Player:
    """An index and how far it is."""

    def __init__(self, begin: log.Begin) -> None:
        try:
            self._index = PlacementIndex(begin.seed, begin.strategy)
        except ValueError as error:
            raise InvalidSpec("decision log", str(error)) from error
        self._demands: dict[int, Demand] = {}
        self.n_decisions = self.n_tasks = 0
        self.difference = ""
        self.digest = hashlib.sha256()

    def play(self, entry: log.AnyEntry) -> None:
        """Tell the index one thing, or have it decide."""
        match entry:
            case log.NewDemand():
                self._demands[entry.number] = entry.demand
            case log.Place():
                decision = self._index.place(
                    self._demand(entry.demand), entry.task_ids, masked=entry.masked, now_s=entry.now_s
                )
                self._compare(entry.task_ids, entry.choices, choices_of(decision.placed))
            case log.PlaceMany():
                groups = [(self._demand(number), task_ids) for number, task_ids in entry.groups]
                decisions, _ = self._index.place_many(groups, now_s=entry.now_s, rounds=entry.rounds)
                for (_, task_ids), then, now in zip(entry.groups, entry.choices, decisions, strict=True):
                    self._compare(task_ids, then, choices_of(now.placed))
            case log.Hold():
                restore(self._index, entry, self._demand(entry.demand))
            case log.KindNames() | log.Usual():
                restore(self._index, entry)
            case _:
                self._tell(entry)

    def _tell(self, entry: log.AnyEntry) -> None:
        index = self._index
        match entry:
            case log.SetNode():
                index.set_node(entry.node)
            case log.RemoveNode():
                index.remove_node(entry.node_id)
            case log.SetNetwork():
                index.set_network(entry.network_id, entry.driver, entry.pools, name=entry.name)
            case log.RemoveNetwork():
                index.remove_network(entry.network_id)
            case log.SetPoolFree():
                index.set_pool_free(entry.pool_id, entry.free)
            case log.SetVolume():
                index.volumes.set(entry.volume)
            case log.RemoveVolume():
                index.volumes.remove(entry.volume_id)
            case log.Reserve():
                index.volumes.reserve(entry.task_id, entry.node_id, entry.uses)
            case log.Release():
                index.volumes.release(entry.task_id)
            case log.TakePorts():
                index.ports.take(entry.node_id, entry.ports)
            case log.GivePorts():
                index.ports.give(entry.node_id, entry.ports)
            case log.Drop():
                index.drop(entry.task_id)
            case log.Settle():
                index.settle(entry.task_id)
            case log.Failure():
                index.note_failure(entry.service_id, entry.spec_version, entry.node_id, entry.at_s)
            case _:
                raise InvalidSpec("decision log", f"a message {type(entry).__name__} in the middle")

    def _demand(self, number: int) -> Demand:
        if number not in self._demands:
            raise InvalidSpec("decision log", f"demand {number} is named before it is told")
        return self._demands[number]

    def _compare(self, task_ids: Sequence[str], then: Sequence[log.Choice], now: Sequence[log.Choice]) -> None:
        """Count a decision, and note where it differs from that of the log."""
        self.n_decisions += 1
        self.n_tasks += len(now)
        self.digest.update(repr((task_ids, now)).encode())
        if self.difference:
            return
        for number, task_id in enumerate(task_ids):
            was, is_now = (_words(choices, number) for choices in (then, now))
            if was != is_now:
                self.difference = f"decision {self.n_decisions}: task {task_id} {was} then, {is_now} now"
                return


def _words(choices: Sequence[log.Choice], number: int) -> str:
    """Where a task went, for a person."""
    if number >= len(choices):
        return "found no place"
    node_id, pool_ids, volumes = choices[number]
    pools = f" with pools {', '.join(pool_ids)}" if pool_ids else ""
    uses = f" with volumes {', '.join(use.name for use in volumes)}" if volumes else ""
    return f"went to node {node_id}{pools}{uses}"


__all__ = ["Replay", "replay"]
