"""The commands about gossip: whom they ask, what they say when that cannot be, and what they print."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beeyard.cli import event, force_leave, gossip_metrics, gossip_socket, keys, members, query, rtt
from beeyard.cli.manager_api import ApiError
from beeyard.cli.members import age
from beeyard.discovery.settings import AGENT_SOCKET, MANAGER_SOCKET

Serve = Callable[..., str]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts a daemon that gives one answer, and notes what it was asked (`asked`)."""
    threads: list[threading.Thread] = []
    asked: list[Any] = []

    def start(*lines: object) -> str:
        path = str(tmp_path / f"{len(threads)}.sock")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()

        def answer() -> None:
            with listener, listener.accept()[0] as connection, connection.makefile("rwb") as stream:
                asked.append(json.loads(stream.readline()))
                stream.write(b"".join(x if isinstance(x, bytes) else json.dumps(x).encode() + b"\n" for x in lines))

        threads.append(threading.Thread(target=answer))
        threads[-1].start()
        return path

    start.asked = asked  # type: ignore[attr-defined]
    yield start
    for thread in threads:
        thread.join(10)


MEMBER = {
    "name": "n1",
    "addr": "10.0.0.1:3388",
    "tags": {"role": "agent"},
    "status": "alive",
    "suspected": False,
    "age_s": 3700.0,
    "protocol": {"min": 2, "max": 5, "version": 5},
    "swim_protocol": {"min": 1, "max": 5, "version": 2},
}


def test_long_ids_are_cut_where_people_read_them() -> None:
    tags = {"cluster": "0a6k3f1q" + "x" * 42, "node": "1x8w4bvo0cdz2m9e5sf3k7qpa", "dc": "d" * 40}
    answer = {"me": "n1", "health": 0, "members": [{**MEMBER, "tags": tags}]}
    cut = f"cluster=0a6k3f1q…,node=1x8w4bvo0cdz…,dc={tags['dc']}"
    assert members.listing(answer, detailed=False)[1].split()[-1] == cut
    whole = ",".join(f"{key}={value}" for key, value in tags.items())
    assert members.listing(answer, detailed=True)[1].split()[-1] == whole


def test_members_are_a_table(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    failed = {**MEMBER, "name": "node-two", "status": "failed", "tags": {}, "age_s": 5}
    answer = {"done": {"me": "n1", "health": 2, "members": [MEMBER, failed]}}
    assert members.main(["--socket", serve(answer), "--detailed"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "NAME      ADDRESS        STATUS  SINCE  PROTOCOL           TAGS",
        "n1        10.0.0.1:3388  alive   1h1m   5 (2-5) / 2 (1-5)  role=agent",
        "node-two  10.0.0.1:3388  failed  5s     5 (2-5) / 2 (1-5)  -",
        "",
        "n1, which was asked, is in trouble itself (health 2 of 0 to 7): it may see others late",
    ]
    assert members.main(["--socket", serve(answer), "--status", "left", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["members"] == []


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59.9, "59s"), (60, "1m0s"), (3700, "1h1m"), (86400 * 12 + 3 * 3600, "12d3h")]
)
def test_ages_have_two_places(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_what_is_asked_and_what_is_said(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    done = serve({"done": {}})
    assert event.main(["deploy", "v2", "--coalesce=false", "--socket", done]) == 0
    assert capsys.readouterr().out == "event deploy is on its way\n"
    assert force_leave.main(["n9", "--prune", "--socket", serve({"done": {}})]) == 0
    assert capsys.readouterr().out == "n9 counts as one that left, and is forgotten\n"
    assert rtt.main(["n1", "--socket", serve({"done": {"one": "n1", "other": "n2", "rtt_s": 0.00061}})]) == 0
    assert capsys.readouterr().out == "n1 <-> n2: 0.610 ms (estimated)\n"
    assert serve.asked == [  # type: ignore[attr-defined]
        {"do": "event", "name": "deploy", "payload": "djI=", "coalesce": False},
        {"do": "force-leave", "node": "n9", "prune": True},
        {"do": "rtt", "one": "n1", "other": ""},
    ]


def test_answers_are_shown_as_text_whatever_they_hold(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    answers = ({"ack": "n1"}, {"from": "n1", "payload": "AGHDqf8="}, {"done": {"acks": 1, "responses": 1}})
    assert query.main(["load", "--node", "n1", "--tag", "dc=a.s", "--socket", serve(*answers)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown == ["ack from n1", "response from n1: \\x00aé\\xff", "1 acks, 1 responses"]
    assert query.main(["load", "--json", "--no-ack", "--timeout", "2", "--socket", serve(*answers)]) == 0
    assert json.loads(capsys.readouterr().out) == {"acks": ["n1"], "responses": {"n1": "\\x00aé\\xff"}}
    first, second = serve.asked  # type: ignore[attr-defined]
    assert (first["nodes"], first["tags"], first["ack"], first["timeout_s"]) == (["n1"], {"dc": "a.s"}, True, None)
    assert (second["ack"], second["timeout_s"]) == (False, 2.0)


def test_keys_that_did_not_reach_every_member_are_a_failure(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    part = {"members": 3, "answered": 2, "good": 1, "messages": {"n2": "no room"}, "keys": {}, "primary_keys": {}}
    assert keys.main(["--install", "QUFBQQ==", "--socket", serve({"done": part})]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "installed on 1 of 3 members",
        "1 member has not answered: see `beeyard members`",
        "n2: no room",
    ]
    whole = {**part, "answered": 3, "good": 3, "messages": {}, "keys": {"b": 1, "a": 3}, "primary_keys": {"a": 3}}
    assert keys.main(["--list", "--socket", serve({"done": whole})]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "KEY  KNOWN BY  ENCRYPTS FOR",
        "a    3 of 3    3 of 3",
        "b    1 of 3    0 of 3",
    ]


def test_without_any_key_it_is_said_once_and_how_to_begin(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    silent = "Keyring is empty (encryption not enabled)"
    none = {"members": 3, "answered": 2, "good": 0, "messages": {"n1": silent, "n2": silent}, "keys": {}}
    assert keys.main(["--list", "--socket", serve({"done": none})]) == 1
    missing, said = capsys.readouterr().out.splitlines()
    assert missing == "1 member has not answered: see `beeyard members`"
    assert said.startswith(
        "gossip is not encrypted: nobody who answered has a key (encryption not enabled); to begin, "
    )
    assert said.endswith("have the setting discovery.keyring_file of each daemon name a file with the first key")
    all_of_them = {**none, "members": 2}
    assert keys.main(["--list", "--socket", serve({"done": all_of_them})]) == 0
    assert capsys.readouterr().out.startswith("gossip is not encrypted: none of the 2 members has a key")
    assert keys.main(["--use", "QUFBQQ==", "--socket", serve({"done": all_of_them})]) == 1
    assert "used to encrypt on 0 of 2 members" in capsys.readouterr().out
    some = {**all_of_them, "messages": {"n1": silent}}
    assert keys.main(["--list", "--socket", serve({"done": some})]) == 1
    assert capsys.readouterr().out.splitlines() == [f"n1: {silent}"]
    other = {**none, "messages": {"n1": silent, "n2": "broken"}}
    assert keys.lines("list", other)[1:] == [f"n1: {silent}", "n2: broken"]


def test_an_empty_key_is_asked_about_like_any_other(serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    """It is what a shell makes of a variable that is not set; the daemon says what is wrong with it."""
    assert keys.main(["--remove", "", "--socket", serve({"error": "invalid key"})]) == 1
    assert serve.asked == [{"do": "keys", "action": "remove", "key": ""}]  # type: ignore[attr-defined]
    assert "invalid key" in capsys.readouterr().err


def test_metrics_replace_a_file_as_one_piece(serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "beeyard.prom"
    path.write_text("old")
    assert gossip_metrics.main(["--out", str(path), "--socket", serve({"done": {"text": "a 1\n"}})]) == 0
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("a 1\n", 0o644)
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []
    assert gossip_metrics.main(["--out", str(tmp_path / "no/x"), "--socket", serve({"done": {"text": ""}})]) == 1
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (({"error": "there is no member n9, but n1"},), "beeyard rtt: there is no member n9, but n1\n"),
        ((), "hung up in the middle of its answer"),
        ((b"HTTP/1.1 400 Bad Request\r\n",), "is no daemon that gossips"),
    ],
)
def test_errors_are_told(
    serve: Serve, lines: tuple[object, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rtt.main(["n9", "--socket", serve(*lines)]) == 1
    assert sentence in capsys.readouterr().err


def test_a_host_without_gossip_is_told_what_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sockets are looked for where daemons make them; with several clusters it is asked which one is meant."""
    agent, manager = (str(tmp_path / name) for name in ("gossip.sock", "manager.sock"))
    monkeypatch.setattr(gossip_socket, "SOCKETS", (agent, manager))
    monkeypatch.setattr(gossip_socket, "ANY_SOCKET", str(tmp_path / "*/gossip-*.sock"))
    assert members.main([]) == 1
    assert "no daemon of this host gossips" in capsys.readouterr().err
    with contextlib.ExitStack() as listeners:

        def listen(path: str) -> str:
            Path(path).parent.mkdir(exist_ok=True)
            listener = listeners.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(path)
            listener.listen()
            return path

        first = listen(str(tmp_path / "yard/gossip-agent1.sock"))
        listen(str(tmp_path / "yard/gossip-agent2.sock"))
        assert gossip_socket.find_socket(None) == first  # of one cluster, whose daemons all know the same
        other = listen(str(tmp_path / "other/gossip-agent1.sock"))
        listen(str(tmp_path / "other/gossip-agent2.sock"))
        with pytest.raises(ApiError, match=f"name one with --socket, {other} or {first}$"):
            gossip_socket.find_socket(None)
        listen(manager)
        assert gossip_socket.find_socket(None) == manager
        listen(agent)
        assert gossip_socket.find_socket(None) == agent
    assert gossip_socket.find_socket("unix:///x") == "/x"


def test_a_socket_whose_daemon_is_gone_hides_no_other_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, manager = (str(tmp_path / name) for name in ("gossip.sock", "manager.sock"))
    monkeypatch.setattr(gossip_socket, "SOCKETS", (agent, manager))
    monkeypatch.setattr(gossip_socket, "ANY_SOCKET", str(tmp_path / "*/gossip-*.sock"))
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(agent)
    assert gossip_socket.find_socket(None) == agent  # so that it is told what is wrong with it
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(manager)
        listener.listen()
        assert gossip_socket.find_socket(None) == manager


def test_a_daemon_that_is_gone_or_forbidden_is_told_apart(tmp_path: Path) -> None:
    path = str(tmp_path / "gossip.sock")
    with pytest.raises(ApiError, match="no such file or directory; --socket names another one"):
        gossip_socket.ask_once(path, {"do": "members"})
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
    with pytest.raises(ApiError, match="the daemon that made it does not run"):
        gossip_socket.ask_once(path, {"do": "members"})
    os.chmod(path, 0)
    euid = os.geteuid()
    try:
        if euid == 0:
            os.seteuid(65534)  # nobody: root may everything
        with pytest.raises(ApiError, match="run this as root, or as a member of the socket's group"):
            gossip_socket.ask_once(path, {"do": "members"})
    finally:
        os.seteuid(euid)


def test_commands_ask_where_daemons_listen() -> None:
    """Without a setting, on both sides."""
    assert [f"unix://{path}" for path in gossip_socket.SOCKETS] == [AGENT_SOCKET, MANAGER_SOCKET]
