"""Rare situations that a simulation is there to reach, known by what the daemons log; and what none of them may ever log.

A *probe* counts how often a run came into one situation. `python -m tests.sim SEED --seeds N` lists those that no seed hit:
then the nemesis is too kind. A *defect* is a sentence with which a firebreak reports an error of ours; it fails the run.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog

Logged = MutableMapping[str, Any]


def _always(logged: Logged) -> bool:
    return True


def _has(field: str, words: str) -> Callable[[Logged], bool]:
    return lambda logged: words in str(logged.get(field, ""))


@dataclasses.dataclass(frozen=True)
class Probe:
    """One situation: a sentence in the log, and what its fields must say."""

    name: str
    sentence: str
    when: Callable[[Logged], bool] = _always


PROBES = (
    Probe("node down", "node is down"),
    Probe("mass failure held", "replacement of tasks", lambda logged: logged["held_back"] != "no more"),
    Probe("mass failure ended", "replacement of tasks", _has("held_back", "no more")),
    Probe("manager clock gap", "this manager did not run for a while"),
    Probe("task orphaned by time", "task orphaned"),
    Probe("lease lapsed", "task status", _has("err", "for longer than the lease")),
    Probe("re-adopted after agent restart", "tasks were found on this host", lambda logged: logged["known"] > 0),
    Probe("unknown task cleaned up", "a task that no manager knows is stopped and removed"),
    Probe("process gone with its host", "task status", _has("err", "its process is gone")),
    Probe("predecessor still stopping", "task status", _has("message", "to stop")),
    Probe("links taken down by the agent", "the shim did not take the links down; the agent does"),
    Probe("end not written", "the end of the task was not written"),
    Probe("plan dropped: task not wanted", "plan dropped", _has("reason", "not wanted")),
    Probe("plan dropped: node changed", "plan dropped", _has("reason", "the node has changed")),
    Probe("plan dropped: service removed", "plan dropped", _has("reason", "service was removed")),
    Probe("commit failed", "commit failed"),
    Probe("statuses not stored", "statuses not stored, trying again"),
    Probe("stranger met", "task status", _has("err", "is in use on eth")),
    Probe("address put aside", "an address is in use outside the cluster and put aside"),
    Probe("plugin out", "IPAM plugin does not work"),
    Probe("plugin hung", "IPAM plugin does not work", _has("reason", "answer within")),
    Probe("plugin refused", "hook refused", _has("reason", "database is locked")),
    Probe("plugin gave what cannot be", "hook refused", _has("reason", " gave ")),
    Probe("waits for a plugin", "task rests", _has("reason", "IPAM plugin")),
    Probe("node hook refused", "task status", _has("err", "refused at")),
    Probe("node hook hung", "task status", _has("err", "did not answer")),
    Probe("node hook failed at stop", "a node hook failed at stop"),
    Probe("port of another program", "task status", _has("err", "of this node is in use by")),
    Probe("port link of a former task", "a port link of a former task is removed"),
    Probe("passthru link", "tasks have an interface for themselves", lambda logged: logged["n"] > 0),
    Probe("link of a host refused", "task status", _has("err", "which excludes")),
    Probe("routes on a host", "routes to tasks of other hosts", lambda logged: logged["wanted"] > 0),
    Probe("no way to a task", "no route to a task on another host"),
    Probe("pool with addresses removed", "an operator removed a pool", lambda logged: logged["held"] > 0),
    Probe("pool changed under addresses", "an operator changed a pool", _has("warning", "keep")),
    Probe("pool change refused", "an operator was refused"),
)

DEFECTS = (
    Probe("two holders of an address in the store", "address held twice"),
    Probe("a task that was deleted too early", "task deleted before its end was observed"),
    # The manager counts a task's room until it has seen its end, the agent gives it up before it reports that end.
    Probe("a node with more than it has room for", "task status", _has("err", "insufficient")),
    Probe("a firebreak in the agent", "the agent failed at this task"),
    Probe("a firebreak of last resort in the agent", "the agent lost a task"),
    Probe("a firebreak around a session", "the session failed"),
    Probe("a firebreak around a hook", "hook failed"),
    Probe("a firebreak around a request", "request failed"),
    Probe("a firebreak around the scheduler", "scheduling failed"),
    Probe("a firebreak around a task", "task not admitted"),
    Probe("a firebreak around a plan", "task not assigned"),
    Probe("a firebreak around a question to a plugin", "question to an IPAM plugin failed"),
    Probe("a firebreak around a release to a plugin", "giving back to an IPAM plugin failed"),
    Probe("damaged debts to node hooks", "what is owed to node hooks is damaged and removed"),
    Probe("a grant of nobody", "grant of an unknown hook"),
    Probe("a damaged record", "a task record is damaged and removed"),
    Probe("a damaged identity", "the identity on disk is damaged"),
    Probe("a damaged list of managers", "the list of managers is damaged and not used"),
)


class Marks:
    """What one run came upon."""

    def __init__(self) -> None:
        self.hits: collections.Counter[str] = collections.Counter()
        self.defects: list[str] = []
        self._probes = _by_sentence(PROBES)
        self._defects = _by_sentence(DEFECTS)

    def note(self, logger: object, method: str, logged: Logged) -> Logged:
        """A processor of structlog."""
        sentence = str(logged["event"])
        self.hits.update(probe.name for probe in self._probes.get(sentence, ()) if probe.when(logged))
        for defect in self._defects.get(sentence, ()):
            if defect.when(logged):
                self.defects.append(f"{defect.name}: {', '.join(f'{key}={value}' for key, value in logged.items())}")
        return logged


def _by_sentence(probes: Iterable[Probe]) -> dict[str, list[Probe]]:
    found: dict[str, list[Probe]] = collections.defaultdict(list)
    for probe in probes:
        found[probe.sentence].append(probe)
    return dict(found)


def _drop(logger: object, method: str, logged: Logged) -> Logged:
    raise structlog.DropEvent


@contextmanager
def listening(*, shown: bool = False) -> Iterator[Marks]:
    """Listen to what all daemons log; `shown`: warnings are printed as well."""
    marks = Marks()
    before = structlog.get_config()
    show: list[Any] = [_only_warnings, structlog.dev.ConsoleRenderer()] if shown else [_drop]
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO), processors=[marks.note, *show]
    )
    try:
        yield marks
    finally:
        structlog.configure(**before)


def _only_warnings(logger: object, method: str, logged: Logged) -> Logged:
    if method == "info":
        raise structlog.DropEvent
    return logged


__all__ = ["DEFECTS", "PROBES", "Marks", "Probe", "listening"]
