"""ZooKeeper, by kazoo, whose own threads hold the session. Imported when a list is published there."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import trio
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from beeyard.core.errors import PeerError
from beeyard.runtime.host_lists import ClientTls, Znode
from beeyard.runtime.real_client_tls import client_context

T = TypeVar("T")

ANSWER_S = 5.0
# Tries to replace what another session has at a path, when it changes while we do.
TRIES = 5


class _LastWords(logging.Handler):
    """What kazoo has said last, for our own errors: it tells nobody else why it does not get through."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.words = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.words = record.getMessage()


class RealZooKeeper:
    """`ZooKeeper` over the network of this machine."""

    def __init__(self, servers: Sequence[str], session_s: float, tls: ClientTls | None = None) -> None:
        self._servers = ",".join(servers)
        if tls is not None:
            client_context(tls)  # kazoo would come upon a file that is not right in its own thread, again and again
        logger = logging.Logger("kazoo", logging.WARNING)  # of its own: nothing goes to the log by itself
        self._said = _LastWords()
        logger.addHandler(self._said)
        self._client = KazooClient(
            hosts=self._servers,
            timeout=session_s,
            # For ever, and often enough that a server that comes back finds us before it gives the session up.
            connection_retry={"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": min(1.0, session_s / 8)},
            logger=logger,
            use_ssl=tls is not None,
            check_hostname=tls is not None,
            ca=tls.ca_file or None if tls is not None else None,
            certfile=tls.certificate_file or None if tls is not None else None,
            keyfile=tls.key_file or None if tls is not None else None,
        )
        self._started = False
        self._starting = trio.Lock()
        self._changed = trio.Event()
        self._news = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None

    async def session(self) -> int:
        """See `ZooKeeper.session`."""
        await self._ready()
        number: int = self._client.client_id[0]
        return number

    async def children(self, paths: Sequence[str]) -> list[dict[str, Znode]]:
        """See `ZooKeeper.children`."""
        await self._ready()
        self._changed = trio.Event()
        return await self._in_thread(lambda: [self._read(path) for path in paths])

    async def changed(self) -> None:
        """See `ZooKeeper.changed`."""
        await self._changed.wait()

    async def put_ephemeral(self, path: str, data: bytes) -> None:
        """See `ZooKeeper.put_ephemeral`."""
        await self._ready()
        await self._in_thread(functools.partial(self._put, path, data))

    async def delete(self, path: str) -> None:
        """See `ZooKeeper.delete`."""
        await self._ready()
        await self._in_thread(functools.partial(self._delete, path))

    async def aclose(self) -> None:
        """See `ZooKeeper.aclose`."""
        if self._started:
            self._started = False
            await trio.to_thread.run_sync(self._stop, abandon_on_cancel=True)

    async def _ready(self) -> None:
        """Connect at the first use; later wait a moment for a connection that is on its way."""
        async with self._starting:
            if not self._started:
                self._token = trio.lowlevel.current_trio_token()
                self._client.add_listener(self._state_changed)
                self._started = True
                self._client.start_async()
        with trio.move_on_after(ANSWER_S):
            while True:
                news = self._news
                if self._client.connected:
                    self._said.words = ""
                    return
                await news.wait()
        why = f": {self._said.words[:1].lower()}{self._said.words[1:]}" if self._said.words else ""
        raise PeerError(f"cannot reach ZooKeeper at {self._servers}: no connection in {ANSWER_S:.0f} s{why}")

    async def _in_thread(self, job: Callable[[], T]) -> T:
        try:
            return await trio.to_thread.run_sync(job, abandon_on_cancel=True)
        except KazooTimeoutError as error:
            raise PeerError(f"ZooKeeper at {self._servers}: no answer in {ANSWER_S:.0f} s") from error
        except (KazooException, OSError) as error:
            words = f"{type(error).__name__} {error}".strip()
            raise PeerError(f"ZooKeeper at {self._servers}: {words}") from error

    # --- in threads

    def _state_changed(self, state: str) -> None:
        """Called by kazoo's threads."""
        self._soon(self._set_changed)
        self._soon(self._set_news)

    def _fire(self, event: object) -> None:
        """Called by kazoo's threads; one callable for all paths, so that each path keeps it once."""
        self._soon(self._set_changed)

    def _soon(self, job: Callable[[], None]) -> None:
        assert self._token is not None, "it was started"
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(job)

    def _set_changed(self) -> None:
        self._changed.set()

    def _set_news(self) -> None:
        self._news.set()
        self._news = trio.Event()

    def _read(self, path: str) -> dict[str, Znode]:
        # It watches for a path to appear as well as for changes.
        if self._client.exists_async(path, watch=self._fire).get(timeout=ANSWER_S) is None:
            return {}
        try:
            names = self._client.get_children_async(path, watch=self._fire).get(timeout=ANSWER_S)
        except NoNodeError:
            return {}
        asked = {n: self._client.get_async(f"{path}/{n}", watch=self._fire) for n in sorted(names)}
        found = {}
        for name, answer in asked.items():
            try:
                data, stat = answer.get(timeout=ANSWER_S)
            except NoNodeError:
                continue
            found[name] = Znode(bytes(data or b""), int(stat.ephemeralOwner))
        return found

    def _put(self, path: str, data: bytes) -> None:
        for _ in range(TRIES):
            try:
                if self._put_once(path, data):
                    return
            except (NodeExistsError, NoNodeError, BadVersionError):
                continue
        raise PeerError(f"ZooKeeper at {self._servers}: {path} changes each time it is written")

    def _put_once(self, path: str, data: bytes) -> bool:
        stat = self._client.exists_async(path).get(timeout=ANSWER_S)
        if stat is None:
            self._client.create_async(path, data, ephemeral=True, makepath=True).get(timeout=ANSWER_S)
            return True
        if stat.ephemeralOwner == self._client.client_id[0]:
            self._client.set_async(path, data).get(timeout=ANSWER_S)
            return True
        exchange: Any = self._client.transaction()
        exchange.delete(path, version=stat.version)
        exchange.create(path, data, ephemeral=True)
        return not any(isinstance(done, Exception) for done in exchange.commit_async().get(timeout=ANSWER_S))

    def _delete(self, path: str) -> None:
        try:
            self._client.delete_async(path).get(timeout=ANSWER_S)
        except NoNodeError:
            return

    def _stop(self) -> None:
        self._client.stop()
        self._client.close()


__all__ = ["RealZooKeeper"]
