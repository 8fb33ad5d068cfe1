"""Study execution, as a kind of run: what it gathers before anything is measured."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from xdplab.errors import PlanError
from xdplab.studies.execution import user_pair
from xdplab.studies.execution.backends import absent, left_out
from xdplab.studies.execution.objects import build, build_for
from xdplab.studies.execution.points import (
    BACKENDS,
    ExecutionPoint,
    ExecutionRequest,
    chosen,
    own_points,
    points,
    smallest,
)
from xdplab.studies.execution.results import results
from xdplab.studies.execution.rows import table_of
from xdplab.studies.execution.study import OBJECTS, REFERENCE, ExecutionStudy, reference
from xdplab.studies.execution.summaries import tables_of
from xdplab.studies.execution.views import VIEWS
from xdplab.studies.guests import architecture_of, require_places
from xdplab.studies.places import is_foreign
from xdplab.studies.points import Gathered, StudyPlanning
from xdplab.studies.study_kind import study_kind


def gather(request: ExecutionRequest) -> Gathered[ExecutionPoint]:
    """Compile the benchmarks (or a user's own pair) and let user space of this machine say what each must give.

    Raises PlanError for unusable options, ProgramError if a compiler refuses.
    """
    if unknown := set(request.backends) - set(BACKENDS):
        raise PlanError(f"--backend: there is no {', '.join(sorted(unknown))}", remedy=f"{', '.join(BACKENDS)}")
    require_places(request.places, any_architecture=True)
    notes = left_out(request.places, request.backends, request.host_module)
    if request.config:
        if foreign := [place for place in request.places if is_foreign(place)]:
            raise PlanError(f"--config: the event of a pair of your own cannot run in {foreign[0]}, which has no files")
        pair, files = user_pair.load(Path(request.config))
        return _gathered(own_points(request, pair.name), files, notes)
    benchmarks = chosen(request)
    files = build(benchmarks.values())
    with tempfile.TemporaryDirectory(prefix="xdplab-reference-") as name:
        for file, content in files.items():
            (Path(name) / file).write_bytes(content)
        expected = reference(benchmarks, Path(name), max(3, request.calls))
    files[REFERENCE] = json.dumps(expected).encode()
    with_user_space = (place for place in request.places if "user" not in absent(place, request.host_module))
    others = {other.name: other for place in with_user_space if (other := architecture_of(place))}
    for architecture in others.values():
        theirs = build_for(architecture.compiler(), benchmarks.values())
        files |= {f"{architecture.name}/{name}": content for name, content in theirs.items()}
    return _gathered(points(request, benchmarks), files, notes)


def _gathered(
    chosen_points: Sequence[ExecutionPoint], files: Mapping[str, bytes], notes: Sequence[str]
) -> Gathered[ExecutionPoint]:
    if not chosen_points:
        raise PlanError(f"there is nothing to measure: {'; '.join(notes) or 'no benchmark is of this place'}")
    return Gathered(chosen_points, {f"{OBJECTS}/{name}": content for name, content in files.items()}, notes)


STUDY = study_kind(
    StudyPlanning(
        "execution",
        "What does BPF cost, beside the same code as a kernel module and in user space?",
        ExecutionRequest,
        ExecutionPoint,
        gather,
        smallest,
    ),
    session=ExecutionStudy,
    table=table_of,
    tables=lambda _plan, table: tables_of(table),
    views=VIEWS,
    results=results,
    version="3",
)
