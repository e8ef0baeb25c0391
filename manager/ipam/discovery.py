"""Where a plugin listens, as Docker finds it by its name.

Source: moby v28.2.2, pkg/plugins/discovery.go. First hit wins: the sockets NAME.sock and NAME/NAME.sock in the socket
directory, then in each directory of specifications NAME.spec, NAME/NAME.spec, NAME.json, NAME/NAME.json.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from beeyard.core.errors import DiskError, InvalidSpec, NoSuchSocket, PeerError
from beeyard.core.name import is_name
from beeyard.manager.config import IpamConfig
from beeyard.manager.ipam.fault import FaultKind, PluginFault, quote
from beeyard.runtime.host import Connection, Host


class _SpecFile(msgspec.Struct):
    Name: str = ""
    Addr: str = ""
    TLSConfig: dict[str, object] | None = None


async def connect(host: Host, config: IpamConfig, plugin: str, *, timeout_s: float) -> Connection:
    """Connect to a plugin wherever it is.

    Raises:
        PluginFault: MISSING, with every path that was looked at; or UNREACHABLE.
    """
    if not is_name(plugin):
        raise PluginFault(plugin, FaultKind.MISSING, "it is no name of a plugin: such as ipam1, without / and :")
    sockets = [f"{config.plugin_sockets}/{name}.sock" for name in _names(plugin)]
    for path in sockets:
        try:
            return await host.net.dial(f"unix://{path}", timeout_s=timeout_s)
        except NoSuchSocket:
            continue
        except PeerError as error:
            raise PluginFault(plugin, FaultKind.UNREACHABLE, str(error)) from None
    files = list(_spec_files(config, plugin))
    for path in files:
        try:
            data = await host.files.read(path)
        except DiskError as error:
            raise PluginFault(plugin, FaultKind.MISSING, str(error)) from None
        if data is not None:
            address = _address_in(plugin, path, data)
            try:
                return await host.net.dial(address, timeout_s=timeout_s)
            except (PeerError, InvalidSpec) as error:
                raise PluginFault(plugin, FaultKind.UNREACHABLE, f"{error} ({path} names it)") from None
    raise PluginFault(plugin, FaultKind.MISSING, f"no such plugin: looked for {', '.join([*sockets, *files])}")


def _names(plugin: str) -> tuple[str, str]:
    return plugin, f"{plugin}/{plugin}"


def _spec_files(config: IpamConfig, plugin: str) -> Iterator[str]:
    for directory in config.plugin_specs:
        for extension in ("spec", "json"):
            for name in _names(plugin):
                yield f"{directory}/{name}.{extension}"


def _address_in(plugin: str, path: str, data: bytes) -> str:
    """The address that a file names, as `Net.dial` takes it."""
    address = data.decode("utf-8", "replace").strip()
    if path.endswith(".json"):
        try:
            spec = msgspec.json.decode(data, type=_SpecFile)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise PluginFault(plugin, FaultKind.MISSING, f"{path} cannot be read: {error}") from None
        address = spec.Addr
        if spec.TLSConfig is not None:
            raise PluginFault(plugin, FaultKind.MISSING, f"{path}: TLSConfig is not supported: use a unix socket")
    scheme, separator, rest = address.partition("://")
    if scheme == "https":
        raise PluginFault(plugin, FaultKind.MISSING, f"{path}: https is not supported: use a unix socket")
    if not separator or scheme not in ("unix", "tcp", "http") or not rest:
        example = "unix:///run/plugin.sock or tcp://127.0.0.1:9000"
        raise PluginFault(plugin, FaultKind.MISSING, f"{path}: {quote(address)!r} is no address, such as {example}")
    return f"{'unix' if scheme == 'unix' else 'tcp'}://{rest.rstrip('/') if scheme == 'http' else rest}"


__all__ = ["connect"]
