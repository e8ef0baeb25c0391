"""`/_ping`, `/version`, `/info` and the look-ups of `docker inspect` that can only end in "not found"."""

from __future__ import annotations

from typing import Any

from starlette.routing import Route

from beeyard import __version__
from beeyard.core.model import Cluster
from beeyard.core.pools import IPAM_DEFAULT, IPAM_NULL
from beeyard.core.states import Role
from beeyard.manager.api.call import Call, Reply, error_reply, route
from beeyard.manager.api.context import Context
from beeyard.manager.api.docker_value import time_of
from beeyard.manager.api.swarm import show_cluster
from beeyard.manager.api.version import API_VERSION, API_VERSION_MIN

PING_HEADERS = (
    (b"builder-version", b"2"),
    (b"swarm", b"active/manager"),
    (b"cache-control", b"no-cache, no-store, must-revalidate"),
    (b"pragma", b"no-cache"),
)
# Docker names architectures as Go does in one place and as the kernel does in the other.
_GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


def routes(context: Context) -> list[Route]:
    """The routes of this resource."""

    return [
        route("GET", "/_ping", ping, context),
        route("GET", "/version", version, context),
        route("GET", "/info", info, context),
        route("GET", "/containers/{id}/json", container_inspect, context),
        route("GET", "/images/{id:path}/json", image_inspect, context),
        route("GET", "/plugins/{id:path}/json", plugin_inspect, context),
        route("GET", "/secrets/{id}", secret_inspect, context),
        route("GET", "/configs/{id}", config_inspect, context),
    ]


async def ping(_context: Context, _call: Call) -> Reply:
    return Reply(b"OK", content_type="text/plain; charset=utf-8", headers=PING_HEADERS)


async def version(context: Context, _call: Call) -> Reply:
    architecture, system = context.host.platform()
    details = {
        "ApiVersion": API_VERSION,
        "MinAPIVersion": API_VERSION_MIN,
        "Os": system,
        "Arch": _GO_ARCHITECTURES.get(architecture, architecture),
        "Experimental": "false",
        "GitCommit": "",
        "GoVersion": "",
        "BuildTime": "",
        "KernelVersion": "",
    }
    return Reply(
        {
            "Platform": {"Name": "Beeyard"},
            "Components": [{"Name": "Engine", "Version": __version__, "Details": details}],
            "Version": __version__,
            **{name: value for name, value in details.items() if name != "Experimental"},
        }
    )


async def info(context: Context, _call: Call) -> Reply:
    """What `docker info` prints. Containers and images are those of a Docker daemon, which this is not: none."""
    cpu_nano, memory_bytes = context.host.resources()
    architecture, system = context.host.platform()
    link_kinds = sorted({kind for node in context.store.nodes.values() for kind in node.description.link_kinds})
    shown: dict[str, Any] = {
        "ID": context.cluster.id,
        "Name": context.host.hostname,
        "ServerVersion": __version__,
        "Containers": 0,
        "ContainersRunning": 0,
        "ContainersPaused": 0,
        "ContainersStopped": 0,
        "Images": 0,
        "Driver": "none",
        "DriverStatus": None,
        "Plugins": {
            "Volume": [],
            "Network": ["host", *link_kinds],
            "IPAM": [IPAM_DEFAULT, IPAM_NULL, *context.status.ipam_plugins],  # Docker has no such list
            "Authorization": None,
            "Log": [],
        },
        # Absent, these make the docker command warn about a kernel without limits.
        **dict.fromkeys(("MemoryLimit", "SwapLimit", "CpuCfsPeriod", "CpuCfsQuota", "CPUShares", "CPUSet"), True),
        **dict.fromkeys(("PidsLimit", "IPv4Forwarding", "OomKillDisable"), True),
        "Debug": False,
        "ExperimentalBuild": False,
        "LiveRestoreEnabled": True,
        "SystemTime": time_of(context.host.wall_now_s()),
        "LoggingDriver": "none",
        "NEventsListener": 0,
        "KernelVersion": "",
        "OperatingSystem": "Beeyard",
        "OSType": system,
        "Architecture": architecture,
        "NCPU": cpu_nano // 1_000_000_000,
        "MemTotal": memory_bytes,
        "DockerRootDir": "",
        "Labels": [],
        "Warnings": list(context.status.warnings),
        "Swarm": _show_swarm(context, context.cluster),
    }
    return Reply(shown)


def _show_swarm(context: Context, cluster: Cluster) -> dict[str, Any]:
    address = context.manager_address
    n_managers = sum(
        node.spec.role is Role.MANAGER or node.id == cluster.manager_node_id for node in context.store.nodes.values()
    )
    return {
        "NodeID": cluster.manager_node_id,
        "NodeAddr": address.rpartition(":")[0].strip("[]"),
        "LocalNodeState": "active",
        "ControlAvailable": True,
        "Error": "",
        "RemoteManagers": [{"NodeID": cluster.manager_node_id, "Addr": address}],
        "Nodes": len(context.store.nodes),
        "Managers": n_managers,
        "Cluster": show_cluster(cluster),
    }


# `docker inspect NAME` asks for these first and goes on at a 404 alone.


async def container_inspect(_context: Context, call: Call) -> Reply:
    return error_reply(404, f"No such container: {call.path('id')}")


async def image_inspect(_context: Context, call: Call) -> Reply:
    return error_reply(404, f"No such image: {call.path('id')}")


async def plugin_inspect(_context: Context, call: Call) -> Reply:
    return error_reply(404, f'plugin "{call.path("id")}" not found')


async def secret_inspect(_context: Context, call: Call) -> Reply:
    return error_reply(404, f"secret {call.path('id')} not found")


async def config_inspect(_context: Context, call: Call) -> Reply:
    return error_reply(404, f"config {call.path('id')} not found")


__all__ = ["routes"]
