"""One API request and its reply, as the handlers see them."""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.routing import Route

from beeyard.core.errors import InvalidSpec, RequestError
from beeyard.manager.api.http_server import Receive, Scope, Send

C = TypeVar("C")

TRUE_WORDS = frozenset({"1", "true", "t", "yes"})
FALSE_WORDS = frozenset({"", "0", "false", "f", "no", "none"})
# Docker objects nest about ten deep; msgspec would stop by itself at a depth that depends on the stack.
JSON_DEPTH_MAX = 64

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class BadRequest(RequestError):
    """A request that is wrong in itself, in Docker's words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class Reply:
    """Status, body and extra headers. A `body` that is not bytes is encoded as JSON; None is empty."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self,
        body: object = None,
        status: int = 200,
        *,
        content_type: str = "application/json",
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        self.body = body if isinstance(body, bytes) else b"" if body is None else _encode(body) + b"\n"
        self.status = status
        # Exactly application/json: with a charset the docker command prints an error as raw JSON.
        self.content_type = content_type
        self.headers = headers


def error_reply(status: int, message: str) -> Reply:
    """An error in Docker's form."""
    return Reply({"message": message}, status)


class Call:
    """What a client asks: path parameters, query and body."""

    def __init__(self, scope: Scope, body: bytes) -> None:
        self._scope = scope
        self._body = body
        self.query: dict[str, str] = {}
        if scope["query_string"]:
            self.query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))

    @property
    def is_remote(self) -> bool:
        """Whether it comes from another machine, by TLS, and not through the unix socket."""
        peer = self._scope.get("extensions", {}).get("beeyard.peer", {})
        return peer.get("certificate") is not None

    @property
    def body(self) -> bytes:
        """The body as it came."""
        return self._body

    def path(self, name: str) -> str:
        """A parameter of the route."""
        value: str = self._scope["path_params"][name]
        return value

    def header(self, name: str) -> str:
        """A header by its name in lower case; "" when it is not sent."""
        wanted = name.encode("ascii")
        value: bytes = next((v for n, v in self._scope["headers"] if n == wanted), b"")
        return value.decode("latin-1")

    def flag(self, name: str, default: bool = False) -> bool:
        """A yes or no of the query. docker-py writes True and False.

        Raises:
            BadRequest
        """
        if name not in self.query:
            return default
        word = self.query[name].lower()
        if word in TRUE_WORDS:
            return True
        if word in FALSE_WORDS:
            return False
        raise BadRequest(f"invalid value {self.query[name]!r} for {name}: it is true or false")

    def version(self, kind: str) -> int:
        """The `version` that an update was made from.

        Raises:
            BadRequest: missing or not a number, in Docker's words.
        """
        text = self.query.get("version", "")
        if not re.fullmatch(r"[0-9]{1,19}", text):
            quoted = text.replace('"', '\\"')
            raise BadRequest(
                f"invalid {kind} version '{text}': strconv.ParseUint: parsing \"{quoted}\": invalid syntax"
            )
        return int(text)

    def json(self) -> Any:
        """The body, decoded.

        Raises:
            BadRequest: no JSON, or not sent as such, in Docker's words.
        """
        content_type = self.header("content-type")
        if self._body and content_type.partition(";")[0].strip().lower() not in ("", "application/json"):
            raise BadRequest(f"unsupported Content-Type header ({content_type}): must be 'application/json'")
        if not self._body.strip():
            raise BadRequest("invalid JSON: got EOF while reading request body")
        return decode_json(self._body)


def decode_json(data: bytes | str) -> Any:
    """Any JSON value whose depth is sane.

    Raises:
        BadRequest
    """
    try:
        value = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"invalid JSON: {error}") from error
    except RecursionError:
        raise BadRequest("invalid JSON: nested too deeply") from None
    _check_depth(value, JSON_DEPTH_MAX)
    return value


def _check_depth(value: object, depth: int) -> None:
    if depth == 0:
        raise BadRequest("invalid JSON: nested too deeply")
    if isinstance(value, dict):
        for item in value.values():
            if isinstance(item, dict | list):
                _check_depth(item, depth - 1)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict | list):
                _check_depth(item, depth - 1)


Handler = Callable[[Call], Awaitable[Reply]]


class Endpoint:
    """A handler as an ASGI application. Errors pass through: `app.App` turns them into replies."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body: bytes = (await receive())["body"]
        scope["beeyard.reply"] = await self._handler(Call(scope, body))


def route(method: str, path: str, handler: Callable[[C, Call], Awaitable[Reply]], context: C) -> Route:
    """A route to a handler that gets the manager's context first. GET answers HEAD as well."""
    return Route(path, Endpoint(functools.partial(handler, context)), methods=[method])


def require_object(value: object) -> dict[str, Any]:
    """A JSON object.

    Raises:
        InvalidSpec
    """
    if not isinstance(value, dict):
        raise InvalidSpec("body", "it must be a JSON object")
    return value


__all__ = [
    "BadRequest",
    "Call",
    "Endpoint",
    "Handler",
    "Reply",
    "decode_json",
    "error_reply",
    "require_object",
    "route",
]
