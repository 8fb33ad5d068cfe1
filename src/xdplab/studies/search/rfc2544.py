"""The tests of RFC 2544 besides throughput: latency at it, frame loss rate, back-to-back frames (by RFC 9004).

NDR and PDR by MLRsearch (draft-ietf-bmwg-mlrsearch), the package of its authors; and what a search needs from a lab:
offer a rate for a time, and return the received frames.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import mean, median, stdev
from typing import Any

from xdplab.analysis.count_rules import rewritten
from xdplab.errors import HostError
from xdplab.formats.generator import Burst, Histogram
from xdplab.lazy import lazily
from xdplab.studies.search.profile import Profile

with lazily():  # loading it takes 0.2 to 1 s, and reading any run loads this module
    import MLRsearch

MIN_SHARE = 1e-3
"""The lowest offered load, as a share of the highest. A DUT that loses frames there has no useful throughput."""


@dataclass(frozen=True)
class Bounds:
    """One goal's result in frames per second: the highest load that meets it, the lowest that does not.

    A null ``lower`` means that even the lowest load offered lost too much, a null ``upper`` that the highest did not.
    """

    loss_ratio: float
    lower_pps: float | None
    upper_pps: float | None
    throughput_pps: float | None


@dataclass
class _Measurer:
    """An AbstractMeasurer of the package, in all but the base class."""

    offer: Offer
    bursts: list[dict[str, Any]] = field(default_factory=list)

    def measure(self, intended_duration: float, intended_load: float) -> MLRsearch.MeasurementResult:
        offered = self.offer(intended_load, intended_duration)
        self.bursts.append(_burst(intended_load, offered))
        return MLRsearch.MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=offered.sent,
            forwarding_count=offered.received,
            intended_count=max(offered.sent, round(intended_load * intended_duration)),
            offered_duration=offered.seconds,
        )


@dataclass(frozen=True)
class Searched:
    """The results of both goals, and all bursts of the search."""

    ndr: Bounds
    pdr: Bounds
    bursts: tuple[dict[str, Any], ...]

    def of_the_sender(self, goal: Bounds) -> bool:
        """True if the TG, not the DUT, made the goal's upper bound.

        Frames that were not sent count as lost in a search, as do those that came back and the TG's port did not take.
        If the DUT lost too many of what was sent in no burst at the bound, the TG offered or took too few; if it did,
        but no more than were sent late, it got them in bunches.
        """
        if goal.upper_pps is None:
            return False
        at_bound = [b for b in self.bursts if 0.999 < b["load_pps"] / goal.upper_pps < 1.001]
        lost = [(b["sent"] - b["received"] - b["missed"], b) for b in at_bound]
        losing = [(of_dut, b["late"]) for of_dut, b in lost if of_dut > b["sent"] * goal.loss_ratio]
        return bool(at_bound) and all(late is not None and of_dut <= late for of_dut, late in losing)


def search(offer: Offer, profile: Profile, *, max_pps: float) -> Searched:
    """Search NDR and PDR up to ``max_pps``, the most the generator can offer.

    Raises HostError if the search did not end in the profile's time: then both are unknown.
    """
    goals = [_goal(loss, profile) for loss in (profile.ndr_loss, profile.pdr_loss)]
    config = MLRsearch.Config()
    config.goals = goals
    config.max_load, config.min_load = max_pps, max_pps * MIN_SHARE
    config.search_duration_max, config.warmup_duration = profile.search_max_s, profile.initial_s
    measurer = _Measurer(offer)
    try:
        results = MLRsearch.MultipleLossRatioSearch(config=config).search(measurer=measurer, debug=lambda text: None)
    except RuntimeError as error:
        raise HostError(f"MLRsearch gave up after {len(measurer.bursts)} bursts: {error}") from error
    ndr, pdr = (_bounds(goal, results[goal]) for goal in goals)
    return Searched(ndr, pdr, tuple(measurer.bursts))


def _goal(loss_ratio: float, profile: Profile) -> MLRsearch.SearchGoal:
    return MLRsearch.SearchGoal(
        loss_ratio=loss_ratio,
        exceed_ratio=profile.exceed,
        relative_width=profile.width,
        initial_trial_duration=profile.initial_s,
        final_trial_duration=profile.final_s,
        duration_sum=profile.sum_s,
        fail_fast=False,
    )


def _bounds(goal: MLRsearch.SearchGoal, result: Any) -> Bounds:
    loads = (result.relevant_lower_bound, result.relevant_upper_bound, result.conditional_throughput)
    return Bounds(goal.loss_ratio, *(None if load is None else float(load) for load in loads))


def _burst(load: float, offered: Offered) -> dict[str, Any]:
    counts = {"sent": offered.sent, "received": offered.received, "late": offered.late, "missed": offered.missed}
    return {"load_pps": load, "seconds": offered.seconds, **counts}


@dataclass(frozen=True)
class Offered:
    """One burst: frames sent and received, its length in s, and the latencies of the stamped ones, at a rate from the
    time each was due.

    ``late`` frames were sent behind their time and then in a bunch; None if the generator does not count them.
    ``rate_pps`` is the rate at which frames came back until the burst ended: those that drained from rings later are
    received, and in no rate. None if the generator did not count them apart. ``missed`` frames did not arrive, but the
    DUT sent them back: the ring of the TG's port was full.
    """

    sent: int
    received: int
    seconds: float
    latencies: Histogram | None = None
    late: int | None = None
    rate_pps: float | None = None
    missed: int = 0

    @classmethod
    def of(cls, burst: Burst, missed: int = 0, *, own_program: bool = False, cable: bool = False) -> Offered:
        """Make it from a generator's burst; a duplicate counts once. Raises HostError if there was no count.

        ``own_program``: a user's program may rewrite the bytes that mark a test frame. What came back without them
        counts too, up to the frames that were sent. ``cable``: frames that the TG's card refused were not sent; on a
        virtual link the ring that was full is the DUT's, and they are its loss.
        """
        s = burst.summary
        if s.rx_packets is None:
            raise HostError(
                f"a search needs what came back, and the generator does not know: {s.missing.get('rx_packets')}"
            )
        stamped = burst.latency if burst.latency is not None and burst.latency.count else None
        changed = int(rewritten(s.rx_packets, s.foreign_packets, s.tx_packets)) if own_program else 0
        received = s.rx_packets + changed - (s.duplicates or 0)
        in_time = None if changed or s.rx_window_packets is None else s.rx_window_packets - (s.duplicates or 0)
        rate = None if in_time is None or not s.counted_s else in_time / s.counted_s
        sent = s.tx_packets - (s.tx_errors or 0 if cable else 0)
        return cls(sent, received, s.duration_s, stamped, s.tx_late_packets, rate, missed)

    @property
    def offered_pps(self) -> float:
        return self.sent / self.seconds

    @property
    def received_pps(self) -> float:
        return self.received / self.seconds if self.rate_pps is None else self.rate_pps

    @property
    def returned_pps(self) -> float:
        """The rate at which the DUT sent back, whether or not the TG took it."""
        return self.received_pps + self.missed / self.seconds

    @property
    def lost(self) -> int:
        """Frames that the DUT lost."""
        return max(0, self.sent - self.received - self.missed)

    @property
    def loss_ratio(self) -> float:
        return self.lost / self.sent if self.sent else 0.0


Offer = Callable[[float | None, float], Offered]
"""From a rate in frames per second (None: as fast as possible) and seconds to the result."""


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
    """One load of the loss curve: the requested share of the maximum rate, the frames offered, and the share of them
    that the DUT lost: neither ``received`` nor ``missed`` by the TG."""

    share: float
    offered_pps: float
    sent: int
    received: int
    missed: int
    loss_ratio: float


@dataclass(frozen=True)
class BackToBack:
    """The longest bursts at full rate of which the DUT lost no frame, one per repetition, in frames.

    ``step_frames`` is the largest distance, over all repetitions, between the longest burst without loss and the
    shortest one with loss. ``buffer_s`` is the corrected DUT buffer time of RFC 9004, 6.4; None without a throughput
    of the DUT's.
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
    offer: Offer, profile: Profile, searched: Searched, generator_pps: float, medium_pps: float | None
) -> Rfc2544:
    """Run the tests of one frame size whose throughput has been found; rates in frames per second."""
    missing: dict[str, str] = {}
    max_pps = medium_pps or generator_pps
    throughput_pps = searched.ndr.lower_pps
    latency = None
    if searched.ndr.upper_pps is None or searched.of_the_sender(searched.ndr):
        missing["buffer"] = "the throughput is the TG's or the link's, not the DUT's"
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
        None if "buffer" in missing else throughput_pps,
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
        losses.append(LossAt(share, burst.offered_pps, burst.sent, burst.received, burst.missed, burst.loss_ratio))
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
    if not whole.lost:
        return None
    rate, good, bad = whole.offered_pps, 0, whole.sent
    for _ in range(_SEARCH_STEPS):
        time.sleep(rest_s)
        if bad - good <= max(1.0, width * bad):
            break
        burst = offer(None, (good + bad) / 2 / rate)
        if not good < burst.sent < bad:
            break  # the generator cannot send a burst between these two
        if burst.lost:
            bad = burst.sent
        else:
            good = burst.sent
    return good, bad, rate
