"""`/services`."""

from __future__ import annotations

from starlette.routing import Route

from beeyard.core.errors import Unsupported
from beeyard.core.model import Service
from beeyard.manager.api.call import BadRequest, Call, Reply, route
from beeyard.manager.api.context import Context
from beeyard.manager.api.docker_service import read_service_spec, show_service
from beeyard.manager.api.filters import FilterSet, has_label, parse_filters
from beeyard.manager.api.lookup import find_service
from beeyard.manager.control.service import (
    count_tasks,
    create_service,
    remove_service,
    rollback_service,
    update_service,
)

FILTERS: FilterSet[Service] = FilterSet(
    {
        "id": lambda service, value: service.id.startswith(value),
        "name": lambda service, value: service.spec.name.startswith(value),
        "label": lambda service, value: has_label(service.spec.labels, value),
        "mode": lambda _service, value: value == "replicated",
        "runtime": lambda _service, value: value == "container",
    }
)


def routes(context: Context) -> list[Route]:
    """The routes of this resource."""
    return [
        route("GET", "/services", service_list, context),
        route("POST", "/services/create", service_create, context),
        route("GET", "/services/{id}", service_inspect, context),
        route("DELETE", "/services/{id}", service_remove, context),
        route("POST", "/services/{id}/update", service_update, context),
        route("GET", "/services/{id}/logs", service_logs, context),
    ]


async def service_list(context: Context, call: Call) -> Reply:
    services = FILTERS.apply(context.store.services.values(), parse_filters(call.query.get("filters", "")))
    with_status = call.flag("status")
    return Reply(
        [
            show_service(
                service,
                defaults=call.flag("insertDefaults"),
                status=count_tasks(context.store, service) if with_status else None,
            )
            for service in services
        ]
    )


async def service_create(context: Context, call: Call) -> Reply:
    _refuse_registry_auth(call)
    service = await create_service(context.host, context.store, read_service_spec(call.json()))
    return Reply({"ID": service.id, "Warnings": None}, 201)


def _refuse_registry_auth(call: Call) -> None:
    # "e30=" is {}: what clients send who have nothing to say.
    if call.header("x-registry-auth").rstrip("=") not in ("", "e30"):
        raise Unsupported("--with-registry-auth", "Beeyard asks no registry")


async def service_inspect(context: Context, call: Call) -> Reply:
    service = find_service(context.store, call.path("id"))
    return Reply(show_service(service, defaults=call.flag("insertDefaults")))


async def service_update(context: Context, call: Call) -> Reply:
    service = find_service(context.store, call.path("id"))
    version = call.version("service")
    _refuse_registry_auth(call)
    rollback = call.query.get("rollback", "")
    if rollback not in ("", "none", "previous"):
        raise BadRequest(f"invalid rollback option {rollback!r}: it is previous")
    if rollback == "previous":
        # The body is the present spec, which does not matter.
        await rollback_service(context.store, service.id, version)
    else:
        await update_service(context.store, service.id, version, read_service_spec(call.json()))
    return Reply({"Warnings": None})


async def service_remove(context: Context, call: Call) -> Reply:
    service = find_service(context.store, call.path("id"))
    await remove_service(context.store, service.id)
    return Reply()


async def service_logs(context: Context, call: Call) -> Reply:
    find_service(context.store, call.path("id"))
    raise Unsupported("docker service logs", "a task's output is in TASK_ID.log of its agent's log directory")


__all__ = ["routes"]
