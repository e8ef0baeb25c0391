"""Docker's API versions: which ones are spoken, and the optional /vN.NN in front of every path."""

from __future__ import annotations

import re

API_VERSION = "1.50"
API_VERSION_MIN = "1.24"
_PREFIX = re.compile(r"/v([0-9]+(?:\.[0-9]+)*)(?=/)")


def split_version(path: str) -> tuple[str, str]:
    """A path's version, "" when it names none, and the rest."""
    match = _PREFIX.match(path)
    return (match[1], path[match.end() :]) if match else ("", path)


def refusal_of(version: str) -> str:
    """Why a version is not spoken, in Docker's words; "" when it is."""
    asked = _numbers(version)
    if asked > _numbers(API_VERSION):
        return f"client version {version} is too new. Maximum supported API version is {API_VERSION}"
    if asked < _numbers(API_VERSION_MIN):
        return (
            f"client version {version} is too old. Minimum supported API version is {API_VERSION_MIN}, "
            "please upgrade your client to a newer version"
        )
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part[:9]) for part in version.split("."))


__all__ = ["API_VERSION", "API_VERSION_MIN", "refusal_of", "split_version"]
