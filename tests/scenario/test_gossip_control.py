"""The control socket of a member, and what the commands make of its answers."""

from __future__ import annotations

import argparse
import base64
import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from beeyard.cli import keys, members, query
from beeyard.discovery.gossip.control import Control, offer_control
from beeyard.discovery.gossip.metrics import unnamed
from beeyard.discovery.gossip.serf.event import QueryAsked, UserEventCame
from beeyard.discovery.settings import AGENT_SOCKET
from beeyard.runtime.host import Connection, Host
from tests.support.node_world import NodeWorld, node_world

OLD, NEW = bytes(range(32)), bytes(range(1, 33))


class Commands:
    """Commands on the machine of n1, whose member has a control socket."""

    def __init__(self, gossip: NodeWorld) -> None:
        self.gossip = gossip
        self._host: Host

    async def begin(self) -> None:
        ready: list[Host] = []

        async def daemon(host: Host) -> None:
            async with trio.open_nursery() as nursery:
                await nursery.start(offer_control, host.net, self.gossip.nodes["n1"], AGENT_SOCKET)
                ready.append(host)

        self.gossip.world.start("control", daemon, machine="n1")
        await self.gossip.until(lambda: bool(ready))
        self._host = ready[0]

    async def raw(self, data: bytes) -> list[Any]:
        """The lines that come back."""
        connection = await self._host.net.dial(AGENT_SOCKET)
        await connection.stream.send_all(data)
        received = b""
        with trio.fail_after(60):
            while piece := await connection.stream.receive_some():
                received += piece
        await connection.stream.aclose()
        return [json.loads(line) for line in received.splitlines()]

    async def ask(self, do: str, **fields: object) -> list[Any]:
        return await self.raw(json.dumps({"do": do, **fields}).encode() + b"\n")

    async def done(self, do: str, **fields: object) -> Any:
        *_, last = await self.ask(do, **fields)
        assert "done" in last, last
        return last["done"]

    async def error(self, do: str, **fields: object) -> str:
        (answer,) = await self.ask(do, **fields)
        error: str = answer["error"]
        return error


async def a_cluster(gossip: NodeWorld, n_members: int = 3, **config: Any) -> Commands:
    await gossip.start_all(n_members, **config)
    commands = Commands(gossip)
    await commands.begin()
    return commands


def shown(answer: Any, *arguments: str) -> list[str]:
    options = members._parser().parse_args(list(arguments))
    wanted = members.selection(options)
    chosen = {**answer, "members": [member for member in answer["members"] if wanted(member)]}
    return members.listing(chosen, detailed=options.detailed)


async def test_members_are_listed_with_their_age(autojump_clock: MockClock) -> None:
    """A table, or what `serf members -format json` gives and more; filters choose."""
    async with node_world() as gossip:
        commands = await a_cluster(gossip, tags={"dc": "ams", "role": "agent"})
        await trio.sleep(75)
        gossip.world.power_cut("n3")
        await gossip.until(lambda: gossip.nodes["n1"].is_suspect("n3"))
        answer = await commands.done("members")
        assert (answer["me"], answer["health"] in range(3)) == ("n1", True)
        assert [(m["name"], m["status"], m["suspected"]) for m in answer["members"]] == [
            ("n1", "alive", False),
            ("n2", "alive", False),
            ("n3", "alive", True),
        ]
        assert answer["members"][0]["port"] == 7946
        assert answer["members"][0]["protocol"] == {"min": 2, "max": 5, "version": 5}
        lines = shown({**answer, "health": 0})
        assert lines[0].split() == ["NAME", "ADDRESS", "STATUS", "SINCE", "TAGS"]
        assert lines[1].split()[2::2] == ["alive", "dc=ams,role=agent"]
        assert lines[1].split()[3].startswith("1m")
        assert "alive, suspected" in lines[3]
        await gossip.agree({"n1": "alive", "n2": "alive", "n3": "failed"})
        answer = await commands.done("members")
        assert len(shown(answer, "--status", "failed")) >= 2
        assert [line.split()[0] for line in shown({**answer, "health": 0}, "--status", "left|failed")[1:]] == ["n3"]
        assert (
            len(shown({**answer, "health": 0}, "--tag", "dc=a..", "--tag", "role=agent|manager", "--name", "n[12]"))
            == 3
        )
        assert len(shown({**answer, "health": 0}, "--tag", "dc=a", "--detailed")) == 1


async def test_an_event_reaches_all_with_its_bytes(autojump_clock: MockClock) -> None:
    async with node_world() as gossip:
        commands = await a_cluster(gossip)
        payload = base64.b64encode(b"\x00\xffv2").decode()
        assert await commands.done("event", name="deploy", payload=payload, coalesce=False) == {}
        await trio.sleep(2)
        came = [(name, e) for name, e in gossip.events if isinstance(e, UserEventCame)]
        assert sorted(name for name, _ in came) == ["n1", "n2", "n3"]
        assert {(e.name, e.payload, e.coalesce) for _, e in came} == {("deploy", b"\x00\xffv2", False)}
        assert "512" in await commands.error("event", name="deploy", payload=base64.b64encode(bytes(600)).decode())


async def test_a_question_streams_what_is_answered(autojump_clock: MockClock) -> None:
    async with node_world() as gossip:
        commands = await a_cluster(gossip)

        async def answer() -> None:
            for name in ("n2", "n3"):
                asked = [e for who, e in gossip.events if who == name and isinstance(e, QueryAsked)]
                if asked:
                    gossip.nodes[name].answer(asked[0].query_id, f"load of {name}".encode())

        async with trio.open_nursery() as nursery:

            async def later() -> None:
                await trio.sleep(1)
                await answer()

            nursery.start_soon(later)
            lines = await commands.ask("query", name="load", nodes=["n2", "n3"], timeout_s=3.0)
        assert sorted(line["ack"] for line in lines if "ack" in line) == ["n2", "n3"]
        assert query.collected(lines)["responses"] == {"n2": "load of n2", "n3": "load of n3"}
        assert list(query.lines(lines))[-1] == "2 acks, 2 responses"
        assert lines[-1] == {"done": {"acks": 2, "responses": 2}}
        lines = await commands.ask("query", name="load", tags={"dc": "nowhere"}, ack=False, timeout_s=1.0)
        assert lines == [{"done": {"acks": 0, "responses": 0}}]
        assert await commands.error("query", name="load", nodes=["n9"]) == "there is no member n9, but n1, n2, n3"


async def test_keys_are_rotated_with_a_result_for_each_member(autojump_clock: MockClock) -> None:
    async with node_world() as gossip:
        commands = await a_cluster(gossip, keys=(OLD,))
        old, new = (base64.b64encode(key).decode() for key in (OLD, NEW))
        done = await commands.done("keys", action="install", key=new)
        assert (done["good"], done["members"], done["messages"]) == (3, 3, {})
        assert keys.lines("install", done) == ["installed on 3 of 3 members"]
        assert (await commands.done("keys", action="use", key=new))["good"] == 3
        listed = await commands.done("keys", action="list")
        assert listed["keys"] == {old: 3, new: 3}
        table = keys.lines("list", listed)
        assert [line.split()[0] for line in table] == ["KEY", *sorted((old, new))]
        assert table[1 + sorted((old, new)).index(new)].endswith("3 of 3")
        assert (await commands.done("keys", action="remove", key=old))["good"] == 3
        refused = await commands.done("keys", action="remove", key=new)
        assert (refused["good"], sorted(refused["messages"])) == (0, ["n1", "n2", "n3"])
        gossip.world.power_cut("n3")
        await trio.sleep(0.1)
        partly = await commands.done("keys", action="list")
        assert (partly["answered"], partly["members"]) == (2, 3)
        assert keys.lines("list", partly)[-1] == "1 member has not answered: see `beeyard members`"
        for key, sentence in (("AAAA", "16, 24 or 32"), ("no base64", "no base64")):
            assert sentence in await commands.error("keys", action="install", key=key)
        assert "none of list, install, use, remove" in await commands.error("keys", action="eat")


async def test_keys_of_a_cluster_without_any_say_so(autojump_clock: MockClock) -> None:
    async with node_world() as gossip:
        commands = await a_cluster(gossip, 2)
        listed = await commands.done("keys", action="list")
        assert listed["good"] == 0
        assert "encryption not enabled" in keys.lines("list", listed)[-1]


async def test_round_trip_times_are_those_of_coordinates(autojump_clock: MockClock) -> None:
    async with node_world() as gossip:
        commands = await a_cluster(gossip)
        await trio.sleep(30)
        answer = await commands.done("rtt", one="n2")
        assert (answer["one"], answer["other"]) == ("n2", "n1")
        assert 0 < answer["rtt_s"] < 0.5
        assert answer["rtt_s"] == gossip.nodes["n1"].rtt_s("n2", "n1")
        assert await commands.error("rtt", one="m2", other="n1") == "there is no member m2, but n2, …"


async def test_a_place_that_is_not_known_yet_is_named(autojump_clock: MockClock) -> None:
    async with node_world() as gossip:
        commands = await a_cluster(gossip, 2)
        assert gossip.nodes["n1"].coordinate("n2") is None
        assert (await commands.error("rtt", one="n2")).startswith("where n2 is is not known yet")


async def test_a_failed_member_is_made_to_have_left(autojump_clock: MockClock) -> None:
    async with node_world() as gossip:
        commands = await a_cluster(gossip)
        assert "n3 is alive: only one that failed" in await commands.error("force-leave", node="n3")
        gossip.world.power_cut("n3")
        await gossip.agree({"n1": "alive", "n2": "alive", "n3": "failed"})
        assert await commands.done("force-leave", node="n3") == {}
        await gossip.agree({"n1": "alive", "n2": "alive", "n3": "left"})
        assert await commands.done("force-leave", node="n3", prune=True) == {}
        await gossip.agree({"n1": "alive", "n2": "alive"})
        assert "there is no member n3" in await commands.error("force-leave", node="n3")


async def test_metrics_show_all_figures(autojump_clock: MockClock) -> None:
    """Each name once, with its type; counters end in _total; the histogram's last bucket is its count."""
    async with node_world() as gossip:
        commands = await a_cluster(gossip)
        await trio.sleep(30)
        text = (await commands.done("metrics"))["text"]
        assert unnamed(gossip.nodes["n1"].figures()) == []
        types = [line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE")]
        assert len({name for name, _ in types}) == len(types) > 15
        assert all(name.endswith("_total") is (kind == "counter") for name, kind in types)
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        assert values['beeyard_gossip_members{member="n1",status="alive"}'] == "3"
        assert int(values['beeyard_gossip_probes_total{member="n1"}']) > 20
        assert float(values['beeyard_gossip_timer_lateness_max_seconds{member="n1"}']) < 1.0
        assert int(values['beeyard_gossip_packet_bytes_total{member="n1",direction="sent"}']) > 1000
        n_probed = values['beeyard_gossip_probe_rtt_seconds_count{member="n1"}']
        assert values['beeyard_gossip_probe_rtt_seconds_bucket{member="n1",le="+Inf"}'] == n_probed != "0"
        buckets = [int(value) for name, value in values.items() if "_bucket{" in name]
        assert buckets == sorted(buckets)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"hello\n", "cannot be read"),
        (b'{"do": "eat"}\n', "cannot be read"),
        (b'{"do": "members", "more": 1}\n', "cannot be read"),
        (b'{"do": "rtt", "one": 5}\n', "cannot be read"),
        (b"x" * 70_000, "more than 65536 bytes"),
    ],
)
async def test_what_is_no_request_gets_a_sentence(autojump_clock: MockClock, data: bytes, sentence: str) -> None:
    async with node_world() as gossip:
        commands = await a_cluster(gossip, 1)
        (answer,) = await commands.raw(data)
        assert sentence in answer["error"]
        assert (await commands.done("members"))["me"] == "n1"


async def test_whoever_says_nothing_or_leaves_is_let_go(autojump_clock: MockClock) -> None:
    """After ten seconds, and without harm to others, however many they are."""
    async with node_world() as gossip:
        await gossip.start_all(1)
        control = Control(gossip.nodes["n1"])

        async def silent() -> float:
            ours, theirs = trio.testing.memory_stream_pair()
            began_s = trio.current_time()
            await control.handle(Connection(stream=theirs, remote="unix:"))
            await ours.aclose()
            return trio.current_time() - began_s

        took_s: list[float] = []

        async def note() -> None:
            took_s.append(await silent())

        async with trio.open_nursery() as nursery:
            for _ in range(40):
                nursery.start_soon(note)
        assert sorted(map(round, took_s)) == [0] * 8 + [10] * 32
        ours, theirs = trio.testing.memory_stream_pair()
        await ours.send_all(b'{"do": "query", "name": "x", "timeout_s": 5}\n')
        await ours.aclose()
        await control.handle(Connection(stream=theirs, remote="unix:"))


def test_expressions_that_are_none_are_named() -> None:
    from beeyard.cli.manager_api import ApiError

    for arguments, sentence in ((["--name", "("], "no regular expression"), (["--tag", "dc"], "is not KEY=EXPRESSION")):
        with pytest.raises(ApiError, match=sentence):
            members.selection(members._parser().parse_args(arguments))
    with pytest.raises(ApiError, match="between 0 and 3600"):
        query.request(argparse.Namespace(tag=[], timeout=-1.0, relay_factor=0))
