"""A whole cluster of real daemons on namespaces, shared by the tests of one module."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.yard_cluster import YardCluster
from tests.support.docker import COOL_DOWN_S, Docker, rack_network_commands


@pytest.fixture(scope="module")
def volumes_dir() -> Iterator[Path]:
    """Where all nodes have their cluster volumes, as if it were a network file system."""
    with tempfile.TemporaryDirectory(prefix="byt-volumes-", dir="/var/tmp") as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)


@pytest.fixture(scope="module")
def cluster(volumes_dir: Path) -> Iterator[YardCluster]:
    """Three nodes: the manager's and one more in rack r1, one in rack r2."""
    name = f"byt{os.getpid() % 10000}x"
    cluster = YardCluster(
        name,
        api_socket=f"/run/beeyard/{name}/docker.sock",
        manager_settings={"cool_down_s": COOL_DOWN_S},
        agent_settings={
            "generic_resources": ["gpu=u1", "gpu=u2", "ssd=5"],
            "labels": ["disk=ssd"],
            "volumes_dir": str(volumes_dir),
        },
    )
    try:
        cluster.up(3)
        yield cluster
    finally:
        cluster.down()


@pytest.fixture(scope="module")
def docker(cluster: YardCluster) -> Docker:
    """The stock client on that cluster."""
    return Docker(cluster.api_socket)


@pytest.fixture(scope="module")
def lan(docker: Docker) -> str:
    """The network `lan`: a pool for each rack."""
    for command in rack_network_commands():
        docker(*command)
    return "lan"
