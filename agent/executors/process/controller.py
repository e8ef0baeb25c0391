"""One task of executor `process`, as the agent holds it: every call is a short conversation with the task's shim.

The controller keeps no truth of its own but the phase that it saw last; whatever happens to the agent, the shim goes on.
It keeps connections, as a new one costs both sides as much as several requests: one for what may take as long as the task,
and, once that is busy, one for what is answered at once, which may not wait behind it. A conversation that is broken off,
also by cancellation, ends its connection, so that no answer is ever taken for another's.
It keeps the task's network namespace open, so that the links can be taken down even when the shim has been killed: a
namespace that nobody holds is cleaned up some time later, and until then answers for its addresses.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
import trio

from beeyard.agent.executors.process import remains
from beeyard.agent.executors.process.launch import LaunchError, find_user
from beeyard.agent.executors.process.line import UNDO_S, Line, NoAnswer, ShimGone, connect, make_shim
from beeyard.agent.executors.process.order import Order, load_exit, reason_of
from beeyard.agent.executors.process.task_script import script_of
from beeyard.agent.executors.process.zygote_client import LineStream, Zygote
from beeyard.agent.turn import Turn
from beeyard.core.errors import ExecutorError
from beeyard.runtime.host import ExitStatus

log = structlog.get_logger(__name__)

# Answered when the program runs, or when the task has ended.
SLOW = ("start", "wait", "stop")
# 10 ms: what has ended by then is told at once, for a program that starts and ends at once.
_START_AND_WAIT = b'{"op": "start", "patience_s": 0.01}\n{"op": "wait"}\n'
AT_ONCE = b'{"op": "keep"}\n' + _START_AND_WAIT
# 30 s: a shim answers within milliseconds, on a busy machine within a second. One that does not was stopped, or waits for a
# disk that is gone; it may not hold up who asks.
ANSWER_S = 30.0


class ProcessController:
    """A `Controller`; made by `ProcessExecutor` alone."""

    def __init__(self, zygote: Zygote, order: Order, removed: Callable[[], Awaitable[None]]) -> None:
        """`removed` is called when nothing of a task is left but its log."""
        self._zygote = zygote
        self._removed = removed
        self._order = order
        self._phase = "new"
        self._pid = 0
        self._shim_pid = 0
        self._exit: ExitStatus | None = None
        self._lapsed = False
        self._silent = False  # whether it is certain that the links are down, for good
        self._netns_fd = -1
        self._lock = Turn()  # of prepare and remove
        self._quick = Line()
        self._slow = Line()
        self._awaited: LineStream | None = None  # a connection on which the end was asked for with the start

    @property
    def task_id(self) -> str:
        return self._order.task_id

    @property
    def netns(self) -> str:
        return f"/proc/{self._shim_pid}/ns/net" if self._shim_pid and self._order.own_netns else ""

    @property
    def phase(self) -> str:
        return self._phase

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def lapsed(self) -> bool:
        return self._lapsed

    @property
    def shim_pid(self) -> int:
        """The process that holds the task, 0 when there is none."""
        return self._shim_pid

    def _learn(self, answer: dict[str, Any]) -> None:
        """Take over what the shim says of itself."""
        self._phase = answer["phase"]
        self._silent = self._phase == "exited"  # a shim takes them down before it tells of an end, and no others come
        self._pid = answer["pid"]
        if answer["exit"] is not None:
            self._exit = ExitStatus(**answer["exit"])
        if self._shim_pid != answer["shim_pid"]:
            self._shim_pid = answer["shim_pid"]
            if self._order.own_netns:
                with contextlib.suppress(OSError):  # killed in this moment: the next call finds out
                    self._netns_fd = os.open(self.netns, os.O_RDONLY | os.O_CLOEXEC)

    async def _ask(self, op: str, **fields: object) -> dict[str, Any]:
        """One request to the shim.

        Raises:
            ShimGone: it is not there, or ended before it answered.
            NoAnswer: it hangs.
            ExecutorError: it refused.
        """
        if op in ("start", "wait"):  # takes as long as it takes
            return await self._ask_once(op, fields)
        patience_s = ANSWER_S + (self._order.grace_s if op == "stop" else 0.0)
        with trio.move_on_after(patience_s):
            return await self._ask_once(op, fields)
        who = f"its shim (pid {self._shim_pid})" if self._shim_pid else "its shim"
        raise NoAnswer(op, f"{who} has not answered for {patience_s:g} s")

    async def _ask_once(self, op: str, fields: dict[str, object]) -> dict[str, Any]:
        if op in SLOW and self._slow.turn.locked():
            passing = Line()
            try:
                return self._judge(op, await self._converse(passing, self._connected(), op, fields))
            finally:
                passing.close()
        line = self._slow if op in SLOW or self._slow.is_idle else self._quick
        async with line.turn:
            lines = line.take()
            if lines is not None:
                with contextlib.suppress(ShimGone):  # an old connection: only a new one tells for certain
                    return self._judge(op, await self._converse(line, lines, op, fields))
            return self._judge(op, await self._converse(line, self._connected(), op, fields))

    def _connected(self) -> LineStream:
        return connect(self._order.places.shim_dir(self.task_id))

    async def _converse(self, line: Line, lines: LineStream, op: str, fields: dict[str, object]) -> dict[str, Any]:
        """Ask and hear on a connection, which is kept only when the answer has come."""
        try:
            with contextlib.suppress(BrokenPipeError):  # one without room has said so, and hung up
                if op == "start":  # and how it ends, which may be known before anybody could ask
                    await lines.send_bytes(_START_AND_WAIT)
                else:
                    await lines.send(op=op, **fields)
            answer = await lines.receive()
            if answer is None:
                raise ShimGone
            if op == "remove":
                await lines.receive(soon=True)  # until it has ended
        except ConnectionResetError:
            lines.close()
            raise ShimGone from None
        except BaseException:
            lines.close()
            raise
        if op != "start":
            line.lines = lines
        elif "error" in answer or self._awaited is not None:
            lines.close()
        else:
            self._awaited = lines
        return answer

    def _judge(self, op: str, answer: dict[str, Any]) -> dict[str, Any]:
        if "error" in answer:
            raise ExecutorError(op, str(answer["error"]))
        self._lapsed = bool(answer["lapsed"])
        return answer

    async def _bury(self) -> None:
        """The shim is gone: end what it left, links first of all, and learn how the task ended."""
        fds = [self._netns_fd] if self._netns_fd >= 0 else []
        answer = await self._zygote.ask("bury", *fds, places=self._order.places, task_id=self.task_id)
        status: Any = answer["exit"]
        if status is not None:
            self._exit = ExitStatus(**status)
        self._phase, self._pid, self._silent = "exited", 0, True

    async def adopt(self) -> bool:
        """Learn where the task is, after a restart of the agent; False when it has no shim."""
        try:
            self._learn(await self._ask("status"))
            return True
        except ShimGone:
            return False

    async def recover(self) -> None:
        """Learn where the task is, whether it still has a shim or not.

        One that hangs is taken at the word of its files: its task may run well, and the others are not to wait for it.
        """
        try:
            if not await self.adopt():
                await self._bury()
        except NoAnswer as error:
            places = self._order.places
            phase = "prepared" if load_exit(places.shim_dir(self.task_id)) is None else "started"
            shim_pid = next(iter(remains.processes(places).get(self.task_id, [])), 0)
            log.warning("a task's shim hangs", task=self.task_id, pid=shim_pid, phase=phase, reason=str(error))
            self._learn({"phase": phase, "pid": 0, "shim_pid": shim_pid, "exit": None})

    async def prepare(self) -> None:
        async with self._lock:
            if self._phase != "new":
                return
            self._zygote.make_directories()
            script = await self._script()
            for _ in range(5):  # again when the zygote was killed before it could fork, and when there were remains
                answer = await self._prepare(script)
                if answer is None:
                    continue
                if "stale" in answer:
                    if await self.adopt():  # prepared before
                        return
                    await self._zygote.ask("clean", places=self._order.places, task_id=self.task_id)
                    continue
                if "error" in answer:
                    raise ExecutorError("prepare", str(answer["error"]))
                self._learn(answer)
                return
            raise ExecutorError("prepare", "its shim ended without a word")

    async def _script(self) -> bytes:
        """What the shim is to do, for this host as it is now."""
        try:
            # Only the default user is known without asking what may be a server somewhere else.
            if self._order.user:
                user = await trio.to_thread.run_sync(find_user, self._order.user, abandon_on_cancel=True)
            else:
                user = find_user("")
            return script_of(self._order, user)
        except LaunchError as error:
            raise ExecutorError("prepare", str(error)) from None
        except OSError as error:
            raise ExecutorError("prepare", reason_of(error)) from error

    async def _prepare(self, script: bytes) -> dict[str, Any] | None:
        """Have a shim made; all or nothing. None: it ended without a word."""
        answer, self._slow.lines = await make_shim(await self._zygote.open_shim(self.task_id), script)
        return answer

    async def start(self) -> None:
        if self._phase == "new":
            raise ExecutorError("start", "the task is not prepared")
        try:
            self._learn(await self._ask("start"))
            if self._exit is not None:
                await self._hear_end(soon=True)
        except ShimGone:
            await self._bury()
            if self._exit is None:
                raise ExecutorError("start", "its shim is gone") from None
        except ExecutorError as error:
            self._phase = "exited"
            raise ExecutorError("start", error.reason, 127) from None

    async def run(self) -> None:
        async with self._lock:
            if self._phase == "new":
                self._zygote.make_directories()
                await self._run(await self._script())
        if self._phase == "new":  # nobody was there to do it, or there were remains
            await self.prepare()
        if self._phase == "prepared":
            await self.start()

    async def _run(self, script: bytes) -> None:
        """Have a shim made and its program started with one word."""
        lines = await self._zygote.open_shim(self.task_id)
        self._phase = "prepared"  # or not even that: who stops or removes it will find out
        asked = False
        try:
            await lines.send_bytes(script + AT_ONCE)
            asked = True
            await self._hear_start(lines)
        except (ConnectionResetError, BrokenPipeError, ShimGone):
            await self._forget_shim()
        except trio.Cancelled:
            # Safety: bounded. The caller is to find the task started, and not on its way there.
            with trio.move_on_after(UNDO_S, shield=True), contextlib.suppress(OSError, ShimGone, ExecutorError):
                if not asked:
                    lines.end()
                await self._hear_start(lines)
            raise
        finally:
            if lines not in (self._slow.lines, self._awaited):
                lines.close()

    async def _hear_start(self, lines: LineStream) -> None:
        """Hear how it went, and perhaps how the program has ended.

        Raises:
            ShimGone: it is gone, or never was.
            ExecutorError: the task cannot be prepared or started.
        """
        answer = await lines.receive()
        while answer is not None and answer.get("phase") == "prepared":
            answer = await lines.receive()
        if answer is None:
            raise ShimGone
        if "stale" in answer:
            self._phase = "new"
        elif "phase" in answer:
            self._learn(self._judge("start", answer))
            self._awaited = lines
            if self._exit is not None:
                await self._hear_end(soon=True)
        elif await lines.receive(soon=True) is None:
            await self._forget_shim()  # it has undone all, unless it was killed before it could
            raise ExecutorError("prepare" if self._phase == "new" else "start", str(answer["error"]))
        else:  # that was the answer to "wait"
            self._phase, self._slow.lines = "exited", lines
            raise ExecutorError("start", str(answer["error"]), 127)

    async def _forget_shim(self) -> None:
        """A shim ended without a word: its program has run, or nothing of it stays."""
        self._phase = "new"
        if os.access(self._order.places.shim_dir(self.task_id), os.F_OK):
            await self._bury()
        if self._phase == "exited" and self._exit is None:
            await self._zygote.ask("clean", places=self._order.places, task_id=self.task_id)
            self._phase = "new"

    async def wait(self) -> ExitStatus:
        if self._phase != "new" and self._exit is None:
            try:
                self._learn(await self._hear_end() or await self._ask("wait"))
            except ShimGone:
                await self._bury()
        else:
            await trio.lowlevel.checkpoint()
        if self._exit is None:
            raise ExecutorError("wait", "the task never started")
        return self._exit

    async def _hear_end(self, *, soon: bool = False) -> dict[str, Any] | None:
        """The answer that was asked for with the start; None when none will come, or somebody else has heard it."""
        lines, self._awaited = self._awaited, None
        if lines is None:
            return None
        answer = None
        try:
            answer = await lines.receive(soon=soon)
        finally:
            if answer is None or self._slow.lines is not None or self._slow.turn.locked():
                lines.close()
            else:
                self._slow.lines = lines
        return None if answer is None else self._judge("wait", answer)

    async def stop(self, *, links_first: bool = False) -> ExitStatus | None:
        if self._phase != "new" and self._exit is None:
            try:
                self._learn(await self._ask("stop", links_first=links_first))
            except (ShimGone, NoAnswer):  # one that hangs is killed, and the task with it
                await self._bury()
        else:
            await trio.lowlevel.checkpoint()
        return self._exit

    async def links_down(self) -> None:
        if self._phase == "new" or self._silent:
            await trio.lowlevel.checkpoint()
            return
        try:
            await self._ask("links_down")
        except ShimGone:
            await self._bury()

    async def renew_lease(self, remaining_s: float) -> None:
        with contextlib.suppress(ShimGone):  # nothing is left whose links could stay up
            await self._ask("lease", remaining_s=remaining_s)

    async def remove(self) -> None:
        async with self._lock:
            if self._phase == "new" and not await self.adopt():
                return
            try:
                await self._ask("remove")
            except (ShimGone, NoAnswer):
                fds = [self._netns_fd] if self._netns_fd >= 0 else []
                await self._zygote.ask("clean", *fds, places=self._order.places, task_id=self.task_id)
            self._phase, self._pid, self._shim_pid = "exited", 0, 0
            self.close()
        await self._removed()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the namespace and of the shim; the task goes on."""
        self._quick.close()
        self._slow.close()
        if self._awaited is not None:
            self._awaited.close()
            self._awaited = None
        if self._netns_fd >= 0:
            os.close(self._netns_fd)
            self._netns_fd = -1


__all__ = ["AT_ONCE", "ProcessController"]
