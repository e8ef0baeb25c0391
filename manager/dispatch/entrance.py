"""The first message of a connection and what can be answered at once: which CA is this, let me join, no.

Strangers get here, so everything is bounded: how many there are, how long they may think, how much they may send.
"""

from __future__ import annotations

import structlog
import trio

from beeyard.core.errors import DiskError, RemoteProtocolError
from beeyard.core.wire import (
    FRAME_BYTES_MAX,
    CaReply,
    CaRequest,
    FromAgent,
    Hello,
    JoinRequest,
    Refused,
    from_agent_decoder,
)
from beeyard.manager.ca import Authority
from beeyard.manager.dispatch.admission import RELEASE_PAUSE_S
from beeyard.runtime.frames import FrameStream
from beeyard.runtime.host import Connection

FIRST_MESSAGE_S = 10.0
# Connections that have not said yet what they are for. More than any reconnecting cluster keeps open for long. Those that
# show a certificate and those that do not are counted apart: who wants to join must not keep members out.
STRANGERS_MAX = 1024
# A join request is 1 KiB; whoever shows no certificate may not make us buffer more than this.
STRANGER_FRAME_BYTES_MAX = 65536
# For the only answer of a connection, to somebody who may not be listening.
ANSWER_S = 2.0

log = structlog.get_logger(__name__)


class Entrance:
    """Greets connections; what is left for the caller is a `Hello` on one that shows a certificate."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self._n_strangers = {False: 0, True: 0}  # by whether they show a certificate

    async def greet(self, connection: Connection, *, manager_node_connected: bool) -> Visitor | None:
        """Hear what a connection is for and deal with it; somebody who wants a session is returned.

        Raises:
            trio.BrokenResourceError: the connection is gone.
        """
        limit = FRAME_BYTES_MAX if connection.peer is not None else STRANGER_FRAME_BYTES_MAX
        visitor = Visitor(connection, FrameStream(connection.stream, from_agent_decoder, limit))
        match await self._first_message(visitor.frames, connection.peer is not None):
            case None:
                pass
            case Refused() as refused:
                await visitor.refuse(refused)
            case CaRequest():
                await visitor.say(CaReply(ca_certificate_pem=self._authority.cluster.ca_certificate_pem))
            case JoinRequest() as request:
                await self._join(visitor, request, manager_node_connected)
            case Hello() as hello if connection.peer is not None:
                visitor.hello = hello
                return visitor
            case Hello():
                await visitor.refuse(Refused(reason="a session needs a certificate of this cluster: join first"))
            case other:
                reason = f"a connection cannot begin with {type(other).__name__}"
                await visitor.refuse(Refused(reason=reason, retry=True, pause_s=RELEASE_PAUSE_S))
        return None

    async def _first_message(self, frames: FrameStream[FromAgent], is_member: bool) -> FromAgent | Refused | None:
        if self._n_strangers[is_member] >= STRANGERS_MAX:
            return Refused(reason="too many connections at once", retry=True)
        self._n_strangers[is_member] += 1
        try:
            with trio.fail_after(FIRST_MESSAGE_S):
                return await frames.receive()
        except trio.TooSlowError:
            return Refused(reason=f"no message within {FIRST_MESSAGE_S:g} s", retry=True)
        except RemoteProtocolError as error:
            return Refused(reason=str(error), retry=True, pause_s=RELEASE_PAUSE_S)
        finally:
            self._n_strangers[is_member] -= 1

    async def _join(self, visitor: Visitor, request: JoinRequest, manager_node_connected: bool) -> None:
        try:
            reply = await self._authority.join(request, manager_node_connected=manager_node_connected)
            if isinstance(reply, Refused):
                await visitor.refuse(reply)
            elif not await visitor.say(reply):
                await self._authority.withdraw(reply)
        except DiskError as error:
            await visitor.refuse(disk_refusal(error))


class Visitor:
    """A connection that is no session (yet)."""

    def __init__(self, connection: Connection, frames: FrameStream[FromAgent]) -> None:
        self.connection = connection
        self.frames = frames
        self.hello: Hello | None = None

    async def say(self, message: object) -> bool:
        """Send the only message of a connection; False when it cannot have arrived."""
        try:
            with trio.fail_after(ANSWER_S):
                await self.frames.send([message])
        except (trio.TooSlowError, trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        return True

    async def refuse(self, refused: Refused) -> None:
        """Say no, as far as the other side listens."""
        peer = self.connection.peer
        log.warning("refused", remote=self.connection.remote, node=peer.node_id if peer else "", reason=refused.reason)
        await self.say(refused)


def disk_refusal(error: DiskError) -> Refused:
    """What an agent is told when the store does not work."""
    return Refused(reason=f"this manager cannot store anything now: {error.reason}", retry=True)
