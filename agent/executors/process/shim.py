"""The process that holds one task: it outlives the agent, keeps the lease, and knows how the task ended.

Theory of operation
-------------------
*Birth.* The zygote forks it with one end of a socket pair on which the agent sends its order. The shim makes everything
(directories, cgroup, network namespace, its listening socket), says "prepared", and waits for "keep". A connection that
ends before that (the agent was cancelled, or killed) means that nobody knows of this task: the shim removes all that it
made.

*Life.* It is process 1 of the task's PID namespace and lives in the task's network namespace; its files are the host's,
and it is outside the task's cgroup. Agents connect to its socket; a request is one line of JSON, the answer another. The
answer to `start` comes when the program runs or cannot, that to `wait` and `stop` when the task has ended. One loop over
poll, no thread.

*Phases* are those of `runtime.host.Controller`: prepared → (starting →) started → exited, or prepared → exited when the
task is stopped first or its program cannot run. The end of a task that had started is in its file before anybody hears of it.

*Links* go down when asked, when the lease has lapsed, and whenever the task ends; never up again. In a task that uses its
host's network nothing is touched.

*Death.* `remove` is its last act. When it is killed, the kernel kills the whole PID namespace with it; the agent (or the
next one) finds the rest by the task id, see `remains`.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import socket
import time
from collections.abc import Callable

from beeyard.agent.executors.process import cgroups, kernel, launch, remains
from beeyard.agent.executors.process.order import SHIM_TITLE, TASK_FILE, Exit, Order, reason_of, save_exit, write_file
from beeyard.agent.executors.process.peer import Peer, request_of
from beeyard.agent.executors.process.program import Program
from beeyard.core.errors import ExecutorError
from beeyard.runtime.real_silence import silence_links
from beeyard.runtime.stop_signal import signal_number


class Refused(Exception):
    """A request that cannot be served; the text is the answer."""


class Shim:
    """State and loop; see the module's theory of operation."""

    def __init__(self, order: Order, cgroup: cgroups.TaskCgroup) -> None:
        self.order = order
        self.directory = order.places.shim_dir(order.task_id)
        self.cgroup = cgroup
        self.phase = "prepared"
        self.lapsed = False
        self.exit: Exit | None = None
        self.host_pid = int(os.readlink("/proc/self"))
        self._program: Program | None = None
        self._program_pid = 0
        self._failure = ""  # why the program could not be started
        self._stopping = False
        self._stopped_because = ""  # when nobody asked for it
        self._killed_because = ""
        self._kill_at = math.inf  # CLOCK_MONOTONIC
        self._lease = kernel.LeaseTimer()
        self._starting: list[Peer] = []
        self._waiting: list[Peer] = []
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], None]] = {}

    # --- birth ---------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make everything that the task needs before its program.

        Raises:
            launch.LaunchError, ExecutorError, OSError: say what could not be made; `remains.clean` removes what was.
        """
        order, places = self.order, self.order.places
        self._user = launch.find_user(order.user)
        self._stop_signal = signal_number(order.stop_signal)
        if not order.argv:
            raise launch.LaunchError("image host needs a command to run")
        os.mkdir(self.directory, 0o700)
        write_file(f"{self.directory}/{TASK_FILE}", bytes.fromhex(order.task_hex))
        self.cgroup.create(order.limits)
        task_dir = places.task_dir(order.task_id)
        for path, mode in ((task_dir, 0o700), (f"{task_dir}/work", 0o700), (f"{task_dir}/tmp", 0o1777)):
            os.mkdir(path)
            os.chmod(path, mode)
        os.chown(f"{task_dir}/work", self._user.uid, self._user.gid)
        if order.own_netns:
            kernel.own_network()
        self._listen()
        self._watch(self._lease.fd, self._lease_lapsed)
        self._lease.set(order.lease_s)

    def _listen(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        fd = os.open(self.directory, os.O_PATH | os.O_DIRECTORY)
        try:
            self._listener.bind(f"/proc/self/fd/{fd}/sock")
        finally:
            os.close(fd)
        self._listener.listen(64)
        self._watch(self._listener.fileno(), self._accept)

    # --- loop ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until removed; never returns."""
        self._signals, wakeup = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        self._watch(self._signals, self._signalled)
        while True:
            timeout_ms = None if math.isinf(self._kill_at) else max(0.0, self._kill_at - time.monotonic()) * 1000
            for fd, _ in self._poll.poll(timeout_ms):
                if fd in self._handlers:
                    self._handlers[fd]()
            if time.monotonic() >= self._kill_at:
                self._kill_at = math.inf
                self._killed_because = f"killed: did not stop within {self.order.grace_s:g} s"
                if self._program:
                    self._program.kill()

    def _watch(self, fd: int, handler: Callable[[], None]) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, select.POLLIN)

    def _unwatch(self, fd: int) -> None:
        del self._handlers[fd]
        self._poll.unregister(fd)

    def _signalled(self) -> None:
        """A child ended, or this host shuts down."""
        if signal.SIGTERM in os.read(self._signals, 4096):
            self._begin_stop()
        if self._program and self.phase != "exited" and self._program.reap():
            self._program_ended(self._program)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            self.add(Peer(self._listener.accept()[0]))

    def add(self, peer: Peer) -> None:
        """Serve a connection, with what has already come on it."""
        self._watch(peer.fileno(), lambda: self._receive(peer))
        self._receive(peer)

    def _receive(self, peer: Peer) -> None:
        requests = peer.lines()
        for request in requests or ():
            try:
                self._serve(peer, request_of(request))
            except Refused as refused:
                peer.answer(error=str(refused))
            except OSError as error:
                peer.answer(error=reason_of(error))
            except (KeyError, OverflowError, TypeError, ValueError) as error:
                # Nobody's task ends because of what somebody asks.
                peer.answer(error=f"malformed request: {error!r}")
        if requests is None:
            self._unwatch(peer.fileno())
            peer.sock.close()
            for peers in (self._starting, self._waiting):
                if peer in peers:
                    peers.remove(peer)

    # --- requests ------------------------------------------------------------------------------------------------

    def _serve(self, peer: Peer, request: dict[str, object]) -> None:
        match request["op"]:
            case "status":
                self.tell(peer)
            case "start":
                self._start(peer)
            case "wait":
                self._wait(peer)
            case "stop":
                if request["links_first"]:
                    self.links_down()
                self._begin_stop()
                self._wait(peer)
            case "links_down":
                self.links_down()
                self.tell(peer)
            case "lease":
                self._lease.set(float(str(request["remaining_s"])))
                self.tell(peer)
            case "remove":
                self._remove()
                self.tell(peer)
                os._exit(0)
            case unknown:
                raise Refused(f"unknown request {unknown}")

    def tell(self, peer: Peer) -> None:
        """Answer with all that is known of the task."""
        status = self.exit._asdict() if self.exit else None
        phase = "prepared" if self.phase == "starting" else self.phase
        peer.answer(phase=phase, pid=self._program_pid, shim_pid=self.host_pid, exit=status, lapsed=self.lapsed)

    def _wait(self, peer: Peer) -> None:
        if self.phase == "exited":
            self.tell(peer)
        else:
            self._waiting.append(peer)

    def _start(self, peer: Peer) -> None:
        if self.phase == "started" or self.exit:
            self.tell(peer)
        elif self.phase == "exited":
            raise Refused(self._failure or "the task was stopped before it started")
        elif self.lapsed:
            self._failure = "the lease lapsed before the task started"
            self._end(None)  # with the links that came after the lapse
            raise Refused(self._failure)
        else:
            if self.phase == "prepared":
                try:
                    self._start_program()
                except OSError as error:  # no room on the disk, no process more: it is over, links down and all
                    self._failure = reason_of(error)
                    with contextlib.suppress(OSError):
                        os.unlink(f"{self.directory}/started")
                    self._end(None)
                    raise
            self._starting.append(peer)

    def _begin_stop(self, reason: str = "") -> None:
        if self.phase == "prepared":
            self._end(None)
        if self._program and self.phase != "exited" and not self._stopping:
            self._stopping = True
            self._stopped_because = reason
            self._kill_at = time.monotonic() + self.order.grace_s
            if self.phase == "started":  # a program that is just being started gets it as soon as it runs
                self._program.signal(self._stop_signal)

    def links_down(self) -> None:
        """Every link of the task's own namespace goes down."""
        if self.order.own_netns:
            silence_links()

    def _lease_lapsed(self) -> None:
        os.read(self._lease.fd, 8)
        self.lapsed = True
        self.links_down()
        if self.order.fence:
            self._begin_stop(f"stopped: no word from a manager for {self.order.lease_s:g} s")

    # --- the program ---------------------------------------------------------------------------------------------

    def _start_program(self) -> None:
        write_file(f"{self.directory}/started", b"")
        program = self._program = Program(self.order, self._user, self.cgroup)
        self.phase = "starting"

        def output_came() -> None:
            if not program.output.take():
                self._unwatch(program.output.fd)

        self._watch(program.output.fd, output_came)
        self._watch(program.report, lambda: self._program_reported(program))

    def _program_reported(self, program: Program) -> None:
        if not program.reported():
            return
        self._unwatch(program.report)
        if program.failure:
            return
        self.phase = "started"
        self._program_pid = program.host_pid
        for peer in self._starting:
            self.tell(peer)
        self._starting.clear()
        if self._stopping:
            program.signal(self._stop_signal)

    def _program_ended(self, program: Program) -> None:
        """None of the task's processes is left."""
        while program.report in self._handlers:
            self._program_reported(program)
        program.output.drain()
        if program.failure:
            self._failure = program.failure
            os.unlink(f"{self.directory}/started")
            self._end(None)
        else:
            self._end(program.status(self._stopped_because, self._killed_because))

    def _end(self, status: Exit | None) -> None:
        self.links_down()
        self._kill_at = math.inf
        if status is not None:
            self.exit = status
            with contextlib.suppress(OSError):  # a full disk: this process still knows it
                save_exit(self.directory, status)
        self.phase = "exited"
        self._program_pid = 0
        for peer in self._starting:
            peer.answer(error=self._failure or "the task was stopped before it started")
        for peer in self._waiting:
            self.tell(peer)
        self._starting.clear()
        self._waiting.clear()

    def _remove(self) -> None:
        self.links_down()
        if self._program and self.phase != "exited":
            self._program.kill()
            self._program.reap(block=True)
            self._program.output.drain()
        self.phase = "exited"
        remains.remove(self.order.places, self.order.task_id, self.cgroup)


def serve(sock: socket.socket) -> None:
    """Be a shim for the order that comes on a socket; never returns."""
    os.setsid()
    # -900: under pressure the kernel takes the task, whose end a shim can tell, long before the shim. In a container
    # without CAP_SYS_RESOURCE it stays as it is.
    with contextlib.suppress(OSError):
        write_file("/proc/self/oom_score_adj", b"-900")
    peer = Peer(sock)
    order = Order.parse(peer.next())
    places, task_id = order.places, order.task_id
    kernel.set_title(SHIM_TITLE, places.state_dir, task_id)
    if os.path.exists(places.shim_dir(task_id)):
        peer.answer(stale=True)
        return
    cgroup = places.cgroup(task_id)
    shim = Shim(order, cgroup)
    try:
        _join_shims(order)
        shim.prepare()
        shim.tell(peer)
        peer.next()
    except BaseException as error:  # a defect of ours as well: whatever it is, nobody knows of this task
        remains.remove(places, task_id, cgroup)
        if isinstance(error, EOFError):
            return
        if not isinstance(error, launch.LaunchError | ExecutorError | OSError):
            raise
        peer.answer(error=_sentence(error))
        return
    shim.add(peer)
    shim.run()


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError):
        return reason_of(error)
    return error.reason if isinstance(error, ExecutorError) else str(error)


def _join_shims(order: Order) -> None:
    """On cgroup v2, leave the agent's cgroup, with which a service manager would kill this process."""
    unified = tuple(h for h in order.places.hierarchies() if h.version == 2)
    if unified:
        shims = cgroups.TaskCgroup(unified, order.places.cgroup_parent, cgroups.SHIMS)
        shims.create(cgroups.Limits())
        shims.join()


__all__ = ["serve"]
