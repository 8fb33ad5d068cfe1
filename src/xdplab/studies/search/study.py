"""The search as a study of the runner: self-test of the generator, MRR, NDR and PDR, latency at shares of the PDR."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from xdplab.analysis.verdicts import LINE_FULL, line_pps
from xdplab.errors import UnsupportedError
from xdplab.formats.generator import Burst, Histogram
from xdplab.plan import Trial
from xdplab.studies.search.bisect import largest_accesses
from xdplab.studies.search.mlr import Searched, search
from xdplab.studies.search.offer import Offer, Offered
from xdplab.studies.search.profile import Profile

LATENCY_SHARES = (0.0, 0.1, 0.5, 0.9)
"""Of the PDR; 0 is the lowest load that the search offers."""

IDLE_SHARE = 1e-3
Send = Callable[[float | None, float], Burst]


class SearchLab(Protocol):
    """A lab with one trial's program attached, or with none: what `trial` has and a study may not import."""

    def enter_block(self, trials: Sequence[Trial]) -> None: ...

    def leave_block(self) -> None: ...

    def attached(self, trial: Trial, raw: Path, facts: dict[str, Any]) -> AbstractContextManager[Send]:
        """Hold the trial's program attached, and give what offers a rate (None: the most) for some seconds."""

    def generator_pps(self, trial: Trial) -> float | None:
        """Return what the generator alone offered of these frames per second, as the trial's block was entered."""


class SearchStudy:
    """One attempt searches one point. ``share`` asks for the largest N that keeps that share of N = 0 as well."""

    def __init__(self, bench: SearchLab, profile: Profile, *, share: float | None = None) -> None:
        self._bench, self._profile, self._share = bench, profile, share

    def enter_block(self, trials: Sequence[Trial]) -> None:
        self._bench.enter_block(trials)

    def leave_block(self) -> None:
        self._bench.leave_block()

    def measure(self, trial: Trial, raw: Path, facts: dict[str, Any]) -> None:
        """Search ``trial``'s point. Raises UnsupportedError if TG and DUT share CPUs: there loss says nothing."""
        require_open_loop(trial)
        limit = self._bench.generator_pps(trial)
        found: dict[str, Any] = {"profile": asdict(self._profile), "generator_pps": limit}
        with self._bench.attached(trial, raw, facts) as send:
            carried = line_pps(facts.get("link", {}).get("rate"), trial.point.frame_bytes)
            found |= search_point(_offer(send), self._profile, limit or 0.0, carried)
        if self._share is not None:
            found["accesses"] = self._bisected(trial, raw, self._share)
        facts["search"] = {key: value for key, value in found.items() if key not in ("bursts", "histograms")}
        (raw / "search.json").write_text(json.dumps(found, indent=1) + "\n")

    def _bisected(self, trial: Trial, raw: Path, share: float) -> dict[str, Any]:
        def throughput(accesses: int) -> float:
            program = replace(trial.point.program, accesses=accesses)
            other = replace(trial, point=replace(trial.point, program=program))
            with self._bench.attached(other, raw, {}) as send:
                return Offered.of(send(None, self._profile.mrr_s)).received_pps

        return asdict(largest_accesses(throughput, share))


def require_open_loop(trial: Trial) -> None:
    if trial.point.arrangement == "shared":
        raise UnsupportedError(
            "arrangement shared is a closed loop: a slower DUT slows the sender, and nothing is ever lost",
            remedy="search in arrangement split (two CPUs at least) or on two hosts",
        )


def _offer(send: Send) -> Offer:
    return lambda rate, seconds: Offered.of(send(rate, seconds))


def search_point(offer: Offer, profile: Profile, limit_pps: float, carried_pps: float | None = None) -> dict[str, Any]:
    """Return everything one point's search finds, in plain values; rates in frames per second.

    ``livelock`` is true where more offered load means less forwarded: the MRR lies below the PDR. ``carried_pps`` is
    what the physical link can carry, null if it has no rate.
    """
    mrr = [offer(None, profile.mrr_s) for _ in range(profile.mrr_repeats)]
    limit_pps = max(limit_pps, *(burst.offered_pps for burst in mrr))
    searched = search(offer, profile, max_pps=limit_pps)
    pdr, received = searched.pdr.lower_pps, [burst.received_pps for burst in mrr]
    return {
        "mrr_pps": median(received),
        "mrr_low_pps": min(received),
        "mrr_high_pps": max(received),
        "mrr_offered_pps": median(burst.offered_pps for burst in mrr),
        "mrr_loss_ratio": median(burst.loss_ratio for burst in mrr),
        "ndr": asdict(searched.ndr),
        "pdr": asdict(searched.pdr),
        "livelock": None if pdr is None else median(received) < (1 - profile.width) * pdr,
        "limited_by": _limited_by(searched, carried_pps),
        "bursts": list(searched.bursts),
        **_latencies(offer, profile, pdr, limit_pps),
    }


def _limited_by(searched: Searched, carried_pps: float | None) -> str:
    """Without an upper bound the DUT's limit was not seen: the cable ended the search, or the generator did.

    Nor is it the DUT's where the sender stood still and then sent too fast.
    """
    if searched.pdr.upper_pps is not None:
        return "generator" if searched.bunched else "dut"
    full = carried_pps is not None and (searched.pdr.lower_pps or 0.0) >= LINE_FULL * carried_pps
    return "link" if full else "generator"


def _latencies(offer: Offer, profile: Profile, pdr: float | None, limit_pps: float) -> dict[str, Any]:
    """Latency belongs to a load that the DUT can carry: at overload it is a queue's length."""
    missing = "no PDR: even the lowest load lost too much" if pdr is None else "not asked for: --no-latency"
    if pdr is None or not profile.latency_repeats:
        return {"latency": None, "latency_missing": missing, "histograms": []}
    merged = {}
    for share in LATENCY_SHARES:
        rate = max(share * pdr, IDLE_SHARE * limit_pps)
        merged[share] = _repeated(lambda rate=rate: offer(rate, profile.latency_s).latencies, profile.latency_repeats)  # type: ignore[misc]
    return {
        "latency": [{"pdr_share": share, **_summary(h)} for share, h in merged.items()],
        "latency_missing": None,
        "histograms": [{"pdr_share": share, **asdict(h)} for share, h in merged.items() if h is not None],
    }


def _repeated(once: Callable[[], Histogram | None], times: int) -> Histogram | None:
    found = [histogram for histogram in (once() for _ in range(times)) if histogram is not None]
    if not found:
        return None
    whole = found[0]
    for histogram in found[1:]:
        whole = whole.merge(histogram)
    return whole


def _summary(histogram: Histogram | None) -> dict[str, float | int | None]:
    if histogram is None:
        return {"samples": 0, **dict.fromkeys(("p50_ns", "p90_ns", "p99_ns", "max_ns"))}
    quantiles = {f"p{q}_ns": histogram.percentile(q) for q in (50, 90, 99)}
    return {"samples": histogram.count, **quantiles, "max_ns": histogram.max}
