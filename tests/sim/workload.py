"""Random requests of users, and what they were promised."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import trio

from beeyard.runtime.sim import SimWorld
from tests.sim.api import ClusterApi, Refused, Unanswered


@dataclasses.dataclass
class Promise:
    """What the manager has acknowledged about one service. None: the last request about it was not answered."""

    exists: bool | None
    replicas: int | None


class Workload:
    """Creates, scales, changes and removes services, and remembers each answer."""

    def __init__(
        self, world: SimWorld, api: ClusterApi, network_ids: list[str], *, n_services: int, n_tasks: int
    ) -> None:
        self.world = world
        self.promises: dict[str, Promise] = {}
        self.n_requests = self.n_answered = 0
        self._api = api
        self._network_ids = network_ids
        self._n_services = n_services
        self._n_tasks = n_tasks
        self._rng: random.Random = world.generator("workload")

    async def run(self, mean_between_s: float) -> None:
        """Ask for things until cancelled. A request that is cut off counts as not answered."""
        while True:
            await trio.sleep(self._rng.expovariate(1.0 / mean_between_s))
            await self._one()

    async def remove_all(self) -> None:
        """Remove every service, for sure."""
        for name in self.promises:
            try:
                await self._api.insist("DELETE", f"/services/{name}")
            except Refused as refused:
                if refused.status != 404:
                    raise
            self.promises[name] = Promise(False, None)

    async def check_promises(self) -> None:
        """What was acknowledged is so: services exist or not, with the number of replicas that was asked for last."""
        found = {service["Spec"]["Name"]: service for service in await self._api.insist("GET", "/services")}
        for name, promise in self.promises.items():
            if promise.exists is not None:
                assert (name in found) == promise.exists, f"service {name}: promised {promise}, found {name in found}"
            if promise.exists and promise.replicas is not None:
                replicas = found[name]["Spec"]["Mode"]["Replicated"]["Replicas"]
                assert replicas == promise.replicas, f"service {name}: promised {promise}, found {replicas}"

    async def wanted_tasks(self) -> int:
        """How many tasks the services that exist ask for."""
        services = await self._api.insist("GET", "/services")
        return sum(service["Spec"]["Mode"]["Replicated"]["Replicas"] for service in services)

    async def _one(self) -> None:
        names = list(self.promises)
        verb = self._rng.choice(("create", "scale", "scale", "change", "remove"))
        if verb == "create" or not names:
            if len([p for p in self.promises.values() if p.exists is not False]) < self._n_services:
                await self._create(f"s{len(names)}")
            return
        name = self._rng.choice(names)
        if verb == "remove":
            await self._ask(name, "DELETE", f"/services/{name}", None, Promise(False, None))
        else:
            await self._update(name, scale=verb == "scale")

    async def _create(self, name: str) -> None:
        replicas = self._rng.randint(0, self._n_tasks)
        body = {
            "Name": name,
            "TaskTemplate": {
                "ContainerSpec": {"Image": "host:latest", "Args": ["sleep", "1000"]},
                "Resources": {"Reservations": {"NanoCPUs": self._rng.choice((0, 250_000_000))}},
                "RestartPolicy": {"Condition": "any", "Delay": 1_000_000_000},
                "Networks": [{"Target": target} for target in self._network_ids if self._rng.random() < 0.7],
            },
            "Mode": {"Replicated": {"Replicas": replicas}},
        }
        self.promises[name] = Promise(False, None)
        await self._ask(name, "POST", "/services/create", body, Promise(True, replicas))

    async def _update(self, name: str, *, scale: bool) -> None:
        try:
            shown = await self._api.call("GET", f"/services/{name}")
        except (Refused, Unanswered):
            return
        spec = shown["Spec"]
        replicas = spec["Mode"]["Replicated"]["Replicas"]
        if scale:
            replicas = self._rng.randint(0, self._n_tasks)
            spec["Mode"] = {"Replicated": {"Replicas": replicas}}
        else:
            container = spec["TaskTemplate"]["ContainerSpec"]
            container["Env"] = [f"GENERATION={self._rng.randrange(1000)}"]
        await self._ask(
            name,
            "POST",
            f"/services/{name}/update",
            spec,
            Promise(True, replicas),
            version=shown["Version"]["Index"],
        )

    async def _ask(self, name: str, method: str, path: str, body: Any, promise: Promise, **query: Any) -> None:
        self.n_requests += 1
        known, self.promises[name] = self.promises[name], Promise(None, None)
        try:
            await self._api.call(method, path, body, **query)
        except Refused as refused:
            # Also a second removal of what an unanswered one has removed already.
            self.promises[name] = Promise(False, None) if refused.status == 404 else known
            self.world.trace.event("user", f"{method} {path} refused: {refused}")
        except Unanswered:
            self.world.trace.event("user", f"{method} {path} unanswered")
        else:
            self.n_answered += 1
            self.promises[name] = promise
            self.world.trace.event("user", f"{method} {path} done: {promise}")
