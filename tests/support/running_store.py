"""A store that runs, on a database in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import trio

from beeyard.manager.store import Store
from beeyard.runtime.host import Host
from tests.support.memory_database import MemoryDatabase


class StoreHost:
    """As much of a host as the store asks for."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database
        self.now_s = 1000.0

    async def open_database(self, path: str) -> MemoryDatabase:
        return self._database

    async def running(self) -> None:
        await trio.lowlevel.checkpoint()

    def wall_now_s(self) -> float:
        return self.now_s


@asynccontextmanager
async def running_store(database: MemoryDatabase | None = None) -> AsyncIterator[tuple[Store, MemoryDatabase]]:
    database = database or MemoryDatabase()
    store = await Store.open(cast("Host", StoreHost(database)), "/state/store.db")
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        yield store, database
        nursery.cancel_scope.cancel()
