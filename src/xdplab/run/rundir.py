"""A run directory: relocatable, written here only; everything in it can be rebuilt from the journal and raw files."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any
from uuid import uuid4

import pandas as pd

from xdplab.errors import ResultsError
from xdplab.run.journal import Journal


class RunDirectory:
    """Paths and writes of one run: plan.yaml, manifest.json, journal.jsonl, programs/, raw/, tables, figures/."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = Journal(path / "journal.jsonl")

    @classmethod
    def create(cls, parent: Path, name: str, *, run_id: str, plan_yaml: str, **facts: Any) -> RunDirectory:
        """Make ``parent/<date>-<name>`` (``-2``, ``-3`` … where it exists). Raises ResultsError.

        ``facts`` go to the journal's first line; ``kind="import"`` marks a run whose tables are not derived from raw
        files of its own.
        """
        base = f"{date.today().isoformat()}-{name}"
        try:
            parent.mkdir(parents=True, exist_ok=True)
            path = _new_folder(parent, base)
            (path / "plan.yaml").write_text(plan_yaml)
        except OSError as error:
            raise ResultsError(f"no run directory can be made in {parent}: {error.strerror}") from error
        run = cls(path)
        run.journal.append("created", run_id=run_id, **facts)
        return run

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Open an existing run. Raises ResultsError where ``path`` is none."""
        if not (path / "journal.jsonl").is_file():
            raise ResultsError(f"{path} is no run directory (it has no journal.jsonl)")
        return cls(path)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def run_id(self) -> str:
        return str(next(self.journal.events())["run_id"])

    @property
    def imported(self) -> bool:
        """True where the tables came from logs of others: they are read as they are, never rebuilt."""
        return next(self.journal.events()).get("kind") == "import"

    @property
    def figures(self) -> Path:
        return self.path / "figures"

    def program_dir(self, program_hash: str) -> Path:
        return self.path / "programs" / program_hash

    def raw_dir(self, trial_id: str, attempt: int) -> Path:
        return self.path / "raw" / trial_id / str(attempt)

    @contextmanager
    def attempt(self, trial_id: str, attempt: int) -> Iterator[Path]:
        """Give a scratch folder that becomes ``raw/<trial>/<attempt>`` in one step when the block ends without error.

        A kill at any instant leaves the attempt's raw files whole or absent.
        """
        final = self.raw_dir(trial_id, attempt)
        scratch = final.with_name(f".{attempt}.partial")
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.rmtree(final, ignore_errors=True)  # whole, but never journalled: killed between the two
        scratch.mkdir(parents=True)
        try:
            yield scratch
            scratch.rename(final)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def write_json(self, relative: str, data: Mapping[str, Any]) -> None:
        self.write_bytes(relative, (json.dumps(data, indent=1, sort_keys=True) + "\n").encode())

    def write_bytes(self, relative: str, data: bytes) -> None:
        """Replace a file in one step. Raises ResultsError (full disk)."""
        with self._replacing(relative) as scratch:
            scratch.write_bytes(data)

    def write_table(self, relative: str, table: pd.DataFrame) -> None:
        """Replace a parquet file in one step."""
        with self._replacing(relative) as scratch:
            table.to_parquet(scratch, index=False, compression="zstd")

    @contextmanager
    def _replacing(self, relative: str) -> Iterator[Path]:
        target = self.path / relative
        scratch = target.with_name(f".{target.name}.{uuid4().hex[:8]}")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            yield scratch
            scratch.replace(target)
        except OSError as error:
            raise ResultsError(f"{target} cannot be written: {error.strerror}") from error
        finally:
            scratch.unlink(missing_ok=True)

    @contextmanager
    def writer(self) -> Iterator[None]:
        """Be the only writer: mend what a kill left, refuse where another process measures into this run."""
        with self.journal.path.open("rb") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ResultsError(f"{self.path} is being measured by another process") from None
            self.journal.mend()
            for partial in self.path.glob("raw/*/.*.partial"):
                shutil.rmtree(partial, ignore_errors=True)
            yield


def _new_folder(parent: Path, base: str) -> Path:
    for number in range(1, 10_000):
        path = parent / (base if number == 1 else f"{base}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise ResultsError(f"{parent} already holds 9,999 runs named {base}")
