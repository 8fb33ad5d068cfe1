"""The thesis' raw logs → a run: found, digested, joined by trial, judged by today's rules.

A log that is not whole never ends an import: what is wrong with it is named, counted, and kept with its trial.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import yaml

from xdplab.errors import ProgramError, ResultsError
from xdplab.run.frames import completed, frame
from xdplab.run.rundir import RunDirectory
from xdplab.studies.traffic.columns import COLUMNS
from xdplab.text import many
from xdplab.thesis.columns import TRIAL_COLUMNS
from xdplab.thesis.digest import LogDigest, digest_logs
from xdplab.thesis.generator_log import swapped_labels
from xdplab.thesis.programs import count
from xdplab.thesis.rows import ProgramFound, TrialLogs, trial_id_of, trial_rows
from xdplab.thesis.rules import judged_import
from xdplab.thesis.samples import SCHEMA, TrialSamples, generator_part, samples_tables, sar_parts
from xdplab.thesis.source import Found, Measured, MeasuredProgram, Problem, RawLog, parse_program, raw_logs

BATCH = 64  # logs that are parsed together, where they are alike; else their halves


@dataclass(frozen=True, eq=False)
class Imported:
    """``rows`` of trials.parquet, not yet judged; what was read, and what is wrong with it."""

    rows: list[dict[str, Any]]
    trials: tuple[TrialLogs, ...]
    logs: int
    twins: int
    others: int
    problems: tuple[Problem, ...]

    def samples(self) -> Iterator[pa.Table]:
        """Yield samples.parquet in parts."""
        return samples_tables(part for trial in self.trials for part in _parts(trial))


def read_thesis(paths: Sequence[Path], run_id: str, *, progress: Callable[[int], None] | None = None) -> Imported:
    """Read all logs below ``paths`` (folders, archives). Raises ResultsError if there is none.

    ``progress`` is told, log by log, how many were read.
    """
    source = Found()
    trials: dict[Measured, TrialLogs] = {}
    logs = 0
    for digest in _digested(raw_logs(paths, source)):
        logs += 1
        if progress is not None:
            progress(logs)
        trial = trials.setdefault(digest.name.measured, TrialLogs(digest.name.measured))
        _join(trial, digest, source)
    if not trials:
        raise ResultsError(
            f"no log of the thesis below {', '.join(map(str, paths))}",
            remedy="name the folder that holds resultados*/, its parent, or an archive of it",
        )
    programs = counted_programs(source.programs)
    for trial in trials.values():
        trial_key = trial.measured
        trial.program = programs.get(
            MeasuredProgram(trial_key.mode == "af_xdp", trial_key.repetition, trial_key.accesses)
        )
        _check_twin(trial, source)
        trial.logs = dict(sorted(trial.logs.items()))  # the order in which they lie somewhere says nothing
    ordered = [trials[key] for key in sorted(trials, key=lambda m: tuple(vars(m).values()))]
    rows = [row for trial in ordered for row in trial_rows(trial, run_id)]
    problems = [p for trial in ordered for log in trial.logs.values() for p in log.problems]
    return Imported(rows, tuple(ordered), logs, source.twins, source.others, (*problems, *source.problems))


def counted_programs(texts: Mapping[str, str]) -> dict[MeasuredProgram, ProgramFound]:
    """Return what the proof counts in each C file; equal files are compiled once."""
    counted = {}
    for path, text in sorted(texts.items()):
        measured = parse_program(path)
        if measured is None:
            continue
        counts, why = None, ""
        try:
            counts = count(text)
        except ProgramError as error:
            why = error.message
        counted[measured] = ProgramFound(path, hashlib.sha256(text.encode()).hexdigest(), counts, why)
    return counted


def _join(trial: TrialLogs, digest: LogDigest, source: Found) -> None:
    """The same log may come twice (from a folder and an archive of it); two that differ are a problem."""
    before = trial.logs.setdefault(digest.name.kind, digest)
    if before is not digest and before.sha256 != digest.sha256:
        text = f"{before.name.path} says otherwise of the same trial, and came first"
        source.problems.append(Problem(digest.name.path, "conflict", text))


def _check_twin(trial: TrialLogs, source: Found) -> None:
    """A CSV twin whose labels are swapped is a problem of its log."""
    log, generator = trial.logs.get("generator"), trial.generator
    head = source.twin_heads.get(log.name.stem) if log else None
    if log is None or generator is None or head is None:
        return
    pairs = [f"{a!r} and {b!r}" for run in generator.runs[:1] for a, b in swapped_labels(head, run.rows)]
    if pairs:
        problem = Problem(
            f"{log.name.stem}.csv", "swapped_labels", f"{', '.join(pairs)} are above each other's numbers", 1
        )
        trial.logs["generator"] = replace(log, problems=(*log.problems, problem))


def _parts(trial: TrialLogs) -> Iterator[TrialSamples]:
    name = trial_id_of(trial.measured)
    runs = trial.generator.runs if trial.generator else ()
    for attempt, run in enumerate(runs, 1):
        yield generator_part(name, attempt, run)
    if trial.sar is not None:
        yield from sar_parts(name, max(len(runs), 1), trial.sar, trial.busy)


def _digested(logs: Iterator[RawLog]) -> Iterator[LogDigest]:
    while batch := list(islice(logs, BATCH)):
        yield from digest_logs(batch)


TRIALS, SAMPLES = "trials.parquet", "samples.parquet"


@dataclass(frozen=True, eq=False)
class ImportedRun:
    """The run directory, and the imported data."""

    run: RunDirectory
    found: Imported
    trials: pd.DataFrame

    def summary(self) -> list[str]:
        """The imported data and its problems, in a few lines."""
        logs, verdicts = self.found, self.trials["verdict"].value_counts()
        lines = [
            f"{logs.logs} logs of {self.trials['trial_id'].nunique()} trials "
            f"({logs.twins} CSV twins and {logs.others} other files left aside)",
            f"verdicts of {many(len(self.trials), 'attempt')}: "
            + ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items()),
        ]
        counts = Counter(problem.kind for problem in logs.problems)
        lines += [f"anomalies: {', '.join(f'{n} {kind}' for kind, n in sorted(counts.items()))}"] if counts else []
        return lines + [f"  {p.kind}: {p.file}{f':{p.line}' if p.line else ''}: {p.text}" for p in logs.problems[:20]]


def import_thesis(
    paths: Sequence[Path],
    parent: Path,
    *,
    name: str = "thesis",
    progress: Callable[[int], None] | None = None,
) -> ImportedRun:
    """Read the thesis' logs below ``paths`` into a new run directory, telling ``progress`` how many were read.

    Raises ResultsError.

    The run holds what was read (tables, and for each trial the files, their hashes and lines), not the logs.
    """
    run_id = secrets.token_hex(2)
    logs = read_thesis(paths, run_id, progress=progress)
    trials = judged_import(frame(logs.rows, TRIAL_COLUMNS))
    sources = sorted({path.name for path in paths})
    plan = {"name": name, "imported": "thesis", "sources": sources}
    counts: dict[str, Any] = {
        "logs": logs.logs,
        "twins": logs.twins,
        "others": logs.others,
        "problems": len(logs.problems),
    }

    def fill(run: RunDirectory) -> None:
        run.write_tables(SAMPLES, SCHEMA, logs.samples())
        run.write_table(TRIALS, trials)
        run.write_json("anomalies.json", {"problems": [vars(problem) for problem in logs.problems]})
        run.journal.append("imported", format="thesis", sources=sources, trials=len(trials), **counts)
        run.journal.append("ended", how="imported")

    text = yaml.safe_dump(plan)
    run = RunDirectory.create(parent, name, run_id=run_id, plan_yaml=text, fill=fill, kind="import")
    return ImportedRun(run, logs, trials)


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
