"""The verifier study as a kind of study: its request, points, measurement, tables and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from xdplab.errors import PlanError
from xdplab.labs.base import HOST
from xdplab.programs.program import cache_directory
from xdplab.studies import environment
from xdplab.studies.kind import Run
from xdplab.studies.places import require_rights
from xdplab.studies.points import Gathered, StudyPlanning
from xdplab.studies.study_kind import study_kind
from xdplab.studies.tables import Table
from xdplab.studies.verifier import corpora, machines
from xdplab.studies.verifier.generated import FAMILIES, Compiler, Member, find_compilers, is_file, own_members
from xdplab.studies.verifier.machines import known_types, own_kernels, require_kernels
from xdplab.studies.verifier.paper import page, paper_table
from xdplab.studies.verifier.points import (
    LINUX,
    VerifierPlan,
    VerifierPoint,
    VerifierRequest,
    member_columns,
    point_of,
    smallest,
)
from xdplab.studies.verifier.prevail import Prevail, find_prevails, version_of
from xdplab.studies.verifier.rows import largest_of, table_of
from xdplab.studies.verifier.study import VerifierStudy
from xdplab.studies.verifier.summaries import results, tables_of
from xdplab.studies.verifier.views import VIEWS
from xdplab.text import many

LOOP_SIZES = (1, 2, 3, 5, 10, 20, 50, 100, 150, 200, 250, 350)
"""The last two are beyond the limit of a million processed instructions, rolled and unrolled."""

SMALLEST_SIZES = (1, 2, 3, 10, 30)
GROWING = {"branches": (10, 50, 100, 500, 1000), "pruning": (2, 4, 8, 12, 16)}
SMALLEST_GROWING = {"branches": (10, 100), "pruning": (4, 8)}
GUEST_MOST_N = 50
"""Largest generated size handed to a guest: 100 iterations take it half a minute."""

TESTBED_ACCESSES = (0, 10, 100, 1000)


def gather(request: VerifierRequest) -> Gathered[VerifierPoint]:
    """Gather the objects, and compile the generated programs.

    Raises PlanError for unusable options, ProgramError if a compiler refuses.
    """
    require_kernels(request.kernels)
    require_rights(request.kernels, "--kernel 6.1")
    compilers = _chosen_compilers(request)
    prevails = find_prevails(request.prevails)
    subjects = _subjects(request, compilers)
    points = [*_points(request, subjects, prevails), *searches(request, compilers)]
    if not points:
        raise PlanError("there is nothing to verify", remedy="name objects, or leave the families in")
    own_types = Path(request.types).read_text() if request.types else ""
    files = {f"objects/{point_of(subject, '', '').file_name}": subject.content for subject in subjects}
    files["known.types"] = (own_types + known_types()).encode()
    names = {point.file_name for point in points if point.task != "largest"}
    files |= machines.tables_of(request, names)
    words = machines.given_words(request, files)
    points = [replace(point, given=words) if point.verifier == LINUX else point for point in points]
    return Gathered(points, files, [*_left_out(compilers, prevails), *too_large(request, subjects)])


def tools(plan: VerifierPlan) -> dict[str, str]:
    """Return the full version of each installed compiler and verifier, of users' own kernels, and what the user set."""
    versions = {compiler.name: compiler.version for compiler in find_compilers()}
    versions |= own_kernels(plan.request.kernels) | machines.given_tools(plan.request, plan.directory.path)
    return versions | {prevail.name: version_of(prevail) for prevail in find_prevails(plan.request.prevails)}


def _tables(plan: VerifierPlan, table: pd.DataFrame) -> dict[str, Table]:
    largest = largest_of(plan)
    tables = tables_of(table, largest)
    return tables | {"paper": paper_table(table, largest)} if len(table) else tables


def paper_page(run: Run[VerifierPlan]) -> str:
    """Return the page that sets a run beside the published study."""
    plan, table = run.plan, run.rows()
    others = table.loc[table["verifier"] != LINUX, "verifier"]
    named = [*sorted(table["compiler"].dropna().unique()), *others.unique(), *machines.TOOLS]
    around = environment.summary(plan.directory, named) or "tools that the run does not name"
    text = page(table, largest_of(plan), around)
    lacking = not_measured_of(plan)
    parts = ", ".join(f"{many(count, 'trial')} of {place}" for place, count in lacking.items())
    return f"{text}\nNot measured: {parts}; `xdplab audit RUN` says why.\n" if lacking else text


def not_measured_of(plan: VerifierPlan) -> Counter[str]:
    """Count the trials without a measurement, by kernel or verifier: what failed, and what an unfinished run owes."""
    measured = {trial.trial_id for trial, last, _ in plan.attempts() if last.status == "measured"}
    return Counter(t.point.kernel or t.point.verifier for t in plan.trials if t.trial_id not in measured)


STUDY = study_kind(
    StudyPlanning(
        "verifier", "What time and memory does the verifier take?", VerifierRequest, VerifierPoint, gather, smallest
    ),
    session=VerifierStudy,
    table=table_of,
    tables=_tables,
    views=VIEWS,
    results=results,
    version="3",
    tools=tools,
)


def _chosen_compilers(request: VerifierRequest) -> list[Compiler]:
    here = list(find_compilers())
    chosen = [c for c in here if not request.compilers or c.name in request.compilers]
    unknown = set(request.compilers) - {c.name for c in here}
    if unknown:
        names = ", ".join(c.name for c in here) or "none"
        raise PlanError(f"--compiler: {', '.join(sorted(unknown))} is not here", remedy=f"here are {names}")
    return [*chosen[:1], *chosen[-1:]][: len(chosen)] if request.smallest else chosen


def members(request: VerifierRequest) -> list[Member]:
    """Return the generated programs that a request asks for."""
    loops = request.sizes or (SMALLEST_SIZES if request.smallest else LOOP_SIZES)
    members = [
        Member(family, n, options)
        for family in request.families
        if family == "double_strcmp"
        for n in loops
        for options in ((), (("form", "unrolled"),), (("exit", "!="),))
    ]
    growing = SMALLEST_GROWING if request.smallest else GROWING
    members += [
        Member(family, n) for family in request.families if family in growing for n in request.sizes or growing[family]
    ]
    templates = [Path(family) for family in dict.fromkeys(request.families) if is_file(family)]
    return members + own_members(templates, request.sizes)


def _subjects(request: VerifierRequest, compilers: Sequence[Compiler]) -> list[corpora.CorpusObject]:
    cache = cache_directory().parent / "verifier"
    unknown = {family for family in request.families if not is_file(family)} - set(FAMILIES)
    if unknown:
        raise PlanError(
            f"--family: no {', '.join(sorted(unknown))}",
            remedy=f"families are {', '.join(FAMILIES)}, or a template's file",
        )
    subjects = corpora.collect(request.objects, apart=request.apart)
    subjects += corpora.generated(members(request), compilers, request.mcpus, cache)
    if request.testbed and compilers:
        subjects += corpora.testbed(TESTBED_ACCESSES, cache_directory())
    return subjects


def _points(
    request: VerifierRequest, subjects: Sequence[corpora.CorpusObject], prevails: Sequence[Prevail]
) -> list[VerifierPoint]:
    points = []
    for kernel in request.kernels:
        points += [point_of(s, LINUX, kernel) for s in subjects if kernel == HOST or _fits_guest(s)]
    for prevail in prevails:
        points += [point_of(s, prevail.name, "") for s in subjects]
    return points


def _fits_guest(subject: corpora.CorpusObject) -> bool:
    return subject.member is None or subject.member.family == "branches" or subject.member.n <= GUEST_MOST_N


def too_large(request: VerifierRequest, subjects: Sequence[corpora.CorpusObject]) -> list[str]:
    """Return a note on the generated programs that guests do not get."""
    sizes = sorted({s.member.n for s in subjects if s.member is not None and not _fits_guest(s)})
    if not sizes or set(request.kernels) <= {HOST}:
        return []
    return [f"guests: generated programs of N = {', '.join(map(str, sizes))} are left out: too slow there"]


def searches(request: VerifierRequest, compilers: Sequence[Compiler]) -> list[VerifierPoint]:
    """Return the searches for the largest N of double_strcmp: of every build here, of one in a guest (15 s a load)."""
    if not request.largest or "double_strcmp" not in request.families:
        return []
    builds = [(c.name, mcpu) for c in compilers for mcpu in request.mcpus if mcpu in c.instruction_sets]
    newest = [build for build in builds if build[0] == builds[-1][0]]
    single = [build for build in newest if build[1] == "v3"] or newest[-1:]
    guests = (
        []
        if request.smallest
        else [(kernel, *build) for kernel in request.kernels if kernel != HOST for build in single]
    )
    here = [(HOST, *build) for build in builds if HOST in request.kernels]
    return [_search(*place, options) for place in (*here, *guests) for options in ((), (("form", "unrolled"),))]


def _search(kernel: str, compiler: str, mcpu: str, options: tuple[tuple[str, str], ...]) -> VerifierPoint:
    subject = corpora.CorpusObject("", "", b"", Member("double_strcmp", 0, options), compiler, mcpu)
    columns = member_columns(subject) | {"n": None}
    name = f"double_strcmp {columns['form']}, {compiler} {mcpu}"
    return VerifierPoint(LINUX, kernel, "largest", "double_strcmp", name, "", **columns)


def _left_out(compilers: Sequence[Compiler], prevails: Sequence[Prevail]) -> list[str]:
    """Return notes on what this machine cannot show."""
    notes = [] if prevails else ["PREVAIL is not installed: nothing is compared with it (--prevail PATH)"]
    if not compilers:
        notes.append("no clang is here: the generated families are left out")
    elif compilers[-1].release < 18:
        notes.append("no clang from 18 on is here: instruction set v4 is left out (pip install 'xdplab[compilers]')")
    return notes
