"""Calls of node hooks as real processes: whatever a hook does, nothing of it is left."""

from __future__ import annotations

import errno
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator

import pytest
import trio

from beeyard.agent.executors.process.executor import PRUNE_EVERY, ProcessExecutor
from beeyard.agent.executors.process.logs import Keep
from beeyard.core.errors import NodeHookError
from beeyard.runtime.host_tasks import HOOK_ANSWER_BYTES_MAX
from beeyard.runtime.real_hooks import LOG_BYTES_MAX, RealHooks
from tests.support.held import before_test, descriptors_and_threads
from tests.support.hooks_conformance import ANSWER, ANSWERS, EXIT_CODE, HANGS, MESSAGE, REFUSES, check_hooks
from tests.support.processes import with_argument

pytestmark = pytest.mark.netns

TASK = "t" * 25


@pytest.fixture
def hooks(tmp_path: pathlib.Path) -> RealHooks:
    (tmp_path / "hooks.d").mkdir(mode=0o755)
    return RealHooks(f"{tmp_path}/hooks.d", f"{tmp_path}/log", python_path=())


@pytest.fixture
def marker() -> str:
    """An argument of `sleep` by which the processes of this test are found."""
    return f"3{os.getpid():07}{time.monotonic_ns() % 1000:03}"


def write(tmp_path: pathlib.Path, name: str, script: str, mode: int = 0o755) -> pathlib.Path:
    path = tmp_path / "hooks.d" / name
    path.write_text(f"#!/bin/sh\n{textwrap.dedent(script)}")
    path.chmod(mode)
    return path


async def until(condition: Callable[[], object], within_s: float = 20.0) -> None:
    with trio.fail_after(within_s):
        while not condition():  # noqa: ASYNC110 - processes send no event
            await trio.sleep(0.02)


# Three ways to be left behind: in its group, in a session of its own, and as somebody who ignores every signal that can be.
LEAVES_SOME = "sleep {0} & setsid sleep {0} & (trap '' TERM HUP INT; setsid setsid sleep {0} &) "


class RealMachine:
    """A `HookMachine` with directories of its own; its hooks are called by this process, or by who forks tasks."""

    def __init__(self, tmp_path: pathlib.Path, marker: str, hooks: RealHooks) -> None:
        self.hooks = hooks
        self._path = tmp_path
        self._marker = marker

    def install(self, name: str, kind: str) -> None:
        script = {
            ANSWERS: f"cat > /dev/null; echo '{ANSWER.decode()}'",
            REFUSES: f"echo {MESSAGE} >&2; exit {EXIT_CODE}",
            HANGS: f"{LEAVES_SOME.format(self._marker)}; sleep {self._marker}; true",
        }
        write(self._path, name, f"echo >> {self._path}/begun\n{script[kind]}")

    def remove(self, name: str) -> None:
        (self._path / "hooks.d" / name).unlink()

    def spoil(self, name: str) -> None:
        (self._path / "hooks.d" / name).chmod(0o777)

    def ended(self, n_calls: int) -> bool:
        return len((self._path / "begun").read_text()) == n_calls and not with_argument(self._marker)

    def place(self) -> str:
        return os.path.realpath(self._path)


# Be what systemd starts for a connection: the launcher, with the connection as descriptor 3.
LAUNCH = """
import os, sys
os.set_blocking(os.dup2(int(sys.argv[1]), 3), True)
os.execve(sys.executable, [sys.executable, "-m", "beeyard", "launch"], {**os.environ, "LISTEN_FDS": "1"})
"""


async def launcher(path: str, *, task_status: trio.TaskStatus[None]) -> None:
    """A socket as that of beeyard-launcher.socket, for one connection."""
    with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_SEQPACKET) as listener:
        await listener.bind(path)
        listener.listen()
        task_status.started()
        connection, _ = await listener.accept()
    with connection:
        fd = connection.fileno()
        process = await trio.lowlevel.open_process([sys.executable, "-c", LAUNCH, str(fd)], pass_fds=(fd,))
    await process.wait()


@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_a_call_for_which_there_is_no_descriptor_is_refused_and_leaves_none(
    tmp_path: pathlib.Path, hooks: RealHooks, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    write(tmp_path, "10-hook", "true")
    n_calls, pipe2 = 0, os.pipe2

    def failing(flags: int) -> tuple[int, int]:
        nonlocal n_calls
        n_calls += 1
        if n_calls == nth:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return pipe2(flags)

    monkeypatch.setattr(os, "pipe2", failing)
    before = before_test()[0]
    with pytest.raises(NodeHookError, match="node hook 10-hook cannot be called at stop: Too many open files"):
        await hooks.run("10-hook", "stop", TASK, b"{}", timeout_s=5)
    assert descriptors_and_threads()[0] == before


@pytest.mark.parametrize("forks", ["the agent", "the zygote", "the launcher"])
async def test_real_hooks_keep_the_promises_of_the_port(tmp_path: pathlib.Path, marker: str, forks: str) -> None:
    """Whoever forks; under systemd it is the launcher, which is free of what restricts the agent."""
    (tmp_path / "hooks.d").mkdir(mode=0o755)
    path = f"{tmp_path}/socket" if forks == "the launcher" else ""
    executor = ProcessExecutor(f"{tmp_path}/state", f"{tmp_path}/log", launcher=path)
    spawn = None if forks == "the agent" else executor.spawn_hook
    hooks = RealHooks(f"{tmp_path}/hooks.d", f"{tmp_path}/log", python_path=(), spawn=spawn)
    async with trio.open_nursery() as nursery:
        if path:
            await nursery.start(launcher, path)
        try:
            await check_hooks(RealMachine(tmp_path, marker, hooks))
            assert bool(executor.zygote_pid) == (forks == "the zygote")
        finally:
            await executor.aclose()


async def test_a_call_whose_runner_is_killed_is_an_error(tmp_path: pathlib.Path, marker: str) -> None:
    """It did not refuse and did not agree: nobody knows. The hook itself ends with its runner."""
    (tmp_path / "hooks.d").mkdir(mode=0o755)
    write(tmp_path, "10-a", f"kill -9 $PPID; exec sleep {marker}")
    hooks = RealHooks(f"{tmp_path}/hooks.d", "", python_path=())
    with pytest.raises(
        NodeHookError, match=r"^node hook 10-a was lost at prepare: the process that held it was killed$"
    ):
        await hooks.run("10-a", "prepare", TASK, b"", timeout_s=30)
    await until(lambda: not with_argument(marker))


async def test_a_call_gives_what_the_hook_says(hooks: RealHooks, tmp_path: pathlib.Path) -> None:
    """Moment, task and document arrive, little else does; output is kept."""
    write(
        tmp_path, "10-a", "echo one >&2; env | cut -d= -f1 | sort | tr '\\n' ' ' >&2; cat; echo \" $1 $(pwd)\"; exit 3"
    )
    answer = await hooks.run("10-a", "prepare", TASK, b"{...}", timeout_s=20)
    assert (answer.exit_code, answer.stdout, answer.late) == (3, b"{...} prepare /\n", False)
    assert answer.stderr.splitlines() == ["one", "BEEYARD_MOMENT BEEYARD_TASK_ID LANG PATH PWD "]
    assert answer.output_path == f"{tmp_path}/log/{TASK}.hooks.log"
    kept = pathlib.Path(answer.output_path).read_text()
    assert " 10-a prepare: exit code 3 after " in kept
    assert "one\n" in kept
    assert "--- answer\n{...} prepare /\n" in kept
    assert os.stat(answer.output_path).st_mode & 0o777 == 0o600


async def test_hooks_are_found_in_their_order_and_anew_each_time(hooks: RealHooks, tmp_path: pathlib.Path) -> None:
    for name in ("20-b", "10-a", ".30-off", "40-old~"):
        write(tmp_path, name, "", mode=0o777 if name.startswith(".") else 0o755)
    assert await hooks.names() == ("10-a", "20-b")
    (tmp_path / "hooks.d" / "10-a").unlink()
    assert await hooks.names() == ("20-b",)
    with pytest.raises(NodeHookError, match=r"^node hook 10-a is not in .* any more$"):
        await hooks.run("10-a", "stop", TASK, b"", timeout_s=20)
    assert await RealHooks("/no/such", "").names() == ()


async def test_a_hook_that_is_not_safe_is_named(hooks: RealHooks, tmp_path: pathlib.Path) -> None:
    """Mode, owner, kind and name; also of what is above it, and of what a link leads to."""
    path = write(tmp_path, "10-a", "")
    link = tmp_path / "hooks.d" / "20-link"
    elsewhere = tmp_path / "elsewhere"

    async def fault() -> str:
        with pytest.raises(NodeHookError) as caught:
            await hooks.names()
        with pytest.raises(NodeHookError):
            await hooks.run(caught.value.hook, "prepare", TASK, b"", timeout_s=20)
        return str(caught.value)

    path.chmod(0o775)
    assert await fault() == (
        f"node hook 10-a is not safe to call: {path} has mode 775: others than its owner may not write it"
    )
    path.chmod(0o644)
    assert "node hook 10-a is not executable: chmod 755" in await fault()
    path.chmod(0o755)
    os.chown(path, 1234, 0)
    assert f"{path} belongs to user 1234: it must be root's" in await fault()
    os.chown(path, 0, 0)
    path.parent.chmod(0o777)
    assert f"{path.parent} has mode 777" in await fault()
    path.parent.chmod(0o755)
    elsewhere.mkdir(mode=0o755)
    link.symlink_to(elsewhere)
    assert f"{elsewhere} is no regular file" in await fault()
    (elsewhere / "x").write_text("")
    (elsewhere / "x").chmod(0o755)
    elsewhere.chmod(0o777)
    link.unlink()
    link.symlink_to(elsewhere / "x")
    assert f"{elsewhere} has mode 777" in await fault()
    elsewhere.chmod(0o755)
    assert await hooks.names() == ("10-a", "20-link")
    write(tmp_path, "30 b", "")
    with pytest.raises(NodeHookError, match=r"^node hook '30 b' has a name that cannot be"):
        await hooks.names()


@pytest.mark.parametrize("end", ["ends", "late", "cancelled"])
async def test_nothing_is_left_of_a_call(hooks: RealHooks, tmp_path: pathlib.Path, marker: str, end: str) -> None:
    """However it ends: children in the background, in sessions of their own, orphans."""
    wait = f"sleep {marker}" if end != "ends" else "sleep 0.3"
    write(tmp_path, "10-a", f"{LEAVES_SOME.format(marker)}; echo x; trap '' TERM; {wait}; true")
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                answer = await hooks.run(
                    "10-a", "prepare", TASK, b"x" * (1 << 20), timeout_s=1 if end == "late" else 30
                )
                assert (answer.late, answer.stdout) == (end == "late", b"x\n")

            nursery.start_soon(call)
            await until(lambda: len(with_argument(marker)) >= 3)
            if end == "cancelled":
                scope.cancel()
    assert with_argument(marker) == []
    assert not pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


async def test_nothing_is_left_of_a_call_whose_agent_is_killed(tmp_path: pathlib.Path, marker: str) -> None:
    """The runner sees the pipe end."""
    (tmp_path / "hooks.d").mkdir(mode=0o755)
    write(tmp_path, "10-a", f"{LEAVES_SOME.format(marker)}; sleep {marker}; true")
    script = f"""
import trio
from beeyard.runtime.real_hooks import RealHooks
hooks = RealHooks({str(tmp_path / "hooks.d")!r}, "")
trio.run(lambda: hooks.run("10-a", "prepare", "t", b"", timeout_s=600))
"""
    with subprocess.Popen([sys.executable, "-c", script]) as agent:
        await until(lambda: len(with_argument(marker)) >= 4)
        agent.send_signal(signal.SIGKILL)
    await until(lambda: not with_argument(marker))


async def test_output_is_bounded(hooks: RealHooks, tmp_path: pathlib.Path) -> None:
    """A hook that talks without end is cut, and is not in the way of its own end."""
    write(tmp_path, "10-a", "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; echo last >&2")
    for _ in range(5):
        answer = await hooks.run("10-a", "prepare", TASK, b"", timeout_s=30)
        assert (len(answer.stdout), answer.too_long, answer.late) == (HOOK_ANSWER_BYTES_MAX, True, False)
        assert answer.stderr.endswith("\0last\n")
        assert len(answer.stderr) == 64 << 10
    kept = sorted((tmp_path / "log").iterdir())
    assert [path.name for path in kept] == [f"{TASK}.hooks.log", f"{TASK}.hooks.log.1"]
    assert all(path.stat().st_size <= LOG_BYTES_MAX for path in kept)


async def test_logs_of_refused_tasks_are_looked_after(tmp_path: pathlib.Path) -> None:
    """Nothing else of such a task is ever removed, and a node may refuse for days."""
    (tmp_path / "hooks.d").mkdir(mode=0o755)
    write(tmp_path, "10-a", "exit 1")
    executor = ProcessExecutor(f"{tmp_path}/state", f"{tmp_path}/log", keep=Keep(n_tasks=2))
    hooks = RealHooks(f"{tmp_path}/hooks.d", f"{tmp_path}/log", python_path=(), spawn=executor.spawn_hook)
    try:
        for number in range(2 * PRUNE_EVERY + 1):
            await hooks.run("10-a", "prepare", f"t{number:024}", b"", timeout_s=30)
            assert len(os.listdir(f"{tmp_path}/log")) <= 2 + PRUNE_EVERY
    finally:
        await executor.aclose()


async def test_a_hook_that_cannot_be_run_says_why(hooks: RealHooks, tmp_path: pathlib.Path) -> None:
    path = write(tmp_path, "10-a", "")
    path.write_text("#!/no/such/interpreter\n")
    answer = await hooks.run("10-a", "prepare", TASK, b"", timeout_s=20)
    assert (answer.exit_code, answer.stderr) == (126, f"cannot run {path}: No such file or directory\n")


async def test_a_python_entry_point_is_a_hook(tmp_path: pathlib.Path) -> None:
    """Found by its group; gets the document, answers with what it returns, refuses with what it raises."""
    info = tmp_path / "example-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: example\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[beeyard.node_hooks]\nbad = example_hook:bad\ngood = example_hook:good\nnone = example_hook:no.such\n"
    )
    (tmp_path / "example_hook.py").write_text(
        textwrap.dedent("""
        def good(moment, document):
            print("talks")
            return {"env": {"M": moment, "D": document["x"]}}
        def bad(moment, document):
            raise ValueError("not today")
        """)
    )
    hooks = RealHooks("", "", python_path=[str(tmp_path)])
    assert await hooks.names() == ("python:bad", "python:good", "python:none")
    good = await hooks.run("python:good", "prepare", TASK, b'{"x": "y"}', timeout_s=30)
    assert (good.exit_code, good.stdout, good.stderr) == (0, b'{"env": {"M": "prepare", "D": "y"}}', "talks\n")
    bad = await hooks.run("python:bad", "stop", TASK, b"{}", timeout_s=30)
    assert (bad.exit_code, bad.stdout, bad.stderr.splitlines()[-1]) == (1, b"", "not today")
    none = await hooks.run("python:none", "stop", TASK, b"{}", timeout_s=30)
    assert none.stderr.splitlines()[-1] == "module 'example_hook' has no attribute 'no'"


@pytest.fixture
def ended_pid() -> Iterator[int]:
    """Of a process that nobody has waited for: what is left of it in /proc has links that cannot be read."""
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        yield process.pid


async def test_what_is_at_a_path(hooks: RealHooks, tmp_path: pathlib.Path, ended_pid: int) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    seen = {path: await hooks.look(path) for path in (f"{tmp_path}/link", "/dev/null", "/etc", "/no/such")}
    assert [found and (found.path, found.kind) for found in seen.values()] == [
        ("/etc/passwd", "file"),
        ("/dev/null", "device"),
        ("/etc", "directory"),
        None,
    ]
    assert await hooks.look(f"/proc/{ended_pid}/exe/x") is None
