"""Raw files that are gone: removed to save room, or cut short. What was derived of them stays."""

from __future__ import annotations

import os
import warnings
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

from xdplab.errors import ResultsWarning
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import Attempt, Ended, attempts_of

MOST_NAMED = 3


def place_of(attempt: Ended) -> str:
    """Return an attempt's folder in ``raw``."""
    return f"{attempt.trial_id}/{attempt.attempt}"


def raw_gone(run: RunDirectory, attempt: Attempt) -> bool:
    """True if raw files of a measured attempt are missing or truncated."""
    if attempt.status != "measured":
        return False
    try:
        folder = os.open(f"{run.path}/raw/{place_of(attempt)}", os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return bool(attempt.files)
    try:  # a run of ten thousand trials has hundreds of thousands of files
        return any(os.stat(name, dir_fd=folder).st_size != size for name, size in attempt.files.items())
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
    """Look at every raw file."""
    folders, moments, gone = [], array("q"), []
    for attempt in attempts_of(run, without=["facts"]):
        if attempt.status == "measured" and attempt.files:
            place = place_of(attempt)
            for below in _folders_of(*attempt.files):
                folders.append(place + below)
                # before its files: it may change meanwhile
                moments.append(_changed_ns(f"{run.path}/raw/{place}{below}"))
                if moments[-1] < 0:
                    break  # its files are gone with it
            if moments[-1] < 0 or raw_gone(run, attempt):
                gone.append(place)
    return RawSeen(folders, _sum(moments), gone)


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
