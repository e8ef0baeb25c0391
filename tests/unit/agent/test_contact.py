"""A lease never lasts longer than the manager thinks."""

from __future__ import annotations

import pytest
import trio

from beeyard.agent.contact import Contact, Lease, LeasePassed


class Shim:
    """The one call of a controller that leases make."""

    def __init__(self) -> None:
        self.renewed: list[tuple[float, float]] = []  # (when, for how long)

    async def renew_lease(self, remaining_s: float) -> None:
        await trio.lowlevel.checkpoint()
        self.renewed.append((trio.current_time(), remaining_s))

    @property
    def until_s(self) -> float:
        return sum(self.renewed[-1])


def confirmed_now() -> Contact:
    contact = Contact()
    contact.confirm(trio.current_time())
    return contact


async def test_a_lease_counts_from_when_the_confirmed_message_was_sent(autojump_clock):
    contact = confirmed_now()
    sent_at_s = trio.current_time()
    await trio.sleep(7)
    shim = Shim()
    await Lease(contact, 60.0).extend(shim)
    assert shim.renewed[0][1] == pytest.approx(53.0)
    assert shim.until_s == pytest.approx(sent_at_s + 60.0)


async def test_contact_never_goes_backwards(autojump_clock):
    contact = confirmed_now()
    at_s = contact.confirmed_at_s
    contact.confirm(at_s - 5)
    assert contact.confirmed_at_s == at_s


async def test_nothing_but_confirmed_contact_extends(autojump_clock):
    contact = confirmed_now()
    shim, lease = Shim(), Lease(contact, 60.0)
    await lease.extend(shim)
    until_s = shim.until_s
    await trio.sleep(30)
    await lease.extend(shim)
    assert shim.until_s == until_s


async def test_a_lease_that_has_passed_does_not_come_back(autojump_clock):
    contact = confirmed_now()
    shim, lease = Shim(), Lease(contact, 60.0)
    await lease.extend(shim)
    await trio.sleep(61)
    assert lease.has_passed
    contact.confirm(trio.current_time())
    await lease.extend(shim)
    assert len(shim.renewed) == 1
    with pytest.raises(LeasePassed, match="no contact with a manager for longer than the lease of 60 s"):
        await lease.guard(trio.lowlevel.checkpoint)


async def test_without_any_contact_there_is_no_lease(autojump_clock):
    shim, lease = Shim(), Lease(Contact(), 60.0)
    await lease.extend(shim)
    assert shim.renewed == []
    with pytest.raises(LeasePassed):
        await lease.guard(trio.lowlevel.checkpoint)


async def test_a_long_lease_is_not_written_at_every_heartbeat(autojump_clock):
    contact = confirmed_now()
    shim, lease = Shim(), Lease(contact, 86400.0)
    for _ in range(400):  # 2,000 s
        await lease.extend(shim)
        await trio.sleep(5)
        contact.confirm(trio.current_time())
    assert len(shim.renewed) == 3


async def test_a_link_that_is_not_made_when_the_lease_ends_is_not_made_at_all(autojump_clock):
    lease = Lease(confirmed_now(), 60.0)
    await lease.extend(Shim())
    made: list[str] = []

    async def make_link() -> None:
        await trio.sleep(90)
        made.append("link")

    with pytest.raises(LeasePassed):
        await lease.guard(make_link)
    assert made == []


async def test_a_link_that_came_up_too_late_is_an_error(autojump_clock):
    """The machine stood still while the link was made."""
    lease = Lease(confirmed_now(), 60.0)
    await lease.extend(Shim())

    async def make_link() -> None:
        await trio.lowlevel.checkpoint()
        autojump_clock.jump(90)

    with pytest.raises(LeasePassed):
        await lease.guard(make_link)


async def test_a_lease_on_which_nothing_hangs_is_left_as_the_shim_began_it(autojump_clock):
    """One word less with the shim of each task without grants; it is extended once that makes it longer all the same."""
    contact = confirmed_now()
    await trio.sleep(7)
    shim, lease = Shim(), Lease(contact, 60.0, binds=False)
    await lease.extend(shim)
    assert shim.renewed == []
    await trio.sleep(8)
    contact.confirm(trio.current_time())
    await lease.extend(shim)
    assert shim.renewed[0][1] == pytest.approx(60.0)
