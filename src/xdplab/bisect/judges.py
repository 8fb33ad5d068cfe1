"""The judges: one by exact counts, of what a packet costs in a revision and where the line between good and bad lies;
one by races, of a commit's program against that of the good end, until the ratio of their rates is on one side."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from math import exp, log
from pathlib import Path
from typing import Any

from xdplab.absent import Absent
from xdplab.analysis.decide.race import Known, Standing
from xdplab.bisect.search import Answer, Judged, Notes, Revision, Revisions
from xdplab.errors import HostError, PlanError, ProgramError, UnsupportedError, XdplabError
from xdplab.labs import use_lab
from xdplab.plan.model import Plan, parse_plan, race_of, relative_to
from xdplab.plan.points import block_points
from xdplab.programs.build import build
from xdplab.programs.program import cache_directory
from xdplab.programs.spec import program_of
from xdplab.run import progress
from xdplab.studies.cost import gate
from xdplab.studies.cost.gate import Case, CostDifference
from xdplab.studies.cost.measurement import PATH, WHOLE
from xdplab.studies.cost.points import CostPoint, CostRequest, CostTrial
from xdplab.studies.cost.runs import STUDY, CostStudy, files_of
from xdplab.studies.points import StudyPlan
from xdplab.studies.study_kind import Places
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


_KERNEL = "kernel_release"


def unlike(good: Case, case: Case, *, over_kernels: bool) -> str:
    """Return what makes two costs those of different things, apart from the kernel where kernels are compared."""
    lines = CostDifference(good, case).made_otherwise
    return "; ".join(line for line in lines if not (over_kernels and line.startswith(_KERNEL)))


class StandingGuest(CostStudy):
    """Counts the programs of many runs, one after the other, in a guest that stays up: a boot takes as long as ten."""

    def turn_to(self, plan: StudyPlan[CostRequest, CostPoint]) -> StandingGuest:
        """Count the programs of another run from now on."""
        self._run = plan.directory
        return self

    def enter_block(self, trials: Sequence[CostTrial]) -> None:
        self._block = tuple(trials)
        try:
            if self.place is None or self._guest is None or self.place.name != trials[0].point.place:
                raise HostError("no guest of this kernel is up")
            for path, content in files_of(self._run, {trial.point for trial in trials}).items():
                self._guest.host.put(content, f"/{path}")
        except HostError:
            self.end()
            self.boot()

    def leave_block(self) -> None:
        """It stays up."""


class KeptCosts:
    """The cost of each program and kernel, counted once: ``folder`` keeps it, as a baseline of `cost`."""

    def __init__(self, folder: Path, request: CostRequest) -> None:
        self._folder, self._request = folder, request
        self._guest: StandingGuest | None = None

    def case(self, program: Path, kernel: str, settings: str) -> Case:
        """Raises ProgramError, UnsupportedError with the reason of what has no cost."""
        request = replace(self._request, programs=(str(program),), kernels=(kernel,), settings=settings)
        with self._scratch() as results:
            run = STUDY.start(request, results)
            kept = self._folder / f"{run.plan.points[0].point_id}.json"  # of equal preprocessed text it is the same
            if not kept.is_file():
                run.measure_at(Places(self._session, lambda _: {}, ()), progress.silent())
                for ended in run.state.last.values():
                    if ended.status != "measured":
                        raise UnsupportedError(str(ended.reason))
                gate.write_baseline(gate.cases_of(run.rows()), kept)
        (case,) = gate.read_baseline(kept)
        return case

    @contextmanager
    def _scratch(self) -> Iterator[Path]:
        """Give a folder beside the costs: what a kill leaves goes with the next."""
        folder = self._folder.with_name(f"{self._folder.name}-scratch")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _session(self, plan: StudyPlan[CostRequest, CostPoint]) -> StandingGuest:
        self._guest = self._guest or StandingGuest(plan)
        return self._guest.turn_to(plan)

    def close(self) -> None:
        if self._guest is not None:
            self._guest.end()


@dataclass(frozen=True)
class Threshold:
    """Where bad begins: at ``at`` instructions, which the bad end reaches from ``good`` on. ``parts``: what is counted,
    the whole, or those of its parts that are exact at both ends."""

    good: Case
    parts: tuple[str, ...]
    at: Fraction
    rises: bool
    over_kernels: bool

    @classmethod
    def between(cls, good: Case, bad: Case, step: float | None, *, over_kernels: bool) -> Threshold:
        """Return the line in the middle of two ends, or ``step`` from the good one. Raises PlanError where none is."""
        if why := unlike(good, bad, over_kernels=over_kernels):
            raise PlanError(f"the ends do not compare: {why}", remedy="their costs are of different packets")
        parts = gate.judged_totals(good, bad)
        low, high = (sum((case.totals[name] for name in parts), Fraction()) for case in (good, bad))
        if low == high:
            doubt = f"; no frame came back or went on: {gate.MAP_HINT}" if good.drops_all or bad.drops_all else ""
            raise PlanError(
                f"nothing to find: a packet costs {float(low):g} instructions at both ends{doubt}",
                remedy="name ends that differ: `xdplab cost` counts each",
            )
        wanted = abs(high - low) / 2 if step is None else Fraction(step)
        if wanted > abs(high - low) or wanted <= 0:
            raise PlanError(f"--step {step:g}: the ends differ by {float(abs(high - low)):g} instructions")
        return cls(good, parts, low + (wanted if high > low else -wanted), high > low, over_kernels)

    @classmethod
    def above(cls, good: Case, step: Fraction) -> Threshold:
        """Return the threshold ``step`` above a cost, by all of its parts that are exact."""
        parts = gate.judged_totals(good)
        cost = sum((good.totals[name] for name in parts), Fraction())
        return cls(good, parts, cost + step, rises=True, over_kernels=False)

    def cost(self, case: Case) -> Fraction:
        """Raises UnsupportedError where a part that is judged holds to a range only, or the packets are others."""
        if why := unlike(self.good, case, over_kernels=self.over_kernels):
            raise UnsupportedError(f"not comparable: {why}")
        if inexact := [name for name in self.parts if name not in case.totals]:
            raise UnsupportedError(f"{', '.join(inexact)}: holds to a range only")
        return sum((case.totals[name] for name in self.parts), Fraction())

    def verdict(self, case: Case) -> Judged:
        cost = self.cost(case)
        is_bad = cost >= self.at if self.rises else cost <= self.at
        which = "" if {WHOLE, PATH} & {*self.parts} else f" ({' and '.join(self.parts)} alone)"
        return Judged("bad" if is_bad else "good", f"{float(cost):.3f} instructions{which}", float(cost))


def judged_by(threshold: Threshold, count: Callable[[], Case]) -> Judged:
    """Return the verdict on what ``count`` gives; skipped is what has no cost, or one of other packets."""
    try:
        return threshold.verdict(count())
    except (PlanError, ProgramError, UnsupportedError) as error:
        return Judged("skip", error.message)


class CostJudge:
    """Judges by counts; a verdict that the notes have is not measured again."""

    def __init__(self, notes: Notes, revisions: Revisions) -> None:
        request = notes.request
        counted = CostRequest(
            modes=(request.mode,),
            frame_bytes=(request.frame_bytes,),
            flows=request.flows,
        )
        self._revisions, self._notes, self._counts = revisions, notes, KeptCosts(notes.costs, counted)
        self._over_kernels = request.repo is None
        self._threshold: Threshold | None = None

    def measure_ends(self) -> tuple[Judged, Judged]:
        """Return the verdicts of both ends. Raises PlanError where there is nothing to find, and the error of an end
        that has no cost."""
        good, bad = (
            self._end(name, end) for name, end in (("good", self._revisions.good), ("bad", self._revisions.bad))
        )
        self._threshold = Threshold.between(good, bad, self._notes.request.step, over_kernels=self._over_kernels)
        return self._threshold.verdict(good), self._threshold.verdict(bad)

    def _end(self, name: str, end: Revision) -> Case:
        try:
            return self._case(end)
        except XdplabError as error:
            error.message = f"--{name} {end.title}: {error.message}"
            raise

    def _case(self, revision: Revision) -> Case:
        with self._revisions.candidate(revision) as candidate:
            return self._counts.case(*candidate)

    @property
    def at(self) -> float:
        """Where bad begins."""
        assert self._threshold is not None  # the ends are measured first
        return float(self._threshold.at)

    def judge(self, revision: Revision) -> Judged:
        if (verdict := self._notes.verdict(revision)) is not None:
            return verdict
        assert self._threshold is not None
        verdict = judged_by(self._threshold, lambda: self._case(revision))
        self._notes.keep(revision, verdict)
        return verdict

    def difference(self, before: Revision, suspect: Revision) -> CostDifference | Absent:
        """Return what changed between two revisions; absent where one of them has no cost."""
        try:
            return CostDifference(self._case(before), self._case(suspect))
        except XdplabError as error:
            return Absent(str(error))

    def close(self) -> None:
        self._counts.close()
