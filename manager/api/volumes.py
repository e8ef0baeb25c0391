"""`/volumes`: cluster volumes. Volumes of one node alone are not served."""

from __future__ import annotations

from starlette.routing import Route

from beeyard.core.errors import NotFound, Unsupported
from beeyard.core.volume import Volume
from beeyard.manager.api.call import Call, Reply, error_reply, route
from beeyard.manager.api.context import Context
from beeyard.manager.api.docker_volume import read_volume, read_volume_update, show_volume
from beeyard.manager.api.filters import FilterSet, has_label, parse_filters
from beeyard.manager.api.lookup import find_volume
from beeyard.manager.control.volume import create_volume, remove_volume, update_volume


def routes(context: Context) -> list[Route]:
    """The routes of this resource."""
    return [
        route("GET", "/volumes", volume_list, context),
        route("POST", "/volumes/create", volume_create, context),
        route("POST", "/volumes/prune", volume_prune, context),
        route("GET", "/volumes/{id}", volume_inspect, context),
        route("PUT", "/volumes/{id}", volume_update, context),
        route("DELETE", "/volumes/{id}", volume_remove, context),
    ]


async def volume_list(context: Context, call: Call) -> Reply:
    filters: FilterSet[Volume] = FilterSet(
        {
            "name": lambda volume, value: value in volume.name,
            "driver": lambda volume, value: volume.spec.driver == value,
            "label": lambda volume, value: has_label(volume.spec.labels, value),
            "group": lambda volume, value: volume.spec.group == value,
            "dangling": lambda volume, value: (not volume.published) is (value.lower() in ("1", "true")),
        }
    )
    found = filters.apply(context.store.volumes.values(), parse_filters(call.query.get("filters", "")))
    return Reply({"Volumes": [show_volume(volume) for volume in found], "Warnings": None})


async def volume_create(context: Context, call: Call) -> Reply:
    volume = await create_volume(context.store, context.host.new_id(), read_volume(call.json()))
    return Reply(show_volume(volume), 201)


async def volume_inspect(context: Context, call: Call) -> Reply:
    try:
        volume = find_volume(context.store, call.path("id"))
    except NotFound:
        # Docker's words, for which `docker inspect` goes on to look among other kinds.
        return error_reply(404, f"get {call.path('id')}: no such volume")
    return Reply(show_volume(volume))


async def volume_update(context: Context, call: Call) -> Reply:
    volume = find_volume(context.store, call.path("id"))
    version = call.version("volume")
    await update_volume(context.store, volume.id, version, read_volume_update(call.json(), volume))
    return Reply()


async def volume_remove(context: Context, call: Call) -> Reply:
    volume = find_volume(context.store, call.path("id"))
    await remove_volume(context.store, volume.id, force=call.flag("force"))
    return Reply(status=204)


async def volume_prune(_context: Context, _call: Call) -> Reply:
    raise Unsupported("docker volume prune", "remove volumes by name")


__all__ = ["routes"]
