"""What `--help` of a daemon says: a flag for each setting, under headings, with unit, sentence and default."""

from __future__ import annotations

import argparse
import typing
from typing import Any

import msgspec

from beeyard.runtime.settings_declared import Setting, leaves, plain, toml_value

# By the last word of a setting's name: the unit of its number.
UNITS = {"s": "SECONDS", "mib": "MIB", "port": "PORT", "cpu": "CORES"}
SHORT = {"SECONDS": " s", "MIB": " MiB"}
# What else a name says of its value, by a word of it; the first that is there counts.
KINDS = {
    "token": "TOKEN",
    "url": "URL",
    "dir": "DIRECTORY",
    "directory": "DIRECTORY",
    "file": "FILE",
    "socket": "SOCKET",
    "listen": "HOST:PORT",
    "name": "NAME",
}


def add_flags(parser: argparse.ArgumentParser, kind: type[msgspec.Struct]) -> None:
    """Give a parser one flag for each setting of a configuration Struct; the values are kept as text."""
    group: Any = parser
    for setting in leaves(kind):
        if setting.group:
            group = parser.add_argument_group(setting.group)
        group.add_argument(
            setting.flag, dest=setting.name, metavar=value_form(setting), help=help_of(setting).replace("%", "%%")
        )


def value_form(setting: Setting) -> str:
    """What stands for the value in the help: its unit, its choices or its kind."""
    kind, _ = plain(setting.type)
    origin = typing.get_origin(kind)
    words = setting.path[-1].split("_")
    if origin is typing.Literal:
        return "|".join(str(choice) for choice in typing.get_args(kind))
    if kind is bool:
        return "true|false"
    if origin is tuple:
        return "X,X,..."
    if kind in (int, float):
        return next((UNITS[word] for word in reversed(words) if word in UNITS), "NUMBER")
    return next((KINDS[word] for word in reversed(words) if word in KINDS), "TEXT")


def help_of(setting: Setting) -> str:
    """A setting's sentence and its default; marks of the documents are left out."""
    default = setting.default
    if default in (msgspec.NODEFAULT, "", ()):
        return setting.about.replace("`", "")
    if isinstance(default, tuple):
        shown = ",".join(default)
    elif isinstance(default, bool | str):
        shown = toml_value(default).strip('"')
    else:
        shown = f"{default:g}{SHORT.get(value_form(setting), '')}"
    return f"{setting.about.replace('`', '')} (default {shown})"


__all__ = ["add_flags", "help_of", "value_form"]
