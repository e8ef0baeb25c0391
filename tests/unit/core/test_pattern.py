"""Patterns against Python's own, where both know the same language."""

from __future__ import annotations

import contextlib
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beeyard.core.errors import InvalidSpec
from beeyard.core.pattern import CHARACTERS_MAX, VALUE_CHARACTERS_MAX, Pattern, compile_pattern

pieces = st.recursive(
    st.sampled_from(
        ["a", "B", "c", "1", "_", "-", ".", r"\.", r"\d", r"\W", r"\s", "[ab]", "[^a]", "[a-c1]", "[-a]", r"[\d_]"]
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map("".join),
        inner.map(lambda p: f"({p})*"),
        inner.map(lambda p: f"({p})+"),
        inner.map(lambda p: f"({p})?"),
        st.tuples(inner, inner).map("|".join).map(lambda p: f"({p})"),
    ),
    max_leaves=8,
)


@given(text=pieces, values=st.lists(st.text("aAbBcC12_-. ", max_size=6), max_size=8))
def test_a_pattern_matches_what_python_matches(text: str, values: list[str]) -> None:
    pattern, twin = compile_pattern(text), re.compile(text, re.IGNORECASE | re.ASCII)
    assert [pattern.matches(value) for value in values] == [twin.fullmatch(value) is not None for value in values]


@given(st.text(string.punctuation + "adwsDWS19 ", max_size=20))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidSpec):
        assert Pattern(text).matches("ada19") in (True, False)


@pytest.mark.parametrize("text", ["(a+)+b", "(a|a)*b", "(a*)*b", "a?" * 100 + "b", "(((a*)*)*)*b"])
def test_what_keeps_others_busy_for_ever_is_answered(text: str) -> None:
    assert not compile_pattern(text).matches("a" * 500)
    assert compile_pattern(text).matches("aaab")


def test_signs_at_the_ends_and_lengths() -> None:
    assert Pattern("^r1$").matches("R1")
    assert not Pattern("^r1$").matches("r11")
    assert Pattern(r"r1\$").matches("r1$")
    assert Pattern("").matches("")
    assert Pattern("a*").matches("a" * VALUE_CHARACTERS_MAX)
    assert not Pattern("a*").matches("a" * (VALUE_CHARACTERS_MAX + 1))
    assert not Pattern("a" * CHARACTERS_MAX).matches("a")
    with pytest.raises(InvalidSpec, match="257 characters, more than 256"):
        Pattern("a" * (CHARACTERS_MAX + 1))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a)", "character 2: a ) has no ("),
        ("(?:a)", "(? is not part of this language"),
        ("a**", "* repeats nothing"),
        ("a|*", "* repeats nothing"),
        ("a^b", "neither at the beginning nor at the end"),
        ("a$b", "neither at the beginning nor at the end"),
        ("[a", "a [ has no ]"),
        ("[]", "[] holds nothing"),
        ("[b-a]", "b-a is no range"),
        (r"\b", r"\b is not part of this language"),
        ("a\\", "is the last sign"),
        ("(" * 33 + "a" + ")" * 33, "nested deeper than 32"),
    ],
)
def test_what_is_no_pattern_is_refused_with_its_place(text: str, part: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        Pattern(text)
    assert part in str(caught.value)
