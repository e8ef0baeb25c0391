"""`beeyard pool`: change a pool of addresses in place, list pools, take addresses back. Docker has no command for these."""

from __future__ import annotations

import argparse
import ipaddress
import json
import urllib.parse
from typing import Any

from beeyard.cli.manager_api import ApiError, call, default_socket, told
from beeyard.cli.pool_list import listing

NAME = "pool"


def main(arguments: list[str]) -> int:
    """One of the commands; the exit code of the process."""
    options = _parser().parse_args(arguments)
    try:
        for line in options.run(options):
            print(line)
    except ApiError as error:
        return told(f"{NAME} {options.command}", error)
    return 0


def _set(options: argparse.Namespace) -> list[str]:
    pool = _network(options, options.name)
    target = f"/networks/{pool['Id']}/update?version={pool['Version']['Index']}"
    answer = call(options.socket, "POST", target, changes(pool, options))
    warning = (answer or {}).get("Warning")
    return [f"warning: {warning}", options.name] if warning else [options.name]


def _release(options: argparse.Namespace) -> list[str]:
    target = f"/networks/{_network(options, options.name)['Id']}/release"
    released: list[str] = call(options.socket, "POST", target, {"Addresses": options.address})["Released"]
    return released


def _list(options: argparse.Namespace) -> list[str]:
    names = options.name or [network["Id"] for network in call(options.socket, "GET", "/networks")]
    return listing([_network(options, name) for name in names])


def _network(options: argparse.Namespace, name: str) -> dict[str, Any]:
    network: dict[str, Any] = call(options.socket, "GET", f"/networks/{urllib.parse.quote(name, safe='')}")
    return network


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"beeyard {NAME}", description="Pools of addresses, which are networks to docker."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_set(commands)
    release = commands.add_parser(
        "release",
        help="take addresses back that were put aside",
        description="Give addresses to tasks again that were put aside because a machine outside the cluster had them: it is "
        "gone, or silent. Prints which. One that still answers for them is found again.",
        allow_abbrev=False,
    )
    release.add_argument("name", metavar="NETWORK", help="or a pool of it")
    release.add_argument("address", nargs="*", metavar="ADDRESS", help="all of them when none is given")
    release.set_defaults(run=_release)
    show = commands.add_parser(
        "list",
        help="show pools, how full they are, and what is put aside",
        description="Show pools and what is put aside.",
        allow_abbrev=False,
    )
    show.add_argument("name", nargs="*", metavar="NETWORK", help="or a pool; all when none is given")
    show.set_defaults(run=_list)
    for command in commands.choices.values():
        command.add_argument(
            "--socket", default=default_socket(), metavar="PATH", help="of the manager; default %(default)s"
        )
    return parser


def _add_set(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    change = commands.add_parser(
        "set",
        help="change a pool in place",
        description="Change a pool in place: what is not given stays as it is, and tasks keep the addresses that they have. "
        "In a pool with both families the addresses that are given say which one is meant.",
        allow_abbrev=False,
    )
    change.add_argument(
        "name", help="of the pool: a network made by docker network create --config-only, or with --subnet"
    )
    change.add_argument("--subnet", metavar="CIDR")
    change.add_argument("--ip-range", metavar="CIDR", help='what may be handed out; "" for the whole subnet')
    change.add_argument("--gateway", metavar="ADDRESS", help='"" for none')
    change.add_argument("--aux-address", action="append", metavar="NAME=ADDRESS", help='in use by others; "" for none')
    change.add_argument("--label", action="append", default=[], metavar="NAME=VALUE", help="add or change a label")
    change.add_argument("--label-rm", action="append", default=[], metavar="NAME", help="remove a label")
    change.set_defaults(run=_set)


def changes(pool: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """The body of the request: the pool's subnets and labels with what is to be different.

    Raises:
        ApiError: nothing is, or it is not clear which subnet is meant.
    """
    body: dict[str, Any] = {}
    if any(value is not None for value in (options.subnet, options.ip_range, options.gateway, options.aux_address)):
        if (pool.get("ConfigFrom") or {}).get("Network"):
            raise ApiError(f"network {pool['Name']} has no addresses of its own: give one of its pools, {_pools(pool)}")
        configs = [dict(config) for config in (pool.get("IPAM") or {}).get("Config") or []]
        config = _meant(pool["Name"], configs, options)
        for field, value in (("Subnet", options.subnet), ("IPRange", options.ip_range), ("Gateway", options.gateway)):
            if value is not None:
                config[field] = value
        if options.aux_address is not None:
            config["AuxiliaryAddresses"] = _pairs("--aux-address", [text for text in options.aux_address if text])
        body["IPAM"] = {"Config": configs}
    if options.label or options.label_rm:
        labels = {**(pool.get("Labels") or {}), **_pairs("--label", options.label)}
        body["Labels"] = {name: value for name, value in labels.items() if name not in options.label_rm}
    if not body:
        raise ApiError("nothing to change: give --subnet, --ip-range, --gateway, --aux-address, --label or --label-rm")
    return body


def _meant(name: str, configs: list[dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    """The subnet of a pool that the options speak of: the only one, or the only one of their family."""
    given = [
        options.subnet,
        options.ip_range,
        options.gateway,
        *(a.partition("=")[2] for a in options.aux_address or []),
    ]
    families = {ipaddress.ip_network(text, strict=False).version for text in given if text and _is_network(text)}
    fitting = [c for c in configs if not families or ipaddress.ip_network(c["Subnet"]).version in families]
    if len(families) > 1 or len(fitting) != 1:
        subnets = ", ".join(config["Subnet"] for config in configs) or "none"
        advice = "give addresses of one of them, or --subnet to say which, and one at a time"
        raise ApiError(f"pool {name} has the subnets {subnets}: {advice}")
    return fitting[0]


def _pools(network: dict[str, Any]) -> str:
    """What a network draws from, for a person; a pool that was removed cannot be changed."""
    pools = ((network.get("Status") or {}).get("IPAM") or {}).get("Pools") or {}
    return " or ".join(name for name, pool in pools.items() if not pool.get("Removed")) or "of which it has none"


def _is_network(text: str) -> bool:
    """Whether it can be read; what cannot is left for the manager to refuse."""
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _pairs(flag: str, texts: list[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or (not equals and flag == "--aux-address"):
            raise ApiError(f"{flag} {json.dumps(text)} is not NAME=VALUE")
        pairs[key] = value
    return pairs


__all__ = ["changes", "main"]
