"""The runs of a folder: their names, state and notes, and which one is the latest."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

from xdplab.errors import PlanError, ResultsError
from xdplab.run.disk import is_locked
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import is_beginning, read_state
from xdplab.text import iso

RESULTS = Path("results")
LATEST = "latest"
_NOTE = "note.txt"
_TAGS = "tags.txt"
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")


ROW = ("run", "begun", "trials", "state", "tags", "note")
Standing = Literal[
    "beginning",
    "under way",
    "complete",
    "ended",
    "interrupted",
    "stopped",
    "killed",
    "no plan",
    "imported",
    "unreadable",
]


COUNTS = ("trials", "measured", "unsupported", "failed", "not_needed", "owed", "eta_s")
FINISHED: tuple[Standing, ...] = ("complete", "ended", "imported")


@dataclass(frozen=True)
class KnownRun:
    """A run, its progress, and the user's words on it; null is what an unreadable run does not tell.

    ``begun``: ISO 8601 with the zone. ``state``: ``ended`` has failed trials, ``stopped`` could measure nothing,
    ``no plan`` lacks its plan.yaml. ``progress`` says the counts in a line, and the state of a run that is not
    finished. Trials count by their last attempt; ``owed`` are those that `resume` would measure. ``eta_s``: seconds
    that these take, null before the first has ended.
    """

    run: str
    path: str
    begun: str | None
    state: Standing
    progress: str
    trials: int | None = None
    measured: int | None = None
    unsupported: int | None = None
    failed: int | None = None
    not_needed: int | None = None
    owed: int | None = None
    eta_s: float | None = None
    tags: tuple[str, ...] = ()
    note: str | None = None

    @property
    def row(self) -> dict[str, Any]:
        """The cells of a table for people: `ROW`."""
        begun = self.begun and self.begun[:19].replace("T", " ")
        cells = (self.run, begun, self.trials, self.progress, " ".join(self.tags) or None, self.note)
        return dict(zip(ROW, cells, strict=True))


@dataclass(frozen=True)
class Progress:
    """What a run's journal says of its trials, as `KnownRun` has it; ``ended`` is null for a run that did not end.

    ``measured_with``: the run's environment in a line, which its study knows to read.
    """

    ended: str | None
    text: str
    trials: int
    measured: int
    unsupported: int
    failed: int
    not_needed: int
    owed: int
    eta_s: float | None
    measured_with: str | None = None


def read_progress(run: RunDirectory) -> Progress:
    """Read the journal of a run. Raises ResultsError if it is damaged."""
    state = read_state(run)
    measured, unsupported, failed = state.counts.values()
    released, owed = len(state.released), len(state.owed)
    return Progress(state.ended, state.text, state.total, measured, unsupported, failed, released, owed, state.eta_s)


def run_folders(folder: Path) -> dict[Path, float | None]:
    """Return the run directories in ``folder`` and when each was begun, the latest first; last those that do not
    tell."""
    begun = {path.parent: _begun(path.parent) for path in folder.glob("*/journal.jsonl")}
    return dict(sorted(begun.items(), key=lambda item: (item[1] or 0.0, item[0].name), reverse=True))


def _begun(path: Path) -> float | None:
    try:
        return RunDirectory.open(path).begun
    except ResultsError:
        return None


def known_runs(folder: Path = RESULTS, read: Callable[[RunDirectory], Progress] = read_progress) -> list[KnownRun]:
    """Return the runs in ``folder``, the latest first. A run that cannot be read is listed with the reason."""
    return [_listed(path, begun, read) for path, begun in run_folders(folder).items()]


def _listed(path: Path, begun: float | None, read: Callable[[RunDirectory], Progress]) -> KnownRun:
    try:
        run = RunDirectory.open(path)
        return known_run(run, read(run))
    except ResultsError as error:
        words: dict[str, Any] = {"tags": tuple(tags_of(path)), "note": note_of(path)}
        return KnownRun(
            path.name, str(path), None if begun is None else iso(begun), "unreadable", error.message, **words
        )


def known_run(run: RunDirectory, progress: Progress) -> KnownRun:
    """Return the facts of a run, of which its journal told ``progress``. Raises ResultsError."""
    now, facts = standing(run, progress), asdict(progress)
    text = progress.text
    return KnownRun(
        run.name,
        str(run.path),
        iso(run.begun),
        now,
        text if now in FINISHED else f"{state_text(now, progress.owed, progress.trials)}; {text}",
        tags=tuple(tags_of(run.path)),
        note=note_of(run.path),
        **{name: facts[name] for name in COUNTS},
    )


def state_text(state: Standing, owed: int, trials: int) -> str:
    """Return a state for a person: a kill before the first trial cannot be told from a run that waits for `resume`."""
    return "killed, or not begun" if state == "killed" and owed == trials else state


def unfinished(listed: KnownRun) -> str | None:
    """Return how far a run is that goes on or was cut short; None for a finished one, and for one without a trial."""
    has_trials = listed.measured or listed.unsupported or listed.failed
    return listed.progress if has_trials and listed.state not in FINISHED else None


def standing(run: RunDirectory, progress: Progress) -> Standing:
    """Return the state of a run.

    A run that measures holds its folder; a run that does not, and has not recorded how it ended, was killed.
    """
    if is_locked(run.path):
        return "under way"
    if progress.ended == "imported":
        return "imported"
    if not (run.path / "plan.yaml").exists():
        return "no plan"
    if progress.ended == "complete" and progress.failed:
        return "ended"
    if progress.ended is not None:
        return cast("Standing", progress.ended)
    if is_beginning(run):
        return "beginning"
    return "killed" if progress.owed else "complete"


def note_of(path: Path) -> str | None:
    """Return the note on a run; None if there is none."""
    note = path / _NOTE
    return note.read_text(errors="replace").strip() if note.is_file() else None


def write_note(run: RunDirectory, text: str) -> None:
    """Store a note in a run; an empty note removes it. Raises ResultsError."""
    _write_lines(run, _NOTE, [" ".join(text.split())] if text.strip() else [])


def tags_of(path: Path) -> list[str]:
    """Return the tags of a run, in the order in which they were given."""
    tags = path / _TAGS
    return tags.read_text(errors="replace").split() if tags.is_file() else []


def write_tag(run: RunDirectory, tag: str, *, away: bool = False) -> None:
    """Add a tag to a run, or take it ``away``. Raises PlanError for an impossible tag, ResultsError."""
    if not _TAG.fullmatch(tag):
        raise PlanError(f"{tag!r} is no tag", remedy="at most 32 letters, digits, . _ -")
    others = [name for name in tags_of(run.path) if name != tag]
    _write_lines(run, _TAGS, others if away else [*others, tag])


def _write_lines(run: RunDirectory, name: str, lines: list[str]) -> None:
    """Replace a file of a run; without lines, remove it. Raises ResultsError."""
    if lines:
        run.write_bytes(name, "".join(f"{line}\n" for line in lines).encode())
        return
    try:
        (run.path / name).unlink(missing_ok=True)
    except OSError as error:
        raise ResultsError(f"{run.path / name} cannot be removed: {error.strerror}") from error


def run_named(path: Path, folder: Path = RESULTS) -> Path:
    """Return ``path``; for ``latest``, unless there is such a file, the last run that this user began in ``folder``.

    Runs go on for hours, of other users too: what was written last is nobody's question. Raises ResultsError if
    ``folder`` holds no run of this user.
    """
    if str(path) != LATEST or path.exists():
        return path
    runs = [run for run, begun in run_folders(folder).items() if begun is not None and _is_mine(run)]
    if not runs:
        raise ResultsError(f"{folder} holds no run of yours", remedy="`xdplab run smoke` makes one")
    return runs[0]


def _is_mine(run: Path) -> bool:
    return (run / "journal.jsonl").stat().st_uid == os.geteuid()
