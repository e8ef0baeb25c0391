"""A gossip node's figures in the text format that Prometheus reads.

Source of the format and of the names' endings: https://prometheus.io/docs/instrumenting/exposition_formats/ and
https://prometheus.io/docs/practices/naming/
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

PREFIX = "beeyard_gossip_"


class _Metric(NamedTuple):
    name: str
    kind: str
    what: str
    # Figure: the label's value; without a label the only figure has "".
    figures: tuple[tuple[str, str], ...]
    label: str = ""


def _counter(name: str, what: str, *figures: tuple[str, str], label: str = "") -> _Metric:
    return _Metric(f"{name}_total", "counter", what, figures, label)


def _gauge(name: str, what: str, *figures: tuple[str, str], label: str = "") -> _Metric:
    return _Metric(name, "gauge", what, figures, label)


_METRICS = (
    _gauge(
        "members",
        "Members that are known, by their status.",
        *((f"members_{status}", status) for status in ("alive", "leaving", "left", "failed")),
        label="status",
    ),
    _gauge("health_score", "This member's own troubles, 0 to 7: it waits longer for others.", ("health_score", "")),
    _counter(
        "packets",
        "Datagrams, by what became of them.",
        ("packets_sent", "sent"),
        ("packets_received", "received"),
        ("packets_refused", "refused"),
        ("packets_unsent", "unsent"),
        label="outcome",
    ),
    _counter(
        "packet_bytes",
        "Bytes of datagrams.",
        ("packet_bytes_sent", "sent"),
        ("packet_bytes_received", "received"),
        label="direction",
    ),
    _counter(
        "stream_bytes",
        "Bytes of exchanges over TCP.",
        ("stream_bytes_sent", "sent"),
        ("stream_bytes_received", "received"),
        label="direction",
    ),
    _counter(
        "streams",
        "Exchanges over TCP that others began, by what became of them.",
        ("streams_served", "served"),
        ("streams_refused", "refused"),
        ("streams_failed", "failed"),
        label="outcome",
    ),
    _counter("probes", "Members that were probed.", ("swim_probes", "")),
    _counter("probes_failed", "Probes that nobody answered.", ("swim_probes_failed", "")),
    _counter("probes_by_stream", "Probes that were answered over TCP alone.", ("swim_probes_by_stream", "")),
    _counter("suspicions", "Members that began to be suspected.", ("swim_suspicions", "")),
    _counter("refutations", "Times that this member had to say that it is alive.", ("swim_refutations", "")),
    _counter(
        "late",
        "Times that this process ran late, and read what had arrived before it judged anybody.",
        ("swim_late", ""),
    ),
    _counter("stalls", "Times that this process did not run for so long that it judged nobody.", ("swim_stalls", "")),
    _counter("mends", "Exchanges because others believed something else than this member.", ("swim_mends", "")),
    _counter("conflicts", "Messages of somebody who goes by the name of a member.", ("swim_conflicts", "")),
    _counter("unwelcome", "Messages about members of other clusters.", ("swim_unwelcome", "")),
    _counter("refused", "Messages that were not acted on.", ("swim_refused", "")),
    _counter("warnings", "What peers did wrong.", ("warnings", "")),
    _counter("coordinate_resets", "Times that the coordinate was begun anew.", ("coordinate_resets", "")),
    _gauge(
        "queued_messages",
        "News that wait to be sent on.",
        *((f"queued_{queue}", queue) for queue in ("members", "intents", "queries", "events")),
        label="queue",
    ),
    _gauge(
        "lamport_time",
        "The newest Lamport time that was seen.",
        *((f"{clock}_time", clock) for clock in ("member", "event", "query")),
        label="clock",
    ),
    _gauge(
        "exchange_interval_seconds", "The time between two exchanges of all that is known.", ("exchange_interval_s", "")
    ),
    _gauge("timer_lateness_max_seconds", "The longest time by which a timer was late.", ("latest_wake_s", "")),
)
_DROPPED = "dropped_"
_RTT = "probe_rtt_s_"


def exposition(figures: Mapping[str, float], member: str) -> str:
    """The figures of `GossipNode.figures` as lines, each ended.

    Args:
        member: this member's name, a label of each.
    """
    return "".join(f"{line}\n" for line in lines(figures, member))


def lines(figures: Mapping[str, float], member: str) -> Iterator[str]:
    """The same, line by line."""
    own = f'member="{_escaped(member)}"'
    for metric in _METRICS:
        shown = [(figure, value) for figure, value in metric.figures if figure in figures]
        if shown:
            yield from _head(metric.name, metric.kind, metric.what)
        for figure, value in shown:
            labels = f'{own},{metric.label}="{value}"' if metric.label else own
            yield f"{PREFIX}{metric.name}{{{labels}}} {_number(figures[figure])}"
    dropped = sorted(figure for figure in figures if figure.startswith(_DROPPED))
    if dropped:
        yield from _head("dropped_total", "counter", "Serf's messages that were passed over, by why.")
    for figure in dropped:
        reason = _escaped(figure.removeprefix(_DROPPED))
        yield f'{PREFIX}dropped_total{{{own},reason="{reason}"}} {_number(figures[figure])}'
    yield from _histogram(figures, own)


def unnamed(figures: Mapping[str, float]) -> list[str]:
    """Figures that no line shows."""
    named = {figure for metric in _METRICS for figure, _ in metric.figures}
    return [figure for figure in figures if figure not in named and not figure.startswith((_DROPPED, _RTT))]


def _histogram(figures: Mapping[str, float], own: str) -> Iterator[str]:
    if f"{_RTT}count" not in figures:
        return
    name = "probe_rtt_seconds"
    yield from _head(name, "histogram", "Round-trip time of probes that were answered at once.")
    for figure in (figure for figure in figures if figure.startswith(f"{_RTT}le_")):
        bound = figure.removeprefix(f"{_RTT}le_")
        yield f'{PREFIX}{name}_bucket{{{own},le="{bound}"}} {_number(figures[figure])}'
    yield f"{PREFIX}{name}_sum{{{own}}} {_number(figures[f'{_RTT}sum'])}"
    yield f"{PREFIX}{name}_count{{{own}}} {_number(figures[f'{_RTT}count'])}"


def _head(name: str, kind: str, what: str) -> Iterator[str]:
    yield f"# HELP {PREFIX}{name} {what}"
    yield f"# TYPE {PREFIX}{name} {kind}"


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "+Inf" if value > 0 else "-Inf" if value < 0 else "NaN"
    return f"{value:.0f}" if value == int(value) else f"{value:.9g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


__all__ = ["exposition", "lines", "unnamed"]
