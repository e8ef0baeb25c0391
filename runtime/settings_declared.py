"""What a setting is: the fields of a configuration Struct with what is said of them, read by all that shows or sets them.

A field says what it is for in its `Annotated` type, `about("…")`: that sentence is the help of its flag and begins its row in
docs/configuration.md. What `secret` marks is never shown, what `reloadable` marks can change while the daemon runs.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Iterator
from typing import Any

import msgspec


def about(sentence: str, *, group: str = "") -> msgspec.Meta:
    """What a field is for, in its `Annotated` type.

    Args:
        sentence: one line as in a list, lower case and without a full stop; what an empty value means is part of it.
        group: the heading, in the help of a command, of this setting and all that follow it up to the next heading.
    """
    return msgspec.Meta(extra={"about": sentence, "group": group} if group else {"about": sentence})


def secret() -> msgspec.Meta:
    """Mark for a field's `Annotated` type: its value is never shown."""
    return msgspec.Meta(extra={"secret": True})


def reloadable() -> msgspec.Meta:
    """Mark for a field's `Annotated` type: a reload changes it, the daemon runs on."""
    return msgspec.Meta(extra={"reload": True})


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One leaf of a configuration Struct."""

    path: tuple[str, ...]
    type: Any
    default: Any  # msgspec.NODEFAULT: it must be given
    secret: bool
    reloadable: bool
    about: str  # what it is for, one line
    group: str  # the heading that begins with it; "": it belongs to the one before

    @property
    def name(self) -> str:
        """As in the file, with its tables: "hooks.timeout_s"."""
        return ".".join(self.path)

    @property
    def flag(self) -> str:
        """On the command line: "--hooks-timeout-s"."""
        return "--" + "-".join(self.path).replace("_", "-")

    def variable(self, prefix: str) -> str:
        """In the environment: "BEEYARD_AGENT_HOOKS_TIMEOUT_S"."""
        return prefix + "_".join(self.path).upper()


def leaves(kind: type[msgspec.Struct], path: tuple[str, ...] = ()) -> Iterator[Setting]:
    """Every setting of a configuration Struct, in its order."""
    for field in msgspec.structs.fields(kind):
        inner, said = plain(field.type)
        here = (*path, field.encode_name)
        if is_struct(inner):
            yield from leaves(inner, here)
            continue
        default = field.default
        if default is msgspec.NODEFAULT and field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        yield Setting(
            path=here,
            type=field.type,
            default=default,
            secret="secret" in said,
            reloadable="reload" in said,
            about=said.get("about", ""),
            group=said.get("group", ""),
        )


def value_of(config: msgspec.Struct, setting: Setting) -> Any:
    """A setting's value in a configuration."""
    value: Any = config
    for name in setting.path:
        value = getattr(value, name)
    return value


def described(kind: Any) -> str:
    """What a value of a type looks like, for a person."""
    kind, _ = plain(kind)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return "one of " + ", ".join(str(argument) for argument in arguments)
    if origin in (tuple, list, frozenset, set):
        return "a list of " + described(arguments[0]).removeprefix("a ").replace("text", "texts")
    if origin is dict:
        return "a table"
    if is_struct(kind):
        return "a table with " + ", ".join(field.encode_name for field in msgspec.structs.fields(kind))
    names = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
    return names.get(kind, "a value of another kind")


def toml_value(value: Any) -> str:
    """A value as a TOML file has it."""
    value = msgspec.to_builtins(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{msgspec.json.encode(k).decode()} = {toml_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)  # inf and nan, which JSON does not have
    return msgspec.json.encode(value).decode()


def plain(kind: Any) -> tuple[Any, dict[str, Any]]:
    """A type without its annotations, and what ours among them say."""
    if typing.get_origin(kind) is not typing.Annotated:
        return kind, {}
    inner, *notes = typing.get_args(kind)
    said: dict[str, Any] = {}
    for note in notes:
        if isinstance(note, msgspec.Meta) and note.extra:
            said |= note.extra
    return inner, said


def is_struct(kind: Any) -> bool:
    """Whether a plain type is a table of settings."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


__all__ = [
    "Setting",
    "about",
    "described",
    "is_struct",
    "leaves",
    "plain",
    "reloadable",
    "secret",
    "toml_value",
    "value_of",
]
