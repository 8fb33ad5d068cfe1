"""The JSON lines every traffic generator prints: ready; intervals, summary and histogram of each burst; detached.

xdpgen and the MoonGen scripts write the same lines, so adapters differ only in arguments.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from itertools import accumulate
from typing import Any, cast

from xdplab.absent import required
from xdplab.formats.reading import as_object, lines_of, object_of, record_of, refuse

TOOL = "generator"
UNIT = "ns"
SCHEME = "log-linear"
MAX_SUB_BITS = 16
Sizes = tuple[tuple[int, int], ...]
SENT, DUE, LATENESS, PROBES, DEVICE = "from_sent", "from_due", "lateness", "probes", "device"
STAMPED_BY_DEVICE = (PROBES, DEVICE)
"""Latencies from one stamp of a device to another: no schedule says when the device should have sent."""


@dataclass(frozen=True)
class GeneratorReady:
    """What the generator obtained. ``frame_bytes`` counts the FCS and is None if frames come from a file or
    have several sizes."""

    engine: str
    queues_reached: int
    cpus: tuple[int, ...]
    sched_policy: str
    frame_bytes: int | None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Every field of the line, including those above."""


@dataclass(frozen=True)
class GeneratorInterval:
    """Frames since the previous interval; ``t_s`` is its end, from the burst's start."""

    burst: str
    t_s: float
    tx_packets: int
    rx_packets: int | None


@dataclass(frozen=True, kw_only=True)
class SentFrames:
    """How the frames of a burst were sent.

    The device refused ``tx_errors`` of them. At maximum load the sender stood still for ``tx_pause_max_ns`` at most and
    for ``tx_paused_ns`` in total. ``tx_busy_cores``: CPUs that its threads kept busy. ``tx_bytes`` are counted, with
    FCS. ``tx_restored``: the sender writes each frame whole, because the program under test changed a payload;
    ``tx_unrestored_packets`` were sent before it noticed. ``tx_by_size``: pairs of a size with FCS and its frames, None
    if all frames have one size.
    """

    tx_errors: int | None
    tx_by_queue: tuple[int, ...]
    tx_pause_max_ns: int | None = None
    tx_paused_ns: int | None = None
    tx_busy_cores: float | None = None
    tx_late_max_ns: int | None = None
    tx_late_packets: int | None = None
    tx_restored: bool | None = None
    tx_unrestored_packets: int | None = None
    tx_bytes: int | None = None
    tx_by_size: Sizes | None = None


@dataclass(frozen=True, kw_only=True)
class ReceivedFrames:
    """What came back.

    ``rx_window_packets`` had arrived ``rx_window_s`` after the burst's start, at its end: the other ``rx_packets``
    drained from rings later.
    ``rx_flows`` counts the different flows among them, and ``rx_by_rank`` their frames, by ranks 1, 2 to 3, 4 to 7 and
    so on of the flows, where these are drawn or replaced. ``rx_bytes`` are their bytes, counted, with FCS.
    """

    rx_packets: int | None
    rx_by_queue: tuple[int, ...] | None
    rx_window_packets: int | None = None
    rx_window_s: float | None = None
    rx_bytes: int | None = None
    rx_by_size: Sizes | None = None
    rx_flows: int | None = None
    rx_by_rank: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class CheckedFrames:
    """What was wrong with the frames that came back, and with those that did not.

    ``lost_packets`` is tx_packets less the received ones without ``duplicates``. ``reordered`` ones came behind a
    higher number of their flow. ``foreign_bytes`` are the bytes of ``foreign_packets``, counted, with FCS.
    """

    lost_packets: int | None
    duplicates: int | None
    reordered: int | None
    foreign_packets: int | None
    bad_run_id: int | None
    stale_packets: int | None = None
    damaged_packets: int | None = None
    altered_packets: int | None = None
    foreign_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class PortCounts:
    """Counts of the generator's own port, if the generator owns it (DPDK), and the stamps of devices.

    ``probes_*`` are additional frames that a NIC stamps. ``rx_unstamped`` stamped frames came back without a stamp of
    the receiving device, if it was asked for them. The sending device told of ``tx_stamped`` frames when it sent them,
    and of ``tx_unstamped`` not, if it was asked; ``unmatched_stamps`` frames came back stamped, but have no stamp of
    sending, or came back too long after it. The stamped frames were drawn with ``stamp_seed``.
    """

    device_tx_packets: int | None = None
    device_rx_packets: int | None = None
    device_rx_missed: int | None = None
    probes_sent: int | None = None
    probes_lost: int | None = None
    bad_stamps: int | None = None
    rx_unstamped: int | None = None
    tx_stamped: int | None = None
    tx_unstamped: int | None = None
    unmatched_stamps: int | None = None
    stamp_seed: int | None = None


@dataclass(frozen=True)
class Summary(SentFrames, ReceivedFrames, CheckedFrames, PortCounts):
    """One burst, at rest: ``tx_packets`` were handed to the device. What was not counted is None, and ``missing`` says
    why, by field."""

    burst: str
    duration_s: float
    tx_packets: int
    rate_requested_pps: float | None
    limited: str | None
    interrupted: bool = False
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def counted_s(self) -> float | None:
        """The time of ``rx_window_packets``; ``duration_s`` for a count over 1 % late after which no frame came."""
        idle = self.rx_window_packets == self.rx_packets  # the DUT, when they were counted
        return self.duration_s if idle and (self.rx_window_s or 0) > 1.01 * self.duration_s else self.rx_window_s

    def required(self, name: str, otherwise: str) -> Any:
        """Return a field. Raises Absent with the generator's own reason where it is None, or with ``otherwise``."""
        return required(getattr(self, name), self.missing.get(name, otherwise))


@dataclass(frozen=True)
class Histogram:
    """Times in ns: (smallest value, count) of each bucket that is not empty, ascending.

    ``of`` says which: latencies ``from_sent`` or, at a paced load, ``from_due`` (when the frame should have been sent),
    the sender's ``lateness`` (the difference of the two), latencies of ``probes`` that a NIC sent and stamped
    itself, or those of frames that the ``device`` stamped when it sent and received them.

    Values below 2**sub_bits have a bucket each; above it every octave has 2**sub_bits buckets. Counts, ``min``, ``max``
    and ``sum`` are exact.
    """

    burst: str
    sub_bits: int
    count: int
    min: int | None
    max: int | None
    sum: int
    buckets: tuple[tuple[int, int], ...]
    of: str = SENT

    @property
    def mean(self) -> float | None:
        """The exact mean in ns; None if empty."""
        return self.sum / self.count if self.count else None

    def percentile(self, q: float) -> float | None:
        """Return the ``q``-th percentile (0 to 100, nearest rank) in ns; None if empty.

        The rank is exact; the value is the middle of its bucket, at most 2**-(sub_bits + 1) off (0.4 % at 7 bits), and
        never outside ``min`` and ``max``.
        """
        if not 0 <= q <= 100:
            raise ValueError(f"a percentile lies between 0 and 100: {q}")
        if self.min is None or self.max is None:
            return None
        # In decimal: 99.9 % of 4,000 are 3,996; binary fractions give 3,997.
        rank = max(1, math.ceil(Fraction(str(q)) * self.count / 100))
        if rank == self.count:
            return float(self.max)
        index = bisect_left(list(accumulate(count for _, count in self.buckets)), rank)
        lower = self.buckets[index][0]
        middle = lower + (bucket_width(lower, self.sub_bits) - 1) / 2
        return float(min(max(middle, self.min), self.max))

    def merge(self, other: Histogram) -> Histogram:
        """Return the histogram of both. Raises ValueError if they are of different things or widths."""
        if self.of != other.of:
            raise ValueError(f"histograms of {self.of} and of {other.of} do not add up")
        if self.sub_bits != other.sub_bits:
            raise ValueError(f"histograms of {self.sub_bits} and {other.sub_bits} bits do not add up")
        counts = dict(self.buckets)
        for lower, count in other.buckets:
            counts[lower] = counts.get(lower, 0) + count
        return Histogram(
            burst=self.burst if self.burst == other.burst else f"{self.burst}+{other.burst}",
            sub_bits=self.sub_bits,
            count=self.count + other.count,
            min=min((h.min for h in (self, other) if h.min is not None), default=None),
            max=max((h.max for h in (self, other) if h.max is not None), default=None),
            sum=self.sum + other.sum,
            buckets=tuple(sorted(counts.items())),
            of=self.of,
        )


@dataclass(frozen=True)
class Failure:
    """The generator gave up: at which step, and why. ``error`` is the errno's name, if the kernel refused something.

    ``log`` has the messages of libbpf and the verifier about a BPF object; None if they were not involved.
    """

    step: str
    message: str
    error: str | None = None
    log: str | None = None


@dataclass(frozen=True)
class Detached:
    """It has released everything; ``bursts`` were completed."""

    bursts: int


@dataclass(frozen=True)
class Released:
    """A group of bursts ends here, and the generator keeps running; ``bursts`` were completed since the last such
    line."""

    bursts: int


@dataclass(frozen=True)
class Burst:
    """One burst with everything that was printed about it.

    ``histogram`` has the latencies from sending, of frames or of a NIC's probes. Those from the due time, and the
    sender's ``lateness``, are None at maximum load, which has no due times, and if the generator did not record them.
    ``ways``: the bursts of two directions that this one is the sum of.
    """

    name: str
    intervals: tuple[GeneratorInterval, ...]
    summary: Summary
    histogram: Histogram
    from_due: Histogram | None = None
    lateness: Histogram | None = None
    ways: tuple[Burst, ...] = ()

    @property
    def latency(self) -> Histogram | None:
        """The headline: at a paced load from the due time (None if that was not recorded), else from sending.

        No schedule says when a device should have sent what it stamps.
        """
        unpaced = self.summary.rate_requested_pps is None or self.histogram.of in STAMPED_BY_DEVICE
        return self.histogram if unpaced else self.from_due


@dataclass(frozen=True)
class Output:
    """A whole output. ``failure`` is None unless the generator itself said that it failed."""

    ready: GeneratorReady | None
    bursts: tuple[Burst, ...]
    failure: Failure | None = None


Record = GeneratorReady | GeneratorInterval | Summary | Histogram | Failure | Detached | Released

_TYPES: dict[type, str] = {
    GeneratorReady: "ready",
    GeneratorInterval: "interval",
    Summary: "summary",
    Histogram: "histogram",
    Failure: "error",
    Detached: "detached",
    Released: "released",
}
_KINDS = {name: kind for kind, name in _TYPES.items()}


def kind_of_line(record: Record) -> str:
    """Return the ``type`` that the generator's line of this record carries."""
    return _TYPES[type(record)]


def bucket_width(lower: int, sub_bits: int) -> int:
    """Return how many values share the bucket that begins at ``lower``."""
    return 1 << max(0, lower.bit_length() - 1 - sub_bits)


def parse_output(data: bytes | str) -> Output:
    """Return everything a generator printed.

    Raises FormatError with the line number if a line is not a generator's, or if the output stops before the last line:
    then the generator was killed, and its last lines are not trustworthy.
    """
    lines = lines_of(data, TOOL)
    output = assemble(parse_line(line, number) for number, line in enumerate(lines, 1))
    if output is None:
        refuse(TOOL, "the output stops here (the generator was killed?)", line=len(lines), text=lines[-1])
    return output


def assemble(records: Iterable[Record]) -> Output | None:
    """Assemble records in their order; None if the last one is missing. Raises FormatError on another order."""
    ready: GeneratorReady | None = None
    bursts: list[Burst] = []
    pending = BurstBuilder()
    end: Failure | Detached | Released | None = None
    for number, record in enumerate(records, 1):
        if end is not None:
            refuse(TOOL, "a line after the last one", line=number)
        if isinstance(record, Failure | Detached | Released):
            end = record
        elif isinstance(record, GeneratorReady):
            if number > 1:
                refuse(TOOL, "a second beginning", line=number)
            ready = record
        elif ready is None:
            refuse(TOOL, "not a generator's output: it begins with a ready line", line=number)
        elif burst := pending.take(record, number):
            bursts.append(burst)
    return _finished(ready, tuple(bursts), end, pending)


def _finished(
    ready: GeneratorReady | None,
    bursts: tuple[Burst, ...],
    end: Failure | Detached | Released | None,
    pending: BurstBuilder,
) -> Output | None:
    if isinstance(end, Failure):
        return Output(ready, bursts, end)
    if end is None:
        return None
    if ready is None or end.bursts != len(bursts) or pending.begun:
        refuse(TOOL, f"{len(bursts)} whole bursts, not {end.bursts} as the last line says")
    return Output(ready, bursts)


class BurstBuilder:
    """Takes the lines of bursts one by one, and returns each burst when its last line has come."""

    def __init__(self) -> None:
        self._intervals: list[GeneratorInterval] = []
        self._summary: Summary | None = None
        self._others: dict[str, Histogram] = {}

    @property
    def begun(self) -> bool:
        """Whether a burst is incomplete."""
        return bool(self._intervals or self._summary)

    def take(self, record: GeneratorInterval | Summary | Histogram, number: int | None = None) -> Burst | None:
        """Add one line; return the burst that it completes. Raises FormatError if the line is out of order."""
        self._require_same_burst(record.burst, number)
        if isinstance(record, Histogram) and self._summary is not None and record.of not in self._others:
            return self._take_histogram(record, self._summary)
        if isinstance(record, Histogram) or self._summary is not None:
            refuse(TOOL, f"a {kind_of_line(record)} line out of order", line=number)
        if isinstance(record, Summary):
            self._summary = record
        else:
            self._intervals.append(record)
        return None

    def _take_histogram(self, record: Histogram, summary: Summary) -> Burst | None:
        """The latencies from sending come last."""
        if record.of not in (SENT, *STAMPED_BY_DEVICE):
            self._others[record.of] = record
            return None
        others = self._others
        burst = Burst(record.burst, tuple(self._intervals), summary, record, others.get(DUE), others.get(LATENESS))
        self._intervals, self._summary, self._others = [], None, {}
        return burst

    def _require_same_burst(self, name: str, number: int | None) -> None:
        before = self._summary or (self._intervals[0] if self._intervals else None)
        if before is not None and before.burst != name:
            refuse(TOOL, f"burst {name!r} before the end of {before.burst!r}", line=number)


def parse_line(line: str, number: int | None = None) -> Record:
    """Return the record of one line. Raises FormatError naming ``number`` if it is not a generator's line."""
    return record_of_line(object_of(line, TOOL, line=number), number)


def record_of_line(line: dict[str, object], number: int | None = None) -> Record:
    """Return the record of a line's JSON object, as `parse_line`."""
    kind = _KINDS.get(str(line.get("type")))
    if kind is None:
        refuse(TOOL, "not a line of a traffic generator", line=number, text=repr(line))
    if kind is Summary:
        line = line | {"missing": _reasons(line, number)}
    record = cast("Record", record_of(kind, line, TOOL, line=number))
    if isinstance(record, GeneratorReady):
        return replace(record, settings={key: value for key, value in line.items() if key != "type"})
    if isinstance(record, Histogram):
        if (line.get("unit"), line.get("scheme")) != (UNIT, SCHEME) or record.sub_bits > MAX_SUB_BITS:
            refuse(TOOL, "a histogram of another kind", line=number)
        if record.of not in (SENT, DUE, LATENESS, *STAMPED_BY_DEVICE):
            refuse(TOOL, f"a histogram of something else: {record.of}", line=number)
        if wrong := _contradiction(record):
            refuse(TOOL, f"a histogram that contradicts itself: {wrong}", line=number)
    return record


_OF_RECEIVER = (
    *(one.name for part in (ReceivedFrames, CheckedFrames) for one in fields(part)),
    "bad_stamps",
    "rx_unstamped",
)
_SHARED_REASONS = {"rx_missing": _OF_RECEIVER, "tx_errors_missing": ("tx_errors",)}
"""A line's reasons, each for all fields that one thing would have counted."""


def _reasons(line: dict[str, object], number: int | None) -> dict[str, object]:
    """Return why fields of a summary are null, by field."""
    reasons = as_object({} if line.get("missing") is None else line["missing"], TOOL, line=number)
    shared = {name: line[key] for key, names in _SHARED_REASONS.items() if line.get(key) is not None for name in names}
    return {**shared, **reasons}


def _contradiction(histogram: Histogram) -> str | None:
    """Return how a histogram contradicts itself, or None."""
    h, lowers = histogram, [lower for lower, _ in histogram.buckets]
    if sum(count for _, count in h.buckets) != h.count:
        return "the buckets hold another number than `count`"
    if lowers != sorted(set(lowers)) or any(count == 0 for _, count in h.buckets):
        return "its buckets are not in order"
    if any(lower % bucket_width(lower, h.sub_bits) for lower in lowers):
        return "a bucket begins at an invalid value"
    if not h.count:
        nothing = (h.min, h.max, h.sum) == (None, None, 0)
        return None if nothing else "a smallest or largest value, or a sum, of an empty histogram"
    if h.min is None or h.max is None:
        return "values without smallest or largest"
    ends = ((lowers[0], h.min), (lowers[-1], h.max))
    if any(not lower <= value < lower + bucket_width(lower, h.sub_bits) for lower, value in ends):
        return "`min` or `max` lies outside its bucket"
    if not h.count * h.min <= h.sum <= h.count * h.max:
        return "`sum` is not possible with these values"
    return None
