"""Where plugins are found, in Docker's order, and what of it is refused by name."""

from __future__ import annotations

import pytest

from beeyard.manager.config import IpamConfig
from beeyard.manager.ipam.discovery import connect
from beeyard.manager.ipam.fault import FaultKind, PluginFault
from beeyard.runtime.host import Connection
from beeyard.runtime.sim import SimHost, SimWorld

CONFIG = IpamConfig()


async def listen(host: SimHost, address: str, world: SimWorld) -> None:
    async def handler(connection: Connection) -> None:
        await connection.stream.receive_some(1)

    await host.net.listen(address)


async def found(host: SimHost, name: str = "p") -> str:
    connection = await connect(host, CONFIG, name, timeout_s=5)
    await connection.stream.aclose()
    return connection.remote


async def test_the_first_place_wins() -> None:
    """Sockets before files; .spec before .json; one directory after the other."""
    async with SimWorld(1) as world:
        host = world.host("m1")
        places = {
            "/usr/lib/docker/plugins/p/p.json": (b'{"Name":"p","Addr":"unix:///run/six.sock"}', "unix:///run/six.sock"),
            "/etc/docker/plugins/p.json": (b'{"Name": "p", "Addr": "tcp://m1:7000"}', "tcp://10.9.0.1:7000"),
            "/etc/docker/plugins/p/p.spec": (b"http://m1:7001/\n", "tcp://10.9.0.1:7001"),
            "/etc/docker/plugins/p.spec": (b"unix:///run/three.sock", "unix:///run/three.sock"),
        }
        for path, (content, address) in places.items():
            await listen(host, address, world)
            await host.files.replace(path, content)
            assert await found(host) == address
        for address in ("unix:///run/docker/plugins/p/p.sock", "unix:///run/docker/plugins/p.sock"):
            await listen(host, address, world)
            assert await found(host) == address


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        ("p.spec", b"https://h:1", "/etc/docker/plugins/p.spec: https is not supported: use a unix socket"),
        ("p.json", b'{"Addr":"https://h:1"}', "/etc/docker/plugins/p.json: https is not supported: use a unix socket"),
        (
            "p.json",
            b'{"Addr":"tcp://h:1","TLSConfig":{"InsecureSkipVerify":true}}',
            "/etc/docker/plugins/p.json: TLSConfig is not supported: use a unix socket",
        ),
        ("p.json", b"{", "/etc/docker/plugins/p.json cannot be read: Input data was truncated"),
        (
            "p.spec",
            b"\x1bnonsense",
            "/etc/docker/plugins/p.spec: 'nonsense' is no address, such as unix:///run/plugin.sock or tcp://127.0.0.1:9000",
        ),
    ],
)
async def test_files_that_cannot_be_used_are_named(path: str, content: bytes, reason: str) -> None:
    """The sentence names the file, what is wrong with it and what would be right."""
    async with SimWorld(1) as world:
        host = world.host("m1")
        await host.files.replace(f"/etc/docker/plugins/{path}", content)
        with pytest.raises(PluginFault) as caught:
            await found(host)
        assert caught.value.kind is FaultKind.MISSING
        assert caught.value.reason == reason


@pytest.mark.parametrize("name", ["../../etc/passwd", "store/plugin", "p:latest", ""])
async def test_a_name_is_no_path(name: str) -> None:
    """What is no name is looked for nowhere."""
    async with SimWorld(1) as world:
        with pytest.raises(PluginFault, match="it is no name of a plugin"):
            await found(world.host("m1"), name)


async def test_an_address_in_a_file_that_nobody_listens_on() -> None:
    """Unreachable, and the file is named."""
    async with SimWorld(1) as world:
        host = world.host("m1")
        await host.files.replace("/etc/docker/plugins/p.spec", b"tcp://m1:7000")
        with pytest.raises(PluginFault, match=r"connection refused \(/etc/docker/plugins/p.spec names it\)") as caught:
            await found(host)
        assert caught.value.kind is FaultKind.UNREACHABLE
