"""What a service with addresses or MAC addresses of its slots must say to be accepted."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import msgspec

from beeyard.core.address_pool import edge_addresses
from beeyard.core.errors import InvalidSpec
from beeyard.core.labels import FENCE, LABEL_ADDRESSES, LABEL_MAC, LABEL_ON_ISOLATION, PER_SLOT, is_fenced
from beeyard.core.model import Network, ServiceSpec, UpdateOrder
from beeyard.core.network_options import PASSTHRU
from beeyard.core.pins import Pins, has_slot_macs, pins_of
from beeyard.core.pools import ResolvedPool, pools_of, segment_of
from beeyard.manager.store import View

_ADDRESSES, _MAC = f"label {LABEL_ADDRESSES}", f"label {LABEL_MAC}"


def check_slots(view: View, spec: ServiceSpec, present: ServiceSpec | None) -> None:
    """Refuse labels that cannot be followed.

    Args:
        spec: with its networks as ids.
        present: what the service is now: its addresses are its own, and were checked when they were given.

    Raises:
        InvalidSpec
    """
    if LABEL_ADDRESSES not in spec.labels and LABEL_MAC not in spec.labels:
        return
    if present is not None and msgspec.structs.replace(present, replicas=spec.replicas) == spec:
        _check_number(spec)
        return
    networks = [network for id_ in spec.task.network_ids if (network := view.get(Network, id_)) is not None]
    all_networks = list(view.networks.values())
    if has_slot_macs(spec.labels):
        _check_macs(spec, {network.name: pools_of(network, all_networks) for network in networks})
    if LABEL_ADDRESSES in spec.labels:
        pins = pins_of(spec.labels)
        _check_order(spec, _ADDRESSES)
        if not is_fenced(spec.labels):
            reason = (
                f"it needs --label {LABEL_ON_ISOLATION}={FENCE} too: else a slot whose node is lost waits for a day"
            )
            raise InvalidSpec(_ADDRESSES, reason)
        _check_number(spec)
        _check_pins(view, pins, _pools(networks, all_networks), spec.name)


def _check_number(spec: ServiceSpec) -> None:
    if LABEL_ADDRESSES in spec.labels and (n_slots := len(pins_of(spec.labels))) < spec.replicas:
        reason = (
            f"it has addresses for {n_slots} replicas, and {spec.replicas} are asked for: add some to the label first"
        )
        raise InvalidSpec(_ADDRESSES, reason)


def _check_order(spec: ServiceSpec, label: str) -> None:
    if spec.update is not None and spec.update.order is UpdateOrder.START_FIRST:
        reason = (
            "what belongs to a slot has one task at a time, which --update-order start-first is against: use stop-first"
        )
        raise InvalidSpec(label, reason)


def _check_macs(spec: ServiceSpec, pools: dict[str, list[ResolvedPool]]) -> None:
    _check_order(spec, _MAC)
    for name, of_network in pools.items():
        for pool in of_network:
            if pool.driver != "macvlan" or pool.mode == PASSTHRU:
                kind = pool.driver if pool.driver != "macvlan" else f"macvlan in mode {PASSTHRU}"
                reason = f"{PER_SLOT} is not for network {name}: with {kind} a link has its parent's MAC address"
                raise InvalidSpec(_MAC, reason)
            if pool.is_plugin:
                reason = f"{PER_SLOT} is not for network {name}: its IPAM plugin is told a MAC address of the task"
                raise InvalidSpec(_MAC, reason)
    if not any(pools.values()):
        raise InvalidSpec(_MAC, f"{PER_SLOT} needs a macvlan network: give --network")


def _pools(networks: Sequence[Network], all_networks: Sequence[Network]) -> list[ResolvedPool]:
    with_pools = [network for network in networks if pools_of(network, all_networks)]
    if len(with_pools) != 1:
        given = ", ".join(network.name for network in with_pools) or "none"
        raise InvalidSpec(_ADDRESSES, f"it needs exactly one network with addresses, and has {given}")
    pools = pools_of(with_pools[0], all_networks)
    if not pools[0].has_book:
        reason = f"network {with_pools[0].name} has the IPAM driver {pools[0].ipam_driver}, which chooses by itself"
        raise InvalidSpec(_ADDRESSES, reason)
    return pools


def _check_pins(view: View, pins: Pins, pools: Sequence[ResolvedPool], service_name: str) -> None:
    """Each address may be held by others now, and is then waited for; what can never be given is refused."""
    subnets = [[ipaddress.ip_network(config.subnet) for config in pool.ipam] for pool in pools]
    for slot in range(1, len(pins) + 1):
        addresses = [ipaddress.ip_address(address) for address in pins.of_slot(slot)]
        if not any(all(any(a in subnet for subnet in pool) for a in addresses) for pool in subnets):
            text = " and ".join(map(str, addresses))
            names = ", ".join(pool.name for pool in pools)
            raise InvalidSpec(_ADDRESSES, f"{text} is in no subnet of one pool of {names}")
    segments = {pool.segment: None for pool in pools}
    taken = _never_given(view, list(segments), service_name)
    for address in pins.all():
        if address in taken:
            raise InvalidSpec(_ADDRESSES, f"{address} is {taken[address]}")


def _never_given(view: View, segments: Sequence[str], service_name: str) -> dict[str, str]:
    """Addresses on some segments that no slot of a service can have, and what each is."""
    taken: dict[str, str] = {}
    all_networks = list(view.networks.values())
    for network in all_networks:
        if segment_of(network) not in segments:
            continue
        for config in network.ipam:
            for edge in edge_addresses(ipaddress.ip_network(config.subnet)):
                text = str(ipaddress.ip_address(edge) if ":" not in config.subnet else ipaddress.IPv6Address(edge))
                taken[text] = f"the network or broadcast address of {config.subnet}"
            for name, address in config.aux_addresses.items():
                taken[_plain(address)] = f"the auxiliary address {name} of network {network.name}"
            if config.gateway:
                taken[_plain(config.gateway)] = f"the gateway of network {network.name}"
    for node in view.nodes.values():
        for link in node.description.links:
            for address in link.addresses:
                taken[_plain(address)] = f"an address of node {node.description.hostname or node.id} itself"
    taken |= pinned_addresses(view, segments, service_name)
    return taken


def pinned_addresses(view: View, segments: Sequence[str], service_name: str = "") -> dict[str, str]:
    """Addresses on some segments that are pinned to slots, with what they are, but for those of one service."""
    taken: dict[str, str] = {}
    all_networks = list(view.networks.values())
    for service in view.services.values():
        pins = pins_of(service.spec.labels)
        if service.spec.name == service_name or not len(pins):
            continue
        networks = [network for id_ in service.spec.task.network_ids if (network := view.get(Network, id_)) is not None]
        if any(pool.segment in segments for network in networks for pool in pools_of(network, all_networks)):
            taken.update(dict.fromkeys(pins.all(), f"pinned by service {service.spec.name}"))
    return taken


def _plain(address: str) -> str:
    return str(ipaddress.ip_interface(address.partition("%")[0]).ip) if address else ""


__all__ = ["check_slots", "pinned_addresses"]
