"""What `beeyard.addresses` says, and what it gives to which slot."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beeyard.core.errors import InvalidSpec
from beeyard.core.pins import PINS_MAX, Pins, has_slot_macs, parse_pins, pins_of


def test_ranges_and_addresses_of_both_families_are_counted_through_in_their_order() -> None:
    pins = parse_pins("10.1.0.12, 10.1.0.10-10.1.0.11,fd00::10-fd00::12")
    assert [pins.of_slot(n) for n in (1, 2, 3)] == [
        ("10.1.0.12", "fd00::10"),
        ("10.1.0.10", "fd00::11"),
        ("10.1.0.11", "fd00::12"),
    ]
    assert (len(pins), pins.of_slot(0), pins.of_slot(4)) == (3, (), ())
    assert pins.all() == ["10.1.0.12", "10.1.0.10", "10.1.0.11", "fd00::10", "fd00::11", "fd00::12"]


def test_the_shorter_family_says_how_many_slots_there_are() -> None:
    assert len(parse_pins("10.1.0.10-10.1.0.14,fd00::1")) == 1
    assert len(pins_of({})) == 0
    assert pins_of({"beeyard.addresses": "10.1.0.10"}).of_slot(1) == ("10.1.0.10",)


def test_mac_label() -> None:
    assert has_slot_macs({"beeyard.mac": "per-slot"})
    assert not has_slot_macs({})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "'' is not an address or a range, such as 10.1.0.10-10.1.0.14"),
        ("10.1.0.10,", "'' is not an address or a range"),
        ("10.1.0", "'10.1.0' is not an address or a range"),
        ("10.1.0.10/24", "'10.1.0.10/24' is not an address or a range"),
        ("10.1.0.10-14", "'10.1.0.10-14' is not an address or a range"),
        ("10.1.0.14-10.1.0.10", "'10.1.0.14-10.1.0.10' ends before it begins"),
        ("10.1.0.10-fd00::1", "'10.1.0.10-fd00::1' begins in one family and ends in the other"),
        ("fe80::1%eth0", "'fe80::1%eth0' has a zone, which only addresses of one host have"),
        ("10.1.0.10,10.1.0.8-10.1.0.12", "10.1.0.10 is given twice"),
        ("fd00::-fd00::ffff:ffff", f"'fd00::-fd00::ffff:ffff' makes it more than {PINS_MAX} addresses"),
        ("10.0.0.0-10.0.39.15,10.1.0.1", f"'10.1.0.1' makes it more than {PINS_MAX} addresses"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, reason: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_pins(text)
    assert str(caught.value).startswith(f"invalid label beeyard.addresses: {reason}")


_NUMBERS = st.lists(st.integers(0, 60), unique=True, max_size=20)


@given(v4=_NUMBERS, v6=_NUMBERS, spaces=st.booleans())
def test_whatever_is_written_is_read_back_in_order(v4: list[int], v6: list[int], spaces: bool) -> None:
    """Lists of addresses, runs of them joined to ranges or not, mean the same addresses."""
    first = {4: ipaddress.ip_address("10.1.0.0"), 6: ipaddress.ip_address("fd00::")}
    wanted = {4: [str(first[4] + n) for n in v4], 6: [str(first[6] + n) for n in v6]}
    items: list[str] = []
    for family, numbers in ((6, v6), (4, v4)):
        for run in _runs(numbers):
            ends = [str(first[family] + n) for n in (run[0], run[-1])]
            items.append("-".join(ends) if len(run) > 1 else ends[0])
    if not items:
        return
    pins: Pins = parse_pins((", " if spaces else ",").join(items))
    assert pins.all() == wanted[4] + wanted[6]
    for slot in range(1, len(pins) + 1):
        assert list(pins.of_slot(slot)) == [wanted[family][slot - 1] for family in (4, 6) if wanted[family]]


def _runs(numbers: list[int]) -> list[list[int]]:
    """Neighbours that rise by one are one run."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] + 1 == number:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs
