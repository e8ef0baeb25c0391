"""LZW gives Go's bytes, and costs no more than it is allowed to."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beeyard.discovery.gossip.wire import lzw
from tests.reference import lzw_oracle

MOST = 1 << 22
# The same examples each time, however busy the machine is.
STEADY = settings(derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


def sample(kind: str, size: int) -> bytes:
    """Bytes of a kind: each of them fills the table at another pace."""
    rng = random.Random(f"{kind} {size}")
    if kind == "random":
        return rng.randbytes(size)
    if kind == "one byte":
        return b"a" * size
    if kind == "two bytes":
        return bytes(rng.choice(b"ab") for _ in range(size))
    return (b"\x87\xa4Addr\xa4\x0a\x00\x00%dIncarnation\x01Meta" % rng.randrange(99) * (size // 20 + 1))[:size]


# Around 3,837 codes the table is full, and at 512, 1,024 and 2,048 codes get wider: random bytes need one code each.
SIZES = [0, 1, 2, 3, 253, 254, 255, 256, 766, 767, 768, 1789, 1790, 1791, 3835, 3836, 3837, 3838, 3839, 7675, 9000]


@pytest.mark.parametrize("kind", ["random", "one byte", "two bytes", "fields"])
@pytest.mark.parametrize("size", SIZES)
def test_the_compiled_one_agrees_with_its_description(kind: str, size: int) -> None:
    """Both directions, at every size where something changes."""
    data = sample(kind, size)
    packed = lzw.compress(data)
    assert lzw_oracle.compress(data) == packed
    assert data == lzw.decompress(packed, size)
    assert data == lzw_oracle.decompress(packed)


@given(st.binary(max_size=600) | st.text("ab", max_size=2000).map(str.encode))
@settings(STEADY, max_examples=60)
def test_anything_comes_back(data: bytes) -> None:
    """And nothing more than it is made of it."""
    packed = lzw.compress(data)
    assert lzw_oracle.compress(data) == packed
    assert data == lzw.decompress(packed, len(data))
    if data:
        with pytest.raises(ValueError, match=f"more than {len(data) - 1} bytes"):
            lzw.decompress(packed, len(data) - 1)


@given(st.binary(max_size=200))
@settings(STEADY, max_examples=200)
def test_garbage_is_read_as_described_or_refused(data: bytes) -> None:
    """A decoder that was never given by an encoder's output."""
    try:
        expected = lzw_oracle.decompress(data)
    except ValueError:
        with pytest.raises(ValueError):
            lzw.decompress(data, MOST)
    else:
        assert expected == lzw.decompress(data, MOST)


def test_a_full_table_goes_on_without_growing() -> None:
    """Go's writer clears in time, others may go on with 12 bits."""
    bits = lzw_oracle._Bits()
    width, hi = 9, 257
    data = sample("random", 6000)
    for byte in data:
        bits.put(byte, width)
        hi += 1
        if hi >= 1 << width:
            width, hi = (width + 1, hi) if width < 12 else (12, hi - 1)
    bits.put(4095, width)  # the last entry of the table
    bits.put(257, width)
    packed = bits.whole.to_bytes((bits.n_bits + 7) // 8, "little")
    read = lzw.decompress(packed, MOST)
    assert lzw_oracle.decompress(packed) == read
    assert read[: len(data)] == data
    assert len(read) == len(data) + 2


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x83", lzw.compress(b"abc" * 50)[:-2]])
def test_data_without_an_end_is_refused(data: bytes) -> None:
    """Go gives up on it as well."""
    with pytest.raises(ValueError, match="without an end code"):
        lzw.decompress(data, MOST)


def test_a_code_that_stands_for_nothing_is_refused() -> None:
    """258 before there is an entry."""
    with pytest.raises(ValueError, match="stands for nothing"):
        lzw.decompress((258).to_bytes(2, "little") + bytes(2), MOST)


def test_a_bomb_ends_at_the_limit() -> None:
    """4 kB that stand for 4 MiB."""
    bomb = lzw.compress(bytes(MOST))
    assert len(bomb) < 4500
    with pytest.raises(ValueError, match="more than 65536 bytes"):
        lzw.decompress(bomb, 65536)


def test_what_is_no_bytes_is_refused() -> None:
    """A programmer's error."""
    for wrong in (None, "text", bytearray(b"a")):
        with pytest.raises(TypeError):
            lzw.compress(wrong)  # type: ignore[arg-type]
