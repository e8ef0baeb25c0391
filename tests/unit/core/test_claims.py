"""Which generic resources are whose (rows S44, S45 and S48 of SwarmKit's scenarios), and that no name is ever two tasks'."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beeyard.core.claims import ClaimBook, ResourcesTaken
from tests.support.builders import some_generic

OFFER = some_generic({"apple": 5, "orange": ["blue", "red", "green"]})


def test_s45_a_claim_takes_a_number_of_counted_and_names_of_named_ones() -> None:
    book = ClaimBook()
    claim = book.claim("n1", "g1", OFFER, [("apple", 2), ("orange", 1)])
    assert claim == some_generic({"apple": 2, "orange": ["blue"]})
    with pytest.raises(AssertionError, match="grant g1 has its claim"):
        book.claim("n1", "g1", OFFER, [("orange", 1)])


def test_s44_what_is_given_back_are_the_very_names() -> None:
    book = ClaimBook()
    book.claim("n1", "g1", OFFER, [("orange", 1)])
    book.claim("n1", "g2", OFFER, [("orange", 2)])
    book.release("g1")
    book.release("g1")
    book.release("unknown")
    assert book.claim("n1", "g3", OFFER, [("orange", 1)]) == some_generic({"orange": ["blue"]})
    book.release("g2")
    assert book.claim("n1", "g4", OFFER, [("orange", 2)]) == some_generic({"orange": ["red", "green"]})
    assert book.grants() == ["g3", "g4"]


def test_s48_several_kinds_are_claimed_at_once_or_not_at_all() -> None:
    book = ClaimBook()
    offer = some_generic({"apple": 5, "orange": ["blue", "red"], "pear": ["x"]})
    with pytest.raises(ResourcesTaken, match="2 pear asked, 1 free on this node"):
        book.claim("n1", "g1", offer, [("apple", 1), ("orange", 2), ("pear", 2)])
    assert book.grants() == []
    claim = book.claim("n1", "g1", offer, [("apple", 1), ("orange", 2), ("pear", 1)])
    assert claim == some_generic({"apple": 1, "orange": ["blue", "red"], "pear": ["x"]})


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (("apple", 6), "6 apple asked, 5 free on this node"),
        (("orange", 4), "4 orange asked, 3 free on this node"),
        (("kiwi", 1), "1 kiwi asked, 0 free on this node"),
    ],
)
def test_what_the_node_does_not_have_is_refused(asked: tuple[str, int], sentence: str) -> None:
    with pytest.raises(ResourcesTaken) as caught:
        ClaimBook().claim("n1", "g1", OFFER, [asked])
    assert str(caught.value) == sentence


def test_names_are_a_nodes_own_and_those_of_earlier_lives_are_held() -> None:
    book = ClaimBook()
    for _ in range(2):
        book.restore("n1", "g1", some_generic({"orange": ["blue"], "apple": 2}))
    assert book.claim("n1", "g2", OFFER, [("orange", 1)]) == some_generic({"orange": ["red"]})
    assert book.claim("n2", "g3", OFFER, [("orange", 1)]) == some_generic({"orange": ["blue"]})


def test_a_name_that_is_not_listed_any_more_is_not_given_again() -> None:
    book = ClaimBook()
    book.claim("n1", "g1", OFFER, [("orange", 3)])
    less = some_generic({"orange": ["red", "gold"]})
    assert book.claim("n1", "g2", less, [("orange", 1)]) == some_generic({"orange": ["gold"]})
    with pytest.raises(ResourcesTaken, match="1 orange asked, 0 free"):
        book.claim("n1", "g3", less, [("orange", 1)])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["claim", "release"]), st.sampled_from(["n1", "n2"]), st.integers(0, 7), st.integers(1, 3)
        ),
        max_size=40,
    )
)
def test_no_name_is_ever_claimed_twice_and_none_is_lost(steps: list[tuple[str, str, int, int]]) -> None:
    book, held = ClaimBook(), dict[str, tuple[str, tuple[str, ...]]]()
    for action, node_id, number, amount in steps:
        grant_id = f"g{number}"
        if action == "release":
            book.release(grant_id)
            held.pop(grant_id, None)
        elif grant_id not in held:
            taken = [name for of_node, names in held.values() if of_node == node_id for name in names]
            try:
                (claim,) = book.claim(node_id, grant_id, OFFER, [("orange", amount)])
            except ResourcesTaken as error:
                assert 3 - len(taken) == error.free < amount  # noqa: PT017 - what did not raise is checked below
                continue
            assert not set(claim.names) & set(taken)
            assert len(claim.names) == amount
            held[grant_id] = (node_id, claim.names)
    assert sorted(book.grants()) == sorted(held)
