"""`study verifier`: what the kernel's verifier costs, over sizes, kernels, compilers, and against PREVAIL; and `study
lines`: where its work comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import click

from xdplab.cli.common import AS_JSON, fail, print_json, show
from xdplab.cli.compare_programs import Judging, judging_options, show_programs
from xdplab.cli.conduct import conduct_study
from xdplab.cli.options import StudyRun, study_run_options
from xdplab.cli.study import request_options, requested
from xdplab.errors import PlanError, XdplabError
from xdplab.labs.base import HOST
from xdplab.lazy import lazily
from xdplab.studies.kinds import kind_named
from xdplab.studies.verifier.points import PROGRAM_FLAGS, VerifierRequest, smallest

with lazily():
    from xdplab.studies.verifier import compare_programs, hotspots, machines

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
FLAGS = click.Choice(tuple(PROGRAM_FLAGS))
MODULES = click.option("--modules", type=FOLDER, help="Of a bzImage of yours.")


@click.command()
@click.argument("objects", nargs=-1)
@request_options(VerifierRequest)
@MODULES
@click.option(
    "--compare",
    "compare",
    is_flag=True,
    help="Then compare two --kernel, or two OBJECTS, per program; exit code as for `compare`. No generated programs.",
)
@judging_options
@study_run_options
def verifier(
    objects: tuple[str, ...], modules: Path | None, compare: bool, judging: Judging, choices: StudyRun, **chosen: Any
) -> int:
    """How long the kernel's verifier takes and how much memory it needs, by program size.

    OBJECTS are BPF objects, directories or archives of them, or `system`. Generated families are added.
    """
    if choices.as_json and compare:
        raise PlanError("--json prints the run", remedy="`xdplab compare RUN --programs --json` prints the comparison")
    if judging.given and not compare:
        raise PlanError("--show, --filter, --sort, --top and --threshold are of a comparison", remedy="add --compare")

    def request() -> VerifierRequest:
        sides = _two_sides(objects, chosen) if compare else {}
        kernels = {"kernels": _kernels(chosen["kernels"], modules)}
        return _generating(requested(VerifierRequest, {"objects": objects} | chosen | sides | kernels, smallest))

    run, code = conduct_study(kind_named("verifier"), request, choices)
    return show_programs(*compare_programs.sides_within(run), judging) if compare and not code else code


def _generating(request: VerifierRequest) -> VerifierRequest:
    """`--family none` means no family."""
    return replace(request, families=()) if request.families == ("none",) else request


def _two_sides(objects: tuple[str, ...], chosen: dict[str, Any]) -> dict[str, Any]:
    """Return what a comparison asks for: its sides are two kernels, or two OBJECTS on one kernel."""
    kernels = len(set(chosen["kernels"])) or 1
    if kernels > 2 or (kernels == 1 and len(objects) != 2):
        raise PlanError(
            f"--compare with {kernels} kernels and {len(objects)} OBJECTS: two sides are two kernels, or two OBJECTS",
            remedy="such as --kernel host --kernel 7.2, or OLD NEW",
        )
    generated = {"families": chosen["families"] or ("none",), "testbed": False, "largest": False} if objects else {}
    return generated | {"apart": kernels == 1}


def _kernels(names: Sequence[str], modules: Path | None) -> tuple[str, ...]:
    """Return the names of kernels; a file of the user's is taken into the cache first, with its modules."""
    images = [name for name in names if "/" in name]  # versions and `host` contain no slash
    if modules and not images:
        raise PlanError("--modules is of a kernel's image", remedy="name it as a path: --kernel ./bzImage")
    return tuple(machines.own_kernel(Path(name), modules) if name in images else name for name in names)


@click.command()
@click.argument("objects", nargs=-1, required=True)
@click.option("--subprograms", is_flag=True, help="Per subprogram, with its stack.")
@click.option("--kernel", "kernels", multiple=True, metavar="host|VERSION|FILE", help="host by default.")
@MODULES
@click.option("--flag", "flags", multiple=True, type=FLAGS, metavar="NAME", help="Load every program with BPF_F_NAME.")
@click.option("--logs", type=FOLDER, help="Keep the verifier's full logs there.")
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Show the first N rows of each program.")
@AS_JSON
def lines(objects: tuple[str, ...], subprograms: bool, modules: Path | None, as_json: bool, **chosen: Any) -> int:
    """Print the verifier's work per source line of the programs in OBJECTS. It makes no run."""
    by: hotspots.By = "subprogram" if subprograms else "line"
    kernels = _kernels(chosen["kernels"], modules) or (HOST,)
    machines.require_kernels(kernels)
    rows: list[dict[str, Any]] = []
    missing: list[XdplabError] = []
    for path, kernel in product(map(Path, objects), kernels):
        for hotspot in hotspots.hotspots(path, kernel, chosen["logs"], by=by, flags=chosen["flags"]):
            if isinstance(hotspot, XdplabError):
                missing.append(hotspot)
            else:
                rows += hotspots.listed(hotspot, chosen["top"])
    if rows or not missing:
        (print_json if as_json else show)(rows)
    for error in missing[:-1]:
        fail(error)
    if missing:
        raise missing[-1]
    return 0
