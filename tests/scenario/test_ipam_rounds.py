"""A thousand rounds of create, scale and remove with a plugin that fails in every way: its books and ours agree."""

from __future__ import annotations

import random

import pytest
import trio

from beeyard.core.model import Service
from beeyard.runtime.sim import SimWorld
from tests.support.memory_database import MemoryDatabase
from tests.support.plugin_books import Books
from tests.support.plugin_world import PluginWorld, plugin_world
from tests.support.sim_plugin import Seeded, SimPlugin

ROUNDS = 1000
ROUNDS_A_LIFE = 100  # of the manager, which is then killed
SERVICES = [f"s{number}" for number in range(1, 5)]


async def play(p: PluginWorld, plugin: SimPlugin, rng: random.Random, rounds: int) -> None:
    """Users and a nemesis."""
    for _ in range(rounds):
        name = rng.choice(SERVICES)
        service = p.world.store.get(Service, name)
        if service is None:
            await p.service(rng.randint(1, 4), service_id=name)
        elif rng.random() < 0.4:
            await p.world.remove_service(name)
        else:
            await p.world.scale(rng.randint(0, 5), name)
        if rng.random() < 0.02:
            await p.kill(plugin)
            await trio.sleep(rng.uniform(0.0, 20.0))
            await p.start(plugin)
        if rng.random() < 0.02:
            plugin.hang()
            await trio.sleep(rng.uniform(0.0, 30.0))
            plugin.resume()
        await trio.sleep(rng.choice((0.0, 0.1, 1.0, 5.0, 20.0)))
        p.world.check_books()


@pytest.mark.parametrize("seed", [1])
async def test_books_agree_after_a_thousand_rounds(autojump_clock: object, seed: int) -> None:
    """Whatever the plugin does, and the manager killed ten times: at rest nothing differs, then nothing is left."""
    rng = random.Random(seed)
    script = Seeded(rng, 0.08)
    plugin = SimPlugin(books=Books())
    database = MemoryDatabase()
    async with SimWorld(seed) as sim:
        for life in range(ROUNDS // ROUNDS_A_LIFE):
            async with plugin_world(database, sim) as p:
                await p.start(plugin)
                if life == 0:
                    await p.network(plugin)
                    plugin.script = script
                await play(p, plugin, rng, ROUNDS_A_LIFE)
        script.stop()
        async with plugin_world(database, sim) as p:
            await p.start(plugin)
            await trio.sleep(900)
            for name in SERVICES:
                service = p.world.store.get(Service, name)
                wanted = 0 if service is None else service.spec.replicas
                assert len(p.world.running(name)) == wanted, p.reasons(name)
            p.check_agreement(plugin)
            p.world.check_books()
            assert len(p.world.store.address_leases) == len(p.world.addresses())
            for name in SERVICES:
                if p.world.store.get(Service, name) is not None:
                    await p.world.remove_service(name)
            await trio.sleep(100)
            assert list(plugin.books.addresses().values()) == ["com.docker.network.gateway"]
            assert not p.world.store.address_leases
    assert len(plugin.faults) == 9, "a fault was never met"
