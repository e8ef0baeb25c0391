"""The link over which a task's published ports are reached: a veth pair between the host and the task's namespace.

Theory of operation
-------------------
A macvlan or ipvlan link cannot speak to its own host, so packets for a published port need another way to the task, and its
answers have to come back on it: the host translated the address and must translate it back. So each task with such ports has
a pair of links, `byp<n>` on the host and `port0` in its namespace, with addresses that are used nowhere else:

    number n      host                             task
    IPv4          169.254.192.0 + 2n   /31         169.254.192.1 + 2n
    IPv6          fd62:6565:7961:7264::2n /127     fd62:6565:7961:7264::2n+1

In the namespace a rule sends what comes *from* the task's end through a table of its own whose only route leads back over
the pair. So the main table, which belongs to the task's networks, is not touched. The one exception are tasks that publish
UDP ports: their sockets answer before they know from which address, so the main table gets a last route too, worse than any
other.

A pair is known by its group and its alias, which names the agent and the task: an agent that starts anew finds what it made,
and two agents on one host do not meet. It goes with the task's namespace; deleting it apart would hold up every other network
change of the host for 20 ms. Its number is free again then.

169.254.255.0/24 is left out (RFC 3927), and 169.254.0.0 to .191.255 with the services that clouds have there.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import zlib
from collections.abc import Iterator

import msgspec
import trio

from beeyard.core.errors import NetlinkError
from beeyard.netdrivers import codec, codec_port, codec_route
from beeyard.netdrivers.codec import Address
from beeyard.netdrivers.codec_port import End
from beeyard.runtime.host import Netlink, RequestRefused
from beeyard.runtime.link_groups import PORT_GROUP

HOST_PREFIX = "byp"
TASK_INTERFACE = "port0"
TABLE = 190
MAIN_TABLE = 254
LOOPBACK_INDEX = 1
RULE_PRIORITY = 1000  # before the main table's 32766
N_LINKS = (64 - 1) * 128
LAST_METRIC = 0xFFFFFFFE

_BASE4 = int(ipaddress.ip_address("169.254.192.0"))
_BASE6 = int(ipaddress.ip_address("fd62:6565:7961:7264::"))
# Linux numbers links from 1 upwards in each namespace and would need years of churn to get here.
_INDEX_BASE = 0x48000000
_MTU_LEAST = 1500
_SETTINGS = {"ipv6/conf/default/accept_ra": "0"}
# IPv6 is switched off on this host, or not in its kernel.
_NO_IPV6 = (errno.EACCES, errno.EAFNOSUPPORT, errno.EOPNOTSUPP, errno.EPERM, errno.EINVAL, errno.ENODEV)


class PortLink(msgspec.Struct, frozen=True, kw_only=True):
    """One pair."""

    number: int
    task_id: str
    has_ipv6: bool = True

    @property
    def host_interface(self) -> str:
        """Name of the host's end."""
        return f"{HOST_PREFIX}{self.number}"

    @property
    def addresses(self) -> tuple[str, ...]:
        """The task's addresses on it, IPv4 first."""
        return tuple(str(task) for _, task in self.ends())

    def ends(self) -> list[tuple[Address, Address]]:
        """(host's address, task's address) of each family."""
        four = ipaddress.IPv4Address(_BASE4 + 2 * self.number)
        six = ipaddress.IPv6Address(_BASE6 + 2 * self.number)
        return [(four, four + 1), *([(six, six + 1)] if self.has_ipv6 else [])]


async def present(netlink: Netlink, instance: str) -> list[PortLink]:
    """The pairs that an agent of this name has made on this host, those of all its lives.

    Raises:
        NetlinkError: the kernel refused to tell.
    """
    mark = _alias(instance, "")
    with _named("list port links", "of this host"):
        links = codec_port.read_marked(await netlink.request(codec.dump_links()))
        addresses = codec.read_addresses(await netlink.request(codec.dump_addresses()))
    with_ipv6 = {address.index for address in addresses if address.ip.version == 6}
    return [
        PortLink(number=number, task_id=link.alias.removeprefix(mark), has_ipv6=link.index in with_ipv6)
        for link in links
        if link.alias.startswith(mark) and (number := _number(link)) is not None
    ]


async def attach(netlink: Netlink, netns: str, instance: str, task_id: str, *, answers_unbound: bool) -> PortLink:
    """Make the pair of a task. `answers_unbound`: its sockets may answer without having an address of their own (UDP).

    Cancellation: all or nothing; when cancelled or failed there is no pair.

    Raises:
        NetlinkError: says what did not work.
    """
    with _named("publish ports of", task_id):
        async with netlink.netns_fd(netns, settings=_SETTINGS) as netns_fd:
            number, mtu = await _free_number(netlink, task_id)
            link = PortLink(number=number, task_id=task_id)
            here, there = _ends(number)
            await netlink.request(codec_port.create_veth(here, there, group=PORT_GROUP, mtu=mtu, netns_fd=netns_fd))
            try:
                has_ipv6 = await _set_up(netlink, netns, link, _alias(instance, task_id), answers_unbound)
            except BaseException:
                # Safety: bounded, as the kernel answers each request while it is sent.
                with trio.CancelScope(shield=True), contextlib.suppress(OSError):
                    await netlink.request(codec.delete_link(here.index))
                raise
            return link if has_ipv6 else msgspec.structs.replace(link, has_ipv6=False)


async def remove(netlink: Netlink, link: PortLink) -> None:
    """Delete a pair whose namespace does not go away by itself. Idempotent: yes.

    Raises:
        NetlinkError
    """
    with _named("delete port link", link.host_interface):
        try:
            await netlink.request(codec.delete_link(_INDEX_BASE + link.number))
        except RequestRefused as error:
            if error.errno != errno.ENODEV:
                raise


async def _free_number(netlink: Netlink, task_id: str) -> tuple[int, int]:
    """A number that no link and no address of this host stands for, and the largest packet that a link of it carries."""
    links = codec_port.read_marked(await netlink.request(codec.dump_links()))
    used = {number for link in links if (number := _number(link)) is not None}
    for address in codec.read_addresses(await netlink.request(codec.dump_addresses())):
        base = _BASE4 if address.ip.version == 4 else _BASE6
        used.add((int(address.ip) - base) // 2)
    begin = zlib.crc32(task_id.encode()) % N_LINKS
    number = next((n for step in range(N_LINKS) if (n := (begin + step) % N_LINKS) not in used), None)
    if number is None:
        raise OSError(errno.ENOSPC, f"all {N_LINKS} port links of this host are in use")
    mtu = max((link.mtu for link in links if link.up and link.group != PORT_GROUP), default=_MTU_LEAST)
    return number, max(mtu, _MTU_LEAST)


async def _set_up(netlink: Netlink, netns: str, link: PortLink, alias: str, unbound: bool) -> bool:
    """Both ends, from addresses to routes; whether it could be done in IPv6 too."""
    here, there = _ends(link.number)
    for end, where in ((here, ""), (there, netns)):
        with contextlib.suppress(RequestRefused):  # a link without IPv6 makes no addresses of its own
            await netlink.request(codec.forbid_own_addresses(end.index), where)
    await netlink.request(codec_port.write_alias(here.index, alias) + codec.set_link_up(here.index))
    raising = codec.set_link_up(LOOPBACK_INDEX) + codec.answer_for_own_addresses(there.index)
    await netlink.request(raising + codec.set_link_up(there.index), netns)
    four, six = link.ends()
    await _connect(netlink, netns, here, there, four, unbound)
    try:
        await _connect(netlink, netns, here, there, six, unbound)
    except RequestRefused as error:
        if error.errno not in _NO_IPV6:
            raise
        return False
    return True


async def _connect(
    netlink: Netlink, netns: str, here: End, there: End, ends: tuple[Address, Address], unbound: bool
) -> None:
    """Addresses of one family, and the ways of its packets. Neither end asks where the other is: it is told."""
    host, task = ends
    length = host.max_prefixlen - 1
    ours = [codec.add_address(here.index, host, length), codec_route.set_neighbour(here.index, task, there.mac)]
    theirs = [
        codec.add_address(there.index, task, length),
        codec_route.set_neighbour(there.index, host, here.mac),
        codec_port.default_route(there.index, host, table=TABLE),
        codec_port.rule_from(task, table=TABLE, priority=RULE_PRIORITY),
    ]
    if unbound:
        theirs.append(codec_port.default_route(there.index, host, table=MAIN_TABLE, metric=LAST_METRIC))
    # The host's end last: whether it has an address of a family says after a restart whether the pair does.
    await netlink.request(b"".join(theirs), netns)
    await netlink.request(b"".join(ours))


def _ends(number: int) -> tuple[End, End]:
    """The host's end and the task's. Their MAC addresses meet no others: the pair is a LAN of its own."""
    digits = f"{number >> 8:02x}:{number & 0xFF:02x}"
    peer_index = _INDEX_BASE | zlib.crc32(TASK_INTERFACE.encode()) & 0xFFFFFF
    here = End(name=f"{HOST_PREFIX}{number}", index=_INDEX_BASE + number, mac=f"02:be:e0:00:{digits}")
    return here, End(name=TASK_INTERFACE, index=peer_index, mac=f"02:be:e0:01:{digits}")


def _alias(instance: str, task_id: str) -> str:
    return f"beeyard {instance} port link of task {task_id}"


def _number(link: codec_port.Marked) -> int | None:
    digits = link.name.removeprefix(HOST_PREFIX)
    ours = link.name.startswith(HOST_PREFIX) and digits.isascii() and digits.isdigit()
    return int(digits) if ours else None


@contextlib.contextmanager
def _named(what: str, interface: str) -> Iterator[None]:
    """Give an error of the kernel the words that say what it is about."""
    try:
        yield
    except OSError as error:
        said = error.strerror or str(error)
        advice = said
        if error.errno == errno.EPERM:
            advice = "the agent needs CAP_NET_ADMIN; run it as root"
        elif error.errno == errno.EOPNOTSUPP:
            advice = f"{said}; load the kernel module veth"
        raise NetlinkError(error.errno or errno.EIO, what, interface, advice) from error


__all__ = ["HOST_PREFIX", "N_LINKS", "TASK_INTERFACE", "PortLink", "attach", "present", "remove"]
