"""`beeyard whatif`: what would happen if a service were created or scaled, or nodes were lost or drained."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from beeyard.cli.explain import explanation_lines
from beeyard.cli.manager_api import ApiError, call, default_socket, told

NAME = "whatif"
TARGET = "/beeyard/v1/whatif"
CORES_MAX = 1_000_000  # no machine has as many


def main(arguments: list[str]) -> int:
    """Ask; the exit code of the process."""
    options = _parser().parse_args(arguments)
    try:
        answer = call(options.socket, "POST", TARGET, question(options))
    except ApiError as error:
        return told(f"{NAME} {options.what}", error)
    if options.json:
        print(json.dumps(answer, indent=2))
    else:
        print("\n".join(service_lines(answer) if options.what == "service" else aftermath_lines(answer)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"beeyard {NAME}",
        description="What would happen if. The question is played on the manager's state as it is; nothing is changed.",
        allow_abbrev=False,
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="the manager's answer as it is")
    common.add_argument(
        "--socket", default=default_socket(), metavar="PATH", help="of the manager; default %(default)s"
    )
    questions = parser.add_subparsers(dest="what", required=True, metavar="QUESTION")
    service = questions.add_parser(
        "service",
        parents=[common],
        help="a service is scaled or created",
        description="Where the tasks would go: of the service NAME when scaled to --replicas, or of a new one.",
        allow_abbrev=False,
    )
    service.add_argument("name", nargs="?", metavar="NAME", help="a service that exists")
    service.add_argument("--replicas", type=int, metavar="N", help="how many tasks it is to have")
    service.add_argument("--spec", metavar="FILE", help='a new one as docker service create sends it, JSON; "-": stdin')
    service.add_argument("--image", metavar="IMAGE", help="a new one with this image and the options below")
    service.add_argument("--reserve-cpu", type=_cores, default=0.0, metavar="CORES")
    service.add_argument("--reserve-memory", type=int, default=0, metavar="MIB")
    service.add_argument("--constraint", action="append", default=[], metavar="EXPRESSION")
    service.add_argument("--network", action="append", default=[], metavar="NAME")
    service.add_argument("--replicas-max-per-node", type=int, default=0, metavar="N")
    lost = questions.add_parser("node-lost", parents=[common], help="a node is out of reach", allow_abbrev=False)
    lost.add_argument("node", metavar="NODE", help="name or id")
    rack = questions.add_parser(
        "lost", parents=[common], help="all nodes of a constraint are out of reach at once", allow_abbrev=False
    )
    rack.add_argument("constraint", metavar="EXPRESSION", help="such as node.labels.rack==r1")
    drain = questions.add_parser(
        "drain", parents=[common], help="a node, or all of a constraint, are drained", allow_abbrev=False
    )
    drain.add_argument("node", nargs="?", metavar="NODE", help="name or id")
    drain.add_argument("--where", dest="constraint", metavar="EXPRESSION", help="such as node.labels.rack==r1")
    return parser


def question(options: argparse.Namespace) -> dict[str, Any]:
    """The body of the request.

    Raises:
        ApiError: it is not clear what is asked, or the file cannot be read.
    """
    if options.what != "service":
        given = {"Node": getattr(options, "node", None), "Constraint": getattr(options, "constraint", None)}
        if options.what == "drain" and len([text for text in given.values() if text]) != 1:
            raise ApiError("give a node, or --where EXPRESSION, such as node.labels.rack==r1")
        return {"Drain" if options.what == "drain" else "Lost": {name: text for name, text in given.items() if text}}
    if sum((bool(options.name), bool(options.spec), bool(options.image))) != 1:
        raise ApiError("give the NAME of a service that exists, or --spec FILE or --image IMAGE for a new one")
    if options.name:
        replicas = {} if options.replicas is None else {"Replicas": options.replicas}
        return {"Scale": {"Service": options.name, **replicas}}
    spec = _spec_in(options.spec) if options.spec else _spec(options)
    if options.replicas is not None:
        spec["Mode"] = {"Replicated": {"Replicas": options.replicas}}
    return {"Service": spec}


def _spec_in(path: str) -> dict[str, Any]:
    try:
        spec = json.loads(sys.stdin.read() if path == "-" else Path(path).read_text("utf-8"))
    except OSError as error:
        raise ApiError(f"cannot read --spec {path}: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, RecursionError) as error:
        raise ApiError(f"--spec {path} is no JSON: {error}") from error
    if not isinstance(spec, dict):
        raise ApiError(f"--spec {path} is no JSON object, as docker service create sends it")
    return spec


def _cores(text: str) -> float:
    """A number of cores; argparse tells what else there was."""
    cores = float(text)
    if not 0 <= cores <= CORES_MAX:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {CORES_MAX} cores")
    return cores


def _spec(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "TaskTemplate": {
            "ContainerSpec": {"Image": options.image},
            "Resources": {
                "Reservations": {
                    "NanoCPUs": round(options.reserve_cpu * 10**9),
                    "MemoryBytes": options.reserve_memory << 20,
                }
            },
            "Placement": {"Constraints": options.constraint, "MaxReplicas": options.replicas_max_per_node},
            "Networks": [{"Target": name} for name in options.network],
        }
    }


def service_lines(answer: dict[str, Any]) -> Iterator[str]:
    """Where tasks would go, for a person."""
    before = f" besides the {answer['Before']} that it has" if answer["Before"] else ""
    yield f"{_tasks(answer['Placed'])} placed{before}, {answer['Unplaced']} without a place"
    for node in answer["On"]:
        yield f"  {node['Name']:24} {node['Tasks']}"
    if answer["Unplaced"]:
        yield from explanation_lines(answer)


def aftermath_lines(answer: dict[str, Any]) -> Iterator[str]:
    """What becomes of tasks, for a person."""
    nodes, moves, stuck = answer["Nodes"], answer["Moves"], answer["Stuck"]
    n_nodes = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
    if not nodes:
        yield "no node is of that kind"
        return
    yield f"{n_nodes}: {_tasks(len(moves))} replaced, {len(stuck)} without a place"
    for move in moves:
        yield f"  {_name(move):24} {move['From']['Name']} → {move['To']['Name']}"
    for why, n in Counter(one["Explanation"] for one in stuck).items():
        yield f"{_tasks(n)}: {why}"
        for one in stuck:
            if one["Explanation"] == why:
                yield f"  {_name(one):24} {one['From']['Name']}"


def _name(task: dict[str, Any]) -> str:
    return f"{task['Service']}.{task['Slot']}" if task["Service"] else str(task["Task"])


def _tasks(n: int) -> str:
    return "1 task" if n == 1 else f"{n} tasks"


__all__ = ["aftermath_lines", "main", "question", "service_lines"]
