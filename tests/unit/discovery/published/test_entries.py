"""Entries and lists as people and programs write them."""

from __future__ import annotations

import pytest

from beeyard.core.errors import InvalidSpec
from beeyard.discovery.published.entries import checked_entry, entries_of, legible, parse_list, written
from beeyard.discovery.published.file import Block, joined, split


@pytest.mark.parametrize(
    "entry", ["10.0.0.7:3388", "host:1", "a.b-c_d.example:65535", "[2001:db8::1]:80", "[fe80::1%eth0]:80", "host.:5"]
)
def test_an_entry_is_host_and_port(entry: str) -> None:
    """Names, IPv4, and IPv6 in brackets."""
    assert checked_entry(entry) == entry


@pytest.mark.parametrize(
    "entry",
    ["", "host", ":80", "host:", "host:x", "host:-1", "host:65536", "::1:80", "a b:1", "http://a:1", "a/b:1", "-a:1"],
)
def test_what_is_no_entry_is_refused(entry: str) -> None:
    """With the form that it should have."""
    with pytest.raises(InvalidSpec, match="it is written HOST:PORT"):
        checked_entry(entry)


def test_a_range_has_both_ends() -> None:
    """As classic Swarm's; what is no range is left as it is."""
    assert entries_of("10.0.0.[11:13]:2375") == [f"10.0.0.{n}:2375" for n in (11, 12, 13)]
    assert entries_of("10.0.0.[7:7]:2375") == ["10.0.0.7:2375"]
    assert entries_of(" [2001:db8::1]:80 ") == ["[2001:db8::1]:80"]


def test_a_file_has_comments_everywhere() -> None:
    """A line of its own, or behind an item; empty lines do no harm."""
    text = "# all\n\n10.0.0.1:2375 # the first\r\n  10.0.0.[2:3]:2375#more\n#10.0.0.4:2375\n"
    assert parse_list(text) == ["10.0.0.1:2375", "10.0.0.2:2375", "10.0.0.3:2375"]


def test_a_wrong_line_is_named() -> None:
    """By its number."""
    with pytest.raises(InvalidSpec, match=r"invalid line 3: 'nonsense': it is written HOST:PORT"):
        parse_list("a:1\n#\nnonsense\n")


def test_one_broken_line_of_a_program_loses_no_other() -> None:
    """What another manager has published is read as far as it can be."""
    assert legible(b"a:1\n\xff\xfe\nb:2\n{}\nb:2\n") == ("a:1", "b:2")
    assert legible(written(["b:2", "a:1", "b:2"])) == ("a:1", "b:2")
    assert legible(b"") == ()


def test_blocks_of_a_shared_file_come_back() -> None:
    """What a person has written stays as it is."""
    others = "# ours\n10.0.0.1:2375 # here\n"
    blocks = {"m2": Block(1764538245.25, ("b:2",)), "m1": Block(1764538246.5, ("a:1", "c:3")), "m3": Block(1.0, ())}
    text = joined(others, blocks).decode()
    assert text.startswith(others + "# beeyard list m1 until 1764538246.500\na:1\nc:3\n# beeyard end\n")
    assert split(text) == (others, blocks)
    assert split("") == ("", {})
    assert parse_list(text) == ["10.0.0.1:2375", "a:1", "c:3", "b:2"]  # as classic Swarm reads it


def test_a_block_without_its_end_takes_no_other_with_it() -> None:
    """Nor does an end without a beginning."""
    text = "# beeyard end\nx:1\n# beeyard list m1 until 5.000\na:1\n# beeyard list m2 until 6.000\nb:2\n"
    assert split(text) == ("x:1\n", {"m1": Block(5.0, ("a:1",)), "m2": Block(6.0, ("b:2",))})
