"""A whole cluster of real daemons on namespaces, shared by the tests of one module."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from deploy.yard_cluster import YardCluster
from tests.support.docker import RACK_RANGES, Docker


@pytest.fixture(scope="module")
def cluster() -> Iterator[YardCluster]:
    """Three nodes: the manager's and one more in rack r1, one in rack r2."""
    name = f"byt{os.getpid() % 10000}x"
    cluster = YardCluster(name, api_socket=f"/run/beeyard/{name}/docker.sock")
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
    for rack, ip_range in RACK_RANGES.items():
        docker(
            *("network", "create", "--config-only", "--subnet", "10.77.0.0/24", "--ip-range", ip_range),
            *("--gateway", "10.77.0.1", "-o", "parent=eth0", "--label", "beeyard.config=racks"),
            *("--label", f"beeyard.nodes=node.labels.rack=={rack}", f"lan-{rack}"),
        )
    docker("network", "create", "-d", "macvlan", "--scope", "swarm", "--config-from", "racks", "lan")
    return "lan"
