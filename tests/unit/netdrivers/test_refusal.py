"""Each error number that a kernel may give, and the sentence that a person reads."""

from __future__ import annotations

import errno
import ipaddress
import os

import pytest

from beeyard.netdrivers import refusal
from beeyard.netdrivers.codec import LinkInfo
from tests.support.grants import a_grant

_PARENT = LinkInfo(
    index=2,
    name="eth0",
    up=True,
    ethernet=True,
    loopback=False,
    mtu=1500,
    mac="02:00:00:00:00:02",
    kind="",
    parent=0,
    parent_elsewhere=False,
    master=0,
)
_PORT = LinkInfo(**{name: getattr(_PARENT, name) for name in _PARENT.__struct_fields__} | {"master": 5})


def _error(code: int, said: str = "", filename: str | None = None) -> OSError:
    return OSError(code, said or os.strerror(code), filename)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            refusal.of_namespace(_error(errno.EINVAL), "/run/x", "eth0"),
            "attach eth0: the network namespace /run/x is gone; the task has to start anew",
        ),
        (
            refusal.of_namespace(
                _error(errno.EROFS, filename="/proc/sys/net/ipv6/conf/default/accept_ra"), "n", "eth0"
            ),
            "attach eth0: /proc/sys/net/ipv6/conf/default/accept_ra cannot be written (Read-only file system); "
            "let the agent run as root with /proc/sys writable",
        ),
        (
            refusal.of_namespace(_error(errno.EMFILE), "n", "eth0"),
            "attach eth0: too many files are open on this host; raise LimitNOFILE of the agent",
        ),
        (
            refusal.of_namespace(_error(errno.EIO), "n", "eth0"),
            "attach eth0: the kernel said: Input/output error",
        ),
        (
            refusal.of_parent(_error(errno.ENOMEM), a_grant()),
            "use parent eth0: the kernel said: Cannot allocate memory",
        ),
        (
            refusal.of_creation(_error(errno.EBUSY), a_grant(), "eth0", _PORT),
            "use parent eth0: it belongs to a bridge or bond; use that as the parent, or take the interface out of it",
        ),
        (
            refusal.of_creation(_error(errno.ENODEV), a_grant(), "eth0", _PARENT),
            "use parent eth0: this host has no such interface; create it, "
            "or give pool lan-r1 another parent (-o parent=…)",
        ),
        (
            refusal.of_creation(_error(errno.EPERM), a_grant(), "eth0", _PARENT),
            "create eth0: the agent may not create links; run it as root",
        ),
        (
            refusal.of_creation(_error(errno.EINVAL, "no way"), a_grant(), "eth0", _PARENT),
            "create eth0: the kernel said: no way",
        ),
        (
            refusal.of_configuration(a_grant(), "eth0", FileNotFoundError(errno.ENOENT, "gone"), "raise"),
            "raise eth0: the task's network namespace is gone; the task has to start anew",
        ),
        (
            refusal.of_configuration(a_grant(), "eth0", _error(errno.ENODEV), "raise"),
            "raise eth0: the link vanished meanwhile; the task has to start anew",
        ),
        (
            refusal.of_configuration(a_grant(), "eth0", _error(errno.EOPNOTSUPP), "add address fd00::1/64 to"),
            "add address fd00::1/64 to eth0: IPv6 is switched off on this host; "
            "set net.ipv6.conf.default.disable_ipv6 = 0 or use an IPv4 pool",
        ),
        (
            refusal.of_configuration(a_grant(), "eth0", _error(errno.ENOBUFS), "raise"),
            "raise eth0: the kernel said: No buffer space available",
        ),
        (
            refusal.of_announcement(_error(errno.ENETDOWN), "eth0", ipaddress.ip_address("10.9.0.10")),
            "announce 10.9.0.10 from eth0: the kernel said: Network is down",
        ),
        (
            refusal.of_host(_error(errno.EPERM)),
            "list the links of this host: the kernel said: Operation not permitted",
        ),
    ],
)
def test_refusal_says_what_to_do(error, sentence):
    assert str(error) == sentence
