"""The search as a study of the runner: self-test of the generator, MRR, NDR and PDR, latency at shares of the PDR."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any, Protocol

from xdplab.absent import Absent
from xdplab.analysis.percentiles import resolved_percentile
from xdplab.analysis.verdicts import LINE_FULL, line_pps
from xdplab.errors import UnsupportedError
from xdplab.formats.generator import Burst, Histogram
from xdplab.formats.pcap import frames_in, l2_bytes
from xdplab.plan import Point, Trial
from xdplab.studies.search.profile import Profile
from xdplab.studies.search.rfc2544 import Bounds, Offer, Offered, Rfc2544, Searched, rfc2544, search
from xdplab.studies.trial_facts import TrialFacts

LATENCY_SHARES = (0.0, 0.1, 0.5, 0.9)
"""Shares of the PDR; 0 is the lowest load that the search offers, or that of the next share if it is less."""

IDLE_SHARE = 1e-3

MOST_ACCESSES = 1 << 17
WIDTH = 0.05
"""Of the number of accesses at which a share of the throughput is lost."""

Send = Callable[[float | None, float], tuple[Burst, int]]
"""The bench's: a burst, and how many of its frames came back to a full ring of the TG's."""


@dataclass(frozen=True)
class LatencyAt:
    """Latency at a share of the PDR, in ns; None if no frame was timed, or too few for a percentile."""

    pdr_share: float
    samples: int
    p50_ns: float | None
    p90_ns: float | None
    p99_ns: float | None
    max_ns: float | None


@dataclass(frozen=True)
class Bisected:
    """``enough`` accesses still reach the share, ``too_many`` do not; null if there was no such N.

    ``measured`` holds (N, frames per second) in the order of trying, N = 0 first.
    """

    share: float
    enough: int
    too_many: int | None
    measured: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class MaximumReceiveRate:
    """The MRR of a point: median, least and greatest of its bursts, in frames per second, at the load offered."""

    mrr_pps: float
    mrr_low_pps: float
    mrr_high_pps: float
    mrr_offered_pps: float
    mrr_loss_ratio: float


@dataclass(frozen=True)
class PointSearch(MaximumReceiveRate):
    """The result of one point's search; rates in frames per second.

    ``livelock`` is True if the DUT sends less back at the highest load than at the PDR. ``limited_by`` is of the PDR.
    ``latency`` is None for the reason ``latency_missing``. ``bursts`` and ``histograms`` are in the raw file alone, not
    in the journal.
    """

    ndr: Bounds
    pdr: Bounds
    livelock: bool | None
    limited_by: str | None
    ndr_limited_by: str | None
    latency: tuple[LatencyAt, ...] | None
    latency_missing: str | None
    generator_pps: float | None = None
    profile: Profile | None = None
    rfc2544: Rfc2544 | None = None
    accesses: Bisected | None = None
    bursts: tuple[dict[str, Any], ...] | None = None
    histograms: tuple[dict[str, Any], ...] | None = None

    @property
    def short(self) -> PointSearch:
        """The result without bursts and buckets."""
        return replace(self, bursts=None, histograms=None)


@dataclass
class SearchFacts(TrialFacts):
    """The facts of a search in addition to those of the trial."""

    search: PointSearch | None = None


class SearchLab(Protocol):
    """A lab with one trial's program attached, or with none: `trial` provides it, because a study may not import it."""

    def enter_block(self, trials: Sequence[Trial]) -> None: ...

    def leave_block(self) -> None: ...

    def attached(self, trial: Trial, raw: Path, facts: TrialFacts) -> AbstractContextManager[Send]:
        """Hold the trial's program attached, and give a function that offers a rate (None: the maximum) for some
        seconds."""

    def generator_pps(self, trial: Trial) -> float | None:
        """Return the rate that the generator alone reached with these frames when the trial's block was entered."""


class SearchStudy:
    """One attempt searches one point. ``share`` asks for the largest N that keeps that share of N = 0 as well."""

    facts = SearchFacts

    def __init__(self, bench: SearchLab, profile: Profile, *, share: float | None = None) -> None:
        self._bench, self._profile, self._share = bench, profile, share

    def enter_block(self, trials: Sequence[Trial]) -> None:
        self._bench.enter_block(trials)

    def leave_block(self) -> None:
        self._bench.leave_block()

    def measure(self, trial: Trial, raw: Path, facts: SearchFacts) -> None:
        """Search ``trial``'s point. Raises UnsupportedError where the frames that come back say nothing about loss."""
        require_open_loop(trial)
        require_frames_back(trial)
        limit = self._bench.generator_pps(trial)
        with self._bench.attached(trial, raw, facts) as send:
            link_bps = facts.link.rate if facts.link else None
            carried = line_pps(link_bps, _mean_bytes(trial.point))
            result = search_point(
                _offer(send, trial.point, cable=link_bps is not None), self._profile, limit or 0.0, carried
            )
        result = replace(result, generator_pps=limit, profile=self._profile)
        if self._share is not None and trial.point.program.accesses is not None:  # a user's program has no N
            result = replace(result, accesses=self._bisected(trial, raw, self._share))
        facts.search = result.short
        (raw / "search.json").write_text(json.dumps(asdict(result), indent=1) + "\n")

    def _bisected(self, trial: Trial, raw: Path, share: float) -> Bisected:
        def throughput(accesses: int) -> float:
            program = replace(trial.point.program, accesses=accesses)
            other = replace(trial, point=replace(trial.point, program=program))
            with self._bench.attached(other, raw, TrialFacts()) as send:
                return Offered.of(*send(None, self._profile.mrr_s)).returned_pps

        return largest_accesses(throughput, share)


def require_open_loop(trial: Trial) -> None:
    if trial.point.arrangement == "shared":
        raise UnsupportedError(
            "arrangement shared is a closed loop: a slower DUT slows the sender, and nothing is ever lost",
            remedy="search in arrangement split (two CPUs at least) or on two hosts",
        )


def require_frames_back(trial: Trial) -> None:
    program = trial.point.program
    if program.file is not None and program.action != "tx":
        raise UnsupportedError(
            f"action {program.action}: a search goes by the frames that come back to the TG, and this program does not "
            "send all of them back",
            remedy="`xdplab run` judges such a program by the DUT's counts",
        )


def _offer(send: Send, point: Point, *, cable: bool) -> Offer:
    is_users = point.program.file is not None
    return lambda rate, seconds: Offered.of(*send(rate, seconds), own_program=is_users, cable=cable)


def _mean_bytes(point: Point) -> float:
    """Return the mean size of the frames that are sent, with FCS; those of a pcap have their own."""
    if point.program.frames is None:
        return point.mean_frame_bytes
    return fmean(l2_bytes(frames_in(point.program.frames)))


def search_point(offer: Offer, profile: Profile, limit_pps: float, carried_pps: float | None = None) -> PointSearch:
    """Return everything one point's search finds, in plain values; rates in frames per second.

    ``livelock`` is true if the DUT sends less back at the highest load than at the PDR. ``carried_pps`` is the
    capacity of the physical link, null if it has no rate.
    """
    mrr = [offer(None, profile.mrr_s) for _ in range(profile.mrr_repeats)]
    limit_pps = max(limit_pps, *(burst.offered_pps for burst in mrr))
    searched = search(offer, profile, max_pps=limit_pps)
    pdr, received = searched.pdr.lower_pps, [burst.received_pps for burst in mrr]
    merged, missing = _latencies(offer, profile, pdr, limit_pps)
    tests = rfc2544(offer, profile, searched, limit_pps, carried_pps) if profile.rfc2544 else None
    return PointSearch(
        mrr_pps=median(received),
        mrr_low_pps=min(received),
        mrr_high_pps=max(received),
        mrr_offered_pps=median(burst.offered_pps for burst in mrr),
        mrr_loss_ratio=median(burst.loss_ratio for burst in mrr),
        ndr=searched.ndr,
        pdr=searched.pdr,
        livelock=None if pdr is None else median(burst.returned_pps for burst in mrr) < (1 - profile.width) * pdr,
        limited_by=_limited_by(searched, searched.pdr, carried_pps),
        ndr_limited_by=_limited_by(searched, searched.ndr, carried_pps),
        latency=None if missing else tuple(_summary(share, histogram) for share, histogram in merged.items()),
        latency_missing=missing,
        rfc2544=tests,
        bursts=searched.bursts,
        histograms=tuple({"pdr_share": share, **asdict(h)} for share, h in merged.items() if h is not None),
    )


def _limited_by(searched: Searched, goal: Bounds, carried_pps: float | None) -> str:
    """Without an upper bound the DUT's limit was not reached: the cable or the generator ended the search.

    The same holds if the sender did not reach the bound's load, stood still and then sent too fast, or lost at its own
    port what came back.
    """
    if goal.upper_pps is not None:
        return "generator" if searched.of_the_sender(goal) else "dut"
    full = carried_pps is not None and (goal.lower_pps or 0.0) >= LINE_FULL * carried_pps
    return "link" if full else "generator"


def _latencies(
    offer: Offer, profile: Profile, pdr: float | None, limit_pps: float
) -> tuple[dict[float, Histogram | None], str | None]:
    """Latency, by share of the PDR: only at loads that the DUT carries, because at overload it is a queue's length."""
    if pdr is None:
        return {}, "no PDR: even the lowest load lost too much"
    if profile.rfc2544 is not None:
        return {}, "this profile measures it at the throughput, as RFC 2544 requires"
    if not profile.latency_repeats:
        return {}, "not requested: --no-latency"
    merged = {}
    for share in LATENCY_SHARES:
        rate = share * pdr if share else min(IDLE_SHARE * limit_pps, LATENCY_SHARES[1] * pdr)
        merged[share] = _repeated(lambda rate=rate: offer(rate, profile.latency_s).latencies, profile.latency_repeats)  # type: ignore[misc]
    return merged, None


def _repeated(once: Callable[[], Histogram | None], times: int) -> Histogram | None:
    histograms = [histogram for histogram in (once() for _ in range(times)) if histogram is not None]
    if not histograms:
        return None
    whole = histograms[0]
    for histogram in histograms[1:]:
        whole = whole.merge(histogram)
    return whole


def _summary(share: float, histogram: Histogram | None) -> LatencyAt:
    if histogram is None:
        return LatencyAt(share, 0, None, None, None, None)
    p50, p90, p99 = (_percentile(histogram, q) for q in (50, 90, 99))
    return LatencyAt(share, histogram.count, p50, p90, p99, histogram.max)


def _percentile(histogram: Histogram, q: float) -> float | None:
    with suppress(Absent):
        return resolved_percentile(histogram, q)
    return None


def largest_accesses(throughput: Callable[[int], float], share: float, *, most: int = MOST_ACCESSES) -> Bisected:
    """Find N within `WIDTH` of itself: doubled until the share is lost, then halved between the two.

    ``throughput(N)`` returns frames per second; it is taken to fall with N, which the caller's findings check.
    """
    measured = [(0, throughput(0))]

    def reaches(n: int) -> bool:
        measured.append((n, throughput(n)))
        return measured[-1][1] >= share * measured[0][1]

    most_kept, step = 0, 1
    while step <= most and reaches(step):
        most_kept, step = step, step * 2
    if step > most:
        return Bisected(share, most_kept, None, tuple(measured))
    too_many = step
    while too_many - most_kept > max(1, WIDTH * too_many):
        middle = (most_kept + too_many) // 2
        most_kept, too_many = (middle, too_many) if reaches(middle) else (most_kept, middle)
    return Bisected(share, most_kept, too_many, tuple(measured))
