"""What must hold at any moment of a run, and what must hold at its end.

They ask the machines' own kernels, tasks and disks, never the manager: it is the manager's belief that is on trial.
`tests/sim/lan.py` follows addresses, `tests/sim/history.py` what is stored.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from typing import Any

import trio

from beeyard.runtime.fake_executor import FakeTask
from beeyard.runtime.sim import SimMachine, SimWorld
from tests.sim.lan import Lan, parts_of, task_addresses
from tests.sim.layout import ROUTED_SUBNET, n_addresses, second_address
from tests.sim.node_hooks import check_additions
from tests.sim.ports import check_ports
from tests.sim.strangers import Strangers
from tests.sim.volumes import check_volume_mounts

# Addresses are checked whenever a kernel changes; the rest, and addresses once more, this often.
EVERY_S = 1.0


def running_tasks(machine: SimMachine) -> list[FakeTask]:
    """Tasks that take room on a machine now."""
    parts = parts_of(machine)
    return (
        [] if parts is None else [task for task in parts.tasks.by_id.values() if task.phase in ("prepared", "started")]
    )


async def watch_machines(world: SimWorld, strangers: Strangers | None = None) -> None:
    """Check what must always hold, until cancelled."""
    lan = Lan(world) if strangers is None else Lan(world, strangers.check_came_up)
    lan.watch()
    while True:
        lan.look()
        check_no_machine_over_its_room(world)
        check_ports(world)
        check_additions(world)
        check_volume_mounts(world)
        await trio.sleep(EVERY_S)


def check_no_machine_over_its_room(world: SimWorld) -> None:
    """What runs on a machine fits in it."""
    for name, machine in world.machines.items():
        reserved = [task.task.spec.reservations for task in running_tasks(machine)]
        used = sum(r.cpu_nano for r in reserved), sum(r.memory_bytes for r in reserved)
        assert used[0] <= machine.resources[0] and used[1] <= machine.resources[1], (  # noqa: PT018
            f"{name} has {machine.resources} and runs {used}: {sorted(task.task.id for task in running_tasks(machine))}"
        )


def check_nothing_is_left(world: SimWorld) -> None:
    """At rest, with no service left, no machine holds a task, a namespace or an address."""
    for name, machine in world.machines.items():
        parts = parts_of(machine)
        if parts is not None:
            assert parts.kernel.namespaces == (), f"{name} keeps namespaces {parts.kernel.namespaces}"
            assert parts.tasks.by_id == {}, f"{name} keeps tasks {sorted(parts.tasks.by_id)}"
            made = [link.name for link in parts.kernel.links_of("") if link.kind]
            assert made == [], f"{name} keeps links that were made for tasks: {made}"
            routes = parts.kernel.ways_of("") + parts.kernel.neighbours_of("")
            assert routes == [], f"{name} keeps routes {routes}"
            assert machine.firewall.tables == {}, f"{name} still forwards {machine.firewall.tables}"
    assert list(task_addresses(world)) == []


def check_slots(world: SimWorld, known: Collection[str]) -> None:
    """No slot runs twice, and nothing runs that the manager does not know. Holds when nothing is being stopped.

    Args:
        world: whose machines are asked.
        known: ids of the tasks that the manager has.
    """
    slots: dict[tuple[str, int], str] = {}
    for name, machine in world.machines.items():
        for task in running_tasks(machine):
            assigned = task.task
            assert assigned.id in known, f"task {assigned.id} runs on {name} and the manager knows nothing of it"
            other = slots.setdefault((assigned.service_id, assigned.slot), assigned.id)
            assert other == assigned.id, (
                f"slot {assigned.slot} of {assigned.service_name} runs twice: as {other} and as {assigned.id}"
            )


def check_routes(world: SimWorld) -> None:
    """At rest each machine that runs a task of the routed network knows the way to those on all others, and to nothing else.

    That is so of networks in ipvlan's modes l3 and l3s; in mode l2 nobody needs a way.
    """
    subnet = ipaddress.ip_network(ROUTED_SUBNET)
    homes = {
        live.address: (name, live.arp)
        for name, live in task_addresses(world)
        if ipaddress.ip_address(live.address) in subnet
    }
    for name, machine in world.machines.items():
        parts = parts_of(machine)
        if parts is None:
            continue
        found = {
            (destination.partition("/")[0], interface, gateway)
            for destination, interface, gateway, _ in parts.kernel.ways_of("")
            if ipaddress.ip_address(destination.partition("/")[0]) in subnet
        }
        is_member = any(home == name for home, _ in homes.values())
        wanted = {
            (address, "eth1", second_address(world.machines[home].ip))
            for address, (home, arp) in homes.items()
            if is_member and home != name and not arp
        }
        assert found == wanted, f"{name} has ways to {sorted(found)}, and should to {sorted(wanted)}"


def check_books(network: dict[str, Any], pools: Collection[dict[str, Any]], *, pinned: bool) -> None:
    """What `docker network inspect` says of a network's pools adds up, and each pool counts all of its addresses.

    Holds when no task is on its way to a node; a plan under way has an address already.

    Args:
        network: as the API shows it.
        pools: as the API shows each of them.
        pinned: whether services have addresses pinned to their slots, which count as used also while no task has them.
    """
    shown = network["Status"]["IPAM"]["Pools"]
    config = {pool["Name"]: pool["IPAM"]["Config"] for pool in pools}
    for name, pool in shown.items():
        if "Removed" in pool:
            continue
        total = n_addresses(config[name])
        assert pool["Total"] == total, f"pool {name} has {pool['Total']} addresses of {total}"
        assert pool["Total"] == pool["Used"] + pool["Cooling"] + pool["Free"], f"pool {name} does not add up: {pool}"
    used = sum(pool["Used"] + pool.get("Outside", 0) for pool in shown.values())
    held = len(network["Containers"])
    assert pinned or used == held, f"{used} addresses are taken and {held} tasks have one"


def check_books_are_empty(network: dict[str, Any], pools: Collection[dict[str, Any]]) -> None:
    """With no task left, every address is free again."""
    check_books(network, pools, pinned=False)
    assert network["Containers"] == {}, f"still on the network: {network['Containers']}"
    for name, pool in network["Status"]["IPAM"]["Pools"].items():
        assert pool["Free"] == pool["Total"], f"addresses of pool {name} leaked: {pool}"
