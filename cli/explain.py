"""`beeyard explain`: why the tasks of a service have no place, and what would give them one."""

from __future__ import annotations

import argparse
import json
import urllib.parse
from collections.abc import Iterator
from typing import Any

from beeyard.cli.manager_api import ApiError, call, default_socket, told

NAME = "explain"


def main(arguments: list[str]) -> int:
    """Explain; the exit code of the process."""
    parser = argparse.ArgumentParser(
        prog=f"beeyard {NAME}",
        description="Why the tasks of a service, or one task, have no place: how many nodes fail which filter first, and the "
        "smallest changes that would place it. Each was tried on the state of the cluster as it is now.",
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="SERVICE|TASK", help="name or id, such as web, or web.3 for one task")
    parser.add_argument("--nodes", action="store_true", help="say of every node all that it lacks")
    parser.add_argument("--json", action="store_true", help="the manager's answer as it is")
    parser.add_argument(
        "--socket", default=default_socket(), metavar="PATH", help="of the manager; default %(default)s"
    )
    options = parser.parse_args(arguments)
    query = urllib.parse.urlencode({"name": options.name, **({"nodes": "true"} if options.nodes else {})})
    try:
        answer = call(options.socket, "GET", f"/beeyard/v1/explain?{query}")
    except ApiError as error:
        return told(NAME, error)
    print(json.dumps(answer, indent=2) if options.json else "\n".join(lines(answer)))
    return 0


def lines(answer: dict[str, Any]) -> Iterator[str]:
    """The answer for a person."""
    service, waiting = answer["Service"]["Name"], answer["Waiting"]
    task: dict[str, Any] = answer.get("Task", {})
    if waiting:
        yield f"{service}: {waiting} {'task waits' if waiting == 1 else 'tasks wait'}, such as {task['Name']}"
    elif task:
        yield f"{task['Name']}: {task['State']}{' on ' + task['Node'] if task.get('Node') else ''}"
    else:
        yield f"{service}: no task waits for a place"
    said = [text for text in (task.get("Err"), task.get("Message")) if text]
    if waiting and said and said[0] != answer["Explanation"]:
        yield f"  it was told: {said[0]}"
    yield from rejection_lines(answer.get("Rejected"))
    if answer["Fitting"]:
        yield f"{answer['Fitting']} of {answer['Nodes']} nodes would take {'it' if waiting else 'one more'} now"
    else:
        yield from explanation_lines(answer)
        yield from map(resting_line, answer.get("Resting", ()))
    for node in sorted(answer.get("PerNode", ()), key=lambda node: str(node["Name"])):
        lacks = ", ".join(one["Text"] for one in node["Lacks"])
        yield f"  {node['Name']:24} {lacks or 'fits'}"


def rejection_lines(rejected: dict[str, Any] | None) -> Iterator[str]:
    """What a node said of the last task that it rejected, and what comes of that."""
    if not rejected:
        return
    node, why = rejected.get("Node", "its node"), rejected.get("Err", "it does not say why")
    yield f"{rejected['Name']} was rejected by {node}: {why}"
    again, instead = rejected.get("NextTry"), rejected.get("Instead")
    if not again:
        yield "  it is not tried again: the service's restart policy does not let it"
    elif instead:
        where = f" on {instead['Node']}" if instead.get("Node") else ""
        yield f"  tried again since {again[:19]}Z: {instead['Name']} is {instead['State']}{where}"
    else:
        yield f"  it is tried again at {again[:19]}Z"


def resting_line(pool: dict[str, Any]) -> str:
    """How the addresses of a pool without free ones are taken."""
    counts = [f"{pool['Used']} in use"]
    if pool["Resting"]:
        counts.append(f"{pool['Resting']} resting for cool_down_s after tasks that ended")
    if pool["PutAside"]:
        counts.append(f"{pool['PutAside']} put aside, as strangers have them (`beeyard pool list`)")
    return f"addresses of pool {pool['Pool']}: {', '.join(counts)}"


def explanation_lines(answer: dict[str, Any]) -> Iterator[str]:
    """Why there is no place, and what would help."""
    yield answer["Explanation"]
    if answer["Relaxations"]:
        yield "it would have a place with"
    for relaxation in answer["Relaxations"]:
        names = sorted(node["Name"] for node in relaxation["Such"])
        more = ", …" if relaxation["Nodes"] > len(names) else ""
        yield f"  {relaxation['Text']} ({', '.join(names)}{more})"


__all__ = ["explanation_lines", "lines", "main"]
