"""Docker's TaskTemplate ↔ `TaskSpec`: what every task of a service runs, needs and may do."""

from __future__ import annotations

import re
from typing import Any

from beeyard.core.errors import InvalidSpec, Unsupported
from beeyard.core.model import (
    Limits,
    Platform,
    Resources,
    RestartCondition,
    RestartPolicy,
    TaskSpec,
)
from beeyard.manager.api.docker_program import read_program
from beeyard.manager.api.docker_value import compact, nanoseconds
from beeyard.manager.api.fields import Fields
from beeyard.manager.control.image import canonical_image, docker_image

# Docker's own least values; below them a limit is nearly always a mistake of units.
CPU_NANO_MIN = 1_000_000
MEMORY_BYTES_MIN = 4 << 20
# What no node goes beyond: Linux' NR_CPUS, the 52 bits of physical addresses of x86-64 and arm64, Linux' PID_MAX_LIMIT.
CPU_NANO_MAX = 8192 * 10**9
MEMORY_BYTES_MAX = 1 << 52
PIDS_MAX = 1 << 22
# Far above what one cluster runs; a number beyond it is a slip, and each replica costs memory from then on.
REPLICAS_MAX = 100_000

TEMPLATE_UNSUPPORTED = {
    "PluginSpec": "a service that runs a plugin",
    "NetworkAttachmentSpec": "a network attachment task",
    "LogDriver": "--log-driver",
}
CONTAINER_UNSUPPORTED = {
    "Groups": "--group",
    "Privileges": "--credential-spec or another of a container's privileges",
    "Init": "--init",
    "TTY": "--tty",
    "OpenStdin": "an open standard input",
    "ReadOnly": "--read-only",
    "Mounts": "--mount",
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
    placement = template.nested("Placement")
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
        reservations=_reservations(resources),
        limits=_limits(resources),
        restart=_restart(template.nested("RestartPolicy")),
        constraints=placement.texts("Constraints"),
        platforms=_platforms(placement),
        max_replicas_per_node=placement.integer("MaxReplicas", maximum=REPLICAS_MAX, flag="--replicas-max-per-node"),
        network_ids=read_networks(template),
        force_update=template.integer("ForceUpdate"),
    )
    _finish_container(container)
    resources.finish()
    placement.finish({"Preferences": "--placement-pref"})
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


def _cpu_nano(fields: Fields, flag: str) -> int:
    cpu_nano = fields.integer("NanoCPUs")
    field = f"{fields.name_of('NanoCPUs')} ({flag})"
    if 0 < cpu_nano < CPU_NANO_MIN:
        raise InvalidSpec(field, f"{cpu_nano / 1e9:g} CPUs are too few: must be at least 0.001")
    if cpu_nano > CPU_NANO_MAX:
        raise InvalidSpec(
            field, f"{cpu_nano // 10**9} CPUs are more than any node has: at most {CPU_NANO_MAX // 10**9}"
        )
    return cpu_nano


def _memory_bytes(fields: Fields, flag: str) -> int:
    memory_bytes = fields.integer("MemoryBytes")
    field = f"{fields.name_of('MemoryBytes')} ({flag})"
    if 0 < memory_bytes < MEMORY_BYTES_MIN:
        raise InvalidSpec(field, f"{memory_bytes} bytes are too few: must be at least 4 MiB")
    if memory_bytes > MEMORY_BYTES_MAX:
        raise InvalidSpec(field, f"{memory_bytes} bytes are more than any node has: at most {MEMORY_BYTES_MAX}, 4 PiB")
    return memory_bytes


def _reservations(resources: Fields) -> Resources:
    fields = resources.nested("Reservations")
    reserved = Resources(
        cpu_nano=_cpu_nano(fields, "--reserve-cpu"), memory_bytes=_memory_bytes(fields, "--reserve-memory")
    )
    fields.finish({"GenericResources": "--generic-resource"})
    return reserved


def _limits(resources: Fields) -> Limits:
    fields = resources.nested("Limits")
    limits = Limits(
        cpu_nano=_cpu_nano(fields, "--limit-cpu"),
        memory_bytes=_memory_bytes(fields, "--limit-memory"),
        pids=fields.integer("Pids", maximum=PIDS_MAX, flag="--limit-pids"),
    )
    fields.finish()
    return limits


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


def _platforms(placement: Fields) -> tuple[Platform, ...]:
    platforms = []
    for fields in placement.nested_list("Platforms"):
        platforms.append(Platform(architecture=fields.text("Architecture"), os=fields.text("OS")))
        fields.finish()
    return tuple(platforms)


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
    placement = compact(
        Constraints=list(spec.constraints),
        MaxReplicas=spec.max_replicas_per_node,
        Platforms=[compact(Architecture=p.architecture, OS=p.os) for p in spec.platforms],
    )
    template: dict[str, Any] = {
        "ContainerSpec": _show_container(spec, defaults=defaults),
        "Resources": {
            "Limits": compact(
                NanoCPUs=spec.limits.cpu_nano, MemoryBytes=spec.limits.memory_bytes, Pids=spec.limits.pids
            ),
            "Reservations": compact(NanoCPUs=spec.reservations.cpu_nano, MemoryBytes=spec.reservations.memory_bytes),
        },
        "Placement": placement,
        "ForceUpdate": spec.force_update,
        "Runtime": "container",
    }
    if spec.network_ids:
        template["Networks"] = [{"Target": network_id} for network_id in spec.network_ids]
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
        StopSignal=spec.stop_signal if spec.stop_signal != "SIGTERM" else "",
    )
    container |= {"Init": False, "DNSConfig": {}, "Isolation": "default"}
    if defaults or spec.stop_grace_s != 10.0:
        container["StopGracePeriod"] = nanoseconds(spec.stop_grace_s)
    return container


__all__ = ["REPLICAS_MAX", "read_networks", "read_task_spec", "show_task_spec"]
