"""What is made of a run and kept in the user's cache, until the run's plan, journal or tables change, or the code: its
tables and its answer, its progress, its figures.

A run that has ended does not change, and to sum it up loads pandas: keeping what is printed makes `show` ten times as
fast.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdplab.errors import ResultsError
from xdplab.figures.outcome import Drawn
from xdplab.lazy import lazily
from xdplab.resources import newest
from xdplab.run.disk import write_whole
from xdplab.run.journal import CheckedLines
from xdplab.run.rundir import RunDirectory
from xdplab.studies.kinds import run_in

with lazily():
    from xdplab.run import frames, listing, watching
    from xdplab.run import gone as raw
    from xdplab.studies import environment

if TYPE_CHECKING:
    from xdplab.run.listing import KnownRun, Progress
    from xdplab.studies.kind import Run
    from xdplab.studies.tables import Table

INPUTS = (".jsonl", ".json", ".yaml", ".parquet")
"""Ends of the files of a run's folder, not below it, from which the rest is made."""
FINDINGS = "audit.json"
"""Is made of them, too."""
ANSWER, FIGURES, RAW = "answer.json", "figures.json", "raw.json"
PROGRESS, JOURNAL = "progress.json", "journal.json"


def made_from(run: RunDirectory) -> list[Any]:
    """Return what all depends on that is made of a run: the code, and the run's files."""
    return _of_code_and([file for file in run.path.iterdir() if file.suffix in INPUTS and file.name != FINDINGS])


def _of_code_and(files: Iterable[Path]) -> list[Any]:
    return [*newest(str(Path(__file__).parents[1])), states(files)]


def states(files: Iterable[Path]) -> list[Any]:
    """Return what changes if a file does, of each. Raises OSError where one is absent."""
    named = sorted((file.name, file.stat()) for file in files)
    return [[name, state.st_size, state.st_mtime_ns, state.st_ino] for name, state in named]


def read(run: RunDirectory, name: str, source: list[Any]) -> dict[str, Any] | None:
    """Return what was kept by this name; None if it was not made of ``source``."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        kept: dict[str, Any] = json.loads((run.cache / name).read_bytes())
        if kept.pop("made_from") == source:
            return kept
    return None


def keep(run: RunDirectory, name: str, content: dict[str, Any], source: list[Any]) -> None:
    """Keep what was made of ``source``; a cache that cannot be written only costs time."""
    with suppress(ResultsError, OSError):
        write_whole(run.cache / name, json.dumps(content | {"made_from": source}).encode())


def keep_figures(run: RunDirectory, drawn: Sequence[Drawn], source: list[Any]) -> None:
    """Keep which figures were drawn of ``source``, and the states of their files."""
    files = [file for one in drawn for file in one.files]
    lines = [vars(one) | {"files": [file.name for file in one.files]} for one in drawn]
    keep(run, FIGURES, {"drawn": lines, "states": states(files)}, source)


def kept_figures(run: RunDirectory) -> list[Drawn] | None:
    """Return the figures that `keep_figures` kept; None if one of them, or what they are made of, has changed since."""
    held = read(run, FIGURES, made_from(run))
    if held is None:
        return None
    with suppress(OSError, LookupError, TypeError):
        drawn = [Drawn(**one | {"files": tuple(run.figures / name for name in one["files"])}) for one in held["drawn"]]
        if states(file for one in drawn for file in one.files) == held["states"]:
            return drawn
    return None


@dataclass(frozen=True)
class RunAnswer:
    """The ``tables`` of a run by name, and its ``summary``. ``placed``: they are a study's, and have places.

    Each table has its ``title``, the columns ``above`` its rows, the ``rows`` as texts, and the ``numbers`` for a
    program. ``needs_raw``: the tables are made from raw files. ``verdicts`` counts those of the trials.
    """

    placed: bool
    needs_raw: bool
    tables: dict[str, dict[str, Any]]
    summary: list[str]
    verdicts: dict[str, int]


def gone(run: RunDirectory, *, anew: bool = False) -> list[str]:
    """Return the folders in ``raw`` of which files are gone.

    Every file is looked at the first time and ``anew``, else only whether files came or went since.
    """
    source = made_from(run)
    if not anew and (held := read(run, RAW, source)):
        with suppress(TypeError):
            seen = raw.RawSeen(**held)
            if raw.changes(run, seen.folders) == seen.changes:
                return seen.gone
    seen = raw.look_at_raw(run)
    keep(run, RAW, vars(seen), source)
    return seen.gone


def progress_of(run: RunDirectory) -> Progress:
    """Return what a run's journal says of its trials, and what it was measured with. Raises ResultsError.

    It is kept of a run that has ended.
    """
    source = _of_code_and([run.journal.path])
    if held := read(run, PROGRESS, source):
        with suppress(TypeError):
            return listing.Progress(**held)
    progress = replace(listing.read_progress(run), measured_with=environment.summary(run))
    if progress.ended is not None:
        keep(run, PROGRESS, vars(progress), source)
        checked = run.journal.checked
        keep(run, JOURNAL, vars(checked) | {"planned": list(checked.planned)}, source)
    return progress


def recall_journal(run: RunDirectory) -> None:
    """Let a run's journal be as it was when `progress_of` read it, so that its lines are not checked again. One that
    has changed since is checked anew, and one of which more than the first line was checked goes on from there."""
    if run.journal.checked.lines > 1:
        return
    if held := read(run, JOURNAL, _of_code_and([run.journal.path])):
        with suppress(LookupError, TypeError):
            sets = {"counts": Counter(held["counts"]), "planned": set(held["planned"])}
            run.journal.checked = CheckedLines(**held | sets)


def known_run(run: RunDirectory) -> KnownRun:
    """Return the facts of a run. Raises ResultsError."""
    return listing.known_run(run, progress_of(run))


def answer_of(directory: RunDirectory, run: Run[Any] | None = None) -> RunAnswer:
    """Return a run's answer: the kept one if it is current, else one that is made and kept. ``run``: it is open.

    Writes nothing into the run. Raises ResultsError, PlanError for a run that cannot be read.
    """
    source = [str(directory.path), *made_from(directory)]  # the path is in its sentences
    if held := read(directory, ANSWER, source):
        with suppress(TypeError):
            return RunAnswer(**held)
    answer = _answer(run or run_in(directory))
    keep(directory, ANSWER, asdict(answer), source)
    return answer


def listed_runs(folder: Path) -> list[KnownRun]:
    """Return the runs in a folder, the latest first; one without a valid trial says so.

    That is what its kept answer says, also by the rules of older code; a run that has changed since says nothing.
    """
    return [
        replace(run, progress=f"{run.progress}; no trial is valid")
        if run.state in listing.FINISHED and is_in_vain(_kept_verdicts(RunDirectory.open(Path(run.path))))
        else run
        for run in listing.known_runs(folder, progress_of)
    ]


def is_in_vain(verdicts: Mapping[str, int]) -> bool:
    """Whether all trials are invalid or unsupported; a study's rows have other verdicts, or none."""
    return "invalid" in verdicts and "valid" not in verdicts


def _kept_verdicts(run: RunDirectory) -> dict[str, int]:
    with suppress(OSError, ValueError, LookupError, TypeError):
        held: dict[str, Any] = json.loads((run.cache / ANSWER).read_bytes())
        if held["made_from"][-1] == made_from(run)[-1]:
            return dict(held["verdicts"])
    return {}


def _answer(run: Run[Any]) -> RunAnswer:
    of_run = run.tables()
    shown = {name: _texts(table) for name, table in of_run.items()}
    verdicts = watching.counted(run.rows(run.kind.of_results))
    return RunAnswer(run.kind.planning is not None, run.recipe.needs_raw, shown, run.summary(), verdicts)


def _texts(table: Table) -> dict[str, Any]:
    cells = frames.records(table.frame)
    rows = [{name: None if cell is None else str(cell) for name, cell in row.items()} for row in cells]
    shown = {"title": table.title, "meaning": table.meaning, "above": table.above}
    return shown | {"rows": rows, "numbers": frames.records(table.numbers)}
