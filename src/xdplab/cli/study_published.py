"""`study published`: what was published beside what runs of today give."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xdplab.cli.common import echo
from xdplab.errors import PlanError
from xdplab.lazy import lazy

if TYPE_CHECKING:
    from xdplab.studies import environment, kinds, published
    from xdplab.studies.kind import Run
    from xdplab.studies.verifier import runs
else:
    kinds = lazy("xdplab.studies.kinds")
    environment, published = lazy("xdplab.studies.environment"), lazy("xdplab.studies.published")
    runs = lazy("xdplab.studies.verifier.runs")

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
