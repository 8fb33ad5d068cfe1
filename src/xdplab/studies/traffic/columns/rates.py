"""Columns of rates: frames offered and forwarded per second, and what other work and other programs took."""

from __future__ import annotations

from math import fsum

from xdplab.absent import Absent, required
from xdplab.analysis.count_rules import COUNT_TOLERANCE, returns_frames
from xdplab.analysis.values import Row as Values
from xdplab.analysis.verdicts import OTHER_SHARE, TICKS_S, forwarded
from xdplab.errors import FormatError
from xdplab.formats.generator import Burst, Summary
from xdplab.formats.slices import SlicedRatio, parse_slices, ratio_of
from xdplab.plan.factors import SKB_MODES
from xdplab.plan.points import SLICES
from xdplab.run.columns import Column
from xdplab.studies.traffic.columns.source import TrialSource

FCS = 4
HEADER_AND_FCS = 18  # what a veth's link leaves out of a packet buffer's frame


def _heard(row: Values) -> bool:
    """Whether the TG's count is the one of forwarded frames."""
    return returns_frames(row) and row["rx_packets"] is not None


def _done(t: TrialSource) -> float:
    done = forwarded(t.row)
    if done is None:
        t.row.require("dut_tx_packets" if returns_frames(t.row) else "dut_rx_packets")
    return float(done or 0.0)


def in_window(burst: Burst, frames: float) -> tuple[float, float]:
    """Return how many of ``frames`` had arrived when the window ended, and the seconds until they were counted. The
    rate is always their quotient. For a count at rest (the DUT's, or one that includes rewritten frames), and for
    one over 1 % late after which no frame came, the time is that in which frames were sent.
    """
    s = burst.summary
    if s.rx_window_packets is None or not s.counted_s or frames != s.rx_packets:
        return frames, s.duration_s
    return s.rx_window_packets, s.counted_s


def _forwarded_pps(t: TrialSource) -> float:
    frames, seconds = in_window(t.window, _done(t))
    if _heard(t.row):  # a frame that came twice was forwarded once
        frames -= t.row["duplicate_packets"] or 0
    return frames / seconds


def mean_forwarded(row: Values, s: Summary, done: float) -> float:
    """Return the mean size of the ``done`` frames that were forwarded, with FCS: by those who counted their bytes.

    A user's program may change sizes, and loss may depend on them.
    """
    heard = returns_frames(row) and s.rx_packets is not None
    if heard and s.rx_packets and s.rx_bytes is not None:
        return _mean_back(s.rx_bytes, s.rx_packets, s, done)
    if heard and done and s.foreign_packets and s.foreign_bytes is not None:
        return s.foreign_bytes / s.foreign_packets
    changes = row["accesses"] is None and returns_frames(row)
    if changes and (mean := row["dut_tx_mean_bytes"]) is not None:
        buffers = row["dut_driver"] == "veth" and row["mode"] in SKB_MODES
        return float(mean) + (HEADER_AND_FCS if buffers else FCS)  # type: ignore[arg-type]
    all_sent = abs(done - s.tx_packets) <= COUNT_TOLERANCE * done
    sent = row["frame_mean_bytes"] if not changes and (row["frame_bytes"] is not None or all_sent) else None
    return float(required(sent, "the bytes of the frames that were forwarded were not counted"))  # type: ignore[arg-type]


def _mean_back(size: int, frames: int, s: Summary, done: float) -> float:
    """The mean of the frames that came back, with those that the program rewrote."""
    rewritten = max(done - frames, 0.0)
    if not rewritten or not s.foreign_packets or s.foreign_bytes is None:
        return size / frames
    return (size + rewritten * s.foreign_bytes / s.foreign_packets) / (frames + rewritten)


def _forwarded_bps(t: TrialSource) -> float:
    pps = float(t.row.require("forwarded_pps"))
    return pps * mean_forwarded(t.row, t.summary, _done(t)) * 8


def _forwarded_source(t: TrialSource) -> str:
    _done(t)
    return "tg" if _heard(t.row) else "dut"


def _other_work(t: TrialSource) -> float:
    """CPUs' worth that other work took from the senders, which never rest at maximum load.

    A kernel that accounts softirqs apart leaves them out of a thread's time: then they make up for what is missing.
    """
    if not t.shared:
        raise Absent("TG and DUT have CPUs of their own: their softirqs cannot be told from other work")
    if t.paced:
        raise Absent("at a paced load the sender rests: late_p99_ns shows what kept it from sending")
    busy, generator = t.row["tx_busy_cores"], t.facts.generator
    if busy is None or generator is None:
        raise Absent("this generator did not measure its CPU time")
    window_s = t.summary.duration_s
    other = len(generator.cpus) - busy - _application_ns(t) / 1e9 / window_s
    apart = abs(other - (t.row["host_softirq_cores"] or 0.0)) <= OTHER_SHARE + TICKS_S / window_s
    return 0.0 if apart else max(0.0, float(other))


def _application_ns(t: TrialSource) -> int:
    """CPU time of the AF_XDP application in the window; zero if the kernel forwards."""
    before, after = t.facts.dut_before, t.facts.dut_after
    return 0 if before is None or after is None else after.cpu_ns - before.cpu_ns


def _slices(t: TrialSource) -> SlicedRatio:
    """How a race's two programs compare in slices under one sender, in the trials of side b."""
    if SLICES not in t.point.passes:
        raise Absent("no other program took turns with this one: that is done in trials of a race's side b")
    if t.facts.sliced is not None:
        raise Absent(t.facts.sliced.missing)
    try:
        slices = parse_slices((t.raw / "xdpload.jsonl").read_bytes())
    except (OSError, FormatError) as error:
        raise Absent(f"xdpload's output cannot be read: {error}") from error
    ratio = ratio_of(required(slices, "no program took turns with this one"))
    if isinstance(ratio, str):
        raise Absent(ratio)
    return ratio


def _overhead(t: TrialSource) -> float:
    sent_s = fsum(burst.summary.duration_s for burst in t.bursts.values())
    return t.attempt.duration_s - sent_s - (t.facts.waited_s or 0.0)


RATE: tuple[Column[TrialSource], ...] = (
    Column("offered_pps", "float", "rate", "tx_packets / window",
           lambda t: t.summary.tx_packets / t.summary.duration_s),
    Column("forwarded_pps", "float", "rate",
           "frames forwarded (actions but tx: processed) per second, each counted once",
           _forwarded_pps),
    Column("forwarded_window_s", "float", "time",
           "seconds that forwarded_pps is the mean of: until the frames were counted as the window ended; window_s "
           "for counts at rest, and for a count over 1 % late after which no frame came",
           lambda t: in_window(t.window, _done(t))[1]),
    Column("forwarded_source", "str", "state", "the host whose count forwarded_pps is: tg or dut", _forwarded_source),
    Column("forwarded_l2_bps", "float", "rate",
           "forwarded_pps x the mean L2 bytes of the frames forwarded, with FCS, counted, x 8",
           _forwarded_bps),
    Column("other_busy_cores", "float", "share",
           "CPUs' worth that other work took from the CPUs at work, at maximum load on shared CPUs: their number "
           "minus tx_busy_cores and the AF_XDP application's time",
           _other_work),
    Column("slices_ratio", "float", "share",
           "in a race, side b: rate of this program over that of side a's, as the two took turns every few "
           "milliseconds under one sender; median over neighbouring slices",
           lambda t: _slices(t).median),
    Column("slices_total_ratio", "float", "share",
           "the same ratio from all frames and times of each side; unlike the median, it includes other work that "
           "hit single slices",
           lambda t: _slices(t).total),
    Column("slices_pairs", "int", "count", "pairs of slices that slices_ratio is the median of",
           lambda t: _slices(t).pairs),
    Column("overhead_s", "float", "time", "wall time of the attempt besides warm-up, windows and waited_s", _overhead),
    Column("waited_s", "float", "time",
           "time that this trial waited while other labs of this machine measured on the same CPUs",
           lambda t: required(t.facts.waited_s, "the trial ended before its turn came")),
)  # fmt: skip
