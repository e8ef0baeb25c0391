"""Addresses: never twice in a segment, never a fixed one, all of the others, and exact counts without walking a range."""

from __future__ import annotations

import ipaddress
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beeyard.core.address_pool import AddressBook, PoolSpec, PoolUsage
from beeyard.core.errors import AddressUnavailable, NotFound, PoolExhausted
from beeyard.core.model import IPAMConfig
from tests.reference.address_oracle import AddressOracle
from tests.support.builders import an_ipam


def a_pool(
    *ipam: IPAMConfig, pool_id: str = "p1", segment: str = "default", reserved: tuple[str, ...] = ()
) -> PoolSpec:
    return PoolSpec(
        pool_id=pool_id, name=f"lan-{pool_id}", segment=segment, ipam=ipam or (an_ipam(),), reserved=reserved
    )


def a_book(*pools: PoolSpec, cool_down_s: float = 30.0) -> AddressBook:
    book = AddressBook(cool_down_s)
    for pool in pools:
        book.set_pool(pool)
    return book


def drain(book: AddressBook, pool_id: str = "p1", now_s: float = 0.0) -> list[str]:
    """Reserve until the pool is empty."""
    given_out: list[str] = []
    for number in itertools.count(len(list(book.grants()))):
        try:
            given_out += book.reserve(pool_id, f"{pool_id}-{now_s}-{number}", now_s)
        except PoolExhausted:
            return given_out
    raise AssertionError


@pytest.mark.parametrize("first", [64, 128])
def test_ip_range_inside_subnet_gives_out_all_its_64_addresses(first: int) -> None:
    book = a_book(a_pool(an_ipam("10.77.0.0/24", f"10.77.0.{first}/26", "10.77.0.1")))
    assert book.usage("p1", 0) == PoolUsage(total=64, used=0, cooling=0, free=64)
    assert drain(book) == [f"10.77.0.{host}/24" for host in range(first, first + 64)]
    assert book.usage("p1", 0) == PoolUsage(total=64, used=64, cooling=0, free=0)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (an_ipam("10.0.0.0/30"), ["10.0.0.1/30", "10.0.0.2/30"]),
        (an_ipam("10.0.0.0/30", gateway="10.0.0.1"), ["10.0.0.2/30"]),
        (an_ipam("10.0.0.0/29", aux={"printer": "10.0.0.3"}, ip_range="10.0.0.0/30"), ["10.0.0.1/29", "10.0.0.2/29"]),
        (an_ipam("10.0.0.0/29", ip_range="10.0.0.4/30"), ["10.0.0.4/29", "10.0.0.5/29", "10.0.0.6/29"]),
        (an_ipam("10.0.0.0/31"), ["10.0.0.0/31", "10.0.0.1/31"]),
        (an_ipam("10.0.0.7/32"), ["10.0.0.7/32"]),
        (an_ipam("fd00::/126"), ["fd00::1/126", "fd00::2/126", "fd00::3/126"]),
        (an_ipam("fd00::/127"), ["fd00::/127", "fd00::1/127"]),
        (
            an_ipam("fd00::/64", ip_range="fd00::fffc/126", gateway="fd00::fffd"),
            ["fd00::fffc/64", "fd00::fffe/64", "fd00::ffff/64"],
        ),
    ],
)
def test_network_broadcast_anycast_gateway_and_aux_are_never_given(config: IPAMConfig, expected: list[str]) -> None:
    book = a_book(a_pool(config))
    assert book.usage("p1", 0).free == len(expected)
    assert drain(book) == expected


def test_reserved_and_foreign_addresses_are_never_given_and_leave_the_total() -> None:
    book = a_book(a_pool(an_ipam("10.0.0.0/29"), reserved=("10.0.0.2",)))
    book.set_foreign("n1", ["10.0.0.3/24", "fe80::1%eth0/64", "127.0.0.1/8"])
    assert book.usage("p1", 0).total == 4
    assert drain(book) == ["10.0.0.1/29", "10.0.0.4/29", "10.0.0.5/29", "10.0.0.6/29"]
    book.set_foreign("n1", [])
    assert drain(book) == ["10.0.0.3/29"]


def test_foreign_address_of_two_nodes_stays_fixed_until_both_gave_it_up() -> None:
    book = a_book(a_pool(an_ipam("10.0.0.0/30")))
    book.set_foreign("n1", ["10.0.0.1"])
    book.set_foreign("n2", ["10.0.0.1"])
    book.set_foreign("n1", [])
    assert book.usage("p1", 0).free == 1
    book.set_foreign("n2", [])
    assert book.usage("p1", 0).free == 2


def test_overlapping_pools_of_one_segment_never_give_the_same_address() -> None:
    book = a_book(a_pool(an_ipam("10.0.0.0/28")), a_pool(an_ipam("10.0.0.0/28", "10.0.0.4/30"), pool_id="p2"))
    small, large = drain(book, "p2"), drain(book, "p1")
    assert len(small) == 4
    assert len(large) == 10
    assert not set(small) & set(large)
    assert book.usage("p1", 0) == PoolUsage(total=14, used=14, cooling=0, free=0)


def test_other_segment_gives_the_same_addresses_again() -> None:
    book = a_book(a_pool(an_ipam("10.0.0.0/30")), a_pool(an_ipam("10.0.0.0/30"), pool_id="p2", segment="site-b"))
    assert drain(book, "p1") == drain(book, "p2")


def test_gateway_of_one_pool_is_not_given_by_another_of_the_segment() -> None:
    book = a_book(a_pool(an_ipam("10.0.0.0/29", gateway="10.0.0.1")), a_pool(an_ipam("10.0.0.0/29"), pool_id="p2"))
    assert "10.0.0.1/29" not in drain(book, "p2")


def test_released_address_rests_and_next_fit_takes_it_last() -> None:
    book = a_book(a_pool(an_ipam("10.0.0.0/29")))
    book.reserve("p1", "a", 0)
    book.release("a", 100.0)
    assert book.usage("p1", 100.0) == PoolUsage(total=6, used=0, cooling=1, free=5)
    assert book.next_ready_s(100.0) == 130.0
    assert drain(book, now_s=129.9) == [f"10.0.0.{host}/29" for host in range(2, 7)]
    assert book.usage("p1", 130.0) == PoolUsage(total=6, used=5, cooling=0, free=1)
    assert book.next_ready_s(130.0) is None
    assert book.reserve("p1", "b", 130.0) == ("10.0.0.1/29",)


def test_release_twice_changes_nothing() -> None:
    book = a_book(a_pool(an_ipam("10.0.0.0/30")), cool_down_s=0)
    book.reserve("p1", "a", 0)
    book.release("a", 1)
    book.reserve("p1", "b", 1)
    book.reserve("p1", "c", 1)
    book.release("a", 2)
    book.release("never", 2)
    assert book.usage("p1", 2).used == 2


def test_two_families_are_given_together_or_not_at_all() -> None:
    book = a_book(a_pool(an_ipam("10.0.0.0/30"), an_ipam("fd00::/64")))
    assert book.reserve("p1", "a", 0) == ("10.0.0.1/30", "fd00::1/64")
    assert book.usage("p1", 0) == PoolUsage(total=2, used=1, cooling=0, free=1)
    book.reserve("p1", "b", 0)
    with pytest.raises(PoolExhausted) as caught:
        book.reserve("p1", "c", 0)
    assert caught.value.family == 4
    assert str(caught.value) == "no address left in pool lan-p1"
    assert book.addresses_of("c") == ()
    assert list(book.grants()) == ["a", "b"]
    book.set_pool(a_pool(an_ipam("fd00::/64")))
    assert book.reserve("p1", "d", 0) == ("fd00::3/64",)


def test_reserving_a_grant_again_gives_the_same() -> None:
    book = a_book(a_pool())
    assert book.reserve("p1", "a", 0) == book.reserve("p1", "a", 5)
    assert book.usage("p1", 5).used == 1


def test_unknown_pool_is_not_found() -> None:
    with pytest.raises(NotFound, match="pool p9 not found"):
        a_book().reserve("p9", "a", 0)
    with pytest.raises(NotFound):
        a_book().usage("p9", 0)


def test_restored_grant_is_not_given_again_and_the_search_goes_on_behind_it() -> None:
    book = a_book(a_pool(an_ipam("10.0.0.0/29")))
    book.restore("old", "p1", "default", ["10.0.0.3/29"])
    book.restore("old", "p1", "default", ["10.0.0.3/29"])
    assert drain(book) == [f"10.0.0.{host}/29" for host in (4, 5, 6, 1, 2)]


def test_restore_of_an_address_held_by_another_holds_nothing() -> None:
    book = a_book(a_pool(an_ipam("10.0.0.0/29"), an_ipam("fd00::/64")))
    book.restore("a", "p1", "default", ["10.0.0.3/29", "fd00::3/64"])
    with pytest.raises(ValueError, match=r"10\.0\.0\.3/29 of grant b is held by another grant"):
        book.restore("b", "p1", "default", ["10.0.0.3/29"])
    with pytest.raises(ValueError, match="already holds"):
        book.restore("a", "p1", "default", ["10.0.0.4/29"])
    with pytest.raises(ValueError):
        book.restore("c", "p1", "default", ["10.0.0.4/29", "fd00::3/64"])
    assert book.usage("p1", 0).used == 1
    book.restore("d", "p1", "site-b", ["10.0.0.3/29"])


def test_restore_before_the_pool_is_known_counts_once_it_is() -> None:
    book = a_book()
    book.restore("old", "p1", "default", ["10.0.0.1/30"])
    book.set_pool(a_pool(an_ipam("10.0.0.0/30")))
    assert drain(book) == ["10.0.0.2/30"]


def test_changed_pool_keeps_what_is_granted() -> None:
    book = a_book(a_pool(an_ipam("10.0.0.0/29")))
    assert book.reserve("p1", "a", 0) == ("10.0.0.1/29",)
    book.set_pool(a_pool(an_ipam("10.0.0.0/29", ip_range="10.0.0.4/30")))
    assert book.usage("p1", 0) == PoolUsage(total=3, used=0, cooling=0, free=3)
    assert book.addresses_of("a") == ("10.0.0.1/29",)
    book.set_pool(a_pool(an_ipam("10.0.0.0/29", gateway="10.0.0.1")))
    assert "10.0.0.1/29" not in drain(book)


def test_pool_that_moves_to_another_segment_takes_its_grants_along() -> None:
    book = a_book(a_pool(an_ipam("10.0.0.0/30")), cool_down_s=0)
    book.reserve("p1", "a", 0)
    book.set_pool(a_pool(an_ipam("10.0.0.0/30"), segment="site-b"))
    assert drain(book) == ["10.0.0.2/30"]
    book.release("a", 1)
    assert drain(book, now_s=1) == ["10.0.0.1/30"]


def test_removed_pool_leaves_its_grants_held_and_frees_its_gateway() -> None:
    book = a_book(a_pool(an_ipam("10.0.0.0/30", gateway="10.0.0.1")))
    book.reserve("p1", "a", 0)
    book.remove_pool("p1")
    book.remove_pool("p1")
    book.set_pool(a_pool(an_ipam("10.0.0.0/30"), pool_id="p2"))
    assert drain(book, "p2") == ["10.0.0.1/30"]


def test_ipv6_network_of_any_size_counts_in_big_integers() -> None:
    book = a_book(a_pool(an_ipam("fd00::/8")))
    assert book.usage("p1", 0).total == 2**120 - 1
    assert book.reserve("p1", "a", 0) == ("fd00::1/8",)


def test_pinned_address_is_given_by_name_alone_and_at_once() -> None:
    """Also out of its rest, for the slot's next task has the same MAC address; others get it when nobody pins it."""
    book = a_book(a_pool(an_ipam("10.0.0.0/29")))
    book.set_pins("s1", [("default", "10.0.0.1"), ("default", "10.0.0.2"), ("elsewhere", "10.0.0.3")])
    assert book.usage("p1", 0) == PoolUsage(total=6, used=2, cooling=0, free=4)
    assert book.reserve("p1", "a", 0) == ("10.0.0.3/29",)
    assert book.reserve_pinned("p1", "b", ["10.0.0.1"], 0, owner="s1") == ("10.0.0.1/29",)
    assert (book.holder("default", "10.0.0.1"), book.holder("default", "10.0.0.2")) == ("b", "")
    with pytest.raises(AddressUnavailable, match=r"address 10\.0\.0\.1, which another task holds, cannot be given"):
        book.reserve_pinned("p1", "c", ["10.0.0.1"], 0, owner="s1")
    book.release("b", 1)
    assert book.holder("default", "10.0.0.1") == ""
    assert book.reserve_pinned("p1", "c", ["10.0.0.1"], 1, owner="s1") == ("10.0.0.1/29",)
    book.set_pins("s1", [])
    assert drain(book) == ["10.0.0.4/29", "10.0.0.5/29", "10.0.0.6/29", "10.0.0.2/29"]


def test_an_address_that_is_pinned_while_it_rests_is_not_given_before_the_rest_is_over() -> None:
    """Neighbours may still know it at another MAC address: the slot that gets it by name did not have it before."""
    book = a_book(a_pool(an_ipam("10.0.0.0/29")))
    assert book.reserve("p1", "a", 0) == ("10.0.0.1/29",)
    book.release("a", 0)
    book.set_pins("s1", [("default", "10.0.0.1")])
    with pytest.raises(AddressUnavailable, match="rests: a task had it a moment ago"):
        book.reserve_pinned("p1", "b", ["10.0.0.1"], 1, owner="s1")
    ready_s = book.ready_s("default", "10.0.0.1")
    assert ready_s is not None
    assert book.reserve_pinned("p1", "b", ["10.0.0.1"], ready_s, owner="s1") == ("10.0.0.1/29",)
    # Its own slot need not wait; a stranger who has it meanwhile counts for everybody.
    book.release("b", ready_s)
    assert book.reserve_pinned("p1", "c", ["10.0.0.1"], ready_s, owner="s1") == ("10.0.0.1/29",)
    book.release("c", ready_s)
    book.set_aside("default", "10.0.0.1", ready_s + 100)
    with pytest.raises(AddressUnavailable, match="rests"):
        book.reserve_pinned("p1", "d", ["10.0.0.1"], ready_s + 99, owner="s1")


class CountingList(list[int]):
    """Counts how often an element is looked at."""

    looks = 0

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        CountingList.looks += 1
        return super().__getitem__(index)


def test_search_behind_a_long_run_of_used_addresses_is_a_bisection() -> None:
    book = a_book(a_pool(an_ipam("10.0.0.0/14")))
    used = range(int(ipaddress.ip_address("10.0.0.1")), int(ipaddress.ip_address("10.0.78.0")))
    space, span = book._space("default", 4), book._pools["p1"][1][0]
    space.hold(used)
    space._taken = CountingList(space._taken)
    assert space.find(span) == used[-1] + 1
    assert CountingList.looks < 40
    assert book.usage("p1", 0).free == 2**18 - 2 - len(used)


def test_many_addresses_that_thaw_at_once_are_counted_as_one_by_one() -> None:
    many, one_by_one = a_book(a_pool(an_ipam("10.0.0.0/20"))), a_book(a_pool(an_ipam("10.0.0.0/20")))
    for book in (many, one_by_one):
        for number in range(2000):
            book.reserve("p1", f"g{number}", 0)
        for number in range(0, 2000, 2):
            book.release(f"g{number}", float(number % 4))
    assert many.usage("p1", 31) == PoolUsage(total=4094, used=1000, cooling=500, free=2594)
    for now_s in (30, 31, 32):
        one_by_one.usage("p1", now_s)
    assert many.usage("p1", 32) == one_by_one.usage("p1", 32) == PoolUsage(total=4094, used=1000, cooling=0, free=3094)
    assert drain(many, now_s=40) == drain(one_by_one, now_s=40)
    assert many.usage("p1", 40).free == 0


_V4 = ("10.0.0.0/28", "10.0.0.0/29", "10.0.0.8/29", "10.0.0.4/30", "10.0.0.6/31", "10.0.0.9/32")
_PINS = ("10.0.0.3", "10.0.0.6", "10.0.0.9", "10.0.0.10", "fd00::3", "fd00::9")
_V6 = ("fd00::/124", "fd00::/125", "fd00::8/126", "fd00::4/127")


@st.composite
def ipam_configs(draw: st.DrawFn, subnets: tuple[str, ...]) -> IPAMConfig:
    subnet = draw(st.sampled_from(subnets))
    inside = [s for s in subnets if ipaddress.ip_network(s).subnet_of(ipaddress.ip_network(subnet))]  # type: ignore[arg-type]
    hosts = [str(host) for host in ipaddress.ip_network(subnet)]
    return IPAMConfig(
        subnet=subnet,
        ip_range=draw(st.sampled_from(["", *inside])),
        gateway=draw(st.sampled_from(["", *hosts])),
        aux_addresses={"a": draw(st.sampled_from(hosts))} if draw(st.booleans()) else {},
    )


@st.composite
def pool_specs(draw: st.DrawFn, pool_id: str) -> PoolSpec:
    families = draw(st.sampled_from(["4", "6", "46", "64"]))
    drawn = {"4": draw(ipam_configs(_V4)), "6": draw(ipam_configs(_V6))}
    return PoolSpec(
        pool_id=pool_id,
        name=pool_id,
        segment=draw(st.sampled_from(["default", "b"])),
        ipam=tuple(drawn[family] for family in families),
        reserved=tuple(draw(st.sets(st.sampled_from(["10.0.0.2", "fd00::2", "10.0.0.11"]), max_size=2))),
    )


@pytest.mark.parametrize("rebuild_min", [500, 1])
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_history_gives_the_same_as_walking_every_range(rebuild_min: int, data: st.DataObject) -> None:
    """Whatever is reserved, released, added as foreign and how time passes: the book agrees with the walking oracle."""
    book, oracle = AddressBook(10.0, rebuild_min=rebuild_min), AddressOracle(10.0)
    pool_ids = ["p1", "p2", "p3"][: data.draw(st.integers(1, 3))]
    for pool_id in pool_ids:
        spec = data.draw(pool_specs(pool_id))
        book.set_pool(spec)
        oracle.pools[pool_id] = spec
    now_s, number = 0.0, 0
    for _ in range(data.draw(st.integers(1, 25))):
        action = data.draw(
            st.sampled_from(["reserve", "reserve", "reserve", "release", "wait", "foreign", "pins", "by name"])
        )
        if action == "reserve":
            pool_id, number = data.draw(st.sampled_from(pool_ids)), number + 1
            expected = oracle.reserve(pool_id, f"g{number}", now_s)
            try:
                actual = book.reserve(pool_id, f"g{number}", now_s)
            except PoolExhausted:
                actual = None
            assert expected == actual
        elif action == "release" and oracle.held:
            grant_id = data.draw(st.sampled_from(list(oracle.held)))
            oracle.release(grant_id, now_s)
            book.release(grant_id, now_s)
        elif action == "wait":
            now_s += data.draw(st.sampled_from([0.5, 4.0, 11.0]))
        elif action == "pins":
            owner = data.draw(st.sampled_from(["s1", "s2"]))
            pins = data.draw(st.lists(st.tuples(st.sampled_from(["default", "b"]), st.sampled_from(_PINS)), max_size=3))
            oracle.pins[owner] = [(segment, ipaddress.ip_address(text)) for segment, text in pins]
            book.set_pins(owner, pins)
        elif action == "by name":
            pool_id, number = data.draw(st.sampled_from(pool_ids)), number + 1
            subnets = [ipaddress.ip_network(config.subnet) for config in oracle.pools[pool_id].ipam]
            inside = [pin for pin in _PINS if any(ipaddress.ip_address(pin) in subnet for subnet in subnets)]
            drawn = data.draw(st.lists(st.sampled_from(inside), max_size=2)) if inside else []
            names = list({ipaddress.ip_address(pin).version: pin for pin in drawn}.values())
            owner = data.draw(st.sampled_from(["s1", "s2"]))
            asked = [ipaddress.ip_address(n) for n in names]
            expected = oracle.reserve_pinned(pool_id, f"g{number}", asked, now_s, owner)
            try:
                actual = book.reserve_pinned(pool_id, f"g{number}", names, now_s, owner=owner)
            except (PoolExhausted, AddressUnavailable):
                actual = None
            assert expected == actual
            segment = oracle.pools[pool_id].segment
            for name in names:
                holders = [
                    g for g, (s, held) in oracle.held.items() if s == segment and ipaddress.ip_address(name) in held
                ]
                assert [h for h in [book.holder(segment, name)] if h] == holders
        elif action == "foreign":
            owner = data.draw(st.sampled_from(["n1", "n2"]))
            foreign = data.draw(st.lists(st.sampled_from(["10.0.0.1", "10.0.0.5", "fd00::1", "fd00::9"]), max_size=3))
            oracle.foreign[owner] = [ipaddress.ip_address(text) for text in foreign]
            book.set_foreign(owner, foreign)
        for pool_id in pool_ids:
            assert oracle.usage(pool_id, now_s) == book.usage(pool_id, now_s)
