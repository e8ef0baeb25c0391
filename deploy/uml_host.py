"""A host with a kernel of its own on this machine: User Mode Linux (Debian's package user-mode-linux).

A `UmlHost` boots a Linux kernel as an ordinary process. Its root is a copy-on-write view of this machine's file
system, kept in its memory; so it runs the programs of this tree, unchanged, on a kernel that has ipvlan, 8021q and
cgroup v2, and with systemd as its first process when that is asked for. Units of this machine itself are not started.
This tree and the Python that runs it are also below `/opt/beeyard`, where a daemon without rights can read them.

**Power cut.** `power_cut()` kills the kernel with SIGKILL. What the host had in memory is lost: its processes, its
root, and what was written but not synced. `/var/lib/beeyard` lies on a disk of its own, an ext4 image behind the
kernel's block driver, which survives: what a program inside had fsynced before the cut is there after it, what it had
not may be lost or half there. (A folder of this machine, mounted inside, would keep every rename and truncation the
moment it is made, which no real disk does.)
"""

from __future__ import annotations

import compileall
import contextlib
import ctypes
import dataclasses
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from deploy.lan import Lan, run
from deploy.uml_channel import PORT

HERE = Path(__file__).resolve().parent
BOOT_TIMEOUT_S = 120.0
DISK_BYTES = 256 << 20
ROOMY_BYTES = 4 << 30
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)

# What Debian starts by itself and no test needs: on a busy machine each costs a second or more of the boot.
MASKED = """
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer
    systemd-tmpfiles-clean.timer man-db.timer logrotate.timer dbus.service dbus.socket systemd-logind.service
    getty.target getty-static.service console-getty.service getty@tty1.service systemd-udevd.service
    systemd-udevd-kernel.socket systemd-udevd-control.socket systemd-udev-trigger.service
    systemd-udev-settle.service systemd-hwdb-update.service systemd-random-seed.service systemd-update-utmp.service
    systemd-update-utmp-runlevel.service systemd-user-sessions.service systemd-firstboot.service
    systemd-machine-id-commit.service systemd-boot-update.service systemd-journal-catalog-update.service
    systemd-journal-flush.service systemd-modules-load.service systemd-pcrphase-sysinit.service
    systemd-pcrphase.service modprobe@configfs.service modprobe@drm.service modprobe@efi_pstore.service
    modprobe@fuse.service modprobe@dm_mod.service modprobe@loop.service ldconfig.service kmod-static-nodes.service
    systemd-tmpfiles-setup-dev.service dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount
    sys-kernel-tracing.mount sys-kernel-config.mount sys-fs-fuse-connections.mount proc-sys-fs-binfmt_misc.automount
    systemd-binfmt.service systemd-remount-fs.service systemd-quotacheck.service quotaon.service swap.target
    remote-fs.target e2scrub_reap.service cryptsetup.target veritysetup.target integritysetup.target
    systemd-ask-password-wall.path systemd-ask-password-console.path keyboard-setup.service console-setup.service
""".split()


class UmlError(Exception):
    """A UML host did not do what it was told; carries the end of its console."""


def roomy_directory() -> Path:
    """A folder for the hosts' memory and disks: from where programs may be mapped, with the room that some hosts need.

    UML keeps a kernel's memory in a file that it maps executable. A small or noexec /dev/shm, as in containers, will not do.
    """
    candidates = [
        Path(p) for p in ("/dev/shm", tempfile.gettempdir(), "/var/tmp", str(HERE.parent / "build")) if os.path.isdir(p)
    ]
    free = {}
    for path in candidates:
        about = os.statvfs(path)
        if not about.f_flag & os.ST_NOEXEC and os.access(path, os.W_OK):
            free[path] = about.f_bavail * about.f_frsize
    if not free:
        raise UmlError(
            f"no folder to keep a UML host's memory in: all of {', '.join(map(str, candidates))} are noexec or read-only"
        )
    return next(
        (path for path, n_bytes in free.items() if n_bytes >= ROOMY_BYTES), max(free, key=lambda path: free[path])
    )


def own_directory(name: str) -> Path:
    """A folder for hosts of this process, to be made and removed by who asks. What killed processes left is removed."""
    roomy = roomy_directory()
    for path in roomy.glob("beeyard-uml-*"):
        pid = path.name.split("-")[2]
        if pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(path, ignore_errors=True)
    return roomy / f"beeyard-uml-{os.getpid()}-{name}"


def compile_tree() -> None:
    """Compile what daemons and tests import, out here: inside it would be done anew at each start, and takes seconds."""
    for path in HERE.parent.glob("*/"):
        if not path.name.startswith((".", "build")):
            compileall.compile_dir(path, quiet=2)


class UmlLan(Lan):
    """A bridge in a namespace of its own; UML hosts are plugged in through taps."""

    def add_tap(self, number: int) -> str:
        """The tap of host `number`, made when it is not there."""
        name = f"tap{number}"
        inside = ("ip", "-n", self.outside)
        if name not in run(*inside, "-o", "link", "show", "type", "tun"):
            # A bridge takes the smallest address of its ports, and so would change its own whenever a port comes or goes.
            run(*inside, "link", "set", "lan0", "address", "02:be:e0:00:00:fe")
            run(*self.enter(self.outside), "ip", "tuntap", "add", "dev", name, "mode", "tap")
            run(*inside, "link", "set", name, "master", "lan0", "up")
        return name

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """This thread is in the LAN's namespace for the length of the context."""
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            with open(f"/run/netns/{self.outside}") as there:
                if _libc.setns(there.fileno(), _CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), f"cannot enter {self.outside}")
            try:
                yield
            finally:
                left = _libc.setns(own, _CLONE_NEWNET)
                assert left == 0, os.strerror(ctypes.get_errno())
        finally:
            os.close(own)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a command inside ended."""

    returncode: int
    stdout: str
    stderr: str


class UmlHost:
    """One host, which can be booted, cut off from power, and booted again.

    Args:
        name: its host name.
        directory: where its disk, console log and shared folder lie; made when missing.
        lan, number: the LAN it is plugged into and its number there, which decides its address; None: no network card.
        files: path inside → content, laid over its root at each boot.
        memory: what the kernel may take at most; only what it touches is taken.
        systemd: boot systemd with the command channel as a unit; otherwise the one program is that channel.
        modules: without them its kernel knows only what is built in.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        *,
        lan: UmlLan | None = None,
        number: int = 1,
        files: Mapping[str, str] | None = None,
        memory: str = "768M",
        systemd: bool = False,
        modules: bool = True,
    ) -> None:
        self.name = name
        self.directory = directory
        self.lan = lan
        self.number = number
        self.files = dict(files or {})
        self.memory = memory
        self.systemd = systemd
        self.modules = modules
        self.share = directory / "share"
        self.console = directory / "console.log"
        self.process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> str:
        """Its address on the LAN, without prefix length."""
        assert self.lan is not None, "a host without a LAN has no address"
        return self.lan.address(self.number)

    # --- power ------------------------------------------------------------------------------------------------------

    def boot(self, command: str | None = None) -> None:
        """Switch it on and return at once. `command`: a shell script that is run instead of the channel; its end is off."""
        assert self.process is None, f"{self.name} is already on"
        self._write_share(command)
        disk = self.directory / "disk"
        if not disk.exists():
            with disk.open("wb") as file:
                file.truncate(DISK_BYTES)
            run("mkfs.ext4", "-q", "-F", "-m", "0", str(disk))
        tap = []
        enter = []
        if self.lan is not None:
            mac = f"02:be:e0:00:00:{self.number:02x}"
            tap = [f"vec0:transport=tap,ifname={self.lan.add_tap(self.number)},depth=128,gro=1,mac={mac}"]
            enter = [f"--net=/run/netns/{self.lan.outside}"]
        log = self.console.open("ab")
        self.process = subprocess.Popen(
            [
                *(["nsenter", *enter] if enter else []),
                *("setpriv", "--pdeathsig", "KILL"),  # it does not outlive whoever booted it
                *(
                    "linux.uml",
                    f"mem={self.memory}",
                    "rootfstype=hostfs",
                    "rootflags=/",
                    "ro",
                    f"init={HERE / 'uml_init'}",
                ),
                *("con=null", "con0=fd:0,fd:1", "quiet", f"umid={self.name}", f"uml_dir={self.directory}/"),
                *(f"ubd0={disk}", "noreboot", "panic=1", "systemd.show_status=0", f"UML_DIR={self.share}", *tap),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # so that all of its processes can be found and killed together
            env={**os.environ, "TMPDIR": str(self.directory)},
        )
        log.close()

    def power_cut(self) -> None:
        """Kill the kernel and all it has, at once."""
        process, self.process = self.process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
        while _processes_of_session(process.pid):
            time.sleep(0.01)  # they are being killed: what still runs could still send

    def finish(self, timeout_s: float) -> int:
        """Wait for the end of the command that it was booted for; gives its exit code.

        Raises:
            UmlError: it takes longer, or the kernel ended without it.
        """
        process = self.process
        assert process is not None, f"{self.name} is off"
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise UmlError(f"{self.name} is not done within {timeout_s:.0f} s:\n{self.tail()}") from None
        finally:
            self.power_cut()
        status = self.share / "status"
        if not status.exists():
            raise UmlError(f"{self.name} ended before its command did:\n{self.tail()}")
        return int(status.read_text())

    def remove(self) -> None:
        """Switch it off and remove all that was made for it."""
        self.power_cut()
        shutil.rmtree(self.directory, ignore_errors=True)

    def tail(self, n_lines: int = 40) -> str:
        """The end of what its console has shown."""
        text = self.console.read_text(errors="replace") if self.console.exists() else ""
        return "\n".join(f"  {self.name}| {line}" for line in text.splitlines()[-n_lines:])

    # --- commands ---------------------------------------------------------------------------------------------------

    def wait_until_up(self, timeout_s: float = BOOT_TIMEOUT_S) -> None:
        """Wait until it takes commands.

        Raises:
            UmlError: it does not within the time, or the kernel has ended.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            with contextlib.suppress(OSError):
                self.run("true", timeout_s=5)
                return
            if self.process is None or self.process.poll() is not None:
                raise UmlError(f"{self.name} is off:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise UmlError(f"{self.name} takes no commands after {timeout_s:.0f} s:\n{self.tail()}")
            time.sleep(0.1)

    def connect(self, path: str) -> socket.socket:
        """A connection to a unix socket inside.

        Raises:
            OSError: the host does not answer, or nobody listens there.
        """
        connection = self._dial(60.0)
        try:
            connection.sendall(json.dumps({"connect": path}).encode() + b"\n")
            if connection.recv(1) != b"+":
                raise ConnectionRefusedError(f"{self.name}: nobody listens at {path}")
        except BaseException:
            connection.close()
            raise
        return connection

    def run(self, *argv: str, input: str = "", timeout_s: float = 60.0) -> Outcome:  # noqa: A002 - as subprocess names it
        """Run a program inside to its end.

        Raises:
            OSError: the host does not answer.
        """
        with self._dial(timeout_s + 10.0) as connection, connection.makefile("rb") as answers:
            request = {"argv": argv, "input": input, "timeout_s": timeout_s}
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer = answers.readline()
        if not answer.endswith(b"\n"):
            raise ConnectionResetError(f"{self.name} hung up")
        return Outcome(**json.loads(answer))

    def __call__(self, *argv: str, input: str = "", timeout_s: float = 60.0) -> str:  # noqa: A002
        """Run a program inside, expect success, and return what it printed."""
        done = self.run(*argv, input=input, timeout_s=timeout_s)
        if done.returncode != 0:
            raise UmlError(f"{self.name}: {shlex.join(argv)}: exit code {done.returncode}: {done.stderr}{done.stdout}")
        return done.stdout.strip()

    # --- inner ------------------------------------------------------------------------------------------------------

    def _dial(self, timeout_s: float) -> socket.socket:
        assert self.lan is not None, "a host without a LAN takes no commands"
        with self.lan.inside():
            connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.settimeout(min(timeout_s, 5.0))
        try:
            connection.connect((self.address, PORT))
        except BaseException:
            connection.close()
            raise
        connection.settimeout(timeout_s)
        return connection

    def _write_share(self, command: str | None) -> None:
        root = self.share / "root"
        shutil.rmtree(self.share, ignore_errors=True)
        root.mkdir(parents=True)
        channel = f"/usr/bin/env python3 -I -S /opt/beeyard/tree/deploy/uml_channel.py {PORT}"
        (self.share / "command").write_text(command or f"exec {channel}\n")
        lan = self.lan
        config = {
            "uml_hostname": self.name,
            "uml_machine_id": f"{zlib.crc32(self.name.encode()):032x}",
            "uml_modules": "yes" if self.modules else "no",
            "uml_tree": str(HERE.parent),
            "uml_python": sys.base_prefix,
            "uml_systemd": "yes" if self.systemd else "no",
            "uml_address": f"{self.address}/{lan.subnet.prefixlen}" if lan else "",
            "uml_address6": f"{lan.subnet6[10 + self.number]}/{lan.subnet6.prefixlen}" if lan else "",
            "uml_gateway": str(lan.subnet[1]) if lan else "",
        }
        (self.share / "config").write_text("".join(f"{key}={shlex.quote(value)}\n" for key, value in config.items()))
        for path, content in {**(_units(channel) if self.systemd else {}), **self.files}.items():
            target = root / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if content.startswith("-> "):
                target.symlink_to(content.removeprefix("-> "))
            else:
                target.write_text(content)
                target.chmod(0o755 if content.startswith("#!") else 0o644)


def _units(channel: str) -> dict[str, str]:
    """The channel as a unit that starts early, and links that mask what is not wanted."""
    units = {f"etc/systemd/system/{name}": "-> /dev/null" for name in MASKED}
    units["etc/systemd/system/uml-channel.service"] = (
        "[Unit]\nDefaultDependencies=no\n[Service]\nExecStart="
        f"{channel}\nKillMode=process\nRestart=always\nOOMScoreAdjust=-900\n"
    )
    units["etc/systemd/system/sysinit.target.wants/uml-channel.service"] = "-> ../uml-channel.service"
    # Emptying /tmp at boot would take this tree out of sight, if it is there.
    units["etc/tmpfiles.d/tmp.conf"] = "-> /dev/null"
    units["etc/systemd/journald.conf.d/uml.conf"] = "[Journal]\nStorage=volatile\nRuntimeMaxUse=32M\n"
    return units


def _processes_of_session(session: int) -> list[int]:
    """The processes of a session that are still there."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] != "Z":
                    found.append(int(entry.name))
    return found
