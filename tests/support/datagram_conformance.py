"""What every implementation of datagrams promises, checked the same way on the real and on the simulated one."""

from __future__ import annotations

import contextlib

import pytest
import trio
import trio.testing

from beeyard.core.errors import HostError, PeerError
from beeyard.runtime.host import Datagrams, Group, Multicast, Net


async def check_datagrams(server: Net, client: Net, host: str) -> None:
    """Everything that `Net.datagrams` promises between two hosts without loss; `host` is the server's, an address."""
    bracketed = f"[{host}]" if ":" in host else host
    reader = await server.datagrams(f"udp://{bracketed}:0", receive_buffer_bytes=1 << 21)
    sender = await client.datagrams("udp://[::]:0" if ":" in host else "udp://0.0.0.0:0")
    assert reader.address[0] == host
    assert reader.address[1] > 0
    assert sender.address[1] > 0
    with pytest.raises(HostError, match="cannot bind udp://"):
        await server.datagrams(f"udp://{bracketed}:{reader.address[1]}")
    sizes = (0, 1, 1400, 9000, 65000)
    for size in sizes:
        assert await sender.send(reader.address, b"x" * size)
    got = [await reader.receive() for _ in sizes]
    assert sorted(len(data) for data, _ in got) == list(sizes)
    source = got[0][1]
    assert source == (await client.source_to(host), sender.address[1])
    assert taken(reader) == []
    await _check_datagrams_of_the_dead(reader, sender, source)
    await _check_datagrams_closed(server, reader, sender)


async def _check_datagrams_of_the_dead(reader: Datagrams, sender: Datagrams, source: tuple[str, int]) -> None:
    """What cannot be sent, or nobody takes, is felt by nobody else."""
    assert not sender.send_nowait(reader.address, b"x" * 70_000)
    for nowhere in ("no-address", "", "10.0.0.300"):
        assert not sender.send_nowait((nowhere, 7946), b"x")
    assert not await sender.send((reader.address[0], 0), b"x")
    for _ in range(20):  # a port without anybody: the refusals that come back are dropped
        sender.send_nowait((reader.address[0], 1), b"x")
        assert await sender.send(reader.address, b"in between")
        assert await reader.receive() == (b"in between", source)
        assert await reader_answers(reader, sender, source)


def taken(reader: Datagrams) -> list[bytes]:
    """All that has arrived."""
    got: list[bytes] = []
    with contextlib.suppress(trio.WouldBlock):
        while True:
            got.append(reader.receive_nowait()[0])
    return got


async def reader_answers(reader: Datagrams, sender: Datagrams, source: tuple[str, int]) -> bool:
    """Whether what a socket sends back to one's source gets there."""
    assert reader.send_nowait(source, b"answer")
    data, _ = await sender.receive()
    return data == b"answer"


async def _check_datagrams_closed(server: Net, reader: Datagrams, sender: Datagrams) -> None:
    """Closing ends who waits, frees the port, and may be done twice; a cancelled reader loses nothing."""
    with trio.move_on_after(0.01) as scope:
        await reader.receive()
    assert scope.cancelled_caught
    await sender.send(reader.address, b"later")
    assert (await reader.receive())[0] == b"later"
    async with trio.open_nursery() as nursery:

        async def wait(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            task_status.started()
            with pytest.raises(trio.ClosedResourceError):
                await reader.receive()

        await nursery.start(wait)
        await trio.testing.wait_all_tasks_blocked()
        await reader.aclose()
    await reader.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await reader.receive()
    with pytest.raises(trio.ClosedResourceError):
        reader.send_nowait(sender.address, b"x")
    host, port = reader.address
    again = await server.datagrams(f"udp://[{host}]:{port}" if ":" in host else f"udp://{host}:{port}")
    await again.aclose()
    await sender.aclose()


async def check_multicast(net: Net, other: Net, group: str, interface: str) -> None:
    """Members of a group hear what is sent to it, several on one port of one host too, and nobody else does."""
    any_address = "[::]" if ":" in group else "0.0.0.0"
    joined = Multicast(groups=(Group(address=group, interface=interface),), interface=interface)
    first = await net.datagrams(f"udp://{any_address}:5353", multicast=joined)
    second = await net.datagrams(f"udp://{any_address}:5353", multicast=joined)
    apart = await other.datagrams(f"udp://{any_address}:0", multicast=Multicast(interface=interface))
    with pytest.raises(HostError, match="cannot bind"):
        await net.datagrams(f"udp://{any_address}:5353")
    assert await apart.send((group, 5353), b"who?")
    for member in (first, second):
        with trio.fail_after(5):
            data, source = await member.receive()
        assert data == b"who?"
        assert await member.send(source, b"me")
        assert (await apart.receive())[0] == b"me"
    for socket in (first, second, apart):
        assert taken(socket) == []
        await socket.aclose()


async def check_resolving(net: Net, address: str, name: str) -> None:
    """Names become addresses, and an address tells from where it is reached."""
    assert address in await net.resolve(name)
    assert await net.resolve(address) == [address]
    with pytest.raises(PeerError, match="cannot find the address of 'no-such-host"):
        await net.resolve("no-such-host.invalid")
    assert await net.source_to(address) != ""
