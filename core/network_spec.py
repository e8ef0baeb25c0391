"""What a network must say to be accepted: one sentence for each thing that a user can get wrong.

What Docker ignores in silence is refused here by name when it would make a difference: a gateway of an ipvlan network in
mode l3 or l3s (its tasks send everything through their link), options of the other driver.
"""

from __future__ import annotations

from collections.abc import Iterable

from beeyard.core import constraint
from beeyard.core.errors import ClusterError, Forbidden, InvalidSpec, Unsupported
from beeyard.core.labels import LABEL_CONFIG, LABEL_NODES, LABEL_SEGMENT, check_network_labels
from beeyard.core.model import HOST_NETWORK_ID, Network
from beeyard.core.name import NAME_RULE, is_name
from beeyard.core.network_options import (
    DRIVERS,
    MTU_MIN_IPV6,
    OPTION_IPVLAN_MODE,
    OPTION_MTU,
    check_options,
    driver_of,
    is_routed,
    mode_of,
    mtu_of,
)
from beeyard.core.pools import DEFAULT_SEGMENT, IPAM_DEFAULT, IPAM_NULL, config_networks, ipam_driver_of, users_of
from beeyard.core.subnet_spec import check_ipam


def validate_network(network: Network, networks: Iterable[Network]) -> None:
    """Refuse a new network that cannot work, naming the field, its value and what would be right.

    Raises:
        InvalidSpec: a value is wrong or missing.
        Unsupported: something Docker has and Beeyard does not.
        Forbidden: a second predefined network.
    """
    if network.driver == "host" and not network.config_only:
        _check_host(network)
        return
    others = list(networks)
    _check_common(network)
    if network.config_only:
        _check_config_only(network, others)
    elif network.config_from:
        _check_config_from(network, others)
    else:
        _check_pool(network)


def _check_host(network: Network) -> None:
    if network.id != HOST_NETWORK_ID:
        raise Forbidden('only one instance of "host" network is allowed: use the predefined network host')


def _check_common(network: Network) -> None:
    if not network.name.strip():
        raise InvalidSpec("name", "it is empty: give the network a name")
    if not is_name(network.name):
        raise InvalidSpec("name", f"{network.name!r:.80}: {NAME_RULE}")
    if network.driver not in DRIVERS and not (network.config_only and network.driver == ""):
        driver = network.driver or "bridge"
        raise Unsupported(
            f"network driver {driver}", "give -d macvlan or -d ipvlan, or use the predefined network host"
        )
    if network.attachable:
        raise Unsupported("an attachable network", "only tasks of services are attached: leave --attachable out")
    check_network_labels(network.labels)
    if LABEL_CONFIG in network.labels and not network.config_only:
        raise InvalidSpec(f"label {LABEL_CONFIG}", "only a network made with --config-only can carry it")


def _check_config_only(network: Network, others: list[Network]) -> None:
    if network.config_from:
        raise InvalidSpec("config-from", "a configuration network cannot depend on another configuration network")
    if network.internal:
        raise InvalidSpec(
            "internal", "a configuration network has a subnet and options only: say --internal with -d macvlan"
        )
    _check_pool(network)
    for user in users_of(network, others):
        siblings = [n for n in config_networks(user.config_from, others) if n.id != network.id]
        _check_fits(network, user, siblings[:1])


def _check_config_from(network: Network, others: list[Network]) -> None:
    _check_scope(network)
    name = network.config_from
    given = (
        (network.ipam, "--subnet, --ip-range, --gateway or --aux-address"),
        (network.options, "-o"),
        (network.enable_ipv6, "--ipv6"),
        (ipam_driver_of(network) != IPAM_DEFAULT, "--ipam-driver"),
        (network.ipam_options, "--ipam-opt"),
        (LABEL_NODES in network.labels, f"--label {LABEL_NODES}"),
        (LABEL_SEGMENT in network.labels, f"--label {LABEL_SEGMENT}"),
    )
    for value, flag in given:
        if value:
            raise InvalidSpec(
                "config-from",
                f"{flag} cannot be given together with --config-from {name}: say it in a --config-only network",
            )
    sources = config_networks(name, others)
    for source in sources:
        _check_fits(source, network, sources[:1])
    if sources:
        return
    if any(other.name == name for other in others):
        raise InvalidSpec(
            "config-from", f"network {name} is not a configuration network: it was made without --config-only"
        )
    raise InvalidSpec(
        "config-from",
        f"no --config-only network is named {name} or has the label {LABEL_CONFIG}={name}: create one first",
    )


def _check_fits(source: Network, user: Network, siblings: list[Network]) -> None:
    """Whether a network can draw from a pool, beside its other pools, all of which are alike."""
    made_for = source.driver or driver_of(source.options)
    if made_for not in ("", user.driver):
        reason = f"configuration network {source.name} is for -d {made_for}, network {user.name} is -d {user.driver}"
        raise InvalidSpec("driver", reason)
    if user.driver == "ipvlan" and ipam_driver_of(source) == IPAM_NULL:
        raise InvalidSpec("ipam-driver", _null_ipvlan(f"configuration network {source.name}"))
    for sibling in siblings:
        if ipam_driver_of(sibling) != ipam_driver_of(source):
            reason = f"{source.name} has {ipam_driver_of(source)}, {sibling.name} has {ipam_driver_of(sibling)}"
            raise InvalidSpec("ipam-driver", f"{reason}: the pools of network {user.name} must have the same")


def _null_ipvlan(what: str) -> str:
    return (
        f"{what} has the IPAM driver null, and an ipvlan link is told from its neighbours by its address: use macvlan"
    )


def _check_scope(network: Network) -> None:
    if network.scope not in ("", "swarm"):
        raise Unsupported(f"network scope {network.scope}", "networks of the cluster have --scope swarm")


def _check_pool(network: Network) -> None:
    """A network that says a subnet itself, config-only or direct."""
    if not network.config_only:
        _check_scope(network)
    check_options(network.options, network.driver)
    families = _check_subnets(network)
    if 6 in families and 0 < mtu_of(network.options) < MTU_MIN_IPV6:
        reason = f"{mtu_of(network.options)} is too small for IPv6: at least {MTU_MIN_IPV6}"
        raise InvalidSpec(f"option {OPTION_MTU}", reason)
    _check_labels(network)


def _check_subnets(network: Network) -> list[int]:
    """Check what a network says of its addresses; returns the families of its subnets."""
    ipam_driver = ipam_driver_of(network)
    driver = network.driver or driver_of(network.options)
    if ipam_driver in (IPAM_DEFAULT, IPAM_NULL) and network.ipam_options:
        option = min(network.ipam_options)
        raise InvalidSpec(f"ipam-opt {option}", f"the IPAM driver {ipam_driver} has no options: leave it out")
    if ipam_driver == IPAM_NULL:
        if network.ipam or network.enable_ipv6:
            flag = "--subnet, --ip-range, --gateway or --aux-address" if network.ipam else "--ipv6"
            raise InvalidSpec("ipam-driver", f"null gives no addresses, so {flag} cannot be given together with it")
        if driver == "ipvlan":
            raise InvalidSpec("ipam-driver", _null_ipvlan(f"network {network.name}"))
        return []
    if not network.ipam and ipam_driver == IPAM_DEFAULT:
        raise InvalidSpec("subnet", "it is missing: give --subnet, such as --subnet 10.1.0.0/24")
    families = [check_ipam(config) for config in network.ipam]
    for family in (4, 6):
        if families.count(family) > 1:
            raise InvalidSpec(
                "subnet", f"{families.count(family)} subnets of IPv{family} were given: one of each family is possible"
            )
    if network.enable_ipv6 and 6 not in families and ipam_driver == IPAM_DEFAULT:
        raise InvalidSpec(
            "ipv6", "--ipv6 needs a subnet of its own: give a second --subnet, such as --subnet fd00:1::/64"
        )
    mode = mode_of(network.options, driver)
    gateway = next((config.gateway for config in network.ipam if config.gateway), "")
    if is_routed(driver, mode) and gateway:
        reason = (
            f"{gateway} would be ignored: with {OPTION_IPVLAN_MODE} {mode} tasks send everything through their link"
        )
        raise InvalidSpec("gateway", f"{reason}: leave --gateway out")
    return families


def _check_labels(network: Network) -> None:
    nodes = network.labels.get(LABEL_NODES)
    if nodes is not None:
        if not constraint.split(nodes):
            raise InvalidSpec(f"label {LABEL_NODES}", "it is empty: leave it out to serve all nodes")
        for expression in constraint.split(nodes):
            try:
                parsed = constraint.parse(expression)
            except ClusterError as error:
                raise InvalidSpec(f"label {LABEL_NODES}", str(error)) from None
            if not parsed.is_known:
                raise InvalidSpec(
                    f"label {LABEL_NODES}",
                    f"{expression!r} matches no node: known are node.id, node.hostname, node.ip, node.role, "
                    "node.platform.os, node.platform.arch, node.labels.NAME, engine.labels.NAME and node.tags.KEY",
                )
            if parsed.rtt_limit_s is not None:
                reason = f"{expression!r}: which nodes a pool serves cannot depend on times, which change; name a label"
                raise InvalidSpec(f"label {LABEL_NODES}", reason)
    if not network.labels.get(LABEL_SEGMENT, DEFAULT_SEGMENT).strip():
        raise InvalidSpec(f"label {LABEL_SEGMENT}", "it is empty: give the segment a name or leave it out")


__all__ = ["validate_network"]
