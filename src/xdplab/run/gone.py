"""Raw files that are gone: removed to save room, or cut short. What was derived of them stays."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence

from xdplab.errors import ResultsWarning
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import Attempt, attempts_of

MOST_NAMED = 3


def raw_gone(run: RunDirectory, attempt: Attempt) -> bool:
    """True if raw files of a measured attempt are missing or truncated."""
    if attempt.status != "measured":
        return False
    try:
        folder = os.open(run.raw_dir(attempt.trial_id, attempt.attempt), os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return bool(attempt.files)
    try:  # a run of ten thousand trials has hundreds of thousands of files
        return any(os.stat(name, dir_fd=folder).st_size != size for name, size in attempt.files.items())
    except OSError:
        return True
    finally:
        os.close(folder)


def warn_gone(run: RunDirectory, gone: Sequence[Attempt]) -> None:
    """Warn that raw files are gone."""
    if gone:
        named = ", ".join(f"{a.trial_id}/{a.attempt}" for a in gone[:MOST_NAMED])
        more = f" and {len(gone) - MOST_NAMED} more" if len(gone) > MOST_NAMED else ""
        message = f"{run.path}: raw files of {len(gone)} attempts are gone ({named}{more}): rows derived from them stay"
        warnings.warn(message, ResultsWarning, stacklevel=2)


def all_gone(run: RunDirectory) -> list[Attempt]:
    """Return the attempts whose raw files are gone."""
    return [attempt for attempt in attempts_of(run) if raw_gone(run, attempt)]
