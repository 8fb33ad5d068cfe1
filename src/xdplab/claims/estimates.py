"""Is a claim true of measured points? Each part of it is an estimate with its 95 % interval over repetitions.

Points are compared within a repetition, so what changed between repetitions cancels; of quotients the logarithms are
averaged (`xdplab.analysis.intervals`). A part holds if its whole interval is on the claimed side, and is refuted if all
of it is on the other. A claim about several points has several parts: it holds if each holds, and is refuted if one is,
so their intervals are wider, and hold together (Bonferroni). A count is compared as it is, trial by trial.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, isnan, log, nan, sqrt
from typing import Literal

import numpy as np

from xdplab.absent import Absent
from xdplab.analysis import OFFERED
from xdplab.analysis.fit import fit_line
from xdplab.analysis.intervals import CONFIDENCE, Spread, t_quantile
from xdplab.claims.grammar import FORMS, Claim
from xdplab.claims.points import Instance, require_values

ClaimVerdict = Literal["holds", "is refuted", "cannot be told here"]
HOLDS: ClaimVerdict = "holds"
REFUTED: ClaimVerdict = "is refuted"
OPEN: ClaimVerdict = "cannot be told here"
POWER = 0.8
MOST_REPETITIONS = 1000
"""As many as a plan may have."""


@dataclass(frozen=True)
class PartSample:
    """What one part of a claim is estimated from: a value of each repetition, or the ``ends`` of an exact one."""

    instance: Instance
    values: Sequence[float] = ()
    ends: tuple[float, float] | None = None
    why: str = ""


@dataclass(frozen=True)
class ClaimPart:
    """One part of a claim: its estimate with the ends of its interval (NaN: none), from ``n`` repetitions.

    ``needed``: how many would tell with a probability of 80 %, if the truth is the estimate; None if none would, or if
    it is told. ``why``: why it has no interval.
    """

    instance: Instance
    verdict: ClaimVerdict
    value: float
    low: float
    high: float
    n: int
    needed: int | None = None
    why: str = ""

    def spare(self, bounds: tuple[float, float]) -> float:
        """Return how far the interval is within the bounds; below 0 how far out of them."""
        return min(self.low - bounds[0], bounds[1] - self.high)


def parts_of(claim: Claim, instances: Sequence[Instance]) -> list[ClaimPart]:
    """Return each part of a claim about measured points."""
    samples = [sample for instance in instances for sample in _samples(claim, instance)]
    alpha = (1 - CONFIDENCE) / len(samples)
    return [_part(claim, sample, alpha) for sample in samples]


def _samples(claim: Claim, instance: Instance) -> Iterator[PartSample]:
    try:
        require_values(instance)
        if len(instance) > 1 and all(point.carried for point in instance):
            raise Absent(OFFERED)
        yield from _OF_FORM[claim.form](instance)
    except Absent as absent:
        yield PartSample(instance, why=str(absent))


def _ratio(instance: Instance) -> Iterator[PartSample]:
    a, b = instance
    if a.exact and b.exact and min(*a.exact, *b.exact) > 0:
        yield PartSample(instance, ends=(log(a.exact[0] / b.exact[1]), log(a.exact[1] / b.exact[0])))
        return
    if min(*a.values.values(), *b.values.values()) <= 0:
        raise Absent("no ratio: a value is at or below 0")
    yield PartSample(instance, [log(a.values[at] / b.values[at]) for at in _together(instance)])


def _difference(instance: Instance) -> Iterator[PartSample]:
    a, b = instance
    if a.exact and b.exact:
        yield PartSample(instance, ends=(a.exact[0] - b.exact[1], a.exact[1] - b.exact[0]))
        return
    yield PartSample(instance, [a.values[at] - b.values[at] for at in _together(instance)])


def _order(instance: Instance) -> Iterator[PartSample]:
    for place in range(len(instance) - 1):
        yield from _ratio(instance[place : place + 2])


def _line(instance: Instance) -> Iterator[PartSample]:
    """How far each N lies from the line through all, as a share of it."""
    accesses = np.array([float(point.factors["accesses"]) for point in instance])
    residuals = []
    for at in _together(instance):
        line = fit_line(accesses, np.array([point.values[at] for point in instance]))
        if line is not None:
            residuals.append(line.residuals)
    for place, point in enumerate(instance):
        ends = (residuals[0][place],) * 2 if all(one.exact for one in instance) and residuals else None
        yield PartSample((point,), [float(one[place]) for one in residuals], ends)


def _count(instance: Instance) -> Iterator[PartSample]:
    (point,) = instance
    for value in [None] if point.exact else point.values.values():
        yield PartSample(instance, ends=point.exact if value is None else (value, value))


_OF_FORM: Mapping[str, Callable[[Instance], Iterator[PartSample]]] = {
    "ratio": _ratio,
    "difference": _difference,
    "equal": _ratio,
    "order": _order,
    "linear": _line,
    "count": _count,
}


def _together(instance: Instance) -> list[int]:
    """Return the repetitions that have a value of each point. Raises Absent if there is none."""
    common = set.intersection(*(set(point.values) for point in instance))
    if not common:
        raise Absent("no repetition has a valid trial of each of its points")
    return sorted(common)


def _part(claim: Claim, sample: PartSample, alpha: float) -> ClaimPart:
    """Return the part that a sample tells; its interval has the confidence 1 - ``alpha``."""
    logs = FORMS[claim.form].logs
    least, most = (_log(bound) for bound in claim.bounds) if logs else claim.bounds
    if sample.ends is not None:
        low, high = sample.ends
        return ClaimPart(
            sample.instance, _verdict(low, high, least, most), *_natural(logs, (low + high) / 2, low, high), n=1
        )
    if sample.why:
        return ClaimPart(sample.instance, OPEN, nan, nan, nan, 0, why=sample.why)
    spread = Spread.of(sample.values)
    if spread.n < 2 or not spread.sd > 0:
        why = "one repetition has no interval" if spread.n < 2 else "copies of one value have no interval"
        return ClaimPart(sample.instance, OPEN, *_natural(logs, spread.mean, nan, nan), n=spread.n, why=why)
    half = t_quantile(1 - alpha / 2, spread.n - 1) * spread.se
    low, high = spread.mean - half, spread.mean + half
    verdict = _verdict(low, high, least, most)
    needed = _needed(spread, least, most, alpha) if verdict == OPEN else None
    return ClaimPart(sample.instance, verdict, *_natural(logs, spread.mean, low, high), n=spread.n, needed=needed)


def _verdict(low: float, high: float, least: float, most: float) -> ClaimVerdict:
    if low >= least and high <= most:
        return HOLDS
    return REFUTED if high < least or low > most else OPEN


def _natural(logs: bool, value: float, low: float, high: float) -> tuple[float, float, float]:
    """Return an estimate on the metric's own scale."""
    return (exp(value), exp(low), exp(high)) if logs else (value, low, high)


def _log(bound: float) -> float:
    return log(bound) if bound > 0 else -inf


def _needed(spread: Spread, least: float, most: float, alpha: float) -> int | None:
    """Return the repetitions whose interval lies on one side of the bounds with 80 %, if the truth is the mean."""
    reach = min(abs(spread.mean - least), abs(spread.mean - most))

    def tells(n: int) -> bool:
        return (t_quantile(1 - alpha / 2, n - 1) + t_quantile(POWER, n - 1)) * spread.sd / sqrt(n) <= reach

    if not tells(MOST_REPETITIONS):
        return None
    return bisect_left(range(MOST_REPETITIONS), True, lo=spread.n + 1, key=tells)


def verdict_of(parts: Sequence[ClaimPart]) -> ClaimVerdict:
    """Return what the parts say together."""
    verdicts = {part.verdict for part in parts}
    return REFUTED if REFUTED in verdicts else OPEN if OPEN in verdicts else HOLDS


def deciding(parts: Sequence[ClaimPart], bounds: tuple[float, float]) -> ClaimPart:
    """Return the part that a claim rests on: of those with its verdict the one that is least, or most, within."""
    verdict = verdict_of(parts)
    alike = [part for part in parts if part.verdict == verdict]
    return min(alike, key=lambda part: -inf if isnan(part.low) else part.spare(bounds))
