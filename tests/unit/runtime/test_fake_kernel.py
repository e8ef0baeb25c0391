"""What the fake kernel tells a simulation, and where it refuses; the driver's conformance cases check the rest."""

from __future__ import annotations

import errno
import ipaddress

import pytest

from beeyard.core.model import Link
from beeyard.netdrivers import attach, codec, codec_route, detach
from beeyard.runtime import netlink_format as nl
from beeyard.runtime import silence
from beeyard.runtime.fake_kernel import FakeKernel, LiveAddress
from beeyard.runtime.host import RequestRefused
from tests.support.grants import a_grant


async def a_kernel_with_a_task() -> tuple[FakeKernel, str]:
    kernel = FakeKernel()
    netns = kernel.create_netns()
    await attach(kernel, netns, a_grant("10.9.0.10/24", mac="02:42:0a:09:00:0a"), "eth0")
    return kernel, netns


async def test_live_addresses_has_the_hosts_own_and_the_tasks():
    kernel = FakeKernel([Link(name="eth0", mac="02:00:00:00:00:01", mtu=1500, up=True, addresses=("10.9.0.2/24",))])
    netns = kernel.create_netns()
    await attach(kernel, netns, a_grant("10.9.0.10/24", "fd00:9::10/64", mac="02:42:0a:09:00:0a"), "eth0")
    assert kernel.live_addresses() == [
        LiveAddress("", "eth0", "10.9.0.2", "02:00:00:00:00:01"),
        LiveAddress(netns, "eth0", "10.9.0.10", "02:42:0a:09:00:0a"),
        LiveAddress(netns, "eth0", "fd00:9::10", "02:42:0a:09:00:0a"),
    ]


async def test_live_addresses_loses_a_task_while_its_parent_is_down():
    kernel, netns = await a_kernel_with_a_task()
    kernel.set_link_up("eth0", False)
    assert kernel.live_addresses() == []
    kernel.set_link_up("eth0", True)
    assert [live.netns for live in kernel.live_addresses()] == [netns]


async def test_live_addresses_loses_a_task_whose_links_are_down_dropped_or_silenced():
    for end in ("links_down", "drop_netns", "detach"):
        kernel, netns = await a_kernel_with_a_task()
        if end == "detach":
            await detach(kernel, netns)
        else:
            getattr(kernel, end)(netns)
        assert kernel.live_addresses() == [], end


async def test_detach_is_felt_before_its_addresses_are_gone():
    """A link in a mode that hears nobody is not live, although it is up and has its address."""
    kernel, netns = await a_kernel_with_a_task()
    conversation = silence.conversation()
    links = await kernel.request(next(conversation), netns)
    addresses = await kernel.request(conversation.send(links), netns)
    first, *_ = nl.split(conversation.send(addresses))
    await kernel.request(nl.message(first.type, first.flags, first.payload), netns)
    assert kernel.links_of(netns)[1].addresses != []
    assert kernel.live_addresses() == []


async def test_reboot_loses_every_task():
    kernel, netns = await a_kernel_with_a_task()
    kernel.reboot()
    assert (kernel.namespaces, kernel.live_addresses()) == ((), [])
    with pytest.raises(FileNotFoundError):
        await kernel.request(codec.dump_links(), netns)
    assert kernel.create_netns() != netns


async def test_reboot_loses_what_was_made_on_the_host_itself():
    kernel = FakeKernel(kinds=("macvlan", "vlan"))
    for name in ("eth0.10", "eth0.11"):
        await kernel.request(codec.create_vlan(name=name, parent=2, vlan_id=int(name[-2:]), group=0))
    route = codec_route.set_route(ipaddress.ip_network("10.9.0.10/32"), index=2, protocol=191)
    await kernel.request(route + codec_route.set_neighbour(2, ipaddress.ip_address("10.9.0.10"), "02:00:00:00:00:0a"))
    assert (len(kernel.links_of("")), len(kernel.ways_of("")), len(kernel.neighbours_of(""))) == (4, 1, 1)
    kernel.reboot()
    assert [link.name for link in kernel.links_of("")] == ["lo", "eth0"]
    assert (kernel.ways_of(""), kernel.neighbours_of("")) == ([], [])


async def test_remove_link_takes_what_sits_on_it_along():
    kernel, netns = await a_kernel_with_a_task()
    kernel.remove_link("eth0")
    assert [link.name for link in kernel.links_of(netns)] == ["lo"]


async def test_links_down_of_a_namespace_that_is_gone_is_fine():
    kernel, netns = await a_kernel_with_a_task()
    kernel.drop_netns(netns)
    kernel.drop_netns(netns)
    kernel.links_down(netns)


async def test_drawn_macs_differ_between_links_and_hosts_and_repeat_with_the_seed():
    def macs(seed: str) -> list[str]:
        kernel = FakeKernel([Link(name="eth0"), Link(name="eth1")], seed=seed)
        return [link.mac for link in kernel.links_of("") if not link.loopback]

    assert macs("n1") == macs("n1")
    assert len({*macs("n1"), *macs("n2")}) == 4


async def test_request_stops_at_the_first_refusal_and_tells_its_position():
    kernel, netns = await a_kernel_with_a_task()
    index = kernel.links_of(netns)[1].index
    requests = codec.get_link(index=index) + codec.delete_link(99) + codec.delete_link(index)
    with pytest.raises(RequestRefused) as caught:
        await kernel.request(requests, netns)
    assert (caught.value.errno, caught.value.position) == (errno.ENODEV, 1)
    assert len(kernel.links_of(netns)) == 2


async def test_request_of_a_type_that_is_not_played_is_refused():
    with pytest.raises(RequestRefused) as caught:
        await FakeKernel().request(nl.message(250, nl.NLM_F_REQUEST | nl.NLM_F_ACK, b""))
    assert caught.value.errno == errno.EOPNOTSUPP


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"name": "e" * 16}, errno.ERANGE),
        ({"name": "a/b"}, errno.EINVAL),
        ({"netns_fd": 4711}, errno.EBADF),
        ({"parent": 4711}, errno.ENODEV),
        ({"parent": 1}, errno.EINVAL),
        ({"mtu": 70000}, errno.EINVAL),
        # Kernels before 6.15 look for the new name in the parent's namespace too, when no index is given.
        ({"name": "eth0", "index": 0}, errno.EEXIST),
    ],
)
async def test_create_refuses_as_linux_does(changes, code):
    kernel = FakeKernel()
    async with kernel.netns_fd(kernel.create_netns()) as fd:
        asked = {"name": "eth5", "index": 77, "parent": 2, "netns_fd": fd, "mode": "bridge"} | changes
        with pytest.raises(RequestRefused) as caught:
            await kernel.request(codec.create_macvlan(**asked))
    assert caught.value.errno == code


async def test_passthru_takes_a_parent_for_itself():
    kernel = FakeKernel()
    async with kernel.netns_fd(kernel.create_netns()) as fd:
        asked = {"parent": 2, "netns_fd": fd}
        await kernel.request(codec.create_macvlan(name="a", index=7, mode="passthru", **asked))
        with pytest.raises(RequestRefused) as caught:
            await kernel.request(codec.create_macvlan(name="b", index=8, mode="bridge", **asked))
    assert caught.value.errno == errno.EINVAL


async def test_send_frame_from_a_link_that_is_down_or_missing_is_refused():
    kernel, netns = await a_kernel_with_a_task()
    await kernel.request(codec.set_link_up(kernel.links_of(netns)[1].index, up=False), netns)
    for interface, code in (("eth0", errno.ENETDOWN), ("eth1", errno.ENODEV)):
        with pytest.raises(OSError, match=r"down|device") as caught:
            await kernel.send_frame(netns, interface, bytes(60))
        assert caught.value.errno == code
