"""The generator's report on a trial's measured burst, as columns: counts, latencies, lateness, steadiness."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from xdplab.analysis.steady import LEAST_INTERVALS, Course, course
from xdplab.formats.generator import STAMPED_BY_DEVICE, Burst, GeneratorInterval, Histogram, Summary

Row = dict[str, Any]
Reasons = dict[str, str]

QUANTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9}
LATENESS_QUANTILES = ("p50", "p99", "p999")


_NAMED = {
    "duplicate_packets": "duplicates",
    "reordered_packets": "reordered",
    "foreign_packets": "foreign_packets",
    "tx_late_packets": "tx_late_packets",
    "tx_paused_ms": "tx_paused_ns",
    "tx_pause_ms": "tx_pause_max_ns",
    "tx_busy_cores": "tx_busy_cores",
    "probes_sent": "probes_sent",
    "probes_lost": "probes_lost",
}
"""Columns that are fields of the generator's summary under another name, which says why they are null."""


_SENT_STAMPS = ("tx_stamped_packets", "tx_unstamped_packets", "unmatched_packets")


def traffic(burst: Burst, reasons: Reasons) -> Row:
    """Return the columns of one burst; nulls have their reasons in ``reasons``."""
    s = burst.summary
    row: Row = {
        "window_s": s.duration_s,
        "tx_packets": s.tx_packets,
        "rx_packets": s.rx_packets,
        "duplicate_packets": s.duplicates,
        "reordered_packets": s.reordered,
        "foreign_packets": s.foreign_packets,
        "refused_packets": _refused(s),
        "tx_errors": s.tx_errors,
        "tx_restored": s.tx_restored,
        "tx_unrestored_packets": s.tx_unrestored_packets,
        "tx_late_packets": s.tx_late_packets,
        "tx_pause_ms": _pause_ms(burst),
        "tx_paused_ms": None if s.tx_paused_ns is None else s.tx_paused_ns / 1e6,
        "tx_busy_cores": s.tx_busy_cores,
        "tg_port_tx_packets": s.device_tx_packets,
        "tg_port_rx_packets": s.device_rx_packets,
        "tg_missed_packets": s.device_rx_missed,
        "probes_sent": s.probes_sent,
        "probes_lost": s.probes_lost,
        "rx_unstamped_packets": s.rx_unstamped,
        "tx_stamped_packets": s.tx_stamped,
        "tx_unstamped_packets": s.tx_unstamped,
        "unmatched_packets": s.unmatched_stamps,
    }
    row |= _by_size(s, reasons)
    if s.tx_bytes is not None and s.tx_packets:
        row["frame_mean_bytes"] = s.tx_bytes / s.tx_packets
    if s.rx_unstamped is None:
        reasons["rx_unstamped_packets"] = s.rx_missing or "the TG's device was not asked for time stamps"
    if s.tx_stamped is None:
        reasons |= dict.fromkeys(_SENT_STAMPS, "the TG's device was not asked when it sent frames")
    if s.tx_restored is None:
        why = s.missing.get("tx_restored", "the engine makes each frame anew")
        reasons |= dict.fromkeys(("tx_restored", "tx_unrestored_packets"), why)
    if s.probes_sent is None:
        reasons |= dict.fromkeys(("probes_sent", "probes_lost"), "the frames themselves are stamped, in software")
    reasons |= {column: s.missing[name] for column, name in _NAMED.items() if row[column] is None and name in s.missing}
    if s.rx_packets is not None and s.rx_window_packets is not None:
        row["drained_packets"] = s.rx_packets - s.rx_window_packets
    else:
        reasons["drained_packets"] = s.rx_missing or "this generator did not count the frames as the window ended"
    if s.bad_run_id is None:
        reasons["refused_packets"] = s.rx_missing or s.missing.get("bad_run_id", "this generator did not count them")
    if s.tx_errors is None:
        reasons["tx_errors"] = s.tx_errors_missing or "this generator does not count them"
    return row | _latency(burst, reasons) | _lateness(burst, reasons) | _steadiness(burst, reasons)


def _by_size(s: Summary, reasons: Reasons) -> Row:
    """Frames by size, where they have several."""
    if s.tx_by_size is None:
        why = "all frames have one size, or those of a pcap"
        reasons |= {name: s.missing.get(name, why) for name in ("tx_by_size", "rx_by_size")}
        return {}
    if s.rx_by_size is None:
        reasons["rx_by_size"] = s.rx_missing or "this generator did not count them"
    counts = {"tx_by_size": s.tx_by_size, "rx_by_size": s.rx_by_size}
    return {name: None if sizes is None else json.dumps(dict(sizes)) for name, sizes in counts.items()}


def _refused(s: Summary) -> int | None:
    """Frames with the generator's magic that were not counted; altered ones count as foreign too, if known."""
    kinds = (s.bad_run_id, s.stale_packets, s.altered_packets)
    return None if s.bad_run_id is None else sum(count for count in kinds if count is not None)


def _pause_ms(burst: Burst) -> float | None:
    known = [ns for ns in (burst.summary.tx_pause_max_ns, burst.summary.tx_late_max_ns) if ns is not None]
    return max(known) / 1e6 if known else None


def _latency(burst: Burst, reasons: Reasons) -> Row:
    """The headline, and beside it the latencies from sending."""
    sent, headline = burst.histogram, burst.latency
    row: Row = {"latency_samples": sent.count, "latency_from": _counted_from(burst)}
    if not sent.count:
        why = burst.summary.missing.get("latency", "no stamped frame came back")
        reasons["latency_p50_ns"] = reasons["latency_sent_p50_ns"] = why
        return row
    row |= _quantiles(sent, "latency_sent_") | {"latency_sent_max_ns": sent.max}
    if headline is None:
        reasons["latency_p50_ns"] = "this generator did not record latencies from the due time: see latency_sent_*"
        return row
    ends = {"latency_min_ns": headline.min, "latency_mean_ns": headline.mean, "latency_max_ns": headline.max}
    return row | ends | _quantiles(headline, "latency_")


def _counted_from(burst: Burst) -> str | None:
    if burst.histogram.of in STAMPED_BY_DEVICE:
        return "sent"
    paced = burst.summary.rate_requested_pps is not None
    return ("due" if burst.from_due is not None else None) if paced else "sent"


def _lateness(burst: Burst, reasons: Reasons) -> Row:
    late = burst.lateness
    if late is None or not late.count:
        paced = burst.summary.rate_requested_pps is not None
        why = "this generator did not record its lateness" if paced else "at maximum load no frame is due"
        reasons["late_p50_ns"] = "no frame was sent" if late is not None else why
        return {}
    return _quantiles(late, "late_", LATENESS_QUANTILES) | {"late_max_ns": late.max}


def _quantiles(histogram: Histogram, prefix: str, names: Sequence[str] = tuple(QUANTILES)) -> Row:
    return {f"{prefix}{name}_ns": histogram.percentile(QUANTILES[name]) for name in names}


def _steadiness(burst: Burst, reasons: Reasons) -> Row:
    found = burst_course(burst)
    if found is None:
        reasons["rate_change"] = f"the window has fewer than {LEAST_INTERVALS} intervals"
        return {}
    return {"rate_change": found.change, "rate_change_kind": found.kind}


def burst_course(burst: Burst) -> Course | None:
    """Return the course of the received rate, or of the sent rate if no frame was received; None: too few intervals."""
    sent = [interval.tx_packets for interval in burst.intervals]
    back = _received(burst)
    heard = back is not None and any(back)
    intervals = burst.intervals if not heard or burst.summary.rx_window_packets is not None else burst.intervals[:-1]
    frames = back if back is not None and heard else sent
    return course([interval.t_s for interval in intervals], frames, _counted_for_s(burst, heard))


def _counted_for_s(burst: Burst, heard: bool) -> float:
    """The time in which the frames of a course were counted: those that came back, until the window ended.

    The sender may have gone on until a slow kernel had taken its frames.
    """
    s = burst.summary
    return (
        min(s.duration_s, s.rx_window_s)
        if heard and s.rx_window_packets is not None and s.rx_window_s
        else s.duration_s
    )


def _received(burst: Burst) -> list[int] | None:
    """Frames that came back by interval, until the window ended; the last interval is omitted if it was not counted."""
    counts = [_known(interval) for interval in burst.intervals]
    if not counts or any(count < 0 for count in counts):
        return None
    whole = burst.summary.rx_window_packets
    return counts[:-1] if whole is None else [*counts[:-1], max(whole - sum(counts[:-1]), 0)]


def _known(interval: GeneratorInterval) -> int:
    return -1 if interval.rx_packets is None else interval.rx_packets


def in_window(row: Row, burst: Burst, frames: float) -> tuple[float, float]:
    """Return how many of ``frames`` had arrived when the window ended, and the seconds until they were counted. The
    rate is always their quotient. For a count at rest (the DUT's, or one that includes rewritten frames), the time is
    that in which frames were sent.
    """
    counted, ended = burst.summary.rx_window_packets, burst.summary.rx_window_s
    if counted is None or not ended or frames != row["rx_packets"]:
        return frames, float(row["window_s"])
    return counted, ended
