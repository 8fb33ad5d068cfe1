"""Somebody's claims on one's own machine: what was published, and what it is set beside."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from xdplab.claims.grammar import Sentence, read_claims, sentences
from xdplab.claims.judged import JudgedClaim, claims_of, judged
from xdplab.claims.points import metrics_of_plan, planned_points, refuse
from xdplab.errors import PlanError, ResultsError
from xdplab.plan import load_plan
from xdplab.plan.model import CLAIMS_FILE
from xdplab.resources import cache_root
from xdplab.studies.bundle import RUN, import_bundle
from xdplab.studies.kind import Run
from xdplab.studies.kinds import open_run


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
