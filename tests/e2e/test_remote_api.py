"""The docker command on another machine: TLS, with a certificate of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from beeyard.agent.identity import Identity
from beeyard.core.states import Role
from beeyard.runtime.pki import RealPki
from deploy.lan import Lan
from deploy.yard_cluster import YardCluster

pytestmark = pytest.mark.netns

ADDRESS = "10.79.9.11:2376"


@pytest.fixture(scope="module")
def cluster() -> Iterator[YardCluster]:
    name = "rem"
    made = YardCluster(
        name,
        subnet="10.79.9.0/24",
        subnet6="fd79:9::/64",
        api_socket=f"/run/beeyard/{name}/docker.sock",
        manager_settings={"api_listen": "0.0.0.0:2376", "api_names": ["10.79.9.11", "manager.test"]},
    )
    made.down()
    try:
        made.up(1)
        yield made
    finally:
        made.down()


def certificate(cluster: YardCluster, *arguments: str) -> str:
    command = [sys.executable, "-m", "beeyard", "client-certificate", "--socket", cluster.api_socket, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_pool_is_changed_in_place(cluster: YardCluster) -> None:
    """With the tool for it, on the manager's host; what was not named stays, and a refusal is told."""
    config = {"Subnet": "10.79.9.0/24", "IPRange": "10.79.9.64/26", "Gateway": "10.79.9.1"}
    body = {"Name": "p1", "ConfigOnly": True, "IPAM": {"Config": [config]}, "Options": {"parent": "eth0"}}
    cluster.call("POST", "/networks/create", body)
    command = [sys.executable, "-m", "beeyard", "pool", "set", "--socket", cluster.api_socket, "p1"]
    done = subprocess.run([*command, "--ip-range", "10.79.9.128/25"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "p1\n"), done.stderr
    shown = cluster.get("/networks/p1")["IPAM"]["Config"][0]
    assert {**config, "IPRange": "10.79.9.128/25"}.items() <= shown.items()
    done = subprocess.run([*command, "--ip-range", "10.0.0.0/25"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("beeyard pool set: invalid ")


def docker(cluster: YardCluster, certificates: Path | None, *arguments: str) -> tuple[int, str]:
    """Run the docker command outside of the cluster's hosts; its exit code and what it printed."""
    program = shutil.which("docker", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") or "docker"
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "DOCKER_HOST": f"tcp://{ADDRESS}"}
    if certificates is not None:
        environment |= {"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(certificates)}
    command = [*Lan.enter(cluster.lan.outside), program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
    return done.returncode, done.stdout + done.stderr


def written(directory: Path, ca: bytes, certificate_pem: bytes, key: bytes) -> Path:
    directory.mkdir()
    for name, data in (("ca.pem", ca), ("cert.pem", certificate_pem), ("key.pem", key)):
        (directory / name).write_bytes(data)
    return directory


def test_a_client_with_a_certificate_may_do_all_but_make_certificates(cluster: YardCluster, tmp_path: Path) -> None:
    """It reads and writes, shows by name in the log, and is refused once revoked, on the next request."""
    out = tmp_path / "anna"
    certificate(cluster, "anna", "--out", str(out))
    assert (out / "key.pem").stat().st_mode & 0o777 == 0o600
    code, text = docker(cluster, out, "node", "ls", "--format", "{{.Hostname}}")
    assert (code, text.strip()) == (0, "rem1")
    code, text = docker(cluster, out, "service", "create", "-d", "--name", "far", "host", "sleep", "1000")
    assert code == 0, text
    log = (cluster.state / "manager.log").read_text()
    assert any("client=anna" in line and "/services/create" in line for line in log.splitlines())

    assert "anna" in certificate(cluster, "--list")
    assert certificate(cluster, "--revoke", "anna") == "revoked: 1\n"
    code, text = docker(cluster, out, "node", "ls")
    assert code == 1
    assert "the certificate of client anna was revoked" in text
    assert certificate(cluster, "--list") == ""


def test_nobody_else_is_let_in(cluster: YardCluster, tmp_path: Path) -> None:
    """No certificate, one of a node, of another CA, or an expired one: each is refused, and told why."""
    good = tmp_path / "good"
    certificate(cluster, "bob", "--out", str(good))
    ca = (good / "ca.pem").read_bytes()

    without = tmp_path / "without"
    without.mkdir()
    shutil.copy(good / "ca.pem", without)
    code, text = docker(cluster, without, "node", "ls")
    assert code != 0

    identity = msgspec.msgpack.decode((cluster.state / "agent1" / "identity").read_bytes(), type=Identity)
    node = written(tmp_path / "node", ca, identity.certificate_pem, identity.key_pem)
    code, text = docker(cluster, node, "node", "ls")
    assert code == 1
    assert "the certificate is one of a manager, not of a client" in text

    pki = RealPki()
    csr, key = pki.new_request()
    now_s = time.time()
    other = pki.new_authority("other", now_s)
    stranger_pem = pki.sign(
        other, csr, node_id="bob", role=Role.CLIENT, organization="other", now_s=now_s, valid_s=3600.0
    )
    stranger = written(tmp_path / "stranger", ca, stranger_pem, key)
    code, text = docker(cluster, stranger, "node", "ls")
    assert code == 1
    assert "remote error: tls" in text

    brief = tmp_path / "brief"
    certificate(cluster, "brief", "--out", str(brief), "--valid-days", "1e-8")
    code, text = docker(cluster, brief, "node", "ls")
    assert code == 1
    assert "expired certificate" in text

    other_ca = written(tmp_path / "wrong", other[0], b"", b"") / "ca.pem"
    code, text = docker(cluster, good, "--tlscacert", str(other_ca), "node", "ls")
    assert code == 1
    assert "certificate signed by unknown authority" in text
