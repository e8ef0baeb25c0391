"""TCP: each connection is one exchange with a deadline over the whole of it."""

from __future__ import annotations

import collections
from collections.abc import Callable

import trio

from beeyard.core.errors import PeerError, PortClosed, RemoteProtocolError
from beeyard.discovery.gossip.message import Ack, Address, Message, Ping, PushPull, StreamError, User
from beeyard.discovery.gossip.quiet_log import QuietLog
from beeyard.discovery.gossip.serf.serf import Serf
from beeyard.discovery.gossip.wire.keyring import Keyring
from beeyard.discovery.gossip.wire.limits import StreamLimits
from beeyard.discovery.gossip.wire.stream import StreamReader, frame
from beeyard.runtime.host import Connection, Net

# Source: maxPushPullRequests in memberlist 0.2.2 net.go. Beyond it a connection is closed without a word.
SERVED_MAX = 128
# No peer takes all of them by connecting and saying nothing. Many members may share a host, or stand behind one address.
SERVED_PER_PEER_MAX = 96
READ_BYTES = 65536
# A cluster of 10,000 says some 1.5 MB, and everything else waits while it is read: up to 50 ms.
LIMITS = StreamLimits(frame_bytes_max=2 << 20, plain_bytes_max=2 << 20, user_bytes_max=1 << 20)


class Exchanges:
    """Both sides of every exchange of one member.

    Args:
        after: called after each call of the rules that may leave commands behind.
    """

    def __init__(
        self,
        net: Net,
        serf: Serf,
        keyring: Keyring,
        quiet: QuietLog,
        after: Callable[[], None],
        *,
        timeout_s: float,
        verify_incoming: bool,
        verify_outgoing: bool,
    ) -> None:
        self.n_bytes_sent = self.n_bytes_received = 0
        self.n_served = self.n_refused = self.n_failed = 0
        self._net = net
        self._serf = serf
        self._keyring = keyring
        self._quiet = quiet
        self._after = after
        self._timeout_s = timeout_s
        self._verify_incoming = verify_incoming
        self._verify_outgoing = verify_outgoing
        self._n_serving: collections.Counter[str] = collections.Counter()

    # --- asking

    async def push_pull(self, to: Address, *, join: bool) -> None:
        """Exchange all that is known with a peer, and take its part over.

        Raises:
            PeerError: there was no answer in time, or none that can be merged; says why.
        """
        answer = await self._ask(to, lambda: self._serf.push_pull(trio.current_time(), join=join), self._timeout_s)
        if not isinstance(answer, PushPull):
            raise RemoteProtocolError(f"{to} answered a push/pull with {type(answer).__name__}")
        try:
            self._serf.merge(trio.current_time(), answer, join=join)
            if join:
                self._serf.joined(trio.current_time())
        finally:
            self._after()

    async def ping(self, to: Address, ping: Message, seq_no: int, timeout_s: float) -> None:
        """Ask over TCP whether a peer is there, and tell the rules if it is. Failing says nothing, and is not logged."""
        try:
            answer = await self._ask(to, lambda: ping, timeout_s)
        except PortClosed:
            self._serf.stream_refused(trio.current_time(), seq_no)
            self._after()
            return
        except PeerError:
            return
        if isinstance(answer, Ack) and answer.seq_no == seq_no:
            self._serf.stream_ack(trio.current_time(), seq_no)
            self._after()

    async def _ask(self, to: Address, question: Callable[[], Message], timeout_s: float) -> Message:
        """Connect, say something, read what comes back."""
        connection: Connection | None = None
        try:
            with trio.fail_after(timeout_s):
                connection = await self._net.dial(f"tcp://{to}", timeout_s=timeout_s)
                await self._send(connection, question())
                answer = await self._read(connection)
        except trio.TooSlowError:
            raise PeerError(f"{to} did not answer within {timeout_s:g} s") from None
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise PeerError(f"the connection to {to} broke: {error}") from error
        finally:
            if connection is not None:
                await trio.aclose_forcefully(connection.stream)
        if answer is None:
            raise PeerError(f"{to} hung up without an answer")
        if isinstance(answer, StreamError):
            raise PeerError(f"{to} refused: {answer.error[:200]}")
        return answer

    # --- answering

    async def serve(self, connection: Connection) -> None:
        """Answer whoever connected. Never raises for what he does."""
        peer = connection.remote.removeprefix("tcp://")
        host = peer.rpartition(":")[0]
        if self._n_serving.total() >= SERVED_MAX or self._n_serving[host] >= SERVED_PER_PEER_MAX:
            self.n_refused += 1
            return
        self._n_serving[host] += 1
        try:
            with trio.fail_after(self._timeout_s):
                await self._answer(connection, peer)
            self.n_served += 1
        except (trio.TooSlowError, trio.BrokenResourceError, trio.ClosedResourceError):
            self.n_failed += 1
        finally:
            self._n_serving[host] -= 1
            if not self._n_serving[host]:
                del self._n_serving[host]

    async def _answer(self, connection: Connection, peer: str) -> None:
        try:
            message = await self._read(connection)
            await self._answer_with(connection, message)
        except RemoteProtocolError as error:
            self.n_failed += 1
            self._quiet.warn("a peer sent what is no exchange", peer=peer, reason=str(error))
            await self._send(connection, StreamError(error=str(error)))
        finally:
            self._after()

    async def _answer_with(self, connection: Connection, message: Message | None) -> None:
        match message:
            case PushPull(join=join):
                # Before merging, as memberlist does: who joins does not hear of himself.
                await self._send(connection, self._serf.push_pull(trio.current_time(), join=join))
                if message.nodes:
                    self._serf.merge(trio.current_time(), message, join=join)
            case Ping():
                if (answer := self._serf.answer_stream_ping(message)) is not None:
                    await self._send(connection, answer)
            case User():
                self._serf.handle(trio.current_time(), message, _address(connection.remote))
            case _:  # nothing at all, or an answer to no question
                pass

    # --- both

    async def _send(self, connection: Connection, message: Message) -> None:
        compress = isinstance(message, PushPull)
        data = frame(message, self._keyring, verify_outgoing=self._verify_outgoing, compress=compress)
        self.n_bytes_sent += len(data)
        if isinstance(message, PushPull):
            self._serf.state_sent(len(data))
        await connection.stream.send_all(data)

    async def _read(self, connection: Connection) -> Message | None:
        """The message that comes, or None when the peer hangs up first.

        Raises:
            RemoteProtocolError
        """
        reader = StreamReader(self._keyring, verify_incoming=self._verify_incoming, limits=LIMITS)
        while data := await connection.stream.receive_some(READ_BYTES):
            self.n_bytes_received += len(data)
            message = reader.feed(bytes(data))
            if message is not None:
                return message
        reader.end()
        return None


def _address(remote: str) -> Address:
    host, _, port = remote.removeprefix("tcp://").rpartition(":")
    return Address(host.strip("[]"), int(port))


__all__ = ["SERVED_MAX", "SERVED_PER_PEER_MAX", "Exchanges"]
