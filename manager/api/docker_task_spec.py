"""Docker's TaskTemplate ↔ `TaskSpec`: what every task of a service runs, needs and may do."""

from __future__ import annotations

import re
from typing import Any

from beeyard.core.errors import InvalidSpec, Unsupported
from beeyard.core.model import RestartCondition, RestartPolicy, TaskSpec
from beeyard.core.mounts import LogDriver
from beeyard.manager.api.docker_mounts import read_mounts, show_mounts
from beeyard.manager.api.docker_placement import read_placement, show_placement
from beeyard.manager.api.docker_program import read_program
from beeyard.manager.api.docker_resources import read_limits, read_reservations, show_resources
from beeyard.manager.api.docker_value import compact, nanoseconds
from beeyard.manager.api.fields import Fields
from beeyard.manager.control.image import canonical_image, docker_image

TEMPLATE_UNSUPPORTED = {
    "PluginSpec": "a service that runs a plugin",
    "NetworkAttachmentSpec": "a network attachment task",
}
CONTAINER_UNSUPPORTED = {
    "Groups": "--group",
    "Privileges": "--credential-spec or another of a container's privileges",
    "Init": "--init",
    "TTY": "--tty",
    "OpenStdin": "an open standard input",
    "ReadOnly": "--read-only",
    "Healthcheck": "--health-cmd or another health check option",
    "Hosts": "--host",
    "DNSConfig": "--dns, --dns-option or --dns-search",
    "Secrets": "--secret",
    "Configs": "--config",
    "Isolation": "--isolation",
    "Sysctls": "--sysctl",
    "CapabilityAdd": "--cap-add",
    "CapabilityDrop": "--cap-drop",
    "Ulimits": "--ulimit",
    "OomScoreAdj": "--oom-score-adj",
}


def read_task_spec(template: Fields) -> TaskSpec:
    """A task template. `network_ids` holds the targets as they were given, names or ids: resolve them against the store.

    Raises:
        InvalidSpec, Unsupported: by the name of the field or flag.
    """
    if template.text("Runtime", "container") != "container":
        raise Unsupported("a service runtime other than container")
    if not template.has("ContainerSpec"):
        template.finish(TEMPLATE_UNSUPPORTED)
        raise InvalidSpec(template.name_of("ContainerSpec"), "a service needs one")
    container = template.nested("ContainerSpec")
    resources = template.nested("Resources")
    placement = read_placement(template)
    program = read_program(container)
    spec = TaskSpec(
        image=_image(container),
        command=program.command,
        args=program.args,
        env=program.env,
        user=program.user,
        dir=program.dir,
        hostname=program.hostname,
        container_labels=container.labels("Labels"),
        stop_signal=program.stop_signal,
        stop_grace_s=container.duration_s("StopGracePeriod", 10.0),
        reservations=read_reservations(resources),
        limits=read_limits(resources),
        restart=_restart(template.nested("RestartPolicy")),
        constraints=placement.constraints,
        platforms=placement.platforms,
        preferences=placement.preferences,
        max_replicas_per_node=placement.max_replicas_per_node,
        network_ids=read_networks(template),
        log_driver=_log_driver(template),
        mounts=read_mounts(container),
        force_update=template.integer("ForceUpdate"),
    )
    _finish_container(container)
    resources.finish()
    template.finish(TEMPLATE_UNSUPPORTED)
    return spec


def _finish_container(container: Fields) -> None:
    isolation = container.text("Isolation", "default")
    if isolation != "default":
        raise Unsupported(CONTAINER_UNSUPPORTED["Isolation"])
    health = container.take("Healthcheck")
    # What --no-healthcheck sends; no health check is what every task has.
    if health and health != {"Test": ["NONE"]}:
        raise Unsupported(CONTAINER_UNSUPPORTED["Healthcheck"])
    container.finish(CONTAINER_UNSUPPORTED)


def _image(container: Fields) -> str:
    image = container.text("Image")
    if not image:
        raise InvalidSpec(container.name_of("Image"), "image reference must be provided")
    if not re.fullmatch(r"[A-Za-z0-9._/:@-]{1,512}", image):
        raise InvalidSpec(container.name_of("Image"), f"{image!r:.80} is not an image reference")
    return canonical_image(image)


def _restart(fields: Fields) -> RestartPolicy:
    default = RestartPolicy()
    condition = fields.choice("Condition", tuple(RestartCondition), default.condition)
    policy = RestartPolicy(
        condition=RestartCondition(condition),
        delay_s=fields.duration_s("Delay", default.delay_s),
        max_attempts=fields.integer("MaxAttempts"),
        window_s=fields.duration_s("Window"),
    )
    fields.finish()
    return policy


def _log_driver(template: Fields) -> LogDriver:
    fields = template.nested("LogDriver")
    name = fields.text("Name")
    if name and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,127}", name):
        raise InvalidSpec(f"{fields.name_of('Name')} (--log-driver)", f"{name!r:.80} is not the name of a log driver")
    fields.finish({"Options": "--log-opt"})
    return LogDriver(name=name)


def read_networks(fields: Fields) -> tuple[str, ...]:
    """The targets of a list of network attachments, as given."""
    targets = []
    for attachment in fields.nested_list("Networks"):
        target = attachment.text("Target")
        if not target:
            raise InvalidSpec(attachment.name_of("Target"), "a network must be named")
        attachment.finish({"Aliases": "--network alias=", "DriverOpts": "--network driver-opt="})
        targets.append(target)
    return tuple(targets)


def show_task_spec(spec: TaskSpec, *, defaults: bool) -> dict[str, Any]:
    """A TaskTemplate. With `defaults` what the user left out is filled in, else it is left out again."""
    template: dict[str, Any] = {
        "ContainerSpec": _show_container(spec, defaults=defaults),
        "Resources": {
            "Limits": compact(
                NanoCPUs=spec.limits.cpu_nano, MemoryBytes=spec.limits.memory_bytes, Pids=spec.limits.pids
            ),
            "Reservations": show_resources(spec.reservations),
        },
        "Placement": show_placement(spec),
        "ForceUpdate": spec.force_update,
        "Runtime": "container",
    }
    if spec.network_ids:
        template["Networks"] = [{"Target": network_id} for network_id in spec.network_ids]
    if spec.log_driver.name:
        template["LogDriver"] = {"Name": spec.log_driver.name}
    if defaults or spec.restart != RestartPolicy():
        template["RestartPolicy"] = {
            "Condition": str(spec.restart.condition),
            "Delay": nanoseconds(spec.restart.delay_s),
            "MaxAttempts": spec.restart.max_attempts,
            **compact(Window=nanoseconds(spec.restart.window_s)),
        }
    return template


def _show_container(spec: TaskSpec, *, defaults: bool) -> dict[str, Any]:
    container = compact(
        Image=docker_image(spec.image),
        Labels=spec.container_labels,
        Command=list(spec.command),
        Args=list(spec.args),
        Hostname=spec.hostname,
        Env=list(spec.env),
        Dir=spec.dir,
        User=spec.user,
        Mounts=show_mounts(spec.mounts),
        StopSignal=spec.stop_signal if spec.stop_signal != "SIGTERM" else "",
    )
    container |= {"Init": False, "DNSConfig": {}, "Isolation": "default"}
    if defaults or spec.stop_grace_s != 10.0:
        container["StopGracePeriod"] = nanoseconds(spec.stop_grace_s)
    return container


__all__ = ["read_networks", "read_task_spec", "show_task_spec"]
