"""`/networks`."""

from __future__ import annotations

from starlette.routing import Route

from beeyard.core.errors import Forbidden, InvalidSpec, NotFound, Unsupported
from beeyard.core.model import HOST_NETWORK_ID, Network
from beeyard.core.network_warnings import network_warnings
from beeyard.core.pools import ResolvedPool, own_pool, pools_of
from beeyard.manager.api.call import BadRequest, Call, Reply, route
from beeyard.manager.api.context import Context
from beeyard.manager.api.docker_network import (
    read_addresses,
    read_network,
    read_network_change,
    show_network,
    show_network_in_full,
)
from beeyard.manager.api.filters import FilterSet, has_label, parse_filters
from beeyard.manager.api.lookup import all_networks, find_network
from beeyard.manager.control.network import remove_network
from beeyard.manager.control.network_update import update_network


def routes(context: Context) -> list[Route]:
    """The routes of this resource."""
    return [
        route("GET", "/networks", network_list, context),
        route("POST", "/networks/create", network_create, context),
        route("POST", "/networks/prune", network_prune, context),
        route("GET", "/networks/{id}", network_inspect, context),
        route("DELETE", "/networks/{id}", network_remove, context),
        route("POST", "/networks/{id}/update", network_update, context),
        route("POST", "/networks/{id}/release", network_release, context),
        route("POST", "/networks/{id}/connect", network_connect, context),
        route("POST", "/networks/{id}/disconnect", network_connect, context),
    ]


async def network_list(context: Context, call: Call) -> Reply:
    filters: FilterSet[Network] = FilterSet(
        {
            "id": lambda network, value: value in network.id,
            "name": lambda network, value: value in network.name,
            "driver": lambda network, value: network.driver == value,
            "scope": lambda network, value: network.scope == value,
            "label": lambda network, value: has_label(network.labels, value),
            "type": _is_of_type,
            "dangling": lambda network, value: _is_dangling(context, network) is (value.lower() in ("1", "true")),
        }
    )
    networks = all_networks(context.store)
    found = filters.apply(networks.values(), parse_filters(call.query.get("filters", "")))
    return Reply([show_network(network, _pools(context, network)) for network in found])


def _is_of_type(network: Network, value: str) -> bool:
    if value not in ("custom", "builtin"):
        raise BadRequest(f"invalid filter 'type={value}'")
    return (network.id == HOST_NETWORK_ID) is (value == "builtin")


def _is_dangling(context: Context, network: Network) -> bool:
    return network.id != HOST_NETWORK_ID and not any(
        network.id in service.spec.task.network_ids for service in context.store.services.values()
    )


async def network_create(context: Context, call: Call) -> Reply:
    network = read_network(call.json(), context.host.new_id())
    created = await context.status.create_network(network)
    warnings = network_warnings(created, context.store.networks.values())
    return Reply({"Id": created.id, "Warning": "; ".join(warnings)}, 201)


async def network_inspect(context: Context, call: Call) -> Reply:
    network = find_network(context.store, call.path("id"))
    # `verbose` asks for what is shown anyway.
    call.flag("verbose")
    if call.query.get("scope", "") not in ("", network.scope):
        raise NotFound("network", call.path("id"))
    tasks = context.store.tasks.values() if network.driver != "host" else ()
    status = context.status
    pools = _pools(context, network)
    shown = show_network_in_full(network, pools, tasks, status.pool_usage, status.put_aside, status.closed_pool)
    return Reply(shown)


async def network_remove(context: Context, call: Call) -> Reply:
    network = find_network(context.store, call.path("id"))
    if network.id == HOST_NETWORK_ID:
        raise Forbidden("host is a pre-defined network and cannot be removed")
    await remove_network(context.store, network.id)
    return Reply(status=204)


async def network_update(context: Context, call: Call) -> Reply:
    """Beeyard's own: Docker cannot change a network."""
    network = find_network(context.store, call.path("id"))
    version = call.version("network")
    changed, warning = await update_network(context.store, network.id, version, read_network_change(call.json()))
    warnings = network_warnings(changed, context.store.networks.values())
    return Reply({"Warning": "; ".join(filter(None, (warning, *warnings)))})


async def network_release(context: Context, call: Call) -> Reply:
    """Beeyard's own: give addresses of a network's pools that are put aside to tasks again; all of them if none is named."""
    network = find_network(context.store, call.path("id"))
    asked = read_addresses(call.json())
    found = {
        pool.pool_id: [
            aside.address for aside in context.status.put_aside(pool.pool_id) if not asked or aside.address in asked
        ]
        for pool in _pools(context, network)
    }
    released = list(dict.fromkeys(address for addresses in found.values() for address in addresses))
    for address in asked:
        if address not in released:
            raise InvalidSpec("Addresses", f"{address} is not put aside in network {network.name}")
    await context.status.take_back({pool_id: addresses for pool_id, addresses in found.items() if addresses})
    return Reply({"Released": released})


async def network_prune(_context: Context, _call: Call) -> Reply:
    raise Unsupported("docker network prune", "remove networks by name")


async def network_connect(_context: Context, _call: Call) -> Reply:
    raise Unsupported("docker network connect and disconnect", "give a service its networks with --network")


def _pools(context: Context, network: Network) -> list[ResolvedPool]:
    """The pools behind a network; a config-only one is a pool itself."""
    own = own_pool(network)
    return [own] if own is not None else pools_of(network, context.store.networks.values())


__all__ = ["routes"]
