"""Discovery URLs, by the rules of classic Swarm."""

from __future__ import annotations

import pytest

from beeyard.core.errors import InvalidSpec
from beeyard.discovery.published.trust import advice
from beeyard.discovery.published.url import DiscoveryUrl, parse_url


@pytest.mark.parametrize(
    ("text", "servers", "path", "lists_path"),
    [
        ("etcd://a:2379", ("a:2379",), "docker/swarm/nodes", "beeyard/docker/swarm/nodes"),
        ("etcd://a:2379/", ("a:2379",), "docker/swarm/nodes", "beeyard/docker/swarm/nodes"),
        ("etcd://a:1,b:2/x", ("a:1", "b:2"), "x/docker/swarm/nodes", "x/beeyard/docker/swarm/nodes"),
        ("zk://a, b:2/x//y/", ("a:2181", "b:2"), "x/y/docker/swarm/nodes", "x/y/beeyard/docker/swarm/nodes"),
        ("consul://[::1]:8500/x", ("[::1]:8500",), "x/docker/swarm/nodes", "x/beeyard/docker/swarm/nodes"),
        ("consul://[fe80::1]", ("[fe80::1]:8500",), "docker/swarm/nodes", "beeyard/docker/swarm/nodes"),
    ],
)
def test_a_store_has_servers_and_a_prefix(text: str, servers: tuple[str, ...], path: str, lists_path: str) -> None:
    """What follows the first slash is the prefix; ports have defaults."""
    url = parse_url(text)
    assert (url.servers, url.path, url.lists_path, url.is_tls) == (servers, path, lists_path, False)


def test_a_path_of_ones_own_takes_the_place_of_dockers() -> None:
    """`kv.path` replaces docker/swarm/nodes behind the prefix, and lists stand beside it."""
    url = parse_url("consul://a/racks", ["kv.path=/prod/nodes/"])
    assert (url.path, url.lists_path) == ("racks/prod/nodes", "racks/beeyard/prod/nodes")
    assert parse_url("etcd://a", {"kv.path": "x"}).lists_path == "beeyard/x"
    assert parse_url("etcd://a", {"kv.path": ""}).path == "docker/swarm/nodes"


def test_no_lists_stand_where_a_classic_manager_looks() -> None:
    """Classic managers take all values below their path for entries, in Consul all keys that begin like it."""
    for prefix in ("", "/x", "/docker/swarm/nodes", "/beeyard"):
        url = parse_url(f"consul://a{prefix}")
        assert not url.lists_path.startswith(url.path)


@pytest.mark.parametrize("text", ["a:1,b:2", "nodes://a:1,b:2", "nodes://a:1, b:2,a:1"])
def test_what_has_no_scheme_is_a_fixed_list(text: str) -> None:
    """`nodes://` may be left out."""
    url = parse_url(text)
    assert (url.scheme, url.entries, url.can_publish) == ("nodes", ("a:1", "b:2"), False)


def test_items_of_a_fixed_list_may_be_ranges() -> None:
    """One range an item, with both ends."""
    assert parse_url("10.0.0.[9:11]:2375,h:[1:2]").entries == (
        *("10.0.0.9:2375", "10.0.0.10:2375", "10.0.0.11:2375"),
        *("h:1", "h:2"),
    )


def test_a_file_is_named_whole_or_from_where_a_person_is() -> None:
    """Daemons have no place of their own."""
    assert parse_url("file:///etc/nodes").path == "/etc/nodes"
    assert parse_url("file://nodes", directory="/home/me").path == "/home/me/nodes"
    with pytest.raises(InvalidSpec, match="path must be absolute"):
        parse_url("file://nodes")


def test_a_token_is_the_last_part() -> None:
    """What is before it leads to the service, which is spoken to over TLS."""
    url = parse_url("token://m1:3380/abc")
    assert (url.servers, url.path, url.token, url.is_tls) == (("m1:3380",), "", "abc", True)
    url = parse_url("token://hub.example/v1/x/abc")
    assert (url.servers, url.path, url.token) == (("hub.example:443",), "v1/x", "abc")
    assert "abc" not in url.shown


def test_an_authority_or_a_certificate_means_tls() -> None:
    """The files are for who connects; certificate and key go together."""
    url = parse_url("etcd://a", ["kv.cacertfile=/ca=1.pem"])
    assert (url.is_tls, url.ca_file) == (True, "/ca=1.pem")
    url = parse_url("etcd://a", {"kv.certfile": "/c.pem", "kv.keyfile": "/k.pem"})
    assert (url.is_tls, url.certificate_file, url.key_file) == (True, "/c.pem", "/k.pem")


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        ("", [], "nothing follows nodes://"),
        ("etcd://", [], "nothing follows etcd://"),
        ("zk:///path", [], "server '' is not HOST:PORT"),
        ("http://a", [], "there is no discovery service 'http'; there are etcd://, zk://"),
        ("self://:3388", [], "self:// is how beeyard join finds peers"),
        ("etcd://a:70000", [], "server 'a:70000' is not HOST:PORT"),
        ("etcd://a,,b", [], "server '' is not HOST:PORT"),
        ("consul://a,b", [], "consul:// takes one server, and there are 2"),
        ("token://abc", [], "it is written token://HOST:PORT/TOKEN"),
        ("a", [], "'a': it is written HOST:PORT"),
        ("a:0", [], "port from 1 to 65535"),
        ("10.0.0.[5:2]:1", [], "the range ends below its beginning"),
        ("10.0.0.[0:999999999]:1", [], "more than 100000 numbers"),
        ("a:1,", [], "'': it is written HOST:PORT"),
        ("etcd://a", ["kv.path"], "'kv.path': it is written NAME=VALUE"),
        ("etcd://a", ["kv.paht=x"], "there is no 'kv.paht'; there are kv.path"),
        ("etcd://a", ["kv.certfile=/x"], "kv.certfile and kv.keyfile go together"),
    ],
)
def test_what_is_wrong_is_said_with_what_would_be_right(text: str, options: list[str], why: str) -> None:
    """Each refusal names the value."""
    with pytest.raises(InvalidSpec) as refused:
        parse_url(text, options)
    assert why in str(refused.value)


def test_options_of_stores_do_no_harm_elsewhere() -> None:
    """As in classic Swarm, which gives them to every service."""
    assert parse_url("file:///x", ["kv.path=y"]) == DiscoveryUrl(text="file:///x", scheme="file", path="/x")


def test_an_unknown_authority_is_asked_for_by_option() -> None:
    """Of a key-value store it is its operator's, of a token the cluster's that serves it."""
    assert "discovery-token" in advice(parse_url("token://m1:3380/abc"))
    tls = {"kv.certfile": "/c.pem", "kv.keyfile": "/k.pem"}
    assert advice(parse_url("etcd://m1:2379", tls)).endswith("(a manager's setting: discovery_options)")
    assert "names /ca.pem, which is not" in advice(parse_url("etcd://m1:2379", {**tls, "kv.cacertfile": "/ca.pem"}))
