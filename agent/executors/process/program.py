"""The task's own processes, as process 1 of their PID namespace has to do with them.

The shim is that process 1: it starts the program, passes the stop signal on, reaps what the task orphans, and when the
program ends kills and reaps the rest. The kernel kills everything in the namespace when process 1 is killed, so nothing of
a task outlives its shim.
"""

from __future__ import annotations

import contextlib
import os
import signal
import traceback

from beeyard.agent.executors.process import additions, kernel, launch, view
from beeyard.agent.executors.process.cgroups import TaskCgroup
from beeyard.agent.executors.process.order import Exit, Order, reason_of
from beeyard.agent.executors.process.output import Output

# What a child tells when it cannot become the program: bounded by what fits into a pipe at once.
REPORT_BYTES_MAX = 4000


class Program:
    """One start of a task's program. Descriptors `report` and `output.fd` are for the shim's poll."""

    def __init__(self, order: Order, user: launch.User, cgroup: TaskCgroup) -> None:
        log_path = order.places.log(order.task_id) if order.keeps_output else os.devnull
        self.output = Output(log_path, order.log_bytes_max)
        self.failure = ""  # why it could not be started, for a person
        self.ended: int | None = None  # its wait status
        self._order = order
        self._cgroup = cgroup
        self._failure = b""
        os.fchown(self.output.writer, user.uid, user.gid)  # so that the task can open /dev/stdout
        self.report, report_writer = os.pipe2(os.O_CLOEXEC)
        joins = cgroup.open_joins()
        self.pid = os.fork()
        if self.pid == 0:
            _become(order, user, joins, self.output.writer, report_writer)
        for fd in (report_writer, *joins):
            os.close(fd)
        self.output.close_writer()

    @property
    def host_pid(self) -> int:
        """Its number on the host, 0 when it has ended."""
        try:
            # /proc is the host's here, so numbers in it are the host's.
            mine = os.readlink("/proc/self")
            with open(f"/proc/{mine}/task/{mine}/children") as file:
                return int(file.read().split()[0])
        except (OSError, IndexError):
            return 0

    def reported(self) -> bool:
        """Take in what the child tells; True once it runs the program or has given up (then `failure` says why)."""
        data = os.read(self.report, 65536)
        self._failure += data
        if data:
            return False
        self.failure = self._failure.decode(errors="replace")
        return True

    def signal(self, number: int) -> None:
        """Signal the program, if it has not ended."""
        if self.ended is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill all of the task's processes, the program as well."""
        with contextlib.suppress(ProcessLookupError):  # nobody is left
            os.kill(-1, signal.SIGKILL)

    def reap(self, *, block: bool = False) -> bool:
        """Collect what has ended; True when no process of the task is left. Kills the others once the program ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, 0 if block else os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self.pid:
                self.ended = status
            if self.ended is not None:
                self.kill()

    def status(self, stopped_because: str, killed_because: str) -> Exit:
        """How it ended. The reasons are the shim's own, for stopping and for killing it; "" where it had none."""
        assert self.ended is not None
        if os.WIFSIGNALED(self.ended):
            number, code = os.WTERMSIG(self.ended), 128 + os.WTERMSIG(self.ended)
        else:
            number, code = 0, os.WEXITSTATUS(self.ended)
        reason = stopped_because or killed_because
        if not reason and code and self._cgroup.oom_kills():
            memory_bytes = self._order.limits.memory_bytes
            limit = f" of {memory_bytes / (1 << 20):g} MiB" if memory_bytes else ""
            reason = f"killed: memory limit{limit} reached"
        return Exit(code, number, reason)


def _become(order: Order, user: launch.User, joins: list[int], output: int, report: int) -> None:
    """In the child: become the task's program, or report why not. Never returns."""
    try:
        signal.set_wakeup_fd(-1)
        kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC)
        launch.enter(joins, output)
        launch.close_all_but(report)
        additions.set_sysctls(order.sysctls)
        held = additions.hold(order)
        view.build(order, root=user.uid == 0)
        additions.give(order, held, user)
        kernel.set_hostname(order.hostname)
        home = f"{order.places.task_dir(order.task_id)}/work"
        env = {"PATH": launch.DEFAULT_PATH, "HOSTNAME": order.hostname, "HOME": home, **order.env}
        for name in order.unset:
            env.pop(name, None)
        launch.become(user)
        launch.execute(order.argv, env, order.dir or home)
    except launch.LaunchError as error:
        reason = str(error)
    except OSError as error:
        reason = reason_of(error)
    except BaseException:  # whatever it is, the shim has to hear of it
        reason = traceback.format_exc()
    os.write(report, reason.encode()[:REPORT_BYTES_MAX])
    os._exit(127)


__all__ = ["Program"]
