"""The tests of RFC 2544 besides throughput: latency at it, frame loss rate, back-to-back frames (by RFC 9004)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import mean, median, stdev

from xdplab.studies.search.mlr import Offer
from xdplab.studies.search.profile import Profile

LOSSLESS_IN_TURN = 2
"""The curve ends after so many consecutive loads without loss (RFC 2544, 26.3)."""

_SEARCH_STEPS = 40
"""Most bursts of one back-to-back search: each halves the range, so a search that needs more does not converge."""


@dataclass(frozen=True)
class MeanLatency:
    """Latency at the throughput rate in ns: the mean (the value to report), the least and the greatest of the
    repetitions' means over their stamped frames."""

    load_pps: float
    repetitions: int
    mean_ns: float
    least_ns: float
    greatest_ns: float


@dataclass(frozen=True)
class LossAt:
    """One load of the loss curve: the requested share of the maximum rate, and the frames offered and lost."""

    share: float
    offered_pps: float
    sent: int
    received: int
    loss_ratio: float


@dataclass(frozen=True)
class BackToBack:
    """The longest bursts at full rate that lost no frame, one per repetition, in frames.

    ``step_frames`` is the largest distance, over all repetitions, between the longest burst without loss and the
    shortest one with loss. ``buffer_s`` is the corrected DUT buffer time of RFC 9004, 6.4; None without a throughput.
    """

    frames: tuple[int, ...]
    rate_pps: float
    longest_s: float
    step_frames: int
    buffer_s: float | None

    @property
    def mean(self) -> float:
        return mean(self.frames)

    @property
    def sd(self) -> float | None:
        return stdev(self.frames) if len(self.frames) > 1 else None


@dataclass(frozen=True)
class Rfc2544:
    """The tests of one frame size; ``max_pps`` is the maximum rate of the link, or of the generator if it has none.

    A result that could not be measured is None; ``missing`` has the reason by its name.
    """

    max_pps: float
    max_is: str
    latency: MeanLatency | None
    loss: tuple[LossAt, ...]
    back_to_back: BackToBack | None
    missing: dict[str, str]


def rfc2544(
    offer: Offer, profile: Profile, *, throughput_pps: float | None, generator_pps: float, medium_pps: float | None
) -> Rfc2544:
    """Run the tests of one frame size whose throughput has been found; rates in frames per second."""
    missing: dict[str, str] = {}
    max_pps = medium_pps or generator_pps
    latency = None
    if throughput_pps is None:
        missing["latency"] = missing["buffer"] = "there is no throughput: the lowest load lost frames"
    elif not profile.latency_repeats:
        missing["latency"] = "not requested: --no-latency"
    elif (latency := latency_at(offer, throughput_pps, profile.latency_s, profile.latency_repeats)) is None:
        missing["latency"] = "no frame was stamped"
    assert profile.rfc2544 is not None
    tests = profile.rfc2544
    loss = loss_curve(offer, max_pps, tests.loss_step, tests.loss_s)
    bursts = back_to_back(
        offer,
        throughput_pps,
        longest_s=tests.burst_s,
        repeats=tests.burst_repeats,
        width=profile.width,
        rest_s=tests.rest_s,
    )
    if bursts is None:
        missing["back_to_back"] = f"a burst of {tests.burst_s:g} s at the full rate lost no frame"
    return Rfc2544(
        max_pps=max_pps,
        max_is="link" if medium_pps else "generator",
        latency=latency,
        loss=loss,
        back_to_back=bursts,
        missing=missing,
    )


def latency_at(offer: Offer, rate_pps: float, seconds: float, repeats: int) -> MeanLatency | None:
    """Return the latency at a load (RFC 2544, 26.2); None if a repetition has no stamped frame."""
    histograms = [offer(rate_pps, seconds).latencies for _ in range(repeats)]
    means = [one.mean for one in histograms if one is not None and one.mean is not None]
    if len(means) < repeats:
        return None
    return MeanLatency(rate_pps, repeats, mean(means), min(means), max(means))


def loss_curve(offer: Offer, max_pps: float, step: float, seconds: float) -> tuple[LossAt, ...]:
    """Offer 100 % of ``max_pps``, then ``step`` less each time, until two consecutive loads lose no frame (26.3)."""
    losses: list[LossAt] = []
    for at in range(round(1 / step)):
        share = round(1 - at * step, 9)
        burst = offer(None if at == 0 else share * max_pps, seconds)
        losses.append(LossAt(share, burst.offered_pps, burst.sent, burst.received, burst.loss_ratio))
        last = losses[-LOSSLESS_IN_TURN:]
        if len(last) == LOSSLESS_IN_TURN and not any(one.loss_ratio for one in last):
            break
    return tuple(losses)


def back_to_back(
    offer: Offer, throughput_pps: float | None, *, longest_s: float, repeats: int, width: float, rest_s: float
) -> BackToBack | None:
    """Search the longest burst without loss (26.4), anew in each repetition, to ``width`` of its length.

    ``rest_s`` passes after each burst, for the DUT's buffers to drain. None if the DUT loses nothing in ``longest_s``:
    then no burst fills its buffers (RFC 9004, 6.1).
    """
    searched = [_longest(offer, longest_s, width, rest_s) for _ in range(repeats)]
    lengths = [one for one in searched if one is not None]
    if len(lengths) < repeats:
        return None
    frames = tuple(good for good, _, _ in lengths)
    rate = median(rate for _, _, rate in lengths)
    implied_s = mean(frames) / rate
    return BackToBack(
        frames=frames,
        rate_pps=rate,
        longest_s=longest_s,
        step_frames=max(bad - good for good, bad, _ in lengths),
        buffer_s=None if throughput_pps is None else implied_s * (1 - min(1.0, throughput_pps / rate)),
    )


def _longest(offer: Offer, longest_s: float, width: float, rest_s: float) -> tuple[int, int, float] | None:
    """Return the longest burst without loss, the shortest with loss, both in frames, and the bursts' rate."""
    whole = offer(None, longest_s)
    if whole.received >= whole.sent:
        return None
    rate, good, bad = whole.offered_pps, 0, whole.sent
    for _ in range(_SEARCH_STEPS):
        time.sleep(rest_s)
        if bad - good <= max(1.0, width * bad):
            break
        burst = offer(None, (good + bad) / 2 / rate)
        if not good < burst.sent < bad:
            break  # the generator cannot send a burst between these two
        if burst.received >= burst.sent:
            good = burst.sent
        else:
            bad = burst.sent
    return good, bad, rate
