"""Process 1 of a task's PID namespace: starts the program, passes signals on, reaps, and ends all when it ends.

It runs as root without doing anything for the task but this, and dies with its shim; the kernel kills everything in a PID
namespace whose process 1 ends, so nothing of a task can outlive its shim.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import traceback
from typing import NamedTuple

from beeyard.agent.executors.process import kernel, launch, view
from beeyard.agent.executors.process.order import INIT_TITLE, Order, reason_of


class Pipes(NamedTuple):
    """Descriptors that init and the program inherit from the shim."""

    report: int  # why the program could not be started; closed without a word when it was
    status: int  # the program's wait status, in decimal
    output: int  # standard output and error of the program
    joins: list[int]  # the task's cgroup


def run(order: Order, user: launch.User, pipes: Pipes) -> None:
    """Never returns."""
    try:
        kernel.die_with_parent(signal.SIGKILL)
        alive = select.poll()
        alive.register(pipes.report, 0)
        if alive.poll(0):  # nobody reads: the shim died before it could take us with it
            os._exit(1)
        kernel.set_title(INIT_TITLE, order.places.state_dir, order.task_id)
        kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC)
        view.build(order, root=user.uid == 0)
        socket.sethostname(order.hostname)
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        program = os.fork()
        if program == 0:
            _program(order, user, pipes)
        launch.close_all_but(pipes.status)
        for fd in (0, 1, 2):
            os.close(fd)
        os.write(pipes.status, str(_reap(program)).encode())
        os._exit(0)
    except OSError as error:
        _report(pipes, reason_of(error))
    except BaseException:  # whatever it is, the shim has to hear of it
        _report(pipes, traceback.format_exc())
    os._exit(1)


def _report(pipes: Pipes, reason: str) -> None:
    os.write(pipes.report, reason.encode()[:4000])


def _program(order: Order, user: launch.User, pipes: Pipes) -> None:
    """Become the task's program, or report why not. Never returns."""
    try:
        home = f"{order.places.task_dir(order.task_id)}/work"
        env = {"PATH": launch.DEFAULT_PATH, "HOSTNAME": order.hostname, "HOME": home, **order.env}
        for name in order.unset:
            env.pop(name, None)
        launch.enter(pipes.joins, pipes.output)
        launch.close_all_but(pipes.report)
        launch.become(user)
        launch.execute(order.argv, env, order.dir or home)
    except launch.LaunchError as error:
        _report(pipes, str(error))
    except OSError as error:
        _report(pipes, reason_of(error))
    except BaseException:  # whatever it is, the shim has to hear of it
        _report(pipes, traceback.format_exc())
    os._exit(127)


def _reap(program: int) -> int:
    """Pass signals on until the program ends; gives its wait status."""
    everything = signal.valid_signals()
    while True:
        number = signal.sigwaitinfo(everything).si_signo
        if number != signal.SIGCHLD:
            os.kill(program, number)
            continue
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == program:
                return status
            if pid == 0:
                break


__all__ = ["Pipes", "run"]
