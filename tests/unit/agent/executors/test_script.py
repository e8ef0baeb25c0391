"""The form in which a shim gets its order, and what the program that reads it makes of a broken one.

`beeyard-shim --check` does nothing of what an order says. It is the same program that holds tasks, built with the sanitizers
of the C compiler where the kernel's tests run with run-time checks.
"""

from __future__ import annotations

import json
import random
import struct
import subprocess
import tempfile
from pathlib import Path

import pytest

from beeyard.agent.executors.process import cgroups, task_script, view
from beeyard.agent.executors.process.launch import LaunchError, User, candidates
from beeyard.agent.executors.process.order import Bind, Order, Places
from beeyard.agent.executors.process.script import MAGIC, encode, pack, step, write
from beeyard.agent.executors.process.task_script import script_of
from beeyard.agent.executors.process.zygote_client import PROGRAM


def an_order(directory: Path, **changes: object) -> Order:
    """A task with a little of everything."""
    (directory / "state").mkdir(exist_ok=True)
    return Order(
        task_id="t" * 25,
        places=Places(f"{directory}/state", f"{directory}/log", "beeyard/test"),
        task=b"\x81\xa1a\x00\xff",
        argv=("sh", "-c", "echo é"),
        env={"A": "1", "B": "x=y"},
        unset=("HOSTNAME",),
        user="",
        dir="",
        hostname="web1",
        own_netns=True,
        stop_signal="TERM",
        grace_s=10.0,
        limits=cgroups.Limits(),
        lease_s=float("inf"),
        fence=True,
        hidden=("/run/beeyard",),
        sysctls={"net.ipv4.ip_forward": "1"},
        binds=(Bind("/srv/data", "/mnt", read_only=True),),
        devices=("/dev/kvm",),
        log_bytes_max=1000,
    )._replace(**changes)


def understood(order: bytes) -> tuple[int, str]:
    """What the program says of it, and its exit code."""
    done = subprocess.run([PROGRAM, "--check"], input=order, capture_output=True, timeout=30, check=False)
    assert done.stderr == b""
    return done.returncode, done.stdout.decode().strip()


def test_a_task_is_understood_whole(tmp_path: Path) -> None:
    """Python's steps are those that the program knows, and the order in which they are done is the program's."""
    script = script_of(an_order(tmp_path), User(1000, 1000, (4, 5)))
    code, said = understood(script)
    assert (code, said.partition(" records")[2].split(", ")[-1]) == (0, "5 bytes of blob")


def test_tasks_of_one_service_get_what_each_would_get_alone(tmp_path: Path) -> None:
    """Also where their spec has the words in it by which a template knows its holes, or what no template can hold."""
    user = User(1000, 1000)
    services = [
        {"argv": ("echo", word), "env": {"W": word}, "hostname": name}
        for word in ("a", "<task id>", "<host name>", "a\ufffd")
        for name in ("web", "<task id>", "é")
    ]
    for service in services:
        orders = [an_order(tmp_path, **service)._replace(task_id=letter * 25) for letter in "xyz"]
        scripts = [script_of(order, user) for order in orders]
        for order, script in zip(orders, scripts, strict=True):
            task_script._template.cache_clear()
            assert script == script_of(order, user)
            plain = task_script._steps(order, user, view.covered(order))
            assert script == pack(encode(plain), order.task)
    for hostname in ("a\0b", "\ud800"):
        with pytest.raises(LaunchError, match=r"a zero byte|a character that is none"):
            script_of(an_order(tmp_path, hostname=hostname), user)


def test_what_a_host_hides_is_looked_at_for_each_task() -> None:
    """It may have closed a directory since the service's last task."""
    with tempfile.TemporaryDirectory() as name:  # below a directory that everybody may search
        directory = Path(name)
        directory.chmod(0o755)
        order = an_order(directory)
        before = script_of(order, User(1000, 1000))
        directory.chmod(0o700)
        after = script_of(order, User(1000, 1000))
    cover = f"\0cover\0{name}\0".encode()
    assert (cover in before, cover in after) == (False, True)


def test_root_and_the_hosts_network_are_understood(tmp_path: Path) -> None:
    order = an_order(tmp_path, own_netns=False, argv=("/bin/true",), limits=cgroups.Limits())
    assert understood(script_of(order, User(0, 0)))[0] == 0


def test_output_that_nobody_wants_has_no_file(tmp_path: Path) -> None:
    log = f"{tmp_path}/log/{'t' * 25}.log".encode()
    kept = [log in script_of(an_order(tmp_path, keeps_output=keeps), User(0, 0)) for keeps in (True, False)]
    assert kept == [True, False]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"argv": ()}, "image host needs a command to run"),
        ({"argv": ("a\0b",)}, "a zero byte is in 'a\\x00b'"),
        ({"env": {"A": "\0"}}, "a zero byte is in 'A=\\x00'"),
        ({"argv": ("\ud800",)}, "a character that is none is in '\\ud800'"),
        ({"argv": ("x" * (17 << 20),)}, "at most 16777216 are possible"),
        ({"lease_s": float("nan")}, "a lease of nan s is none"),
        ({"grace_s": float("nan")}, "a grace of nan s is none"),
    ],
)
def test_what_no_program_can_be_given_is_said(tmp_path: Path, changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(LaunchError) as caught:
        script_of(an_order(tmp_path, **changes), User(1, 1))
    assert sentence in str(caught.value)


def test_bytes_that_are_no_text_go_through(tmp_path: Path) -> None:
    """Names on this host are bytes; Python's spelling of them is undone."""
    assert b"caf\xe9" in script_of(an_order(tmp_path, argv=("caf\udce9",)), User(1, 1))


def test_a_program_is_looked_for_as_execvp_does() -> None:
    assert candidates("sh", "/bin::/usr/bin") == ["/bin/sh", "./sh", "/usr/bin/sh"]
    assert candidates("a/b", "/bin") == ["a/b"]


def raw(body: bytes, *, n_text: int | None = None, n_blob: int = 0, magic: bytes = MAGIC) -> bytes:
    return struct.pack("=8sII", magic, len(body) if n_text is None else n_text, n_blob) + body


@pytest.mark.parametrize(
    ("order", "sentence"),
    [
        (b"", "it has no end"),
        (raw(b"", magic=b"bee-ord0"), "it is of another version of Beeyard than the shim"),
        (raw(b"0\0begin\0", n_text=100), "it has no end"),
        (raw(b"", n_text=0xFFFFFFFF), "too long"),
        (raw(b"", n_blob=0xFFFFFFFF), "too long"),
        (raw(b""), "its text has no end"),
        (raw(b"0\0begin"), "its text has no end"),
        (raw(b"1\0begin\0"), "record 1"),
        (raw(b"9\0mkdir\0"), "record 1"),
        (raw(b"99999999999999999999999\0mkdir\0"), "record 1"),
        (raw(b"-1\0begin\0"), "record 1"),
        (raw(b"0\0nonsense\0"), "record 1"),
        (raw(b"0\0begin\0" + b"2\0mkdir\0/x\0soon\0"), "record 2"),
        (raw(b"0\0begin\0" + b"2\0mkdir\0/x\0" + b"18446744073709551616\0"), "record 2"),
        (raw(b"0\0begin\0"), "0 records task"),
        (pack(encode([("begin",)] * 70000)), "0 records task"),
    ],
)
def test_what_is_no_order_is_refused(order: bytes, sentence: str) -> None:
    """Nothing of it is believed before all of it was looked at."""
    code, said = understood(order)
    assert code == 1
    assert sentence in said


def test_a_group_that_is_no_number_is_refused(tmp_path: Path) -> None:
    """It would be taken for 0, the group of root."""
    script = script_of(an_order(tmp_path), User(1000, 1000, (4, 5)))
    code, said = understood(script.replace(b"\x004\x005\x00", b"\x004\x00x\x00"))
    assert code == 1
    assert "malformed order: record" in said


def test_an_order_that_was_damaged_does_no_harm(tmp_path: Path) -> None:
    """Whatever became of it on the way, the program says something and ends; here 150 ways, drawn from a seed."""
    whole = script_of(an_order(tmp_path), User(0, 0, (1, 2)))
    draw = random.Random(20)
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(draw.randrange(1, 6)):
            at = draw.randrange(len(damaged))
            match draw.randrange(3):
                case 0:
                    damaged[at] = draw.choice(b"\x00\xff019-")
                case 1:
                    del damaged[at : at + draw.randrange(1, 40)]
                case 2:
                    damaged[at:at] = draw.choice((b"\0", b"\0" * 50, b"9" * 30, b"1\0begin\0"))
        code, said = understood(bytes(damaged))
        assert code in (0, 1), damaged
        assert said, damaged


REQUESTS = (
    (b'{"op": "status"}', "0 0 0"),
    (b' {"op":"wait","later":null, "more": -1.5e3}', "2 0 0"),
    (b'{"op": "stop", "links_first": true}', "3 1 0"),
    (b'{"op": "lease", "remaining_s": 1.5}', "5 0 1500000000"),
    (b'{"op": "lease", "remaining_s": -2}', "5 0 1"),
    (b'{"op": "lease", "remaining_s": Infinity}', "5 0 3200000000000000000"),
    (b'{"op": "lease", "remaining_s": 1e300}', "5 0 3200000000000000000"),
    (b'{"op": "start", "patience_s": 0.01}', "1 0 0"),
    (b'{"op": "start", "patience_s": "long"}', "malformed request: patience_s has to be seconds"),
    (b'{"op": "dance"}', "unknown request dance"),
    (b'{"op": "lease", "remaining_s": NaN}', "malformed request: remaining_s has to be seconds"),
    (b'{"op": "lease", "remaining_s": "5"}', "malformed request: remaining_s has to be seconds"),
    (b'{"op": "stop", "links_first": 1}', "malformed request: links_first has to be true or false"),
    (b'{"op": ["status"]}', "malformed request: op is no plain value"),
    (b'{"op": "status"', "malformed request: it has no end"),
    (b'{"op": "status"} {', "malformed request: there is more behind its end"),
    (b'{"op": "status" "a"}', "malformed request: it has no end"),
    (b'{"op": "sta\\"tus', "malformed request: op is no plain value"),
    (b"{}", "malformed request: it has no op"),
    (b"[]", "malformed request: it is no object"),
    (b'{"op": "a\xff\xc3(\xe2\x82\xac"}', "unknown request a��(€"),
    (b'{"op": "a\0b"}', "malformed request: there is a zero byte in it"),
)


def answers(lines: list[bytes]) -> list[str]:
    done = subprocess.run(
        [PROGRAM, "--check-requests"], input=b"\n".join(lines), capture_output=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    said = done.stdout.decode().splitlines()
    return [json.loads(line) if line.startswith('"') else line for line in said]


def test_requests_are_read_as_agents_write_them() -> None:
    """Small as its knowledge of JSON is, what it does not know is refused with a reason."""
    assert answers([line for line, _ in REQUESTS]) == [expected for _, expected in REQUESTS]


def test_a_request_that_was_damaged_does_no_harm() -> None:
    """Each of 5,000 is understood or refused."""
    draw = random.Random(21)
    lines = []
    for _ in range(5000):
        line = bytearray(draw.choice(REQUESTS)[0])
        for _ in range(draw.randrange(1, 4)):
            at = draw.randrange(len(line) + 1)
            line[at : at + draw.randrange(2)] = draw.choice(
                (b'"', b"\\", b"{", b"}", b":", b",", b"\xff", b"\0", b"x" * 90)
            )
        lines.append(bytes(line).replace(b"\n", b" "))
    assert len(answers(lines)) == 5000


def test_a_step_says_what_failed() -> None:
    assert write("/proc/x", "1") == ("write", "/proc/x", "1", "0", "cannot write '1' to /proc/x")
    assert step("mkdir", "/a", 0o700) == ("mkdir", "/a", "448")
