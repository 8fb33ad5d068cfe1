"""A judge by races: a commit's program against that of the good end, until the ratio of their rates is on one side."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import ExitStack, closing
from math import exp, log
from pathlib import Path
from typing import Any

from xdplab.absent import Absent
from xdplab.analysis.decide.race import Known, Standing
from xdplab.bisect.counting import CostJudge
from xdplab.bisect.notes import Notes
from xdplab.bisect.search import Answer, Judged, Revision, Revisions
from xdplab.errors import PlanError, ProgramError, UnsupportedError
from xdplab.labs import use_lab
from xdplab.plan.model import Plan, parse_plan, race_of, relative_to
from xdplab.plan.points import block_points
from xdplab.programs.build import build
from xdplab.programs.program import cache_directory
from xdplab.programs.spec import program_of
from xdplab.studies.cost.gate import CostDifference
from xdplab.studies.traffic import kind
from xdplab.studies.traffic.race import outcome_of

LAB = "netns"
TRIAL = {"warmup_s": 0.1, "window_s": 0.5, "pause_s": 0.05}
PAIRS: tuple[dict[str, int], ...] = ({}, {"at_least": 40})
"""A race ends as soon as it tells two programs apart. If its interval then holds the middle, a longer one may not."""


class RaceJudge:
    """Judges by races in a lab; equal programs do not race."""

    def __init__(self, notes: Notes, revisions: Revisions) -> None:
        self._notes, self._revisions = notes, revisions
        self._open = ExitStack()
        self._lab = self._open.enter_context(use_lab(notes.request.lab or LAB))
        self._good, self._bad, self._middle = Path(), Path(), 0.0

    def measure_ends(self) -> tuple[Judged, Judged]:
        """Return the verdicts of both ends. Raises PlanError where no race tells them apart."""
        self._good, self._bad = self._object(self._revisions.good), self._object(self._revisions.bad)
        kept = self._notes.verdict(self._revisions.bad)
        if kept is None:
            standing = self._race(self._bad, 0.02, {})
            if standing.answer != "differs":
                raise PlanError(
                    f"nothing to find: no race tells the ends apart: {standing.text}", remedy="`--by cost` counts them"
                )
            kept = Judged("bad", _words(standing.ratio), exp(standing.ratio.median))
            self._notes.keep(self._revisions.bad, kept)
        assert kept.value is not None
        self._middle = log(kept.value) / 2
        return Judged("good", "rate 1, to which the others are relative", 1.0), kept

    @property
    def at(self) -> float:
        """The ratio to the good end where bad begins: the middle between the ends, by logarithms."""
        return exp(self._middle)

    def judge(self, revision: Revision) -> Judged:
        if (verdict := self._notes.verdict(revision)) is None:
            try:
                verdict = self._judged(self._object(revision))
            except (PlanError, ProgramError, UnsupportedError) as error:
                verdict = Judged("skip", error.message)
            self._notes.keep(revision, verdict)
        return verdict

    def _judged(self, program: Path) -> Judged:
        for end, answer in ((self._good, "good"), (self._bad, "bad")):
            if program == end:
                return Judged(answer, f"the same program as the {answer} end's", None)  # type: ignore[arg-type]
        margin = exp(abs(self._middle)) - 1
        return judged_by_races(lambda limits: self._race(program, margin, limits), self._middle)

    def _race(self, program: Path, margin: float, limits: dict[str, int]) -> Standing:
        sides = [self._plan(one, self._settings | {"cflags": None}) for one in (self._good, program)]
        plan = race_of("bisect", sides, {"margin": margin, "by": "slices", **limits})
        return outcome_of(kind.measured(plan, self._lab, self._notes.path / "races").directory).standing

    @property
    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = json.loads(self._notes.request.settings)
        return settings

    def _plan(self, file: Path, settings: dict[str, Any]) -> Plan:
        request = self._notes.request
        program = {"file": str(file.resolve())} | {name: one for name, one in settings.items() if one is not None}
        points = {"mode": [request.mode], "program": program}
        if "frames" not in program:
            points["frame_bytes"] = [request.frame_bytes]
        block = {"points": points, "traffic": {"flows": request.flows, "load": "max"}}
        return relative_to(parse_plan({"name": "bisect", "trial": TRIAL, "blocks": [block]}), Path())

    def _object(self, revision: Revision) -> Path:
        """Compile a commit's program; what races is the object, since only one commit is checked out."""
        with self._revisions.candidate(revision) as (file, _, settings):
            point = next(block_points(self._plan(file, json.loads(settings)).blocks[0], "shared"))
            built = build(program_of(point.program), cache_directory())
        path = self._notes.path / "objects" / f"{built.hash}.bpf.o"
        path.parent.mkdir(exist_ok=True)
        shutil.copy(built.object, path)
        return path

    def difference(self, before: Revision, suspect: Revision) -> CostDifference | Absent:
        """Return what changed, counted in a guest; absent where none counts it."""
        with closing(CostJudge(self._notes, self._revisions)) as counts:
            return counts.difference(before, suspect)

    def close(self) -> None:
        self._open.close()


def judged_by_races(race: Callable[[dict[str, int]], Standing], middle: float) -> Judged:
    """Return on which side of the middle a commit's ratio to the good end lies; skipped where no race tells."""
    for limits in PAIRS:
        standing = race(limits)
        ratio = standing.ratio
        if standing.windows is None and (answer := side_of(ratio, middle)):
            return Judged(answer, _words(ratio), exp(ratio.median))
    return Judged("skip", standing.text if standing.windows is not None else f"undecided: {_words(ratio)}")


def side_of(ratio: Known, middle: float) -> Answer | None:
    """Return the side of the middle on which a whole interval lies; None if it holds the middle. All are logarithms."""
    low, high = sorted((ratio.low, ratio.high) if middle > 0 else (-ratio.low, -ratio.high))
    if high < abs(middle):
        return "good"
    return "bad" if low > abs(middle) else None


def _words(ratio: Known) -> str:
    median, low, high = (exp(value) for value in (ratio.median, ratio.low, ratio.high))
    return f"rate {median:.4f} of the good end's ({low:.4f} to {high:.4f}, {ratio.n} pairs)"
