"""The jit study as a kind of study: its points, measurement and output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from xdplab.errors import PlanError
from xdplab.programs.program import cache_directory
from xdplab.run.rundir import read_json
from xdplab.studies.guests import compiler_of, require_places
from xdplab.studies.jit import summaries, views
from xdplab.studies.jit.cbpf import Op
from xdplab.studies.jit.classes import CLASSES
from xdplab.studies.jit.filters import EXPRESSIONS, PACKET_FILTERS, SECCOMP_FILTERS, compiled, tcpdump
from xdplab.studies.jit.kerneltests import chosen_range
from xdplab.studies.jit.points import (
    PARTS,
    SUITES,
    TEST_BPF,
    JitPoint,
    JitRequest,
    hardenings_of,
    modes_of,
    parts_of,
    smallest,
    subjects_of,
)
from xdplab.studies.jit.results import results
from xdplab.studies.jit.rows import table_of
from xdplab.studies.jit.study import JitStudy
from xdplab.studies.places import require_rights
from xdplab.studies.points import Gathered, StudyPlan, StudyPlanning
from xdplab.studies.study_kind import study_kind

FILTERS_FILE = "filters.json"
JitPlan = StudyPlan[JitRequest, JitPoint]


def _gather(request: JitRequest) -> Gathered[JitPoint]:
    require_places(request.places, any_architecture=True)
    require_rights(request.places, "--place vm:6.1:count")
    _check(request)
    filters, notes = _filters(request)
    points = [
        JitPoint(place, part, subject, mode, request.tests if (part, subject) == (TEST_BPF, SUITES[0]) else "", harden)
        for place in request.places
        for part in parts_of(place, request)
        for subject in subjects_of(part, place, request, tuple(filters))
        for mode in modes_of(place, request)
        for harden in hardenings_of(mode, request)
    ]
    if not points:
        raise PlanError("there is nothing to measure", remedy="name a part, or leave --part out")
    kept = json.dumps(filters, indent=1).encode()
    return Gathered(points, files={FILTERS_FILE: kept}, notes=notes)


def _check(request: JitRequest) -> None:
    chosen_range(request.tests)
    for place in request.places:
        if set(parts_of(place, request)) - {TEST_BPF}:
            compiler_of(place)  # that it is missing is said before anything starts
    for option, chosen, choices in (
        ("--part", request.parts, PARTS),
        ("--suite", request.suites, SUITES),
        ("--class", request.classes, tuple(CLASSES)),
        ("--filter", request.filters, (*PACKET_FILTERS, *SECCOMP_FILTERS)),
    ):
        if unknown := set(chosen) - set(choices):
            raise PlanError(f"{option}: no {', '.join(sorted(unknown))}", remedy=f"there are {', '.join(choices)}")


def _filters(request: JitRequest) -> tuple[dict[str, tuple[Op, ...]], list[str]]:
    """Return every filter of the run by name, and what is left out."""
    shipped = PACKET_FILTERS | SECCOMP_FILTERS
    chosen = {name: shipped[name] for name in request.filters or shipped}
    expressions, notes = request.expressions, []
    if not expressions and not request.filters:
        expressions = EXPRESSIONS if tcpdump() else ()
        if not expressions:
            notes.append("no tcpdump is here: no expression is compiled (apt install tcpdump)")
    return chosen | {expression: compiled(expression) for expression in expressions}, notes


def _session(plan: JitPlan) -> JitStudy:
    def session_of(kept: Any) -> JitStudy:
        return JitStudy({name: tuple(Op(*op) for op in code) for name, code in kept.items()}, _cache_dir())

    return read_json(plan.directory.path / FILTERS_FILE, session_of)


def _cache_dir() -> Path:
    return cache_directory().parent / "jit"


STUDY = study_kind(
    StudyPlanning("jit", "What does BPF cost, interpreted and compiled?", JitRequest, JitPoint, _gather, smallest),
    session=_session,
    table=table_of,
    tables=lambda _plan, table: summaries.tables_of(table),
    views=views.VIEWS,
    results=results,
    version="4",
    possible=lambda plan: views.possible(plan.points),
)
