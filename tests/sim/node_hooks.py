"""Node hooks of the simulated machines, what goes wrong with them, and what they are promised."""

from __future__ import annotations

import functools
import math
import random
from typing import Any

from beeyard.agent.hook_policy import HookPolicy
from beeyard.agent.node_hooks import STOP_TRIES
from beeyard.core.grant import ResourceGrant
from beeyard.runtime.sim import SimMachine, SimWorld
from beeyard.runtime.sim_hooks import HookCall, HookScript
from tests.sim.lan import parts_of

POLICY = HookPolicy(timeout_s=5.0, allow_env=("SITE_*",))
NAMES = ("10-site", "20-audit")


class HookScripts:
    """What hooks do, drawn from the seed: on some machines, and only until `calm`."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.share_of_faults = rng.choice((0.0, 0.0, 0.02, 0.1))
        self._share_of_machines = rng.choice((0.0, 0.3, 1.0))

    def install(self, machine: SimMachine) -> None:
        """Give a machine its hooks."""
        for name in NAMES:
            if self._rng.random() < self._share_of_machines:
                machine.hooks.hooks[name] = functools.partial(self._run, name)

    def calm(self) -> None:
        """From now on all of them work."""
        self.share_of_faults = 0.0

    def _run(self, name: str, moment: str, document: dict[str, Any]) -> HookScript:
        rng = self._rng
        answer = {"env": {f"SITE_{name[:2]}": document["task"]["id"][:4]}} if moment == "prepare" else {}
        takes_s = rng.choice((0.0, 0.0, 0.01, 0.5))
        if rng.random() >= self.share_of_faults:
            return HookScript(takes_s=takes_s, answer=answer)
        if rng.random() < 0.3:
            return HookScript(takes_s=rng.choice((POLICY.timeout_s, math.inf)), answer=answer)
        return HookScript(takes_s=takes_s, exit_code=1, stderr="the site's database is locked")


def check_hook_order(world: SimWorld) -> None:
    """No hook is asked to prepare a task twice without having been told between that it stopped."""
    for name, machine in world.machines.items():
        for (hook, task_id), calls in _by_pair(machine).items():
            prepared = False
            for call in calls:
                assert not (prepared and call.moment == "prepare"), (
                    f"hook {hook} on {name} was called twice to prepare task {task_id} without a stop between"
                )
                assert prepared or call.moment != "start", f"hook {hook} on {name} starts task {task_id} unprepared"
                prepared = call.moment != "stop" and (prepared or call.moment == "prepare")


def check_hooks_are_paired(world: SimWorld) -> None:
    """At rest every hook that was called to prepare a task was told that it stopped, or that was tried often enough."""
    for name, machine in world.machines.items():
        for (hook, task_id), calls in _by_pair(machine).items():
            prepares = [number for number, call in enumerate(calls) if call.moment == "prepare"]
            stops = [call for call in calls[prepares[-1] :] if call.moment == "stop"] if prepares else []
            told = any(call.end == "exit 0" for call in stops)
            given_up = sum(call.end not in ("exit 0", "killed") for call in stops) >= STOP_TRIES
            assert told or given_up or not prepares, (
                f"hook {hook} on {name} was called to prepare task {task_id} and never told that it stopped: {stops}"
            )


def check_additions(world: SimWorld) -> None:
    """A task that runs has what each hook of its machine added and the names of its devices, and nothing else."""
    for name, machine in world.machines.items():
        parts = parts_of(machine)
        for task in parts.tasks.by_id.values() if parts is not None else ():
            expected = {f"SITE_{hook[:2]}={task.task.id[:4]}" for hook in machine.hooks.hooks}
            expected |= {
                f"DOCKER_RESOURCE_{claim.kind.upper()}={','.join(claim.names) or claim.value}"
                for grant in task.task.grants
                if isinstance(grant, ResourceGrant)
                for claim in grant.resources
            }
            assert set(task.additions.env) == expected, f"task {task.task.id} on {name} got {task.additions.env}"


def _by_pair(machine: SimMachine) -> dict[tuple[str, str], list[HookCall]]:
    """The calls of each hook for each task."""
    found: dict[tuple[str, str], list[HookCall]] = {}
    for call in machine.hooks.calls:
        found.setdefault((call.hook, call.task_id), []).append(call)
    return found


__all__ = ["POLICY", "HookScripts", "check_additions", "check_hook_order", "check_hooks_are_paired"]
