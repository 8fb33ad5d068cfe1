"""`study published`: what was published beside what runs of today give."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from xdplab.cli.common import echo
from xdplab.errors import PlanError
from xdplab.later import later

if TYPE_CHECKING:
    from xdplab.studies import catalogue, frame, provenance, published
else:
    catalogue, frame = later("xdplab.studies.catalogue"), later("xdplab.studies.frame")
    provenance, published = later("xdplab.studies.provenance"), later("xdplab.studies.published")

REPEATING = ("loading", "execution", "jit")
"""The studies that list published experiments; the verifier study has a page of its own (`study verifier --paper`)."""


@click.command("published")
@click.argument("runs", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
def table_of_published(runs: tuple[Path, ...]) -> int:
    """Print a page that sets published experiments beside RUNS of the studies execution, loading and jit.

    It measures nothing. An experiment that none of these runs has measured is listed as such; of one that several
    runs measured at the same place, the last one's result is shown.
    """
    found: dict[str, list[list[dict[str, object]]]] = {}
    around = []
    for number, path in enumerate(runs, 1):
        run = catalogue.open_run(path)
        if not isinstance(run, frame.StudyRun) or run.kind.name not in REPEATING:
            raise PlanError(f"{path} is of no study that repeats published experiments: {', '.join(REPEATING)}")
        made = published.rows(run.kind.published, run.table(), str(number))
        found.setdefault(run.kind.name, []).append(made)
        known = [published.asked(run.kind.name, run.request), provenance.origin(run.directory)]
        around.append(f"{'; '.join(known)}; {provenance.summary(run.directory) or 'tools that the run does not name'}")
    for name in REPEATING:
        if name not in found:
            kind = catalogue.study(name)
            found[name] = [published.rows(kind.published, published.NOTHING)]
    echo(published.page({name: published.latest(rows) for name, rows in found.items()}, around), nl=False)
    return 0
