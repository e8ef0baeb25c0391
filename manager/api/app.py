"""The Docker Engine API of the manager, as one ASGI application, and the daemon's way to serve it.

A request passes: version prefix → route → handler → reply. Errors of `core.errors` become Docker's `{"message": …}` here and
nowhere else; any other exception ends its request alone.
"""

from __future__ import annotations

import structlog
import trio
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Router

from beeyard import __version__
from beeyard.core.errors import ClusterError, NotLeader, OutOfSequence, RequestError
from beeyard.manager.api import (
    client_certificates,
    discovery,
    distribution,
    explain,
    metrics,
    networks,
    nodes,
    services,
    swarm,
    system,
    tasks,
    volumes,
    what_if,
)
from beeyard.manager.api.call import Reply, error_reply
from beeyard.manager.api.context import Context
from beeyard.manager.api.http_server import HttpLimits, HttpServer, Receive, Scope, Send
from beeyard.manager.api.status import ManagerStatus
from beeyard.manager.api.unsupported import feature_of
from beeyard.manager.api.version import API_VERSION, refusal_of, split_version
from beeyard.manager.store import Store
from beeyard.runtime.host import Host

log = structlog.get_logger(__name__)

SOCKET_GROUP = "beeyard"
# On every reply of Docker's own daemon; the docker command reads the first.
_HEADERS = (
    (b"api-version", API_VERSION.encode()),
    (b"ostype", b"linux"),
    (b"docker-experimental", b"false"),
    (b"server", f"Beeyard/{__version__} (linux)".encode()),
)


async def serve(
    host: Host,
    store: Store,
    status: ManagerStatus,
    socket_path: str,
    *,
    socket_group: str = SOCKET_GROUP,
    limits: HttpLimits | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the API until cancelled.

    Args:
        socket_path: an absolute path, or an address as `Net.listen` takes it.
        socket_group: who may use it besides root; a group that does not exist is nobody.

    Gives the address it listens on when started.

    Raises:
        HostError: the address cannot be bound.
    """
    address = socket_path if "://" in socket_path else f"unix://{socket_path}"
    server = HttpServer(App(Context(host, store, status)), limits)
    listener = await host.net.listen(address, socket_mode=0o660, socket_group=socket_group)
    await server.serve(listener, task_status)


class App:
    """The API as an ASGI application."""

    def __init__(self, context: Context) -> None:
        resources = (
            system,
            swarm,
            nodes,
            networks,
            services,
            tasks,
            volumes,
            distribution,
            metrics,
            explain,
            what_if,
            client_certificates,
            discovery,
        )
        # By the path's first segment, so that a request is matched against a few patterns and not against all.
        table: dict[str, list[BaseRoute]] = {}
        for resource in resources:
            for route in resource.routes(context):
                table.setdefault(_first_segment(route.path), []).append(route)
        self._routers = {name: Router(routes, redirect_slashes=False) for name, routes in table.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = await self._reply(scope, receive, send)
        if scope["method"] not in ("GET", "HEAD"):
            peer = scope["extensions"].get("beeyard.peer", {})
            who = {"client": peer["certificate"].node_id, "remote": peer["remote"]} if peer.get("certificate") else {}
            log.info("api", method=scope["method"], path=scope["path"], status=reply.status, uid=peer.get("uid"), **who)
        headers = [*_HEADERS, *reply.headers]
        if reply.body:
            headers.append((b"content-type", reply.content_type.encode()))
        if reply.status != 204:
            headers.append((b"content-length", b"0" if scope["method"] == "HEAD" else str(len(reply.body)).encode()))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})

    async def _reply(self, scope: Scope, receive: Receive, send: Send) -> Reply:
        try:
            version, path = split_version(scope["path"])
            if version and (refusal := refusal_of(version)):
                return error_reply(400, refusal)
            scope["path"] = path
            router = self._routers.get(_first_segment(path))
            if router is None:
                raise HTTPException(404)
            # Makes the router raise for what it does not know, instead of answering by itself.
            scope["app"] = self
            await router(scope, receive, send)
            reply: Reply = scope["beeyard.reply"]
            return reply
        except HTTPException:
            refusal_by_name = feature_of(scope["path"])
            return reply_to(refusal_by_name) if refusal_by_name else error_reply(404, "page not found")
        except ClusterError as error:
            return reply_to(error)
        except Exception:
            log.exception("request failed", method=scope["method"], path=scope["path"])
            return error_reply(500, "internal error of the manager; its log has the details")


def _first_segment(path: str) -> str:
    return path[1:].partition("/")[0]


def reply_to(error: ClusterError) -> Reply:
    """What a client is told about an error."""
    if isinstance(error, OutOfSequence):
        # Docker's own status and words, on which clients base a second try.
        return error_reply(500, f"rpc error: code = Unknown desc = {error}")
    if isinstance(error, RequestError):
        return error_reply(error.http_status, str(error))
    if isinstance(error, NotLeader) or error.retry == "later":
        return error_reply(503, str(error))
    return error_reply(500, str(error))


__all__ = ["App", "reply_to", "serve"]
