"""One IPAM plugin: where it is, whether it is active, and the calls that it takes.

A plugin is activated by the first call, once; an activation that failed, or whose plugin could not be reached later, is not
kept, so that a plugin which comes back is greeted anew. What has to be told to a plugin which begins with empty books
(`RequiresRequestReplay`) is told by `replay`, before any other call and after those that are under way: an address that was
just given back must not be asked for again.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import msgspec
import structlog
import trio

from beeyard.manager.config import IpamConfig
from beeyard.manager.ipam import protocol
from beeyard.manager.ipam.discovery import connect
from beeyard.manager.ipam.fault import FaultKind, PluginFault, quote
from beeyard.manager.ipam.http import BadAnswer, post
from beeyard.runtime.host import Connection, Host

T = TypeVar("T")

# The first pause before connecting anew, doubled each time. Source: moby pkg/plugins `backoff`, which begins with 1 s.
RETRY_S = 1.0

log = structlog.get_logger(__name__)

# What the plugin calls a pool, looked up once it is activated: who is told everything again may give other names.
PoolId = Callable[[], str]


class Plugin:
    """Calls one plugin. Every method raises PluginFault."""

    def __init__(self, host: Host, config: IpamConfig, name: str) -> None:
        self.name = name
        self.capabilities = protocol.Capabilities()
        # Told of an activation before anything else is asked; for plugins that begin with empty books.
        self.replay: Callable[[Plugin], Awaitable[None]] | None = None
        self._host = host
        self._config = config
        self._space = ""
        self._active = False
        self._activating = trio.Lock()
        self._n_calls = 0  # under way, without those that greet it
        self._idle = trio.Event()

    async def activate(self, *, retry: bool = False) -> None:
        """Greet the plugin, unless that was done. `retry`: a plugin that cannot be reached may come within the deadline."""
        if self._active:
            return
        async with self._activating:
            if self._active:
                return
            while self._n_calls:
                self._idle = trio.Event()
                await self._idle.wait()
            try:
                await self._greet(retry)
            except PluginFault as fault:
                # Nothing but a greeting can be in doubt.
                fault.in_doubt = False
                raise
            self._active = True
            log.info("IPAM plugin activated", plugin=self.name)

    async def _greet(self, retry: bool) -> None:
        answer = await self._call("Plugin.Activate", None, protocol.Activated, retry=retry)
        if "IpamDriver" not in (answer.Implements or []):
            known = ", ".join(answer.Implements or []) or "nothing"
            raise PluginFault(self.name, FaultKind.MISSING, f"it is no IPAM driver: it implements {quote(known)}")
        try:
            self.capabilities = await self._call("IpamDriver.GetCapabilities", None, protocol.Capabilities)
        except _NotFound:
            self.capabilities = protocol.Capabilities()
        spaces = await self._call("IpamDriver.GetDefaultAddressSpaces", None, protocol.AddressSpaces)
        self._space = spaces.GlobalDefaultAddressSpace
        if self.capabilities.RequiresRequestReplay and self.replay is not None:
            await self.replay(self)

    def forget(self) -> None:
        """It may be another process by now: the next call activates it anew."""
        self._active = False

    async def request_pool(
        self, subnet: str, ip_range: str, options: dict[str, str], *, v6: bool, retry: bool = False
    ) -> protocol.Pool:
        """Ask for a pool; "" as subnet lets the plugin choose."""
        async with self._calling(retry=retry):
            return await self.ask_pool(subnet, ip_range, options, v6=v6)

    async def ask_pool(self, subnet: str, ip_range: str, options: dict[str, str], *, v6: bool) -> protocol.Pool:
        """As `request_pool`, of a plugin that is being activated."""
        body = protocol.RequestPool(
            AddressSpace=self._space, Pool=subnet, SubPool=ip_range, Options=options or None, V6=v6
        )
        pool = await self._call("IpamDriver.RequestPool", body, protocol.Pool)
        if not pool.PoolID or not pool.Pool:
            raise PluginFault(self.name, FaultKind.JUNK, "it gave a pool without a name or subnet", in_doubt=True)
        return pool

    async def release_pool(self, pool_id: PoolId) -> None:
        """Give a pool back. Idempotent, as far as it is in the plugin."""
        async with self._calling():
            await self._call("IpamDriver.ReleasePool", protocol.ReleasePool(PoolID=pool_id()), protocol.Done)

    async def request_address(
        self, pool_id: PoolId, options: dict[str, str], address: str = "", *, deadline_s: float = 0.0
    ) -> str:
        """Ask for an address, or for this one; gives it as the plugin says it, "10.201.0.21/24" when all is well.

        Args:
            pool_id: in which pool.
            options: what the plugin is told of whom it is for.
            address: "" for any.
            deadline_s: for the answer; 0: the configured one.
        """
        async with self._calling():
            return await self.ask_address(pool_id(), options, address, deadline_s=deadline_s)

    async def ask_address(
        self, pool_id: str, options: dict[str, str], address: str = "", *, deadline_s: float = 0.0
    ) -> str:
        """As `request_address`, of a plugin that is being activated."""
        body = protocol.RequestAddress(PoolID=pool_id, Address=address, Options=options or None)
        answer = await self._call("IpamDriver.RequestAddress", body, protocol.Address, deadline_s=deadline_s)
        return answer.Address

    async def release_address(self, pool_id: PoolId, address: str) -> None:
        """Give an address back, without its prefix length."""
        async with self._calling():
            body = protocol.ReleaseAddress(PoolID=pool_id(), Address=address.partition("/")[0])
            await self._call("IpamDriver.ReleaseAddress", body, protocol.Done)

    # --- one call

    @contextlib.asynccontextmanager
    async def _calling(self, *, retry: bool = False) -> AsyncIterator[None]:
        """Within, it is active and nobody greets it: between `activate` and the count there is no checkpoint."""
        await self.activate(retry=retry)
        self._n_calls += 1
        try:
            yield
        finally:
            self._n_calls -= 1
            if not self._n_calls:
                self._idle.set()

    async def _call(
        self,
        method: str,
        body: msgspec.Struct | None,
        kind: type[T],
        *,
        retry: bool = False,
        deadline_s: float = 0.0,
    ) -> T:
        """Raises PluginFault; what was never sent, and what was refused, is not in doubt."""
        patience_s = deadline_s or self._config.deadline_s
        sent = False
        try:
            with trio.fail_after(patience_s):
                connection = await self._connect(retry, trio.current_time() + self._config.deadline_s)
                try:
                    sent = True
                    status, answer = await post(connection.stream, method, b"" if body is None else _encode(body))
                finally:
                    await trio.aclose_forcefully(connection.stream)
        except trio.TooSlowError:
            self._active = False
            raise PluginFault(self.name, FaultKind.HUNG, f"no answer within {patience_s:g} s", in_doubt=sent) from None
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._active = False
            reason = "the connection broke before it answered"
            raise PluginFault(self.name, FaultKind.UNREACHABLE, reason, in_doubt=sent) from None
        except BadAnswer as error:
            self._active = False
            raise PluginFault(self.name, FaultKind.JUNK, str(error), in_doubt=sent) from None
        except PluginFault:
            self._active = False
            raise
        return self._read(method, status, answer, kind)

    async def _connect(self, retry: bool, until_s: float) -> Connection:
        pause_s = RETRY_S
        while True:
            try:
                return await connect(self._host, self._config, self.name, timeout_s=self._config.deadline_s)
            except PluginFault as fault:
                again = retry and fault.kind is FaultKind.UNREACHABLE
                if not again or trio.current_time() + pause_s >= until_s:
                    raise
            await trio.sleep(pause_s)
            pause_s *= 2

    def _read(self, method: str, status: int, answer: bytes, kind: type[T]) -> T:
        error = _error_in(answer)
        if status != 200:
            reason = quote(error or answer.decode("utf-8", "replace")) or f"HTTP status {status}"
            fault = _NotFound if status == 404 else PluginFault
            raise fault(self.name, FaultKind.REFUSED, f"it refused {method}: {reason}")
        if error:
            raise PluginFault(self.name, FaultKind.REFUSED, f"it refused {method}: {quote(error)}")
        try:
            # Plugins written in Go may answer a call that gives nothing with nothing.
            return msgspec.json.decode(answer or b"{}", type=kind)
        except _UNREADABLE as problem:
            reason = f"its answer to {method} cannot be read ({problem}): {quote(answer.decode('utf-8', 'replace'))}"
            raise PluginFault(self.name, FaultKind.JUNK, reason, in_doubt=True) from None


class _NotFound(PluginFault):
    """The plugin does not know the method."""


_encode = msgspec.json.Encoder().encode
# What a decoder raises for bytes that are not what was expected; the last, when they are nested too deeply.
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def _error_in(answer: bytes) -> str:
    try:
        error = msgspec.json.decode(answer, type=protocol.Error)
    except _UNREADABLE:
        return ""
    return error.Error or error.Err


__all__ = ["Plugin"]
