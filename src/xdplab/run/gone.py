"""Raw files that are gone: removed to save room, or cut short. What was derived of them stays."""

from __future__ import annotations

import os
import warnings
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any

from xdplab.errors import ResultsWarning
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import Attempt, Ended

MOST_NAMED = 3


def place_of(attempt: Ended) -> str:
    """Return an attempt's folder in ``raw``."""
    return f"{attempt.trial_id}/{attempt.attempt}"


def raw_gone(run: RunDirectory, attempt: Attempt) -> bool:
    """True if raw files of a measured attempt are missing or truncated."""
    return attempt.status == "measured" and _differ(f"{run.path}/raw/{place_of(attempt)}", attempt.files)


def _differ(path: str, files: Mapping[str, int]) -> bool:
    """True if files of a folder are missing or have other sizes."""
    try:
        folder = os.open(path, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return bool(files)
    try:  # a run of ten thousand trials has hundreds of thousands of files
        return any(os.stat(name, dir_fd=folder).st_size != size for name, size in files.items())
    except OSError:
        return True
    finally:
        os.close(folder)


def warn_gone(run: RunDirectory, gone: Sequence[str]) -> None:
    """Warn that raw files are gone, of the attempts with these folders in ``raw``."""
    if gone:
        named = ", ".join(gone[:MOST_NAMED])
        more = f" and {len(gone) - MOST_NAMED} more" if len(gone) > MOST_NAMED else ""
        message = f"{run.path}: raw files of {len(gone)} attempts are gone ({named}{more}): rows derived from them stay"
        warnings.warn(message, ResultsWarning, stacklevel=2)


@dataclass(frozen=True)
class RawSeen:
    """What was seen of a run's raw files: the ``folders`` that have those of measured attempts, the sum of their
    `changes`, and the attempts' folders of which files are ``gone``."""

    folders: list[str]
    changes: str
    gone: list[str]


def look_at_raw(run: RunDirectory) -> RawSeen:
    """Look at every raw file; the journal's list of an attempt's files is read only if its folder is there."""
    raw, folders, moments, gone = f"{run.path}/raw/", [], array("q"), []

    def without(event: Mapping[str, Any]) -> Sequence[str]:
        return ("facts",) if os.path.lexists(raw + _place_in(event)) else ("facts", "files")

    for event in run.journal.events("finished", without=without):
        if event["status"] != "measured" or not event.get("files", True):
            continue
        place, files = _place_in(event), event.get("files", {})
        for below in _folders_of(*files):
            folders.append(place + below)
            moments.append(_changed_ns(raw + place + below) if files else -1)  # before its files, which may change
            if moments[-1] < 0:
                break  # its files are gone with it
        if moments[-1] < 0 or _differ(raw + place, files):
            gone.append(place)
    return RawSeen(folders, _sum(moments), gone)


def _place_in(event: Mapping[str, Any]) -> str:
    return f"{event['trial_id']}/{event['attempt']}"


@lru_cache(maxsize=256)  # the attempts of a run have files of the same names
def _folders_of(*files: str) -> list[str]:
    """Return the folders of files, each with a slash before it; first their own, which is empty."""
    return [*dict.fromkeys(["", *(f"/{file}".rpartition("/")[0] for file in files)])]


def changes(run: RunDirectory, folders: Sequence[str]) -> str:
    """Return a sum that changes when a raw file comes into one of these folders or goes; not when one is written to."""
    return _sum(array("q", [_changed_ns(f"{run.path}/raw/{folder}") for folder in folders]))


def _changed_ns(folder: str) -> int:
    try:
        return os.lstat(folder).st_ctime_ns
    except OSError:
        return -1


def _sum(moments: array[int]) -> str:
    return sha256(moments.tobytes()).hexdigest()
