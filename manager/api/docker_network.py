"""Docker's networks ↔ `Network`, with the tasks on them and how full their pools are."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from beeyard.core.address_pool import PoolUsage
from beeyard.core.errors import InvalidSpec, Unsupported
from beeyard.core.grant import AddressGrant
from beeyard.core.model import IPAMConfig, Network, Task
from beeyard.core.pools import ResolvedPool
from beeyard.manager.api.docker_value import compact, time_of
from beeyard.manager.api.fields import Fields
from beeyard.manager.api.lookup import task_name
from beeyard.manager.api.status import PutAside
from beeyard.manager.control.network_update import NetworkChange


def read_network(body: object, network_id: str) -> Network:
    """A network as a client asks for it; what it may say is checked by `core.network_spec.validate_network`.

    Raises:
        InvalidSpec, Unsupported
    """
    fields = Fields(body)
    config_only = fields.flag("ConfigOnly")
    driver = fields.text("Driver", "bridge")
    source = fields.nested("ConfigFrom")
    ipam = fields.nested("IPAM")
    if fields.take("EnableIPv4") is False:
        raise Unsupported("--ipv4=false")
    network = Network(
        id=network_id,
        name=fields.text("Name"),
        # Docker's CLI always names a driver; for a configuration without one it is the default, "bridge".
        driver="" if config_only and driver == "bridge" else driver,
        scope=fields.text("Scope", "swarm"),
        config_only=config_only,
        config_from=source.text("Network"),
        ipam_driver=ipam.text("Driver", "default"),
        ipam_options=ipam.labels("Options"),
        ipam=tuple(_read_ipam(config) for config in ipam.nested_list("Config")),
        options=fields.labels("Options"),
        labels=fields.labels("Labels"),
        internal=fields.flag("Internal"),
        attachable=fields.flag("Attachable"),
        enable_ipv6=fields.flag("EnableIPv6"),
    )
    fields.take("CheckDuplicate")  # names are always unique
    source.finish()
    ipam.finish()
    fields.finish({"Ingress": "--ingress"})
    return network


def read_network_change(body: object) -> NetworkChange:
    """What a client wants different of a network: `IPAM.Config` and `Labels` replace what there is, if they are given.

    Raises:
        InvalidSpec, Unsupported
    """
    fields = Fields(body)
    ipam, labels = fields.take("IPAM"), fields.take("Labels")
    fields.finish({"Options": "changing the options of a network", "Driver": "changing the driver of a network"})
    ipam_fields = Fields({"IPAM": ipam}).nested("IPAM")
    configs = tuple(_read_ipam(config) for config in ipam_fields.nested_list("Config"))
    ipam_fields.finish({"Driver": "changing the IPAM driver of a network", "Options": "changing the IPAM options"})
    return NetworkChange(
        ipam=None if ipam is None else configs,
        labels=None if labels is None else Fields({"Labels": labels}).labels("Labels"),
    )


def read_addresses(body: object) -> tuple[str, ...]:
    """`Addresses` of a request, as `ipaddress` writes them; none means all.

    Raises:
        InvalidSpec
    """
    fields = Fields(body)
    texts = fields.texts("Addresses")
    fields.finish()
    try:
        return tuple(str(ipaddress.ip_address(text)) for text in texts)
    except ValueError as error:
        raise InvalidSpec("Addresses", f"{error}; give addresses such as 10.0.4.7") from None


def _read_ipam(fields: Fields) -> IPAMConfig:
    config = IPAMConfig(
        subnet=fields.text("Subnet"),
        ip_range=fields.text("IPRange"),
        gateway=fields.text("Gateway"),
        aux_addresses=fields.labels("AuxiliaryAddresses"),
    )
    fields.finish()
    return config


def show_network(network: Network, pools: Sequence[ResolvedPool] = ()) -> dict[str, Any]:
    """A network as a list gives it. One with `--config-from` shows the subnets of its pools."""
    configs = list(network.ipam) or [config for pool in pools for config in pool.ipam]
    return {
        "Name": network.name,
        "Id": network.id,
        "Version": {"Index": network.version},
        "Created": time_of(network.created_at_s),
        "Scope": network.scope,
        "Driver": network.driver or "null",
        "EnableIPv4": not configs or any(_family(config) == 4 for config in configs),
        "EnableIPv6": network.enable_ipv6 or any(_family(config) == 6 for config in configs),
        "IPAM": {
            "Driver": network.ipam_driver,
            "Options": network.ipam_options or None,
            "Config": [_show_ipam(config) for config in configs],
        },
        "Internal": network.internal,
        "Attachable": network.attachable,
        "Ingress": False,
        "ConfigFrom": {"Network": network.config_from},
        "ConfigOnly": network.config_only,
        "Containers": {},
        "Options": network.options,
        "Labels": network.labels,
    }


def show_network_in_full(
    network: Network,
    pools: Sequence[ResolvedPool],
    tasks: Iterable[Task],
    usage_of: Callable[[str], PoolUsage | None],
    put_aside_of: Callable[[str], Sequence[PutAside]] = lambda pool_id: (),
    closed_of: Callable[[str], str] = lambda pool_id: "",
) -> dict[str, Any]:
    """A network as `inspect` gives it: with the live tasks on it and the state of its pools.

    Args:
        tasks: those that may have a place on the network.
        usage_of: by pool id.
        put_aside_of: by pool id, the addresses that strangers have.
        closed_of: by pool id, why no more addresses of it are tried.
    """
    shown = show_network(network, pools)
    held = [
        (task, grant)
        for task in tasks
        if task.holds_room
        for grant in task.grants
        if isinstance(grant, AddressGrant) and network.id in (grant.network_id, grant.pool_id)
    ]
    shown["Containers"] = {task.id: _show_container(task, grant) for task, grant in held}
    states = {
        p.name: _show_pool(p, usage_of(p.pool_id), put_aside_of(p.pool_id)) | compact(Closed=closed_of(p.pool_id))
        for p in pools
    }
    known = {pool.pool_id: pool for pool in pools}
    names = {pool.name for pool in pools}
    for task, grant in held:
        pool = known.get(grant.pool_id)
        if pool is None:
            if any(p.ipam and p.segment == grant.segment and _in_range(p, grant) for p in pools):
                continue  # The pool that has its range now counts it as used.
            # Removed while tasks have addresses of it: they keep them to their end. A new pool may have the name since.
            name = f"{grant.pool_name} (removed)" if grant.pool_name in names else grant.pool_name
            gone = states.setdefault(name, {"Removed": True, "Used": 0})
            gone["Used"] += 1
        elif not task.pins and not _in_range(pool, grant):
            states[pool.name]["Outside"] = states[pool.name].get("Outside", 0) + 1
    if states:
        shown["Status"] = {"IPAM": {"Pools": states}}
    return shown


def _in_range(pool: ResolvedPool, grant: AddressGrant) -> bool:
    """Whether a grant's addresses are such as the pool gives now."""
    spans = [ipaddress.ip_network(config.ip_range or config.subnet) for config in pool.ipam]
    return not spans or all(
        any(ipaddress.ip_interface(address).ip in span for span in spans) for address in grant.addresses
    )


def _show_container(task: Task, grant: AddressGrant) -> dict[str, str]:
    by_family = {ipaddress.ip_interface(address).version: address for address in grant.addresses}
    return {
        "Name": task_name(task),
        "EndpointID": grant.id,
        "MacAddress": grant.mac,
        "IPv4Address": by_family.get(4, ""),
        "IPv6Address": by_family.get(6, ""),
    }


def _show_pool(pool: ResolvedPool, usage: PoolUsage | None, put_aside: Sequence[PutAside]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "Subnets": [config.subnet for config in pool.ipam],
        "Ranges": [config.ip_range or config.subnet for config in pool.ipam],
        "Parent": pool.parent,
        "Nodes": pool.nodes,
        **compact(IPAMDriver=pool.ipam_driver if not pool.has_book else ""),
    }
    if usage is not None:
        shown |= {"Total": usage.total, "Used": usage.used, "Cooling": usage.cooling, "Free": usage.free}
    return shown | compact(PutAside=[_show_put_aside(aside) for aside in put_aside])


def _show_put_aside(aside: PutAside) -> dict[str, str]:
    return {
        "Address": aside.address,
        "MacAddress": aside.mac,
        "FoundBy": aside.node,
        "Until": time_of(aside.until_at_s),
    }


def _family(config: IPAMConfig) -> int:
    return 6 if ":" in config.subnet else 4


def _show_ipam(config: IPAMConfig) -> dict[str, Any]:
    return compact(
        Subnet=config.subnet,
        IPRange=config.ip_range,
        Gateway=config.gateway,
        AuxiliaryAddresses=config.aux_addresses,
    )


def show_network_of_task(grant: AddressGrant, network: Network | None) -> dict[str, Any]:
    """Docker's other form of a network, inside a task's attachments. `network` is None when it was removed meanwhile."""
    spec: dict[str, Any] = {
        "Name": grant.network_name,
        "Labels": network.labels if network else {},
        "DriverConfiguration": {"Name": grant.driver},
        **compact(ConfigFrom={"Network": network.config_from} if network and network.config_from else {}),
        "Scope": "swarm",
    }
    return {
        "ID": grant.network_id,
        "Version": {"Index": network.version if network else 0},
        "CreatedAt": time_of(network.created_at_s if network else 0),
        "UpdatedAt": time_of(network.updated_at_s if network else 0),
        "Spec": spec,
        # What the task really has on its node, and where it came from.
        "DriverState": {
            "Name": grant.driver,
            "Options": compact(
                parent=grant.parent,
                **{f"{grant.driver}_mode": grant.mode},
                ipvlan_flag=grant.flag,
                pool=grant.pool_name,
            ),
        },
        "IPAMOptions": {"Driver": {"Name": "default"}},
    }


__all__ = ["read_addresses", "read_network", "show_network", "show_network_in_full", "show_network_of_task"]
