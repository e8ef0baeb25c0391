"""Headers and attributes, including what a broken sender might give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beeyard.runtime import netlink_format as nl


@given(st.lists(st.tuples(st.integers(0, 0xFFFF), st.integers(0, 0xFFFF), st.binary(max_size=9)), max_size=5))
def test_split_gives_back_what_message_made(parts):
    padded = [(kind, flags, payload + bytes(-len(payload) % 4)) for kind, flags, payload in parts]
    data = b"".join(nl.message(kind, flags, payload, i) for i, (kind, flags, payload) in enumerate(padded))
    expected = [nl.Message(kind, flags, i, payload) for i, (kind, flags, payload) in enumerate(padded)]
    assert list(nl.split(data)) == expected


@given(st.dictionaries(st.integers(1, nl.NLA_TYPE_MASK), st.binary(max_size=20), max_size=6))
def test_attributes_gives_back_what_attribute_made(values):
    assert nl.attributes(b"".join(nl.attribute(kind, value) for kind, value in values.items())) == values


@given(st.binary(max_size=60))
def test_attributes_of_garbage_never_fails(data):
    nl.attributes(data)


@pytest.mark.parametrize(
    "data", [b"abc", nl.HEADER.pack(8, 1, 0, 0, 0), nl.HEADER.pack(100, 1, 0, 0, 0)], ids=["short", "small", "large"]
)
def test_split_refuses_lengths_that_cannot_be_true(data):
    with pytest.raises(ValueError, match="bytes"):
        list(nl.split(data))


@pytest.mark.parametrize("mac", ["02:42:0a:09:00:0a", "02-42-0A-09-00-0A"])
def test_mac_bytes_reads_the_usual_spellings(mac):
    assert nl.as_mac(nl.mac_bytes(mac)) == "02:42:0a:09:00:0a"


@pytest.mark.parametrize("mac", ["", "02:42", "02:42:0a:09:00:0a:00", "red"])
def test_mac_bytes_refuses_anything_else(mac):
    with pytest.raises(ValueError):
        nl.mac_bytes(mac)
