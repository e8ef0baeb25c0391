"""The control socket of a daemon that gossips: what `beeyard members` and its like ask, over a unix socket.

One connection is one request: a line of JSON that says what to `do`, then lines of JSON that answer it. The last one has
`done`, or `error` with a sentence for a person. Payloads and keys are in base64. Who may ask is the socket's mode and group:
root, and whoever may use the API; keys of the cluster are among what they can read.
"""

from __future__ import annotations

import base64
import binascii
import difflib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import structlog
import trio

from beeyard.core.errors import ClusterError, HostError, InvalidSpec
from beeyard.discovery.gossip.metrics import exposition
from beeyard.discovery.gossip.node import GossipNode
from beeyard.discovery.gossip.serf.event import KeysDone, Member, QueryAck, QueryAnswer
from beeyard.discovery.gossip.wire.keyring import decode_key
from beeyard.runtime.host import Connection, Net

# An event is 512 bytes and a question 1,024; names and expressions come on top, all of it in base64 and JSON.
REQUEST_BYTES_MAX = 64 << 10
REQUEST_S = 10.0
# For a line to be taken by whoever asked.
SEND_S = 10.0
CONNECTIONS_MAX = 32
NEAR_NAMES = 3

log = structlog.get_logger(__name__)

Answer = dict[str, Any]
Say = Callable[[Answer], Awaitable[None]]


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="do"):
    """What somebody wants."""


class Members(Request, frozen=True, tag="members"):
    """All members."""


class SendEvent(Request, frozen=True, tag="event"):
    """Send a user event."""

    name: str
    payload: str = ""
    coalesce: bool = True


class Ask(Request, frozen=True, tag="query"):
    """Ask members, and tell of each answer as it comes."""

    name: str
    payload: str = ""
    nodes: tuple[str, ...] = ()
    tags: dict[str, str] = {}  # tag: expression that it must match
    ack: bool = True
    relay_factor: int = 0
    timeout_s: float | None = None


class Keys(Request, frozen=True, tag="keys"):
    """Change or list the keys of all members. `action`: list, install, use, remove."""

    action: str
    key: str = ""


class Rtt(Request, frozen=True, tag="rtt"):
    """The estimated round-trip time between two members; `other` "": this one."""

    one: str
    other: str = ""


class ForceLeave(Request, frozen=True, tag="force-leave"):
    """Have a failed member count as one that left."""

    node: str
    prune: bool = False


class Metrics(Request, frozen=True, tag="metrics"):
    """This member's figures in Prometheus' text format."""


AnyRequest = Members | SendEvent | Ask | Keys | Rtt | ForceLeave | Metrics
_decoder: msgspec.json.Decoder[AnyRequest] = msgspec.json.Decoder(AnyRequest)


async def offer_control(
    net: Net,
    node: GossipNode,
    address: str,
    *,
    group: str = "beeyard",
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer commands until cancelled; started once somebody can ask, or nobody can: the daemon is to run all the same.

    Args:
        node: the running gossip node.
        address: "unix:///PATH"; "": nobody is to ask.
        group: who may ask besides root; one that does not exist is nobody.
    """
    if not address:
        task_status.started()
        return
    try:
        listener = await net.listen(address, socket_mode=0o660, socket_group=group)
    except HostError as error:
        log.warning("commands about gossip cannot ask this daemon", reason=str(error))
        task_status.started()
        return
    task_status.started()
    try:
        await listener.serve(Control(node).handle)
    finally:
        with trio.move_on_after(1.0, shield=True):
            await listener.aclose()


class _Wrong(Exception):
    """What is asked cannot be answered; the text is for the person who asked."""


class Control:
    """Answers what is asked of one gossip node."""

    def __init__(self, node: GossipNode) -> None:
        self._node = node
        self._n_connections = 0

    async def handle(self, connection: Connection) -> None:
        """One connection: one request. One that is too slow, or gone, is hung up on."""
        if self._n_connections >= CONNECTIONS_MAX:
            return
        self._n_connections += 1
        try:
            await self._serve(connection.stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
            log.debug("a command has gone away", reason=type(error).__name__)
        finally:
            self._n_connections -= 1

    async def _serve(self, stream: trio.abc.Stream) -> None:
        line = await _read_line(stream)
        if line is None:
            return
        try:
            request = _decoder.decode(line)
            await self._answer(request, partial(_send, stream))
        except msgspec.MsgspecError as error:
            await _send(stream, {"error": f"the request cannot be read: {error}; is this command of another release?"})
        except (ClusterError, _Wrong) as error:
            await _send(stream, {"error": str(error)})

    async def _answer(self, request: AnyRequest, say: Say) -> None:
        node = self._node
        match request:
            case Members():
                await say({"done": self._members()})
            case SendEvent():
                node.send_event(request.name, _decoded(request.payload, "payload"), coalesce=request.coalesce)
                await say({"done": {}})
            case Ask():
                await self._ask(request, say)
            case Keys():
                await say({"done": self._shown_keys(await self._keys(request))})
            case Rtt():
                await say({"done": self._rtt(request)})
            case ForceLeave():
                self._force_leave(request)
                await say({"done": {}})
            case Metrics():
                await say({"done": {"text": exposition(node.figures(), node.me.name)}})

    def _members(self) -> Answer:
        now_s = trio.current_time()
        return {
            "me": self._node.me.name,
            "health": int(self._node.figures()["health_score"]),
            "members": [self._shown(member, now_s) for member in self._node.members()],
        }

    def _shown(self, member: Member, now_s: float) -> Answer:
        """A member; the first names are those of `serf members -format json`."""
        return {
            "name": member.name,
            "addr": str(member.address),
            "port": member.address.port,
            "tags": dict(sorted(member.tags.items())),
            "status": member.status,
            "protocol": _versions(member.delegate),
            "swim_protocol": _versions(member.protocol),
            "suspected": member.status == "alive" and self._node.is_suspect(member.name),
            "age_s": round(max(0.0, now_s - member.since_s), 1),
        }

    async def _ask(self, request: Ask, say: Say) -> None:
        for name in request.nodes:
            self._known(name)
        answers = self._node.query(
            request.name,
            _decoded(request.payload, "payload"),
            nodes=request.nodes,
            tags=request.tags or None,
            ack=request.ack,
            relay_factor=request.relay_factor,
            timeout_s=request.timeout_s,
        )
        n_acks = n_answers = 0
        try:
            async for event in answers:
                match event:
                    case QueryAck():
                        n_acks += 1
                        await say({"ack": event.from_node})
                    case QueryAnswer():
                        n_answers += 1
                        await say({"from": event.from_node, "payload": base64.b64encode(event.payload).decode()})
        finally:
            answers.close()
        await say({"done": {"acks": n_acks, "responses": n_answers}})

    async def _keys(self, request: Keys) -> KeysDone:
        if request.action == "list":
            return await self._node.list_keys()
        change = {"install": self._node.install_key, "use": self._node.use_key, "remove": self._node.remove_key}
        if request.action not in change:
            raise InvalidSpec("action", f"{request.action!r} is none of list, install, use, remove")
        return await change[request.action](decode_key(request.key))

    def _shown_keys(self, done: KeysDone) -> Answer:
        return {
            "members": done.n_members,
            "answered": done.n_answers,
            "good": done.n_good,
            "messages": dict(sorted(done.messages.items())),
            "keys": done.keys,
            "primary_keys": done.primary_keys,
        }

    def _force_leave(self, request: ForceLeave) -> None:
        member = self._known(request.node)
        # It would contradict within a second, and whoever asked would believe that it had worked.
        if member.status == "alive" and member.name != self._node.me.name and not self._node.is_suspect(member.name):
            raise _Wrong(
                f"{member.name} is alive: only one that failed can count as one that left; stop its daemon first"
            )
        self._node.force_leave(member.name, prune=request.prune)

    def _rtt(self, request: Rtt) -> Answer:
        one, other = self._known(request.one).name, self._known(request.other or self._node.me.name).name
        rtt_s = self._node.rtt_s(one, other)
        if rtt_s is None:
            unknown = ", ".join(name for name in (one, other) if self._node.coordinate(name) is None)
            raise _Wrong(f"where {unknown} is is not known yet: this member has not probed it; try again in a minute")
        return {"one": one, "other": other, "rtt_s": rtt_s}

    def _known(self, name: str) -> Member:
        """A member by its name. Raises _Wrong when nobody is called so; says who is called nearly so."""
        member = self._node.member(name)
        if member is not None:
            return member
        names = [known.name for known in self._node.members()]
        near = sorted(difflib.get_close_matches(name, names, NEAR_NAMES, 0.5)) or names[:NEAR_NAMES]
        more = "" if len(names) <= len(near) else ", …"
        raise _Wrong(f"there is no member {name}, but {', '.join(near)}{more}")


def _versions(versions: tuple[int, int, int]) -> dict[str, int]:
    return {"min": versions[0], "max": versions[1], "version": versions[2]}


def _decoded(text: str, field: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidSpec(field, f"{text!r:.80} is no base64") from error


async def _read_line(stream: trio.abc.Stream) -> bytes | None:
    """The request; None when there is none."""
    buffer = b""
    with trio.move_on_after(REQUEST_S):
        while b"\n" not in buffer and len(buffer) <= REQUEST_BYTES_MAX:
            data = await stream.receive_some(4096)
            if not data:
                return None
            buffer += data
        if len(buffer) > REQUEST_BYTES_MAX:
            await _send(stream, {"error": f"the request has more than {REQUEST_BYTES_MAX} bytes"})
            return None
        return buffer.partition(b"\n")[0]
    return None


async def _send(stream: trio.abc.Stream, answer: Answer) -> None:
    with trio.fail_after(SEND_S):
        await stream.send_all(msgspec.json.encode(answer) + b"\n")


__all__ = ["Control", "offer_control"]
