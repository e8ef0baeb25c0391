"""What a task of the process executor is, seen from inside and by this host's kernel."""

from __future__ import annotations

import os
import pathlib

import pytest
import trio

from beeyard.agent.executors.process.controller import ProcessController
from beeyard.agent.executors.process.launch import User
from beeyard.agent.executors.process.task_script import script_of
from beeyard.core.errors import ExecutorError
from beeyard.core.model import HOST_NETWORK_ID, Limits
from beeyard.core.mounts import LogDriver
from tests.support.executor_machine import RUNS, a_task, started
from tests.support.process_machine import ProcessMachine, a_process_machine

pytestmark = pytest.mark.netns


@pytest.fixture
async def machine():
    async with a_process_machine() as made:
        yield made
        assert await made.leftovers() == []


def fields(text: str, separator: str) -> dict[str, str]:
    """Lines of NAME<separator>VALUE."""
    return {
        name: value.strip() for name, found, value in (line.partition(separator) for line in text.splitlines()) if found
    }


async def test_task_has_no_privileges(machine: ProcessMachine) -> None:
    """By default a task is nobody, without groups or capabilities, and no program can give it any."""
    status, output = await machine.run("cat /proc/self/status")
    assert status.code == 0
    seen = fields(output, ":")
    assert ["65534"] * 4 == seen["Uid"].split() == seen["Gid"].split()
    assert seen["Groups"] == ""
    assert seen["NoNewPrivs"] == "1"
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(seen[name], 16) == 0, name
    for name in ("SigBlk", "SigIgn"):  # up to 31: the two after it are the C library's own
        assert int(seen[name], 16) & 0x7FFFFFFF == 0, name


async def test_root_task_cannot_reach_the_host(machine: ProcessMachine) -> None:
    """Root, when asked for, has neither NET_ADMIN nor SYS_ADMIN nor this host's disks and cgroups."""
    script = """
        grep Cap /proc/self/status; ip link set lo down 2>&1; mount -t tmpfs x /mnt 2>&1; ls /sys/fs/cgroup
        ls /dev | tr '\\n' ' '; echo 1 > /proc/sys/kernel/panic; echo after; mknod /tmp/disk b 254 0 2>&1; kill -9 1; id -u
    """
    _, output = await machine.run(script, user="root")
    capabilities = int(fields(output, ":")["CapBnd"], 16)
    for number in (2, 12, 13, 16, 17, 19, 21, 22, 25, 27):
        assert not capabilities & 1 << number, number
    assert capabilities == int(fields(output, ":")["CapEff"], 16)
    assert output.count("Operation not permitted\nmount") == 1
    assert "mknod: /tmp/disk: Operation not permitted" in output
    assert "Read-only file system" in output
    assert "vda" not in output
    assert "cpu" not in output
    assert output.endswith("0\n")


@pytest.mark.parametrize("user", [User(2**32 - 1, 1000), User(1000, 2**32 - 1)])
async def test_a_task_that_would_keep_an_id_of_root_does_not_run(machine: ProcessMachine, user: User) -> None:
    """Whoever gets past the check of the spec is stopped where ids are set: 2³²−1 leaves them as they are."""
    controller = await machine.executor.create(a_task(machine, command=("echo", "ran")))
    assert isinstance(controller, ProcessController)
    controller._zygote.make_directories()
    answer = await controller._prepare(script_of(controller._order, user))
    assert answer is not None
    controller._learn(answer)
    with pytest.raises(ExecutorError, match=f"could not become user {user.uid} with group {user.gid}"):
        await controller.start()
    await controller.remove()
    assert machine.log() == ""


async def test_task_sees_itself_alone(machine: ProcessMachine) -> None:
    """Own process numbers, own network with loopback only, own host name."""
    script = "ls -d /proc/[0-9]* | wc -l; ip -o link; hostname; ls /sys/class/net; readlink /proc/self/ns/ipc"
    _, output = await machine.run(script)
    lines = output.splitlines()
    assert int(lines[0]) <= 4  # shim, sh, ls, wc
    assert lines[1].startswith("1: lo: <LOOPBACK,UP")
    assert lines[2:4] == ["t" * 12, "lo"]
    assert os.readlink("/proc/self/ns/ipc") != lines[4]


async def test_task_environment_is_exact(machine: ProcessMachine) -> None:
    """HOME, PATH, HOSTNAME and what the spec says; a bare NAME takes a default away; nothing of the agent's."""
    home = f"{machine.executor.places.state_dir}/tasks/{'t' * 25}/work"
    _, output = await machine.run("exec env", env=("A=1", "B=x=y", "A=2", "HOSTNAME"), hostname="web1")
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert {"A": "2", "B": "x=y", "HOME": home, "PATH": path, "PWD": home} == fields(output, "=")


async def test_task_home_is_empty_and_its_own(machine: ProcessMachine) -> None:
    """The working directory is an empty home that the task may write; /tmp is its own; the agent's state is not there."""
    os.mkdir(f"{machine.directory}/secret")
    os.close(os.open(f"{machine.directory}/secret/key", os.O_CREAT))
    state_dir = machine.executor.places.state_dir
    script = f"""
        ls -A; ls -A /tmp; touch a /tmp/b; ls /tmp/b a; cd ..; pwd; ls; ls {state_dir}; ls {state_dir}/shims
        cat {machine.directory}/secret/key
        touch /dev/shm/c && echo shm; head -c 3 /dev/zero | wc -c; echo x > /dev/stderr
    """
    _, output = await machine.run(script, user="root")
    lines = output.splitlines()
    assert ["/tmp/b", "a", f"{state_dir}/tasks/{'t' * 25}", "work", "tasks"] == lines[:5]
    assert lines[-3:] == ["shm", "3", "x"]
    assert output.count("No such file") == 2
    assert not os.path.exists("/tmp/b")


async def test_closed_directories_above_the_state_are_hidden(machine: ProcessMachine) -> None:
    """A task finds its home by name though the agent's directories are closed, and nothing else of what is in them."""
    os.makedirs(f"{machine.directory}/keys")
    os.chmod(machine.directory, 0o700)
    _, output = await machine.run(f'cd / && cd "$HOME" && touch a && ls && ls {machine.directory}', user="1:1")
    assert output == "a\nstate\n"
    _, output = await machine.run(f"ls {machine.directory}", user="root")
    assert output.endswith("state\n")
    assert "keys" not in output


@pytest.mark.parametrize("parent", ["/tmp", "/var/tmp", "/dev/shm"])
async def test_state_below_a_directory_that_tasks_have_of_their_own(parent: str) -> None:
    """The task finds its home all the same, and in its own /tmp nothing else of the agent's."""
    async with a_process_machine(parent) as machine:
        os.mkdir(f"{machine.directory}/secret")
        status, output = await machine.run(
            f'touch a && cd / && ls "$HOME"; ls {machine.directory}; ls {machine.executor.places.state_dir}'
        )
        assert (status.code, output.split()) == (0, ["a", "state", "tasks"])
        assert await machine.leftovers() == []


async def test_task_may_use_port_80(machine: ProcessMachine) -> None:
    """In a network of its own every port is free for everybody."""
    script = 'exec python3 -c \'import socket; socket.create_server(("", 80)); print("bound")\''
    assert (await machine.run(script))[1] == "bound\n"


async def test_host_network_task_sees_the_hosts_links(machine: ProcessMachine) -> None:
    """With the network `host` a task has the host's links, but still not its cgroups or other processes."""
    _, output = await machine.run(
        "readlink /proc/self/ns/net; ls /sys/fs/cgroup; ls -d /proc/[0-9]* | wc -l", network_ids=(HOST_NETWORK_ID,)
    )
    lines = output.splitlines()
    assert os.readlink("/proc/self/ns/net") == lines[0]
    assert len(lines) == 2
    assert int(lines[1]) <= 4


async def test_memory_limit_kills_and_says_so(machine: ProcessMachine) -> None:
    """A task beyond its memory limit is killed, and its status names the limit."""
    script = "exec python3 -c 'x = b\"x\" * (200 << 20)'"
    status, _ = await machine.run(script, limits=Limits(memory_bytes=64 << 20))
    assert (status.code, status.signal, status.reason) == (137, 9, "killed: memory limit of 64 MiB reached")


async def test_pids_limit_bounds_a_fork_bomb(machine: ProcessMachine) -> None:
    """No more processes than allowed; removing the task ends them all."""
    bomb = (
        "import os, time\nfor _ in range(40):\n try: os.fork()\n except OSError: pass\nprint('ready')\ntime.sleep(60)"
    )
    task = a_task(machine, command=("python3", "-u", "-c", bomb), limits=Limits(pids=20))
    controller = await started(machine, task)
    await trio.sleep(0.3)
    cgroup = machine.executor.places.cgroup(task.id)
    assert len(cgroup.pids()) == 20
    await controller.remove()


async def test_cpu_limit_throttles(machine: ProcessMachine) -> None:
    """A task gets no more CPU time than its limit, here a fifth of a core: the kernel makes it wait."""
    task = a_task(machine, command=("sh", "-c", "echo ready; while :; do :; done"), limits=Limits(cpu_nano=200_000_000))
    controller = await started(machine, task)
    path = machine.executor.places.cgroup(task.id).file("cpu", "cpu.stat")
    with trio.fail_after(30):
        while int(fields(pathlib.Path(path).read_text(), " ")["nr_throttled"]) < 3:  # noqa: ASYNC110 - no event comes
            await trio.sleep(0.1)
    await controller.remove()


async def test_output_is_kept_and_bounded(machine: ProcessMachine) -> None:
    """Standard output and error are in the log in order, which is turned over once at its size."""
    machine.executor._log_bytes_max = 100_000
    _, output = await machine.run("for i in $(seq 30000); do echo line $i; done; echo end >&2")
    path = machine.executor.places.log("t" * 25)
    assert os.path.getsize(path) + os.path.getsize(f"{path}.1") < 2 * 100_000 + 2 * 65536
    before = pathlib.Path(f"{path}.1").read_text()
    assert (before + output).endswith("".join(f"line {n}\n" for n in range(29000, 30001)) + "end\n")


async def test_output_that_nobody_wants_is_thrown_away(machine: ProcessMachine) -> None:
    task = a_task(machine, command=("sh", "-c", "seq 30000; exit 3"), log_driver=LogDriver(name="none"))
    controller = await machine.executor.create(task)
    await controller.prepare()
    await controller.start()
    assert (await controller.wait()).code == 3
    await controller.remove()
    assert not os.path.exists(machine.executor.places.log(task.id))


async def test_orphans_end_with_the_program(machine: ProcessMachine) -> None:
    """What a task leaves in the background is gone before its end is told."""
    task = a_task(
        machine, command=("sh", "-c", "setsid sleep 4567 & setsid sleep 4567 & echo ready; sleep 0.1; exit 4")
    )
    controller = await started(machine, task)
    cgroup = machine.executor.places.cgroup(task.id)
    assert (await controller.wait()).code == 4
    assert cgroup.pids() == []
    await controller.remove()


async def test_own_stop_signal_is_sent(machine: ProcessMachine) -> None:
    """The spec's stop signal reaches the program, by name or number, and it may end as it likes."""
    for name in ("SIGUSR1", "10"):
        command = ("sh", "-c", "trap 'echo stopping; exit 5' USR1; echo ready; while :; do sleep 0.02; done")
        controller = await started(machine, a_task(machine, command=command, stop_signal=name))
        status = await controller.stop()
        assert status is not None
        assert (status.code, status.signal, status.reason) == (5, 0, "")
        assert machine.log().endswith("stopping\n")
        await controller.remove()
        os.unlink(machine.executor.places.log("t" * 25))


@pytest.mark.parametrize(
    ("spec", "phase", "sentence"),
    [
        ({"user": "nosuchuser"}, "prepare", "user nosuchuser does not exist on this host"),
        (
            {"user": "4294967295"},
            "prepare",
            "user 4294967295 is not possible: the greatest number of a user is 4294967294",
        ),
        ({"user": "²"}, "prepare", "user ² does not exist on this host"),
        ({"user": "root:nosuchgroup"}, "prepare", "group nosuchgroup does not exist on this host"),
        ({"command": ()}, "prepare", "image host needs a command to run"),
        ({"command": ("/etc/passwd",)}, "start", "cannot run command /etc/passwd: Permission denied"),
        ({"command": ("/no/such",)}, "start", "cannot run command /no/such: No such file or directory"),
        ({"command": ("nosuch",), "env": ("PATH=/bin",)}, "start", "command nosuch not found in PATH /bin"),
        ({"dir": "/no/dir"}, "start", "cannot enter working directory /no/dir: No such file or directory"),
        ({"dir": "/root"}, "start", "cannot enter working directory /root: Permission denied"),
    ],
)
async def test_what_cannot_run_is_named(
    machine: ProcessMachine, spec: dict[str, object], phase: str, sentence: str
) -> None:
    """Each error says which part of the spec this host cannot serve."""
    controller = await machine.executor.create(a_task(machine, RUNS, **spec))
    with pytest.raises(ExecutorError) as caught:  # noqa: PT012 - which of the two raises is what is asserted
        await controller.prepare()
        await controller.start()
    assert (phase, sentence) == (caught.value.phase, caught.value.reason)
    await controller.remove()


async def test_large_spec_fits(machine: ProcessMachine) -> None:
    """An environment of 100 kB reaches the program whole."""
    _, output = await machine.run("echo ${#BIG}", env=(f"BIG={'x' * 100_000}",))
    assert output == "100000\n"


async def test_hostile_work_dir_is_removed(machine: ProcessMachine) -> None:
    """However deep and odd the tree that a task leaves, removal ends and follows no link out of it."""
    os.mkdir(f"{machine.directory}/kept")
    script = f"""
        ln -s {machine.directory}/kept link; mkfifo pipe; mkdir locked; touch locked/x; chmod 000 locked
        python3 -c 'import os
for n in range(2000): os.mkdir("d" * 100); os.chdir("d" * 100)
open("x", "w")'; echo done
    """
    _, output = await machine.run(script)
    assert output == "done\n"
    assert os.path.isdir(f"{machine.directory}/kept")
