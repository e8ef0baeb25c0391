"""The routes of one node, as changes against what its agent was told before in the same session."""

from __future__ import annotations

from beeyard.core.wire import HostRoute, Routes
from beeyard.manager.dispatch.route_table import RouteTable

# In one message: some 300 KB.
PART_ROUTES = 5000


class RouteBook:
    """What the agent of one node has been told of its routes, and what it has not yet."""

    def __init__(self, table: RouteTable, node_id: str) -> None:
        self._table = table
        self._node_id = node_id
        self._told: dict[str, HostRoute] = {}  # by destination
        self._touched: dict[str, None] = {}
        self._all_due = True
        self._first = True

    def touch(self, destination: str | None) -> None:
        """The route to a destination may be another now; None: any of them."""
        if destination is None:
            self._all_due = True
        else:
            self._touched[destination] = None

    def take(self) -> list[Routes]:
        """What to send now; it counts as sent. The first that a session says is complete, or nothing when there are none."""
        if not self._all_due and not self._touched:
            return []
        touched, self._touched = self._touched, {}
        all_due, self._all_due = self._all_due, False
        complete, self._first = self._first, False
        if all_due:
            wanted = {route.destination: route for route in self._table.routes(self._node_id)}
            touched = dict.fromkeys((*self._told, *wanted))
        else:
            found = ((destination, self._table.route(self._node_id, destination)) for destination in touched)
            wanted = {destination: route for destination, route in found if route is not None}
        changed = [route for destination, route in wanted.items() if self._told.get(destination) != route]
        removed = [destination for destination in touched if destination in self._told and destination not in wanted]
        for destination in removed:
            del self._told[destination]
        self._told.update((route.destination, route) for route in changed)
        return _parts(complete, changed, removed)


def _parts(complete: bool, changed: list[HostRoute], removed: list[str]) -> list[Routes]:
    n_parts = -(-max(len(changed), len(removed)) // PART_ROUTES)
    return [
        Routes(
            complete=complete,
            routes=tuple(changed[part * PART_ROUTES : (part + 1) * PART_ROUTES]),
            removed=tuple(removed[part * PART_ROUTES : (part + 1) * PART_ROUTES]),
            more=part < n_parts - 1,
        )
        for part in range(n_parts)
    ]


__all__ = ["PART_ROUTES", "RouteBook"]
