"""Many light agents in one process, over real TLS connections, for measuring a manager from end to end.

An agent of the swarm joins, opens a session, beats, and reports each task RUNNING or SHUTDOWN the moment it is told to; it
runs nothing. What the swarm sees goes to standard output, one JSON object a line:

    {"event": "connected", "agents": 1000, "at_s": …, "cpu_s": …}
    {"event": "progress", "running": 5210, "stopped": 0, "held": 5210, "messages": 10420, "at_s": …, "cpu_s": …}

`running` and `stopped` count tasks whose status the manager has acknowledged as durable, `held` those that are assigned now,
`at_s` is the wall clock when the last of them was acknowledged, `cpu_s` this process's CPU time. It ends when its standard
input does.

    python -m benchmarks.agent_swarm --manager tcp://127.0.0.1:2377 --token SWMTKN-1-… --agents 1000
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time

import trio

from beeyard.core.errors import PeerError
from beeyard.core.model import NodeDescription, Platform, Resources, TaskStatus
from beeyard.core.states import TaskState
from beeyard.core.wire import (
    PROTOCOL_VERSION,
    Assignments,
    FromManager,
    Heartbeat,
    Hello,
    IdentityReply,
    JoinRequest,
    Refused,
    StatusAck,
    StatusReport,
    TaskReport,
    Welcome,
    from_manager_decoder,
)
from beeyard.runtime import real
from beeyard.runtime.frames import FrameStream
from beeyard.runtime.host import Connection, Credentials

# Joins and handshakes under way at once: keeps both sides busy without a queue that times out.
CONNECTING_MAX = 32
# A real node's, so that the scheduler has something to weigh.
CPU_NANO, MEMORY_BYTES = 64 * 10**9, 256 << 30
PROGRESS_S = 0.1


@dataclasses.dataclass
class Tally:
    """What all agents together have seen."""

    expected: int
    connected: int = 0
    running: int = 0
    stopped: int = 0
    held: int = 0
    messages: int = 0
    acked_at_s: float = 0.0
    all_connected: trio.Event = dataclasses.field(default_factory=trio.Event)

    def one_more_connected(self) -> None:
        self.connected += 1
        if self.connected == self.expected:
            self.all_connected.set()


class LightAgent:
    """One agent that only says what an agent says."""

    def __init__(self, host: real.RealHost, manager: str, token: str, name: str, tally: Tally) -> None:
        self._host = host
        self._manager = manager
        self._token = token
        self._name = name
        self._tally = tally
        self._states: dict[str, TaskState] = {}
        self._reported: dict[int, list[TaskState]] = {}
        self._unsent: dict[str, TaskState] = {}
        self._number = 0
        self._wake = trio.Event()

    async def run(self, connecting: trio.Semaphore) -> None:
        """Join and hold one session until cancelled."""
        async with connecting:
            credentials = await self._join()
            connection = await self._host.net.dial(self._manager, credentials, timeout_s=60)
            frames: FrameStream[FromManager] = FrameStream(connection.stream, from_manager_decoder)
            await frames.send([Hello(protocol_version=PROTOCOL_VERSION, description=self._description())])
            welcome = await frames.receive()
        if not isinstance(welcome, Welcome):
            raise PeerError(f"{self._name}: no session: {welcome}")
        self._tally.one_more_connected()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write, frames, welcome.heartbeat_s)
            await self._read(frames)

    async def _join(self) -> Credentials:
        csr_pem, key_pem = self._host.pki.new_request()
        request = JoinRequest(token=self._token, csr_pem=csr_pem, hostname=self._name)
        connection: Connection = await self._host.net.dial(self._manager, Credentials(), timeout_s=60)
        async with connection.stream:
            frames: FrameStream[FromManager] = FrameStream(connection.stream, from_manager_decoder)
            await frames.send([request])
            reply = await frames.receive()
        if not isinstance(reply, IdentityReply):
            raise PeerError(f"{self._name}: not joined: {reply}")
        return Credentials(
            certificate_pem=reply.certificate_pem, key_pem=key_pem, ca_certificate_pem=reply.ca_certificate_pem
        )

    def _description(self) -> NodeDescription:
        return NodeDescription(
            hostname=self._name,
            platform=Platform(architecture="x86_64", os="linux"),
            resources=Resources(cpu_nano=CPU_NANO, memory_bytes=MEMORY_BYTES),
            images=("host",),
            link_kinds=("macvlan",),
        )

    async def _read(self, frames: FrameStream[FromManager]) -> None:
        while (message := await frames.receive()) is not None:
            self._tally.messages += 1
            if isinstance(message, Assignments):
                self._assign(message)
            elif isinstance(message, StatusAck):
                self._acknowledged(message.number)
            elif isinstance(message, Refused):
                raise PeerError(f"{self._name}: {message.reason}")
        raise PeerError(f"{self._name}: the manager hung up")

    def _assign(self, assignments: Assignments) -> None:
        for task_id in assignments.removed:
            self._states.pop(task_id, None)
            self._tally.held -= 1
        for task in assignments.tasks:
            if task.id not in self._states:
                self._tally.held += 1
            state = TaskState.RUNNING if task.desired_state is TaskState.RUNNING else TaskState.SHUTDOWN
            if state > max(self._states.get(task.id, TaskState.NEW), task.state):
                self._states[task.id] = self._unsent[task.id] = state
        if self._unsent:
            self._wake.set()

    def _acknowledged(self, number: int) -> None:
        for reported in [n for n in self._reported if n <= number]:
            states = self._reported.pop(reported)
            self._tally.running += states.count(TaskState.RUNNING)
            self._tally.stopped += states.count(TaskState.SHUTDOWN)
            self._tally.acked_at_s = time.time()

    async def _write(self, frames: FrameStream[FromManager], heartbeat_s: float) -> None:
        n_beats = 0
        due_s = trio.current_time() + self._host.rng.uniform(0.0, heartbeat_s)
        while True:
            with trio.move_on_at(due_s):
                await self._wake.wait()
            messages: list[object] = []
            if trio.current_time() >= due_s:
                n_beats += 1
                due_s += heartbeat_s
                messages.append(Heartbeat(number=n_beats))
            if self._unsent:
                messages.append(self._report())
            self._wake = trio.Event()
            await frames.send(messages)

    def _report(self) -> StatusReport:
        unsent, self._unsent = self._unsent, {}
        self._number += 1
        self._reported[self._number] = list(unsent.values())
        now_s = time.time()
        return StatusReport(
            number=self._number,
            reports=tuple(
                TaskReport(task_id=task_id, status=TaskStatus(state=state, message="simulated", at_s=now_s, pid=1))
                for task_id, state in unsent.items()
            ),
        )


def say(event: str, **fields: object) -> None:
    """One line of JSON."""
    print(json.dumps({"event": event, **fields, "cpu_s": time.process_time()}), flush=True)


async def tell_progress(tally: Tally) -> None:
    """A line whenever something was acknowledged since the last."""
    told = 0.0
    while True:
        await trio.sleep(PROGRESS_S)
        if tally.acked_at_s > told:
            told = tally.acked_at_s
            say(
                "progress",
                running=tally.running,
                stopped=tally.stopped,
                held=tally.held,
                messages=tally.messages,
                at_s=told,
            )


async def swarm(manager: str, token: str, n_agents: int) -> None:
    """Run all agents until standard input ends.

    Raises:
        PeerError: an agent was refused or lost its session; a benchmark does not hide that (in an exception group).
    """
    host, tally = real.host(), Tally(n_agents)
    connecting = trio.Semaphore(CONNECTING_MAX)
    async with trio.open_nursery() as nursery:
        for number in range(n_agents):
            agent = LightAgent(host, manager, token, f"swarm{number}", tally)
            nursery.start_soon(agent.run, connecting)
        await tally.all_connected.wait()
        say("connected", agents=n_agents, at_s=time.time())
        nursery.start_soon(tell_progress, tally)
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
        nursery.cancel_scope.cancel()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--manager", required=True, help="tcp://HOST:PORT")
    parser.add_argument("--token", required=True, help="worker join token")
    parser.add_argument("--agents", type=int, default=1000)
    arguments = parser.parse_args()
    trio.run(swarm, arguments.manager, arguments.token, arguments.agents)


if __name__ == "__main__":
    main()
