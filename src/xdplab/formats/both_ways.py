"""The sum of two bursts that were sent at the same time in two directions."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from xdplab.formats.generator import Burst, GeneratorInterval, Histogram, Sizes, Summary

_LONGER = ("duration_s", "rx_window_s", "tx_pause_max_ns", "tx_paused_ns", "tx_late_max_ns")
"""Times: those of the direction that took longer. Other numbers are added; lists by queue are joined: two ports have
queues of their own."""


def both(forth: Burst, back: Burst) -> Burst:
    """Return one burst with the counts of both, whose `ways` are the two; histograms have the times of both."""
    return Burst(
        forth.name,
        tuple(_interval(*pair) for pair in zip(forth.intervals, back.intervals, strict=False)),
        _summary(forth.summary, back.summary),
        forth.histogram.merge(back.histogram),
        _merged(forth.from_due, back.from_due),
        _merged(forth.lateness, back.lateness),
        ways=(forth, back),
    )


def _merged(a: Histogram | None, b: Histogram | None) -> Histogram | None:
    return None if a is None or b is None else a.merge(b)


def _interval(a: GeneratorInterval, b: GeneratorInterval) -> GeneratorInterval:
    received = None if a.rx_packets is None or b.rx_packets is None else a.rx_packets + b.rx_packets
    return GeneratorInterval(a.burst, max(a.t_s, b.t_s), a.tx_packets + b.tx_packets, received)


def _summary(a: Summary, b: Summary) -> Summary:
    values = {one.name: _together(one.name, getattr(a, one.name), getattr(b, one.name)) for one in fields(Summary)}
    return Summary(**values)


def _together(name: str, a: Any, b: Any) -> Any:
    """Return a field's value for both. A number that one of them lacks is missing, a reason stays."""
    if name == "missing":
        return {**b, **a}
    if isinstance(a, (str, bool)) or isinstance(b, (str, bool)):
        return a or b
    if a is None or b is None:
        return None
    if name in _LONGER:
        return max(a, b)
    if name == "rx_by_rank":
        return tuple(map(sum, zip(a, b, strict=True)))
    return _by_size(a, b) if name in ("tx_by_size", "rx_by_size") else a + b


def _by_size(a: Sizes, b: Sizes) -> Sizes:
    counts = dict(a)
    for size, count in b:
        counts[size] = counts.get(size, 0) + count
    return tuple(counts.items())
