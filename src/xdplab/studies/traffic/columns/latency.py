"""Columns of times: latencies of the frames that came back, and the sender's lateness."""

from __future__ import annotations

from collections.abc import Callable

from xdplab.absent import Absent, required
from xdplab.formats.generator import STAMPED_BY_DEVICE, Histogram
from xdplab.run.columns import Column
from xdplab.studies.traffic.columns.source import TrialSource

NO_FRAME_DUE = "at maximum load no frame is due"
NO_STAMP = "no stamped frame came back"


def _latencies_from_sending(t: TrialSource) -> Histogram:
    histogram = t.window.histogram
    if not histogram.count:
        raise Absent(t.summary.missing.get("latency", NO_STAMP))
    return histogram


def _headline(t: TrialSource) -> Histogram:
    """The latencies from the due time at a paced load, and from sending at maximum load."""
    _latencies_from_sending(t)
    why = "this generator did not record latencies from the due time: see latency_sent_*"
    return required(t.window.latency, why)


def _lateness(t: TrialSource) -> Histogram:
    late = t.window.lateness
    if late is None:
        paced = t.summary.rate_requested_pps is not None
        raise Absent("this generator did not record its lateness" if paced else NO_FRAME_DUE)
    if not late.count:
        raise Absent("no frame was sent")
    return late


def _counted_from(t: TrialSource) -> str:
    if t.window.histogram.of in STAMPED_BY_DEVICE or t.summary.rate_requested_pps is None:
        return "sent"
    if t.window.from_due is None:
        _headline(t)
    return "due"


def _percentile(histogram: Callable[[TrialSource], Histogram], percent: float) -> Callable[[TrialSource], float]:
    return lambda t: required(histogram(t).percentile(percent), NO_STAMP)


LATENCY: tuple[Column[TrialSource], ...] = (
    Column("latency_min_ns", "float", "time",
           "minimum round trip of the stamped frames: from the time the frame was due at a paced load, from sending "
           "at max (latency_from)",
           lambda t: required(_headline(t).min, NO_STAMP)),
    Column("latency_mean_ns", "float", "time", "mean of the round trips",
           lambda t: required(_headline(t).mean, NO_STAMP)),
    Column("latency_p50_ns", "float", "time", "median", _percentile(_headline, 50.0)),
    Column("latency_p90_ns", "float", "time", "90th percentile", _percentile(_headline, 90.0)),
    Column("latency_p99_ns", "float", "time", "99th percentile", _percentile(_headline, 99.0)),
    Column("latency_p999_ns", "float", "time", "99.9th percentile", _percentile(_headline, 99.9)),
    Column("latency_max_ns", "float", "time", "maximum round trip", lambda t: required(_headline(t).max, NO_STAMP)),
    Column("latency_samples", "int", "count", "stamped frames received", lambda t: t.window.histogram.count),
    Column("latency_from", "str", "state",
           "due or sent: the time from which latencies are counted; with tx_stamp: device, sent is the device's own "
           "stamp",
           _counted_from),
    Column("latency_sent_p50_ns", "float", "time", "the median counted from sending, at every load",
           _percentile(_latencies_from_sending, 50.0)),
    Column("latency_sent_p90_ns", "float", "time", "the 90th percentile counted from sending, at every load",
           _percentile(_latencies_from_sending, 90.0)),
    Column("latency_sent_p99_ns", "float", "time", "the 99th percentile counted from sending, at every load",
           _percentile(_latencies_from_sending, 99.0)),
    Column("latency_sent_p999_ns", "float", "time", "the 99.9th percentile counted from sending, at every load",
           _percentile(_latencies_from_sending, 99.9)),
    Column("latency_sent_max_ns", "float", "time", "the maximum round trip counted from sending, at every load",
           lambda t: _latencies_from_sending(t).max),
    Column("late_p50_ns", "float", "time",
           "median of the sender's lateness: from the time a frame was due to its sending; null at max",
           _percentile(_lateness, 50.0)),
    Column("late_p99_ns", "float", "time",
           "99th percentile of the sender's lateness: from the time a frame was due to its sending; null at max",
           _percentile(_lateness, 99.0)),
    Column("late_p999_ns", "float", "time",
           "99.9th percentile of the sender's lateness: from the time a frame was due to its sending; null at max",
           _percentile(_lateness, 99.9)),
    Column("late_max_ns", "float", "time",
           "maximum of the sender's lateness: from the time a frame was due to its sending; null at max",
           lambda t: _lateness(t).max),
)  # fmt: skip
