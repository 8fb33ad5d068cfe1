"""`study verifier`: what the kernel's verifier costs, over sizes, kernels, compilers, and against PREVAIL."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xdplab.cli.common import echo, fail, show
from xdplab.cli.conduct import conduct, made_small, run_choices, run_options
from xdplab.cli.versus import asked, judging_options, show_programs, taken
from xdplab.errors import PlanError, XdplabError
from xdplab.later import later
from xdplab.studies.catalogue import study
from xdplab.studies.places import HOST
from xdplab.studies.verifier.families import FAMILIES, MOST_N

if TYPE_CHECKING:
    from xdplab.studies.verifier import hotspots, machines, runs, versus
    from xdplab.studies.verifier.runs import VerifierRequest
else:
    runs, versus = later("xdplab.studies.verifier.runs"), later("xdplab.studies.verifier.versus")
    machines = later("xdplab.studies.verifier.machines")
    hotspots = later("xdplab.studies.verifier.hotspots")


@click.command()
@click.argument("objects", nargs=-1)
@click.option("--smallest", is_flag=True, help="Few sizes, one repetition: a minute, and every figure has points.")
@click.option(
    "--kernel",
    "kernels",
    multiple=True,
    metavar="host|VERSION|FILE",
    help="host (the default), 5.10, …, or a bzImage of yours.",
)
@click.option("--modules", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Of a bzImage of yours.")
@click.option("--prevail", "prevails", multiple=True, metavar="[NAME=]PATH", help="PREVAIL commands; else PATH's own.")
@click.option("--compiler", "compilers", multiple=True, metavar="NAME", help='Such as "clang 14"; all that are here.')
@click.option("--mcpu", "mcpus", multiple=True, type=click.Choice(["v1", "v2", "v3", "v4"]), help="v2, v3 and v4.")
@click.option(
    "--family",
    "families",
    multiple=True,
    metavar="NAME|FILE",
    help=f"{', '.join(FAMILIES)}, none, or a template of yours; all but strcmp_return by default.",
)
@click.option(
    "--size",
    "sizes",
    multiple=True,
    type=click.IntRange(1, MOST_N),
    help="Size N of the generated programs (default: each family's own sizes).",
)
@click.option("--testbed/--no-testbed", default=True, show_default=True, help="The XDP lab's own programs.")
@click.option("--largest/--no-largest", default=True, show_default=True, help="Search the largest N that is accepted.")
@click.option("--repetitions", type=click.IntRange(1, 1000), default=3, show_default=True)
@click.option("--loads", type=click.IntRange(1, 1000), default=20, show_default=True, help="Most loads per program.")
@click.option(
    "--guest-loads", type=click.IntRange(1, 1000), default=3, show_default=True, help="Most loads of them in guests."
)
@click.option(
    "--limit-s", type=click.FloatRange(1, 3600), default=60.0, show_default=True, help="Limit of a PREVAIL run."
)
@click.option(
    "--flag",
    "flags",
    multiple=True,
    metavar="NAME",
    help="Load every program with BPF_F_NAME, such as test_state_freq.",
)
@click.option("--types", type=click.Path(exists=True, dir_okay=False), help="OBJECT SECTION TYPE lines (see the docs).")
@click.option(
    "--globals",
    "variables",
    type=click.Path(exists=True, dir_okay=False),
    help="Global variables to set before loading: OBJECT VARIABLE INTEGER lines (see the docs).",
)
@click.option(
    "--targets",
    "attached",
    type=click.Path(exists=True, dir_okay=False),
    help="OBJECT SECTION TARGET-OBJECT PROGRAM FUNCTION lines: the BPF programs that programs attach to.",
)
@click.option(
    "--load-module",
    "loaded",
    multiple=True,
    metavar="NAME",
    help="Guests load this kernel module first, so that its functions can be attached to.",
)
@click.option(
    "--compare",
    "compare",
    is_flag=True,
    help="Then compare two --kernel, or two OBJECTS, per program; exit code as for `compare`. No generated programs.",
)
@click.option("--lines", is_flag=True, help="Only print the verifier's work per source line of OBJECTS; make no run.")
@click.option("--subprograms", is_flag=True, help="Like --lines, but per subprogram, with its stack.")
@click.option(
    "--logs",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="With --lines or --subprograms: keep the verifier's full logs there.",
)
@click.option(
    "--paper",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="RUN",
    help="Only print a page: the numbers of the paper beside those of RUN; no run.",
)
@judging_options
@run_options
def verifier(
    objects: tuple[str, ...],
    smallest: bool,
    compare: bool,
    lines: bool,
    subprograms: bool,
    logs: Path | None,
    paper: Path | None,
    **chosen: Any,
) -> int:
    """How long the kernel's verifier takes and how much memory it needs, by program size.

    OBJECTS are BPF objects, directories or archives of them, or `system`. Generated families are added.
    """
    judged, choices = taken(chosen), run_choices(chosen)
    as_json = choices.as_json
    if paper:
        _require_only(click.get_current_context(), "--paper", ("paper",))
        echo(runs.paper_page(paper), nl=False)
        return 0
    if lines or subprograms:
        _require_only(click.get_current_context(), "--subprograms" if subprograms else "--lines", _OF_LINES)
        if lines and subprograms:
            raise PlanError("--lines and --subprograms exclude each other", remedy="use one of them")
        _require_image(chosen["modules"], chosen["kernels"])
        kernels = [_kernel(kernel, chosen["modules"]) for kernel in chosen["kernels"] or (HOST,)]
        by: hotspots.By = "subprogram" if subprograms else "line"
        return _show_work(objects, kernels, logs, judged["top"], by, chosen["flags"], as_json=as_json)
    if logs:
        raise PlanError("--logs keeps what --lines or --subprograms reads", remedy="add one of them")
    if as_json and compare:
        raise PlanError("--json prints the rows", remedy="`xdplab compare RUN --programs --json` prints the comparison")
    if any(judged.values()) and not compare:
        raise PlanError("--show, --filter, --sort, --top and --threshold are of a comparison", remedy="add --compare")
    return conduct(
        study("verifier"),
        lambda: _request(objects, smallest, compare, chosen),
        choices,
        after=(lambda run: show_programs(*versus.sides_within(run), asked(judged))) if compare else None,
    )


_OF_LINES = ("objects", "kernels", "modules", "lines", "subprograms", "flags", "logs", "top", "as_json")


def _require_only(context: click.Context, mode: str, taken_by_it: Sequence[str]) -> None:
    """Raise PlanError for an option that ``mode``, which makes no run, would ignore."""
    said = [option for option in context.command.params if option.name not in taken_by_it]
    given = [
        option.human_readable_name if option.param_type_name == "argument" else option.opts[0]
        for option in said
        if context.get_parameter_source(option.name or "") is _GIVEN
    ]
    if given:
        raise PlanError(f"{mode} makes no run: it takes no {', '.join(given)}", remedy="leave it out")


_GIVEN = click.core.ParameterSource.COMMANDLINE


def _show_work(
    objects: tuple[str, ...],
    kernels: Sequence[str],
    logs: Path | None,
    top: int | None,
    by: hotspots.By,
    flags: tuple[str, ...],
    *,
    as_json: bool,
) -> int:
    if not objects:
        raise PlanError(f"--{by}s needs OBJECTS", remedy="name a BPF object file")
    machines.require_kernels(kernels)
    machines.require_flags(flags)
    rows: list[dict[str, Any]] = []
    missing: list[XdplabError] = []
    for path, kernel in product(map(Path, objects), kernels):
        for found in hotspots.hotspots(path, kernel, logs, by=by, flags=flags):
            if isinstance(found, XdplabError):
                missing.append(found)
                continue
            rows += hotspots.listed(found, top)
    if rows or not missing:
        show(rows, as_json=as_json)
    for error in missing[:-1]:
        fail(error)
    if missing:
        raise missing[-1]
    return 0


def _request(objects: tuple[str, ...], smallest: bool, compare: bool, chosen: dict[str, Any]) -> VerifierRequest:
    """Options that were not given keep the request's defaults."""
    modules = chosen.pop("modules")
    _require_image(modules, chosen["kernels"])
    if compare:
        chosen = _two_sided(objects, chosen)
    chosen = chosen | {"kernels": tuple(_kernel(kernel, modules) for kernel in chosen["kernels"])}
    said = {key: value for key, value in chosen.items() if value != ()}
    if said.get("families") == ("none",):
        said["families"] = ()
    request = runs.VerifierRequest(objects=objects, **said)
    return made_small(request, runs.smallest) if smallest else request


def _require_image(modules: Path | None, kernels: Sequence[str]) -> None:
    if modules and not any(map(_is_file, kernels)):
        raise PlanError("--modules is of a kernel's image", remedy="name it as a path: --kernel ./bzImage")


def _kernel(kernel: str, modules: Path | None) -> str:
    """Return a kernel's name; a file of the user's is taken into the cache first, with its modules."""
    return machines.own_kernel(Path(kernel), modules) if _is_file(kernel) else kernel


def _is_file(kernel: str) -> bool:
    """Tell whether a kernel is given as a file: versions and ``host`` contain no slash."""
    return "/" in kernel


def _two_sided(objects: tuple[str, ...], chosen: dict[str, Any]) -> dict[str, Any]:
    """Return the two sides of the comparison: two kernels, or two OBJECTS on one kernel."""
    kernels = len(set(chosen["kernels"])) or 1
    if kernels > 2 or (kernels == 1 and len(objects) != 2):
        raise PlanError(
            f"--compare with {kernels} kernels and {len(objects)} OBJECTS: two sides are two kernels, or two OBJECTS",
            remedy="such as --kernel host --kernel 7.2, or OLD NEW",
        )
    generated = {"families": chosen["families"] or ("none",), "testbed": False, "largest": False} if objects else {}
    return chosen | generated | {"apart": kernels == 1}
