"""What a simulated kernel does with each kind of netlink request: bytes in, replies as bytes out. Never blocks."""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Callable, Mapping

from beeyard.runtime import fake_port_links
from beeyard.runtime import netlink_format as nl
from beeyard.runtime.fake_links import FakeHostLinks, FakeLink, FakeNamespace, Interface
from beeyard.runtime.fake_refuse import refuse
from beeyard.runtime.fake_routes import FakeRoute
from beeyard.runtime.host import RequestRefused

# What a task's namespace calls the host's in IFLA_LINK_NETNSID; any number would do.
_NSID_OF_HOST = 0
_DEVICE_SETTINGS = {nl.IPV4_DEVCONF_ARP_ANNOUNCE: "arp_announce", nl.IPV4_DEVCONF_ARP_IGNORE: "arp_ignore"}


class FakeRequests:
    """The requests that this fake plays, on the links of one host.

    Args:
        links: what they change.
        fds: the namespaces that IFLA_NET_NS_FD may name.
    """

    def __init__(self, links: FakeHostLinks, fds: Mapping[int, FakeNamespace]) -> None:
        self._links = links
        self._fds = fds
        self._handlers: dict[int, Callable[[FakeNamespace, nl.Message], list[bytes] | None]] = {
            nl.RTM_NEWLINK: self._new_link,
            nl.RTM_SETLINK: self._set_link,
            nl.RTM_DELLINK: self._delete_link,
            nl.RTM_GETLINK: self._get_link,
            nl.RTM_NEWADDR: self._new_address,
            nl.RTM_DELADDR: self._delete_address,
            nl.RTM_GETADDR: self._get_address,
            nl.RTM_NEWROUTE: self._new_route,
            nl.RTM_DELROUTE: self._delete_route,
            nl.RTM_GETROUTE: self._get_routes,
            nl.RTM_NEWNEIGH: self._new_neighbour,
            nl.RTM_DELNEIGH: self._delete_neighbour,
            fake_port_links.RTM_NEWRULE: fake_port_links.new_rule,
        }

    def perform(self, namespace: FakeNamespace, message: bytes) -> list[bytes]:
        """Do all requests of a message up to the first that is refused; gives the replies.

        Raises:
            RequestRefused: with the position of the one that was refused.
        """
        replies: list[bytes] = []
        for position, part in enumerate(nl.split(message)):
            try:
                handler = self._handlers.get(part.type)
                if handler is None:
                    refuse(errno.EOPNOTSUPP)
                replies += handler(namespace, part) or ()
            except RequestRefused as error:
                error.position = position
                raise
        return replies

    # --- links ---

    def _new_link(self, namespace: FakeNamespace, part: nl.Message) -> None:
        index, found, kind, data = _read_link_request(part)
        name = _name(found)
        existing = namespace.find(index, name) if index or name else None
        if existing is not None:
            if part.flags & nl.NLM_F_EXCL:
                refuse(errno.EEXIST)
            self._change_link(existing, kind, data)
            return
        if not part.flags & nl.NLM_F_CREATE:
            refuse(errno.ENODEV)
        if kind == "veth":
            fake_port_links.new_pair(namespace, name, index, found, data, self._links.draw_mac, self._fds)
            return
        if kind not in self._links.kinds:
            refuse(errno.EOPNOTSUPP, "Unknown device type")
        target = self._target(namespace, found)
        parent = namespace.links.get(nl.as_u32(found[nl.IFLA_LINK])) if nl.IFLA_LINK in found else None
        if parent is None:
            refuse(errno.ENODEV if nl.IFLA_LINK in found else errno.EINVAL)
        link = self._create(target, parent, name, index, kind, found, data)
        link.group = nl.as_u32(found[nl.IFLA_GROUP]) if nl.IFLA_GROUP in found else 0
        self._change_flags(link, part)

    def _create(
        self,
        target: FakeNamespace,
        parent: FakeLink,
        name: str,
        index: int,
        kind: str,
        found: dict[int, bytes],
        data: dict[int, bytes],
    ) -> FakeLink:
        mtu = nl.as_u32(found[nl.IFLA_MTU]) if nl.IFLA_MTU in found else 0
        if kind == "ipvlan":
            mode = nl.as_u16(data.get(nl.IFLA_IPVLAN_MODE, nl.U16.pack(nl.IPVLAN_MODES["l3"])))
            flag = nl.as_u16(data.get(nl.IFLA_IPVLAN_FLAGS, nl.U16.pack(0)))
            return self._links.create_ipvlan(target, parent, name=name, index=index, mtu=mtu, mode=mode, flag=flag)
        if kind == "vlan":
            if nl.IFLA_VLAN_ID not in data:
                refuse(errno.EINVAL, "VLAN properties not specified")
            vlan_id = nl.as_u16(data[nl.IFLA_VLAN_ID])
            return self._links.create_vlan(target, parent, name=name, index=index, vlan_id=vlan_id)
        return self._links.create_macvlan(
            target,
            parent,
            name=name,
            index=index,
            mac=nl.as_mac(found[nl.IFLA_ADDRESS]) if nl.IFLA_ADDRESS in found else "",
            mtu=mtu,
            mode=nl.as_u32(data.get(nl.IFLA_MACVLAN_MODE, nl.U32.pack(nl.MACVLAN_MODES["vepa"]))),
            lists_senders=nl.IFLA_MACVLAN_MACADDR_MODE in data,
        )

    def _change_link(self, link: FakeLink, kind: str, data: dict[int, bytes]) -> None:
        if kind != link.kind:
            refuse(errno.EOPNOTSUPP)
        if kind == "macvlan" and nl.IFLA_MACVLAN_MODE in data:
            self._links.change_mode(link, nl.as_u32(data[nl.IFLA_MACVLAN_MODE]))

    def _set_link(self, namespace: FakeNamespace, part: nl.Message) -> None:
        link, found = self._existing(namespace, part)
        if nl.IFLA_MTU in found:
            self._links.change_mtu(link, nl.as_u32(found[nl.IFLA_MTU]))
        if nl.IFLA_IFALIAS in found:
            link.alias = nl.as_text(found[nl.IFLA_IFALIAS])
        if nl.IFLA_AF_SPEC in found:
            families = nl.attributes(found[nl.IFLA_AF_SPEC])
            inet = nl.attributes(nl.attributes(families.get(nl.AF_INET, b"")).get(nl.IFLA_INET_CONF, b""))
            for number, name in _DEVICE_SETTINGS.items():
                if number in inet:
                    setattr(link, name, nl.as_u32(inet[number]))
            inet6 = nl.attributes(families.get(nl.AF_INET6, b""))
            if nl.IFLA_INET6_ADDR_GEN_MODE in inet6:
                mode = inet6[nl.IFLA_INET6_ADDR_GEN_MODE][0]
                self._links.make_own_addresses(link, mode != nl.IN6_ADDR_GEN_MODE_NONE)
        self._change_flags(link, part)

    def _change_flags(self, link: FakeLink, part: nl.Message) -> None:
        _, _, _, flags, change = nl.LINK_BODY.unpack_from(part.payload)
        if change & nl.IFF_NOARP:
            link.arp = not flags & nl.IFF_NOARP
        if change & nl.IFF_UP:
            self._links.set_up(link, bool(flags & nl.IFF_UP))

    def _delete_link(self, namespace: FakeNamespace, part: nl.Message) -> None:
        self._links.delete(self._existing(namespace, part)[0])

    def _get_link(self, namespace: FakeNamespace, part: nl.Message) -> list[bytes]:
        if part.flags & nl.NLM_F_DUMP == nl.NLM_F_DUMP:
            return [_describe(link) for _, link in sorted(namespace.links.items())]
        return [_describe(self._existing(namespace, part)[0])]

    # --- addresses ---

    def _new_address(self, namespace: FakeNamespace, part: nl.Message) -> None:
        self._links.add_address(*_addressed(namespace, part))

    def _delete_address(self, namespace: FakeNamespace, part: nl.Message) -> None:
        self._links.delete_address(*_addressed(namespace, part))

    def _get_address(self, namespace: FakeNamespace, part: nl.Message) -> list[bytes]:
        links = [link for _, link in sorted(namespace.links.items())]
        return [
            _describe_address(link, address)
            for version in (4, 6)
            for link in links
            for address in link.addresses
            if address.version == version
        ]

    # --- routes and neighbours ---

    def _new_route(self, namespace: FakeNamespace, part: nl.Message) -> None:
        route = _read_route(namespace, part)
        table = nl.ROUTE_BODY.unpack_from(part.payload)[4]
        if table not in (0, nl.RT_TABLE_MAIN):
            namespace.way.add_to_table(table, route)
            return
        flags = part.flags
        namespace.way.add(route, exclusive=bool(flags & nl.NLM_F_EXCL), replace=bool(flags & nl.NLM_F_REPLACE))

    def _delete_route(self, namespace: FakeNamespace, part: nl.Message) -> None:
        found = nl.attributes(part.payload, nl.ROUTE_BODY.size)
        index = nl.as_u32(found[nl.RTA_OIF]) if nl.RTA_OIF in found else 0
        metric = nl.as_u32(found[nl.RTA_PRIORITY]) if nl.RTA_PRIORITY in found else 0
        namespace.way.delete(_destination(part, found), index, nl.ROUTE_BODY.unpack_from(part.payload)[5], metric)

    def _get_routes(self, namespace: FakeNamespace, part: nl.Message) -> list[bytes]:
        return [_describe_route(route) for route in namespace.way.routes]

    def _new_neighbour(self, namespace: FakeNamespace, part: nl.Message) -> None:
        index, found = _read_neighbour(namespace, part)
        address = ipaddress.ip_address(found[nl.NDA_DST])
        namespace.way.neighbours[index, address] = nl.as_mac(found[nl.NDA_LLADDR])

    def _delete_neighbour(self, namespace: FakeNamespace, part: nl.Message) -> None:
        index, found = _read_neighbour(namespace, part)
        namespace.way.delete_neighbour(index, ipaddress.ip_address(found[nl.NDA_DST]))

    # --- small help ---

    def _target(self, namespace: FakeNamespace, found: dict[int, bytes]) -> FakeNamespace:
        if nl.IFLA_NET_NS_FD not in found:
            return namespace
        target = self._fds.get(nl.as_u32(found[nl.IFLA_NET_NS_FD]))
        if target is None or target.path not in self._links.namespaces:
            refuse(errno.EBADF)
        return target

    @staticmethod
    def _existing(namespace: FakeNamespace, part: nl.Message) -> tuple[FakeLink, dict[int, bytes]]:
        index, found, _, _ = _read_link_request(part)
        link = namespace.find(index, _name(found))
        if link is None:
            refuse(errno.ENODEV)
        return link, found


def _read_link_request(part: nl.Message) -> tuple[int, dict[int, bytes], str, dict[int, bytes]]:
    """Index, attributes, kind and the kind's own attributes."""
    index = nl.LINK_BODY.unpack_from(part.payload)[2]
    found = nl.attributes(part.payload, nl.LINK_BODY.size)
    info = nl.attributes(found.get(nl.IFLA_LINKINFO, b""))
    return (
        index,
        found,
        nl.as_text(info.get(nl.IFLA_INFO_KIND, b"")),
        nl.attributes(info.get(nl.IFLA_INFO_DATA, b"")),
    )


def _addressed(namespace: FakeNamespace, part: nl.Message) -> tuple[FakeLink, Interface]:
    _, prefix_length, _, _, index = nl.ADDRESS_BODY.unpack_from(part.payload)
    found = nl.attributes(part.payload, nl.ADDRESS_BODY.size)
    link = namespace.links.get(index)
    if link is None:
        refuse(errno.ENODEV)
    address = ipaddress.ip_address(found.get(nl.IFA_LOCAL) or found[nl.IFA_ADDRESS])
    return link, ipaddress.ip_interface(f"{address}/{prefix_length}")


def _read_route(namespace: FakeNamespace, part: nl.Message) -> FakeRoute:
    found = nl.attributes(part.payload, nl.ROUTE_BODY.size)
    if nl.RTA_OIF not in found and nl.RTA_GATEWAY not in found:
        refuse(errno.EINVAL)
    gateway = ipaddress.ip_address(found[nl.RTA_GATEWAY]) if nl.RTA_GATEWAY in found else None
    if nl.RTA_OIF in found:
        link = namespace.links.get(nl.as_u32(found[nl.RTA_OIF]))
    else:
        near = [o for o in namespace.links.values() if o.up and any(gateway in a.network for a in o.addresses)]
        link = near[0] if near else refuse(errno.ENETUNREACH, "Nexthop has invalid gateway")
    if link is None:
        refuse(errno.ENODEV)
    return FakeRoute(
        link=link,
        destination=_destination(part, found),
        gateway=gateway,
        metric=nl.as_u32(found[nl.RTA_PRIORITY]) if nl.RTA_PRIORITY in found else 0,
        protocol=nl.ROUTE_BODY.unpack_from(part.payload)[5],
        source=ipaddress.ip_address(found[nl.RTA_PREFSRC]) if nl.RTA_PREFSRC in found else None,
    )


def _destination(part: nl.Message, found: dict[int, bytes]) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    family, length, *_ = nl.ROUTE_BODY.unpack_from(part.payload)
    network = found.get(nl.RTA_DST, bytes(4 if family == nl.AF_INET else 16))
    try:
        return ipaddress.ip_network((network, length))
    except ValueError:
        refuse(errno.EINVAL, "Invalid prefix for given prefix length")


def _read_neighbour(namespace: FakeNamespace, part: nl.Message) -> tuple[int, dict[int, bytes]]:
    index = nl.NEIGHBOUR_BODY.unpack_from(part.payload)[1]
    if index not in namespace.links:
        refuse(errno.ENODEV)
    return index, nl.attributes(part.payload, nl.NEIGHBOUR_BODY.size)


def _name(found: dict[int, bytes]) -> str:
    name = nl.as_text(found.get(nl.IFLA_IFNAME, b""))
    if len(name) > 15:
        refuse(errno.ERANGE, "Attribute failed policy validation")
    return name


def _describe(link: FakeLink) -> bytes:
    arp_type = nl.ARPHRD_LOOPBACK if link.loopback else nl.ARPHRD_ETHER
    flags = (nl.IFF_UP if link.up else 0) | (nl.IFF_LOWER_UP if link.carrier else 0)
    flags |= (nl.IFF_LOOPBACK if link.loopback else 0) | (0 if link.speaks_arp else nl.IFF_NOARP)
    body = nl.LINK_BODY.pack(nl.AF_UNSPEC, arp_type, link.index, flags, 0) + nl.text(nl.IFLA_IFNAME, link.name)
    body += nl.u32(nl.IFLA_MTU, link.mtu) + nl.attribute(nl.IFLA_ADDRESS, nl.mac_bytes(link.mac))
    body += nl.u32(nl.IFLA_GROUP, link.group)
    if link.alias:
        body += nl.text(nl.IFLA_IFALIAS, link.alias)
    if link.parent is not None:
        body += nl.u32(nl.IFLA_LINK, link.parent.index)
        if link.parent.namespace is not link.namespace:
            body += nl.u32(nl.IFLA_LINK_NETNSID, _NSID_OF_HOST)
    if link.kind:
        info = nl.text(nl.IFLA_INFO_KIND, link.kind) + nl.attribute(nl.IFLA_INFO_DATA, _describe_kind(link))
        body += nl.attribute(nl.IFLA_LINKINFO, info)
    return nl.message(nl.RTM_NEWLINK, 0, body)


def _describe_kind(link: FakeLink) -> bytes:
    if link.kind == "vlan":
        return nl.u16(nl.IFLA_VLAN_ID, link.vlan_id)
    if link.kind == "ipvlan" and link.parent is not None:
        return nl.u16(nl.IFLA_IPVLAN_MODE, link.mode) + nl.u16(nl.IFLA_IPVLAN_FLAGS, link.parent.port_flag)
    return nl.u32(nl.IFLA_MACVLAN_MODE, link.mode)


def _describe_address(link: FakeLink, address: Interface) -> bytes:
    family = nl.AF_INET if address.version == 4 else nl.AF_INET6
    body = nl.ADDRESS_BODY.pack(family, address.network.prefixlen, 0, 0, link.index)
    return nl.message(nl.RTM_NEWADDR, 0, body + nl.attribute(nl.IFA_ADDRESS, address.ip.packed))


def _describe_route(route: FakeRoute) -> bytes:
    network = route.destination
    family, length = nl.AF_INET if network.version == 4 else nl.AF_INET6, network.prefixlen
    body = nl.ROUTE_BODY.pack(family, length, 0, 0, nl.RT_TABLE_MAIN, route.protocol, 0, nl.RTN_UNICAST, 0)
    body += nl.u32(nl.RTA_OIF, route.link.index) + nl.u32(nl.RTA_PRIORITY, route.metric)
    if length:
        body += nl.attribute(nl.RTA_DST, network.network_address.packed)
    if route.gateway is not None:
        body += nl.attribute(nl.RTA_GATEWAY, route.gateway.packed)
    return nl.message(nl.RTM_NEWROUTE, 0, body)


__all__ = ["FakeRequests"]
