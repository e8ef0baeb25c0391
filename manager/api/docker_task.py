"""Docker's tasks, from `Task`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beeyard.core.grant import AddressGrant, PortGrant
from beeyard.core.model import Network, Task
from beeyard.core.states import TaskState
from beeyard.manager.api.docker_network import show_network_of_task
from beeyard.manager.api.docker_ports import show_mapped_port
from beeyard.manager.api.docker_resources import show_generic
from beeyard.manager.api.docker_task_spec import show_task_spec
from beeyard.manager.api.docker_value import compact, time_of

_NAME_OF_STATE = {state: state.name.lower() for state in TaskState}


def show_task(
    task: Task, networks: Mapping[str, Network], *, waiting_for: str = "", held_back: str = ""
) -> dict[str, Any]:
    """A task as `GET /tasks/ID` gives it.

    Args:
        networks: by id, for the attachments.
        waiting_for: what a planned task waits for; shown instead of the stored message.
        held_back: why it is not replaced though its node is down; shown when its agent reported no error of its own.
    """
    spec = show_task_spec(task.spec, defaults=False)
    del spec["Runtime"]
    shown: dict[str, Any] = {
        "ID": task.id,
        "Version": {"Index": task.version},
        "CreatedAt": time_of(task.created_at_s),
        "UpdatedAt": time_of(task.updated_at_s),
        "Labels": {},
        "Spec": spec,
        "ServiceID": task.service_id,
        "Slot": task.slot,
        **compact(NodeID=task.node_id),
        "Status": _show_status(task, waiting_for, held_back),
        "DesiredState": _NAME_OF_STATE[task.desired_state],
    }
    attachments = [_show_attachment(g, networks) for g in task.grants if isinstance(g, AddressGrant)]
    if attachments:
        shown["NetworksAttachments"] = attachments
    if task.claimed:
        shown["GenericResources"] = show_generic(task.claimed)
    shown["Volumes"] = [compact(ID=u.volume_id, Source=u.source, Target=u.target) for u in task.volumes] or None
    return shown


def _show_status(task: Task, waiting_for: str, held_back: str) -> dict[str, Any]:
    status = task.status
    shown: dict[str, Any] = {
        "Timestamp": time_of(status.at_s or task.created_at_s),
        "State": _NAME_OF_STATE[status.state],
        **compact(Message=waiting_for or status.message, Err=status.err or held_back),
    }
    if status.pid or status.exit_code is not None:
        # The task is its own container. The exit code of one that runs is -1, as Docker has it.
        exit_code = -1 if status.exit_code is None else status.exit_code
        shown["ContainerStatus"] = {"ContainerID": task.id, "PID": status.pid, "ExitCode": exit_code}
    shown["PortStatus"] = compact(Ports=_show_ports(task))
    return shown


def _show_ports(task: Task) -> list[dict[str, Any]]:
    """The ports at which a task can be reached: none before its node is known, none when it is over."""
    if not task.holds_room:
        return []
    return [show_mapped_port(port) for grant in task.grants if isinstance(grant, PortGrant) for port in grant.ports]


def _show_attachment(grant: AddressGrant, networks: Mapping[str, Network]) -> dict[str, Any]:
    return {"Network": show_network_of_task(grant, networks.get(grant.network_id)), "Addresses": list(grant.addresses)}


__all__ = ["show_task"]
