"""The time that both hosts saw: sar ran before the traffic began and ended before it did.

Two counts of the same frames can be compared over the same seconds only: a rate that changed after sar's end is no
disagreement.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isnan, nan

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xdplab.thesis.digest import SarDigest
from xdplab.thesis.generator_log import COLUMNS

Array = NDArray[np.float64]
Rows = NDArray[np.float64]
QUIET_PPS = 100.0  # what an idle network says by itself
QUIET_SHARE = 0.05  # of the busiest sample
GAP_STEPS = 1.5  # from one sample to the next: then one is missing
SETTLING_S = 1.0  # of the sender's first second, in which nothing has come back yet
TX_TIME, TX_PACKETS, RX_TIME, RX_PACKETS = (
    COLUMNS.index(name) for name in ("tx_time_s", "tx_packets", "rx_time_s", "rx_packets")
)


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


def counters_of(rows: Rows) -> Counters:
    """Return the counters in a run's rows."""
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
