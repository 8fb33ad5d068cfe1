"""Options that belong together: a command takes them as one dataclass whose fields have the options' names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xdplab.cli.common import AS_JSON, F, RunPath
from xdplab.errors import LabError
from xdplab.figures import DEFAULT_FORMATS, FORMATS
from xdplab.lazy import lazily

with lazily():
    from xdplab.studies import kind as kinds

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from xdplab.labs import Lab

PATH = click.Path(path_type=Path)


def options_as(name: str, kind: type[DataclassInstance], *options: Callable[[F], F]) -> Callable[[F], F]:
    """Return what adds options to a command, which gets their values as one ``kind``, under ``name``."""
    members = [field.name for field in fields(kind)]

    def add(command: F) -> F:
        @functools.wraps(command)
        def taking(*arguments: Any, **values: Any) -> Any:
            taken = {member: values.pop(member) for member in members if member in values}
            return command(*arguments, **values, **{name: kind(**taken)})

        with_options: Any = taking
        for option in reversed(options):
            with_options = option(with_options)
        return with_options  # type: ignore[no-any-return]

    return add


def _formats(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Return the formats of ``pdf,png``."""
    names = tuple(name for text in given for name in text.split(","))
    for name in names:
        if name not in FORMATS:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(FORMATS)}")
    return names


PICTURE_FORMATS = click.option(
    "--format",
    "formats",
    multiple=True,
    callback=_formats,
    metavar="FORMAT,…",
    help=f"Of the pictures: {', '.join(FORMATS)} (default: {','.join(DEFAULT_FORMATS)}); repeatable.",
)


def _labs(context: click.Context, parameter: click.Parameter, labs: str | None) -> tuple[str, ...]:
    return tuple(lab for lab in (labs or "").split(",") if lab)


@dataclass(frozen=True)
class Sharing:
    """The labs that measure at the same time, their Dask scheduler, and whether servers are taken from a silent run."""

    labs: tuple[str, ...] = ()
    scheduler: str | None = None
    steal: bool = False

    def __post_init__(self) -> None:
        if self.scheduler is not None and not self.labs:
            raise LabError("--scheduler says where, --labs says which: both are needed", remedy="--labs a.yaml,b.yaml")

    def where(self, lab: Lab | str | None) -> kinds.Where:
        """Return where a run measures: in its labs, or in ``lab``."""
        return kinds.Where(None if self.labs else lab, self.labs, self.scheduler, self.steal)


STEAL = click.option("--steal", is_flag=True, help="Take the servers from a run that has been silent for 60 s.")
sharing_options = options_as(
    "sharing",
    Sharing,
    click.option(
        "--labs",
        metavar="A,B,…",
        callback=_labs,
        help="Share the blocks among equal labs, which measure at the same time.",
    ),
    click.option("--scheduler", metavar="ADDRESS", help="With --labs: the Dask scheduler of their workers."),
    STEAL,
)


@dataclass(frozen=True)
class StudyRun:
    """The run of a study: a new one and its place, or ``resume``. ``labs``: places that measure at the same time."""

    out: Path
    name: str | None = None
    resume: Path | None = None
    labs: tuple[str, ...] = ()
    as_json: bool = False
    figures: bool = True


study_run_options = options_as(
    "choices",
    StudyRun,
    click.option("--out", type=PATH, default=Path("results"), show_default=True, help="Parent."),
    click.option("--name", help="Name of the run directory; the study's by default."),
    click.option("--resume", type=RunPath(), metavar="RUN", help="Continue a run; its plan has all other options."),
    click.option(
        "--labs", metavar="A,B,…", callback=_labs, help="Places that measure at the same time: guests that count."
    ),
    AS_JSON,
)
