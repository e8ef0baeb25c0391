"""What network operators do to the pools of `lan` while tasks have addresses of them.

The racks' own pools become larger and as small again as they were; further ones come and go. So there is never less room than
`tests/sim/sizes.py` counts on.
"""

from __future__ import annotations

import ipaddress
from typing import Any

import structlog
import trio

from beeyard.runtime.sim import SimWorld
from tests.sim.api import ClusterApi, Refused, Unanswered
from tests.sim.layout import FURTHER, RACKS, Layout
from tests.sim.sizes import Sizes

log = structlog.get_logger(__name__)

FURTHER_LENGTH = 28
N_FURTHER = 3


class PoolOperator:
    """Changes pools until cancelled."""

    def __init__(self, world: SimWorld, api: ClusterApi, layout: Layout, sizes: Sizes) -> None:
        self.n_changes = 0
        self._world = world
        self._api = api
        self._layout = layout
        self._sizes = sizes
        self._rng = world.generator("pools")
        self._mean_between_s = self._rng.choice((20.0, 60.0, float("inf")))

    async def run(self) -> None:
        """Change one after the other."""
        if self._mean_between_s == float("inf"):
            return
        while True:
            await trio.sleep(self._rng.expovariate(1.0 / self._mean_between_s))
            change = self._rng.choice((self._come_or_go, self._come_or_go, self._resize_rack, self._resize_further))
            try:
                await change()
                self.n_changes += 1
            except (Refused, Unanswered) as error:
                self._world.trace.event("operator", str(error))
                if isinstance(error, Refused) and error.status != 404:
                    log.info("an operator was refused", reason=str(error))

    async def _come_or_go(self) -> None:
        number = self._rng.randrange(N_FURTHER)
        if any(pool["Name"] == _name(number) for pool in await self._pools()):
            pool = await self._api.call("GET", f"/networks/{_name(number)}")
            await self._api.call("DELETE", f"/networks/{_name(number)}")
            log.info("an operator removed a pool", pool=_name(number), held=len(pool["Containers"]))
            return
        nodes = self._rng.choice(("", "node.labels.rack==r1", "node.labels.rack==r2"))
        body = self._layout.pool(_name(number), _firsts(number), FURTHER_LENGTH, nodes)
        await self._api.call("POST", "/networks/create", body)

    async def _resize_rack(self) -> None:
        rack = self._rng.choice(sorted(RACKS))
        length = self._sizes.prefix - self._rng.randint(0, 1)
        await self._change(f"lan-{rack}", RACKS[rack], length)

    async def _resize_further(self) -> None:
        number = self._rng.randrange(N_FURTHER)
        await self._change(_name(number), _firsts(number), FURTHER_LENGTH + self._rng.randint(0, 1))

    async def _change(self, name: str, firsts: tuple[str, str], length: int) -> None:
        pool = await self._api.call("GET", f"/networks/{name}")
        body = {"IPAM": {"Config": self._layout.ranges(firsts, length)}}
        path = f"/networks/{pool['Id']}/update"
        reply = await self._api.call("POST", path, body, version=pool["Version"]["Index"])
        log.info("an operator changed a pool", pool=name, warning=reply["Warning"])

    async def _pools(self) -> list[dict[str, Any]]:
        networks: list[dict[str, Any]] = await self._api.call("GET", "/networks")
        return [network for network in networks if network["ConfigOnly"]]


def _name(number: int) -> str:
    return f"further-{number}"


def _firsts(number: int) -> tuple[str, str]:
    four, six = (ipaddress.ip_address(text) + 16 * number for text in FURTHER)
    return str(four), str(six)


__all__ = ["PoolOperator"]
