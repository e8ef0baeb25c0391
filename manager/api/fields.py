"""Reading Docker's JSON so that nothing a user sets is silently ignored.

Theory of operation
-------------------
A mapping reads the fields it knows from a `Fields` and ends with `finish`. What was not read by then must be empty, for Go
clients send many empty fields: a value is empty when it is null, false, zero, "" or holds nothing but such values. A field
that is set and not read is refused: by the name of Docker's flag where `finish` is told it, else by its own path.

As Go does, keys match in any case and null stands for empty. Unlike Go, numbers must be integers where integers are meant,
and a key that is given twice in different cases is refused: one of the two values would be ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beeyard.core.errors import InvalidSpec, Unsupported
from beeyard.manager.api.docker_value import DURATION_S_MAX

INT64_MAX = 2**63 - 1
# Of one map of labels, in names and values. They are part of every list of what carries them.
LABELS_BYTES_MAX = 256 << 10
NS_PER_S = 1_000_000_000


def is_empty(value: object) -> bool:
    """Whether a JSON value says nothing."""
    if isinstance(value, dict):
        return all(is_empty(item) for item in value.values())
    if isinstance(value, list):
        return all(is_empty(item) for item in value)
    return not value


class Fields:
    """One JSON object of a request, read field by field. Its getters raise `InvalidSpec` for a value of the wrong type."""

    def __init__(self, value: object, path: str = "") -> None:
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise InvalidSpec(path or "body", "it must be a JSON object")
        self.path = path
        self._left: dict[str, tuple[str, Any]] = {}
        for name, item in value.items():
            twin = self._left.get(name.casefold())
            if twin is not None:
                raise InvalidSpec(self.name_of(name)[:200], f"the same field is given as {twin[0]:.80} too")
            self._left[name.casefold()] = (name, item)

    def name_of(self, name: str) -> str:
        """The full path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def has(self, name: str) -> bool:
        """Whether a field that was not read yet is given and not null."""
        return self._left.get(name.casefold(), ("", None))[1] is not None

    def take(self, name: str) -> Any:
        """The raw value; None when it is not given."""
        return self._left.pop(name.casefold(), ("", None))[1]

    def text(self, name: str, default: str = "") -> str:
        """A string; `default` when it is not given or empty."""
        value = self.take(name)
        return self._checked_text(name, value) or default if value is not None else default

    def flag(self, name: str) -> bool:
        """A boolean, false when not given."""
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            raise InvalidSpec(self.name_of(name), "it must be true or false")
        return bool(value)

    def integer(
        self, name: str, default: int = 0, *, minimum: int = 0, maximum: int = INT64_MAX, flag: str = ""
    ) -> int:
        """An integer of 64 bits.

        Args:
            maximum: the most that anything can be done with.
            flag: what a user would call it, for the error.
        """
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidSpec(self.name_of(name), f"it must be an integer, not {value!r:.40}")
        if not minimum <= value <= maximum:
            field = f"{self.name_of(name)} ({flag})" if flag else self.name_of(name)
            most = "2^63-1" if maximum == INT64_MAX else maximum
            raise InvalidSpec(field, f"{str(value)[:40]} is not between {minimum} and {most}")
        return value

    def duration_s(self, name: str, default: float = 0.0) -> float:
        """A duration in seconds; Docker's are nanoseconds."""
        if not self.has(name):
            return default
        duration_ns = self.integer(name)
        if duration_ns > DURATION_S_MAX * NS_PER_S:
            hours = DURATION_S_MAX // 3600
            raise InvalidSpec(self.name_of(name), f"{duration_ns} ns is longer than ten years, {hours}h, the maximum")
        return duration_ns / NS_PER_S

    def ratio(self, name: str) -> float:
        """A number between 0 and 1."""
        value = self.take(name) or 0
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
            raise InvalidSpec(self.name_of(name), "it must be a number between 0 and 1")
        return float(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        return tuple(self._checked_text(name, item) for item in self._items(name))

    def labels(self, name: str) -> dict[str, str]:
        """A map of strings."""
        value = self.take(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise InvalidSpec(self.name_of(name), "it must be an object whose values are strings")
        labels = {
            self._checked_key(name, key): self._checked_text(name, "" if item is None else item)
            for key, item in value.items()
        }
        n_bytes = sum(len(text.encode()) for item in labels.items() for text in item)
        if n_bytes > LABELS_BYTES_MAX:
            raise InvalidSpec(self.name_of(name), f"it has {n_bytes} bytes, more than {LABELS_BYTES_MAX}")
        return labels

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """One of some words."""
        value = self.text(name, default)
        if value not in allowed:
            raise InvalidSpec(self.name_of(name), f"{value!r} is none of {', '.join(allowed)}")
        return value

    def nested(self, name: str) -> Fields:
        """An object below this one; one that is not given has no fields."""
        return Fields(self.take(name), self.name_of(name))

    def nested_list(self, name: str) -> list[Fields]:
        """A list of objects below this one."""
        return [Fields(item, f"{self.name_of(name)}[{i}]") for i, item in enumerate(self._items(name))]

    def finish(self, unsupported: Mapping[str, str] | None = None) -> None:
        """Refuse what is set and was not read.

        Args:
            unsupported: Docker's fields that Beeyard does not have, with what a user would call them.

        Raises:
            Unsupported: one of those is set.
            InvalidSpec: another one is.
        """
        named = {name.casefold(): feature for name, feature in (unsupported or {}).items()}
        for key, (name, value) in self._left.items():
            if is_empty(value):
                continue
            if key in named:
                raise Unsupported(named[key])
            raise InvalidSpec(self.name_of(name), "there is no such field")

    def _items(self, name: str) -> list[Any]:
        value = self.take(name)
        if value is not None and not isinstance(value, list):
            raise InvalidSpec(self.name_of(name), "it must be a list")
        return value or []

    def _checked_key(self, name: str, key: str) -> str:
        if not key.strip():
            raise InvalidSpec(self.name_of(name), "a name in it is empty")
        return self._checked_text(name, key)

    def _checked_text(self, name: str, value: object) -> str:
        if not isinstance(value, str):
            raise InvalidSpec(self.name_of(name), "it must be a string")
        if "\0" in value:
            raise InvalidSpec(self.name_of(name), "it must not contain a zero byte")
        return value


__all__ = ["NS_PER_S", "Fields", "is_empty"]
