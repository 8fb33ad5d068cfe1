"""The logs of one trial → columns of samples.parquet: one row per second of the generator, one per sample of sar.

The window of a trial is the time that both hosts saw: sar ran before the traffic began and ended before it did.

Two counts of the same frames can be compared over the same seconds only: a rate that changed after sar's end is no
disagreement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import isnan, nan
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from xdplab.thesis.columns import SAMPLE_COLUMNS
from xdplab.thesis.digest import SarDigest
from xdplab.thesis.generator_log import COLUMNS, GeneratorRun
from xdplab.thesis.tool_logs import CPU_SHARES

Floats = NDArray[np.floating[Any]]
HOSTS = ("tg", "dut")
_SECOND, _MEAN = COLUMNS.index("second"), COLUMNS.index("latency_mean_s")
TX_TIME, TX_PACKETS, RX_TIME, RX_PACKETS = (
    COLUMNS.index(name) for name in ("tx_time_s", "tx_packets", "rx_time_s", "rx_packets")
)
_SHARE_COLUMNS = {f"{share}_percent": place for place, share in enumerate(CPU_SHARES)}


@dataclass(frozen=True, eq=False)
class TrialSamples:
    """Rows of one trial's attempt and host; columns that are absent are null."""

    trial_id: str
    attempt: int
    host: str
    columns: Mapping[str, Floats]

    def __len__(self) -> int:
        return len(self.columns["t_s"])


def generator_part(trial_id: str, attempt: int, run: GeneratorRun) -> TrialSamples:
    """One row per second: frames sent and received in it, the printed running mean, and the second's own latency."""
    rows = run.rows
    columns = {
        "t_s": rows[:, _SECOND],
        "tx_packets": _growth(rows[:, TX_PACKETS]),
        "rx_packets": _growth(rows[:, RX_PACKETS]),
        "latency_mean_s": rows[:, _MEAN],
        "latency_s": run.seconds_s,
    }
    return TrialSamples(trial_id, attempt, "tg", columns)


def _growth(values: Floats) -> Floats:
    """Return what each value has more than the one before it, and the first than 0; np.diff takes ten times as long."""
    more = values.copy()
    more[1:] -= values[:-1]
    return more


def sar_parts(trial_id: str, attempt: int, sar: SarDigest, busy: Busy | None) -> list[TrialSamples]:
    """One row per sample and CPU, and one per sample of the interface that carried the traffic.

    Times count from the traffic's start as sar saw it (samples before it are negative), from sar's own without any.
    """
    t_s = sar.t_s - (busy.start_s if busy else 0.0)
    samples, cpus, _ = sar.shares.shape
    step = _growth(sar.t_s)
    step = np.where(step > GAP_STEPS * sar.step_s, sar.step_s, step)  # a sample is missing before it
    by_cpu: dict[str, Floats] = {"t_s": np.repeat(t_s, cpus), "cpu": np.tile(np.arange(cpus, dtype=float), samples)}
    by_cpu |= {name: sar.shares[:, :, place].ravel() for name, place in _SHARE_COLUMNS.items()}
    frames = {"t_s": t_s, "tx_packets": np.rint(sar.tx_pps * step), "rx_packets": np.rint(sar.rx_pps * step)}
    return [TrialSamples(trial_id, attempt, "dut", by_cpu), TrialSamples(trial_id, attempt, "dut", frames)]


PARTS = 240  # in one table: as much as fits a few MB


def samples_tables(parts: Iterable[TrialSamples]) -> Iterator[pa.Table]:
    """Yield the parts as tables with SCHEMA, some of them at a time: all together take hundreds of MB."""
    rest = iter(parts)
    while some := list(islice(rest, PARTS)):
        yield _table(some)


def _table(parts: Sequence[TrialSamples]) -> pa.Table:
    """Return the parts as one table: whole columns at a time, a row at a time takes minutes."""
    sizes = [len(part) for part in parts]
    ids = list(dict.fromkeys(part.trial_id for part in parts))
    places = {name: place for place, name in enumerate(ids)}
    codes = np.repeat(np.array([places[part.trial_id] for part in parts], np.int32), sizes)
    columns = {
        "trial_id": pa.DictionaryArray.from_arrays(codes, pa.array(ids)),
        "attempt": pa.array(np.repeat(np.array([part.attempt for part in parts], np.int64), sizes)),
        "burst": pa.DictionaryArray.from_arrays(np.zeros(len(codes), np.int32), pa.array(["rate"])),
        "host": pa.DictionaryArray.from_arrays(
            np.repeat(np.array([HOSTS.index(part.host) for part in parts], np.int32), sizes), pa.array(HOSTS)
        ),
    }
    named = {name for part in parts for name in part.columns}
    for field in SCHEMA:
        if field.name not in columns:
            column = _column(parts, sizes, field.name) if field.name in named else None
            columns[field.name] = (
                pa.nulls(len(codes), field.type)
                if column is None
                else pa.array(column, from_pandas=True).cast(field.type, safe=False)
            )
    return pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _type(name: str, dtype: str) -> pa.DataType:
    if dtype == "str":
        return pa.dictionary(pa.int32(), pa.string())
    if dtype == "int":
        return pa.int64()
    return pa.float32() if name.endswith("_percent") else pa.float64()


SCHEMA = pa.schema([(metric.name, _type(metric.name, metric.dtype)) for metric in SAMPLE_COLUMNS])


def _column(parts: Sequence[TrialSamples], sizes: Sequence[int], name: str) -> Floats:
    values: Floats = np.full(sum(sizes), np.nan, dtype=np.float32 if name.endswith("_percent") else np.float64)
    for end, size, part in zip(np.cumsum(sizes), sizes, parts, strict=True):
        if name in part.columns:
            values[end - size : end] = part.columns[name]
    return values


Array = NDArray[np.float64]
QUIET_PPS = 100.0  # what an idle network says by itself
QUIET_SHARE = 0.05  # of the busiest sample
GAP_STEPS = 1.5  # from one sample to the next: then one is missing
SETTLING_S = 1.0  # of the sender's first second, in which nothing has come back yet


@dataclass(frozen=True)
class Busy:
    """The samples of sar that lie wholly in the traffic: their ``places``, and the traffic's start on sar's clock."""

    places: NDArray[np.int64]
    start_s: float


@dataclass(frozen=True)
class WindowCount:
    """Frames counted over ``seconds``; NaN if there was no counter."""

    seconds: float
    tx: float
    rx: float
    dut_rx: float
    dut_tx: float

    @property
    def rx_pps(self) -> float:
        return self.rx / self.seconds if self.seconds else nan

    @property
    def dut_tx_pps(self) -> float:
        return self.dut_tx / self.seconds if self.seconds else nan


def busy_samples(sar: SarDigest) -> Busy | None:
    """Return the samples within the traffic, or None if the interface stayed quiet.

    The first sample with traffic holds a part of it: its share of the next one's rate tells when the traffic began.
    """
    rx = np.where(np.isnan(sar.rx_pps), 0.0, sar.rx_pps)
    loud = np.flatnonzero(rx > max(QUIET_PPS, QUIET_SHARE * rx.max(initial=0.0)))
    if len(loud) < 3:
        return None
    first, last = int(loud[0]), int(loud[-1])
    step = sar.step_s
    share = min(1.0, rx[first] / rx[first + 1]) if rx[first + 1] else 1.0
    end = last + 1 if last == len(rx) - 1 else last  # quiet again: the last loud sample holds the end
    places = np.arange(first + 1, end)
    return Busy(places, float(sar.t_s[first] - step * share)) if len(places) else None


@dataclass(frozen=True, eq=False)
class Counters:
    """The generator's two cumulative counters, as (times, frames) where both are known, from 0 at 0 on.

    ``end_s``: the last row of the one that was counted for the shorter time; None without any.
    """

    tx: tuple[Array, Array]
    rx: tuple[Array, Array]
    end_s: float | None


def counters_of(rows: Array) -> Counters:
    ends = [float(times[-1]) for column in (TX_TIME, RX_TIME) if len(times := _finite(rows[:, column]))]
    tx, rx = (_growing(rows[:, times], rows[:, packets]) for times, packets in _COUNTERS)
    return Counters(tx, rx, min(ends) if ends else None)


def counted(counters: Counters | None, sar: SarDigest | None, busy: Busy | None) -> WindowCount:
    """Return the frames both hosts counted over the seconds that both saw, or over those of the one that did."""
    if sar is not None and busy is not None:
        places, spans = _seen(sar, busy)
        dut = [float(rate[places].sum()) * sar.step_s for rate in (sar.rx_pps, sar.tx_pps)]
        seconds = sum(end - begin for begin, end in spans)
        if counters is None:
            return WindowCount(seconds, nan, nan, *dut)
        tx, rx = (sum(_between(counter, span) for span in spans) for counter in (counters.tx, counters.rx))
        return WindowCount(seconds, tx, rx, *dut)
    quiet = 0.0 if sar is not None and not np.isnan(sar.rx_pps).all() else nan
    if counters is None:
        return WindowCount(0.0, nan, nan, quiet, quiet)
    return replace(whole_run(counters), dut_rx=quiet, dut_tx=quiet)


def _seen(sar: SarDigest, busy: Busy) -> tuple[NDArray[np.int64], list[tuple[float, float]]]:
    """Return the samples within the traffic whose rates are known, and the times that they cover, from its start on.

    What lies in a sample that was damaged or is missing was counted by one host alone.
    """
    counted_rows = ~(np.isnan(sar.rx_pps[busy.places]) | np.isnan(sar.tx_pps[busy.places]))
    places, step = busy.places[counted_rows], sar.step_s
    ends = sar.t_s[places]
    apart = np.flatnonzero(np.diff(ends) > GAP_STEPS * step) + 1
    parts = [part for part in np.split(ends, apart) if len(part)]
    return places, [(float(part[0]) - step - busy.start_s, float(part[-1]) - busy.start_s) for part in parts]


def whole_run(counters: Counters) -> WindowCount:
    """Return the frames that the generator counted from its first second on to its end: sar ends 20 s before it."""
    span = (SETTLING_S, max(SETTLING_S, counters.end_s)) if counters.end_s is not None else (0.0, 0.0)
    return WindowCount(span[1] - span[0], _between(counters.tx, span), _between(counters.rx, span), nan, nan)


def sum_of_known(values: Array) -> float:
    """Return the sum of what is known; np.nansum takes twice as long for a few values."""
    return float(np.where(np.isnan(values), 0.0, values).sum())


_ZERO = np.zeros(1)
_COUNTERS = ((TX_TIME, TX_PACKETS), (RX_TIME, RX_PACKETS))


def _finite(values: Array) -> Array:
    return values[~np.isnan(values)]


def _growing(times: Array, frames: Array) -> tuple[Array, Array]:
    """Return the counter where it is known, and 0 before: it began with the traffic."""
    counted_rows = ~(np.isnan(times) | np.isnan(frames))
    return np.concatenate([_ZERO, times[counted_rows]]), np.concatenate([_ZERO, frames[counted_rows]])


def _between(counter: tuple[Array, Array], span: tuple[float, float]) -> float:
    """Return the growth of a cumulative counter between two times, NaN if it was not read around them."""
    times, frames = counter
    if len(times) < 3 or span[1] > times[-1] + 1.0 or isnan(span[0]) or isnan(span[1]):
        return nan
    low, high = np.interp(span, times, frames)
    return float(high - low)


# --- whether a rate stayed the same during the measurement: one rule for a trial's intervals of either side ---

STEP_SHARE = 0.10  # of the rate of the whole: a step that matters
LEAST_SHARE = 0.15  # of the intervals on either side: a shorter stretch is a hiccup, not another rate
LEAST_INTERVALS = 3
EVEN = 1 - 1e-9  # rounding aside
SPREADS = 4.0  # the step in standard deviations of the intervals around their own side's mean


@dataclass(frozen=True)
class RateStep:
    """A change of rate: ``before`` and ``after`` it, in the unit given; ``place`` is the first interval behind it."""

    place: int
    before: float
    after: float

    @property
    def share(self) -> float:
        """The change as a share of the rate before it."""
        return self.after / self.before - 1 if self.before else float("inf")


def step_in(rates: ArrayLike) -> RateStep | None:
    """Return the step that best splits ``rates`` (one per interval of equal length), or None if they are stationary.

    The place is that of least squares; the step counts if it is more than STEP_SHARE of the mean and SPREADS standard
    deviations within the two sides. NaN are ignored.
    """
    all_rates = np.asarray(rates, dtype=float)
    counted_rows = np.flatnonzero(~np.isnan(all_rates))
    values = all_rates[counted_rows]
    n, least = len(values), max(LEAST_INTERVALS, int(np.ceil(LEAST_SHARE * len(values))))
    mean = values.mean() if n >= 2 * least else 0.0
    # Means of two sides lie between the least and the most: most rates are so even that no step can be.
    if mean <= 0 or np.ptp(values) < EVEN * STEP_SHARE * mean:
        return None
    sizes = np.arange(1, n)
    sums = np.cumsum(values)[:-1]
    before, after = sums / sizes, (values.sum() - sums) / (n - sizes)
    gain = sizes * (n - sizes) / n * (before - after) ** 2
    cut = least + int(np.argmax(gain[least - 1 : n - least]))
    low, high = float(before[cut - 1]), float(after[cut - 1])
    spread = float(np.sqrt(((values - np.where(np.arange(n) < cut, low, high)) ** 2).sum() / (n - 2)))
    if abs(high - low) <= STEP_SHARE * mean or abs(high - low) <= SPREADS * spread:
        return None
    return RateStep(int(counted_rows[cut]), low, high)
