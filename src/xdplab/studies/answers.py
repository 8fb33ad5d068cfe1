"""What a run says: its tables and its answer, kept in the user's cache.

A run that has ended does not change, and to sum it up loads pandas: keeping what is printed makes `show` ten times as
fast.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from xdplab.lazy import lazy
from xdplab.run.rundir import RunDirectory
from xdplab.studies import kept
from xdplab.studies.kinds import open_run

if TYPE_CHECKING:
    from xdplab.run import frames
    from xdplab.studies.kind import Run
    from xdplab.studies.tables import Table
else:
    frames = lazy("xdplab.run.frames")

FILE = "answer.json"


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
    source = [str(directory.path), *kept.made_from(directory)]  # the path is in its sentences
    if held := kept.read(directory, FILE, source):
        with suppress(TypeError):
            return RunAnswer(**held)
    answer = _answer(run or open_run(directory.path))
    kept.keep(directory, FILE, asdict(answer), source)
    return answer


def _answer(run: Run[Any]) -> RunAnswer:
    of_run = run.tables()
    shown = {name: _texts(table) for name, table in of_run.items()}
    return RunAnswer(run.kind.planning is not None, run.recipe.needs_raw, shown, run.summary())


def _texts(table: Table) -> dict[str, Any]:
    cells = frames.records(table.frame)
    rows = [{name: None if cell is None else str(cell) for name, cell in row.items()} for row in cells]
    return {"title": table.title, "above": table.above, "rows": rows, "numbers": frames.records(table.numbers)}
