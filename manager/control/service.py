"""Creating, changing and removing services.

These write `Service` alone. What follows from it, tasks that are added, replaced or stopped, is the orchestrators' work; they
are woken by the store.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from beeyard.core import constraint
from beeyard.core.errors import FailedPrecondition, InvalidSpec, Unsupported
from beeyard.core.filters import POOL_NETWORKS_MAX
from beeyard.core.labels import LABEL_ADDRESSES, check_service_labels, is_fenced
from beeyard.core.model import (
    HOST_NETWORK_ID,
    HOST_NETWORK_NAME,
    Network,
    Service,
    ServiceSpec,
    UpdateState,
    UpdateStatus,
)
from beeyard.core.pins import has_slot_macs
from beeyard.core.states import TaskState
from beeyard.manager.control.image import HOST_IMAGE, docker_image
from beeyard.manager.control.name import draw_name
from beeyard.manager.control.slots import check_slots
from beeyard.manager.store import Store, Transaction, View
from beeyard.runtime.host import Host


async def create_service(host: Host, store: Store, spec: ServiceSpec) -> Service:
    """Store a new service. One without a name gets one.

    Raises:
        InvalidSpec, NotFound: a network that is not there, an image that no node runs, …
        NameConflict
        DiskError
    """
    service_id = host.new_id()

    def build(tx: Transaction) -> Service:
        named = spec if spec.name else msgspec.structs.replace(spec, name=draw_name(host.rng, tx))
        return tx.create(Service(id=service_id, spec=_checked(tx, named)))

    return await store.commit(build)


async def update_service(store: Store, service_id: str, version: int, spec: ServiceSpec) -> Service:
    """Replace a service's spec.

    A change of its task or its fencing is rolled out; a change of anything else touches no running task.

    Raises:
        NotFound, OutOfSequence, InvalidSpec, DiskError
        Unsupported: it has another name.
    """

    def build(tx: Transaction) -> Service:
        service = tx.find(Service, service_id)
        if spec.name != service.spec.name:
            raise Unsupported("renaming a service", "create another one")
        return _replace_spec(tx, service, version, _checked(tx, spec, service.spec))

    return await store.commit(build)


async def rollback_service(store: Store, service_id: str, version: int) -> Service:
    """Go back to the spec before the last update; once, as in Docker.

    Raises:
        NotFound, OutOfSequence, DiskError
        FailedPrecondition: there is no previous spec.
    """

    def build(tx: Transaction) -> Service:
        service = tx.find(Service, service_id)
        if service.previous_spec is None:
            raise FailedPrecondition(f"service {service.id} does not have a previous spec")
        rolled_back = _replace_spec(tx, service, version, _checked(tx, service.previous_spec, service.spec))
        return tx.update(msgspec.structs.replace(rolled_back, previous_spec=None))

    return await store.commit(build)


async def remove_service(store: Store, service_id: str) -> None:
    """Remove a service; its tasks are stopped by the orchestrator.

    Raises:
        NotFound, DiskError
    """
    await store.commit(lambda tx: tx.delete(Service, service_id))


def count_tasks(view: View, service: Service) -> dict[str, int]:
    """Docker's ServiceStatus: how many tasks run of those that are wanted."""
    tasks = view.tasks_of_service(service.id)
    running = sum(t.status.state == TaskState.RUNNING and t.desired_state <= TaskState.RUNNING for t in tasks)
    completed = sum(t.status.state == TaskState.COMPLETE for t in tasks)
    return {"RunningTasks": running, "DesiredTasks": service.spec.replicas, "CompletedTasks": completed}


def _replace_spec(tx: Transaction, service: Service, version: int, spec: ServiceSpec) -> Service:
    if spec == service.spec:
        return tx.update(service, expected_version=version)
    changed = msgspec.structs.replace(service, spec=spec, previous_spec=service.spec)
    if spec.task != service.spec.task or _given_by(spec.labels) != _given_by(service.spec.labels):
        # Also ends a pause: the new spec gets its own chance.
        changed = msgspec.structs.replace(
            changed,
            spec_version=service.spec_version + 1,
            update_status=UpdateStatus(state=UpdateState.UPDATING, started_at_s=tx.now_s, message="update in progress"),
        )
    return tx.update(changed, expected_version=version)


def _given_by(labels: Mapping[str, str]) -> tuple[object, ...]:
    """What labels give to each task when it is made."""
    return is_fenced(labels), labels.get(LABEL_ADDRESSES), has_slot_macs(labels)


def _checked(tx: Transaction, spec: ServiceSpec, present: ServiceSpec | None = None) -> ServiceSpec:
    """The spec with its networks as ids, once everything in it can work in this cluster."""
    # A service that exists may still be scaled or removed when the last node that runs its image is gone.
    if present is None or spec.task.image != present.task.image:
        _check_image(tx, spec.task.image)
    if present is None or spec.task != present.task:
        _check_command(spec)
    return checked_placement(tx, spec, present)


def checked_placement(view: View, spec: ServiceSpec, present: ServiceSpec | None = None) -> ServiceSpec:
    """The spec with its networks as ids, once all that decides where its tasks go can be followed.

    Args:
        present: what the service is now; None: there is none yet.

    Raises:
        InvalidSpec
    """
    constraint.parse_all(spec.task.constraints)
    if present is None or spec.labels != present.labels:
        check_service_labels(spec.labels)
    network_ids = tuple(_network_id(view, target) for target in spec.task.network_ids)
    for network_id in network_ids:
        if network_ids.count(network_id) > 1:
            raise InvalidSpec("Networks", f"network {_network_name(view, network_id)} is given twice")
    if HOST_NETWORK_ID in network_ids and len(network_ids) > 1:
        raise InvalidSpec("Networks", "the network host gives a task its node's own network and goes with no other")
    if HOST_NETWORK_ID in network_ids:
        _check_ports_of_host(spec)
    if len(network_ids) > POOL_NETWORKS_MAX:
        raise InvalidSpec("Networks", f"{len(network_ids)} are given: a task can be in {POOL_NETWORKS_MAX}")
    named = msgspec.structs.replace(spec, task=msgspec.structs.replace(spec.task, network_ids=network_ids))
    check_slots(view, named, present)
    return named


def _check_image(tx: Transaction, image: str) -> None:
    """Refuse an image that no executor of any node runs; `host` may come before the first node does."""
    if image == HOST_IMAGE or any(image in node.description.images for node in tx.nodes.values()):
        return
    raise InvalidSpec(
        "Image",
        f"image {docker_image(image)} needs the docker or oci executor, which no node has; "
        f'this version runs only the image "{HOST_IMAGE}": a command of the node itself',
    )


def _check_command(spec: ServiceSpec) -> None:
    """Refuse what would start nothing: `host` is the node itself and brings no command of its own."""
    if spec.task.image != HOST_IMAGE:
        return
    right = "image host needs a command to run, given behind the image: docker service create host sleep 1d"
    words = (*spec.task.command, *spec.task.args)
    if not words:
        raise InvalidSpec("ContainerSpec.Args", f"it is empty; {right}")
    if not words[0].strip():
        field = "ContainerSpec.Command (--entrypoint)" if spec.task.command else "ContainerSpec.Args"
        raise InvalidSpec(field, f"its first word, {words[0]!r:.40}, names no program; {right}")


def _check_ports_of_host(spec: ServiceSpec) -> None:
    """Refuse a port that would have to lead elsewhere: a task with its node's own network binds the node's port itself."""
    for port in spec.ports:
        if port.published != port.target:
            raise InvalidSpec(
                "EndpointSpec.Ports (--publish)",
                f"with the network host a task binds the port of its node itself: target {port.target} and "
                f"published {port.published or '(none)'} must be the same",
            )


def _network_id(view: View, target: str) -> str:
    if target in (HOST_NETWORK_ID, HOST_NETWORK_NAME):
        return HOST_NETWORK_ID
    network = view.get(Network, target) or view.by_name(Network, target)
    if network is None:
        raise InvalidSpec("Networks", f"network {target} not found")
    if network.config_only:
        raise InvalidSpec(
            "Networks",
            f"{network.name} is a configuration only network; create one with --config-from and use that",
        )
    return network.id


def _network_name(view: View, network_id: str) -> str:
    network = view.get(Network, network_id)
    return network.name if network else HOST_NETWORK_NAME


__all__ = ["checked_placement", "count_tasks", "create_service", "remove_service", "rollback_service", "update_service"]
