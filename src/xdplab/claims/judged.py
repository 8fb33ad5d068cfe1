"""The claims of a run, each judged by the run's trials; somebody's claims on one's own machine.

Each part of a claim is an estimate with its 95 % interval over repetitions. Points are compared within a repetition, so
what changed between repetitions cancels; of quotients the logarithms are averaged (`xdplab.analysis.intervals`). A part
holds if its whole interval is on the claimed side, and is refuted if all of it is on the other. A claim about several
points has several parts: it holds if each holds, and is refuted if one is, so their intervals are wider, and hold
together (Bonferroni). A count is compared as it is, trial by trial.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from math import exp, inf, isnan, log, nan, sqrt
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import yaml

from xdplab.absent import Absent
from xdplab.analysis import OFFERED
from xdplab.analysis.fit import fit_line
from xdplab.analysis.intervals import CONFIDENCE, Spread, t_quantile
from xdplab.analysis.values import three_digits
from xdplab.claims.grammar import FORMS, Claim, Sentence, read_claims, sentences
from xdplab.claims.points import (
    ClaimedPoint,
    Instance,
    instances,
    measured_points,
    metrics_of,
    metrics_of_plan,
    planned_points,
    refuse,
    require_values,
    words_of,
)
from xdplab.errors import PlanError, ResultsError
from xdplab.lazy import lazily
from xdplab.plan import Plan, load_plan
from xdplab.plan.model import CLAIMS_FILE
from xdplab.resources import cache_root
from xdplab.studies.bundle import RUN, import_bundle
from xdplab.studies.kind import Run
from xdplab.studies.kinds import open_run
from xdplab.studies.tables import markdown
from xdplab.text import many

with lazily():
    from xdplab.studies import report


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


CODES: dict[ClaimVerdict, int] = {HOLDS: 0, REFUTED: 1, OPEN: 2}
"""The exit code of an answer."""


@dataclass(frozen=True)
class JudgedClaim:
    """A claim, and what a run says of it: the estimate of the part that decides, with its 95 % interval (null: none).

    ``promise``: the bound in words; ``at``: the part's points; ``parts``: how many there are; ``n``: its repetitions.
    ``needed``: the repetitions that would tell with 80 %; null if it is told, or if 1,000 would not. ``why`` it cannot
    be told; ``trials``: those behind it; ``printed``: what was published.
    """

    claim: str
    form: str
    metric: str
    promise: str
    printed: str
    verdict: ClaimVerdict = OPEN
    value: float | None = None
    low: float | None = None
    high: float | None = None
    at: str = ""
    parts: int = 0
    n: int = 0
    needed: int | None = None
    why: str = ""
    trials: tuple[str, ...] = ()

    @property
    def estimate(self) -> str:
        """The value with its interval, as text."""
        if self.value is None:
            return ""
        whole = three_digits(self.value) if self.form != "count" else f"{self.value:,.10g}"
        if self.low is None or self.high is None or self.low == self.high:
            return whole
        return f"{whole} [{three_digits(self.low)}, {three_digits(self.high)}]"

    @property
    def would_tell(self) -> str:
        """What would tell, in words; empty of a claim that is told."""
        if self.verdict != OPEN or self.why:
            return self.why
        return f"about {self.needed} repetitions" if self.needed else "not 1,000 repetitions: the truth is at the bound"


def claims_of(run: Run[Any], file: Path | None = None) -> tuple[list[Sentence], str, str]:
    """Return the claims of a file, else those of the run, with the file's name and text.

    Raises PlanError where there is none.
    """
    if isinstance(run.plan, Plan) and run.plan.race:  # it ends when its ratio is far from 1 by chance, too
        raise PlanError(f"{run.directory.path} is a race, which judges itself", remedy="measure both sides as a plan")
    beside = run.directory.path / CLAIMS_FILE
    if file is not None or beside.exists():
        claims, text = read_claims(file or beside)
        return claims, str(file or beside), text
    if isinstance(plan := run.plan, Plan) and plan.claims:
        return sentences(plan.claims), "", ""
    raise PlanError(f"{run.directory.path} has no claims", remedy="write some, and name the file: `--file CLAIMS.yaml`")


def judged(run: Run[Any], file: Path | None = None) -> list[JudgedClaim]:
    """Return the claims of a run, or of a file, judged. Raises PlanError for a file's claim about other points."""
    claims, where, source = claims_of(run, file)
    points: dict[str, list[ClaimedPoint]] = {}

    def measured(metric: str) -> list[ClaimedPoint]:
        if metric not in points:
            points[metric] = measured_points(run, metric)
        return points[metric]

    if where and not run.rows().empty:
        refuse(claims, measured, metrics_of(run), where, source)
    return [_judged(one, measured(one.claim.metric)) for one in claims]


def _judged(sentence: Sentence, points: Sequence[ClaimedPoint]) -> JudgedClaim:
    claim = sentence.claim
    answer = JudgedClaim(sentence.text, claim.form, claim.metric, claim.promise, claim.printed)
    try:
        chosen = instances(claim, points)
    except ValueError as error:  # the plan has these points, and the run was told to leave them out
        return replace(answer, why=str(error))
    parts = parts_of(claim, chosen)
    part = deciding(parts, claim.bounds)
    return replace(
        answer,
        verdict=verdict_of(parts),
        value=_number(part.value),
        low=_number(part.low),
        high=_number(part.high),
        at=words_of(part.instance, chosen),
        parts=len(parts),
        n=len(parts) if claim.form == "count" else part.n,
        needed=part.needed,
        why=part.why,
        trials=tuple(dict.fromkeys(trial for one in chosen for point in one for trial in point.trials.values())),
    )


def _number(value: float) -> float | None:
    return None if isnan(value) else value


def exit_code(claims: Sequence[JudgedClaim]) -> int:
    """Return 0 if all hold, 1 if one is refuted, else 2."""
    verdicts = {CODES[one.verdict] for one in claims}
    return 1 if 1 in verdicts else max(verdicts, default=0)


def table(claims: Sequence[JudgedClaim]) -> pd.DataFrame:
    """Return the claims for a person; columns that say nothing are left out."""
    rows = [
        {
            "claim": one.claim,
            "here": one.verdict,
            "printed": one.printed or None,
            "measured": one.estimate or None,
            "claimed": one.promise,
            "at": f"{one.at}, one of {one.parts}" if one.parts > 1 and one.at else one.at or None,
            "n": one.n,
            "trials": len(one.trials),
            "would tell": one.would_tell or None,
        }
        for one in claims
    ]
    return pd.DataFrame(rows).dropna(axis=1, how="all")


def summary(claims: Sequence[JudgedClaim]) -> str:
    """Return how many claims hold, are refuted, and cannot be told."""
    counts = Counter(one.verdict for one in claims)
    words: dict[ClaimVerdict, str] = {HOLDS: "hold", REFUTED: "are refuted", OPEN: OPEN}
    shown = [f"{count} {words[one] if count > 1 else one}" for one in CODES if (count := counts[one])]
    return f"{many(len(claims), 'claim')}: {', '.join(shown)}"


def for_reviewers(run: Run[Any]) -> str:
    """Return the beginning of an artifact's README: its claims as they were judged, and how they are judged again."""
    answers = judged(run)
    places = [f"* {name}: {value}" for name, value in report.place(run, run.rows())]
    return _README.format(
        name=run.directory.name,
        summary=summary(answers),
        table=markdown(table(answers)),
        trials=run.state.total,
        version=version("xdplab"),
        places="\n".join(places) or "Nothing was recorded.",
    )


_README = """# The claims of {name}, and how to check them

    xdplab reproduce artifact.zip

measures its plan again on your machine ({trials} trials), judges each claim by your trials, and writes a page with the
values below beside yours. It needs Linux, root for labs, and xdplab; `xdplab doctor` says what is missing. The exit
code is 0 if all claims hold, 1 if one is refuted, 2 if one cannot be told. A folder that the file was unpacked into may
be named instead. Commands that the plan names are asked for; read them, then `xdplab --trust reproduce artifact.zip`
allows them. `xdplab claims` judges the trials that are in here. {summary}:

{table}
## Where they were measured

{places}

Written by xdplab {version}.
"""


@dataclass(frozen=True)
class PublishedClaims:
    """A plan that is measured again, its claims, and the run that they were published with, if there is one."""

    plan: Path
    claims: Sequence[Sentence]
    run: Run[Any] | None = None


def published(source: Path, file: Path | None = None) -> PublishedClaims:
    """Return what is reproduced: a plan, a bundle, or the folder of a run or of an unpacked bundle.

    ``file``: claims instead of its own. Raises PlanError for a plan without claims, ResultsError for a bad bundle.
    """
    if source.suffix == ".zip":
        run = open_run(_imported(source))
    elif source.is_dir():
        run = open_run(source / RUN if (source / RUN).is_dir() else source)
    else:
        return PublishedClaims(source, _of_plan(source, file))
    claims, *_ = claims_of(run, file)
    claims = [_with_printed(*pair) for pair in zip(claims, judged(run, file), strict=True)]
    return PublishedClaims(run.directory.path / "plan.yaml", claims, run)


def _imported(bundle: Path) -> Path:
    """Return the run of a bundle in the user's cache: it is somebody's, and is imported once."""
    if not bundle.is_file():
        raise ResultsError(f"{bundle} does not exist", remedy="`xdplab export --artifact` makes one")
    folder = cache_root() / "published" / hashlib.sha256(bundle.read_bytes()).hexdigest()[:16]
    runs = [journal.parent for journal in folder.glob("*/journal.jsonl")]
    return runs[0] if runs else import_bundle(bundle, folder).path


def _of_plan(path: Path, file: Path | None) -> list[Sentence]:
    plan = load_plan(path, to_measure=False)
    if file is None and not plan.claims:
        raise PlanError(f"{path} has no claims", remedy="`xdplab run` measures it; `--file CLAIMS.yaml` names some")
    if file is None:
        return sentences(plan.claims)
    claims, text = read_claims(file)
    refuse(claims, lambda _: planned_points(plan), metrics_of_plan(plan), str(file), text)
    return claims


def _with_printed(sentence: Sentence, answer: JudgedClaim) -> Sentence:
    of_one = f" ({answer.at})" if answer.parts > 1 and answer.at else ""  # another part may decide here
    printed = answer.printed or answer.estimate + of_one
    return Sentence(sentence.text, sentence.claim.model_copy(update={"printed": printed}), sentence.place)


def judged_here(source: PublishedClaims, run: Run[Any]) -> list[JudgedClaim]:
    """Keep the published claims in a run that measured them again, and return them judged by its trials."""
    given = [{one.text: one.claim.model_dump(mode="json", exclude_defaults=True)} for one in source.claims]
    text = yaml.safe_dump({"claims": given}, sort_keys=False, allow_unicode=True, width=120, default_flow_style=None)
    run.directory.write_bytes(CLAIMS_FILE, text.encode())
    return judged(run)
