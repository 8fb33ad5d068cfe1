"""Columns of the frames in the window, as the generator reports them: sent, received, what it adds, and times."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from xdplab.absent import Absent, required
from xdplab.analysis.count_rules import returns_frames, tg_count
from xdplab.analysis.percentiles import NO_STAMP, resolved_percentile
from xdplab.analysis.steady import LEAST_INTERVALS, Course
from xdplab.counters.columns import Counters
from xdplab.formats.generator import STAMPED_BY_DEVICE, Histogram
from xdplab.generators import BY_DPDK
from xdplab.run.columns import Column
from xdplab.studies.traffic.columns.source import TrialSource
from xdplab.studies.traffic.passes import burst_course

NO_FRAME_DUE = "at maximum load no frame is due"
NO_RECEIVER = "this generator did not count what came back"
NOT_COUNTED = "this generator did not count them"
NO_PAUSES = "this generator does not record its pauses"
NO_STAMPS_OF_SENDING = "the TG's device was not asked when it sent frames"


def _reported(name: str, otherwise: str) -> Callable[[TrialSource], object]:
    """A field of the generator's summary under another name, or the same."""
    return lambda t: t.summary.required(name, otherwise)


def _by_size(t: TrialSource, name: str) -> str:
    """Frames by size, where they have several."""
    otherwise = NOT_COUNTED if t.summary.tx_by_size is not None else "all frames have one size, or those of a pcap"
    return json.dumps(dict(t.summary.required(name, otherwise)))


def _drained(t: TrialSource) -> int:
    received = t.row.require("rx_packets")
    at_end = t.summary.required("rx_window_packets", "this generator did not count the frames as the window ended")
    return int(received - at_end)


def _refused(t: TrialSource) -> int:
    """Frames with the generator's magic that were not counted; altered ones count as foreign too, if known."""
    s = t.summary
    return int(s.required("bad_run_id", NOT_COUNTED)) + (s.stale_packets or 0) + (s.altered_packets or 0)


def _restored(name: str) -> Callable[[TrialSource], object]:
    return lambda t: t.summary.required(name, t.summary.missing.get("tx_restored", "the engine makes each frame anew"))


def _late_packets(t: TrialSource) -> int:
    why = NO_FRAME_DUE
    if t.paced:
        why = t.row.reason("late_p50_ns") or NOT_COUNTED
    return int(t.summary.required("tx_late_packets", why))


def _pause_ms(t: TrialSource) -> float:
    s = t.summary
    times = [ns for ns in (s.tx_pause_max_ns, s.tx_late_max_ns) if ns is not None]
    return max(times or [int(s.required("tx_pause_max_ns", NO_PAUSES))]) / 1e6


def _paused_ms(t: TrialSource) -> float:
    why = "at a paced load lateness shows a pause: see late_max_ns" if t.paced else NO_PAUSES
    return float(t.summary.required("tx_paused_ns", why)) / 1e6


def _lost(t: TrialSource) -> int:
    if not returns_frames(t.row):
        raise Absent("no frame has to come back: see dut_rx_packets")
    t.row.require("rx_packets")
    return t.summary.tx_packets - (int(tg_count(t.row) or 0) - (t.row["duplicate_packets"] or 0))


def _loss_ratio(t: TrialSource) -> float:
    return float(t.row.require("lost_packets") / required(t.summary.tx_packets or None, "no frame was sent"))


def _course(t: TrialSource) -> Course:
    return required(burst_course(t.window), f"the window has fewer than {LEAST_INTERVALS} intervals")


# What the TG's port counted: by the kernel where it has the port, else by DPDK's own registers. The kernel sees frames
# that reached a port and were never taken from its ring; DPDK's software drivers do not.

UNKNOWN_COUNTERS = "which counters of a driver hold frames sent without a copy is not known"


def _link_has(t: TrialSource) -> tuple[int, int] | None:
    """Frames that came to and left the port of a DPDK generator, by the kernel's link; None if it has no such link."""
    first = t.ports[0]
    came, went = first["tg_link_rx_packets"], first["tg_link_tx_packets"]
    return None if came is None or went is None else (came, went)


def _sum_of_senders(t: TrialSource, name: str) -> int:
    senders: list[Counters] = t.ports[: t.point.ways]
    return sum(one.require(name) for one in senders)


def _port_tx(t: TrialSource) -> int:
    if t.point.engine in BY_DPDK:
        link = _link_has(t)
        return link[1] if link else int(t.summary.required("device_tx_packets", NO_REGISTERS))
    if t.point.tx_bind == "zerocopy":
        raise Absent(UNKNOWN_COUNTERS)
    return _sum_of_senders(t, "tg_handed_over_packets" if t.point.engine == "live" else "tg_link_tx_packets")


NO_REGISTERS = "this generator did not read its port's registers"


def _port_dropped(t: TrialSource) -> int:
    if t.point.engine in BY_DPDK:
        raise Absent("DPDK's own count is tx_errors")
    if t.point.tx_bind == "zerocopy":
        raise Absent(UNKNOWN_COUNTERS)
    return _sum_of_senders(t, "tg_link_tx_dropped")


def _require_dpdk(t: TrialSource) -> None:
    if t.point.engine not in BY_DPDK:
        raise Absent("the generator uses the kernel's own driver of the port: see its counters")


def _port_rx(t: TrialSource) -> int:
    _require_dpdk(t)
    link = _link_has(t)
    return link[0] if link else int(t.summary.required("device_rx_packets", NO_REGISTERS))


def _missed(t: TrialSource) -> int:
    _require_dpdk(t)
    link, s = _link_has(t), t.summary
    if link is None:
        return int(s.required("device_rx_missed", NO_REGISTERS))
    taken = (s.rx_packets, s.foreign_packets, s.bad_run_id, s.stale_packets)
    return max(0, link[0] - sum(count or 0 for count in taken))


SENT: tuple[Column[TrialSource], ...] = (
    Column("window_s", "float", "time",
           "how long frames were sent, by the sender's clock, at max until the kernel had taken the last ones: the "
           "divisor of offered_pps",
           lambda t: t.summary.duration_s),
    Column("tx_packets", "int", "count", "test frames the TG sent in the window", lambda t: t.summary.tx_packets),
    Column("rx_packets", "int", "count", "test frames of this run the TG received",
           _reported("rx_packets", NO_RECEIVER)),
    Column("tx_by_size", "json", "count",
           "frames of several sizes (IMIX): tx_packets by size, a JSON object: bytes with FCS to frames",
           partial(_by_size, name="tx_by_size")),
    Column("rx_by_size", "json", "count",
           "frames of several sizes (IMIX): rx_packets by size, a JSON object: bytes with FCS to frames",
           partial(_by_size, name="rx_by_size")),
    Column("rx_flows", "int", "count",
           "different flows among rx_packets; a new flow in the place of one that ended counts anew",
           _reported("rx_flows", NO_RECEIVER)),
    Column("drained_packets", "int", "count",
           "those of rx_packets that arrived after the window had ended: frames that were still in rings. Rates do not "
           "include them",
           _drained),
    Column("lost_packets", "int", "count",
           "tx_packets minus the frames that came back, each counted once; rewritten frames count as back", _lost),
    Column("loss_ratio", "float", "share", "lost_packets / tx_packets", _loss_ratio),
    Column("duplicate_packets", "int", "count", "test frames received more than once",
           _reported("duplicates", NO_RECEIVER)),
    Column("reordered_packets", "int", "count", "test frames received behind a later one of their flow (RFC 4737)",
           _reported("reordered", NO_RECEIVER)),
    Column("foreign_packets", "int", "count",
           "frames received without the run's magic and id, or with altered headers or length",
           _reported("foreign_packets", NO_RECEIVER)),
    Column("refused_packets", "int", "count",
           "frames received with the magic of test frames but not counted: from another run or an earlier burst, or "
           "altered",
           _refused),
    Column("rate_change", "float", "share",
           "change of the rate within the window, as a share of its mean, in one step or one trend; 0 if it was steady",
           lambda t: _course(t).change),
    Column("rate_change_kind", "str", "state", "steady, step or trend", lambda t: _course(t).kind),
    Column("tx_errors", "int", "count",
           "frames of tx_packets that the TG's device refused because its ring was full",
           _reported("tx_errors", "this generator does not count them")),
    Column("tx_restored", "bool", "state",
           "engine live: the sender wrote each frame whole, because the program under test had changed a payload; it "
           "takes part of the time per frame",
           _restored("tx_restored")),
    Column("tx_unrestored_packets", "int", "count",
           "engine live: frames of tx_packets that were sent before it noticed: they may carry what the program wrote "
           "into an earlier frame",
           _restored("tx_unrestored_packets")),
    Column("tx_late_packets", "int", "count",
           "frames of a paced load that were sent more than 100 us after they were due, and then too close together",
           _late_packets),
    Column("tg_port_tx_packets", "int", "count",
           "frames that the TG's port counted as sent, probes included: by its link, its driver's redirects (engine "
           "live), or DPDK",
           _port_tx),
    Column("tg_port_dropped_packets", "int", "count", "frames that the TG's link dropped instead of sending them",
           _port_dropped),
    Column("tg_port_rx_packets", "int", "count", "frames that the TG's port counted as received; DPDK only", _port_rx),
    Column("tg_missed_packets", "int", "count",
           "frames that reached the TG's port but not its generator: lost by the TG", _missed),
    Column("probes_sent", "int", "count", "extra frames that the TG's NIC stamps (engine moongen-hw)",
           _reported("probes_sent", "the frames themselves are stamped, in software")),
    Column("probes_lost", "int", "count", "probes that did not come back with a stamp",
           _reported("probes_lost", "the frames themselves are stamped, in software")),
    Column("rx_unstamped_packets", "int", "count",
           "stamped frames that came back without a stamp of the TG's device, where the plan asks for its stamps "
           "(rx_stamp: device)",
           _reported("rx_unstamped", "the TG's device was not asked for time stamps")),
    Column("tx_stamped_packets", "int", "count",
           "frames of which the TG's device told when it sent them, where the plan asks for that (tx_stamp: device)",
           _reported("tx_stamped", NO_STAMPS_OF_SENDING)),
    Column("tx_unstamped_packets", "int", "count", "frames of which it was asked and told nothing",
           _reported("tx_unstamped", NO_STAMPS_OF_SENDING)),
    Column("unmatched_packets", "int", "count",
           "frames that came back with the device's stamp, but without one of sending, or too long after it: they are "
           "in no latency",
           _reported("unmatched_stamps", NO_STAMPS_OF_SENDING)),
    Column("tx_pause_ms", "float", "time",
           "longest time in the window in which the sender stood still or fell behind", _pause_ms),
    Column("tx_paused_ms", "float", "time",
           "total time that the sender stood still; null at a paced load, where lateness shows it", _paused_ms),
    Column("tx_busy_cores", "float", "share", "CPUs that the sending threads kept busy, softirqs in them included",
           _reported("tx_busy_cores", "this generator did not measure its CPU time")),
)  # fmt: skip


# --- latencies of the frames that came back, and the sender's lateness ---


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
    return lambda t: resolved_percentile(histogram(t), percent)


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
