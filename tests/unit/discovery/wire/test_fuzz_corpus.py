"""What fuzzing found interesting is read or refused, and in no time."""

from __future__ import annotations

import time

from tests.support.gossip_fuzz import TARGETS, corpus, decode_one

# An input takes some 20 µs. Far more than a busy machine adds, and far less than one that explodes would take.
ALL_S_MAX = 5.0


def test_every_input_that_fuzzing_kept_is_read_or_refused() -> None:
    """Nothing but the one error comes out of any decoder, and none of them is held up."""
    inputs = corpus()
    assert len(inputs) > 100
    assert {data[0] % len(TARGETS) for data in inputs} == set(range(len(TARGETS)))
    started = time.process_time()
    for data in inputs:
        decode_one(data)
    assert time.process_time() - started < ALL_S_MAX


def test_every_beginning_of_an_input_is_read_or_refused() -> None:
    """Whatever was cut off."""
    for data in corpus()[::5]:
        for end in range(1, len(data), max(1, len(data) // 16)):
            decode_one(data[:end])
