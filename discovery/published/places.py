"""From a discovery URL to what is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from beeyard.discovery.published.backend import Backend
from beeyard.discovery.published.consul import ConsulBackend
from beeyard.discovery.published.etcd import EtcdBackend
from beeyard.discovery.published.file import FileBackend
from beeyard.discovery.published.static import StaticBackend
from beeyard.discovery.published.token import TokenBackend
from beeyard.discovery.published.trust import AdvisingHttp
from beeyard.discovery.published.url import DiscoveryUrl
from beeyard.discovery.published.zookeeper import ZooKeeperBackend
from beeyard.runtime.host import Files
from beeyard.runtime.host_lists import ClientTls, HttpClient, ListServers

# Of a lease, and of the session with ZooKeeper, which by default gives no more than 40 s. Shorter: a manager that died is
# noticed sooner, and one that is only slow is taken for dead.
TTL_S = 30.0


class Ports(Protocol):
    """The part of `Host` with which lists are reached."""

    @property
    def files(self) -> Files: ...

    @property
    def lists(self) -> ListServers: ...

    def wall_now_s(self) -> float: ...


def open_backend(url: DiscoveryUrl, ports: Ports, *, ttl_s: float = TTL_S) -> Backend:
    """What is at a discovery URL. Nothing is asked yet.

    Raises:
        HostError: files of the TLS cannot be read.
    """
    tls = None
    if url.is_tls:
        tls = ClientTls(ca_file=url.ca_file, certificate_file=url.certificate_file, key_file=url.key_file)

    def http() -> HttpClient:
        return AdvisingHttp(url, ports.lists.http(tls))

    make: dict[str, Callable[[], Backend]] = {
        "etcd": lambda: EtcdBackend(url, http()),
        "consul": lambda: ConsulBackend(url, http()),
        "token": lambda: TokenBackend(url, http()),
        "zk": lambda: ZooKeeperBackend(url, ports.lists.zookeeper(url.servers, ttl_s, tls)),
        "file": lambda: FileBackend(url.path, ports.files, ports.lists, ports.wall_now_s),
        "nodes": lambda: StaticBackend(url.entries),
    }
    return make[url.scheme]()


__all__ = ["TTL_S", "Ports", "open_backend"]
