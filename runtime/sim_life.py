"""One life of one daemon on a simulated machine, from its start to its end or crash; every port call passes through it."""

from __future__ import annotations

from collections.abc import Callable

import trio


class PauseSwitch:
    """Whether a machine's CPU runs."""

    def __init__(self) -> None:
        self.paused = False
        self._changed = trio.Event()

    def pause(self) -> None:
        """Stop the CPU. Idempotent: yes."""
        self.paused = True

    def resume(self) -> None:
        """Let the CPU run. Idempotent: yes."""
        self.paused = False
        self.wake()

    def wake(self) -> None:
        """Let everybody who waits here look again."""
        self._changed.set()
        self._changed = trio.Event()

    async def changed(self) -> None:
        """Return at the next `wake`."""
        await self._changed.wait()

    async def running(self) -> None:
        """Return when the CPU runs."""
        await trio.lowlevel.checkpoint()
        while self.paused:
            await self.changed()


class Life:
    """What a daemon's ports share: whether it still lives, and whether its machine runs."""

    def __init__(self, name: str, switch: PauseSwitch) -> None:
        self.name = name
        self.alive = True
        self._switch = switch
        self._at_end: list[Callable[[], None]] = []

    @property
    def paused(self) -> bool:
        """Whether its machine's CPU stands."""
        return self._switch.paused

    def at_end(self, action: Callable[[], None]) -> None:
        """Call `action` when this life ends."""
        self._at_end.append(action)

    def end(self) -> None:
        """The ports die: whatever the daemon's code still calls has no effect. Idempotent: yes."""
        if self.alive:
            self.alive = False
            self._switch.wake()
            for action in self._at_end:
                action()
            self._at_end.clear()

    async def gate(self) -> bool:
        """Wait while the machine is paused; whether this life still lasts. The first thing of every port call."""
        await trio.lowlevel.checkpoint()
        while self._switch.paused and self.alive:
            await self._switch.changed()
        return self.alive


__all__ = ["Life", "PauseSwitch"]
