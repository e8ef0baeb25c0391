"""How a node becomes a member: with a token of the right cluster, and without a trace when it is refused."""

from __future__ import annotations

import msgspec
import pytest
import trio

from beeyard.agent import daemon
from beeyard.agent.identity import Identity
from beeyard.agent.session import back_off
from beeyard.core.errors import ClusterError, DiskError, InvalidSpec, PeerRefused
from beeyard.core.states import TaskState
from beeyard.core.wire import CaReply, CaRequest, Hello, IdentityReply, JoinRequest, Refused
from beeyard.runtime.host import Credentials
from tests.support.agent_machine import STATE_DIR, Machine
from tests.support.agent_tasks import an_assigned
from tests.support.scripted_manager import MANAGER, Peer


@pytest.fixture
def machine() -> Machine:
    return Machine()


async def answer_ca(machine: Machine) -> None:
    """The first connection of a join: who are you?"""
    peer = await machine.net.accept()
    assert isinstance(await peer.hear(), CaRequest)
    await peer.say(CaReply(ca_certificate_pem=machine.ca_certificate_pem))


async def request_of(peer: Peer) -> JoinRequest:
    request = await peer.hear()
    assert isinstance(request, JoinRequest)
    return request


def let_in(machine: Machine, request: JoinRequest, node_id: str = "n1") -> IdentityReply:
    certificate_pem = machine.sign(request.csr_pem, node_id=node_id)
    return IdentityReply(
        node_id=node_id, certificate_pem=certificate_pem, ca_certificate_pem=machine.ca_certificate_pem
    )


def nothing_left(machine: Machine) -> bool:
    return machine.disk.paths() == []


async def test_a_join_shows_the_secret_only_to_a_manager_that_is_known_to_be_right(machine, autojump_clock):
    async with machine.agent(token=machine.token) as nursery:
        await answer_ca(machine)
        peer = await machine.net.accept()
        request = await request_of(peer)
        assert (request.token, request.hostname, request.node_id) == (machine.token, "n1", "")
        assert [credentials for _, _, credentials in machine.net.dialled] == [
            Credentials(),
            Credentials(ca_certificate_pem=machine.ca_certificate_pem),
        ]
        reply = let_in(machine, request)
        await peer.say(reply)
        await (await machine.net.accept()).welcome(nursery)
        credentials = machine.net.dialled[-1][2]
        assert credentials is not None
        assert credentials.certificate_pem == reply.certificate_pem


async def test_a_member_that_restarts_needs_no_token(machine, autojump_clock):
    async with machine.agent(token=machine.token):
        await answer_ca(machine)
        peer = await machine.net.accept()
        await peer.say(let_in(machine, await request_of(peer)))
        await machine.net.accept()
    async with machine.agent():
        peer = await machine.net.accept()
        assert isinstance(await peer.hear(), Hello)


async def test_a_wrong_token_ends_the_agent_with_the_managers_words_and_leaves_nothing(machine, autojump_clock):
    async with machine.ending_agent(token=machine.token) as ending:
        await answer_ca(machine)
        peer = await machine.net.accept()
        await request_of(peer)
        await peer.say(Refused(reason="the join token is not valid: it is wrong or was rotated"))
    assert isinstance(ending.error, PeerRefused)
    assert "the join token is not valid: it is wrong or was rotated" in str(ending.error)
    assert nothing_left(machine)


async def test_a_manager_of_another_cluster_never_sees_the_secret(machine, autojump_clock):
    other = f"SWMTKN-1-{'0' * 50}-{'1' * 25}"
    async with machine.ending_agent(token=other) as ending:
        await answer_ca(machine)
    assert isinstance(ending.error, PeerRefused)
    assert f"the manager at {MANAGER} is not of the cluster that the join token is for" in str(ending.error)
    assert len(machine.net.dialled) == 1
    assert nothing_left(machine)


@pytest.mark.parametrize("trouble", ["unreachable", "hangs up", "says later", "answers nonsense", "is silent"])
async def test_a_manager_in_trouble_is_asked_again(machine, autojump_clock, trouble):
    if trouble == "unreachable":
        machine.net.refusing[MANAGER] = "connection refused"
    async with machine.agent(token=machine.token) as nursery:
        if trouble == "unreachable":
            await trio.sleep(60)
            machine.net.refusing.clear()
        else:
            peer = await machine.net.accept()
            if trouble == "hangs up":
                await peer.hang_up()
            elif trouble == "says later":
                await peer.say(Refused(reason="the disk is full", retry=True))
            elif trouble == "answers nonsense":
                await peer.say(CaReply(ca_certificate_pem=b"nonsense"))
        await answer_ca(machine)
        peer = await machine.net.accept()
        await peer.say(let_in(machine, await request_of(peer)))
        await (await machine.net.accept()).welcome(nursery)


async def test_a_disk_that_refuses_the_identity_ends_the_join_with_its_sentence(machine, autojump_clock):
    machine.disk.full = True
    async with machine.ending_agent(token=machine.token) as ending:
        await answer_ca(machine)
        peer = await machine.net.accept()
        await peer.say(let_in(machine, await request_of(peer)))
    assert isinstance(ending.error, ClusterError)
    assert f"cannot write {STATE_DIR}/identity" in str(ending.error)
    assert nothing_left(machine)


async def test_an_expired_node_joins_again_and_asks_for_its_old_id(machine, autojump_clock):
    await machine.make_member(valid_s=60.0)
    await trio.sleep(120)
    async with machine.agent(token=machine.token):
        await answer_ca(machine)
        peer = await machine.net.accept()
        assert (await request_of(peer)).node_id == "n1"


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        ("", "this node is not a member of a cluster yet and needs one to join"),
        ("SWMTKN-2-x", "it must look like SWMTKN-1-DIGEST-SECRET"),
        (f"SWMTKN-1-{'a' * 49}-{'1' * 25}", "its digest must be 50 digits of 0-9 and a-z"),
        (f"SWMTKN-1-{'a' * 50}-{'A' * 25}", "its secret must be 25 digits of 0-9 and a-z"),
    ],
)
async def test_what_is_no_token_is_refused_before_anybody_is_asked(machine, autojump_clock, token, sentence):
    with pytest.raises(InvalidSpec, match=sentence):
        await daemon.run(machine.host(), machine.config(token=token))
    assert machine.net.dialled == []
    assert nothing_left(machine)


async def test_a_token_of_another_cluster_does_not_move_a_member(machine, autojump_clock):
    await machine.make_member()
    with pytest.raises(InvalidSpec, match="it is of another cluster than the one this node belongs to"):
        await daemon.run(machine.host(), machine.config(token=f"SWMTKN-1-{'0' * 50}-{'1' * 25}"))
    assert machine.net.dialled == []


async def test_an_agent_without_a_manager_to_ask_says_so(machine, autojump_clock):
    with pytest.raises(InvalidSpec, match="give the address of at least one manager"):
        await daemon.run(machine.host(), machine.config(managers=(), token=machine.token))


@pytest.mark.parametrize("damage", ["torn", "empty", "no certificate", "of another node"])
async def test_a_damaged_identity_is_no_reason_to_become_another_node(machine, autojump_clock, damage):
    """The tasks of this node run on and nothing is touched until somebody has decided, though there is a token."""
    await machine.make_member()
    async with machine.agent() as nursery:
        manager = await machine.net.accept()
        await manager.welcome(nursery, [an_assigned("t1", slot=1)])
        await manager.until_state("t1", TaskState.RUNNING)
    path = f"{STATE_DIR}/identity"
    data = await machine.files().read(path)
    identity = msgspec.msgpack.decode(data, type=Identity)
    match damage:
        case "torn":
            data = data[:-10]
        case "empty":
            data = b""
        case "no certificate":
            data = replaced(identity, certificate_pem=b"damaged")
        case "of another node":
            data = replaced(identity, node_id="n2")
    await machine.files().replace(path, data)
    with pytest.raises(DiskError) as ended:
        await daemon.run(machine.host(), machine.config(token=machine.token))
    assert str(ended.value) == (
        f"cannot use {path}: the identity in it is damaged: restore it, or remove it to join as a new node"
    )
    assert len(machine.net.dialled) == 1, "nobody was asked to let it in"
    assert machine.tasks.started == ["t1"]
    assert await machine.files().read(path) == data


async def test_pauses_stay_short_after_days_and_among_managers_that_strangers_made_up(machine, autojump_clock):
    """Each manager is asked as seldom as if it were the only one: a hundred false ones cost no more than one."""
    host, config = machine.host(), machine.config()
    await back_off(host, config, 1_000_000, 1)
    assert trio.current_time() <= config.backoff_cap_s
    began_s = trio.current_time()
    for nth in range(100):
        await back_off(host, config, 1 + nth, 100)
    assert trio.current_time() - began_s <= 2 * config.backoff_base_s


def replaced(identity, **changes):
    return msgspec.msgpack.encode(msgspec.structs.replace(identity, **changes))
