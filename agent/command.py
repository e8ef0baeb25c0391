"""`beeyard join`: the agent daemon of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence

import msgspec
import structlog
import trio

from beeyard.agent import daemon
from beeyard.agent.config import AgentConfig
from beeyard.agent.executors.process.executor import ProcessExecutor
from beeyard.agent.executors.process.logs import Keep
from beeyard.agent.hook_policy import is_clean_path
from beeyard.agent.host_access import HostAccessStep
from beeyard.agent.identity import parse_token
from beeyard.agent.offers import parse_generic, parse_labels
from beeyard.agent.ports import PortStep
from beeyard.agent.routes import RouteKeeper
from beeyard.agent.vlan import VlanStep
from beeyard.core.errors import ClusterError, InvalidSpec
from beeyard.discovery.peers.check import check_settings
from beeyard.discovery.peers.url import is_search, parse_peer, parse_search, rejoined
from beeyard.runtime import real, real_log
from beeyard.runtime.address import TcpAddress, parse_address
from beeyard.runtime.host import Controller, Host
from beeyard.runtime.real_hooks import RealHooks
from beeyard.runtime.real_lock import sole_in_network, sole_use
from beeyard.runtime.real_main import Command, Running, with_scheme
from beeyard.runtime.settings import Settings

# Of the unit that holds the tasks' control group, where it runs.
TASKS_CGROUP = "/sys/fs/cgroup/system.slice/beeyard-tasks.service"

log = structlog.get_logger(__name__)


def complete(settings: Settings[AgentConfig]) -> AgentConfig:
    """The configuration as the daemon gets it. Raises SettingsError."""
    config = settings.config
    if settings.source("managers").startswith(("-", "$")):  # a list in one word, with commas between
        config = msgspec.structs.replace(config, managers=rejoined(config.managers))
    if not config.managers:
        raise settings.fault(
            "managers", "give the address of at least one manager, HOST:PORT, or self:// to have it found"
        )
    for name in ("state_dir", "log_dir", "launcher", "cgroup_root"):
        path: str = getattr(config, name)
        if path and not path.startswith("/"):
            raise settings.fault(name, f"{path!r} is not right: it must be an absolute path")
    if config.launcher and os.path.dirname(os.path.dirname(config.launcher)) == "/":
        reason = "it must be in a directory of its own, such as /run/NAME/socket: tasks find that directory empty"
        raise settings.fault("launcher", f"{config.launcher!r} is not right: {reason}")
    _check_managers(settings, config)
    token = config.join_token or _token_in_file(settings)
    try:
        if token:
            parse_token(token)
    except InvalidSpec as error:
        name = "join_token" if config.join_token else "join_token_file"
        raise settings.fault(name, f"this is no join token: {error.reason}") from error
    managers = tuple(with_scheme(address, "tcp://") for address in config.managers)
    for fault in config.hooks.faults():
        raise settings.fault(f"hooks.{fault.partition(' ')[0]}", fault)
    for name, parse in (("generic_resources", parse_generic), ("labels", parse_labels)):
        try:
            parse(getattr(config, name))
        except InvalidSpec as error:
            raise settings.fault(name, error.reason) from error
    if config.volumes_dir and not is_clean_path(config.volumes_dir):
        raise settings.fault("volumes_dir", f"{config.volumes_dir!r}: an absolute path without '..' is right")
    log_dir = config.log_dir or f"{config.state_dir}/log"
    return msgspec.structs.replace(config, managers=managers, join_token=token, log_dir=log_dir)


def _check_managers(settings: Settings[AgentConfig], config: AgentConfig) -> None:
    try:
        search = parse_search(config.managers)
    except InvalidSpec as error:
        raise settings.fault("managers", error.reason) from error
    if config.advertise:
        if search is None:
            raise settings.fault("advertise", "it counts only where managers are found by self:// or serf://")
        try:
            parse_peer(config.advertise, search.port)
        except InvalidSpec as error:
            raise settings.fault(
                "advertise", f"{config.advertise!r} is not right: it must be HOST or HOST:PORT"
            ) from error
    try:
        check_settings(config.discovery)
    except InvalidSpec as error:
        raise settings.fault(error.field, error.reason) from error
    for address in config.managers:
        if not is_search(address):
            _check_manager(settings, address)


def _check_manager(settings: Settings[AgentConfig], address: str) -> None:
    try:
        parsed = parse_address(with_scheme(address, "tcp://"))
    except InvalidSpec:
        parsed = None
    if not isinstance(parsed, TcpAddress) or parsed.port == 0:
        raise settings.fault(
            "managers",
            f"{address!r} is not right: it must be HOST:PORT; an IPv6 host goes in brackets",
        )


def _token_in_file(settings: Settings[AgentConfig]) -> str:
    """The join token of a file; a node that has joined may have lost it."""
    path = settings.config.join_token_file
    if not path:
        return ""
    try:
        with open(path, encoding="ascii") as file:
            return file.read(1000).strip()
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, FileNotFoundError) and os.path.exists(f"{settings.config.state_dir}/identity"):
            return ""
        reason = (error.strerror or str(error)).lower() if isinstance(error, OSError) else "it is not text"
        raise settings.fault("join_token_file", f"cannot read {path}: {reason}") from error


def _executor(config: AgentConfig) -> ProcessExecutor:
    # The node's key is in the state directory: not even a task that runs as root may see it.
    return ProcessExecutor(
        f"{config.state_dir}/process",
        config.log_dir or f"{config.state_dir}/log",
        cgroup_root=config.cgroup_root
        or (TASKS_CGROUP if os.path.exists(f"{TASKS_CGROUP}/cgroup.controllers") else ""),
        launcher=config.launcher,
        hidden=("/run/beeyard", *([os.path.dirname(config.launcher)] if config.launcher else []), config.state_dir),
        keep=Keep(config.logs_kept, config.log_mib_kept << 20),
    )


@contextlib.contextmanager
def _alone(config: AgentConfig) -> Iterator[None]:
    """Without another agent, or purge, that would take what is this one's.

    On one directory they would take each other's sessions and tasks, in one network namespace what `take_back` lists.
    """
    with sole_use(config.state_dir, "agent"), contextlib.ExitStack() as stack:
        if not config.share_network:
            stack.enter_context(sole_in_network("agent"))
        yield


async def run(config: AgentConfig, task_status: trio.TaskStatus[Running]) -> None:
    """Be the agent of this machine until cancelled, which leaves the tasks running."""
    with _alone(config):
        executor = _executor(config)
        try:
            hooks = RealHooks(config.hooks.directory, config.log_dir, spawn=executor.spawn_hook)
            host = real.host(executors=[executor], node_hooks=hooks, hostname=config.node_name)
            await daemon.run(host, config, task_status=task_status)
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
                await executor.aclose()


async def purge(config: AgentConfig) -> None:
    """Stop every task of this state directory, all at once, and remove what they left."""

    async def end(controller: Controller) -> None:
        try:
            await controller.stop(links_first=True)
            await controller.remove()
        except ClusterError as error:
            log.error("a task is left behind", task=controller.task_id, reason=str(error))

    with _alone(config):
        executor = _executor(config)
        try:
            async with trio.open_nursery() as nursery:
                for controller in await executor.recover():
                    nursery.start_soon(end, controller)
            await take_back(real.host(), config.state_dir)
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
                await executor.aclose()


async def take_back(host: Host, state_dir: str) -> None:
    """Take away what this host got for tasks that are gone: it outlives them, and no agent will see to it."""
    made = {
        "published ports": PortStep(host.netlink, host.firewall, host.sockets, state_dir).settle,
        "host-side links": HostAccessStep(host.netlink).settle,
        "VLAN sub-interfaces": VlanStep(host.netlink).settle,
        "routes to tasks of other hosts": RouteKeeper(host.netlink).abandon,
    }
    for what, remove in made.items():
        try:
            await remove()
        except (ClusterError, OSError) as error:
            log.error(f"{what} are left behind", reason=str(error))


JOIN = Command(
    name="beeyard join",
    description="The agent of one host of a Beeyard cluster: joins it, once, and runs its tasks.",
    config=AgentConfig,
    prefix="BEEYARD_AGENT_",
    file="/etc/beeyard/agent.toml",
    complete=complete,
    run=run,
)


def main(arguments: list[str]) -> int:
    """Run until SIGTERM or SIGINT; 1 when it cannot start or was refused."""
    parser = JOIN.parser("[MANAGER ...]")
    parser.add_argument(
        "manager",
        nargs="*",
        metavar="MANAGER",
        help="HOST:PORT of a manager to join, or self:// to find one, as --managers",
    )
    parser.add_argument("--purge", action="store_true", help="stop every task of this state directory, and end")
    options = parser.parse_args(arguments)
    flags = {"managers": _as_list(options.manager)} if options.manager else {}
    only_looks = options.check_config or options.print_config
    if os.geteuid() != 0 and not only_looks:
        print("beeyard join: needs root, for network namespaces and cgroups", file=sys.stderr)
        return 1
    if options.purge and not only_looks:
        return _purge(options)
    return JOIN.main(options, flags)


def _as_list(managers: Sequence[str]) -> str:
    """What stands on the command line as one value of --managers. URLs come last: what follows one there belongs to it."""
    named = [part for text in managers if not is_search(text) for part in text.split(",")]
    return json.dumps([*named, *filter(is_search, managers)])


def _purge(options: object) -> int:
    code = 0
    try:
        config = JOIN.load(options).config  # type: ignore[arg-type]
        real_log.configure(config.log_level, "beeyard")
        trio.run(purge, config)
    except* ClusterError as group:
        for error in group.exceptions:
            print(f"beeyard join: {error}", file=sys.stderr)
        code = 1
    return code


__all__ = ["JOIN", "main", "take_back"]
