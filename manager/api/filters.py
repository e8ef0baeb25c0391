"""The `filters` of list requests, in both forms: {"name": {"web": true}} as Go writes it and {"name": ["web"]}."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from beeyard.manager.api.call import BadRequest, decode_json

T = TypeVar("T")

# Whether an object passes one value of one key.
Test = Callable[[T, str], bool]


def parse_filters(text: str) -> dict[str, tuple[str, ...]]:
    """The values asked for by key; a key without values is dropped.

    Raises:
        BadRequest: "invalid filter", as Docker says.
    """
    if not text:
        return {}
    try:
        raw = decode_json(text)
    except BadRequest:
        raise BadRequest("invalid filter") from None
    if not isinstance(raw, dict):
        raise BadRequest("invalid filter")
    filters = {key: _values(value) for key, value in raw.items()}
    return {key: values for key, values in filters.items() if values}


def _values(raw: Any) -> tuple[str, ...]:
    if isinstance(raw, dict) and all(isinstance(chosen, bool) for chosen in raw.values()):
        return tuple(value for value, chosen in raw.items() if chosen)
    if isinstance(raw, list) and all(isinstance(value, str) for value in raw):
        return tuple(raw)
    raise BadRequest("invalid filter")


class FilterSet(Generic[T]):
    """The keys that one kind of object knows. Values of one key are alternatives, except where all must match."""

    def __init__(self, tests: Mapping[str, Test[T]], *, all_of: Iterable[str] = ("label", "node.label")) -> None:
        self._tests = tests
        self._all_of = frozenset(all_of)

    def check(self, filters: Mapping[str, Sequence[str]]) -> None:
        """Refuse a key that is not known.

        Raises:
            BadRequest
        """
        for key in filters:
            if key not in self._tests:
                raise BadRequest(f"invalid filter '{key}'")

    def apply(self, objects: Iterable[T], filters: Mapping[str, Sequence[str]]) -> list[T]:
        """The objects that pass every key, in their order.

        Raises:
            BadRequest: a key is not known.
        """
        self.check(filters)
        return [obj for obj in objects if all(self._passes(obj, key, filters[key]) for key in filters)]

    def _passes(self, obj: T, key: str, values: Sequence[str]) -> bool:
        test = self._tests[key]
        quantifier = all if key in self._all_of else any
        return quantifier(test(obj, value) for value in values)


def has_label(labels: Mapping[str, str], wanted: str) -> bool:
    """Whether "name" or "name=value" is among the labels."""
    name, equals, value = wanted.partition("=")
    return name in labels and (not equals or labels[name] == value)


__all__ = ["FilterSet", "has_label", "parse_filters"]
