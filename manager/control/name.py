"""Names for services that were given none, as Docker draws them: a quality and a bee."""

from __future__ import annotations

import random

from beeyard.core.model import Service
from beeyard.manager.store import View

QUALITIES = (
    "able bold brave bright busy calm clever cosy eager early fair fleet fond gentle glad golden happy "
    "hardy humble jolly keen kind lively loyal lucky merry mild neat nimble noble patient proud quick "
    "quiet ready sunny swift tidy warm wise"
).split()
BEES = (
    "alder apiary apple aster basil blossom bramble brood buckwheat bumble carder clover comb drone flora "
    "forage hive honey iris keeper lavender linden mason meadow mint mustard nectar pollen queen rose "
    "sage scout skep swarm thistle thyme wax willow worker"
).split()
TRIES = 8


def draw_name(rng: random.Random, view: View) -> str:
    """A name that no service has now. After some collisions a number is added, so it always ends."""
    for _ in range(TRIES):
        name = f"{rng.choice(QUALITIES)}_{rng.choice(BEES)}"
        if view.by_name(Service, name) is None:
            return name
    while True:
        numbered = f"{name}_{rng.randrange(10_000)}"
        if view.by_name(Service, numbered) is None:
            return numbered


__all__ = ["draw_name"]
