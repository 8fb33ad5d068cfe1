"""The rows of one run or bundle: its values, with when, where and by what they were measured."""

from __future__ import annotations

from typing import Any

import pandas as pd

from xdplab.history.machines import UNKNOWN, machines
from xdplab.history.values import values
from xdplab.run.columns import Column
from xdplab.run.frames import typed
from xdplab.run.listing import FINISHED
from xdplab.studies import kept
from xdplab.studies.kind import Run
from xdplab.text import iso

VERSION = "1"
"""Changes whenever the same tables would give other rows."""
COLUMNS: tuple[Column[Any], ...] = (
    Column("metric", "str", "factor", "the column of the run's table"),
    Column("point", "str", "factor", "what was measured; the same words in every run"),
    Column("value", "float", "rate", "mean of the repetitions, of latencies the geometric one; of a count, the count"),
    Column("low", "float", "rate", "the lower end of the 95 % interval, or of a count's range"),
    Column("high", "float", "rate", "the upper end"),
    Column("n", "int", "count", "repetitions that it is of"),
    Column("exact", "str", "factor", "a count as a fraction; null for what is measured, or holds to a range only"),
    Column("begun", "str", "state", "when the run was made: ISO 8601 with the zone"),
    Column("run", "str", "id", "the run's name"),
    Column("path", "str", "id", "its folder, or the bundle's file"),
    Column("run_id", "str", "id", "its identity, which copies share"),
    Column("kind", "str", "factor", "its kind"),
    Column("program", "str", "factor", "the program's name"),
    Column("program_hash", "str", "state", "content hash of its source, options and compiler"),
    Column("place", "str", "factor", "the lab, guest or host"),
    Column("kernel", "str", "state", "uname -r there"),
    Column("cpu", "str", "state", "the CPU's model there; of a lab, the DUT's"),
    Column("microcode", "str", "state", "its microcode"),
    Column("nic", "str", "state", "where the NIC is on its bus"),
    Column("driver", "str", "state", "the NIC's driver"),
    Column("firmware", "str", "state", "its firmware"),
    Column("commit", "str", "state", "the commit of the xdplab that measured"),
    Column("factors", "json", "factor", "the point's factors, a JSON object"),
)  # fmt: skip


def rows_of(run: Run[Any], path: str) -> pd.DataFrame:
    """Return the rows of a run; ``path`` is where it is. Raises XdplabError."""
    directory = run.directory
    places, measured_by = machines(directory)
    alone = next(iter(places.values())) if len(places) == 1 else UNKNOWN
    head = {
        "begun": iso(directory.begun), "run": directory.name, "path": path, "run_id": directory.run_id,
        "kind": run.kind.name, "commit": measured_by,
    }  # fmt: skip
    rows = (head | {**places.get(cells["place"], alone), **cells} for cells in values(run))
    return typed(rows, COLUMNS)


def remark_on(run: Run[Any]) -> str | None:
    """Return how far a run is that is not finished, or that has measured nothing; None for any other."""
    if [event.get("how") for event in run.directory.journal.events("planned", "ended")][-1:] == ["complete"]:
        return None  # as most are; the state of each of its trials takes a fifth of the time
    listed = kept.known_run(run.directory)
    if listed.measured or run.directory.imported:
        return None if listed.state in FINISHED else listed.progress
    return f"nothing was measured: {listed.progress}"
