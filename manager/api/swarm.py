"""`/swarm`: inspect, join tokens, and what a running manager answers to init, join and leave."""

from __future__ import annotations

from typing import Any

from starlette.routing import Route

from beeyard.core.errors import OutOfSequence, Unsupported
from beeyard.core.model import Cluster
from beeyard.core.states import Role
from beeyard.manager.api.call import Call, Reply, error_reply, require_object, route
from beeyard.manager.api.context import Context
from beeyard.manager.api.docker_node import show_tls_info
from beeyard.manager.api.docker_value import nanoseconds, time_of
from beeyard.manager.api.fields import is_empty

ALREADY_PART = (
    'This node is already part of a swarm. Use "docker swarm leave" to leave this swarm and join another one.'
)
# The part of a SwarmSpec that a flag of `docker swarm update` sets.
_FLAGS = {
    ("Orchestration", "TaskHistoryRetentionLimit"): "docker swarm update --task-history-limit",
    ("Dispatcher", "HeartbeatPeriod"): "docker swarm update --dispatcher-heartbeat",
    ("CAConfig", "NodeCertExpiry"): "docker swarm update --cert-expiry",
    ("CAConfig", "ExternalCAs"): "docker swarm update --external-ca",
    ("CAConfig", "ForceRotate"): "docker swarm ca --rotate",
    ("CAConfig", "SigningCACert"): "docker swarm ca --ca-cert",
    ("CAConfig", "SigningCAKey"): "docker swarm ca --ca-key",
    ("Raft", "SnapshotInterval"): "docker swarm update --snapshot-interval",
    ("Raft", "KeepOldSnapshots"): "docker swarm update --max-snapshots",
    ("EncryptionConfig", "AutoLockManagers"): "docker swarm update --autolock",
}


def routes(context: Context) -> list[Route]:
    """The routes of this resource."""

    return [
        route("GET", "/swarm", swarm_inspect, context),
        route("POST", "/swarm/init", swarm_init, context),
        route("POST", "/swarm/join", swarm_init, context),
        route("POST", "/swarm/leave", swarm_leave, context),
        route("POST", "/swarm/update", swarm_update, context),
        route("GET", "/swarm/unlockkey", swarm_unlock_key, context),
        route("POST", "/swarm/unlock", swarm_unlock, context),
    ]


async def swarm_inspect(context: Context, _call: Call) -> Reply:
    tokens = {
        "Worker": context.status.join_token(Role.WORKER),
        "Manager": context.status.join_token(Role.MANAGER),
    }
    return Reply({**show_cluster(context.cluster), "JoinTokens": tokens})


async def swarm_init(_context: Context, _call: Call) -> Reply:
    return error_reply(503, ALREADY_PART)


async def swarm_leave(_context: Context, _call: Call) -> Reply:
    raise Unsupported("docker swarm leave on the manager", "stop its daemon and delete its state directory")


async def swarm_unlock_key(_context: Context, _call: Call) -> Reply:
    raise Unsupported("locking a swarm (autolock)")


async def swarm_unlock(_context: Context, _call: Call) -> Reply:
    return error_reply(409, "swarm is not locked")


async def swarm_update(context: Context, call: Call) -> Reply:
    """Rotates join tokens. A spec that differs from the present one is refused by the name of what differs."""
    cluster = context.cluster
    version = call.version("swarm")
    if version != cluster.version:
        raise OutOfSequence("swarm", cluster.id, version, cluster.version)
    _refuse_changes(require_object(call.json()), show_cluster(cluster)["Spec"])
    if call.flag("rotateManagerUnlockKey"):
        raise Unsupported("docker swarm unlock-key --rotate")
    if call.flag("rotateWorkerToken"):
        await context.status.rotate_join_token(Role.WORKER)
    if call.flag("rotateManagerToken"):
        await context.status.rotate_join_token(Role.MANAGER)
    return Reply()


def _refuse_changes(asked: dict[str, Any], present: dict[str, Any]) -> None:
    """Compare member by member. What is left out stays as it is: small clients send {} to rotate a token."""
    for section, value in asked.items():
        if not isinstance(value, dict):
            if not is_empty(value) and value != present.get(section):
                raise Unsupported(f"changing {section} of the swarm")
            continue
        known = present.get(section, {})
        for name, item in value.items():
            if item != known.get(name) and not (is_empty(item) and is_empty(known.get(name))):
                raise Unsupported(_FLAGS.get((section, name), f"changing {section}.{name} of the swarm"))
        if section == "Labels" and value != known:
            raise Unsupported("changing Labels of the swarm")


def show_cluster(cluster: Cluster) -> dict[str, Any]:
    """Docker's ClusterInfo. There is no Raft; its defaults stand there because clients print them."""
    return {
        "ID": cluster.id,
        "Version": {"Index": cluster.version},
        "CreatedAt": time_of(cluster.created_at_s),
        "UpdatedAt": time_of(cluster.updated_at_s),
        "Spec": {
            "Name": cluster.name,
            "Labels": cluster.labels,
            "Orchestration": {"TaskHistoryRetentionLimit": cluster.task_history_limit},
            "Raft": {
                "SnapshotInterval": 10000,
                "KeepOldSnapshots": 0,
                "LogEntriesForSlowFollowers": 500,
                "ElectionTick": 10,
                "HeartbeatTick": 1,
            },
            "Dispatcher": {"HeartbeatPeriod": nanoseconds(cluster.heartbeat_s)},
            "CAConfig": {"NodeCertExpiry": nanoseconds(cluster.certificate_valid_s)},
            "TaskDefaults": {},
            "EncryptionConfig": {"AutoLockManagers": False},
        },
        "TLSInfo": show_tls_info(cluster),
        "RootRotationInProgress": False,
        "DefaultAddrPool": None,
        "SubnetSize": 24,
        "DataPathPort": 4789,
    }


__all__ = ["routes", "show_cluster"]
