"""Ports of nodes: which are taken, and which are given to tasks that do not care for the number.

Theory of operation
-------------------
`PortTable` is the one place that knows which ports of which nodes are taken: by holds and plans of tasks that asked for a
fixed number, by ports that were chosen for tasks, and by foreign listeners that agents report. Placement asks it whether a
fixed port is free, `PortBook` whether a number may be chosen, and both write into it before anybody else can ask. So a
chosen port and a fixed one never meet.

`PortBook` chooses by next-fit, so that a number that was given back is not the first to be given again; besides it rests for
a while, since clients may still know it as somebody else's. A port that rests is given before none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from beeyard.core.errors import PortsExhausted
from beeyard.core.grant import MappedPort
from beeyard.core.model import HostPort, PublishedPort

# Source: SwarmKit `dynamicPortStart`, `dynamicPortEnd`.
PORT_FIRST, PORT_LAST = 30000, 32767
COOL_DOWN_S = 30.0


class PortTable:
    """Which ports of which nodes are taken. Counted, since a plan and its task may overlap for a moment."""

    def __init__(self) -> None:
        self._taken: dict[HostPort, Counter[str]] = {}  # node ids
        self._listening: dict[HostPort, dict[str, None]] = {}
        self._of_node: dict[str, tuple[HostPort, ...]] = {}  # what listens there

    def copy(self) -> PortTable:
        """One of its own to try things on."""
        twin = PortTable()
        twin._taken = {port: nodes.copy() for port, nodes in self._taken.items()}
        twin._listening = {port: dict(nodes) for port, nodes in self._listening.items()}
        twin._of_node = dict(self._of_node)
        return twin

    def take(self, node_id: str, ports: Iterable[HostPort]) -> None:
        """A task holds these ports of a node, known or not."""
        for port in ports:
            self._taken.setdefault(port, Counter())[node_id] += 1

    def give(self, node_id: str, ports: Iterable[HostPort]) -> None:
        """The reverse of one `take`."""
        for port in ports:
            nodes = self._taken[port]
            nodes[node_id] -= 1
            if not nodes[node_id]:
                del nodes[node_id]
            if not nodes:
                del self._taken[port]

    def set_listening(self, node_id: str, ports: Sequence[HostPort]) -> None:
        """What else listens on a node now."""
        before = self._of_node.get(node_id, ())
        if tuple(ports) == before:
            return
        for port in before:
            nodes = self._listening[port]
            nodes.pop(node_id, None)
            if not nodes:
                del self._listening[port]
        for port in ports:
            self._listening.setdefault(port, {})[node_id] = None
        self._of_node[node_id] = tuple(ports)
        if not ports:
            del self._of_node[node_id]

    def nodes(self, port: HostPort) -> Iterator[str]:
        """Ids of the nodes on which a port is taken; one may come twice."""
        yield from self._taken.get(port, ())
        yield from self._listening.get(port, ())

    def is_taken(self, node_id: str, port: HostPort) -> bool:
        """Whether a port of a node is taken."""
        return node_id in self._taken.get(port, ()) or node_id in self._listening.get(port, ())


class PortBook:
    """Ports that are chosen for tasks, by grant. Times are of the caller's monotonic clock."""

    def __init__(
        self, table: PortTable, first: int = PORT_FIRST, last: int = PORT_LAST, cool_down_s: float = COOL_DOWN_S
    ) -> None:
        """Args: the table shared with placement, the numbers to choose from, both inclusive, and how long used ones rest."""
        self._table = table
        self._first, self._last = first, last
        self._cool_down_s = cool_down_s
        self._grants: dict[str, tuple[str, tuple[HostPort, ...]]] = {}  # node id, chosen ports
        self._next: dict[str, dict[str, int]] = {}  # node id, protocol → where to look first
        # By node: its ports that are chosen or rest. Invariant: `_next` has no node without any.
        self._n_ports: Counter[str] = Counter()
        self._rests: dict[tuple[str, HostPort], float] = {}  # until when; in order of time

    def reserve(
        self, node_id: str, grant_id: str, ports: Sequence[PublishedPort], now_s: float
    ) -> tuple[MappedPort, ...]:
        """The ports of a task on its node, in their order: fixed ones as they are, the others chosen. All or nothing.

        Raises:
            PortsExhausted: every port of the range is taken on this node.
        """
        assert grant_id not in self._grants, f"grant {grant_id} has its ports"
        self._expire(now_s)
        chosen: list[HostPort] = []
        mapped = []
        for port in ports:
            number = port.published
            if not number:
                try:
                    number = self._choose(node_id, port.protocol)
                except PortsExhausted:
                    self._table.give(node_id, chosen)
                    self._count(node_id, -len(chosen))
                    raise
                chosen.append(HostPort(protocol=port.protocol, port=number))
                self._table.take(node_id, chosen[-1:])
                self._count(node_id, 1)
            mapped.append(MappedPort(protocol=port.protocol, published=number, target=port.target))
        self._grants[grant_id] = (node_id, tuple(chosen))
        return tuple(mapped)

    def restore(
        self, node_id: str, grant_id: str, ports: Sequence[PublishedPort], mapped: Sequence[MappedPort]
    ) -> None:
        """Hold again what was chosen in an earlier life. Idempotent."""
        if grant_id in self._grants:
            return
        chosen = tuple(
            HostPort(protocol=given.protocol, port=given.published)
            for asked, given in zip(ports, mapped, strict=False)
            if not asked.published
        )
        self._table.take(node_id, chosen)
        self._count(node_id, len(chosen))
        self._grants[grant_id] = (node_id, chosen)

    def release(self, grant_id: str, now_s: float, *, used: bool) -> None:
        """Give chosen ports back; they rest when somebody may have seen them. Idempotent."""
        node_id, chosen = self._grants.pop(grant_id, ("", ()))
        self._table.give(node_id, chosen)
        for port in chosen if used else ():
            rested = self._rests.pop((node_id, port), None)
            self._rests[node_id, port] = now_s + self._cool_down_s
            self._count(node_id, 1 if rested is None else 0)
        self._count(node_id, -len(chosen))

    def grants(self) -> list[str]:
        """Ids of all grants that hold ports."""
        return list(self._grants)

    def _choose(self, node_id: str, protocol: str) -> int:
        size = self._last - self._first + 1
        begin = self._next.get(node_id, {}).get(protocol, self._first)
        rested = None
        for step in range(size):
            number = self._first + (begin - self._first + step) % size
            port = HostPort(protocol=protocol, port=number)
            if self._table.is_taken(node_id, port):
                continue
            if (node_id, port) in self._rests:
                rested = port if rested is None else rested
                continue
            break
        else:
            if rested is None:
                raise PortsExhausted(protocol, self._first, self._last)
            number = rested.port
        self._next.setdefault(node_id, {})[protocol] = number + 1 if number < self._last else self._first
        return number

    def _expire(self, now_s: float) -> None:
        for key, until_s in list(self._rests.items()):
            if until_s > now_s:
                break
            del self._rests[key]
            self._count(key[0], -1)

    def _count(self, node_id: str, n_ports: int) -> None:
        """So many ports more, of a node whose last one takes along where to look first."""
        self._n_ports[node_id] += n_ports
        if self._n_ports[node_id] <= 0:
            del self._n_ports[node_id]
            self._next.pop(node_id, None)


__all__ = ["PORT_FIRST", "PORT_LAST", "PortBook", "PortTable"]
