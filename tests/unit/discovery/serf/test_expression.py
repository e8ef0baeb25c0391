"""Regular expressions of peers: Go's meaning, and no way to make them slow."""

import contextlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beeyard.core.errors import InvalidSpec
from beeyard.discovery.gossip.serf.expression import check, matches


@pytest.mark.parametrize(
    ("expression", "yes", "no"),
    [
        ("", ["", "anything"], []),
        ("web", ["web", "my-web-1"], ["wEb", "we b"]),
        ("^web[0-9]+$", ["web1", "web123"], ["web", "web1x", "xweb1", "web1\n"]),
        ("^$", [""], ["x"]),
        ("a|b|", ["", "a", "c"], []),
        ("^(a|bc)*d$", ["d", "abcad"], ["abd", "acd"]),
        ("^(?:x|y){0,2}z$", ["z", "xz", "yxz"], ["xyxz"]),
        ("^x{2,3}$", ["xx", "xxx"], ["x", "xxxx"]),
        ("^x{2,}$", ["xx", "xxxxxx"], ["x"]),
        ("^x{2}?$", ["xx"], ["x"]),
        ("a{,3}", ["a{,3}"], ["aaa"]),
        ("^a{0}b$", ["b"], ["ab"]),
        ("^(a{1,2}){2}$", ["aa", "aaaa"], ["a", "aaaaa"]),
        ("^.$", ["a", "é"], ["", "\n", "ab"]),
        ("(?s)^.$", ["\n"], []),
        ("(?m)^b$", ["a\nb\nc"], ["ab"]),
        ("(?i)WEB", ["web", "WeB"], ["wb"]),
        ("(?i:w)eb", ["Web", "web"], ["WEB"]),
        ("(?i)a(?-i)b", ["Ab"], ["AB"]),
        ("(?U)a+", ["a"], ["b"]),
        ("[^a-c]d", ["xd", "\nd"], ["ad", "d"]),
        ("^[]a]$", ["]", "a"], ["b"]),
        ("^[a-]$", ["a", "-"], ["b"]),
        ("^[\\d\\-x]$", ["4", "-", "x"], ["y"]),
        ("^[[:alpha:]_]+$", ["abc_"], ["ab1"]),
        ("^[[:^alpha:]]$", ["1"], ["a"]),
        ("(?i)^[A-C]$", ["b", "B"], ["d"]),
        ("\\bfoo\\b", ["a foo b", "foo"], ["afoob"]),
        ("\\Boo", ["foo"], ["oo"]),
        ("\\Ax\\z", ["x"], ["x\n"]),
        ("^\\w\\W\\s\\S\\D$", ["a- bc"], ["aa bc"]),
        ("^\\x41\\x{e9}\\101\\t$", ["AéA\t"], ["A"]),
        ("\\Qa.b*\\E+", ["a.b*", "a.b**"], ["a.b", "axb*"]),
        ("(?P<name>a)(?<other>b)", ["ab"], ["a"]),
        ("1\\.2", ["v1.2"], ["112"]),
    ],
)
def test_expression_means_what_it_means_in_go(expression: str, yes: list[str], no: list[str]) -> None:
    """A match anywhere in the text, RE2's syntax with Perl's flags."""
    assert [text for text in yes if not matches(expression, text)] == []
    assert [text for text in no if matches(expression, text)] == []


@pytest.mark.parametrize(
    "expression",
    [
        *(
            "(",
            "a)",
            "[a",
            "a**",
            "*a",
            "a++",
            "\\1",
            "\\8",
            "\\pL",
            "\\",
            "a{1001}",
            "(?x)",
            "(?",
            "(?P<n",
            "(?P<1>a)",
        ),
        *("[b-a]", "[a-\\d]", "a{2}{3}", "[[:foo:]]", "\\xg1", "\\x{110000}", "\\x{}", "((a{100}){100}){100}"),
        *("(" * 60 + ")" * 60, "a" * 1025, "(?i", "a{3,2}", "|*", "(?=a)", "(?<!a)b"),
    ],
)
def test_expression_that_go_cannot_compile_is_refused_by_name(expression: str) -> None:
    """The error says what is wrong and where; nothing else is ever raised."""
    with pytest.raises(InvalidSpec, match="expression"):
        check(expression)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("(a*)*b", "a" * 512),
        ("(x+x+)+y", "x" * 512),
        (".*.*.*.*.*.*.*x", "a" * 512),
        ("(a|aa)+$", "a" * 511 + "b"),
        ("(.*){1,32}x", "a" * 512),
        ("(a?){200}a{200}", "a" * 400),
        ("((((((a*)*)*)*)*)*)*b", "a" * 512),
    ],
)
def test_catastrophic_expression_costs_a_bounded_number_of_steps(expression: str, text: str) -> None:
    """What takes Python's re years either does not match or is refused; both after some ten thousand steps."""
    found = "refused"
    with contextlib.suppress(InvalidSpec):
        found = str(matches(expression, text))
    assert found in ("False", "refused")


PIECES = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", "(a|b)", "(?:ab)*", "a*", "b+", "(a*)?", "a{1,2}", "^", "$", "|"]
)


@settings(deadline=None)
@given(st.lists(PIECES, max_size=6).map("".join), st.text("ab\n ", max_size=8))
def test_expression_agrees_with_python_where_both_mean_the_same(expression: str, text: str) -> None:
    """The oracle is Python's own engine, with Go's `$`, which is the end alone."""
    assert matches(expression, text) == bool(re.search(expression.replace("$", "\\Z"), text))


@settings(deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_an_expression_or_refused(expression: str) -> None:
    """Nothing but InvalidSpec comes out, whatever a peer writes."""
    with contextlib.suppress(InvalidSpec):
        matches(expression, "some text")
