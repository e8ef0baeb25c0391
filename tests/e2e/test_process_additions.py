"""What a node adds to a task of the process executor, seen from inside: environment, sysctls, files, devices."""

from __future__ import annotations

import os
import pathlib
import stat
from collections.abc import Iterator

import pytest
import trio

from beeyard.core.errors import ExecutorError
from beeyard.core.model import HOST_NETWORK_ID
from beeyard.runtime.host import Additions, Mount
from tests.support.executor_machine import RUNS, a_task
from tests.support.process_machine import ProcessMachine, a_process_machine

pytestmark = pytest.mark.netns


@pytest.fixture
async def machine():
    async with a_process_machine() as made:
        yield made
        assert await made.leftovers() == []


@pytest.fixture
def device() -> Iterator[str]:
    """A device of this host that root alone may use, and that gives zeros."""
    path = f"/dev/beeyard-test-{os.getpid()}"
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    yield path
    os.unlink(path)


@pytest.fixture
def shared(machine: ProcessMachine) -> pathlib.Path:
    """A directory of this host that everybody may look into, and in which everybody may write."""
    path = pathlib.Path(machine.directory) / "shared"
    path.mkdir()
    path.chmod(0o777)
    (path / "file").write_text("of the host\n")
    (path / "file").chmod(0o666)
    return path


async def run(machine: ProcessMachine, additions: Additions, script: str, **spec: object) -> str:
    """Run a script with additions to its end; gives its output."""
    task = a_task(machine, RUNS, command=("sh", "-c", script), **spec)  # type: ignore[arg-type]
    controller = await machine.executor.create(task, additions)
    try:
        await controller.prepare()
        await controller.start()
        with trio.fail_after(20):
            await controller.wait()
        return machine.log()
    finally:
        await controller.remove()


async def test_all_kinds_at_once(machine: ProcessMachine, shared: pathlib.Path, device: str) -> None:
    """The spec's own environment wins; sysctls are the task's; mounts are read-only unless told; the device is its user's."""
    additions = Additions(
        env=("ADDED=by the node", "BOTH=node", "UNSET=node"),
        sysctls={"net.ipv4.ip_forward": "1", "kernel.msgmax": "4711"},
        mounts=(
            Mount(source=str(shared), target="/tmp/ro"),
            Mount(source=str(shared), target="/mnt", read_only=False),
            Mount(source=f"{shared}/file", target="/tmp/deep/er/file"),
        ),
        devices=(device,),
    )
    before = [pathlib.Path(f"/proc/sys/{name}").read_text() for name in ("net/ipv4/ip_forward", "kernel/msgmax")]
    script = f"""
        echo $ADDED $BOTH ${{UNSET-unset}}; cat /proc/sys/net/ipv4/ip_forward /proc/sys/kernel/msgmax
        cat /tmp/ro/file /tmp/deep/er/file; touch /tmp/ro/new 2>&1; (echo x > /tmp/deep/er/file) 2>&1
        touch /mnt/new && echo wrote
        head -c 3 {device} | od -An -tx1; stat -c '%U %a %t:%T' {device}; findmnt -no options /mnt
    """
    output = await run(machine, additions, script, env=("BOTH=spec", "UNSET"))
    lines = output.splitlines()
    assert lines[:5] == ["by the node spec unset", "1", "4711", "of the host", "of the host"]
    assert output.count("Read-only file system") == 2
    assert lines[-4:-1] == ["wrote", " 00 00 00", "nobody 660 1:5"]
    assert {"rw", "nosuid", "nodev"} <= set(lines[-1].split(","))
    assert (shared / "new").exists()
    assert before == [
        pathlib.Path(f"/proc/sys/{name}").read_text() for name in ("net/ipv4/ip_forward", "kernel/msgmax")
    ]
    assert not os.path.exists("/tmp/deep"), "what is made below /tmp is made in the task's own"


async def test_what_is_mounted_is_not_widened(machine: ProcessMachine, shared: pathlib.Path) -> None:
    """No set-user-id program of a mount gains anything, and root of a task cannot make a read-only mount writable."""
    mount = Additions(mounts=(Mount(source=str(shared), target="/mnt"),))
    script = "mount -o remount,rw /mnt 2>&1; umount /mnt 2>&1; touch /mnt/x 2>&1; findmnt -no options /mnt"
    output = await run(machine, mount, script, user="root")
    assert "Read-only file system" in output
    assert {"ro", "nosuid", "nodev"} <= set(output.splitlines()[-1].split(","))


@pytest.mark.parametrize(
    ("additions", "sentence"),
    [
        (Additions(sysctls={"net.ipv4.no_such": "1"}), "cannot set sysctl net.ipv4.no_such to '1': No such file"),
        (Additions(sysctls={"kernel.msgmax": "x"}), "cannot set sysctl kernel.msgmax to 'x': Invalid argument"),
        (Additions(mounts=(Mount(source="/no/such", target="/mnt"),)), "mount source /no/such: no such file"),
        (Additions(mounts=(Mount(source="/etc", target="/no/such"),)), "mount target /no/such: no such file"),
        (
            Additions(mounts=(Mount(source="/etc", target="/etc/passwd"),)),
            "cannot mount a directory at /etc/passwd: it is a file",
        ),
        (Additions(devices=("/dev/no-such",)), "cannot add device /dev/no-such: No such file"),
        (Additions(devices=("/etc/passwd",)), "cannot add device /etc/passwd: it is no device"),
    ],
)
async def test_what_cannot_be_added_fails_the_start_by_name(
    machine: ProcessMachine, additions: Additions, sentence: str
) -> None:
    """The command has not run."""
    with pytest.raises(ExecutorError, match=r"^start: ") as caught:
        await run(machine, additions, "echo ran")
    assert sentence in str(caught.value)
    assert "ran" not in machine.log()


@pytest.mark.parametrize("part", ["source", "target"])
async def test_no_symbolic_link_leads_a_mount_elsewhere(
    machine: ProcessMachine, shared: pathlib.Path, part: str
) -> None:
    """Whoever may write in an allowed directory puts a link where a directory was when it was looked at."""
    (shared / "link").symlink_to("/etc")
    paths = {"source": str(shared), "target": "/mnt", part: f"{shared}/link"}
    with pytest.raises(ExecutorError) as caught:
        await run(machine, Additions(mounts=(Mount(**paths),)), "echo ran")
    assert f"mount {part} {shared}/link leads over a symbolic link: link" in str(caught.value)


async def test_a_task_on_the_hosts_network_has_its_own_ipc_limits(machine: ProcessMachine) -> None:
    """IPC and mounts are its own there too."""
    additions = Additions(sysctls={"kernel.msgmax": "4711"}, mounts=(Mount(source="/etc", target="/mnt"),))
    script = "cat /proc/sys/kernel/msgmax; head -c 5 /mnt/passwd"
    output = await run(machine, additions, script, network_ids=(HOST_NETWORK_ID,))
    assert output == "4711\nroot:"
