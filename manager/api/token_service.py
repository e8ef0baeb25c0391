"""The token service: larger clusters that need no other server. What it speaks is told in `discovery.published.token`.

It listens on a port of its own, over TLS with the manager's certificate, and asks for no certificate of clients: who knows a
token may read and write its lists. New tokens are given by the API alone.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable

import structlog
import trio
from starlette.exceptions import HTTPException
from starlette.routing import Router

from beeyard.core.errors import ClusterError, Forbidden, InvalidSpec
from beeyard.discovery.published.registry import Registry
from beeyard.manager.api.app import reply_to
from beeyard.manager.api.call import Call, Reply, decode_json, error_reply, route
from beeyard.manager.api.http_server import HttpLimits, HttpServer, Receive, Scope, Send
from beeyard.manager.client_certificates import ServerIdentity
from beeyard.manager.config import ManagerConfig
from beeyard.manager.store import Store
from beeyard.runtime.host import Host

# Writers come back within a third of their lists' time; with the usual 30 s, that is within 10.
COMPLETE_AFTER_S = 12.0
WAIT_S_MAX = 60.0
TTL_S = 180.0  # of an entry that names none. Source: classic Swarm's `--ttl`

log = structlog.get_logger(__name__)


class TokenService:
    """See the module. As `ManagerStatus.tokens`, and as an ASGI application."""

    def __init__(self, host: Host, store: Store) -> None:
        cluster = store.cluster
        assert cluster is not None, "it is made before anything is served"
        key = hashlib.blake2b(cluster.ca_key_pem, digest_size=32, person=b"beeyard-tokens").digest()
        now_s = trio.current_time()
        # Milliseconds since the epoch: above any number of changes that an earlier life can have counted.
        epoch = int(host.wall_now_s() * 1000)
        self._registry = Registry(key, host.rng, epoch=epoch, complete_at_s=now_s + COMPLETE_AFTER_S)
        self._changed = trio.Event()
        self.address = ""  # HOST:PORT for clients
        self._router = Router(
            [
                route("POST", "/clusters", _refuse_create, self),
                route("GET", "/clusters/{token}", _entries, self),
                route("POST", "/clusters/{token}", _add, self),
                route("GET", "/clusters/{token}/lists", _lists, self),
                route("PUT", "/clusters/{token}/lists/{owner}", _put, self),
                route("DELETE", "/clusters/{token}/lists/{owner}", _remove, self),
            ],
            redirect_slashes=False,
        )

    def new_url(self) -> str:
        """A discovery URL with a new token."""
        return f"token://{self.address}/{self._registry.new_token()}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = await self._reply(scope, receive, send)
        length = str(len(reply.body)).encode()
        headers = [(b"content-type", reply.content_type.encode()), (b"content-length", length), *reply.headers]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})

    async def _reply(self, scope: Scope, receive: Receive, send: Send) -> Reply:
        try:
            scope["app"] = self  # Makes the router raise for what it does not know.
            await self._router(scope, receive, send)
            reply: Reply = scope["beeyard.reply"]
            return reply
        except HTTPException as error:
            return error_reply(error.status_code, "there is nothing here: see token:// of beeyard list")
        except ClusterError as error:
            return reply_to(error)

    def change(self, action: Callable[[Registry, float], None]) -> Reply:
        """Do something to the lists, and tell those who wait for changes."""
        action(self._registry, trio.current_time())
        self._changed.set()
        self._changed = trio.Event()
        return Reply(None, 204)

    async def read(self, token: str, after: int, wait_s: float) -> tuple[int, dict[str, list[str]]] | None:
        """What a token has, once its version is another or the time is over; None: it may not be all yet."""
        deadline_s = trio.current_time() + wait_s
        while True:
            changed, now_s = self._changed, trio.current_time()
            version, contents = self._registry.lists(now_s, token)
            if not self._registry.is_complete(now_s, token):
                return None
            if version != after or now_s >= deadline_s:
                return version, {owner: list(entries) for owner, entries in contents.items()}
            with trio.move_on_at(min(deadline_s, self._registry.next_end(token))):
                await changed.wait()


_EARLY = "the service has just started, and managers have still to publish again"


async def _refuse_create(service: TokenService, call: Call) -> Reply:
    raise Forbidden("tokens are made by beeyard discovery-token on the manager's own host")


async def _entries(service: TokenService, call: Call) -> Reply:
    found = await service.read(call.path("token"), -1, 0.0)
    if found is None:
        return error_reply(503, _EARLY)
    return Reply(sorted({entry for entries in found[1].values() for entry in entries}))


async def _lists(service: TokenService, call: Call) -> Reply:
    after = int(_number(call, "after", -1.0))
    found = await service.read(call.path("token"), after, min(_number(call, "wait_s", 0.0), WAIT_S_MAX))
    return error_reply(503, _EARLY) if found is None else Reply({"version": found[0], "lists": found[1]})


async def _add(service: TokenService, call: Call) -> Reply:
    entry, ttl_s = call.body.decode("utf-8", "replace").strip(), _number(call, "ttl", TTL_S)
    return service.change(lambda registry, now_s: registry.add(now_s, call.path("token"), entry, ttl_s))


async def _put(service: TokenService, call: Call) -> Reply:
    entries, ttl_s = decode_json(call.body), _number(call, "ttl", TTL_S)
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise InvalidSpec("list", 'it must be a JSON list of texts, ["10.0.0.7:3388"]')
    token, owner = call.path("token"), call.path("owner")
    return service.change(lambda registry, now_s: registry.put(now_s, token, owner, entries, ttl_s))


async def _remove(service: TokenService, call: Call) -> Reply:
    token, owner = call.path("token"), call.path("owner")
    return service.change(lambda registry, now_s: registry.remove(now_s, token, owner))


def _number(call: Call, name: str, default: float) -> float:
    text = call.query.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidSpec(name, f"{json.dumps(text)} must be a number")
    return value


async def serve_tokens(
    host: Host,
    store: Store,
    config: ManagerConfig,
    service: TokenService,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve on `config.token_listen` until cancelled; started with the address.

    Raises:
        HostError: the address cannot be bound.
    """
    identity = ServerIdentity(host, store, config)
    listener = await host.net.listen(config.token_listen, identity.credentials)
    name, _, port = listener.address.removeprefix("tcp://").rpartition(":")
    service.address = f"{host.hostname if name in ('0.0.0.0', '[::]') else name}:{port}"
    await HttpServer(service, HttpLimits(body_bytes_max=4 << 20)).serve(listener, task_status)


__all__ = ["TokenService", "serve_tokens"]
