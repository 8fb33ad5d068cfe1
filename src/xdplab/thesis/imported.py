"""Runs that were measured elsewhere: imported once, then judged and audited by the current rules like any other."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from xdplab.errors import ResultsError
from xdplab.run.frames import completed, frame
from xdplab.run.rundir import RunDirectory
from xdplab.studies.traffic.columns import COLUMNS
from xdplab.thesis.columns import TRIAL_COLUMNS
from xdplab.thesis.logs import Imported, read_thesis
from xdplab.thesis.rules import judged_import
from xdplab.thesis.samples import SCHEMA

TRIALS, SAMPLES = "trials.parquet", "samples.parquet"


@dataclass(frozen=True, eq=False)
class ImportedRun:
    """The run directory, and the imported data."""

    run: RunDirectory
    found: Imported
    trials: pd.DataFrame

    def summary(self) -> list[str]:
        """The imported data and its problems, in a few lines."""
        found, verdicts = self.found, self.trials["verdict"].value_counts()
        lines = [
            f"{found.logs} logs of {self.trials['trial_id'].nunique()} trials "
            f"({found.twins} CSV twins and {found.others} other files left aside)",
            "verdicts: " + ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items()),
        ]
        counts = Counter(problem.kind for problem in found.problems)
        lines += [f"anomalies: {', '.join(f'{n} {kind}' for kind, n in sorted(counts.items()))}"] if counts else []
        return lines + [f"  {p.kind}: {p.file}{f':{p.line}' if p.line else ''}: {p.text}" for p in found.problems[:20]]


def import_thesis(
    paths: Sequence[Path],
    parent: Path,
    *,
    name: str = "thesis",
    processes: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> ImportedRun:
    """Read the thesis' logs below ``paths`` into a new run directory, telling ``progress`` how many were read.

    Raises ResultsError.

    The run holds what was read (tables, and for each trial the files, their hashes and lines), not the logs.
    """
    run_id = secrets.token_hex(2)
    found = read_thesis(paths, run_id, processes=processes, progress=progress)
    trials = judged_import(frame(found.rows, TRIAL_COLUMNS))
    sources = sorted({path.name for path in paths})
    plan = {"name": name, "imported": "thesis", "sources": sources}
    counts: dict[str, Any] = {
        "logs": found.logs,
        "twins": found.twins,
        "others": found.others,
        "problems": len(found.problems),
    }

    def fill(run: RunDirectory) -> None:
        run.write_tables(SAMPLES, SCHEMA, found.samples())
        run.write_table(TRIALS, trials)
        run.write_json("anomalies.json", {"problems": [vars(problem) for problem in found.problems]})
        run.journal.append("imported", format="thesis", sources=sources, trials=len(trials), **counts)
        run.journal.append("ended", how="imported")

    text = yaml.safe_dump(plan)
    run = RunDirectory.create(parent, name, run_id=run_id, plan_yaml=text, fill=fill, kind="import")
    return ImportedRun(run, found, trials)


def import_or_open(paths: Sequence[Path], parent: Path, progress: Callable[[int], None] | None = None) -> RunDirectory:
    """Return the imported run at a single path that is one, else import ``paths`` into ``parent``."""
    if len(paths) == 1 and (paths[0] / "journal.jsonl").is_file():
        run = RunDirectory.open(paths[0])
        if not run.imported:
            raise ResultsError(f"{paths[0]} was measured here: it holds nothing of the thesis")
        return run
    return import_thesis(paths, parent, progress=progress).run


def imported_trials(run: RunDirectory) -> pd.DataFrame:
    """Return the imported attempts, judged anew by today's rules. Raises ResultsError if there is no table."""
    path = run.path / TRIALS
    try:
        return judged_import(completed(pd.read_parquet(path, dtype_backend="numpy_nullable"), COLUMNS))
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error}", remedy="import the logs again") from error
