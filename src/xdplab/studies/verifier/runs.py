"""What one does with a run of the study: start it, execute or resume it, read its table, draw it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from matplotlib.axes import Axes
from rich.console import Console

from xdplab.errors import PlanError, ResultsError
from xdplab.figures import Drawn, FigureError
from xdplab.figures import draw as draw_view
from xdplab.figures.draw import Panels
from xdplab.programs import cache_directory
from xdplab.runner import Observer, PlainObserver, RunState, read_state, run_trials
from xdplab.store import RunDirectory
from xdplab.studies.verifier import corpora
from xdplab.studies.verifier.compilers import Compiler, find_compilers
from xdplab.studies.verifier.families import FAMILIES, Member
from xdplab.studies.verifier.machines import known_types
from xdplab.studies.verifier.points import (
    HOST,
    LINUX,
    VerifierPoint,
    VerifierTrial,
    member_columns,
    point_from,
    point_of,
    schedule,
)
from xdplab.studies.verifier.prevail import Limits, Prevail, find_prevails
from xdplab.studies.verifier.rows import largest_of, table_of
from xdplab.studies.verifier.study import Means, VerifierStudy
from xdplab.studies.verifier.summaries import tables_of, write_tables
from xdplab.studies.verifier.views import FIGURES, draw_figures, view_of

LOOP_SIZES = (1, 2, 3, 5, 10, 20, 50, 100, 150, 200, 250, 350)
"""The last two are beyond the limit of a million processed instructions, rolled and unrolled."""

SMALLEST_SIZES = (1, 2, 3, 10, 30)
GROWING = {"branches": (10, 50, 100, 500, 1000), "pruning": (2, 4, 8, 12, 16)}
SMALLEST_GROWING = {"branches": (10, 100), "pruning": (4, 8)}
GUEST_MOST_N = 50
"""Largest generated size handed to a guest: 100 iterations take it half a minute."""

TESTBED_ACCESSES = (0, 10, 100, 1000)


@dataclass(frozen=True)
class Request:
    """What is asked for. Empty ``compilers`` or ``mcpus`` are all that are here; ``prevails`` those on PATH."""

    objects: tuple[str, ...] = ()
    kernels: tuple[str, ...] = (HOST,)
    prevails: tuple[str, ...] = ()
    compilers: tuple[str, ...] = ()
    mcpus: tuple[str, ...] = ("v2", "v3", "v4")
    families: tuple[str, ...] = tuple(FAMILIES)
    testbed: bool = True
    largest: bool = True
    repetitions: int = 3
    loads: int = 20
    budget_ms: int = 500
    limit_s: float = 60.0
    types: str | None = None
    seed: int = 1
    smallest: bool = False


def smallest(request: Request) -> Request:
    """Return the request made as small as still shows everything: one repetition, few sizes, two compilers."""
    mcpus = ("v3",) if request.mcpus == Request.mcpus else request.mcpus
    return replace(
        request, mcpus=mcpus, repetitions=1, loads=5, budget_ms=100, testbed=False, limit_s=10.0, smallest=True
    )


@dataclass(frozen=True)
class VerifierRun:
    """A run of the study on disk."""

    directory: RunDirectory
    request: Request
    points: tuple[VerifierPoint, ...]
    notes: tuple[str, ...]

    @property
    def trials(self) -> list[VerifierTrial]:
        return schedule(self.points, self.request.repetitions, self.request.seed)


def start(request: Request, parent: Path, name: str = "verifier") -> VerifierRun:
    """Gather what is to be verified, compile what is generated, and make a run directory; nothing is measured yet.

    Raises PlanError for what cannot be used, ProgramError where a compiler refuses.
    """
    compilers = _chosen_compilers(request)
    prevails = find_prevails(request.prevails)
    subjects = _subjects(request, compilers)
    points = [*_points(request, subjects, prevails), *_searches(request, compilers)]
    if not points:
        raise PlanError("there is nothing to verify", remedy="name objects, or leave the families in")
    plan = {"study": "verifier"} | asdict(request)
    plan["prevails"] = [f"{p.name}={p.path}" for p in prevails]
    directory = RunDirectory.create(
        parent,
        name,
        run_id=secrets.token_hex(4),
        plan_yaml=yaml.safe_dump(json.loads(json.dumps(plan)), sort_keys=False),
    )
    _write_objects(directory, subjects, request.types)
    notes = _left_out(compilers, prevails)
    directory.write_json("points.json", {"points": [asdict(p) for p in points], "notes": notes})
    run = VerifierRun(directory, request, tuple(points), tuple(notes))
    directory.journal.append("planned", trials=[t.trial_id for t in run.trials])
    return run


def open_run(path: Path) -> VerifierRun:
    """Open a run of this study. Raises ResultsError where ``path`` is none."""
    directory = RunDirectory.open(path)
    plan = yaml.safe_load((path / "plan.yaml").read_text())
    if not isinstance(plan, dict) or plan.pop("study", None) != "verifier":
        raise ResultsError(f"{path} is no run of the verifier study", remedy="`xdplab status` tells what it is")
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in plan.items()}
    request = Request(**fields)
    known = json.loads((path / "points.json").read_text())
    return VerifierRun(directory, request, tuple(map(point_from, known["points"])), tuple(known["notes"]))


def execute(run: VerifierRun, observer: Observer) -> RunState:
    """Measure what the run owes. What a machine cannot is a verdict of its trials; the rest goes on."""
    request = run.request
    means = Means(
        objects=run.directory.path / "objects",
        types=run.directory.path / "known.types",
        cache_dir=cache_directory().parent / "verifier",
        compilers={c.name: c for c in find_compilers()},
        prevails={p.name: p for p in find_prevails(request.prevails)},
        loads=request.loads,
        budget_ms=request.budget_ms,
        limits=Limits(wall_s=request.limit_s),
    )
    with run.directory.writer():
        return run_trials(run.directory, run.trials, VerifierStudy(means), observer, retries=0, pause_s=0.0)


def table(run: VerifierRun) -> pd.DataFrame:
    """Return one row a program of what was measured, and keep it as ``verifier.parquet``."""
    found = table_of(run.directory, run.trials)
    run.directory.write_table("verifier.parquet", found)
    return found


def tables(run: VerifierRun) -> dict[str, tuple[str, pd.DataFrame]]:
    """Return title and content of the study's tables."""
    return tables_of(table(run), largest_of(run.directory, run.trials))


def draw(run: VerifierRun, style: str = "paper-1col") -> list[Drawn]:
    """Write every table and draw every figure there is data for; return the figures, and why the others are not."""
    write_tables(tables(run), run.directory.path / "tables")
    return draw_figures(table(run), run.directory.figures, style=style)


def figure(run: VerifierRun, name: str, style: str = "paper-1col") -> Axes | Panels:
    """Draw one figure for a notebook. Raises FigureError where there is none of that name, or nothing to draw."""
    found = next((figure for figure in FIGURES if figure.name == name), None)
    if found is None:
        raise FigureError(f"no figure {name!r}", remedy=f"figures are {', '.join(f.name for f in FIGURES)}")
    return draw_view(view_of(found, table(run)), style)


def failures(run: VerifierRun) -> list[str]:
    """Return one line a trial that did not come to a measurement."""
    state = read_state(run.directory)
    by_id = {t.trial_id: t for t in run.trials}
    return [f"{by_id[a.trial_id].point}: {a.reason}" for a in state.last.values() if a.status != "measured"]


def silent() -> Observer:
    """An observer that says nothing."""
    return PlainObserver(Console(quiet=True))


def _chosen_compilers(request: Request) -> list[Compiler]:
    here = list(find_compilers())
    chosen = [c for c in here if not request.compilers or c.name in request.compilers]
    unknown = set(request.compilers) - {c.name for c in here}
    if unknown:
        raise PlanError(f"--compiler: {', '.join(sorted(unknown))} is not here", remedy=f"here are {_names(here)}")
    return [*chosen[:1], *chosen[-1:]][: len(chosen)] if request.smallest else chosen


def _names(found: Sequence[Compiler]) -> str:
    return ", ".join(c.name for c in found) or "none"


def _members(request: Request) -> list[Member]:
    loops = SMALLEST_SIZES if request.smallest else LOOP_SIZES
    members = [
        Member(family, n, options)
        for family in request.families
        if family == "double_strcmp"
        for n in loops
        for options in ((), (("form", "unrolled"),), (("exit", "!="),))
    ]
    growing = SMALLEST_GROWING if request.smallest else GROWING
    return members + [Member(family, n) for family in request.families for n in growing.get(family, ())]


def _subjects(request: Request, compilers: Sequence[Compiler]) -> list[corpora.Subject]:
    cache = cache_directory().parent / "verifier"
    unknown = set(request.families) - set(FAMILIES)
    if unknown:
        raise PlanError(f"--family: no {', '.join(sorted(unknown))}", remedy=f"families are {', '.join(FAMILIES)}")
    subjects = corpora.collect(request.objects)
    subjects += corpora.generated(_members(request), compilers, request.mcpus, cache)
    if request.testbed and compilers:
        subjects += corpora.testbed(TESTBED_ACCESSES, cache_directory())
    return subjects


def _points(request: Request, subjects: Sequence[corpora.Subject], prevails: Sequence[Prevail]) -> list[VerifierPoint]:
    points = []
    for kernel in request.kernels:
        points += [point_of(s, LINUX, kernel) for s in subjects if kernel == HOST or _fits_guest(s)]
    for prevail in prevails:
        points += [point_of(s, prevail.name, "") for s in subjects]
    return points


def _fits_guest(subject: corpora.Subject) -> bool:
    return subject.member is None or subject.member.family == "branches" or subject.member.n <= GUEST_MOST_N


def _searches(request: Request, compilers: Sequence[Compiler]) -> list[VerifierPoint]:
    """The searches for the largest N of double_strcmp on this machine's kernel."""
    if not request.largest or HOST not in request.kernels or "double_strcmp" not in request.families:
        return []
    forms = ((), (("form", "unrolled"),))
    made = []
    for compiler in compilers:
        for mcpu in (m for m in request.mcpus if m in compiler.instruction_sets):
            for options in forms:
                subject = corpora.Subject("", "", b"", Member("double_strcmp", 0, options), compiler.name, mcpu)
                columns = member_columns(subject) | {"n": None}
                name = f"double_strcmp {columns['form']}, {compiler.name} {mcpu}"
                made.append(VerifierPoint(LINUX, HOST, "largest", "double_strcmp", name, "", **columns))
    return made


def _write_objects(directory: RunDirectory, subjects: Sequence[corpora.Subject], types: str | None) -> None:
    for subject in subjects:
        directory.write_bytes(f"objects/{subject.sha256[:16]}.o", subject.content)
    own = Path(types).read_text() if types else ""
    directory.write_bytes("known.types", (own + known_types()).encode())


def _left_out(compilers: Sequence[Compiler], prevails: Sequence[Prevail]) -> list[str]:
    """Return what this machine cannot show, in words."""
    notes = [] if prevails else ["PREVAIL is not installed: nothing is compared with it (--prevail PATH)"]
    if not compilers:
        notes.append("no clang is here: the generated families are left out")
    elif compilers[-1].release < 18:
        notes.append("no clang from 18 on is here: instruction set v4 is left out (pip install 'xdplab[compilers]')")
    return notes
