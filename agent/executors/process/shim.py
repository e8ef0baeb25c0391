"""The process that holds one task: it outlives the agent, keeps the lease, and knows how the task ended.

Theory of operation
-------------------
*Birth.* The zygote forks it with one end of a socket pair on which the agent sends its order. The shim makes everything
(directories, cgroup, network namespace, its listening socket), says "ready", and waits for "keep". A connection that ends
before that (the agent was cancelled, or killed) means that nobody knows of this task: the shim removes all that it made.

*Life.* It lives in the task's network namespace and in every other respect on the host, outside the task's cgroup. Agents
connect to its socket; a request is one line of JSON, the answer another. The answer to `start` comes when the program runs
or cannot, that to `wait` and `stop` when the task has ended. One loop over poll, no thread.

*Phases* are those of `runtime.host.Controller`: prepared → (starting →) started → exited, or prepared → exited when the
task is stopped first or its program cannot run. The end of a task that had started is on disk before anybody hears of it.

*Links* go down when asked, when the lease has lapsed, and whenever the task ends; never up again. In a task that uses its
host's network nothing is touched.

*Death.* `remove` is its last act. When it is killed, init dies with it, and with init the whole PID namespace; the agent
(or the next one) finds the rest by the task id, see `remains`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import select
import signal
import socket
import time
from collections.abc import Callable

from beeyard.agent import cgroups
from beeyard.agent.executors.process import init, kernel, launch, remains
from beeyard.agent.executors.process.order import SHIM_TITLE, TASK_FILE, Exit, Order, reason_of, save_exit
from beeyard.agent.executors.process.output import Output
from beeyard.core.errors import ExecutorError
from beeyard.runtime.stop_signal import signal_number

# 16 MiB: an order holds a task's spec twice; requests after it are a hundred bytes.
LINE_BYTES_MAX = 16 << 20


class Refused(Exception):
    """A request that cannot be served; the text is the answer."""


class Peer:
    """One connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._received = b""

    def fileno(self) -> int:
        """For poll."""
        return self.sock.fileno()

    def lines(self) -> list[dict[str, object]] | None:
        """Requests that have arrived whole; None when the connection has ended."""
        try:
            data = self.sock.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError:
            return None
        self._received += data
        if not data or len(self._received) > LINE_BYTES_MAX:
            return None
        *whole, self._received = self._received.split(b"\n")
        return [json.loads(line) for line in whole]

    def answer(self, **fields: object) -> None:
        """Send an answer; a peer that is gone or does not read loses it."""
        with contextlib.suppress(OSError):
            self.sock.send(json.dumps(fields).encode() + b"\n", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


class Shim:
    """State and loop; see the module's theory of operation."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.directory = order.places.shim_dir(order.task_id)
        self.cgroup = order.places.cgroup(order.task_id)
        self.phase = "prepared"
        self.lapsed = False
        self.exit: Exit | None = None
        self._user = launch.User(launch.NOBODY, launch.NOBODY)
        self._stop_signal = int(signal.SIGTERM)
        self._failure = ""  # why the program could not be started
        self._stopping = False
        self._reason = ""  # why the task was stopped, when nobody asked for it
        self._killed_reason = ""
        self._kill_at = math.inf  # CLOCK_MONOTONIC
        self._init_pid = 0
        self._program_pid = 0
        self._init_fd = self._report = self._status = -1
        self._failure_text = b""
        self._output: Output | None = None
        self._lease = kernel.LeaseTimer()
        self._starting: list[Peer] = []
        self._waiting: list[Peer] = []
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], None]] = {}

    # --- birth ---------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make everything that the task needs before its program.

        Raises:
            launch.LaunchError, OSError: say what could not be made; `clean` removes what was.
        """
        order, places = self.order, self.order.places
        self._user = launch.find_user(order.user)
        self._stop_signal = signal_number(order.stop_signal)
        if not order.argv:
            raise launch.LaunchError("image host needs a command to run")
        for directory in (f"{places.state_dir}/shims", f"{places.state_dir}/tasks", places.log_dir):
            os.makedirs(directory, mode=0o755, exist_ok=True)
        os.mkdir(self.directory, 0o700)
        with open(f"{self.directory}/{TASK_FILE}", "wb") as file:
            file.write(base64.b64decode(order.task_base64))
        self.cgroup.create(order.limits)
        task_dir = places.task_dir(order.task_id)
        for path, mode in ((task_dir, 0o700), (f"{task_dir}/work", 0o700), (f"{task_dir}/tmp", 0o1777)):
            os.mkdir(path)
            os.chmod(path, mode)
        os.chown(f"{task_dir}/work", self._user.uid, self._user.gid)
        if order.own_netns:
            self._own_network()
        self._listen()
        self._watch(self._lease.fd, self._lease_lapsed)
        self._lease.set(order.lease_s)

    def _own_network(self) -> None:
        kernel.unshare(kernel.CLONE_NEWNET)
        kernel.loopback_up()
        # As Docker does: in a network of its own a task may use any port, and ping, without privileges.
        for name, value in (("ip_unprivileged_port_start", "0"), ("ping_group_range", "0 2147483647")):
            with open(f"/proc/sys/net/ipv4/{name}", "w") as file:
                file.write(value)

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
        signals, wakeup = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGTERM, lambda *_: None)

        def terminated() -> None:  # this host shuts down
            os.read(signals, 4096)
            self._begin_stop()

        self._watch(signals, terminated)
        while True:
            timeout_ms = None if math.isinf(self._kill_at) else max(0.0, self._kill_at - time.monotonic()) * 1000
            for fd, _ in self._poll.poll(timeout_ms):
                if fd in self._handlers:
                    self._handlers[fd]()
            if time.monotonic() >= self._kill_at:
                self._kill_at = math.inf
                self._killed_reason = f"killed: did not stop within {self.order.grace_s:g} s"
                self._signal(signal.SIGKILL)

    def _watch(self, fd: int, handler: Callable[[], None]) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, select.POLLIN)

    def _unwatch(self, fd: int) -> None:
        del self._handlers[fd]
        self._poll.unregister(fd)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        self.add(Peer(sock))

    def add(self, peer: Peer) -> None:
        """Serve a connection."""
        self._watch(peer.fileno(), lambda: self._receive(peer))

    def _receive(self, peer: Peer) -> None:
        requests = peer.lines()
        for request in requests or ():
            try:
                self._serve(peer, request)
            except Refused as refused:
                peer.answer(error=str(refused))
            except OSError as error:
                peer.answer(error=reason_of(error))
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
                self._answer(peer)
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
                self._answer(peer)
            case "lease":
                self._lease.set(float(str(request["remaining_s"])))
                self._answer(peer)
            case "remove":
                self._remove()
                self._answer(peer)
                os._exit(0)
            case unknown:
                raise Refused(f"unknown request {unknown}")

    def _answer(self, peer: Peer) -> None:
        status = self.exit._asdict() if self.exit else None
        phase = "prepared" if self.phase == "starting" else self.phase
        peer.answer(phase=phase, pid=self._program_pid, shim_pid=os.getpid(), exit=status, lapsed=self.lapsed)

    def _wait(self, peer: Peer) -> None:
        if self.phase == "exited":
            self._answer(peer)
        else:
            self._waiting.append(peer)

    def _start(self, peer: Peer) -> None:
        if self.phase == "started" or self.exit:
            self._answer(peer)
            return
        if self.phase == "exited":
            raise Refused(self._failure or "the task was stopped before it started")
        self._starting.append(peer)
        if self.phase == "prepared":
            self._fork_init()

    def _begin_stop(self, reason: str = "") -> None:
        if self.phase == "prepared":
            self._end(None)
        if self.phase in ("starting", "started") and not self._stopping:
            self._stopping = True
            self._reason = reason
            self._kill_at = time.monotonic() + self.order.grace_s
            if self.phase == "started":  # before, it would be lost on init
                self._signal(self._stop_signal)

    def _signal(self, number: int) -> None:
        if self._init_pid:
            os.kill(self._init_pid, number)

    def links_down(self) -> None:
        """Every link of the task's own namespace goes down."""
        if self.order.own_netns:
            kernel.links_down()

    def _lease_lapsed(self) -> None:
        os.read(self._lease.fd, 8)
        self.lapsed = True
        self.links_down()
        if self.order.fence:
            self._begin_stop(f"stopped: no word from a manager for {self.order.lease_s:g} s")

    # --- the program ---------------------------------------------------------------------------------------------

    def _fork_init(self) -> None:
        with open(f"{self.directory}/started", "w"):
            pass
        self._output = Output(self.order.places.log(self.order.task_id), self.order.log_bytes_max)
        os.fchown(self._output.writer, self._user.uid, self._user.gid)  # so that the task can open /dev/stdout
        report, report_writer = os.pipe2(os.O_CLOEXEC)
        status, status_writer = os.pipe2(os.O_CLOEXEC)
        pipes = init.Pipes(report_writer, status_writer, self._output.writer, self.cgroup.open_joins())
        kernel.unshare(kernel.CLONE_NEWPID)
        self._init_pid = os.fork()
        if self._init_pid == 0:
            for fd in (report, status, self._output.fd):
                os.close(fd)
            init.run(self.order, self._user, pipes)
        for fd in (report_writer, status_writer, *pipes.joins):
            os.close(fd)
        self._output.close_writer()
        self.phase = "starting"
        self._report, self._status = report, status
        self._init_fd = os.pidfd_open(self._init_pid)
        self._watch(report, self._reported)
        self._watch(self._output.fd, self._output_came)
        self._watch(self._init_fd, self._init_ended)

    def _output_came(self) -> None:
        if self._output and not self._output.take():
            self._unwatch(self._output.fd)

    def _reported(self) -> None:
        data = os.read(self._report, 65536)
        self._failure_text += data
        if data:
            return
        self._unwatch(self._report)
        os.close(self._report)
        if self._failure_text:
            self._failure = self._failure_text.decode(errors="replace")
        elif self.phase == "starting":
            self.phase = "started"
            self._program_pid = self._find_program()
            for peer in self._starting:
                self._answer(peer)
            self._starting.clear()
            if self._stopping:
                self._signal(self._stop_signal)

    def _find_program(self) -> int:
        """The program's number on the host: init's first child; init's own when it has ended already."""
        try:
            with open(f"/proc/{self._init_pid}/task/{self._init_pid}/children") as file:
                return int(file.read().split()[0])
        except (OSError, IndexError):
            return self._init_pid

    def _init_ended(self) -> None:
        self._unwatch(self._init_fd)
        if self.phase == "starting":
            while self._report in self._handlers:
                self._reported()
        os.waitpid(self._init_pid, 0)
        os.close(self._init_fd)
        self._init_pid = 0
        told = os.read(self._status, 16)
        os.close(self._status)
        assert self._output is not None
        self._output.drain()
        if self._failure:
            os.unlink(f"{self.directory}/started")
            self._end(None)
        else:
            self._end(self._status_of(int(told) if told else None))

    def _status_of(self, wait_status: int | None) -> Exit:
        """How the program ended; without word from init everything was killed at once."""
        if wait_status is None:
            number, code = int(signal.SIGKILL), 128 + signal.SIGKILL
            reason = "" if self._stopping else "killed: its init process was killed"
        elif os.WIFSIGNALED(wait_status):
            number, code, reason = os.WTERMSIG(wait_status), 128 + os.WTERMSIG(wait_status), ""
        else:
            number, code, reason = 0, os.WEXITSTATUS(wait_status), ""
        memory_bytes = self.order.limits.memory_bytes
        if code and self.cgroup.oom_kills() and not self._killed_reason:
            limit = f" of {memory_bytes / (1 << 20):g} MiB" if memory_bytes else ""
            reason = f"killed: memory limit{limit} reached"
        return Exit(code, number, self._reason or self._killed_reason or reason)

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
            self._answer(peer)
        self._starting.clear()
        self._waiting.clear()

    def _remove(self) -> None:
        self.links_down()
        if self._init_pid:
            self._signal(signal.SIGKILL)
            os.waitpid(self._init_pid, 0)
            self._init_pid = 0
            assert self._output is not None
            self._output.drain()
        self.phase = "exited"
        remains.clean(self.order.places, self.order.task_id, [])


def serve(sock: socket.socket) -> None:
    """Be a shim for the order that comes on a socket; never returns."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    sock.setblocking(True)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        # -900: under pressure the kernel takes the task, whose end a shim can tell, long before the shim. In a container
        # without CAP_SYS_RESOURCE it stays as it is.
        file.write("-900")
    peer = Peer(sock)
    order = Order.parse(_next(peer))
    kernel.set_title(SHIM_TITLE, order.places.state_dir, order.task_id)
    places, task_id = order.places, order.task_id
    stale = remains.connect(places.shim_dir(task_id))
    if stale is not None:
        peer.answer(error=f"task {task_id} has a shim already")
        os._exit(1)
    mine = os.getpid()
    if os.path.exists(places.shim_dir(task_id)):
        others = [pid for pid in remains.processes(places).get(task_id, []) if pid != mine]
        remains.clean(places, task_id, others)
    try:
        _join_shims(order)
        shim = Shim(order)
        shim.prepare()
    except (launch.LaunchError, ExecutorError, OSError) as error:
        remains.clean(places, task_id, [])
        peer.answer(error=_sentence(error))
        os._exit(1)
    peer.answer(phase="prepared", pid=0, shim_pid=mine, exit=None, lapsed=False)
    try:
        _next(peer)
    except EOFError:
        remains.clean(places, task_id, [])
        os._exit(1)
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


def _next(peer: Peer) -> dict[str, object]:
    """The next request, waiting for it.

    Raises:
        EOFError: the connection ended.
    """
    waiting = select.poll()
    waiting.register(peer.fileno(), select.POLLIN)
    while True:
        waiting.poll()
        requests = peer.lines()
        if requests is None:
            raise EOFError
        if requests:
            return requests[0]


__all__ = ["serve"]
