"""What this host is, in the words of the cluster."""

from __future__ import annotations

import math
from collections.abc import Callable

import structlog
import trio

import beeyard
from beeyard.agent.listening import Listeners
from beeyard.agent.offers import Offer
from beeyard.agent.volumes import drivers_of
from beeyard.core.errors import HostError, NodeHookError
from beeyard.core.membership import Membership
from beeyard.core.model import HostPort, NodeDescription, Platform
from beeyard.core.resources import Resources
from beeyard.netdrivers.driver import host_links
from beeyard.runtime.host import Host

# Four looks more in 20 s than there are without.
LOOK_SOON_S = 5.0

log = structlog.get_logger(__name__)


class Describer:
    """Describes the host; what cannot be read stays as it was last seen."""

    def __init__(self, host: Host, node_name: str, listeners: Listeners, offer: Offer) -> None:
        self._host = host
        self._listeners = listeners
        self._listeners.on_met = self._look_soon
        self._looked_s = -math.inf
        self._port_fault = ""
        self._node_name = node_name
        self._offer = offer
        self._last = NodeDescription()
        self._hook_fault = ""
        self._stopping = False
        self._changed = trio.Event()
        # What gossip says of this host's member; set by who gossips.
        self.membership: Callable[[], Membership | None] = lambda: None

    def stop(self) -> None:
        """Say from now on that this node is about to stop, and say so soon."""
        self._stopping = True
        self._changed.set()

    def _look_soon(self) -> None:
        """Something was met that the cluster should know; not too often, for a manager bears with few descriptions."""
        if trio.current_time() >= self._looked_s + LOOK_SOON_S:
            self._changed.set()

    async def wait(self, seconds: float) -> None:
        """Until the host should be described anew: after so long, or when something is to be said at once."""
        with trio.move_on_after(seconds):
            await self._changed.wait()
        self._changed = trio.Event()

    async def describe(self) -> NodeDescription:
        """The host as it is now."""
        host = self._host
        self._looked_s = trio.current_time()
        links, link_kinds = self._last.links, self._last.link_kinds
        try:
            links, link_kinds = await host_links(host.netlink)
        except (HostError, OSError) as error:
            log.warning("the links of this host cannot be read", reason=str(error))
        architecture, os_name = host.platform()
        cpu_nano, memory_bytes = host.resources()
        self._last = NodeDescription(
            hostname=self._node_name or host.hostname,
            platform=Platform(architecture=architecture, os=os_name),
            resources=Resources(cpu_nano=cpu_nano, memory_bytes=memory_bytes, generic=self._offer.generic),
            reserved=self._offer.reserved,
            engine_labels=self._offer.labels,
            engine_version=beeyard.__version__,
            images=tuple(image for executor in host.executors for image in executor.images),
            volume_drivers=await drivers_of(host.node_hooks, self._offer.volumes_dir),
            log_drivers=tuple(driver for executor in host.executors for driver in executor.log_drivers),
            link_kinds=link_kinds,
            links=links,
            hooks=await self._hooks(),
            listening=await self._listening(),
            forwards_ports=await self._forwards_ports(),
            stopping=self._stopping,
            membership=self.membership(),
        )
        return self._last

    async def _listening(self) -> tuple[HostPort, ...]:
        try:
            return await self._listeners.look()
        except OSError as error:
            log.warning("the sockets of this host cannot be read", reason=str(error))
            return self._last.listening

    async def _forwards_ports(self) -> bool:
        """Whether ports can be led to tasks here. Why not is said once: such tasks are not placed here."""
        fault = await self._host.firewall.fault()
        if fault and fault != self._port_fault:
            log.warning("this node takes no tasks with published ports", reason=fault)
        self._port_fault = fault
        return not fault

    async def _hooks(self) -> tuple[str, ...]:
        """Names of the node hooks. What is wrong with one is said once, here too: tasks are refused because of it."""
        fault = ""
        try:
            return await self._host.node_hooks.names()
        except NodeHookError as error:
            fault = str(error)
            if fault != self._hook_fault:
                log.error("every task on this node is refused until this is put right", reason=fault)
            return self._last.hooks
        finally:
            self._hook_fault = fault


__all__ = ["Describer"]
