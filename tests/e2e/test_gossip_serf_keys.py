"""Real Serf agents and members of ours in one encrypted cluster, through a rotation of its key."""

from __future__ import annotations

import base64

import pytest

from beeyard.core.errors import PeerError
from beeyard.discovery.gossip.message import Address
from tests.support.mixed_cluster import mixed_cluster

KEY, NEW_KEY = b"0123456789abcdef0123456789abcdef", b"fedcba9876543210fedcba9876543210"
ALL_ALIVE = {"o1": "alive", "o2": "alive", "s1": "alive", "s2": "alive"}


async def test_an_encrypted_mixed_cluster() -> None:
    """Joins both ways, events, each step of a rotation begun by either kind, and nobody without the key gets in."""
    old, new = (base64.b64encode(key).decode() for key in (KEY, NEW_KEY))
    async with mixed_cluster("127.74.0") as cluster:
        s1 = await cluster.start_real("s1", key=old)
        s2 = await cluster.start_real("s2", key=old)
        o1 = await cluster.start_ours("o1", keys=[KEY])
        o2 = await cluster.start_ours("o2", keys=[KEY])
        for name, other in (("o1", "s1"), ("s2", "o1"), ("o2", "s2")):
            await cluster.join(name, other)
        await cluster.agree(**ALL_ALIVE)

        plain = await cluster.start_ours("plain")
        host, _, port = cluster.address("s1").rpartition(":")
        with pytest.raises(PeerError):
            await plain.join([Address(host, int(port))])
        cluster.kill("plain")

        installed = await o1.install_key(NEW_KEY)
        assert (installed.n_good, installed.n_members) == (4, 4), installed
        used = await s1.keys("use-key", new)
        assert (used["NumErr"], used["NumResp"]) == (0, 4), used
        assert {tuple(node.keyring.keys) for node in (o1, o2)} == {(NEW_KEY, KEY)}
        removed = await o2.remove_key(KEY)
        assert (removed.n_good, removed.n_members) == (4, 4), removed
        listed = await s2.keys("list-keys")
        assert listed["Keys"] == {new: 4}
        assert (await o1.list_keys()).keys == {new: 4}

        await s2.event("deploy")
        o2.send_event("restart", coalesce=False)
        await cluster.all_see("event", "deploy")
        await cluster.all_see("event", "restart")
        late = await cluster.start_ours("o3", keys=[NEW_KEY])
        await cluster.join("o3", "s2")
        await cluster.agree(**ALL_ALIVE, o3="alive")
        await late.leave()
        cluster.kill("o3")
        await cluster.agree(**ALL_ALIVE, o3="left")
        assert cluster.seen_kinds("failed") == []
