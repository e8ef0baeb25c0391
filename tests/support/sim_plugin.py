"""An IPAM plugin on a simulated machine: an HTTP server on its network, with books of its own and a script of faults.

`SimPlugin` outlives its processes as a machine's disk does: `run` is one life of the process, for `SimWorld.start` or a
nursery. Its books are kept or lost with a life, as `persistent` says. What goes wrong with each call is drawn by `script`.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import h11
import trio

from beeyard.runtime.host import Connection, Host
from tests.support.plugin_books import Books, answer

# What may happen to a call. "lost" faults act and then keep the answer; those before act on nothing.
FAULTS = (
    "slow",  # answers after `slow_s`
    "cut before",  # hangs up before it does anything
    "cut after",  # does it, and hangs up before it says so
    "late",  # does it at once, and says so after `late_s`, which is past every deadline
    "error",  # says an error
    "status",  # says an error by its HTTP status
    "junk",  # does it, and says what is no JSON
    "twice",  # gives an address that somebody has already, without noting it
    "outside",  # gives an address that is not in the pool, without noting it
)
# Not drawn: "deep" does it, and says what is nested deeper than a decoder can follow; "other pool", of RequestPool alone,
# gives the pool and says another subnet.
Script = Callable[[str, dict[str, Any]], str]  # (method, body) → a fault or ""


def no_faults(method: str, body: dict[str, Any]) -> str:
    """Everything works."""
    return ""


class Seeded:
    """Draws a fault for a share of the calls to the methods that tasks need; `stop` ends that."""

    def __init__(self, rng: random.Random, share: float, faults: tuple[str, ...] = FAULTS) -> None:
        self.share = share
        self._rng = rng
        self._faults = faults

    def stop(self) -> None:
        """From now on everything works."""
        self.share = 0.0

    def __call__(self, method: str, body: dict[str, Any]) -> str:
        if not method.endswith(("RequestAddress", "ReleaseAddress")) or self._rng.random() >= self.share:
            return ""
        fault = self._rng.choice(self._faults)
        return "" if fault in ("twice", "outside") and method.endswith("ReleaseAddress") else fault


class SimPlugin:
    """One plugin, found by its name on the machine on which it runs."""

    def __init__(
        self,
        name: str = "p1",
        *,
        books: Books | None = None,
        script: Script = no_faults,
        persistent: bool = True,
        capabilities: dict[str, bool] | None = None,
        directory: str = "/run/docker/plugins",
    ) -> None:
        self.name = name
        self.address = f"unix://{directory}/{name}.sock"
        self.books = books or Books()
        self.script = script
        self.persistent = persistent
        self.capabilities = capabilities or {"RequiresMACAddress": False, "RequiresRequestReplay": False}
        self.slow_s = 2.0
        self.late_s = 60.0
        self.hung: trio.Event | None = None  # while set, calls wait for it before anything else: a stopped process
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.given_twice: set[str] = set()  # addresses of which the books name one lease and some answer named another
        self.lied_to: set[str] = (
            set()
        )  # leases that were told such an address: what the books have for them nobody knows
        self.is_fresh = True  # nobody has called since its process began
        self.headers: list[dict[str, str]] = []
        self.faults: Counter[str] = Counter()
        self.n_at_once_max = 0
        self._n_at_once = 0

    def hang(self) -> None:
        """As SIGSTOP does: connections are accepted and nothing is read."""
        self.hung = trio.Event()

    def resume(self) -> None:
        """As SIGCONT."""
        assert self.hung is not None
        self.hung.set()
        self.hung = None

    async def run(self, host: Host, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """One life of its process."""
        self.is_fresh = True
        if not self.persistent:
            self.books.pools.clear()
            self.books.held.clear()
        listener = await host.net.listen(self.address)
        try:
            task_status.started()
            await listener.serve(self._serve)
        finally:
            with trio.CancelScope(shield=True):
                await listener.aclose()

    def n_calls(self, method: str) -> int:
        """How often a method was called."""
        return sum(called == f"IpamDriver.{method}" for called, _ in self.calls)

    async def _serve(self, connection: Connection) -> None:
        http = h11.Connection(h11.SERVER)
        while True:
            read = await _read(http, connection.stream)
            if read is None:
                return
            request, data = read
            while self.hung is not None:
                await self.hung.wait()
            self.headers.append({name.decode(): value.decode() for name, value in request.headers})
            self._n_at_once += 1
            self.n_at_once_max = max(self.n_at_once_max, self._n_at_once)
            try:
                reply = await self._act(request.target.decode().removeprefix("/"), json.loads(data or b"{}"))
            finally:
                self._n_at_once -= 1
            if reply is None:
                return
            status, body = reply
            headers = [("Content-Type", "text/html; charset=UTF-8"), ("Content-Length", str(len(body)))]
            out = http.send(h11.Response(status_code=status, headers=headers))
            out += http.send(h11.Data(data=body)) + http.send(h11.EndOfMessage())
            await connection.stream.send_all(out)
            if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
                return
            http.start_next_cycle()

    async def _act(self, method: str, body: dict[str, Any]) -> tuple[int, bytes] | None:
        """Status and body of the answer; None: hang up."""
        self.calls.append((method, body))
        self.is_fresh = False
        fault = self.script(method, body)
        if fault:
            self.faults[fault] += 1
        if fault == "slow":
            await trio.sleep(self.slow_s)
        elif fault == "cut before":
            return None
        elif fault == "error":
            return 200, b'{"Error": "database is locked\\u0007"}'
        elif fault == "status":
            return 500, b'{"Err": "internal error"}'
        elif fault in ("twice", "outside"):
            lie = self._lie(fault, body)
            if lie is not None:
                return 200, json.dumps({"Address": lie, "Data": {}}).encode()
        found = answer(self.books, method, body, self.capabilities)
        if fault == "cut after":
            return None
        if fault == "other pool" and found is not None:
            found = {**found, "Pool": "192.0.2.0/24"}
        if fault == "junk":
            return 200, b"<html>it works</html>"
        if fault == "deep":
            return 200, b'{"Data":' * 5000
        if fault == "late":
            await trio.sleep(self.late_s)
        return (404, b"404 page not found\n") if found is None else (200, json.dumps(found).encode())

    def _lie(self, fault: str, body: dict[str, Any]) -> str | None:
        if fault == "outside":
            return "192.0.2.99/24"
        lease = (body["Options"] or {}).get("beeyard.lease.id")
        others = [ip for (pool, ip), who in self.books.held.items() if pool == body["PoolID"] and who != lease]
        if not others:
            return None
        self.given_twice.add(others[-1])
        self.lied_to.add(str(lease))
        return f"{others[-1]}/24"


async def _read(http: h11.Connection, stream: trio.abc.Stream) -> tuple[h11.Request, bytes] | None:
    request: h11.Request | None = None
    body = b""
    while True:
        try:
            event = http.next_event()
        except h11.RemoteProtocolError:
            return None  # who asked has died in the middle of it
        if event is h11.NEED_DATA:
            http.receive_data(bytes(await stream.receive_some(65536)))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert request is not None
            return request, body
        else:
            return None


__all__ = ["FAULTS", "Seeded", "SimPlugin", "no_faults"]
