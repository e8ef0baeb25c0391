"""What a node tells of foreign listeners: what lasts, and what a task met."""

from __future__ import annotations

from beeyard.agent.listening import PORTS_MAX, Listeners
from beeyard.core.model import HostPort
from beeyard.runtime.fake_firewall import FakeFirewall

SSH, WEB, DNS = HostPort(port=22), HostPort(port=80), HostPort(protocol="udp", port=53)


async def test_only_what_lasts_is_told_and_what_was_told_goes_when_it_stays_away() -> None:
    host = FakeFirewall()
    listeners = Listeners(host, lambda: ())
    looks = [{SSH}, {SSH, WEB}, {SSH}, {SSH, WEB}, {SSH, WEB}, {WEB}, {SSH, WEB}, {WEB}, {WEB}]
    told = []
    for look in looks:
        host.foreign = dict.fromkeys(look, "somebody")
        told.append(await listeners.look())
    assert told == [(SSH,), (SSH,), (SSH,), (SSH,), (SSH, WEB), (SSH, WEB), (SSH, WEB), (SSH, WEB), (WEB,)]


async def test_ports_of_the_nodes_own_tasks_do_not_count() -> None:
    host = FakeFirewall()
    host.foreign = {SSH: "sshd", WEB: "our task"}
    own = [WEB]
    listeners = Listeners(host, lambda: own)
    assert await listeners.look() == (SSH,)
    own.clear()
    assert await listeners.look() == (SSH,)
    assert await listeners.look() == (SSH, WEB)
    own.append(WEB)
    assert await listeners.look() == (SSH,)


async def test_what_a_task_met_is_told_with_the_next_look_and_asked_for_once() -> None:
    host = FakeFirewall()
    listeners = Listeners(host, lambda: ())
    asked = []
    listeners.on_met = lambda: asked.append("soon")
    assert await listeners.look() == ()
    host.foreign = {DNS: "unbound (pid 7)"}
    listeners.met(DNS)
    listeners.met(DNS)
    assert asked == ["soon"]
    assert await listeners.look() == (DNS,)
    host.foreign = {}
    assert await listeners.look() == (DNS,)
    assert await listeners.look() == ()


async def test_more_than_a_description_holds_is_left_out() -> None:
    host = FakeFirewall()
    host.foreign = {HostPort(port=port): "somebody" for port in range(1, PORTS_MAX + 100)}
    assert len(await Listeners(host, lambda: ()).look()) == PORTS_MAX
