"""`beeyard manage`: settings that cannot work."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from beeyard.core.labels import STRATEGIES
from beeyard.manager.command import MANAGE, main
from beeyard.manager.config import ManagerConfig


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            ("--api-listen", "0.0.0.0:2377"),
            "--api-listen: tcp://0.0.0.0:2377 is where agents connect (listen): docker clients need a port of their own",
        ),
        (
            ("--api-listen", "0.0.0.0"),
            "--api-listen: '0.0.0.0' is not right: it must be HOST:PORT; an IPv6 host goes in brackets",
        ),
        (("--host-port-first", "40000"), "host_port_last: 32767 is below host_port_first, 40000"),
        (
            ("--strategy", "binpack"),
            '--strategy: "binpack" is not right: it must be one of spread, pack, shape, fgd',
        ),
        (
            ("--token-listen", "x"),
            "--token-listen: 'x' is not right: it must be HOST:PORT; an IPv6 host goes in brackets",
        ),
        (("--discovery-url", "etcd://"), "--discovery-url: 'etcd://': nothing follows etcd://"),
        (
            ("--discovery-url", "etcd://a", "--discovery-options", "kv.x=1"),
            "--discovery-options: there is no 'kv.x'; there are kv.path, kv.cacertfile, kv.certfile, kv.keyfile",
        ),
        (
            ("--discovery-url", "file://x"),
            "--discovery-url: 'file://x': the path must be absolute, file:///etc/beeyard/nodes",
        ),
        (("--state-dir", "here"), "--state-dir: 'here' is not right: it must be an absolute path"),
    ],
)
def test_settings_that_cannot_work_are_named(
    flags: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert MANAGE.main(MANAGE.parser().parse_args(["--check-config", *flags])) == 1
    assert capsys.readouterr().err == f"beeyard manage: {sentence}\n"


def test_both_listeners_may_have_the_same_host(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--check-config", "--listen", "10.0.0.7:2377", "--api-listen", "10.0.0.7:2376"]
    assert MANAGE.main(MANAGE.parser().parse_args(flags)) == 0
    assert capsys.readouterr().out == "ok\n"


def test_every_strategy_that_a_service_may_name_can_be_the_clusters() -> None:
    assert get_args(get_type_hints(ManagerConfig)["strategy"]) == STRATEGIES


def test_the_discovery_url_may_stand_without_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--print-config", "zk://z1,z2/racks"]) == 0
    assert 'discovery_url = "zk://z1,z2/racks"  # --discovery-url\n' in capsys.readouterr().out
