"""The control socket of a daemon that gossips: what `beeyard members` and its like ask, over a unix socket.

One connection is one request: a line of JSON that names what to `do`, then lines of JSON that answer it. The last one has
`done`, or `error` with a sentence for a person. Root and the group of the API may connect; the socket's mode sees to that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from beeyard.runtime.host import Net

if TYPE_CHECKING:
    from beeyard.discovery.gossip.node import GossipNode

# Two daemons of one host may gossip, each as a member of its own.
AGENT_SOCKET = "unix:///run/beeyard/gossip.sock"
MANAGER_SOCKET = "unix:///run/beeyard/gossip-manager.sock"


async def serve_control(
    net: Net,
    node: GossipNode,
    address: str,
    *,
    group: str = "beeyard",
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer commands until cancelled; started, with the address, once they can be asked.

    Args:
        node: the running gossip node.
        address: "unix:///PATH".
        group: who may ask besides root.

    Raises:
        HostError: the socket cannot be made.
    """
    raise NotImplementedError


__all__ = ["AGENT_SOCKET", "MANAGER_SOCKET", "serve_control"]
