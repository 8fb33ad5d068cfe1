"""`bisect`: the first commit, or kernel, in which a packet costs otherwise; and the command of `git bisect run`.

git takes 0 for good, 125 for skip, and each other code below 128 for bad. So an error of any kind has a code above: it
ends git's search, and calls no commit bad.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xdplab.absent import Absent
from xdplab.cli.common import AS_JSON, in_lab, print_json, show_frame, tell
from xdplab.cli.lab import tested_kernels
from xdplab.cli.options import PATH, options_as
from xdplab.cli.programs import ProgramSettings, user_program_options
from xdplab.errors import PlanError, XdplabError
from xdplab.lazy import lazily
from xdplab.studies.cost.points import KERNEL, CostRequest
from xdplab.text import many, step

with lazily():  # a command line is checked, and completed, without them
    from xdplab.bisect import judges, revisions
    from xdplab.bisect import search as searching
    from xdplab.studies.cost import gate
if TYPE_CHECKING:
    from xdplab.bisect.search import Judged, Revision, Revisions


EXIT_CODES = {"good": 0, "bad": 1, "skip": 125}
ENDS_THE_SEARCH = 255
ANY_RISE = Fraction(1, 1_000_000)
"""Instructions: counts are fractions of some hundred frames."""


class EndsTheSearchError(XdplabError):
    """An error within `git bisect run`, which must call no commit bad."""

    exit_code = ENDS_THE_SEARCH


@contextmanager
def calling_none_bad() -> Iterator[None]:
    """Raise EndsTheSearchError for any error in this block."""
    try:
        yield
    except XdplabError as error:
        raise EndsTheSearchError(error.message, remedy=error.remedy) from error
    except click.ClickException as error:
        raise EndsTheSearchError(error.format_message()) from error
    except Exception as error:
        raise EndsTheSearchError(f"{type(error).__name__}: {error}") from error


class CommandOfGit(click.Command):
    """A command whose line, too, ends git's search if it is wrong."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **more: Any) -> click.Context:
        if not any(word.partition("=")[0] == "--judge" for word in args):
            return super().make_context(info_name, args, *rest, **more)
        with calling_none_bad():
            return super().make_context(info_name, args, *rest, **more)


def judged(baseline: Path, file: str, settings: str, step: float | None) -> Judged:
    """Judge a program against the only cost of a baseline, whose kernel, mode and frames are taken: bad is what costs
    ``step`` more, or anything. Raises ResultsError, PlanError for a baseline of several packets."""
    cases = gate.read_baseline(baseline)
    if len(cases) != 1:
        raise PlanError(f"{baseline} has {len(cases)} packets", remedy="`xdplab cost FILE --write` of one program")
    (good,) = cases
    kernel, mode, frame_bytes, flows = good.traffic
    sizes = (int(frame_bytes),) if frame_bytes.isdigit() else CostRequest.frame_bytes
    request = CostRequest(modes=(mode,), frame_bytes=sizes, flows=int(flows))
    threshold = judges.Threshold.above(good, ANY_RISE if step is None else Fraction(step))
    with (
        tempfile.TemporaryDirectory(prefix="xdplab-judge-") as folder,
        closing(judges.KeptCosts(Path(folder) / "costs", request)) as costs,
    ):
        return judges.judged_by(threshold, lambda: costs.case(Path(file), kernel, settings))


MODES = ("native", "generic", "test_run")


@dataclass(frozen=True)
class Wanted:
    """The options of a bisection."""

    good: str | None
    bad: str | None
    repo: Path | None
    build: str | None
    kernel: tuple[str, ...]
    mode: str
    frame_bytes: int
    flows: int
    step: float | None
    by: str


wanted_options = options_as(
    "wanted",
    Wanted,
    click.option("--good", metavar="REV|KERNEL", help="The good end: a commit of --repo, or a kernel."),
    click.option("--bad", metavar="REV|KERNEL", help="The bad end, which came from it."),
    click.option("--repo", type=PATH, metavar="DIR", help="Search its commits; FILE is a path in it."),
    click.option("--build", metavar="COMMAND", help="Run in each commit before FILE is taken, by sh."),
    click.option(
        "--kernel",
        multiple=True,
        metavar="VERSION|FILE[,MODULES]",
        help="With --repo: count in this one (6.12). Else: those between the ends, in their order.",
    ),
    click.option("--mode", type=click.Choice(MODES), default="native", show_default=True),
    click.option("--frame-bytes", type=int, default=64, show_default=True),
    click.option("--flows", type=click.IntRange(1, 512), default=1, show_default=True),
    click.option(
        "--step", type=float, metavar="N", help="Bad is what differs by N instructions from good.  [default: half]"
    ),
    click.option("--by", type=click.Choice(["cost", "race"]), default="cost", show_default=True, help="The judge."),
)


@click.command(cls=CommandOfGit)
@click.argument("file", required=False)
@wanted_options
@user_program_options
@click.option("--resume", type=PATH, metavar="DIR", help="Continue; the folder has all other options.")
@click.option("--judge", type=PATH, metavar="BASELINE", help="For `git bisect run`: only FILE as it is, against this.")
@click.option("--out", type=PATH, default=Path("results"), show_default=True, help="Parent of the folder.")
@click.option("--name", default="bisect", show_default=True, help="Name of the folder.")
@AS_JSON
@in_lab
def bisect(
    lab_name: str | None,
    /,
    file: str | None,
    wanted: Wanted,
    programs: ProgramSettings,
    resume: Path | None,
    judge: Path | None,
    out: Path,
    name: str,
    as_json: bool,
) -> int:
    """Which commit, or which kernel, made a packet of FILE cost more (or less)?

    Instructions per packet are counted at both ends, and at as few revisions between them as needed. What cannot be
    judged is skipped, never guessed. Exit codes: 0 one is left, 1 several; with --judge 0 good, 1 bad, 125 skip, 255 an
    error.
    """
    if judge is not None:
        with calling_none_bad():
            verdict = judged(judge, file or "", _settings(programs), wanted.step)
        tell(f"{verdict.answer}: {verdict.words}")
        return EXIT_CODES[verdict.answer]
    if resume is not None:
        work = searching.Notes.open(resume)
    else:
        request = _request(file, wanted, programs, lab_name)
        searching.require_name(name)
        work = searching.Notes.start(out, name, request)
    with work.writer(), _revisions(work) as between:
        culprit = _searched(work, between, as_json)
    if as_json:
        print_json(culprit.to_json())
    else:
        _show(culprit)
    return 0 if culprit.is_one else 1


def _request(file: str | None, wanted: Wanted, programs: ProgramSettings, lab: str | None) -> searching.BisectRequest:
    """Return what is asked, with the ends as hashes or names that stay. Raises PlanError."""
    for name, given in (("FILE", file), ("--good", wanted.good), ("--bad", wanted.bad)):
        if given is None:
            raise PlanError(f"bisect: {name} is missing", remedy="`xdplab bisect --repo . --good v1 --bad HEAD FILE`")
    if wanted.by == "race" and wanted.step is not None:
        raise PlanError("--step: instructions, and a race counts none", remedy="--by cost, or leave it out")
    good, bad, path = str(wanted.good), str(wanted.bad), str(file)
    if wanted.repo is None:
        if wanted.by == "race":
            raise PlanError("--by race: commits race, kernels are counted", remedy="`xdplab race --labs` races two")
        if wanted.build is not None:
            raise PlanError("--build: kernels are compared with one program", remedy="with --repo, or leave it out")
        if not Path(path).is_file():
            raise PlanError(f"{path}: there is no such file", remedy="with --repo its commits are searched")
        names = revisions.in_order(good, bad, wanted.kernel, tested_kernels())
        good, bad, path, repo = names[0], names[-1], str(Path(path).resolve()), None
    else:
        if len(wanted.kernel) > 1:
            raise PlanError("--kernel: commits are compared in one kernel")
        repository = revisions.Repository(wanted.repo)
        names = wanted.kernel or (KERNEL,)
        good, bad = repository.commit("--good", good), repository.commit("--bad", bad)
        repository.require_ancestor(good, bad)
        path, repo = repository.inside(path), str(repository.top)
    return searching.BisectRequest(
        good=good,
        bad=bad,
        file=path,
        repo=repo,
        build=wanted.build,
        kernels=names,
        mode=wanted.mode,
        frame_bytes=wanted.frame_bytes,
        flows=wanted.flows,
        settings=_settings(programs),
        step=wanted.step,
        by=wanted.by,
        lab=lab,
    )


def _settings(programs: ProgramSettings) -> str:
    return json.dumps({key: value for key, value in programs.of(Path()).items() if key != "file"})


@contextmanager
def _revisions(work: searching.Notes) -> Iterator[Revisions]:
    request = work.request
    if request.repo is None:
        yield revisions.Kernels([*map(revisions.revision, request.kernels)], Path(request.file), request.settings)
        return
    repository = revisions.Repository(Path(request.repo))
    if request.build is not None:
        repository.require_trust(request.build)
    candidate = (request.file, request.kernels[0], request.settings)
    with closing(
        revisions.Commits(repository, request.good, request.bad, candidate, request.build, work.clone)
    ) as between:
        yield between


def _searched(work: searching.Notes, between: Revisions, as_json: bool) -> searching.Culprit:
    def show(revision: Revision, verdict: Judged) -> None:
        tell(f"{verdict.answer}: {revision.title}: {verdict.words}", err=as_json)

    what = "kernel" if work.request.repo is None else "commit"
    tell(
        f"searching {many(between.total, what)}; `xdplab bisect --resume {work.path}` continues if it is interrupted",
        err=as_json,
    )
    make = judges.RaceJudge if work.request.by == "race" else judges.CostJudge
    with closing(make(work, between)) as judge:
        ends = judge.measure_ends()
        for revision, verdict in zip((between.good, between.bad), ends, strict=True):
            show(revision, verdict)
        verdicts = searching.search(between, judge.judge, show)
        suspects, before = between.suspects(), between.before()
        with step("comparing both sides of the step"):
            difference = judge.difference(before, suspects[-1])
    return searching.Culprit(work.path, what, suspects, before, between.total, ends, judge.at, verdicts, difference)


def _show(culprit: searching.Culprit) -> None:
    tell(f"\n{culprit.text}")
    difference = culprit.difference
    if isinstance(difference, Absent):
        tell(f"What changed there was not counted: {difference}")
        return
    tell(f"What changed from {culprit.before.title}:\n")
    for frame in (difference.totals, difference.lines, difference.functions):
        if len(frame):
            show_frame(frame.head(searching.MOST_LINES), title="")
