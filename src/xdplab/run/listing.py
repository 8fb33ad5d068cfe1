"""The runs of a folder: their names, state and notes, and which one is the latest."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from xdplab.errors import PlanError, ResultsError
from xdplab.lazy import lazy
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import read_state

if TYPE_CHECKING:
    from xdplab.run import progress
else:
    progress = lazy("xdplab.run.progress")

RESULTS = Path("results")
LATEST = "latest"
_NOTE = "note.txt"
_TAGS = "tags.txt"
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")


@dataclass(frozen=True)
class KnownRun:
    """A run of a folder; ``begun`` is the local time at which it was made, ``state`` describes its progress.

    ``tags`` are words of the user's, separated by blanks.
    """

    run: str
    begun: str | None
    trials: int | None
    state: str
    tags: str | None
    note: str | None


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


def known_runs(folder: Path = RESULTS) -> list[KnownRun]:
    """Return the runs in ``folder``, the latest first. A run that cannot be read is listed with the reason."""
    return [_listed(path, begun) for path, begun in run_folders(folder).items()]


def _listed(path: Path, begun: float | None) -> KnownRun:
    when = None if begun is None else datetime.fromtimestamp(begun).isoformat(" ", "seconds")
    tags = " ".join(tags_of(path)) or None
    try:
        state = read_state(RunDirectory.open(path))
    except ResultsError as error:
        return KnownRun(path.name, when, None, error.message, tags, note_of(path))
    return KnownRun(path.name, when, state.total, progress.ending(state), tags, note_of(path))


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
