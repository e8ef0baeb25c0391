"""What a node hook is told, and what it may answer: JSON, version 1. The reference for people is `docs/node-hooks.md`.

The version rises when a field goes or changes its meaning; new fields may come without that.
"""

from __future__ import annotations

from typing import Any

import msgspec

from beeyard.core.errors import NodeHookError
from beeyard.core.grant import AddressGrant, PortGrant, ResourceGrant
from beeyard.core.model import HOST_NETWORK_ID
from beeyard.core.wire import AssignedTask

VERSION = 1
# Of the last line of a hook's standard error, in what `docker service ps` shows.
MESSAGE_CHARACTERS_MAX = 300


class HookMount(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mount that a hook asks for."""

    source: str
    target: str
    read_only: bool = True


class HookReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a hook asks for at `prepare`."""

    env: dict[str, str] = {}
    sysctls: dict[str, str | int] = {}
    mounts: tuple[HookMount, ...] = ()
    devices: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.env or self.sysctls or self.mounts or self.devices)


def document(
    moment: str,
    task: AssignedTask,
    *,
    node_id: str,
    node_name: str,
    netns: str = "",
    exit_code: int | None = None,
) -> bytes:
    """What a hook reads.

    Args:
        moment: "prepare", "start" or "stop".
        task: with its environment, which may hold secrets.
        node_id, node_name: this node.
        netns: path of the task's network namespace, at `start`; "": it has none of its own, or not yet.
        exit_code: of the task, at `stop`; None: it never ran, or nobody knows.
    """
    told: dict[str, Any] = {
        "version": VERSION,
        "moment": moment,
        "node": {"id": node_id, "name": node_name},
        "task": _task(task),
    }
    if moment == "start":
        told["netns"] = netns or None
    if moment == "stop":
        told["exit_code"] = exit_code
    return msgspec.json.encode(told)


def _task(task: AssignedTask) -> dict[str, Any]:
    spec = task.spec
    addresses = [grant for grant in task.grants if isinstance(grant, AddressGrant)]
    ports = [port for grant in task.grants if isinstance(grant, PortGrant) for port in grant.ports]
    return {
        "id": task.id,
        "service_id": task.service_id,
        "service": task.service_name,
        "slot": task.slot,
        "image": spec.image,
        "command": spec.command,
        "args": spec.args,
        "env": spec.env,
        "user": spec.user,
        "dir": spec.dir,
        "hostname": spec.hostname,
        "labels": spec.container_labels,
        "service_labels": task.service_labels,
        "host_network": HOST_NETWORK_ID in spec.network_ids,
        "networks": [_network(position, grant) for position, grant in enumerate(addresses)],
        "resources": [
            {"kind": claim.kind, "value": claim.amount, "names": claim.names}
            for grant in task.grants
            if isinstance(grant, ResourceGrant)
            for claim in grant.resources
        ],
        "ports": [{"protocol": p.protocol, "published": p.published, "target": p.target} for p in ports],
        "reservations": {
            "cpu_nano": spec.reservations.cpu_nano,
            "memory_bytes": spec.reservations.memory_bytes,
        },
        "limits": {
            "cpu_nano": spec.limits.cpu_nano,
            "memory_bytes": spec.limits.memory_bytes,
            "pids": spec.limits.pids,
        },
    }


def _network(position: int, grant: AddressGrant) -> dict[str, Any]:
    return {
        "id": grant.network_id,
        "name": grant.network_name,
        "interface": f"eth{position}",
        "driver": grant.driver,
        "mode": grant.mode,
        "parent": grant.parent,
        "addresses": grant.addresses,
        "gateways": grant.gateways,
        "mac": grant.mac or None,
        "mtu": grant.mtu,
        "internal": grant.internal,
    }


def reply_of(hook: str, answer: bytes) -> HookReply:
    """What a hook's standard output asks for.

    Raises:
        NodeHookError: it is no answer; says where.
    """
    if not answer.strip():
        return HookReply()
    try:
        fields = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NodeHookError(hook, f"answers what is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise NodeHookError(hook, "answers no JSON object: {} is the least")
    known = HookReply.__struct_fields__
    for name in fields:
        if name not in known:
            raise NodeHookError(hook, f"answers {name[:100]!r}, which is unknown: {', '.join(known)} are right")
    try:
        return msgspec.convert(fields, HookReply)
    except msgspec.ValidationError as error:
        text = str(error)
        raise NodeHookError(hook, f"answers wrongly: {text[:1].lower()}{text[1:]}") from None


def message_of(stderr: str) -> str:
    """The last line with something in it, fit for a table."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    text = "".join(c if c.isprintable() else " " for c in lines[-1]).strip() if lines else ""
    return text if len(text) <= MESSAGE_CHARACTERS_MAX else f"{text[: MESSAGE_CHARACTERS_MAX - 1]}…"


__all__ = ["VERSION", "HookMount", "HookReply", "document", "message_of", "reply_of"]
