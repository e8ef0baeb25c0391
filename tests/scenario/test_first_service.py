"""The tour: one service on its way through the whole system, asserted row by row of ARCHITECTURE.md's stage table.

A manager (m1) and two nodes, a1 in rack r1 and a2 in rack r2, run as they do in production, but on simulated machines
under virtual time. The network lan draws from a pool of addresses for each rack. Two hooks of our own hold the task up
where we want to look at it; every part is watched from outside.
"""

from __future__ import annotations

import ipaddress

import pytest

from beeyard.core.model import Service, Task
from beeyard.core.states import TaskState
from beeyard.manager.hooks import Stage, Window
from beeyard.netdrivers.announce import announcement
from tests.sim.api import Refused
from tests.support.tour import RACKS, RANGES, DoorHook, Tour, a_service, a_tour, address_of


async def test_first_service_passes_every_stage_of_the_table(autojump_clock: object) -> None:
    licence = DoorHook("licence", Window(Stage.NEW, Stage.ASSIGNED))  # needs no node, so it runs beside scheduling
    volume = DoorHook("volume", Window(Stage.SCHEDULED, Stage.ASSIGNED))  # needs the node, as the address does
    async with a_tour(licence, volume) as tour:
        machine, task = await the_manager_finds_a_place(tour, licence, volume)
        await the_node_runs_it(tour, machine, task)


async def the_manager_finds_a_place(tour: Tour, licence: DoorHook, volume: DoorHook) -> tuple[str, Task]:
    # 1. Accepted: HTTP on the unix socket, as the docker command sends it. What nobody could run is refused by name.
    with pytest.raises(Refused, match="image nginx:latest needs the docker or oci executor"):
        await tour.docker("POST", "/services/create", a_service("nginx"))
    reply = await tour.docker("POST", "/services/create", a_service("host"))

    # 2. Validated and stored, under the id in the reply; of what was refused there is no trace.
    service = await tour.feed.next(Service)
    assert (service.id, service.spec.name) == (reply["ID"], "web")

    # 3. Staffed: the orchestrator finds that slot 1 has no task, and makes one that is to run.
    new = await tour.feed.next(Task)
    assert (new.status.state, new.desired_state, new.slot) == (TaskState.NEW, TaskState.RUNNING, 1)
    assert (new.service_id, new.spec, new.node_id) == (service.id, service.spec.task, "")

    # 4. Hooks that need no node begin. This one may end as late as ASSIGNED, so the task goes on to PENDING without it.
    assert await licence.asked() is None
    pending = await tour.feed.next(Task)
    assert (pending.id, pending.status.state, pending.grants) == (new.id, TaskState.PENDING, ())

    # 5. Scheduled: the kernel has picked a node and holds the room there. That is a plan, in memory only: what is stored
    #    names no node, no agent knows of it, and the API shows what the plan waits for.
    node = await volume.asked()
    assert node is not None
    machine = node.description.hostname
    shown = await tour.docker("GET", f"/tasks/{new.id}")
    assert (shown["Status"]["State"], shown.get("NodeID")) == ("pending", None)
    assert shown["Status"]["Message"] == f"planned on node {machine}, waiting for hook licence, volume"
    assert tour.states_on_the_node(new.id) == []

    # 6. Hooks that need the node: the address hook has already taken one from the pool of *that node's* rack.
    pools = (await tour.docker("GET", "/networks/lan"))["Status"]["IPAM"]["Pools"]
    assert {rack: pools[f"lan-{rack}"]["Used"] for rack in RANGES} == {"r1": 0, "r2": 0, RACKS[machine]: 1}

    # 7. Committed: once the last hook has answered, node and grants are stored in one transaction.
    licence.open()
    volume.open()
    assigned = await tour.feed.next(Task)
    assert (assigned.status.state, assigned.node_id) == (TaskState.ASSIGNED, node.id)
    assert sorted(grant.hook for grant in assigned.grants) == ["address", "licence", "volume"]
    assert address_of(assigned).ip in ipaddress.ip_network(RANGES[RACKS[machine]])
    return machine, assigned


async def the_node_runs_it(tour: Tour, machine: str, task: Task) -> None:
    address = address_of(task)

    # 8. Dispatched: the agent of that node is told, and says what it is doing.
    preparing = await tour.feed.next(Task)
    assert (preparing.id, preparing.status.state) == (task.id, TaskState.PREPARING)

    # 9. Admitted and prepared: it checks room and addresses itself (ACCEPTED), asks the LAN whether anybody else has the
    #    address, then makes namespaces, cgroup and shim.
    assert tour.states_on_the_node(task.id) == ["ACCEPTED", "PREPARING"]
    asked = [sent.frame for sent in tour.parts(machine).kernel.frames if sent.netns == ""]
    assert {ipaddress.ip_address(frame[38:42]) for frame in asked} == {address.ip}

    # 10. The interface: created in the task's own namespace with exactly that address, announced to the LAN; then READY.
    await tour.feed.until(TaskState.STARTING)
    assert tour.assigned(task.id).grants == task.grants
    assert tour.states_on_the_node(task.id)[2:] == ["READY", "STARTING"]
    (link,) = tour.links(machine, task.id)
    assert (link.name, link.kind, link.up, link.addresses[0]) == ("eth0", "macvlan", True, address)
    frames = [sent.frame for sent in tour.parts(machine).kernel.frames if sent.netns]
    assert frames[:2] == announcement(address.ip, bytes.fromhex(link.mac.replace(":", "")))

    # 11. Run: the command is started, once, on that machine alone.
    running = await tour.feed.until(TaskState.RUNNING)
    assert {name: tour.parts(name).tasks.started for name in RACKS} == {"a1": [], "a2": [], machine: [task.id]}

    # 12. Reported and stored: the manager knows the process, and docker shows the task and whose address it is.
    assert running.status.pid == tour.process(machine, task.id).pid
    assert running.grants == task.grants
    shown = await tour.docker("GET", f"/tasks/{task.id}")
    assert (shown["Status"]["State"], shown["NodeID"]) == ("running", task.node_id)
    (attachment,) = (await tour.docker("GET", "/networks/lan"))["Containers"].values()
    assert attachment["IPv4Address"] == str(address)
