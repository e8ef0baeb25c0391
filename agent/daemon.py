"""The agent: one process on each node, from start to end.

Order of a start: what runs on this host is taken up first, because it needs no manager; then this node makes sure that it
has an identity; then it keeps connected. A clean stop is a cancellation: tasks run on under their shims.
"""

from __future__ import annotations

import posixpath

import structlog
import trio

from beeyard.agent.admission import Admission
from beeyard.agent.config import AgentConfig
from beeyard.agent.contact import Contact
from beeyard.agent.describe import Describer
from beeyard.agent.discovery import AgentDiscovery
from beeyard.agent.host_access import HostAccessStep
from beeyard.agent.identity import IdentityKeeper, JoinToken, Stranger, parse_token
from beeyard.agent.local_state import LocalState
from beeyard.agent.manager_list import ManagerList
from beeyard.agent.node_hooks import OWN_DIRS, NodeHookStep
from beeyard.agent.offers import ClaimStep, offer_of
from beeyard.agent.parents import ParentStep
from beeyard.agent.ports import PortStep
from beeyard.agent.probe import ProbeStep
from beeyard.agent.reporter import Reporter
from beeyard.agent.routes import RouteKeeper
from beeyard.agent.running import RunningAgent
from beeyard.agent.session import Connector, Equipment, Removed, back_off
from beeyard.agent.steps import Step, Steps
from beeyard.agent.surroundings import Surroundings
from beeyard.agent.vlan import VlanStep
from beeyard.agent.volumes import VolumeStep
from beeyard.agent.workload import Workload
from beeyard.core.errors import ClusterError, HostError, InvalidSpec, PeerError, PeerRefused
from beeyard.discovery.peers.url import is_search
from beeyard.runtime.host import Host

log = structlog.get_logger(__name__)


async def run(
    host: Host, config: AgentConfig, *, task_status: trio.TaskStatus[RunningAgent] = trio.TASK_STATUS_IGNORED
) -> None:
    """Be this host's agent until cancelled. Started once the tasks found on the host are looked after.

    Raises:
        InvalidSpec: the configuration cannot work: no manager, no token where one is needed, one of another cluster.
        PeerRefused: the cluster does not want this node, for the reason given.
        DiskError: the state directory cannot be read, or the identity not be written.
        ExecutorError: an executor cannot say what runs on this host.
    """
    with structlog.contextvars.bound_contextvars(agent=config.node_name or host.hostname):
        await _run(host, config, task_status)


async def _run(host: Host, config: AgentConfig, task_status: trio.TaskStatus[RunningAgent]) -> None:
    token = parse_token(config.join_token) if config.join_token else None
    if not config.managers:
        raise InvalidSpec(
            "managers", "give the address of at least one manager, such as tcp://10.0.0.1:2377, or self://"
        )
    identity = IdentityKeeper(host, config.state_dir)
    is_member = await identity.load(token)
    if not is_member and token is None:
        raise InvalidSpec("join token", "this node is not a member of a cluster yet and needs one to join")
    managers = ManagerList(host.files, config.state_dir, [a for a in config.managers if not is_search(a)])
    await managers.load()
    cluster = token.ca_digest if token is not None else identity.ca_digest
    discovery = AgentDiscovery(host, config, cluster, identity.node_id)

    state = LocalState(host, config.state_dir)
    try:
        await _serve(host, config, identity, managers, state, discovery, None if is_member else token, task_status)
    finally:
        with trio.CancelScope(shield=True):  # Safety: bounded by the disk
            await state.aclose()


async def _serve(
    host: Host,
    config: AgentConfig,
    identity: IdentityKeeper,
    managers: ManagerList,
    state: LocalState,
    discovery: AgentDiscovery,
    token: JoinToken | None,
    task_status: trio.TaskStatus[RunningAgent],
) -> None:
    """Take up what runs here, join with the token if there is one to join with, and be connected."""
    contact = Contact()
    reporter = Reporter(config.coalesce_s)
    ports = PortStep(host.netlink, host.firewall, host.sockets, config.state_dir)
    steps = _steps(host, config, identity, ports)
    offer = offer_of(config)
    admission = Admission(host.resources, offer.generic, offer.reserved)
    around = Surroundings(host, state, reporter, admission, contact, Steps(steps))
    describer = Describer(host, config.node_name, ports.listeners, offer)
    equipment = Equipment(host, config, identity, contact, reporter, describer, RouteKeeper(host.netlink))
    controllers = [controller for executor in host.executors for controller in await executor.recover()]
    records = await state.load()
    async with trio.open_nursery() as nursery:
        workload = Workload(around, nursery)
        workload.adopt(records, controllers)
        nursery.start_soon(equipment.routes.run)
        nursery.start_soon(ports.watch)
        await discovery.start(nursery, managers, describer)
        connector = Connector(equipment, managers, workload)
        task_status.started(RunningAgent(config, describer, reporter, workload, connector, discovery, steps))
        end = None if token is None else await _join(equipment, managers, token)
        if end is None:
            await discovery.joined(identity.node_id)
            end = await connector.run()
        if isinstance(end, Removed):
            log.warning("this node was removed from the cluster: its tasks are stopped", reason=str(end))
            await workload.abandon()
            await equipment.routes.abandon()
            await discovery.leave()
        nursery.cancel_scope.cancel()
    if isinstance(end, Removed):
        await identity.forget()
    raise end


def _steps(host: Host, config: AgentConfig, identity: IdentityKeeper, ports: PortStep) -> tuple[Step, ...]:
    """What this node does for each task besides running it, in this order."""
    node_name = config.node_name or host.hostname
    own_dirs = (posixpath.dirname(config.launcher),) if config.launcher else ()
    hooks = NodeHookStep(
        host,
        config.hooks,
        config.state_dir,
        node_name=node_name,
        node_id=lambda: identity.node_id,
        own_dirs=own_dirs,
    )
    return (
        ParentStep(),
        VlanStep(host.netlink),
        HostAccessStep(host.netlink),
        ProbeStep(host.netlink, config.probe_s),
        ports,
        ClaimStep(),
        VolumeStep(host.node_hooks, config.volumes_dir, own_dirs=(*OWN_DIRS, config.state_dir, *own_dirs)),
        hooks,
    )


async def _join(equipment: Equipment, managers: ManagerList, token: JoinToken) -> ClusterError | None:
    """Ask one manager after another until one lets this node in; the error if that cannot be."""
    host, config = equipment.host, equipment.config
    n_failures = 0
    while True:
        address = await managers.current()
        try:
            await equipment.identity.join(address, token, config.node_name or host.hostname)
        except Stranger as error:
            # Anybody may say in gossip that he is a manager: what a person configured is an error, this is none.
            if not managers.is_hearsay(address):
                return error
            log.warning("this is no manager of the cluster", manager=address, reason=str(error))
        except (PeerRefused, HostError) as error:
            return error
        except PeerError as error:
            log.warning("not joined yet", manager=address, reason=str(error))
        else:
            return None
        n_failures += 1
        managers.advance()
        await back_off(host, config, n_failures, len(managers.addresses))


__all__ = ["AgentConfig", "run"]
