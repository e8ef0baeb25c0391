"""What this host is, in the words of the cluster."""

from __future__ import annotations

import structlog
import trio

import beeyard
from beeyard.core.errors import HostError, NodeHookError
from beeyard.core.model import NodeDescription, Platform, Resources
from beeyard.netdrivers.driver import host_links
from beeyard.runtime.host import Host

log = structlog.get_logger(__name__)


class Describer:
    """Describes the host; what cannot be read stays as it was last seen."""

    def __init__(self, host: Host, node_name: str) -> None:
        self._host = host
        self._node_name = node_name
        self._last = NodeDescription()
        self._hook_fault = ""
        self._stopping = False
        self._changed = trio.Event()

    def stop(self) -> None:
        """Say from now on that this node is about to stop, and say so soon."""
        self._stopping = True
        self._changed.set()

    async def wait(self, seconds: float) -> None:
        """Until the host should be described anew: after so long, or when something is to be said at once."""
        with trio.move_on_after(seconds):
            await self._changed.wait()
        self._changed = trio.Event()

    async def describe(self) -> NodeDescription:
        """The host as it is now."""
        host = self._host
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
            resources=Resources(cpu_nano=cpu_nano, memory_bytes=memory_bytes),
            engine_version=beeyard.__version__,
            images=tuple(image for executor in host.executors for image in executor.images),
            link_kinds=link_kinds,
            links=links,
            hooks=await self._hooks(),
            stopping=self._stopping,
        )
        return self._last

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
