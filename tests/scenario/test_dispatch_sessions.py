"""Sessions of agents with the dispatcher: opening, replacing, ending, liveness of what they hear."""

import msgspec
import trio
import trio.lowlevel

from beeyard.core.model import Link, Node, Task
from beeyard.core.states import NodeState, TaskState
from beeyard.core.wire import (
    Assignments,
    DescriptionChanged,
    Heartbeat,
    IdentityReply,
    LeaseRenewed,
    RenewRequest,
    Welcome,
)
from tests.support.builders import a_service, a_task
from tests.support.dispatch_world import A_DESCRIPTION, a_dispatch_world
from tests.support.memory_database import MemoryDatabase


async def test_session_opens_and_its_node_is_ready(autojump_clock: object) -> None:
    """The node is READY with what its host is like before the agent hears its Welcome."""
    async with a_dispatch_world() as world:
        peer = await world.join()
        assert world.node(peer.node_id).status.state is NodeState.DOWN

        agent = await world.say_hello(peer)
        welcome = await agent.hear(Welcome)

        node = world.node(peer.node_id)
        assert node.status.state is NodeState.READY
        assert node.status.address == "10.99.0.2"
        assert node.description == A_DESCRIPTION
        assert welcome.node_id == peer.node_id
        assert welcome.manager_addresses == ("tcp://10.99.0.1:2377",)
        assert 4.5 <= welcome.heartbeat_s <= 5.0
        assert await agent.hear(Assignments) == Assignments(complete=True, applies_to=0, results_in=1)


async def test_second_session_of_a_node_ends_the_first(autojump_clock: object) -> None:
    """The newer session wins and the older one is told why it ends."""
    async with a_dispatch_world() as world:
        peer = await world.join()
        first = await world.session(peer)
        second = await world.session(peer)

        assert "newer session" in (await first.hear_refusal()).reason
        assert first.welcome is not None
        assert second.welcome is not None
        assert second.welcome.session_id != first.welcome.session_id
        await world.put(a_service(), a_task(node_id=peer.node_id, state=TaskState.ASSIGNED))
        assert [t.id for t in (await second.hear(Assignments)).tasks] == ["t1"]


async def test_second_session_of_a_node_does_not_wait_for_a_first_that_reads_nothing(autojump_clock: object) -> None:
    """A connection that is stuck in its writing cannot keep its node out."""
    async with a_dispatch_world() as world:
        peer = await world.join()
        await world.say_hello(peer, lockstep=True)
        await trio.sleep(1)

        with trio.fail_after(0.5):
            await world.session(peer)


async def test_node_that_opens_many_sessions_is_told_to_wait(autojump_clock: object) -> None:
    """Three sessions within eight seconds are allowed; the fourth is refused, and allowed later."""
    async with a_dispatch_world() as world:
        peer = await world.join()
        for _ in range(3):
            agent = await world.session(peer)

        refused = await (await world.say_hello(peer)).hear_refusal()
        assert refused.retry
        assert "more than 3 sessions within 8 s" in refused.reason
        await agent.say(Heartbeat(number=1))  # the session that stands is not disturbed
        await agent.hear(LeaseRenewed)

        await trio.sleep(8)
        await world.session(peer)


async def test_removed_node_is_told_and_never_let_in_again(autojump_clock: object) -> None:
    """Removing a node ends its session, and its certificate opens no other."""
    async with a_dispatch_world() as world:
        peer = await world.join()
        agent = await world.session(peer)
        await world.remove(Node, peer.node_id)

        refused = await agent.hear_refusal()
        assert (refused.retry, refused.removed) == (False, True)
        assert "removed" in refused.reason
        refused = await (await world.say_hello(peer)).hear_refusal()
        assert refused.removed
        assert "not in this cluster" in refused.reason
        assert peer.node_id not in world.store.nodes


async def test_renewed_certificate_takes_over_when_it_is_used(autojump_clock: object) -> None:
    """Both certificates let the node in until the new one was used; then the old one is refused."""
    async with a_dispatch_world() as world:
        old = await world.join()
        agent = await world.session(old)
        csr_pem, _ = world.host.pki.new_request()
        await agent.say(RenewRequest(csr_pem=csr_pem))
        new = world.host.pki.inspect((await agent.hear(IdentityReply)).certificate_pem)
        assert new.node_id == old.node_id

        await world.session(old)  # the agent crashed before it had stored the new one
        await world.session(new)
        refused = await (await world.say_hello(old)).hear_refusal()
        assert "superseded" in refused.reason
        assert world.node(old.node_id).certificate_serial == new.serial


async def test_heartbeats_are_heard_while_a_renewal_waits_for_the_disk(autojump_clock: object) -> None:
    """A disk that hangs keeps a certificate waiting, not the node's life signs; of two requests the last one is answered."""
    database = MemoryDatabase()
    async with a_dispatch_world(database) as world:
        peer = await world.join()
        agent = await world.session(peer)
        database.hold = trio.Event()
        (first, _), (second, _) = world.host.pki.new_request(), world.host.pki.new_request()
        await agent.say(RenewRequest(csr_pem=first), RenewRequest(csr_pem=second))
        for number in range(1, 7):
            await trio.sleep(5)
            await agent.say(Heartbeat(number=number))
            await trio.testing.wait_all_tasks_blocked()
            assert world.dispatcher.last_contact(peer.node_id) == trio.current_time()
        assert world.node(peer.node_id).status.state is NodeState.READY
        assert (await agent.hear(LeaseRenewed)).heartbeat_number == 1
        database.hold.set()
        database.hold = None
        new = world.host.pki.inspect((await agent.hear(IdentityReply)).certificate_pem)
        assert new.serial == world.node(peer.node_id).renewed_serials[-1]
        await agent.hear_nothing(1.0)


async def test_renewal_with_garbage_ends_the_session_and_changes_nothing(autojump_clock: object) -> None:
    """A certificate request that is none is refused with a sentence."""
    async with a_dispatch_world() as world:
        peer = await world.join()
        agent = await world.session(peer)
        before = world.node(peer.node_id)
        await agent.say(RenewRequest(csr_pem=b"no request"))
        assert "certificate request" in (await agent.hear_refusal()).reason
        assert world.node(peer.node_id) == before


async def test_host_that_changes_is_described_anew(autojump_clock: object) -> None:
    """A changed description reaches the store without a new session; one that cannot be is refused."""
    async with a_dispatch_world() as world:
        peer = await world.join()
        agent = await world.session(peer)
        changed = msgspec.structs.replace(A_DESCRIPTION, links=(Link(name="eth0", addresses=("10.99.0.2/24",)),))
        await agent.say(DescriptionChanged(description=changed))
        await trio.sleep(0.1)
        assert world.node(peer.node_id).description == changed

        wrong = msgspec.structs.replace(A_DESCRIPTION, links=(Link(name="eth0", addresses=("nonsense",)),))
        await agent.say(DescriptionChanged(description=wrong))
        assert "'nonsense', which is not an address" in (await agent.hear_refusal()).reason
        assert world.node(peer.node_id).description == changed


async def test_host_that_never_stops_changing_is_sent_away_for_a_while(autojump_clock: object) -> None:
    """Each description is a write."""
    async with a_dispatch_world() as world:
        agent = await world.session(await world.join())
        for number in range(7):
            link = Link(name="eth0", addresses=(f"10.99.0.{number}/24",))
            await agent.say(DescriptionChanged(description=msgspec.structs.replace(A_DESCRIPTION, links=(link,))))
        refused = await agent.hear_refusal()
        assert (refused.reason, refused.retry) == ("more than 6 descriptions within 20 s", True)


async def test_leases_are_counted_from_the_heartbeats_that_are_named(autojump_clock: object) -> None:
    """The first heartbeat of a session renews, then one a minute."""
    async with a_dispatch_world() as world:
        agent = await world.session(await world.join())
        for number in range(1, 26):
            await agent.say(Heartbeat(number=number))
            if number in (1, 13, 25):
                assert (await agent.hear(LeaseRenewed)).heartbeat_number == number
            else:
                await agent.hear_nothing(0.5)
            await trio.sleep_until(number * 5.0)


async def test_fenced_task_has_its_lease_renewed_from_its_arrival_on(autojump_clock: object) -> None:
    """A short lease starts from the last heartbeat, not from a renewal that is longer ago than all of it."""
    async with a_dispatch_world() as world:
        peer = await world.join()
        agent = await world.session(peer)
        started_s = trio.current_time()
        renewed = []
        for number in range(1, 21):
            await agent.say(Heartbeat(number=number))
            if number == 11:
                await world.put(
                    a_service(labels={"beeyard.on-isolation": "fence"}),
                    msgspec.structs.replace(a_task(node_id=peer.node_id, state=TaskState.ASSIGNED), fence=True),
                )
            with trio.move_on_at(started_s + number * 5.0):
                while True:
                    message = await agent.hear(object, timeout_s=10)
                    if isinstance(message, LeaseRenewed):
                        renewed.append(message.heartbeat_number)
                    else:
                        assert isinstance(message, Assignments)
                        assert renewed[-1] == 11, "the renewal comes before the task that needs it"
                        assert (message.tasks[0].lease_s, message.tasks[0].fence) == (60.0, True)
        assert renewed == [1, 11, 13, 15, 17, 19]


async def test_agent_that_reads_slowly_gets_the_net_effect(autojump_clock: object) -> None:
    """While an agent does not read, what it has to be told does not pile up: one set of the newest follows."""
    async with a_dispatch_world() as world:
        peer = await world.join()
        agent = await world.say_hello(peer, lockstep=True)
        await agent.hear(Welcome)
        await agent.hear(Assignments)
        await world.put(a_service(), a_task("t0", node_id=peer.node_id, state=TaskState.ASSIGNED))
        await trio.sleep(1)  # this set is stuck in the stream
        for number in range(1, 200):
            await world.put(a_task(f"t{number}", node_id=peer.node_id, state=TaskState.ASSIGNED))
        for number in range(100, 200):
            await world.remove(Task, f"t{number}")
        await trio.sleep(1)

        assert [t.id for t in (await agent.hear(Assignments)).tasks] == ["t0"]
        assert [t.id for t in (await agent.hear(Assignments)).tasks] == [f"t{n}" for n in range(1, 100)]
        await agent.hear_nothing()


async def test_agent_that_does_not_read_is_cut_off(autojump_clock: object) -> None:
    """Heartbeats alone do not keep a session: after 15 s without reading it ends."""
    async with a_dispatch_world() as world, trio.open_nursery() as nursery:
        peer = await world.join()
        agent = await world.say_hello(peer, lockstep=True)
        nursery.start_soon(agent.beat)
        await trio.sleep(14.5)
        assert world.dispatcher.is_connected(peer.node_id)
        await trio.sleep(1)
        assert not world.dispatcher.is_connected(peer.node_id)
        assert world.node(peer.node_id).status.state is NodeState.READY
