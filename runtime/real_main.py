"""What the commands of both daemons share: settings, logging, signals, the service manager, and how an error is told."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, Protocol, TypedDict, TypeVar

import msgspec
import structlog
import trio

from beeyard.core.errors import ClusterError
from beeyard.runtime import real_log, real_systemd
from beeyard.runtime.settings import Settings, SettingsError, changed, reloaded, resolve, shown_with_faults
from beeyard.runtime.settings_declared import leaves
from beeyard.runtime.settings_help import add_flags

# Objects made, net, before the youngest are looked through for cycles, and rounds before older ones are. Python's own 700
# has a daemon with a thousand sessions look through all it holds several times a second while tasks start.
GC_THRESHOLDS = (20_000, 10, 10)

# Descriptors that a daemon may have open, as in deploy/systemd. Each task takes an agent three, each agent a manager one: the
# 1,024 of a shell are a few hundred tasks.
FILES = 65_536

# Exit code of a daemon whose settings cannot work: starting it again does not help, as it may after exit code 1.
WRONG_SETTINGS = 2

T = TypeVar("T", bound=msgspec.Struct)

log = structlog.get_logger(__name__)


class _Sources(TypedDict):
    file: tuple[str, str] | None
    flags: Mapping[str, str]


class Running(Protocol):
    """A daemon that has started."""

    def summary(self) -> str:
        """What it does now, in one line, for whoever asks the service manager."""

    def reload(self, config: object) -> None:
        """Take over what may change while it runs."""

    async def prepare_stop(self) -> None:
        """What has to be done before it is cancelled, with an end of its own."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(Generic[T]):
    """A daemon as a command.

    Args:
        config: its settings; `log_level` is one of them.
        prefix: of its environment variables.
        file: its configuration file, read when it is there.
        complete: checks the settings together and gives the configuration that the daemon gets.
        run: is the daemon until cancelled; started with a `Running`.
    """

    name: str
    description: str
    config: type[T]
    prefix: str
    file: str
    complete: Callable[[Settings[T]], T]
    run: Callable[[T, trio.TaskStatus[Running]], Awaitable[None]]

    def parser(self, arguments: str = "") -> argparse.ArgumentParser:
        """Its flags: one for each setting, and what is done with the settings. `arguments` is what else may stand there."""
        parser = argparse.ArgumentParser(
            prog=self.name,
            usage=f"{self.name} [OPTIONS] {arguments}".rstrip(),
            description=self.description,
            epilog=f"Every setting may also stand in the configuration file, or in a variable {self.prefix}NAME; "
            "a flag counts first, then the variable, then the file. docs/configuration.md explains each.",
            allow_abbrev=False,
        )
        parser.add_argument("--config", metavar="FILE", help=f"configuration file; default {self.file} if it is there")
        parser.add_argument("--check-config", action="store_true", help="say whether the settings can work, and end")
        parser.add_argument("--print-config", action="store_true", help="show each setting and its source, and end")
        add_flags(parser, self.config)
        return parser

    def load(self, options: argparse.Namespace, flags: Mapping[str, str] | None = None) -> Settings[T]:
        """Read the settings.

        Raises:
            SettingsError
        """
        return resolve(self.config, self.prefix, environment=os.environ, **self._sources(options, flags))

    def _sources(self, options: argparse.Namespace, flags: Mapping[str, str] | None) -> _Sources:
        given = {s.name: getattr(options, s.name) for s in leaves(self.config) if getattr(options, s.name) is not None}
        path = options.config or (self.file if os.path.exists(self.file) else "")
        return {"file": (path, _read(path)) if path else None, "flags": {**given, **(flags or {})}}

    def main(self, options: argparse.Namespace, flags: Mapping[str, str] | None = None) -> int:
        """Do what the options say; the exit code of the process."""
        try:
            settings = self.load(options, flags)
            config = self.complete(settings)
        except SettingsError as error:
            faults = self._print_what_is_right(options, flags) if options.print_config else []
            for fault in faults or [error]:
                print(f"{self.name}: {fault}", file=sys.stderr)
            return 1 if options.check_config else WRONG_SETTINGS
        if options.print_config:
            print(settings.shown(), end="")
        elif options.check_config:
            print("ok")
        else:
            return self._run(config, lambda: self.complete(self.load(options, flags)))
        return 0

    def _print_what_is_right(self, options: argparse.Namespace, flags: Mapping[str, str] | None) -> list[SettingsError]:
        """Show the settings but those that cannot work, and give what is wrong with each; nothing without its file."""
        try:
            sources = self._sources(options, flags)
        except SettingsError as unreadable:
            return [unreadable]
        shown, faults = shown_with_faults(self.config, self.prefix, environment=os.environ, **sources)
        print(shown, end="")
        return faults

    def _run(self, config: T, load: Callable[[], T]) -> int:
        real_log.configure(config.log_level, "beeyard")  # type: ignore[attr-defined]
        gc.set_threshold(*GC_THRESHOLDS)
        allow_files()
        daemon = _Daemon(self, config, load)
        code = 0
        try:
            trio.run(daemon.run)
        except* ClusterError as group:
            for error in _leaves(group):
                print(f"{self.name}: {error}", file=sys.stderr)
                real_systemd.notify(f"STATUS={error}")
            code = 1
        return code


class _Daemon(Generic[T]):
    """One life of a daemon, between the signals that it gets."""

    def __init__(self, command: Command[T], config: T, load: Callable[[], T]) -> None:
        self._command = command
        self._config = config
        self._load = load
        self._running: Running | None = None

    async def run(self) -> None:
        """Until it ends by itself, or SIGTERM or SIGINT comes."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._obey_signals, nursery.cancel_scope)
            nursery.start_soon(self._be, nursery.cancel_scope)

    async def _be(self, scope: trio.CancelScope) -> None:
        config = self._config

        async def main(task_status: trio.TaskStatus[Running]) -> None:
            await self._command.run(config, task_status)
            scope.cancel()

        async with trio.open_nursery() as nursery:
            running: Running = await nursery.start(main)
            self._running = running
            if self._config is not config:  # it was told to reload while it started
                running.reload(self._config)
            real_systemd.ready(running.summary())
            nursery.start_soon(real_systemd.report, running.summary)

    async def _obey_signals(self, scope: trio.CancelScope) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async with trio.open_nursery() as nursery:
                stopping = False
                async for number in signals:
                    if number == signal.SIGHUP:
                        self._reload()
                    elif stopping:  # asked twice: at once
                        scope.cancel()
                    else:
                        stopping = True
                        nursery.start_soon(self._stop, scope)

    async def _stop(self, scope: trio.CancelScope) -> None:
        real_systemd.stopping("stopping")
        if self._running is not None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(real_systemd.ask_for_time)
                await self._running.prepare_stop()
                nursery.cancel_scope.cancel()
        scope.cancel()

    def _reload(self) -> None:
        """Take over what may change; whatever is wrong with the new settings, the daemon runs on with the old ones."""
        real_systemd.reloading()
        try:
            new = self._load()
        except SettingsError as error:
            log.error("the configuration was not reloaded; the old one stays", reason=str(error))
        else:
            now, at_restart = changed(self._config, new)
            if at_restart:
                log.warning("these settings change at the next restart", settings=", ".join(at_restart))
            self._config = reloaded(self._config, new)
            real_log.set_level(self._config.log_level)  # type: ignore[attr-defined]
            if self._running is not None:
                self._running.reload(self._config)
            log.info("configuration reloaded", changed=", ".join(now) or "nothing")
        real_systemd.ready(self._running.summary() if self._running is not None else "starting")


def allow_files() -> None:
    """Have this process open as many files as it may, up to `FILES`; it does not lower what it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SettingsError(path, f"cannot read it: {(reason or str(error)).lower()}") from error


def _leaves(group: BaseExceptionGroup[ClusterError]) -> list[ClusterError]:
    leaves: list[ClusterError] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves


def with_scheme(address: str, scheme: str) -> str:
    """An address as people write it, "10.0.0.1:2377", as the ports want it, "tcp://10.0.0.1:2377"."""
    return address if "://" in address else f"{scheme}{address}"


__all__ = ["FILES", "Command", "Running", "allow_files", "with_scheme"]
