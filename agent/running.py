"""The running agent, as whoever started it sees it: what it does, and how it is told to change or to stop."""

from __future__ import annotations

from collections.abc import Sequence

import structlog
import trio

from beeyard.agent.config import AgentConfig
from beeyard.agent.describe import Describer
from beeyard.agent.discovery import AgentDiscovery
from beeyard.agent.node_hooks import NodeHookStep
from beeyard.agent.reporter import Reporter
from beeyard.agent.session import Connector
from beeyard.agent.steps import Step
from beeyard.agent.workload import Workload

# How often it is looked whether a drained node is empty.
LOOK_S = 0.2

log = structlog.get_logger(__name__)


class RunningAgent:
    """`runtime.real_main.Running` of an agent."""

    def __init__(
        self,
        config: AgentConfig,
        describer: Describer,
        reporter: Reporter,
        workload: Workload,
        connector: Connector,
        discovery: AgentDiscovery,
        steps: Sequence[Step],
    ) -> None:
        self._config = config
        self._describer = describer
        self._reporter = reporter
        self._workload = workload
        self._connector = connector
        self._discovery = discovery
        self._steps = steps

    def summary(self) -> str:
        """One line: its manager and its tasks."""
        manager = self._connector.manager.removeprefix("tcp://")
        n_tasks = self._workload.n_unfinished
        where = f"in session with {manager}" if manager else f"no manager answers: {', '.join(self._config.managers)}"
        parts = (where, self._discovery.summary(), f"{n_tasks} task{'' if n_tasks == 1 else 's'}")
        return "; ".join(part for part in parts if part)

    def reload(self, config: object) -> None:
        """Take over what may change."""
        assert isinstance(config, AgentConfig)
        self._config = config
        for step in self._steps:
            if isinstance(step, NodeHookStep):
                step.take_policy(config.hooks)

    async def prepare_stop(self) -> None:
        """With `drain_on_stop`: have the tasks run elsewhere and wait until none is left here, for as long as is allowed.

        Then say farewell in the gossip.
        """
        if self._config.drain_on_stop:
            await self._drain()
        await self._discovery.leave()

    async def _drain(self) -> None:
        timeout_s = self._config.drain_timeout_s
        log.info("draining this node before the agent stops", tasks=self._workload.n_unfinished, timeout_s=timeout_s)
        self._describer.stop()
        with trio.move_on_after(timeout_s):
            while self._workload.n_unfinished or not self._reporter.all_confirmed:  # noqa: ASYNC110  # two conditions of others
                await trio.sleep(LOOK_S)
            log.info("this node is drained")
            return
        log.warning("not drained in time: the tasks that are left run on", tasks=self._workload.n_unfinished)


__all__ = ["RunningAgent"]
