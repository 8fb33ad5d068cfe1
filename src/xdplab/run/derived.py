"""The tables that are derived from a run's journal and raw files: once, and again only when the rules change. Reading
never writes into a run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from xdplab.errors import ResultsError, ResultsWarning
from xdplab.run.disk import replacing
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import Attempt, attempts_of

if TYPE_CHECKING:
    import pandas as pd

Tables = Mapping[str, "pd.DataFrame"]
_STAMP = b"xdplab"
MOST_NAMED = 3


@dataclass(frozen=True)
class Recipe:
    """How the tables of a kind of run are made.

    ``derive(run, before)`` returns every table of ``files``; ``before`` has the run's existing tables, which follow
    other rules or have fewer attempts. ``version`` changes whenever the same raw files would give other tables. Tables
    that came with the run have no ``derive``. ``needs_raw``: it reads raw files, not only the journal.
    """

    files: tuple[str, ...]
    version: str
    derive: Callable[[RunDirectory, Tables], Tables] | None
    needs_raw: bool = True

    def stamp(self, run: RunDirectory) -> bytes:
        """Return the stamp of current tables of this run."""
        return f"{run.journal.count('finished')} attempts, {self.version}".encode()


def is_owed(run: RunDirectory, recipe: Recipe) -> bool:
    """True if the run has no tables, or if its tables were made from fewer attempts or by other rules."""
    return recipe.derive is not None and not _current(run.path, recipe, recipe.stamp(run))


def table(
    run: RunDirectory, recipe: Recipe, name: str, read: Callable[[Path], pd.DataFrame] | None = None
) -> pd.DataFrame:
    """Return a table: the run's own if it is current, else one derived again and kept in the user's cache directory.

    ``read`` reads a file that is current, for callers that need only a part. Warns (ResultsWarning) where raw files are
    gone.
    """
    if recipe.derive is None:
        return _read(run.path / name, read)
    stamp = recipe.stamp(run)
    for folder in (run.path, run.cache):
        if _current(folder, recipe, stamp):
            return _read(folder / name, read)
    tables = recipe.derive(run, _before(run, recipe))
    with suppress(ResultsError, OSError):  # a cache that cannot be written only costs time
        _write(run.cache, tables, stamp)
    return tables[name]


def derive(run: RunDirectory, recipe: Recipe) -> Path:
    """Derive the tables if they are not current, and return the folder that has them.

    That is the run, or the user's cache directory if the run is read-only. Raises ResultsError.
    """
    if recipe.derive is None:
        return run.path
    folder, stamp = run.outputs, recipe.stamp(run)
    if not _current(folder, recipe, stamp):
        _write(folder, recipe.derive(run, _before(run, recipe)), stamp)
    return folder


def raw_gone(run: RunDirectory, attempt: Attempt) -> bool:
    """True if raw files of a measured attempt are missing or truncated."""
    if attempt.status != "measured":
        return False
    folder = run.raw_dir(attempt.trial_id, attempt.attempt)
    return any(_bytes(folder / name) != size for name, size in attempt.files.items())


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


def _bytes(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _before(run: RunDirectory, recipe: Recipe) -> Tables:
    paths = {name: run.path / name for name in recipe.files}
    return {name: _read(path) for name, path in paths.items() if path.is_file()}


def _current(folder: Path, recipe: Recipe, stamp: bytes) -> bool:
    return all(_stamp_of(folder / name) == stamp for name in recipe.files)


def _stamp_of(path: Path) -> bytes | None:
    import pyarrow.parquet as pq

    try:
        return dict(pq.read_metadata(path).metadata or {}).get(_STAMP)
    except (OSError, ValueError):  # absent, or damaged
        return None


def _read(path: Path, read: Callable[[Path], pd.DataFrame] | None = None) -> pd.DataFrame:
    import pandas as pd

    try:
        return (read or pd.read_parquet)(path)
    except (OSError, ValueError) as error:
        raise ResultsError(f"{path} cannot be read: {error}", remedy=f"`xdplab tables {path.parent}`") from error


def _write(folder: Path, tables: Tables, stamp: bytes) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, table in tables.items():
        held = pa.Table.from_pandas(table, preserve_index=False)
        marked = held.replace_schema_metadata({**(held.schema.metadata or {}), _STAMP: stamp})
        with replacing(folder / name) as scratch:
            pq.write_table(marked, scratch, compression="zstd")
