"""Docker's services ↔ `ServiceSpec` and `Service`."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from beeyard.core.errors import InvalidSpec, Unsupported
from beeyard.core.model import FailureAction, Service, ServiceSpec, UpdateConfig, UpdateOrder, fixed_ports
from beeyard.manager.api.call import BadRequest
from beeyard.manager.api.docker_placement import REPLICAS_MAX
from beeyard.manager.api.docker_ports import read_ports, show_endpoint, show_endpoint_spec
from beeyard.manager.api.docker_task_spec import read_networks, read_task_spec, show_task_spec
from beeyard.manager.api.docker_value import compact, nanoseconds, time_of
from beeyard.manager.api.fields import Fields

NAME_PATTERN = r"[a-zA-Z0-9]+(?:[a-zA-Z0-9-_]*[a-zA-Z0-9])?"
# As stored and as told to nodes. A whole command and environment fit in, with as much again for labels and the rest.
SPEC_BYTES_MAX = 2 << 20
MODES_UNSUPPORTED = {
    "Global": "--mode global",
    "ReplicatedJob": "--mode replicated-job",
    "GlobalJob": "--mode global-job",
}


def read_service_spec(body: object) -> ServiceSpec:
    """A service as a client sends it. Networks are still named as they were given.

    Raises:
        InvalidSpec, Unsupported: by the name of the field or flag.
    """
    fields = Fields(body)
    if not fields.has("TaskTemplate"):
        raise BadRequest("mismatched Runtime and *Spec fields")
    name = fields.text("Name")
    # None is given: the manager draws one.
    if name and (len(name) > 63 or not re.fullmatch(NAME_PATTERN, name)):
        raise InvalidSpec("Name", f"{name!r:.80}: a service's name must be valid as a DNS name component")
    task = read_task_spec(fields.nested("TaskTemplate"))
    # Where clients before API 1.25 put them.
    old_networks = read_networks(fields)
    if old_networks and not task.network_ids:
        task = msgspec.structs.replace(task, network_ids=old_networks)
    ports = read_ports(fields.nested("EndpointSpec"))
    if ports:
        task = msgspec.structs.replace(task, ports=ports, host_ports=fixed_ports(ports))
    spec = ServiceSpec(
        name=name,
        labels=fields.labels("Labels"),
        task=task,
        replicas=_replicas(fields),
        update=_update_config(fields, "UpdateConfig"),
    )
    _refuse_rollback(fields)
    fields.finish()
    n_bytes = len(msgspec.msgpack.encode(spec))
    if n_bytes > SPEC_BYTES_MAX:
        raise InvalidSpec("TaskTemplate", f"with its labels it has {n_bytes} bytes, more than {SPEC_BYTES_MAX}")
    return spec


def _replicas(fields: Fields) -> int:
    raw = fields.take("Mode")
    mode = Fields(raw, "Mode")
    given = [name for name, value in (raw or {}).items() if value is not None]
    if len(given) > 1:
        raise BadRequest("must specify only one service mode")
    # An empty object already chooses a mode, so emptiness does not excuse it here.
    for name, flag in MODES_UNSUPPORTED.items():
        if mode.has(name):
            raise Unsupported(flag)
    replicated = mode.nested("Replicated")
    replicas = replicated.integer("Replicas", 1, maximum=REPLICAS_MAX, flag="--replicas")
    replicated.finish()
    mode.finish()
    return replicas


def _update_config(fields: Fields, name: str) -> UpdateConfig | None:
    if not fields.has(name):
        return None
    given = fields.nested(name)
    actions = tuple(FailureAction)
    action = given.choice("FailureAction", actions, FailureAction.PAUSE)
    if action == FailureAction.ROLLBACK:
        raise Unsupported("--update-failure-action rollback", "pause or continue, then docker service rollback")
    config = UpdateConfig(
        parallelism=given.integer("Parallelism"),
        delay_s=given.duration_s("Delay"),
        failure_action=FailureAction(action),
        monitor_s=given.duration_s("Monitor") or 5.0,
        max_failure_ratio=given.ratio("MaxFailureRatio"),
        order=UpdateOrder(given.choice("Order", tuple(UpdateOrder), UpdateOrder.STOP_FIRST)),
    )
    given.finish()
    return config


def _refuse_rollback(fields: Fields) -> None:
    if _update_config(fields, "RollbackConfig") not in (None, UpdateConfig()):
        raise Unsupported("--rollback-parallelism or another --rollback option", "a rollback goes as an update does")


def show_service_spec(spec: ServiceSpec, *, defaults: bool) -> dict[str, Any]:
    """A ServiceSpec as `GET` gives it and `update` takes it back."""
    shown: dict[str, Any] = {
        "Name": spec.name,
        "Labels": spec.labels,
        "TaskTemplate": show_task_spec(spec.task, defaults=defaults),
        "Mode": {"Replicated": {"Replicas": spec.replicas}},
    }
    for name, config in (("UpdateConfig", spec.update), ("RollbackConfig", None)):
        if config is not None or defaults:
            shown[name] = _show_update_config(config or UpdateConfig())
    shown["EndpointSpec"] = show_endpoint_spec(spec.ports)
    return shown


def _show_update_config(config: UpdateConfig) -> dict[str, Any]:
    return {
        "Parallelism": config.parallelism,
        **compact(Delay=nanoseconds(config.delay_s)),
        "FailureAction": str(config.failure_action),
        "Monitor": nanoseconds(config.monitor_s),
        "MaxFailureRatio": config.max_failure_ratio,
        "Order": str(config.order),
    }


def show_service(service: Service, *, defaults: bool = False, status: dict[str, int] | None = None) -> dict[str, Any]:
    """A service. `status` is Docker's ServiceStatus, which only a list with `status=true` carries."""
    shown: dict[str, Any] = {
        "ID": service.id,
        "Version": {"Index": service.version},
        "CreatedAt": time_of(service.created_at_s),
        "UpdatedAt": time_of(service.updated_at_s),
        "Spec": show_service_spec(service.spec, defaults=defaults),
        "Endpoint": show_endpoint(service.spec.ports),
    }
    if service.previous_spec is not None:
        shown["PreviousSpec"] = show_service_spec(service.previous_spec, defaults=False)
    if service.update_status is not None:
        update = service.update_status
        shown["UpdateStatus"] = {
            "State": str(update.state),
            "StartedAt": time_of(update.started_at_s),
            **({"CompletedAt": time_of(update.completed_at_s)} if update.completed_at_s else {}),
            "Message": update.message,
        }
    if status is not None:
        shown["ServiceStatus"] = status
    return shown


__all__ = ["read_service_spec", "show_service", "show_service_spec"]
