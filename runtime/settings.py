"""A daemon's settings from flags, environment, file and defaults, in this order, for any configuration Struct.

A Struct's fields are the settings; a field that is itself a Struct is a table of the file, and its fields are settings of the
names `table.field`. One setting has one name in each place:

    file      [hooks]               timeout_s = 5
    variable  BEEYARD_AGENT_HOOKS_TIMEOUT_S=5
    flag      --hooks-timeout-s 5

A list is written with commas between its entries in a variable and a flag, and everything else that is no number, truth or
text as in the file. What a field says of itself: runtime/settings_declared.py.
"""

from __future__ import annotations

import difflib
import re
import tomllib
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from beeyard.core.errors import ClusterError
from beeyard.runtime.settings_declared import Setting, described, leaves, plain, toml_value, value_of

T = TypeVar("T", bound=msgspec.Struct)

DEFAULT = "default"


class SettingsError(ClusterError):
    """A setting cannot work. `source` is the file, flag or variable that it comes from."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(source, reason)
        self.source = source
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"


class Settings(Generic[T]):
    """A configuration and where each part of it comes from."""

    def __init__(self, config: T, sources: Mapping[str, str]) -> None:
        self.config = config
        self._sources = sources

    def source(self, name: str) -> str:
        """What set a setting: "/etc/beeyard/agent.toml: managers", "$BEEYARD_AGENT_MANAGERS", "--managers", or "default"."""
        return self._sources.get(name, DEFAULT)

    def fault(self, name: str, reason: str) -> SettingsError:
        """The error for a setting that is of the right type and cannot work all the same."""
        source = self.source(name)
        return SettingsError(name if source == DEFAULT else source, reason)

    def shown(self) -> str:
        """All settings as a file has them, each with its source; secrets are hidden."""
        return _shown(type(self.config), lambda setting: value_of(self.config, setting), self.source)


def resolve(
    kind: type[T],
    prefix: str,
    *,
    file: tuple[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> Settings[T]:
    """Put a configuration together.

    Args:
        prefix: of the variables, such as "BEEYARD_AGENT_".
        file: its path and its text.
        environment: all of it; what begins with the prefix counts.
        flags: by the setting's name, as given.

    Raises:
        SettingsError: says which source, which setting, which value and what would be right.
    """
    found = _Found(kind, prefix, file, environment or {}, flags or {})
    if found.faults:
        raise found.faults[0]
    try:
        return Settings(msgspec.convert(found.tree(), kind, strict=False), found.sources)
    except msgspec.ValidationError as error:
        raise SettingsError(file[0] if file else prefix, str(error)) from error


def shown_with_faults(
    kind: type[msgspec.Struct],
    prefix: str,
    *,
    file: tuple[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> tuple[str, list[SettingsError]]:
    """What `Settings.shown` gives, of all settings that are right, and what is wrong with the others; as `resolve`."""
    found = _Found(kind, prefix, file, environment or {}, flags or {})
    return _shown(kind, found.value, lambda name: found.sources.get(name, DEFAULT)), found.faults


class _Found:
    """What the sources say, and what is wrong with it, in the order in which the sources count."""

    def __init__(
        self,
        kind: type[msgspec.Struct],
        prefix: str,
        file: tuple[str, str] | None,
        environment: Mapping[str, str],
        flags: Mapping[str, str],
    ) -> None:
        self.sources: dict[str, str] = {}
        self.faults: list[SettingsError] = []
        self._known = {setting.name: setting for setting in leaves(kind)}
        self._values: dict[str, Any] = {}
        self._refused: dict[str, None] = {}
        if file is not None:
            self._take_file(*file)
        by_variable = {setting.variable(prefix): setting for setting in self._known.values()}
        for variable, text in environment.items():
            if variable in by_variable:
                self._take(by_variable[variable], _from_text(by_variable[variable], text), f"${variable}")
            elif variable.startswith(prefix):
                reason = f"this is not a setting{_nearest(variable, by_variable)}"
                self.faults.append(SettingsError(f"${variable}", reason))
        for name, text in flags.items():
            self._take(self._known[name], _from_text(self._known[name], text), self._known[name].flag)
        for setting in self._known.values():
            is_missing = setting.default is msgspec.NODEFAULT and setting.name not in self._values
            if is_missing and setting.name not in self._refused:
                self.faults.append(SettingsError(setting.name, f"it must be given, {described(setting.type)}"))

    def value(self, setting: Setting) -> Any:
        """What is in force of a setting; `msgspec.NODEFAULT` when it has to be given and is not."""
        return self._values.get(setting.name, setting.default)

    def tree(self) -> dict[str, Any]:
        """All that is given, in the form of the Struct."""
        tree: dict[str, Any] = {}
        for name, value in self._values.items():
            _put(tree, self._known[name], value)
        return tree

    def _take_file(self, path: str, text: str) -> None:
        try:
            parsed = _parsed(path, text)
        except SettingsError as fault:
            self.faults.append(fault)
            return
        for name, value in _flatten(parsed, self._known, path, self.faults):
            self._take(self._known[name], value, f"{path}: {name}")

    def _take(self, setting: Setting, value: Any, source: str) -> None:
        try:
            self._values[setting.name] = _checked(setting, value, source)
        except SettingsError as fault:
            self._refused[setting.name] = None
            self.faults.append(fault)
        else:
            self.sources[setting.name] = source


def _shown(kind: type[msgspec.Struct], value_for: Callable[[Setting], Any], source_of: Callable[[str], str]) -> str:
    lines: list[str] = []
    table: tuple[str, ...] = ()
    for setting in sorted(leaves(kind), key=lambda setting: len(setting.path)):
        if setting.path[:-1] != table:
            table = setting.path[:-1]
            lines.append(f"\n[{'.'.join(table)}]")
        value = value_for(setting)
        if value is msgspec.NODEFAULT:
            lines.append(f"# {setting.path[-1]} must be given")
            continue
        shown = '"(hidden)"' if setting.secret and value else toml_value(value)
        lines.append(f"{setting.path[-1]} = {shown}  # {source_of(setting.name)}")
    return "\n".join(lines) + "\n"


def changed(old: T, new: T) -> tuple[list[str], list[str]]:
    """Names of the settings that differ: those that a reload changes, and those that need a restart."""
    differ = [s for s in leaves(type(old)) if value_of(old, s) != value_of(new, s)]
    return [s.name for s in differ if s.reloadable], [s.name for s in differ if not s.reloadable]


def reloaded(old: T, new: T) -> T:
    """`old` with what a reload changes taken from `new`."""
    tree: dict[str, Any] = {}
    for setting in leaves(type(old)):
        _put(tree, setting, msgspec.to_builtins(value_of(new if setting.reloadable else old, setting)))
    return msgspec.convert(tree, type(old), strict=False)


def _parsed(path: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(path, f"this is not TOML: {str(error)[:1].lower()}{str(error)[1:]}") from error


def _flatten(
    tree: Mapping[str, Any],
    known: Mapping[str, Setting],
    path: str,
    faults: list[SettingsError],
    above: tuple[str, ...] = (),
) -> Iterator[tuple[str, Any]]:
    """Names and values of a parsed file; what is no setting is added to the faults."""
    tables = {".".join(s.path[:n]) for s in known.values() for n in range(1, len(s.path))}
    for key, value in tree.items():
        name = ".".join((*above, key))
        if name in known:
            yield name, value
        elif name in tables:
            if isinstance(value, Mapping):
                yield from _flatten(value, known, path, faults, (*above, key))
            else:
                reason = f"{toml_value(value)} is not right: it must be a table, [{name}]"
                faults.append(SettingsError(f"{path}: {name}", reason))
        else:
            reason = f"this is not a setting{_nearest(name, [*known, *tables])}"
            faults.append(SettingsError(f"{path}: {name}", reason))


def _nearest(name: str, names: Any) -> str:
    close = difflib.get_close_matches(name, sorted(names), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _checked(setting: Setting, value: Any, source: str) -> Any:
    """A value if it is of the setting's type. A whole number is a number too."""
    kind, _ = plain(setting.type)
    try:
        if isinstance(value, bool) and kind in (int, float):
            raise msgspec.ValidationError
        msgspec.convert(value, setting.type, strict=True)
    except msgspec.ValidationError as error:
        shown = "(hidden)" if setting.secret else toml_value(value)
        detail = f" ({error})" if re.search(r"[<>]=?|length|matching|multiple", str(error)) else ""
        raise SettingsError(source, f"{shown} is not right: it must be {described(setting.type)}{detail}") from error
    return value


def _from_text(setting: Setting, text: str) -> Any:
    """The value that a variable or a flag means; what cannot be one stays text and is refused by its type."""
    kind, _ = plain(setting.type)
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        kind = next(argument for argument in typing.get_args(kind) if argument is not type(None))
    origin = typing.get_origin(kind)
    if kind is str or origin is typing.Literal:
        return text
    is_list = origin in (tuple, list, frozenset, set)
    if is_list and not text.lstrip().startswith("["):
        entries = [entry.strip() for entry in text.split(",") if entry.strip()]
        return entries if typing.get_args(kind)[0] is str else _toml_or_text(f"[{text}]")
    return _toml_or_text(text)


def _toml_or_text(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return text


def _put(tree: dict[str, Any], setting: Setting, value: Any) -> None:
    for name in setting.path[:-1]:
        tree = tree.setdefault(name, {})
    tree[setting.path[-1]] = value


__all__ = ["DEFAULT", "Settings", "SettingsError", "changed", "reloaded", "resolve", "shown_with_faults"]
