"""The claims of a run, each judged by the run's trials; somebody's claims on one's own machine."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from math import isnan
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from xdplab.analysis.values import three_digits
from xdplab.claims.estimates import HOLDS, OPEN, REFUTED, ClaimVerdict, deciding, parts_of, verdict_of
from xdplab.claims.grammar import Sentence, read_claims, sentences
from xdplab.claims.points import (
    ClaimedPoint,
    instances,
    measured_points,
    metrics_of,
    metrics_of_plan,
    planned_points,
    refuse,
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
