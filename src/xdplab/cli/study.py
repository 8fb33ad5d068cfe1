"""`study NAME`: the measurements besides XDP traffic, each repeatable by one command. Add a line here for a new study.

The options of a study are the fields of its request that are declared with `xdplab.studies.points.option`.

`study published`: what was published beside what runs of today give.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from xdplab.cli.common import Verb, Verbs, echo, said_once
from xdplab.cli.options import StudyRun, study_run_options
from xdplab.errors import PlanError
from xdplab.lazy import lazily

with lazily():
    from xdplab.cli import conduct
    from xdplab.studies import environment, kinds, published
    from xdplab.studies.verifier import runs

if TYPE_CHECKING:
    from xdplab.studies.kind import Run
    from xdplab.studies.points import Option, R, StudyRequest

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class StudyVerb(Verb):
    """The command of a study that is made of its request: ``module`` is its study, ``function`` its request."""

    text: str
    """The command's own help."""

    def load(self) -> click.Command:
        return _command(self)


STUDIES: dict[str, Verb] = {
    "execution": StudyVerb(
        "execution",
        "ExecutionRequest",
        "BPF, the same code as a kernel module, and in user space.",
        "What BPF costs, interpreted and compiled, against the same code as a kernel module and in user space.",
    ),
    "jit": StudyVerb(
        "jit",
        "JitRequest",
        "What BPF costs interpreted and compiled.",
        "What BPF costs interpreted and compiled: the kernel's own tests, programs of one instruction, classic "
        "filters.",
    ),
    "loading": StudyVerb(
        "loading",
        "LoadingRequest",
        "What loading costs: BPF, and the same code as a module.",
        "What loading costs: BPF compiled, opened, verified, JITed, attached; the same compiled, inserted as a module.",
    ),
    "offload": StudyVerb(
        "offload",
        "OffloadRequest",
        "What a card that offloads XDP accepts and refuses.",
        "What a card that offloads XDP accepts and refuses: the control plane of offload, on netdevsim in guests.\n\n"
        "No packet is forwarded: netdevsim executes nothing.",
    ),
    "outage": StudyVerb(
        "outage",
        "OutageRequest",
        "Frames lost when an XDP program is attached, replaced, detached.",
        "Frames lost, and how long, when an XDP program is attached, replaced or detached, or switches its mode.",
    ),
    "neighbour": StudyVerb(
        "neighbour",
        "NeighbourRequest",
        "What a program on a port costs TCP on that host.",
        "What a program on a port costs the host that goes on serving TCP through it: throughput, CPU time per "
        "gigabyte and round trip, without a program, with XDP_PASS, with tcx and with yours, in turns.",
    ),
    "verifier": Verb("study_verifier", "verifier", "What time and memory the kernel's verifier takes."),
    "lines": Verb("study_verifier", "lines", "The verifier's work per source line or subprogram of your programs."),
    "published": Verb("study", "published_beside", "Published experiments beside runs of these studies."),
}


@click.group(cls=Verbs, verbs=STUDIES)
def study() -> None:
    """Studies of the execution side: what BPF costs to verify, to load and to run."""


@functools.cache
def _command(verb: StudyVerb) -> click.Command:
    request: type[StudyRequest] = getattr(
        importlib.import_module(f"xdplab.studies.{verb.module}.points"), verb.function
    )

    @click.command(verb.module, help=verb.text)
    @request_options(request)
    @study_run_options
    def measure(choices: StudyRun, **chosen: Any) -> int:
        kind = kinds.kind_named(verb.module)
        assert kind.planning is not None  # each study has one
        smallest = kind.planning.smallest
        return conduct.conduct_study(kind, lambda: requested(request, chosen, smallest), choices)[1]

    return said_once(measure)


def requested(request: type[R], values: dict[str, Any], smallest: Callable[[R], R]) -> R:
    """Return the request that options ask for; those that were not given keep its defaults."""
    requested = request(**{name: value for name, value in values.items() if value not in ((), None)})
    return conduct.made_small(requested, smallest) if requested.smallest else requested


def request_options(request: type[StudyRequest]) -> Callable[[F], F]:
    """Return what adds the options of a request to a command, in the order of its fields."""

    def add(command: F) -> F:
        for field, option in reversed(request.options().items()):
            command = _option(field, option, getattr(request, field))(command)
        return command

    return add


def _option(field: str, option: Option, default: Any) -> Callable[[F], F]:
    name = option.of(field)
    how: dict[str, Any] = {"help": option.help, "metavar": option.metavar, "type": _type(option, default)}
    if isinstance(default, bool):
        name = f"{name}/--no-{name.removeprefix('--')}" if default else name
        how = {"help": option.help, "is_flag": True, "default": default, "show_default": default}
    elif isinstance(default, tuple):
        how |= {"callback": _numbers, "type": str} if option.listed else {"multiple": True}
    else:
        how |= {"default": default, "show_default": bool(default)}
    return click.option(name, field, **how)


def _type(option: Option, default: Any) -> Any:
    if option.choices:
        return click.Choice(option.choices)
    if option.bounds:
        return (click.FloatRange if isinstance(default, float) else click.IntRange)(*option.bounds)
    return click.Path(exists=True, dir_okay=False) if option.file else str


def _numbers(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in (text or "").split(",") if word)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of numbers such as 1,100,1600") from None


REPEATING = ("loading", "execution", "jit")
"""The studies whose published experiments share a page. The paper that study verifier repeats has a page of its own."""


@click.command("published")
@click.argument("paths", metavar="RUNS", nargs=-1, required=True, type=click.Path(file_okay=False, path_type=Path))
def published_beside(paths: tuple[Path, ...]) -> int:
    """Print pages that set what was published beside RUNS of the studies execution, loading, jit and verifier.

    It measures nothing. An experiment that none of these runs has measured is listed as such; of one that several
    runs measured at the same place, the last one's result is shown. Each run of study verifier has a page of its own.
    """
    opened = [_opened(path) for path in paths]
    repeated = [run for run in opened if run.kind.name in REPEATING]
    pages = [_page(repeated)] if repeated else []
    pages += [runs.paper_page(run) for run in opened if run not in repeated]
    echo("\n".join(pages), nl=False)
    return 0


def _opened(path: Path) -> Run[Any]:
    run = kinds.open_run(path)
    if run.kind.name not in (*REPEATING, "verifier"):
        names = ", ".join((*REPEATING, "verifier"))
        raise PlanError(f"{path} is of no study that repeats published experiments: {names}")
    return run


def _page(repeated: Sequence[Run[Any]]) -> str:
    rows = [published.rows(published.experiments(name), published.NOTHING) for name in REPEATING]
    rows += [
        published.rows(published.experiments(run.kind.name), run.rows(), str(number))
        for number, run in enumerate(repeated, 1)
    ]
    return published.page(published.latest(rows), [*map(_around, repeated)])


def _around(run: Run[Any]) -> list[str]:
    request = published.request_text(run.kind.name, run.plan.request)
    summary = environment.summary(run.directory) or "tools that the run does not name"
    return [request, environment.origin(run.directory), *summary.split("; ")]
