"""Taking a task's links down, whether its shim can or not."""

from __future__ import annotations

import structlog

from beeyard.core.errors import ExecutorError
from beeyard.netdrivers import driver
from beeyard.runtime.host import Controller, Netlink


async def take_links_down(
    controller: Controller, netlink: Netlink, log: structlog.typing.FilteringBoundLogger, *, has_addresses: bool
) -> None:
    """Return when no address of the task answers any more.

    Raises:
        HostError: some may.
    """
    try:
        await controller.links_down()
    except ExecutorError as error:
        if has_addresses and not controller.netns:
            raise
        if has_addresses:
            log.warning("the shim did not take the links down; the agent does", reason=str(error))
            await driver.detach(netlink, controller.netns)


__all__ = ["take_links_down"]
