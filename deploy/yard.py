"""`./yard up`, `./yard down`, `./yard exec`: see `deploy.yard_cluster` for what they work on."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from deploy.lan import Lan
from deploy.yard_cluster import YardCluster, say

# Nobody is told where anybody is: agents find the manager by gossip.
MANAGER_SETTINGS = {"self_discovery_port": 3388}
AGENT_SETTINGS = {"managers": ["self://:3388"]}

# Host addresses start at .11 of a /24 whose upper half and second quarter are left to pools; more hosts need another LAN.
NODES_MAX = 50
NODES = 3


def introduce(cluster: YardCluster) -> None:
    """Print the hosts, the endpoint, and what to try."""
    n_hosts = len(cluster.daemons()) - 1
    hosts = "\n".join(
        f"    {cluster.lan.host(number):8} {cluster.lan.address(number):14} rack={cluster.rack(number)}"
        f"{'   manager and node' if number == 1 else ''}"
        for number in range(1, n_hosts + 1)
    )
    print(
        f"""
The cluster is up:

{hosts}

Its Docker endpoint, and where the commands docker and beeyard are:

    export DOCKER_HOST=unix://{cluster.api_socket}
    export PATH={Path(sys.executable).parent}:$PATH

Try:

    docker node ls
    docker network create -d macvlan --scope swarm --subnet {cluster.lan.subnet} --ip-range {cluster.lan.subnet[192]}/26 \\
        --gateway {cluster.lan.subnet[1]} -o parent=eth0 flat
    docker service create --name web --replicas 3 --network flat host python3 -m http.server 8000
    docker network inspect flat
    beeyard members

The README goes on with a pool of addresses for each rack. Logs and settings are in {cluster.state};
`./yard exec lan curl http://ADDRESS:8000` asks a task from outside; `./yard down` ends it all.
""",
        flush=True,
    )


def command_up(cluster: YardCluster, n_nodes: int | None, *, detach: bool) -> None:
    """`./yard up`. `n_nodes` is None when nobody said how many."""
    with cluster.alone():
        if cluster.revive():
            say("the cluster is up")
            n_hosts = len(cluster.daemons()) - 1
            if n_nodes not in (None, n_hosts):
                say(f"its number of nodes stays {n_hosts}: for {n_nodes} run ./yard down first")
        else:
            start(cluster, NODES if n_nodes is None else n_nodes)
    introduce(cluster)
    if not detach:
        say("Ctrl-C ends the cluster")
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)
        with cluster.alone():
            cluster.down()
        say("the cluster is down")


def start(cluster: YardCluster, n_nodes: int) -> None:
    """Start a new cluster; when that fails, keep its logs and remove the rest."""
    try:
        cluster.up(n_nodes)
    except BaseException:
        logs = tempfile.mkdtemp(prefix=f"{cluster.name}-logs-")
        for log in cluster.state.glob("*.log"):
            shutil.copy(log, logs)
        say(f"something went wrong: the logs are in {logs}; removing all else that was made")
        cluster.down()
        raise


def command_exec(cluster: YardCluster, host: str, argv: list[str]) -> None:
    """`./yard exec`; does not return."""
    name = cluster.lan.outside if host == "lan" else host
    there = cluster.lan.names()
    if not there:
        raise SystemExit("the cluster is down: start it with ./yard up")
    if name not in there:
        raise SystemExit(f"there is no host '{host}'; there are: lan {' '.join(there[1:])}")
    command = [*Lan.enter(name, hostname=name), *(argv or ["sh"])]
    os.execvp(command[0], command)


def a_number_of_nodes(text: str) -> int:
    """`--nodes`."""
    if text.isdecimal() and 1 <= int(text) <= NODES_MAX:
        return int(text)
    raise argparse.ArgumentTypeError(f"'{text}' is not a number of nodes from 1 to {NODES_MAX}")


def main(arguments: list[str]) -> None:
    """Entry point of the three commands."""
    parser = argparse.ArgumentParser(prog="./yard", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start the cluster, or what has ended of it", allow_abbrev=False)
    up.add_argument("--nodes", type=a_number_of_nodes, metavar="N", help=f"1 to {NODES_MAX}, default {NODES}")
    up.add_argument("--detach", "-d", action="store_true", help="return when the cluster works")
    commands.add_parser("down", help="stop the cluster")
    execute = commands.add_parser("exec", help="run a command on a host of the cluster")
    execute.add_argument("host", metavar="HOST", help="yard1, yard2, ... or lan for the outside")
    execute.add_argument(
        "argv", nargs=argparse.REMAINDER, metavar="COMMAND", help="and its arguments; a shell when there is none"
    )
    options = parser.parse_args(arguments)

    cluster = YardCluster(manager_settings=MANAGER_SETTINGS, agent_settings=AGENT_SETTINGS)
    if options.command == "up":
        command_up(cluster, options.nodes, detach=options.detach)
    elif options.command == "down":
        with cluster.alone():
            cluster.down()
        say("the cluster is down")
    else:
        command_exec(cluster, options.host, options.argv)


if __name__ == "__main__":
    main(sys.argv[1:])
