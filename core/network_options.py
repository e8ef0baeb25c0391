"""What `docker network create -o` may say, for which driver.

The names are Docker's, but for `beeyard.host_access`. macvlan and ipvlan are asked for with `-d`; a config-only network has
no driver of its own, so an option that only one of them has says for which it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from beeyard.core.errors import InvalidSpec, Unsupported

DRIVERS = ("macvlan", "ipvlan")

OPTION_PARENT = "parent"
OPTION_MODE = "macvlan_mode"
OPTION_IPVLAN_MODE = "ipvlan_mode"
OPTION_IPVLAN_FLAG = "ipvlan_flag"
OPTION_MTU = "com.docker.network.driver.mtu"
OPTION_HOST_ACCESS = "beeyard.host_access"

PASSTHRU = "passthru"
# The kind of link that tolerates no other on its parent, in the words of `link_kind`.
KIND_ALONE = f"macvlan in mode {PASSTHRU}"
# By option: the driver that has it, its values, the first of them the default.
CHOICES = {
    OPTION_MODE: ("macvlan", ("bridge", "private", "vepa", PASSTHRU)),
    OPTION_IPVLAN_MODE: ("ipvlan", ("l2", "l3", "l3s")),
    OPTION_IPVLAN_FLAG: ("ipvlan", ("bridge", "private", "vepa")),
    OPTION_HOST_ACCESS: ("macvlan", ("false", "true")),
}
OPTIONS = (OPTION_PARENT, OPTION_MODE, OPTION_IPVLAN_MODE, OPTION_IPVLAN_FLAG, OPTION_MTU, OPTION_HOST_ACCESS)

# 68: the least that IPv4 may use (RFC 791); 1280: IPv6 (RFC 8200); 65535: the largest IP packet.
MTU_MIN, MTU_MIN_IPV6, MTU_MAX = 68, 1280, 65535
VLAN_MIN, VLAN_MAX = 1, 4094  # Source: IEEE 802.1Q, 0 and 4095 are reserved

_INTERFACE = re.compile(r"[^\s/:]{1,15}")  # Source: Linux dev_valid_name, IFNAMSIZ 16


def driver_of(options: Mapping[str, str]) -> str:
    """The only driver that has these options; "" when both have them."""
    return next((CHOICES[option][0] for option in CHOICES if options.get(option)), "")


def mode_of(options: Mapping[str, str], driver: str) -> str:
    """The mode of a driver's links, its default when none is given."""
    option = OPTION_IPVLAN_MODE if driver == "ipvlan" else OPTION_MODE
    return options.get(option) or CHOICES[option][1][0]


def flag_of(options: Mapping[str, str], driver: str) -> str:
    """ipvlan's flag, its default when none is given; "" for macvlan, which has none."""
    return (options.get(OPTION_IPVLAN_FLAG) or CHOICES[OPTION_IPVLAN_FLAG][1][0]) if driver == "ipvlan" else ""


def link_kind(driver: str, mode: str, flag: str) -> str:
    """The kind of a link, in words; links of different kinds exclude each other on one parent, `KIND_ALONE` also itself.

    The kernel keeps mode and flag of ipvlan links per parent. Source: Linux `macvlan_common_newlink`, `ipvlan_link_new`.
    """
    if driver == "ipvlan":
        return f"ipvlan in mode {mode or 'l2'}" + (f" and flag {flag}" if flag not in ("", "bridge") else "")
    return KIND_ALONE if mode == PASSTHRU else "macvlan"


def is_routed(driver: str, mode: str) -> bool:
    """Whether nobody on the LAN answers for a link's addresses: its host routes, and packets come by routes alone."""
    return driver == "ipvlan" and mode in ("l3", "l3s")


def mtu_of(options: Mapping[str, str]) -> int:
    """Bytes; 0 for the parent's."""
    return int(options.get(OPTION_MTU) or "0")


def has_host_access(options: Mapping[str, str]) -> bool:
    """Whether hosts and their own tasks are to reach each other."""
    return options.get(OPTION_HOST_ACCESS) == "true"


class Vlan(NamedTuple):
    """What a parent of the form BASE.ID stands for."""

    name: str
    base: str
    id: int

    @property
    def is_nested(self) -> bool:
        """Whether its base is a VLAN itself: such a one is used when it exists, and agents make none."""
        return vlan_of(self.base) is not None


def vlan_of(parent: str) -> Vlan | None:
    """The VLAN that a parent's name stands for, 100 on "eth0" for "eth0.100"; None for names of another form."""
    base, _, digits = parent.rpartition(".")
    if not base or not (digits.isascii() and digits.isdecimal()):
        return None
    return Vlan(parent, base, int(digits))


def check_options(options: Mapping[str, str], driver: str) -> None:
    """Refuse options that a driver has not, values that an option cannot have, and what does not go together.

    Args:
        driver: "" for a config-only network that leaves it open.

    Raises:
        InvalidSpec: names the option, its value and what would be right.
        Unsupported: an option that nobody reads.
    """
    for option in sorted(options):
        if option not in OPTIONS:
            raise Unsupported(f"network option {option}", f"known are {', '.join(OPTIONS)}")
    _check_parent(options.get(OPTION_PARENT, ""))
    driver = driver or driver_of(options)
    for option, (owner, values) in CHOICES.items():
        value = options.get(option, "")
        if value and owner != driver:
            raise InvalidSpec(f"option {option}", f"{driver} has none: it is an option of {owner}")
        if value not in ("", *values):
            raise InvalidSpec(f"option {option}", f"{value!r:.80} is not one of {', '.join(values)}")
    mode = mode_of(options, driver)
    if has_host_access(options) and mode != "bridge":
        reason = f"in mode {mode} no link beside a task's reaches it: it goes with {OPTION_MODE} bridge alone"
        raise InvalidSpec(f"option {OPTION_HOST_ACCESS}", reason)
    mtu = options.get(OPTION_MTU, str(MTU_MIN))
    if not (mtu.isascii() and mtu.isdigit() and MTU_MIN <= int(mtu[:9]) <= MTU_MAX and len(mtu) < 9):
        raise InvalidSpec(f"option {OPTION_MTU}", f"{mtu!r:.80} is not a number of bytes from {MTU_MIN} to {MTU_MAX}")


def _check_parent(parent: str) -> None:
    if not parent:
        raise InvalidSpec(
            "option parent",
            "it is missing: give -o parent=INTERFACE, the nodes' link to that LAN, such as -o parent=eth0",
        )
    if parent in ("lo", ".", "..") or not _INTERFACE.fullmatch(parent):
        raise InvalidSpec(
            "option parent", f"{parent!r} cannot be the name of an interface on a LAN, such as eth0 or eth0.10"
        )
    vlan = vlan_of(parent)
    if vlan is not None and not (VLAN_MIN <= vlan.id <= VLAN_MAX and parent == f"{vlan.base}.{vlan.id}"):
        raise InvalidSpec(
            "option parent", f"{parent!r} is of no VLAN: the number behind the dot is from {VLAN_MIN} to {VLAN_MAX}"
        )


__all__ = [
    "CHOICES",
    "DRIVERS",
    "KIND_ALONE",
    "MTU_MIN_IPV6",
    "OPTION_HOST_ACCESS",
    "OPTION_IPVLAN_FLAG",
    "OPTION_IPVLAN_MODE",
    "OPTION_MODE",
    "OPTION_MTU",
    "OPTION_PARENT",
    "PASSTHRU",
    "VLAN_MAX",
    "VLAN_MIN",
    "Vlan",
    "check_options",
    "driver_of",
    "flag_of",
    "has_host_access",
    "is_routed",
    "link_kind",
    "mode_of",
    "mtu_of",
    "vlan_of",
]
