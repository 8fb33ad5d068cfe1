"""What every `study NAME` does with a person's words: start or resume a run, measure, show tables and figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import pandas as pd

from xdplab.cli.common import console, show
from xdplab.run.progress import ending, observer_for
from xdplab.studies.frame import Kind, P, R, StudyRun, silent

F = TypeVar("F", bound=Callable[..., Any])

MOST_ROWS = 100
"""A table of more rows is not shown on a terminal: it lies in the run."""

_OPTIONS = (
    click.option("--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True, help="Parent."),
    click.option("--name", help="Name of the run directory; the study's by default."),
    click.option(
        "--resume", type=click.Path(path_type=Path), metavar="RUN", help="Go on with a run; all else is its plan's."
    ),
    click.option("--json", "as_json", is_flag=True, help="The table's rows, for a script."),
)


def run_options(command: F) -> F:
    """Give a study's command the options all of them have: --out, --name, --resume, --json."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def conduct(
    kind: Kind[R, P], asked: Callable[[], R], *, out: Path, name: str | None, resume: Path | None, as_json: bool
) -> int:
    """Start what was asked, or go on with ``resume``; return the exit code: 1 where a trial failed or is owed."""
    return go_on(kind.open(resume) if resume else kind.start(asked(), out, name), as_json=as_json)


def go_on(run: StudyRun[R, P], *, as_json: bool = False) -> int:
    """Measure what a run owes and show what it is; return the exit code."""
    if not as_json:
        _say(f"measuring into {run.directory.path}")
    state = run.state
    if state.owed:
        state = run.execute(silent() if as_json else observer_for(console))
    else:
        run.complete()
    if as_json:
        run.draw()
        click.echo(run.table().to_json(orient="records"))
    else:
        _show_tables(run)
        draw(run)
        for line in (*run.notes, *run.failures()):
            _say(line)
        _say(ending(state))
    return 1 if state.failed or state.owed else 0


def draw(run: StudyRun[R, P], style: str = "paper-1col") -> None:
    """Write a run's tables and figures, and say where they are, or why one is not."""
    for figure in run.draw(style):
        where = next((f for f in figure.files if f.suffix == ".png"), None)
        _say(f"figure {figure.stem}: {where}" if where else f"no figure {figure.stem}: {figure.reason}")


def _show_tables(run: StudyRun[R, P]) -> None:
    for name, (title, frame) in run.tables().items():
        if len(frame) > MOST_ROWS:
            _say(f"{title}: {len(frame)} rows in {run.directory.path / 'tables' / name}.md\n")
            continue
        rows = [dict(zip(map(str, frame.columns), row, strict=True)) for row in frame.astype(object).values]
        show([{k: None if pd.isna(v) else v for k, v in row.items()} for row in rows], as_json=False, title=title)
        console.print()


def _say(line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
