"""Discovery URLs, by the rules of classic Swarm.

    etcd://HOST:PORT,HOST:PORT/PREFIX     zk://… the same        consul://HOST:PORT/PREFIX
    file:///PATH      nodes://HOST:PORT,HOST.[1:9]:PORT, also without a scheme        token://HOST:PORT/PATH/TOKEN

What is published stands below PREFIX/docker/swarm/nodes; the option kv.path names another path. kv.cacertfile, kv.certfile
and kv.keyfile are the TLS of a server. Source: docker/pkg/discovery discovery.go `parse`, kv/kv.go `Initialize` of classic
1.2.9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from beeyard.core.errors import InvalidSpec
from beeyard.discovery.published.entries import checked_entry, entries_of

DEFAULT_PATH = "docker/swarm/nodes"
# Under which each manager's list stands beside what classic Swarm wrote. In front: a path that only began like classic's own
# would be read by classic managers, which take every value below theirs for one entry.
OWN_PREFIX = "beeyard"
OPTIONS = ("kv.path", "kv.cacertfile", "kv.certfile", "kv.keyfile")
SCHEMES = ("etcd", "zk", "consul", "file", "nodes", "token")
DEFAULT_PORTS = {"etcd": 2379, "zk": 2181, "consul": 8500, "token": 443}

Scheme = Literal["etcd", "zk", "consul", "file", "nodes", "token"]


class DiscoveryUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A discovery URL, understood."""

    text: str  # as given, for messages
    scheme: Scheme
    servers: tuple[str, ...] = ()  # HOST:PORT of each
    # Of a file, or before /clusters/TOKEN; of key-value stores: the prefix and kv.path, without outer slashes.
    path: str = ""
    prefix: str = ""  # of key-value stores: the first part of `path`
    entries: tuple[str, ...] = ()  # of nodes://
    token: str = ""
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""

    @property
    def is_tls(self) -> bool:
        """Whether the server is spoken to over TLS."""
        return self.scheme == "token" or bool(self.ca_file or self.certificate_file)

    @property
    def can_publish(self) -> bool:
        """Whether managers can put their lists there."""
        return self.scheme != "nodes"

    @property
    def lists_path(self) -> str:
        """Where the lists of managers stand in a key-value store; those of classic Swarm stand at `path`."""
        below = self.path.removeprefix(self.prefix).strip("/")
        return "/".join(part for part in (self.prefix, OWN_PREFIX, below) if part)

    @property
    def shown(self) -> str:
        """For logs and replies: without the token, which lets anybody write."""
        return self.text.replace(self.token, "(token)") if self.token else self.text


def parse_url(text: str, options: Mapping[str, str] | Sequence[str] = (), *, directory: str = "") -> DiscoveryUrl:
    """Read a discovery URL.

    Args:
        options: as `--discovery-opt` takes them: by name, or each as "NAME=VALUE".
        directory: absolute; from where the path of a file:// may be relative. "": it must be absolute.

    Raises:
        InvalidSpec: it is not one; the sentence says what would be.
    """
    known = _options(options)
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "nodes", text
    if scheme in ("self", "serf"):
        raise _wrong(text, f"{scheme}:// is how beeyard join finds peers; a list is published at one of {_schemes()}")
    if scheme not in SCHEMES:
        raise _wrong(text, f"there is no discovery service {scheme!r}; there are {_schemes()}")
    if not rest.strip("/"):
        raise _wrong(text, f"nothing follows {scheme}://")
    if scheme == "nodes":
        return DiscoveryUrl(text=text, scheme="nodes", entries=_static(text, rest))
    if scheme == "file":
        path = rest if rest.startswith("/") else f"{directory}/{rest}" if directory else ""
        if not path:
            raise _wrong(text, "the path must be absolute, file:///etc/beeyard/nodes")
        return DiscoveryUrl(text=text, scheme="file", path=path)
    return _of_server(text, scheme, rest, known)


def _of_server(text: str, scheme: str, rest: str, options: Mapping[str, str]) -> DiscoveryUrl:
    hosts, _, path = rest.partition("/")
    path = "/".join(part for part in path.split("/") if part)
    token = ""
    if scheme == "token":
        path, _, token = path.rpartition("/")
        if not token:
            raise _wrong(text, "it is written token://HOST:PORT/TOKEN; the service at Docker's own hub has ended")
    servers = tuple(_server(text, scheme, host) for host in hosts.split(","))
    if len(servers) > 1 and scheme in ("consul", "token"):
        raise _wrong(text, f"{scheme}:// takes one server, and there are {len(servers)}")
    if bool(options.get("kv.certfile")) != bool(options.get("kv.keyfile")):
        raise InvalidSpec("discovery option", "kv.certfile and kv.keyfile go together: give both or none")
    prefix = path
    if scheme != "token":
        below = "/".join(part for part in (options.get("kv.path") or DEFAULT_PATH).split("/") if part)
        path = f"{prefix}/{below}" if prefix else below
    return DiscoveryUrl(
        text=text,
        scheme=scheme,  # type: ignore[arg-type] # looked up in SCHEMES
        servers=servers,
        path=path,
        prefix=prefix,
        token=token,
        ca_file=options.get("kv.cacertfile", ""),
        certificate_file=options.get("kv.certfile", ""),
        key_file=options.get("kv.keyfile", ""),
    )


def _server(text: str, scheme: str, host: str) -> str:
    host = host.strip()
    has_port = host.rpartition(":")[2].isdigit() and not host.endswith("]")
    try:
        return checked_entry(host if has_port else f"{host}:{DEFAULT_PORTS[scheme]}")
    except InvalidSpec:
        raise _wrong(text, f"server {host!r} is not HOST:PORT, with an IPv6 host in brackets") from None


def _static(text: str, rest: str) -> tuple[str, ...]:
    entries: list[str] = []
    for item in rest.split(","):
        try:
            entries += entries_of(item)
        except InvalidSpec as error:
            raise _wrong(text, error.reason) from None
    return tuple(dict.fromkeys(entries))


def _options(options: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    if isinstance(options, Mapping):
        given = dict(options)
    else:
        for option in options:
            if "=" not in option:
                raise InvalidSpec("discovery option", f"{option!r}: it is written NAME=VALUE")
        given = dict(option.split("=", 1) for option in options)
    for name in given:
        if name not in OPTIONS:
            raise InvalidSpec("discovery option", f"there is no {name!r}; there are {', '.join(OPTIONS)}")
    return given


def _schemes() -> str:
    return ", ".join(f"{scheme}://" for scheme in SCHEMES)


def _wrong(text: str, reason: str) -> InvalidSpec:
    return InvalidSpec("discovery URL", f"{text!r}: {reason}")


__all__ = ["DEFAULT_PATH", "OPTIONS", "OWN_PREFIX", "SCHEMES", "DiscoveryUrl", "Scheme", "parse_url"]
