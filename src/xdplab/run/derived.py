"""The tables that are derived from a run's journal and raw files: once for each attempt, and again only when the rules
change. Reading never writes into a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from xdplab.errors import ResultsError
from xdplab.run.disk import replacing
from xdplab.run.rundir import RunDirectory

if TYPE_CHECKING:
    import pandas as pd

Tables = Mapping[str, "pd.DataFrame"]
_STAMP = b"xdplab"
_ATTEMPTS = re.compile(rb"\d+")


@dataclass(frozen=True)
class Before:
    """The tables that a run has: of its first ``current`` attempts by the rules of now; with 0, by other rules."""

    tables: Tables
    current: int = 0


@dataclass(frozen=True)
class Recipe:
    """How the tables of a kind of run are made.

    ``derive(run, before)`` returns every table of ``files``. ``version`` changes whenever the same raw files would give
    other tables. Tables that came with the run have no ``derive``. ``needs_raw``: it reads raw files, not only the
    journal.
    """

    files: tuple[str, ...]
    version: str
    derive: Callable[[RunDirectory, Before], Tables] | None
    needs_raw: bool = True

    def stamp(self, attempts: int) -> bytes:
        """Return the stamp of tables of a run's first attempts."""
        return f"{attempts} attempts, {self.version}".encode()

    def attempts_in(self, folder: Path) -> int | None:
        """Return of how many attempts a folder has the tables; None if it has none, or they follow other rules."""
        stamps = {_stamp_of(folder / name) for name in self.files}
        stamp = stamps.pop() if len(stamps) == 1 else None
        attempts = _ATTEMPTS.match(stamp or b"")
        return int(attempts[0]) if attempts and stamp == self.stamp(int(attempts[0])) else None


def is_owed(run: RunDirectory, recipe: Recipe) -> bool:
    """True if the run has no tables, or if its tables were made from fewer attempts or by other rules."""
    return recipe.derive is not None and recipe.attempts_in(run.path) != run.journal.count("finished")


def table(
    run: RunDirectory, recipe: Recipe, name: str, read: Callable[[Path], pd.DataFrame] | None = None
) -> pd.DataFrame:
    """Return a table: the run's own if it is current, else one derived again and kept in the user's cache directory.

    ``read`` reads a file that is current, for callers that need only a part. Warns (ResultsWarning) where raw files are
    gone.
    """
    if recipe.derive is None:
        return _read(run.path / name, read)
    attempts = run.journal.count("finished")
    for folder in (run.path, run.cache):
        if recipe.attempts_in(folder) == attempts:
            return _read(folder / name, read)
    tables = recipe.derive(run, _before(run, recipe, attempts))
    with suppress(ResultsError, OSError):  # a cache that cannot be written only costs time
        _write(run.cache, tables, recipe.stamp(attempts))
    return tables[name]


def derive(run: RunDirectory, recipe: Recipe) -> Path:
    """Derive the tables if they are not current, and return the folder that has them.

    That is the run, or the user's cache directory if the run is read-only. Raises ResultsError.
    """
    if recipe.derive is None:
        return run.path
    folder, attempts = run.outputs, run.journal.count("finished")
    if recipe.attempts_in(folder) != attempts:
        _write(folder, recipe.derive(run, _before(run, recipe, attempts)), recipe.stamp(attempts))
    return folder


def _before(run: RunDirectory, recipe: Recipe, attempts: int) -> Before:
    """Return the tables of the most attempts; where none follow the rules of now, the run's own."""
    counts = [(recipe.attempts_in(folder) or 0, folder) for folder in (run.path, run.cache)]
    current, folder = max(((n if n <= attempts else 0, folder) for n, folder in counts), key=lambda one: one[0])
    paths = {name: folder / name for name in recipe.files}
    return Before({name: _read(path) for name, path in paths.items() if path.is_file()}, current)


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
