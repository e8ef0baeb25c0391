"""Addresses of streams as text: "tcp://HOST:PORT", with IPv6 in brackets, or "unix:///PATH"."""

from __future__ import annotations

import dataclasses

from beeyard.core.errors import InvalidSpec


@dataclasses.dataclass(frozen=True)
class TcpAddress:
    """A host (name, IPv4 or IPv6 without brackets) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"tcp://[{self.host}]:{self.port}" if ":" in self.host else f"tcp://{self.host}:{self.port}"


@dataclasses.dataclass(frozen=True)
class UnixAddress:
    """A socket's absolute path."""

    path: str

    def __str__(self) -> str:
        return f"unix://{self.path}"


def parse_address(text: str) -> TcpAddress | UnixAddress:
    """Read an address.

    Raises:
        InvalidSpec: it is not one; the sentence says what would be.
    """
    if text.startswith("unix://"):
        path = text.removeprefix("unix://")
        if not path.startswith("/"):
            raise InvalidSpec("address", f"{text!r}: a unix socket is written unix:///PATH")
        return UnixAddress(path)
    host, colon, port = text.removeprefix("tcp://").rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    number = int(port) if port.isascii() and port.isdigit() else -1
    if (
        not text.startswith("tcp://")
        or not colon
        or not host.strip("[]")
        or (":" in host and not bracketed)
        or not 0 <= number <= 65535
    ):
        raise InvalidSpec("address", f"{text!r}: it is written tcp://HOST:PORT, an IPv6 host in brackets")
    return TcpAddress(host.strip("[]"), number)


def parse_datagram_address(text: str) -> TcpAddress:
    """Read "udp://HOST:PORT", an IPv6 host in brackets.

    Raises:
        InvalidSpec: it is not one; the sentence says what would be.
    """
    try:
        found = parse_address("tcp://" + text.removeprefix("udp://"))
    except InvalidSpec:
        found = None
    if not text.startswith("udp://") or not isinstance(found, TcpAddress):
        raise InvalidSpec("address", f"{text!r}: it is written udp://HOST:PORT, an IPv6 host in brackets")
    return found


__all__ = ["TcpAddress", "UnixAddress", "parse_address", "parse_datagram_address"]
