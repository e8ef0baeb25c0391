"""Steps that must succeed, however often they have to be tried."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
import trio

from beeyard.core.errors import HostError

# First after 1 s, then twice as long each time. 30 s keeps a node that is really broken from filling its log, and is
# short against the time that a person needs to repair it.
FIRST_S = 1.0
MAX_S = 30.0


async def insist(what: str, step: Callable[[], Awaitable[object]], log: structlog.typing.FilteringBoundLogger) -> None:
    """Repeat a step while this machine fails it. `what` completes the sentence "cannot …"."""
    delay_s = FIRST_S
    while True:
        try:
            await step()
        except (HostError, OSError) as error:
            # An untranslated one is no reason to give up: a task that is given up keeps its addresses while the agent lives.
            log.warning(f"cannot {what}, will try again", reason=str(error), retry_in_s=delay_s)
        else:
            return
        await trio.sleep(delay_s)
        delay_s = min(delay_s * 2, MAX_S)


__all__ = ["insist"]
