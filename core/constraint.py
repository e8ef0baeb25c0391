"""Which nodes an expression such as `node.labels.rack==r1` means: SwarmKit's constraint language.

A constraint names one property of a node, compares it with one value, whole and without regard to case; there is no
globbing. A property that a node does not have is the empty string, so `==` fails on it and `!=` passes. `node.ip` takes an
address or a network. A key that is not known parses and matches no node, as in SwarmKit.

Source: SwarmKit `manager/constraint/constraint.go`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from beeyard.core.errors import InvalidSpec
from beeyard.core.model import Node

_KEY = re.compile(r"[a-z_][a-z0-9\-_.]+", re.IGNORECASE | re.ASCII)
_VALUE = re.compile(r"[a-z0-9:\-_\s.*()?+\[\]\\^$|/]+", re.IGNORECASE | re.ASCII)
_NODE_LABEL = "node.labels."
_ENGINE_LABEL = "engine.labels."

_PROPERTIES: dict[str, Callable[[Node], str]] = {
    "node.id": lambda node: node.id,
    "node.hostname": lambda node: node.description.hostname,
    "node.ip": lambda node: node.status.address,
    "node.role": lambda node: node.spec.role.value,
    "node.platform.os": lambda node: node.description.platform.os,
    "node.platform.arch": lambda node: node.description.platform.architecture,
}


class Constraint(msgspec.Struct, frozen=True):
    """One comparison. `key` is canonical: prefixes in lower case, label names as they were written."""

    key: str
    equal: bool  # True: `==`, False: `!=`
    value: str

    def __str__(self) -> str:
        return f"{self.key}{'==' if self.equal else '!='}{self.value}"

    @property
    def is_known(self) -> bool:
        """Whether any node can match: the key is one of the language."""
        return self.key in _PROPERTIES or self.key.startswith((_NODE_LABEL, _ENGINE_LABEL))

    def accepts(self, actual: str) -> bool:
        """Whether a node whose property (`node_property`) is `actual` matches."""
        if not self.is_known:
            return False
        if self.key == "node.ip":
            return _ip_accepts(self.value, actual, self.equal)
        return (self.value.casefold() == actual.casefold()) is self.equal


def parse(expression: str) -> Constraint:
    """Read one constraint.

    Raises:
        InvalidSpec: not of the form `key==value` or `key!=value`; says which part is wrong.
    """
    for operator in ("==", "!="):
        key, found, value = expression.partition(operator)
        if not found:
            continue
        key, value = key.strip(), value.strip()
        if not _KEY.fullmatch(key):
            raise InvalidSpec(
                "constraint", f"{expression!r}: key {key!r} is not like node.labels.NAME or node.hostname"
            )
        if not _VALUE.fullmatch(value):
            raise InvalidSpec("constraint", f"{expression!r}: value {value!r} is empty or has a character not allowed")
        return Constraint(_canonical(key), operator == "==", value)
    raise InvalidSpec("constraint", f"{expression!r}: expected one operator from ==, !=")


def parse_all(expressions: Iterable[str]) -> tuple[Constraint, ...]:
    """Read several constraints, which are joined by "and". Raises InvalidSpec for the first that is wrong."""
    return tuple(parse(expression) for expression in expressions)


def split(label: str) -> tuple[str, ...]:
    """The expressions in a label's value, where commas separate them (a constraint itself cannot contain one)."""
    return tuple(part.strip() for part in label.split(",") if part.strip())


def node_property(key: str, node: Node) -> str:
    """What a node has for a canonical key; "" when it has nothing or the key is not known."""
    if key in _PROPERTIES:
        return _PROPERTIES[key](node)
    if key.startswith(_NODE_LABEL):
        return node.spec.labels.get(key[len(_NODE_LABEL) :], "")
    if key.startswith(_ENGINE_LABEL):
        return node.description.engine_labels.get(key[len(_ENGINE_LABEL) :], "")
    return ""


def matches(constraints: Sequence[Constraint], node: Node) -> bool:
    """Whether a node satisfies all of them."""
    return all(constraint.accepts(node_property(constraint.key, node)) for constraint in constraints)


def _canonical(key: str) -> str:
    lower = key.lower()
    for prefix in (_NODE_LABEL, _ENGINE_LABEL):
        if lower.startswith(prefix) and len(key) > len(prefix):
            return prefix + key[len(prefix) :]
    # "node.labels." without a name is no label at all, and like every unknown key matches nothing.
    return "?" + lower if lower in (_NODE_LABEL, _ENGINE_LABEL) else lower


def _ip_accepts(wanted: str, actual: str, equal: bool) -> bool:
    try:
        network = ipaddress.ip_network(wanted, strict=False)
    except ValueError:
        return False  # malformed: no node matches, whichever the operator
    address = _host_address(actual)
    return (address is not None and address in network) is equal


def _host_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address in "10.0.0.7", "10.0.0.7:41822" or "tcp://[fd00::7]:41822"."""
    text = text.removeprefix("tcp://")
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


__all__ = ["Constraint", "matches", "node_property", "parse", "parse_all", "split"]
