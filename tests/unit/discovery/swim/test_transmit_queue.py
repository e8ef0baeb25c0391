"""The queue of broadcasts: order, limits, replacing, and what it costs."""

import pytest

from beeyard.discovery.gossip.swim import TransmitQueue, transmit_limit


def queue_of(*messages: bytes, n_nodes: int = 1, mult: int = 4) -> TransmitQueue:
    queue = TransmitQueue(lambda: n_nodes, mult)
    for message in messages:
        queue.queue(message)
    return queue


@pytest.mark.parametrize(
    ("mult", "n_nodes", "expected"),
    # The peer's rule: mult · ceil(log10(N + 1)); LAN's figures of 10, 100 and 1,000 members are published.
    [(4, 0, 0), (4, 1, 4), (4, 9, 4), (4, 10, 8), (4, 30, 8), (4, 99, 8), (4, 100, 12), (4, 1000, 16), (2, 30, 4)],
)
def test_a_broadcast_is_sent_as_often_as_the_cluster_is_large(mult: int, n_nodes: int, expected: int) -> None:
    assert transmit_limit(mult, n_nodes) == expected


def test_a_broadcast_is_gone_after_its_last_transmit() -> None:
    queue = queue_of(b"news")
    assert [queue.draw(2, 100) for _ in range(5)] == [[b"news"]] * 4 + [[]]
    assert len(queue) == 0


def test_what_was_sent_least_goes_first() -> None:
    queue = queue_of(b"old-and-long")
    queue.draw(0, 100)
    queue.queue(b"new")
    assert queue.draw(0, 12) == [b"new"]
    assert queue.draw(0, 100) == [b"old-and-long", b"new"]


def test_the_longest_that_fits_goes_first_and_of_equal_ones_the_newest() -> None:
    queue = queue_of(b"aaaa", b"bb", b"cc", b"ddddd")
    assert queue.draw(1, 11) == [b"ddddd", b"aaaa"]
    assert queue.draw(1, 6) == [b"cc", b"bb"]


@pytest.mark.parametrize(("limit", "expected"), [(5, []), (6, [b"1234"]), (11, [b"1234"]), (12, [b"1234", b"abcd"])])
def test_overhead_counts_for_each_part(limit: int, expected: list[bytes]) -> None:
    assert queue_of(b"abcd", b"1234").draw(2, limit) == expected


def test_no_more_parts_are_drawn_than_asked_for() -> None:
    queue = queue_of(*[b"%d" % i for i in range(9)])
    assert len(queue.draw(0, 100, 3)) == 3
    assert len(queue.draw(0, 100, 0)) == 0
    assert len(queue) == 9


def test_news_of_a_name_replaces_what_waited_under_it() -> None:
    ended: list[str] = []
    queue = TransmitQueue(lambda: 10, 4)
    queue.queue(b"suspect", name="a", done=lambda: ended.append("suspect"))
    queue.queue(b"other", name="b")
    queue.draw(0, 100)
    queue.queue(b"alive", name="a")
    assert ended == ["suspect"]
    assert sorted(queue.draw(0, 100)) == [b"alive", b"other"]
    assert len(queue) == 2


def test_done_is_called_once_after_the_last_transmit_or_when_pruned() -> None:
    ended: list[str] = []
    queue = TransmitQueue(lambda: 1, 1)
    queue.queue(b"a", name="a", done=lambda: ended.append("a"))
    queue.draw(0, 100)
    queue.queue(b"b", done=lambda: ended.append("b"))
    queue.prune(0)
    queue.draw(0, 100)
    queue.prune(0)
    assert ended == ["a", "b"]


def test_pruning_drops_what_was_sent_most() -> None:
    queue = queue_of(b"sent")
    queue.draw(0, 100)
    queue.queue(b"fresh")
    queue.prune(1)
    assert queue.draw(0, 100) == [b"fresh"]


def test_queueing_wakes_whoever_draws() -> None:
    woken: list[int] = []
    queue = TransmitQueue(lambda: 1, 1, lambda: woken.append(1))
    queue.queue(b"a")
    queue.queue(b"b", name="n")
    assert len(woken) == 2
