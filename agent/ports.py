"""The published ports of this node's tasks: bound to nobody else, led to the task, and taken back at its end.

Theory of operation
-------------------
A task's `PortGrant` says which ports of this node are its own. Before anything is made for it, each is tried: something else
may have taken it since this node last said what listens here. A task with its node's own network then binds them itself. For
every other one a port link is made (`netdrivers.port_link`), and with it an entry for each port in this agent's table of the
firewall. Both are there before the command starts, and the entries are gone before its end is reported.

What the table should say is known here, task by task, and it is always said as a whole: a table that somebody has flushed is
right again as soon as the host tells of it, at the latest with the next look (`watch`): until then it restricts nothing, and
the host forwards for everybody. So is one of whose rules somebody took some away. Changes that come together are one.

*Restart.* The first thing that this step does to the host is to read it: the port links of this agent, and its table. Entries
of tasks that are not known yet stay until `settle`, when everybody is known; then they go, and so do links of nobody.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

import structlog
import trio

from beeyard.agent.listening import Listeners
from beeyard.agent.steps import Step
from beeyard.core.errors import FirewallError, HostError, PortTaken
from beeyard.core.grant import MappedPort, PortGrant
from beeyard.core.model import HOST_NETWORK_ID, HostPort
from beeyard.core.wire import AssignedTask
from beeyard.netdrivers import port_link
from beeyard.netdrivers.port_link import PortLink
from beeyard.runtime.host import NO_ADDITIONS, Additions, Controller, Firewall, Forward, Netlink, Sockets

WATCH_S = 60.0
# Between two looks, also when somebody flushes the table again and again.
PAUSE_S = 0.2

log = structlog.get_logger(__name__)


def mapped_ports(task: AssignedTask) -> Iterator[MappedPort]:
    """The ports that a task was given."""
    for grant in task.grants:
        if isinstance(grant, PortGrant):
            yield from grant.ports


def host_ports(task: AssignedTask) -> list[HostPort]:
    """The same as ports of this node."""
    return [HostPort(protocol=port.protocol, port=port.published) for port in mapped_ports(task)]


def binds_itself(task: AssignedTask) -> bool:
    """Whether the task has its node's own network, so that its ports are the node's."""
    return HOST_NETWORK_ID in task.spec.network_ids


class PortStep(Step):
    """See the module.

    Args:
        netlink, firewall, sockets: of this host.
        instance: what tells this agent from others on the same host, such as its state directory.
    """

    def __init__(self, netlink: Netlink, firewall: Firewall, sockets: Sockets, instance: str) -> None:
        self._netlink = netlink
        self._firewall = firewall
        self._sockets = sockets
        self._instance = f"{zlib.crc32(instance.encode()):08x}"
        self.table = f"beeyard-{self._instance}"
        self.listeners = Listeners(sockets, self.held)
        self._held: dict[str, tuple[HostPort, ...]] = {}  # by task id
        self._found: dict[str, AssignedTask] = {}  # those of an earlier life, until `_catch_up`
        self._wanted: dict[str, tuple[Forward, ...]] = {}  # by task id
        self._unknown: tuple[Forward, ...] = ()  # in the table, of nobody known yet
        self._applied: tuple[Forward, ...] | None = None  # None: not known
        self._loaded = False
        self._is_of_before = False  # the table was made by an earlier life of this agent
        self._catching_up = trio.Lock()
        self._applying = trio.Lock()

    def held(self) -> set[HostPort]:
        """The ports of this node that belong to its tasks."""
        return {port for ports in self._held.values() for port in ports}

    def found(self, task: AssignedTask) -> None:
        """See `Step.found`."""
        if ports := tuple(host_ports(task)):
            self._held[task.id] = ports
            if not binds_itself(task):
                self._found[task.id] = task

    async def before(self, task: AssignedTask) -> Additions:
        """See `Step.before`."""
        ports = host_ports(task)
        if ports and not binds_itself(task) and (fault := await self._firewall.fault()):
            raise FirewallError("publish ports", fault)
        for port in ports:
            if by := await self._sockets.probe(port):
                self.listeners.met(port)
                raise PortTaken(port.protocol, port.port, by)
        if ports:
            self._held[task.id] = tuple(ports)
        return NO_ADDITIONS

    async def attached(self, task: AssignedTask, controller: Controller) -> None:
        """See `Step.attached`. Whatever fails here is undone by `ended`, which follows."""
        ports = list(mapped_ports(task))
        if not ports or binds_itself(task):
            return
        await self._catch_up()
        udp = any(port.protocol == "udp" for port in ports)
        link = await port_link.attach(self._netlink, controller.netns, self._instance, task.id, answers_unbound=udp)
        if udp:
            await self._firewall.answer_from(controller.netns, port_link.TASK_INTERFACE, link.addresses)
        forwards = self._wanted[task.id] = tuple(_forwards(ports, link))
        await self._apply()
        await self._firewall.forget(forwards)

    def stands_between(self, task: AssignedTask) -> bool:
        """See `Step.stands_between`."""
        return any(mapped_ports(task)) and not binds_itself(task)

    async def ended(self, task_id: str) -> None:
        """See `Step.ended`."""
        if task_id not in self._held:
            return
        if task_id in self._found:
            await self._catch_up()
        self._wanted.pop(task_id, None)
        await self._apply()
        del self._held[task_id]

    async def settle(self) -> None:
        """See `Step.settle`."""
        await self._catch_up()
        self._unknown = ()
        if self._applied and self._is_of_before:
            self._applied = None  # what an earlier life has made is made anew once: others may have changed its rules
        await self._apply()
        for link in await port_link.present(self._netlink, self._instance):
            # Of a task that is being attached in this moment there may be a link that is not wanted yet.
            if link.task_id not in self._held:
                log.info("a port link of a former task is removed", task=link.task_id, link=link.host_interface)
                await port_link.remove(self._netlink, link)

    async def watch(self) -> None:
        """Put right, for ever, what others have done to the table: a firewall that is loaded anew flushes all of them."""
        while True:
            try:
                with trio.move_on_after(WATCH_S):
                    await self._firewall.changed(self.table)
                await self._look()
            except (HostError, OSError) as error:
                log.warning("the published ports of this node are not as they should be", reason=str(error))
            await trio.sleep(PAUSE_S)

    async def _look(self) -> None:
        """Put the table right if it is not what it was made."""
        async with self._applying:  # else what was read may be older than what is meanwhile known
            if not self._loaded or self._applied == ():
                return
            if self._applied is not None:
                forwards = tuple(await self._firewall.forwards(self.table))
                if forwards == self._applied and await self._firewall.intact(self.table):
                    return
                log.warning("the published ports of this node were changed by something else; they are put right")
                self._applied = None
        await self._apply()

    async def _catch_up(self) -> None:
        """Know what is there already: the table, once in the agent's life, and the links of tasks that were found since."""
        async with self._catching_up:
            if not self._loaded:
                self._unknown = self._applied = tuple(await self._read_table())
                self._is_of_before = True
                self._loaded = True
            if self._found:
                links = await port_link.present(self._netlink, self._instance)
                found, self._found = self._found, {}
                for task in found.values():
                    self._adopt(task, [link for link in links if link.task_id == task.id])

    async def _read_table(self) -> list[Forward]:
        try:
            return await self._firewall.forwards(self.table)
        except FirewallError:
            if await port_link.present(self._netlink, self._instance):
                raise
            return []  # without nftables nothing was ever published here

    def _adopt(self, task: AssignedTask, links: Iterable[PortLink]) -> None:
        candidates = [tuple(_forwards(mapped_ports(task), link)) for link in links]
        # A link of an attempt before may still be on its way out: the one that the table names is in use.
        named = [forwards for forwards in candidates if any(forward in self._unknown for forward in forwards)]
        if found := (named or candidates)[-1:]:
            self._wanted[task.id] = found[0]
            self._unknown = tuple(forward for forward in self._unknown if forward not in found[0])

    async def _apply(self) -> None:
        """Make the table say what it should; who waits here while another does it may find it done."""
        async with self._applying:
            if not self._loaded:
                return
            ours = [forward for forwards in self._wanted.values() for forward in forwards]
            keys = {_key(forward) for forward in ours}
            wanted = tuple(sorted({*ours, *(forward for forward in self._unknown if _key(forward) not in keys)}))
            if wanted != self._applied:
                self._applied = None  # a change that fails may have been made all the same
                await self._firewall.apply(self.table, wanted, port_link.HOST_PREFIX)
                self._is_of_before = False
                self._applied = wanted


def _forwards(ports: Iterable[MappedPort], link: PortLink) -> Iterator[Forward]:
    for port in ports:
        for address in link.addresses:
            yield Forward(protocol=port.protocol, published=port.published, address=address, target=port.target)


def _key(forward: Forward) -> tuple[str, int, bool]:
    """What there is one entry for."""
    return forward.protocol, forward.published, ":" in forward.address


__all__ = ["PortStep", "binds_itself", "host_ports", "mapped_ports"]
