"""Cluster volumes by the stock `docker` client, or by the API where the client is older than they are (before 23)."""

from __future__ import annotations

from typing import Any

from beeyard.cli.manager_api import call
from tests.support.docker import Docker


def _request(docker: Docker, method: str, path: str, body: object = None) -> Any:
    return call(docker.environment["DOCKER_HOST"].removeprefix("unix://"), method, path, body)


def _knows_cluster_volumes(docker: Docker) -> bool:
    return "--scope" in docker.run("volume", "create", "--help").stdout


def create_shared_volume(docker: Docker, name: str, *, rack: str) -> None:
    """A volume that all tasks on the nodes of a rack may share."""
    if _knows_cluster_volumes(docker):
        sharing = ("--type", "mount", "--scope", "multi", "--sharing", "all", "--topology-required", f"rack={rack}")
        assert docker("volume", "create", *sharing, name) == name
        return
    topology = {"Requisite": [{"Segments": {"rack": rack}}]}
    spec = {"AccessMode": {"Scope": "multi", "Sharing": "all"}, "AccessibilityRequirements": topology}
    _request(docker, "POST", "/volumes/create", {"Name": name, "ClusterVolumeSpec": spec})


def drain_volume(docker: Docker, name: str) -> None:
    """Have all tasks leave a volume."""
    if _knows_cluster_volumes(docker):
        docker("volume", "update", "--availability", "drain", name)
        return
    shown = _request(docker, "GET", f"/volumes/{name}")["ClusterVolume"]
    spec = {**shown["Spec"], "Availability": "drain"}
    _request(docker, "PUT", f"/volumes/{shown['ID']}?version={shown['Version']['Index']}", {"Spec": spec})


def listed_volumes(docker: Docker) -> list[str]:
    """The lines of `docker volume ls --cluster`: name, group, driver, availability and status."""
    if not _knows_cluster_volumes(docker):
        return [f"{volume['Name']} dir" for volume in _request(docker, "GET", "/volumes")["Volumes"]]
    return [" ".join(line.split()) for line in docker("volume", "ls", "--cluster").splitlines()[1:]]
