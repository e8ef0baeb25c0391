"""Everybody who may not in: a clear sentence, and nothing left behind."""

import msgspec
import pytest
import trio

from beeyard.core.model import Link, Node, NodeDescription, Resources
from beeyard.core.resources import GenericResource
from beeyard.core.states import NodeState, Role
from beeyard.core.wire import (
    CaReply,
    CaRequest,
    Heartbeat,
    Hello,
    IdentityReply,
    JoinRequest,
    Refused,
    Resync,
    StatusReport,
)
from beeyard.manager.dispatch import entrance
from beeyard.runtime.host import PeerCertificate
from tests.support.dispatch_world import A_DESCRIPTION, EPOCH_S, Config, a_dispatch_world
from tests.support.memory_database import MemoryDatabase


async def test_ca_is_told_to_anybody(autojump_clock: object) -> None:
    """An agent checks its digest against the token before it says anything of its own."""
    async with a_dispatch_world() as world:
        agent = await world.connect()
        await agent.say(CaRequest())
        certificate_pem = (await agent.hear(CaReply)).ca_certificate_pem
        assert world.host.pki.digest(certificate_pem) == world.authority.join_token(Role.WORKER).split("-")[2]
        assert await agent.frames.receive() is None


async def test_join_makes_a_node_that_is_down_until_its_session(autojump_clock: object) -> None:
    """The certificate names the node and its role; the node's record names the certificate."""
    async with a_dispatch_world() as world:
        answer = await world.ask_to_join(world.authority.join_token(Role.WORKER))
        assert isinstance(answer, IdentityReply)
        certificate = world.host.pki.inspect(answer.certificate_pem)
        node = world.node(answer.node_id)
        assert (certificate.node_id, certificate.role) == (node.id, Role.WORKER)
        assert node.certificate_serial == certificate.serial
        assert node.description.hostname == "yard2"
        assert node.status.state is NodeState.DOWN


@pytest.mark.parametrize("token", ["", "SWMTKN-1-short", "SWMTKN-2-1-" + "a" * 50 + "-" + "b" * 25, "x" * 60_000])
async def test_what_is_no_token_is_refused(autojump_clock: object, token: str) -> None:
    """The sentence says what a token looks like."""
    async with a_dispatch_world() as world:
        refused = await world.ask_to_join(token)
        assert isinstance(refused, Refused)
        assert "not a join token" in refused.reason
        assert not refused.retry
        assert world.store.nodes == {}


async def test_wrong_rotated_and_foreign_tokens_are_refused(autojump_clock: object) -> None:
    """Each with its own sentence, and no node is made."""
    async with a_dispatch_world() as world, a_dispatch_world() as other:
        token = world.authority.join_token(Role.WORKER)
        wrong = token[:-25] + "0" * 25
        foreign = other.authority.join_token(Role.WORKER)
        fresh = await world.authority.rotate_join_token(Role.WORKER)
        for bad, words in ((wrong, "is not valid"), (token, "rotated"), (foreign, "another cluster")):
            refused = await world.ask_to_join(bad)
            assert isinstance(refused, Refused)
            assert words in refused.reason
        assert world.store.nodes == {}
        assert isinstance(await world.ask_to_join(fresh), IdentityReply)


async def test_second_manager_is_refused(autojump_clock: object) -> None:
    """The manager token is for the manager's own host; others learn what to do instead."""
    async with a_dispatch_world() as world:
        token = world.authority.join_token(Role.MANAGER)
        refused = await world.ask_to_join(token, "yard2")
        assert isinstance(refused, Refused)
        assert "one manager" in refused.reason
        assert world.store.nodes == {}

        answer = await world.ask_to_join(token, Config().node_name)
        assert isinstance(answer, IdentityReply)
        assert answer.node_id == world.authority.cluster.manager_node_id
        assert world.node(answer.node_id).spec.role is Role.MANAGER


async def test_managers_own_host_may_join_anew_when_it_is_not_connected(autojump_clock: object) -> None:
    """An agent that lost its disk supersedes its former self; it does not push a living one out."""
    async with a_dispatch_world() as world:
        token = world.authority.join_token(Role.MANAGER)
        first = await world.join("yard1", Role.MANAGER)
        agent = await world.session(first)
        refused = await world.ask_to_join(token, "yard1")
        assert isinstance(refused, Refused)
        assert refused.retry

        await agent.close()
        await trio.sleep(1)
        second = await world.join("yard1", Role.MANAGER)
        assert second.node_id == first.node_id
        assert "superseded" in (await (await world.say_hello(first)).hear_refusal()).reason
        await world.session(second)


async def test_host_that_joins_again_keeps_its_id_if_nobody_has_it(autojump_clock: object) -> None:
    """A removed node comes back as itself; an id that is taken, or the manager's, or none at all, is not given."""
    async with a_dispatch_world() as world:
        token = world.authority.join_token(Role.WORKER)
        old = await world.join()
        for wanted in (old.node_id, world.authority.cluster.manager_node_id, "no id", "../../etc"):
            answer = await world.ask_to_join(token, node_id=wanted)
            assert isinstance(answer, IdentityReply)
            assert answer.node_id != wanted
        await world.remove(Node, old.node_id)
        answer = await world.ask_to_join(token, node_id=old.node_id)
        assert isinstance(answer, IdentityReply)
        assert answer.node_id == old.node_id
        assert "superseded" in (await (await world.say_hello(old)).hear_refusal()).reason


@pytest.mark.parametrize("csr_pem", [b"", b"garbage", b"-----BEGIN CERTIFICATE REQUEST-----\n" + b"A" * 20_000])
async def test_join_with_a_broken_request_leaves_nothing(autojump_clock: object, csr_pem: bytes) -> None:
    """No certificate can be signed, so no node is made."""
    async with a_dispatch_world() as world:
        agent = await world.connect()
        token = world.authority.join_token(Role.WORKER)
        await agent.say(JoinRequest(token=token, csr_pem=csr_pem, hostname="yard2"))
        assert "certificate request" in (await agent.hear_refusal()).reason
        assert world.store.nodes == {}


async def test_join_is_refused_while_the_disk_does_not_work(autojump_clock: object) -> None:
    """Trying again is what helps."""
    database = MemoryDatabase()
    async with a_dispatch_world(database) as world:
        database.fail_when = lambda n: True
        refused = await world.ask_to_join(world.authority.join_token(Role.WORKER))
        assert isinstance(refused, Refused)
        assert refused.retry
        assert world.store.nodes == {}


async def test_join_that_cannot_be_answered_is_withdrawn(autojump_clock: object) -> None:
    """Nobody has the certificate, so the node would be there for ever."""
    async with a_dispatch_world() as world:
        csr_pem, _ = world.host.pki.new_request()
        agent = await world.connect(lockstep=True)
        await agent.say(JoinRequest(token=world.authority.join_token(Role.WORKER), csr_pem=csr_pem, hostname="yard2"))
        await trio.sleep(1)
        assert len(world.store.nodes) == 1
        await agent.close()
        await trio.sleep(3)
        assert world.store.nodes == {}


async def test_session_without_a_certificate_is_refused(autojump_clock: object) -> None:
    """A token first."""
    async with a_dispatch_world() as world:
        assert "join first" in (await (await world.say_hello(None)).hear_refusal()).reason


async def test_session_with_an_unknown_superseded_or_expired_certificate_is_refused(autojump_clock: object) -> None:
    """The store knows which certificates are in force."""
    async with a_dispatch_world() as world:
        good = await world.join()
        before = world.node(good.node_id)
        replace = msgspec.structs.replace
        for bad, words in (
            (replace(good, node_id="0" * 25), "not in this cluster"),
            (replace(good, serial="abc"), "superseded"),
            (replace(good, not_after_s=EPOCH_S - 1), "has expired"),
            (replace(good, role=Role.MANAGER), "says manager, but the node is a worker"),
        ):
            refused = await (await world.say_hello(bad)).hear_refusal()
            assert words in refused.reason
            assert not refused.retry
        assert world.store.nodes == {good.node_id: before}


async def test_other_version_of_the_protocol_is_refused(autojump_clock: object) -> None:
    """Both versions are named."""
    async with a_dispatch_world() as world:
        agent = await world.connect(await world.join())
        await agent.say(Hello(protocol_version=7, description=A_DESCRIPTION))
        refused = await agent.hear_refusal()
        assert "version 7 of the protocol, this manager version 1" in refused.reason
        assert (refused.retry, refused.pause_s) == (True, 60.0), "it comes back when a person has put this right"


async def test_description_that_would_break_the_books_is_refused(autojump_clock: object) -> None:
    """Quantities are sums of int64 columns later."""
    async with a_dispatch_world() as world:
        peer = await world.join()
        for resources in (Resources(cpu_nano=-1), Resources(memory_bytes=1 << 62)):
            agent = await world.say_hello(peer, NodeDescription(hostname="yard2", resources=resources))
            assert "cannot be" in (await agent.hear_refusal()).reason
        assert world.node(peer.node_id).status.state is NodeState.DOWN


def a_generic(*resources: GenericResource) -> NodeDescription:
    return NodeDescription(resources=Resources(generic=resources))


@pytest.mark.parametrize(
    ("description", "words"),
    [
        (NodeDescription(hostname="h" * 254), "254 characters, more than 253"),
        (
            NodeDescription(hostname="yard2\x1b[2J\n"),
            r"this node cannot be called 'yard2\x1b[2J\n': a name has at most 255",
        ),
        (NodeDescription(reserved=Resources(cpu_nano=-1)), "-1 for CPU that it keeps, in 1e-9 cores, which cannot be"),
        (a_generic(GenericResource(kind="gpu", value=0)), "0 of generic resource gpu are not between 1 and"),
        (a_generic(GenericResource(kind="gpu", value=(1 << 53) + 1)), "of generic resource gpu are not between 1 and"),
        (a_generic(GenericResource(kind="g\x1b", value=1)), r"generic resource 'g\x1b': a kind begins with a letter"),
        (
            a_generic(GenericResource(kind="b", value=1), GenericResource(kind="a", value=1)),
            "generic resources b, a are not one of each kind, in order",
        ),
        (a_generic(*[GenericResource(kind="a", value=1)] * 2), "a, a are not one of each kind"),
        (a_generic(GenericResource(kind="a", names=("x", "x"))), "names of generic resource a are not all different"),
        (a_generic(GenericResource(kind="a", names=("",))), "names of generic resource a are not all different"),
        (NodeDescription(engine_labels={"a": "x" * (256 << 10)}), "bytes, more than 262144"),
        (NodeDescription(links=tuple(Link(name=f"eth{i}", mac="02:00:00:00:00:01") for i in range(10_000))), "bytes"),
        (
            NodeDescription(
                links=(Link(name="eth0", addresses=tuple(f"10.77.{i % 8}.{i // 8}/24" for i in range(1025))),)
            ),
            "1025 addresses, more than 1024",
        ),
    ],
)
async def test_description_without_bounds_is_refused(
    autojump_clock: object, description: NodeDescription, words: str
) -> None:
    """It would fill the store, or take the addresses of every pool."""
    async with a_dispatch_world() as world:
        peer = await world.join()
        refused = await (await world.say_hello(peer, description)).hear_refusal()
        assert words in refused.reason
        assert (refused.retry, refused.pause_s) == (True, 60.0)
        assert world.node(peer.node_id).status.state is NodeState.DOWN


@pytest.mark.parametrize("message", [Heartbeat(number=1), Resync(last_seen=0), StatusReport(number=1, reports=())])
async def test_connection_that_begins_with_another_message_is_refused(autojump_clock: object, message: object) -> None:
    """It is named."""
    async with a_dispatch_world() as world:
        agent = await world.connect(await world.join())
        await agent.say(message)
        assert type(message).__name__ in (await agent.hear_refusal()).reason


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "over the limit"),
        (b"\xff\xff\xff\xff", "over the limit"),
        ((64 << 10).to_bytes(4, "big") + b"x" * (64 << 10), "not a message"),
        (((64 << 10) + 1).to_bytes(4, "big"), "over the limit of 65536"),
        (b"\0\0\0\4abcd", "not a message"),
        (b"\0\0\0\0", "not a message"),
        (b"\0\0\0\x0a\x91\xa9unknown/1", "not a message"),
    ],
)
async def test_garbage_is_refused(autojump_clock: object, data: bytes, words: str) -> None:
    """Whatever it is, within what a stranger may send."""
    async with a_dispatch_world() as world:
        agent = await world.connect()
        await agent.stream.send_all(data)
        assert words in (await agent.hear_refusal()).reason


async def test_garbage_in_a_session_ends_it_with_a_reason(autojump_clock: object) -> None:
    """Also a message that has no place there."""
    async with a_dispatch_world() as world:
        peer = await world.join()
        agent = await world.session(peer)
        await agent.stream.send_all(b"\0\0\0\4abcd")
        assert "not a message" in (await agent.hear_refusal()).reason
        agent = await world.session(peer)
        await agent.say(CaRequest())
        assert "CaRequest has no place in a session" in (await agent.hear_refusal()).reason


async def test_silent_connection_is_closed_after_ten_seconds(autojump_clock: object) -> None:
    """With a reason for whoever may be listening."""
    async with a_dispatch_world() as world:
        agent = await world.connect()
        await trio.sleep(9.5)
        assert "no message within 10 s" in (await agent.hear_refusal()).reason


async def test_half_a_message_is_no_message(autojump_clock: object) -> None:
    """Drops of a frame do not keep a connection."""
    async with a_dispatch_world() as world:
        agent = await world.connect()
        started_s = trio.current_time()
        for byte in (0, 0, 0, 9, 1):
            await agent.stream.send_all(bytes([byte]))
            await trio.sleep(1.9)
        assert "no message within" in (await agent.hear_refusal()).reason
        assert trio.current_time() - started_s < 11


async def test_strangers_are_bounded(autojump_clock: object) -> None:
    """More than a thousand silent connections: the next is refused, and may try again."""
    async with a_dispatch_world() as world:
        strangers = [await world.connect() for _ in range(1024)]
        await trio.sleep(1)
        refused = await (await world.connect()).hear_refusal()
        assert refused.retry
        assert "too many" in refused.reason
        for stranger in strangers:
            await stranger.close()
        await trio.sleep(1)
        assert isinstance(await world.ask_to_join(world.authority.join_token(Role.WORKER)), IdentityReply)


async def test_refused_session_costs_the_standing_one_nothing(autojump_clock: object) -> None:
    """Somebody with a superseded certificate cannot push a node out."""
    async with a_dispatch_world() as world:
        peer = await world.join()
        agent = await world.session(peer)
        impostor = PeerCertificate(node_id=peer.node_id, role=peer.role, serial="1", not_after_s=peer.not_after_s)
        await (await world.say_hello(impostor)).hear_refusal()
        assert world.dispatcher.is_connected(peer.node_id)
        await agent.hear_nothing()


async def test_strangers_keep_no_member_out(autojump_clock: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as may be at once, without a certificate and silent: the next of their kind is refused, a member is not."""
    monkeypatch.setattr(entrance, "STRANGERS_MAX", 3)
    async with a_dispatch_world() as world:
        peer = await world.join()
        for _ in range(3):
            await world.connect()
        await trio.testing.wait_all_tasks_blocked()
        refused = await world.ask_to_join(world.authority.join_token(Role.WORKER))
        assert isinstance(refused, Refused)
        assert (refused.reason, refused.retry) == ("too many connections at once", True)
        await world.session(peer)
