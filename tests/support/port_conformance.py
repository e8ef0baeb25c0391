"""What a host must do to publish ports, said once for the fake host and the real one.

`python -m tests.support.port_conformance` tries the real one, in the network namespace in which it is run.
"""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from beeyard.core.errors import FirewallError, NetlinkError
from beeyard.netdrivers import codec, codec_port, port_link
from beeyard.netdrivers.inventory import host_links
from beeyard.runtime.host import Firewall, Forward, Netlink

TABLE = "beeyard-conform"
WEB4 = Forward(protocol="tcp", published=8080, address="169.254.192.1", target=80)
WEB6 = Forward(protocol="tcp", published=8080, address="fd62:6565:7961:7264::1", target=80)
DNS = Forward(protocol="udp", published=53, address="169.254.192.3", target=5353)


async def check_firewall(firewall: Firewall, alter: Callable[[], None]) -> None:
    """A table is what was said last, whole, and others' tables are left alone. `alter`: somebody takes a rule out of it."""
    assert await firewall.fault() == ""
    assert await firewall.forwards(TABLE) == []
    await firewall.apply(TABLE, [], "byp")
    await firewall.apply(TABLE, [DNS, WEB6, WEB4], "byp")
    await firewall.apply("beeyard-other", [WEB4], "byp")
    assert await firewall.forwards(TABLE) == sorted([WEB4, WEB6, DNS])
    moved = Forward(protocol="tcp", published=8080, address="169.254.192.5", target=81)
    await firewall.apply(TABLE, [moved, DNS], "byp")
    assert await firewall.forwards(TABLE) == sorted([moved, DNS])
    # A port cannot lead to two tasks: nothing is changed.
    with pytest.raises(FirewallError, match="publish ports"):
        await firewall.apply(TABLE, [moved, WEB4], "byp")
    assert await firewall.forwards(TABLE) == sorted([moved, DNS])
    await firewall.forget([moved, DNS])
    heard = trio.Event()

    async def hear() -> None:
        await firewall.changed(TABLE)
        heard.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hear)
        await trio.testing.wait_all_tasks_blocked()
        await firewall.apply("beeyard-third", [WEB4], "byp")
        await firewall.apply("beeyard-third", [], "byp")
        await firewall.apply(TABLE, [DNS], "byp")
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert not heard.is_set()
        assert await firewall.intact(TABLE)
        alter()
        with trio.fail_after(10):
            await heard.wait()
    assert await firewall.forwards(TABLE) == [DNS]
    assert not await firewall.intact(TABLE)
    await firewall.apply(TABLE, [DNS], "byp")
    assert await firewall.intact(TABLE)
    await firewall.apply(TABLE, [], "byp")
    assert await firewall.forwards(TABLE) == []
    assert await firewall.intact(TABLE)
    assert await firewall.forwards("beeyard-other") == [WEB4]
    await firewall.apply("beeyard-other", [], "byp")


async def check_flushed(make: Callable[[], Firewall]) -> None:
    """A real host whose tables somebody removes is restricted again, and closed at the end, also by another life."""
    subprocess.run(["ip", "link", "add", "lan", "type", "bridge"], check=True)
    setting = Path("/proc/sys/net/ipv4/conf/lan/forwarding")
    await make().apply(TABLE, [WEB4], "byp")
    assert setting.read_text() == "1\n"
    subprocess.run(["nft", "flush", "ruleset"], check=True)
    await make().apply(TABLE, [WEB4], "byp")
    shown = subprocess.run(["nft", "list", "set", "inet", TABLE, "opened4"], check=True, capture_output=True, text=True)
    assert '"lan"' in shown.stdout, "nothing keeps this host from forwarding for others"
    await make().apply("beeyard-other", [DNS], "byp")
    await make().apply(TABLE, [], "byp")
    assert setting.read_text() == "1\n", "another agent of the host needs it"
    subprocess.run(["nft", "flush", "ruleset"], check=True)
    await make().apply("beeyard-other", [], "byp")
    assert setting.read_text() == "0\n"
    assert Path("/proc/sys/net/ipv4/conf/lan/tag").read_text() == "0\n"
    subprocess.run(["ip", "link", "del", "lan"], check=True)


async def check_port_links(netlink: Netlink, make_netns: Callable[[], str], drop_netns: Callable[[str], None]) -> None:
    """Pairs are made whole, found again by who made them for whom, and go with the namespace."""
    one, two = make_netns(), make_netns()
    first = await port_link.attach(netlink, one, "aa", "t1", answers_unbound=True)
    second = await port_link.attach(netlink, two, "aa", "t2", answers_unbound=False)
    assert first.number != second.number
    assert first.has_ipv6
    for netns, link in ((one, first), (two, second)):
        links = {info.index: info for info in codec.read_links(await netlink.request(codec.dump_links(), netns))}
        addresses = codec.read_addresses(await netlink.request(codec.dump_addresses(), netns))
        inside = {str(a.ip) for a in addresses if links[a.index].name == port_link.TASK_INTERFACE}
        assert set(link.addresses) <= inside
        assert all(info.up for info in links.values())
    assert sorted((found.task_id, found.number) for found in await port_link.present(netlink, "aa")) == [
        ("t1", first.number),
        ("t2", second.number),
    ]
    assert await port_link.present(netlink, "bb") == []
    described, _ = await host_links(netlink)
    assert not [link.name for link in described if link.name.startswith(port_link.HOST_PREFIX)]

    # A namespace has one; the attempt leaves none.
    with pytest.raises(NetlinkError) as refused:
        await port_link.attach(netlink, one, "aa", "t1", answers_unbound=True)
    assert refused.value.errno == errno.EEXIST
    assert len(await port_link.present(netlink, "aa")) == 2
    with pytest.raises(NetlinkError):
        await port_link.attach(netlink, "/nonexistent/netns", "aa", "t3", answers_unbound=True)

    await port_link.remove(netlink, first)
    await port_link.remove(netlink, first)
    assert [link.task_id for link in await port_link.present(netlink, "aa")] == ["t2"]
    marked = codec_port.read_marked(await netlink.request(codec.dump_links(), one))
    assert port_link.TASK_INTERFACE not in [link.name for link in marked]
    drop_netns(two)
    with trio.fail_after(10):
        # The real kernel takes a namespace apart on its own time, and tells nobody.
        while await port_link.present(netlink, "aa"):  # noqa: ASYNC110
            await trio.sleep(0.01)
    drop_netns(one)


def main() -> None:
    """Try the kernel of this machine."""
    from beeyard.runtime.real_firewall import RealFirewall
    from beeyard.runtime.real_netlink import RealNetlink

    names = iter(("bpc-one", "bpc-two"))

    def make() -> str:
        name = next(names)
        subprocess.run(["ip", "netns", "add", name], check=True)
        return f"/run/netns/{name}"

    def drop(netns: str) -> None:
        subprocess.run(["ip", "netns", "del", netns.rpartition("/")[2]], check=True)

    def alter() -> None:
        subprocess.run(["nft", "flush", "chain", "inet", TABLE, "forward"], check=True)

    async def run() -> None:
        await check_firewall(RealFirewall(), alter)
        await check_flushed(RealFirewall)
        netlink = RealNetlink()
        await check_port_links(netlink, make, drop)
        netlink.close()

    trio.run(run)


if __name__ == "__main__":
    main()
