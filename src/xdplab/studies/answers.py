"""What a run says: its tables and its answer, kept in the user's cache with what they were made from.

A run that has ended does not change, and to sum it up loads pandas: keeping what is printed makes `show` ten times as
fast. It is made again when the run's plan, journal or tables change, or the code does.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdplab.completion import newest
from xdplab.errors import ResultsError
from xdplab.lazy import lazy
from xdplab.run.disk import write_whole
from xdplab.run.rundir import RunDirectory
from xdplab.studies.kinds import open_run

if TYPE_CHECKING:
    from xdplab.run import frames
    from xdplab.studies.kind import Run
    from xdplab.studies.tables import Table
else:
    frames = lazy("xdplab.run.frames")

FILE = "answer.json"
INPUTS = (".jsonl", ".json", ".yaml", ".parquet")
"""Ends of the files of a run's folder, not below it, from which its answer is made."""


@dataclass(frozen=True)
class RunAnswer:
    """The ``tables`` of a run by name, and its ``summary``. ``placed``: they are a study's, and have places.

    Each table has its ``title``, the columns ``above`` its rows, the ``rows`` as texts, and the ``numbers`` for a
    program. ``needs_raw``: the tables are made from raw files.
    """

    placed: bool
    needs_raw: bool
    tables: dict[str, dict[str, Any]]
    summary: list[str]


def answer_of(directory: RunDirectory, run: Run[Any] | None = None) -> RunAnswer:
    """Return a run's answer: the kept one if it is current, else one that is made and kept. ``run``: it is open.

    Writes nothing into the run. Raises ResultsError, PlanError for a run that cannot be read.
    """
    made_from, place = _made_from(directory), directory.cache / FILE
    with suppress(OSError, ValueError, LookupError, TypeError):
        kept = json.loads(place.read_bytes())
        if kept.pop("made_from") == made_from:
            return RunAnswer(**kept)
    answer = _answer(run or open_run(directory.path))
    with suppress(ResultsError, OSError):  # a cache that cannot be written only costs time
        write_whole(place, json.dumps(asdict(answer) | {"made_from": made_from}).encode())
    return answer


def _made_from(directory: RunDirectory) -> list[Any]:
    """Return what the answer depends on: the code, the run's path, which is in its sentences, and its files."""
    files = sorted((one.name, one.stat()) for one in os.scandir(directory.path) if one.name.endswith(INPUTS))
    states = [[name, state.st_size, state.st_mtime_ns, state.st_ino] for name, state in files]
    return [*newest(str(Path(__file__).parents[1])), str(directory.path), states]


def _answer(run: Run[Any]) -> RunAnswer:
    of_run = run.tables()
    shown = {name: _texts(table) for name, table in of_run.items()}
    return RunAnswer(run.kind.planning is not None, run.recipe.needs_raw, shown, run.summary())


def _texts(table: Table) -> dict[str, Any]:
    cells = frames.records(table.frame)
    rows = [{name: None if cell is None else str(cell) for name, cell in row.items()} for row in cells]
    return {"title": table.title, "above": table.above, "rows": rows, "numbers": frames.records(table.numbers)}
