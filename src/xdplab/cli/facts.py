"""The facts of a run that several verbs print with `--json`: `xdplab.cli.answers` has their types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from xdplab.lazy import lazy
from xdplab.run.rundir import RunDirectory
from xdplab.studies import environment
from xdplab.studies.answers import answer_of

if TYPE_CHECKING:
    from xdplab.figures.album import Drawn
    from xdplab.run import listing
else:
    listing = lazy("xdplab.run.listing")


def status_facts(run: RunDirectory) -> dict[str, Any]:
    """Return a run's progress, and what it was measured with."""
    return asdict(listing.known_run(run)) | {"measured_with": environment.summary(run)}


def figure_facts(drawn: Sequence[Drawn]) -> list[dict[str, Any]]:
    """Return each figure's files, or why there are none."""
    return [{"figure": one.stem, "files": list(map(str, one.files)), "reason": one.reason or None} for one in drawn]


def results_facts(run: RunDirectory) -> dict[str, Any]:
    """Return a run's progress, its tables with all digits, and its lines."""
    answer = answer_of(run)
    tables = {name: table["numbers"] for name, table in answer.tables.items()}
    return {"status": status_facts(run), "tables": tables, "summary": answer.summary}
