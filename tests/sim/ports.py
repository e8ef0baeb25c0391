"""Published ports as the machines' own firewalls and tasks have them."""

from __future__ import annotations

from collections.abc import Iterator

from beeyard.core.grant import PortGrant
from beeyard.core.model import HostPort
from beeyard.core.wire import AssignedTask
from beeyard.runtime.sim import SimMachine, SimWorld
from tests.sim.lan import parts_of


def ports_of(grants: tuple[object, ...]) -> Iterator[HostPort]:
    """The ports of a node that were granted to a task."""
    for grant in grants:
        if isinstance(grant, PortGrant):
            for port in grant.ports:
                yield HostPort(protocol=port.protocol, port=port.published)


def check_ports(world: SimWorld) -> None:
    """No two tasks run on a machine with the same port, and no entry of its firewall is there twice."""
    for name, machine in world.machines.items():
        machine.firewall.leads()
        holders: dict[HostPort, str] = {}
        for task in _tasks_with_ports(machine):
            for port in ports_of(task.grants):
                other = holders.setdefault(port, task.id)
                assert other == task.id, f"port {port} of {name} belongs to task {other} and to task {task.id}"


def check_nothing_forwarded(machine: SimMachine, ports: list[HostPort], task_id: str) -> None:
    """No port that a task had leads anywhere on its machine any more."""
    left = [f for f in machine.firewall.leads() if HostPort(protocol=f.protocol, port=f.published) in ports]
    assert left == [], f"task {task_id} has ended, and its ports lead to {left} on {machine.name}"


def check_every_port_leads(world: SimWorld) -> None:
    """At rest the ports of every task that runs lead to it, in the families that its link has, and no others anywhere."""
    for name, machine in world.machines.items():
        parts = parts_of(machine)
        if parts is None:
            continue
        ends = {
            str(address.ip): netns
            for netns in parts.kernel.namespaces
            for link in parts.kernel.links_of(netns)
            if link.peer is not None and link.up
            for address in link.addresses
        }
        found = {(f.protocol, f.published, ends.get(f.address, "nowhere")) for f in machine.firewall.leads()}
        wanted = {
            (port.protocol, port.port, task.netns)
            for task in parts.tasks.by_id.values()
            if task.phase == "started" and task.own_netns
            for port in ports_of(task.task.grants)
        }
        assert found == wanted, f"ports of {name} lead to {sorted(found)}, and should to {sorted(wanted)}"


def _tasks_with_ports(machine: SimMachine) -> Iterator[AssignedTask]:
    parts = parts_of(machine)
    for task in parts.tasks.by_id.values() if parts is not None else ():
        if task.phase == "started" and any(ports_of(task.task.grants)):
            yield task.task


__all__ = ["check_every_port_leads", "check_nothing_forwarded", "check_ports", "ports_of"]
