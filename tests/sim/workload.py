"""Random requests of users, and what they were promised."""

from __future__ import annotations

import random
from typing import Any

import trio

from beeyard.runtime.sim import SimWorld
from tests.sim.api import ClusterApi, Refused, Unanswered
from tests.sim.layout import WHOLE, Layout
from tests.sim.promises import ABSENT, Outcome, Promise
from tests.sim.services import Draft, draw_service
from tests.sim.sizes import Sizes

# A request that a manager has read is done soon after.
AT_REST_S = 5.0


class Workload:
    """Creates, scales, changes and removes services, and remembers each answer."""

    def __init__(
        self, world: SimWorld, api: ClusterApi, layout: Layout, network_ids: dict[str, str], sizes: Sizes
    ) -> None:
        self.world = world
        self.promises: dict[str, Promise] = {}
        self.n_requests = self.n_answered = 0
        self.drafts: dict[str, Draft] = {}  # as each was first asked for
        self._api = api
        self._layout = layout
        self._network_ids = network_ids
        self._sizes = sizes
        self._rng: random.Random = world.generator("workload")
        self._answered = trio.Event()

    async def next_answer(self) -> None:
        """Return at the moment at which a user has got the next answer."""
        await self._answered.wait()

    async def run(self, mean_between_s: float) -> None:
        """Ask for things until cancelled. A request that is cut off counts as not answered."""
        while True:
            # Now and then at once after the one before, while it is still being worked on.
            hurry = self._rng.choice((0.01, 1.0, 1.0, 2.0))
            await trio.sleep(self._rng.expovariate(1.0 / mean_between_s) * hurry)
            if self._rng.random() < 0.1:
                await self._drain_or_activate()
            else:
                await self._one()

    async def activate_all(self) -> None:
        """Every node takes tasks again, for sure: also one of which a request to drain it was still under way."""
        for _ in range(2):
            for node in await self._api.insist("GET", "/nodes"):
                while node["Spec"]["Availability"] != "active":
                    await self._set_availability(node, "active")
                    node = await self._api.insist("GET", f"/nodes/{node['ID']}")  # as it is now
            await trio.sleep(AT_REST_S)

    async def remove_all(self) -> None:
        """Remove every service, for sure."""
        for name in self.promises:
            try:
                await self._api.insist("DELETE", f"/services/{name}")
            except Refused as refused:
                if refused.status != 404:
                    raise

    async def check_promises(self) -> None:
        """What was acknowledged is so: services exist or not, with the number of replicas that was asked for last."""
        for name, promise in self.promises.items():
            assert not promise.may_still_change, f"a request about {name} is still under way"
        services = await self._api.insist("GET", "/services")
        found = {service["Spec"]["Name"]: replicas_of(service) for service in services}
        for name, promise in self.promises.items():
            replicas = found.get(name, ABSENT)
            assert replicas in promise.possible, (
                f"service {name} has {replicas} replicas, promised: one of {promise.possible}"
            )

    async def wanted_tasks(self, without: str = "") -> dict[str, int]:
        """How many tasks each service that exists asks for, by id; but for those on a network of this name."""
        services = await self._api.insist("GET", "/services")
        return {
            service["ID"]: replicas_of(service)
            for service in services
            if without not in self.drafts[service["Spec"]["Name"]].networks
        }

    async def _one(self) -> None:
        present = [name for name, promise in self.promises.items() if promise.possible != (ABSENT,)]
        # Now and then somebody asks for what is gone.
        names = present if present and self._rng.random() < 0.9 else list(self.promises)
        verb = self._rng.choice(("create", "scale", "scale", "change", "remove"))
        if verb == "create" or not names:
            if len(present) < self._sizes.n_services:
                await self._create(len(self.promises))
            return
        name = self._rng.choice(names)
        if verb == "remove":
            await self._ask(name, "DELETE", f"/services/{name}", None, ABSENT)
        else:
            await self._update(name, scale=verb == "scale")

    async def _drain_or_activate(self) -> None:
        """As an operator does for maintenance."""
        try:
            nodes = await self._api.call("GET", "/nodes")
        except Unanswered:
            return
        drained = [node for node in nodes if node["Spec"]["Availability"] != "active"]
        if len(drained) > len(nodes) // 4:
            await self._set_availability(self._rng.choice(drained), "active")
        else:
            await self._set_availability(self._rng.choice(nodes), self._rng.choice(("drain", "pause", "active")))

    async def _set_availability(self, node: dict[str, Any], availability: str) -> None:
        spec = {**node["Spec"], "Availability": availability}
        path = f"/nodes/{node['ID']}/update"
        try:
            await self._api.call("POST", path, spec, version=node["Version"]["Index"])
        except (Refused, Unanswered) as error:
            self.world.trace.event("user", f"{path} {availability}: {error}")
        else:
            self.world.trace.event("user", f"{path} {availability} done")

    async def _create(self, number: int) -> None:
        there = [name for name, promise in self.promises.items() if promise.possible != (ABSENT,)]
        whole = not any(WHOLE in self.drafts[name].networks for name in there)
        draft = draw_service(self._rng, number, self._layout, self._network_ids, self._sizes, whole=whole)
        name = draft.body["Name"]
        self.drafts[name] = draft
        self.promises[name] = Promise()
        await self._ask(name, "POST", "/services/create", draft.body, draft.replicas)

    async def _update(self, name: str, *, scale: bool) -> None:
        try:
            shown = await self._api.call("GET", f"/services/{name}")
        except (Refused, Unanswered):
            return
        spec = shown["Spec"]
        replicas = replicas_of(shown)
        if scale:
            replicas = self._rng.randint(0, self.drafts[name].replicas_max)
            spec["Mode"] = {"Replicated": {"Replicas": replicas}}
        else:
            container = spec["TaskTemplate"]["ContainerSpec"]
            container["Env"] = [f"GENERATION={self._rng.randrange(1000)}"]
        await self._ask(
            name,
            "POST",
            f"/services/{name}/update",
            spec,
            replicas,
            version=shown["Version"]["Index"],
        )

    async def _ask(self, name: str, method: str, path: str, body: Any, outcome: Outcome, **query: Any) -> None:
        self.n_requests += 1
        promise = self.promises[name]
        request = self._api.request(method, path, body, **query)
        number = promise.asked(outcome, lambda: request.is_over)
        try:
            await request.answer()
        except Refused as refused:
            # 404 is also what a second removal gets after one that was not answered.
            promise.refused(number, absent=refused.status == 404)
            self.world.trace.event("user", f"{method} {path} refused: {refused}")
        except Unanswered:
            self.world.trace.event("user", f"{method} {path} unanswered; {name} is one of {promise.possible}")
        else:
            self.n_answered += 1
            promise.answered(number)
            self.world.trace.event("user", f"{method} {path} done; {name} is one of {promise.possible}")
            self._answered.set()
            self._answered = trio.Event()


def replicas_of(service: dict[str, Any]) -> int:
    """As the API shows it."""
    replicas: int = service["Spec"]["Mode"]["Replicated"]["Replicas"]
    return replicas
