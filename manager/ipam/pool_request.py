"""Asking a plugin for a network's pools: one part after the other, with gateway and auxiliary addresses."""

from __future__ import annotations

import ipaddress

import msgspec

from beeyard.core.ipam import LeaseState, PoolLease, PoolPart
from beeyard.core.model import IPAMConfig, Network
from beeyard.core.network_options import driver_of, is_routed, mode_of
from beeyard.manager.ipam import protocol
from beeyard.manager.ipam.answer import read_address
from beeyard.manager.ipam.fault import FaultKind, PluginFault, quote
from beeyard.manager.ipam.plugin import Plugin

GATEWAY_OPTIONS = {protocol.REQUEST_ADDRESS_TYPE: protocol.GATEWAY}
# `PoolPart.gateway` of a subnet that the plugin chooses: so nobody else knows its gateway.
ANY_GATEWAY = "any"


class PoolRequest:
    """One network's pools while they are being obtained.

    Invariant: `parts` are those that the plugin has given, or may have given.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self._configs = list(network.ipam) or [IPAMConfig(subnet="") for _ in range(2 if network.enable_ipv6 else 1)]
        self.parts = _intended(network)

    @property
    def lease(self) -> PoolLease:
        """What is to be stored of it now."""
        return PoolLease(
            id=self._network.id,
            plugin=self._network.ipam_driver,
            network_name=self._network.name,
            options=self._network.ipam_options,
            state=LeaseState.HELD if self.parts and all(part.pool_id for part in self.parts) else LeaseState.ASKING,
            parts=tuple(self.parts),
        )

    @property
    def network(self) -> Network:
        """The network with the subnets and gateways that were obtained."""
        return msgspec.structs.replace(self._network, ipam=tuple(self._configs))

    async def run(self, plugin: Plugin) -> None:
        """Obtain everything. Raises PluginFault; what was obtained until then is in `parts`."""
        for i in range(len(self.parts)):
            config, part = self._configs[i], self.parts[i]
            try:
                got = await plugin.request_pool(
                    config.subnet, config.ip_range, self._network.ipam_options, v6=part.v6, retry=True
                )
            except PluginFault as fault:
                del self.parts[i + fault.in_doubt :]
                raise
            self.parts[i] = msgspec.structs.replace(part, pool_id=got.PoolID)
            try:
                self._configs[i] = _chosen(plugin.name, config, part.v6, got)
                self.parts[i] = msgspec.structs.replace(self.parts[i], given=self._configs[i].subnet)
                await self._reserve(plugin, i, got)
            except PluginFault:
                del self.parts[i + 1 :]
                raise

    async def _reserve(self, plugin: Plugin, i: int, got: protocol.Pool) -> None:
        """Take gateway and auxiliary addresses, so that the plugin gives them to nobody."""
        part, config = self.parts[i], self._configs[i]
        told = str((got.Data or {}).get(protocol.GATEWAY, ""))
        if part.gateway == ANY_GATEWAY and (gateway := read_address(told)) is not None:
            # It has said so itself and does not expect to be asked. Source: libnetwork `ipamAllocateVersion`.
            self._configs[i] = msgspec.structs.replace(config, gateway=str(gateway.ip))
        elif part.gateway:
            wanted = "" if part.gateway == ANY_GATEWAY else part.gateway
            answer = await self._ask(plugin, i, GATEWAY_OPTIONS, wanted)
            gateway = read_address(answer)
            if gateway is None or gateway.ip not in ipaddress.ip_network(config.subnet):
                raise _junk(plugin.name, f"it gave {quote(answer)!r} as the gateway of {config.subnet}")
            if str(gateway.ip) not in self.parts[i].taken:
                self._set_taken(i, (*self.parts[i].taken, str(gateway.ip)))
            if wanted and gateway.ip != ipaddress.ip_address(wanted):
                raise _junk(plugin.name, f"it gave {gateway.ip} as the gateway and not {wanted}")
            self._configs[i] = msgspec.structs.replace(config, gateway=str(gateway.ip))
        for address in part.reserved:
            await self._ask(plugin, i, {}, address)

    async def _ask(self, plugin: Plugin, i: int, options: dict[str, str], address: str) -> str:
        """Ask for an address of a part. One that is named counts as taken unless the plugin surely did not give it."""
        before = self.parts[i].taken
        if address:
            self._set_taken(i, (*before, address))
        try:
            return await plugin.request_address(lambda: self.parts[i].pool_id, options, address)
        except PluginFault as fault:
            if not fault.in_doubt:
                self._set_taken(i, before)
            raise

    def _set_taken(self, i: int, taken: tuple[str, ...]) -> None:
        self.parts[i] = msgspec.structs.replace(self.parts[i], taken=taken)


def _intended(network: Network) -> list[PoolPart]:
    if network.ipam:
        return [
            PoolPart(
                subnet=config.subnet,
                ip_range=config.ip_range,
                v6=":" in config.subnet,
                gateway=config.gateway,
                reserved=tuple(address for _, address in sorted(config.aux_addresses.items())),
            )
            for config in network.ipam
        ]
    driver = network.driver or driver_of(network.options)
    routed = is_routed(driver, mode_of(network.options, driver))
    gateway = "" if network.internal or routed else ANY_GATEWAY
    return [PoolPart(v6=v6, gateway=gateway) for v6 in ((False, True) if network.enable_ipv6 else (False,))]


def _chosen(plugin: str, config: IPAMConfig, v6: bool, got: protocol.Pool) -> IPAMConfig:
    """The subnet as the plugin gave it."""
    try:
        subnet = ipaddress.ip_network(got.Pool)
    except ValueError:
        raise _junk(plugin, f"it gave {quote(got.Pool)!r} as a subnet") from None
    if (subnet.version == 6) is not v6:
        raise _junk(plugin, f"it gave {subnet} and not a subnet of IPv{6 if v6 else 4}")
    if config.subnet and subnet != ipaddress.ip_network(config.subnet):
        raise _junk(plugin, f"it gave {subnet} and not {config.subnet}")
    return msgspec.structs.replace(config, subnet=str(subnet))


def _junk(plugin: str, reason: str) -> PluginFault:
    return PluginFault(plugin, FaultKind.JUNK, reason)


__all__ = ["GATEWAY_OPTIONS", "PoolRequest"]
