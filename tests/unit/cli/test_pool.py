"""What `beeyard pool set` asks the manager for, and what `beeyard pool list` shows."""

from __future__ import annotations

from typing import Any

import pytest

from beeyard.cli import pool
from beeyard.cli.manager_api import ApiError
from beeyard.cli.pool_list import listing

V4 = {"Subnet": "10.0.0.0/24", "IPRange": "10.0.0.64/26", "Gateway": "10.0.0.1"}
V6 = {"Subnet": "fd00::/64"}


def asked(*arguments: str, configs: tuple[dict[str, Any], ...] = (V4,), labels: dict[str, str] | None = None) -> Any:
    shown = {"Name": "p", "IPAM": {"Config": list(configs)}, "Labels": labels}
    return pool.changes(shown, pool._parser().parse_args(["set", "p", *arguments]))


@pytest.mark.parametrize(
    ("arguments", "config"),
    [
        (("--ip-range", "10.0.0.128/25"), {**V4, "IPRange": "10.0.0.128/25"}),
        (("--subnet", "10.0.0.0/23"), {**V4, "Subnet": "10.0.0.0/23"}),
        (("--gateway", "", "--ip-range", ""), {**V4, "Gateway": "", "IPRange": ""}),
        (
            ("--aux-address", "nas=10.0.0.70", "--aux-address", "tv=10.0.0.71"),
            {**V4, "AuxiliaryAddresses": {"nas": "10.0.0.70", "tv": "10.0.0.71"}},
        ),
        (("--aux-address", ""), {**V4, "AuxiliaryAddresses": {}}),
        (("--ip-range", "nonsense"), {**V4, "IPRange": "nonsense"}),
    ],
)
def test_what_is_given_changes_and_the_rest_stays(arguments: tuple[str, ...], config: dict[str, Any]) -> None:
    assert asked(*arguments) == {"IPAM": {"Config": [config]}}


def test_the_family_says_which_subnet_is_meant() -> None:
    assert asked("--gateway", "fd00::1", configs=(V4, V6)) == {"IPAM": {"Config": [V4, {**V6, "Gateway": "fd00::1"}]}}


def test_labels_are_added_and_removed() -> None:
    labels = {"beeyard.config": "racks", "old": "1"}
    wanted = {"beeyard.config": "racks", "beeyard.nodes": "node.labels.rack==r1"}
    given = ("--label", "beeyard.nodes=node.labels.rack==r1", "--label-rm", "old")
    assert asked(*given, labels=labels) == {"Labels": wanted}
    assert asked("--label", "a=b") == {"Labels": {"a": "b"}}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "nothing to change"),
        (("--gateway", ""), "pool p has the subnets 10.0.0.0/24, fd00::/64: give addresses of one of them"),
        (("--gateway", "fd00::1", "--ip-range", "10.0.0.0/25"), "and one at a time"),
        (("--aux-address", "10.0.0.9"), "is not NAME=VALUE"),
    ],
)
def test_what_is_not_clear_is_refused(arguments: tuple[str, ...], sentence: str) -> None:
    configs = (V4,) if "--aux-address" in arguments else (V4, V6)
    with pytest.raises(ApiError, match=sentence):
        asked(*arguments, configs=configs)


def test_a_network_that_draws_from_pools_names_them() -> None:
    pools = {"r1": {"Total": 4}, "r2": {"Total": 4}, "old": {"Removed": True, "Used": 1}}
    network = {
        "Name": "lan",
        "ConfigFrom": {"Network": "racks"},
        "IPAM": {"Config": [V4]},
        "Status": {"IPAM": {"Pools": pools}},
    }
    options = pool._parser().parse_args(["set", "lan", "--gateway", "10.0.0.2"])
    with pytest.raises(ApiError, match=r"network lan has no addresses of its own: give one of its pools, r1 or r2$"):
        pool.changes(network, options)


def test_pools_are_listed_once_with_what_is_put_aside() -> None:
    """A pool that two networks draw from has one line; a removed one has none."""
    stranger = {"MacAddress": "02:00:00:00:00:99", "FoundBy": "h1", "Until": "2030-01-01T00:00:01.500000Z"}
    r1 = {
        "Ranges": ["10.0.0.64/26", "fd00::40/122"],
        "Parent": "eth0",
        "Nodes": "node.labels.rack==r1",
        "Total": 64,
        "Used": 3,
        "Cooling": 1,
        "Free": 60,
        "PutAside": [{**stranger, "Address": "10.0.0.70"}],
        "Closed": "02:00:00:00:00:99 outside the cluster answers for everything",
    }
    theirs = {"Ranges": ["10.9.0.0/24"], "Parent": "eth1", "Nodes": "", "IPAMDriver": "corp"}
    networks = [
        {"Status": {"IPAM": {"Pools": {"r1": r1, "old": {"Removed": True, "Used": 1}}}}},
        {"Status": {"IPAM": {"Pools": {"r1": r1}}}},
        {"Status": {"IPAM": {"Pools": {"corp": theirs}}}},
        {"Name": "host"},
    ]
    assert listing(networks) == [
        "POOL  RANGES                     PARENT  NODES                 TOTAL  USED  COOLING  FREE",
        "corp  10.9.0.0/24                eth1    all                   -      -     -        -",
        "r1    10.0.0.64/26,fd00::40/122  eth0    node.labels.rack==r1  64     3     1        60",
        "",
        "POOL  PUT ASIDE  IN USE BY          FOUND BY  UNTIL",
        "r1    10.0.0.70  02:00:00:00:00:99  h1        2030-01-01T00:00:01Z",
        "",
        "02:00:00:00:00:99 outside the cluster answers for everything",
    ]
