"""How large the cluster of a seed is. Whatever users ask for fits, so that it must all run once everything is healed.

A machine has room for four units. A waiting task of one unit finds no node only when every node has four, one of two units
only when every node has three; and a task with an address needs a node of a rack whose pool is not empty. A fixed port closes
a node to the tasks of its own service alone, and these are few; so does a link that takes a whole interface, which tasks of
one service at a time have.
`check_that_all_fits` counts how many tasks that would take.
"""

from __future__ import annotations

import dataclasses
import random

UNITS = 4  # in which a machine's room is asked for
FEW_TASKS = 3  # of a service whose tasks need a node each, at most


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Numbers of one cluster."""

    n_agents: int
    n_services: int  # at once
    n_tasks: int  # of one service, at most
    prefix: int  # of each rack's range of addresses
    units: tuple[int, ...]  # what tasks may ask for

    @property
    def n_addresses(self) -> int:
        """In the range of one rack."""
        return int(2 ** (32 - self.prefix))


SIZES = (
    Sizes(n_agents=20, n_services=6, n_tasks=5, prefix=28, units=(0, 1, 2)),
    Sizes(n_agents=20, n_services=6, n_tasks=10, prefix=27, units=(0, 1)),
    Sizes(n_agents=8, n_services=4, n_tasks=3, prefix=29, units=(0, 1, 2)),
    Sizes(n_agents=8, n_services=4, n_tasks=6, prefix=28, units=(0, 1)),
)


def draw_sizes(rng: random.Random) -> Sizes:
    """Those of a seed."""
    return rng.choices(SIZES, weights=(1, 1, 2, 2))[0]  # a large one costs three times as much as a small one


def check_that_all_fits(sizes: Sizes) -> None:
    """Even the last task finds a node with room in a rack with an address, wherever all the others are."""
    others = sizes.n_services * sizes.n_tasks - 1
    units_of_full_node = UNITS - max(sizes.units) + 1
    tasks_of_full_node = -(-units_of_full_node // max(sizes.units))
    n_nodes = sizes.n_agents // 2
    tasks_of_racks = [min(n * tasks_of_full_node, sizes.n_addresses) for n in (n_nodes, n_nodes - FEW_TASKS + 1)]
    assert others < sum(tasks_of_racks), f"{sizes}: {others} other tasks may close both racks"
