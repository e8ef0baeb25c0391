"""Which nodes an expression such as `node.labels.rack==r1` means: SwarmKit's constraint language, and more on request.

A constraint names one property of a node and compares it with a value, whole and without regard to case; there is no
globbing. A property that a node does not have is the empty string, so `==` fails on it and `!=` passes. `node.ip` takes an
address or a network. A key that is not known parses and matches no node, as in SwarmKit; one
without its name, as `node.labels.==r1`, is refused, which SwarmKit takes for a key that is not known.

Beyond SwarmKit, each with an operator of its own, so that nothing written for it changes its meaning:
`node.labels.rack in (r1, r2)` and `not in` compare with several values, `node.labels.rack =~ r[0-9]+` and `!~` with a form
(see `core.pattern`). A property that a node does not have is of no form. `node.tags.KEY` is a tag of the node's member in
the gossip cluster. `node.rtt.db1<=5ms` and `>=` compare the estimated round-trip time to node db1; neither holds where
that is not known.

Source: SwarmKit `manager/constraint/constraint.go`.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from beeyard.core.errors import InvalidSpec
from beeyard.core.membership import Coordinate, rtt_s
from beeyard.core.model import Node
from beeyard.core.pattern import compile_pattern

_KEY = re.compile(r"[a-z_][a-z0-9\-_.]+", re.IGNORECASE | re.ASCII)
_VALUE = re.compile(r"[a-z0-9:\-_\s.*()?+\[\]\\^$|/]+", re.IGNORECASE | re.ASCII)
_ITEM = re.compile(r"[a-z0-9:\-_\s.*?+\[\]\\^$|/]+", re.IGNORECASE | re.ASCII)  # a value between parentheses
# In a label, where commas separate constraints: those inside of a list do not.
_LISTED = re.compile(r"\s*[a-z_][a-z0-9\-_.]+\s+(not\s+)?in\s*\([^()]*\)\s*(,|$)", re.IGNORECASE | re.ASCII)
_OPERATORS = "==, !=, in (…), not in (…), =~, !~"
_DURATION = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*(us|ms|s)", re.IGNORECASE | re.ASCII)
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_NODE_LABEL = "node.labels."
_ENGINE_LABEL = "engine.labels."
_TAG = "node.tags."
_RTT = "node.rtt."
_NAMED = (_NODE_LABEL, _ENGINE_LABEL, _TAG)
_EXAMPLES = {_NODE_LABEL: "rack", _ENGINE_LABEL: "disk", _TAG: "dc", _RTT: "NODE"}

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
    equal: bool  # False: a node matches that does not compare so
    values: tuple[str, ...]  # it is enough to be equal to one
    is_pattern: bool = False  # the only value is a form: see `core.pattern`
    # Of node.rtt.NAME: what the round-trip time is at most, or at least if not `equal`; the only value says it as written.
    rtt_limit_s: float | None = None

    def __str__(self) -> str:
        if self.rtt_limit_s is not None:
            return f"{self.key}{'<=' if self.equal else '>='}{self.values[0]}"
        if self.is_pattern:
            return f"{self.key}{'=~' if self.equal else '!~'}{self.values[0]}"
        if len(self.values) == 1:
            return f"{self.key}{'==' if self.equal else '!='}{self.values[0]}"
        return f"{self.key}{'' if self.equal else ' not'} in ({', '.join(self.values)})"

    @property
    def is_known(self) -> bool:
        """Whether any node can match: the key is one of the language."""
        return self.key in _PROPERTIES or self.key.startswith((*_NAMED, _RTT))

    @property
    def rtt_target(self) -> str:
        """Name or id of the node to which the round-trip time counts."""
        return self.key.removeprefix(_RTT)

    def accepts(self, actual: str) -> bool:
        """Whether a node whose property (`node_property`) is `actual` matches; never for a round-trip time."""
        if not self.is_known or self.rtt_limit_s is not None:
            return False
        if self.is_pattern:
            text = str(_host_address(actual) or "") if self.key == "node.ip" else actual
            return (text != "" and compile_pattern(self.values[0]).matches(text)) is self.equal
        if self.key == "node.ip":
            return _ip_accepts(self.values, actual, self.equal)
        folded = actual.casefold()
        return any(value.casefold() == folded for value in self.values) is self.equal


def parse(expression: str) -> Constraint:
    """Read one constraint.

    Raises:
        InvalidSpec: not of a form such as `key==value` or `key in (value, …)`; says which part is wrong.
    """
    for operator in ("==", "!=", "=~", "!~"):
        key, found, value = expression.partition(operator)
        if found:
            checked = _checked_value(expression, value, _VALUE)
            is_pattern = operator.endswith("~")
            if is_pattern:
                _check_pattern(expression, checked)
            return Constraint(_text_key(expression, key), operator.startswith("="), (checked,), is_pattern)
    for operator in ("<=", ">="):
        key, found, value = expression.partition(operator)
        if found:
            return _parse_rtt(expression, _checked_key(expression, key), operator, value.strip())
    head, parenthesis, tail = expression.rstrip().partition("(")
    words = head.split()
    if parenthesis and tail.endswith(")") and words and words[-1].lower() == "in":
        is_negated = len(words) > 1 and words[-2].lower() == "not"
        values = tuple(_checked_value(expression, item, _ITEM) for item in tail[:-1].split(","))
        return Constraint(_text_key(expression, " ".join(words[: -1 - is_negated])), not is_negated, values)
    raise InvalidSpec("constraint", f"{expression!r}: expected one operator from {_OPERATORS}")


def _parse_rtt(expression: str, key: str, operator: str, value: str) -> Constraint:
    if not key.startswith(_RTT):
        reason = f"{operator} compares round-trip times, such as node.rtt.NODE{operator}5ms"
        raise InvalidSpec("constraint", f"{expression!r}: {reason}; {key} takes one operator from {_OPERATORS}")
    found = _DURATION.fullmatch(value)
    if not found:
        raise InvalidSpec("constraint", f"{expression!r}: {value!r} is no duration such as 5ms, 300us or 0.2s")
    limit_s = float(found[1]) * _UNITS_S[found[2].lower()]
    return Constraint(key, operator == "<=", (value,), rtt_limit_s=limit_s)


def _checked_key(expression: str, key: str) -> str:
    key = key.strip()
    if not _KEY.fullmatch(key):
        raise InvalidSpec("constraint", f"{expression!r}: key {key!r} is not like node.labels.NAME or node.hostname")
    canonical = _canonical(key)
    if canonical in (*_NAMED, _RTT):
        reason = f"key {key!r} ends with its dot: the name goes behind it, such as {canonical}{_EXAMPLES[canonical]}"
        raise InvalidSpec("constraint", f"{expression!r}: {reason}")
    return canonical


def _text_key(expression: str, key: str) -> str:
    """The key of a property that is text."""
    checked = _checked_key(expression, key)
    if checked.startswith(_RTT):
        raise InvalidSpec("constraint", f"{expression!r}: a round-trip time is compared so: {checked}<=5ms, or >=")
    return checked


def _checked_value(expression: str, value: str, allowed: re.Pattern[str]) -> str:
    value = value.strip()
    if not allowed.fullmatch(value):
        raise InvalidSpec("constraint", f"{expression!r}: value {value!r} is empty or has a character not allowed")
    return value


def _check_pattern(expression: str, text: str) -> None:
    try:
        compile_pattern(text)
    except InvalidSpec as error:
        raise InvalidSpec("constraint", f"{expression!r}: {error.reason}") from error


def parse_all(expressions: Iterable[str]) -> tuple[Constraint, ...]:
    """Read several constraints, which are joined by "and". Raises InvalidSpec for the first that is wrong."""
    return tuple(parse(expression) for expression in expressions)


def split(label: str) -> tuple[str, ...]:
    """The expressions in a label's value, where commas separate them. Only a list, in its parentheses, contains any."""
    parts, begin = [], 0
    while begin < len(label):
        listed = _LISTED.match(label, begin)
        end = listed.end() if listed else label.find(",", begin) + 1 or len(label)
        parts.append(label[begin:end].strip().removesuffix(",").strip())
        begin = end
    return tuple(part for part in parts if part)


def node_property(key: str, node: Node) -> str:
    """What a node has for a canonical key; "" when it has nothing or the key is not known."""
    if key in _PROPERTIES:
        return _PROPERTIES[key](node)
    if key.startswith(_NODE_LABEL):
        return node.spec.labels.get(key[len(_NODE_LABEL) :], "")
    if key.startswith(_ENGINE_LABEL):
        return node.description.engine_labels.get(key[len(_ENGINE_LABEL) :], "")
    if key.startswith(_TAG) and (membership := node.description.membership) is not None:
        return membership.tags.get(key[len(_TAG) :], "")
    return ""


def matches(constraints: Sequence[Constraint], node: Node, nodes: Collection[Node] = ()) -> bool:
    """Whether a node satisfies all of them; `nodes` as for `matcher`."""
    return matcher(constraints, nodes)(node)


def matcher(constraints: Sequence[Constraint], nodes: Collection[Node]) -> Callable[[Node], bool]:
    """Tells of a node whether it satisfies all of them. `nodes`: those to which round-trip times may be compared."""
    near = [constraint for constraint in constraints if constraint.rtt_limit_s is not None]
    plain = [constraint for constraint in constraints if constraint.rtt_limit_s is None]
    targets = [(constraint, _target(constraint.rtt_target, nodes)) for constraint in near]

    def satisfies(node: Node) -> bool:
        return all(c.accepts(node_property(c.key, node)) for c in plain) and all(
            _is_near(c, node, target) for c, target in targets
        )

    return satisfies


def _target(name: str, nodes: Collection[Node]) -> Node | None:
    """The only node that is called so."""
    folded = name.casefold()
    found = [n for n in nodes if folded in (n.id.casefold(), n.description.hostname.casefold())]
    return found[0] if len(found) == 1 else None


def _is_near(constraint: Constraint, node: Node, target: Node | None) -> bool:
    here, there = coordinate_of(node), coordinate_of(target)
    if here is None or there is None or target is None or constraint.rtt_limit_s is None:
        return False
    found_s = 0.0 if node.id == target.id else rtt_s(here, there)
    return found_s <= constraint.rtt_limit_s if constraint.equal else found_s >= constraint.rtt_limit_s


def coordinate_of(node: Node | None) -> Coordinate | None:
    """Where a node is in the network, as far as its agent says."""
    membership = None if node is None else node.description.membership
    return None if membership is None else membership.coordinate


def check_properties(constraints: Iterable[Constraint], nodes: Iterable[Node]) -> None:
    """See that each is about a property that some node has: for questions that mean nodes which are there.

    Raises:
        InvalidSpec: one is not; names those that are most like it.
    """
    names = dict.fromkeys(_PROPERTIES)
    for node in nodes:
        names.update(dict.fromkeys(_NODE_LABEL + label for label in node.spec.labels))
        names.update(dict.fromkeys(_ENGINE_LABEL + label for label in node.description.engine_labels))
        if (membership := node.description.membership) is not None:
            names.update(dict.fromkeys(_TAG + tag for tag in membership.tags))
        if coordinate_of(node) is not None:
            names.update(dict.fromkeys(_RTT + name for name in (node.id, node.description.hostname)))
    folded = {name.casefold() for name in names}
    for constraint in constraints:
        is_time = constraint.rtt_limit_s is not None
        if constraint.key not in names and not (is_time and constraint.key.casefold() in folded):
            near = difflib.get_close_matches(constraint.key, sorted(names), n=3) or sorted(names)[:10]
            raise InvalidSpec(
                "constraint", f"no node has {constraint.key}; give one of what nodes have, such as {', '.join(near)}"
            )


def _canonical(key: str) -> str:
    lower = key.lower()
    for prefix in (*_NAMED, _RTT):
        if lower.startswith(prefix) and len(key) > len(prefix):
            return prefix + key[len(prefix) :]
    return lower


def _ip_accepts(wanted: Sequence[str], actual: str, equal: bool) -> bool:
    try:
        networks = [ipaddress.ip_network(text, strict=False) for text in wanted]
    except ValueError:
        return False  # malformed: no node matches, whichever the operator
    address = _host_address(actual)
    return (address is not None and any(address in network for network in networks)) is equal


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


__all__ = [
    "Constraint",
    "check_properties",
    "coordinate_of",
    "matcher",
    "matches",
    "node_property",
    "parse",
    "parse_all",
    "split",
]
