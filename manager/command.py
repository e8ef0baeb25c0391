"""`beeyard manage`: the manager daemon of this machine."""

from __future__ import annotations

import functools

import msgspec
import trio

from beeyard.core.errors import InvalidSpec
from beeyard.discovery.peers.check import check_settings
from beeyard.discovery.published.url import parse_url
from beeyard.manager import daemon
from beeyard.manager.config import ManagerConfig
from beeyard.runtime import real
from beeyard.runtime.address import TcpAddress, UnixAddress, parse_address
from beeyard.runtime.real_main import Command, Running, with_scheme
from beeyard.runtime.settings import Settings


def complete(settings: Settings[ManagerConfig]) -> ManagerConfig:
    """The configuration as the daemon gets it. Raises SettingsError."""
    config = settings.config
    for name, scheme, kind, form in (
        ("listen", "tcp://", TcpAddress, "HOST:PORT; an IPv6 host goes in brackets"),
        ("advertise", "tcp://", TcpAddress, "HOST:PORT; an IPv6 host goes in brackets"),
        ("api_listen", "tcp://", TcpAddress, "HOST:PORT; an IPv6 host goes in brackets"),
        ("token_listen", "tcp://", TcpAddress, "HOST:PORT; an IPv6 host goes in brackets"),
        ("api_socket", "unix://", UnixAddress, "an absolute path"),
    ):
        value: str = getattr(config, name)
        if not value and name in ("advertise", "api_listen", "token_listen"):
            continue
        try:
            parsed = parse_address(with_scheme(value, scheme))
        except InvalidSpec:
            parsed = None
        if not isinstance(parsed, kind):
            raise settings.fault(name, f"{value!r} is not right: it must be {form}")
        config = msgspec.structs.replace(config, **{name: with_scheme(value, scheme)})
    if config.api_listen and config.api_listen == config.listen:
        raise settings.fault(
            "api_listen",
            f"{config.api_listen} is where agents connect (listen): docker clients need a port of their own",
        )
    try:
        check_settings(config.discovery)
    except InvalidSpec as error:
        raise settings.fault(error.field, error.reason) from None
    if config.discovery_url:
        try:
            parse_url(config.discovery_url, config.discovery_options)
        except InvalidSpec as error:
            name = "discovery_options" if error.field == "discovery option" else "discovery_url"
            raise settings.fault(name, error.reason) from None
    if config.host_port_last < config.host_port_first:
        raise settings.fault(
            "host_port_last", f"{config.host_port_last} is below host_port_first, {config.host_port_first}"
        )
    if not config.state_dir.startswith("/"):
        raise settings.fault("state_dir", f"{config.state_dir!r} is not right: it must be an absolute path")
    return config


async def run(config: ManagerConfig, task_status: trio.TaskStatus[Running]) -> None:
    """Be the manager of this machine until cancelled."""
    host = real.host(hostname=config.node_name)
    async with trio.open_nursery() as nursery:
        status: daemon.LiveStatus = await nursery.start(functools.partial(daemon.run, host, config))
        task_status.started(_Running(status))


class _Running:
    """The running manager, for `runtime.real_main`."""

    def __init__(self, status: daemon.LiveStatus) -> None:
        self._status = status

    def summary(self) -> str:
        """See `Running.summary`."""
        return self._status.summary

    def reload(self, config: object) -> None:
        """See `Running.reload`: only the log level changes, which is not ours."""

    async def prepare_stop(self) -> None:
        """See `Running.prepare_stop`: what is stored is stored; who gossips says farewell."""
        if self._status.gossip is not None:
            await self._status.gossip.leave()


MANAGE = Command(
    name="beeyard manage",
    description="The manager of a Beeyard cluster.",
    config=ManagerConfig,
    prefix="BEEYARD_MANAGER_",
    file="/etc/beeyard/manager.toml",
    complete=complete,
    run=run,
)


def main(arguments: list[str]) -> int:
    """Run until SIGTERM or SIGINT; the exit code is 1 when it cannot start, with one line that says why."""
    parser = MANAGE.parser("[URL]")
    parser.add_argument("url", nargs="?", metavar="URL", help="where lists of nodes are published, as --discovery-url")
    options = parser.parse_args(arguments)
    return MANAGE.main(options, {"discovery_url": options.url} if options.url else {})


__all__ = ["MANAGE", "main"]
