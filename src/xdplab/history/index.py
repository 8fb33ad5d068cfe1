"""The index of a folder: the rows of its runs, and what each was made from, in the user's cache directory.

It is derived, and made anew where it is absent, damaged or of other rules.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from xdplab.absent import Absent
from xdplab.errors import ResultsError, XdplabError
from xdplab.history.machines import UNKNOWN, machines
from xdplab.history.values import values
from xdplab.lazy import lazy
from xdplab.plan import Plan
from xdplab.resources import cache_root
from xdplab.run.columns import Column, version_of
from xdplab.run.disk import is_locked, replacing
from xdplab.run.frames import typed
from xdplab.run.listing import FINISHED
from xdplab.run.rundir import RunDirectory
from xdplab.studies import kept
from xdplab.studies.kind import Run
from xdplab.studies.kinds import kind_named
from xdplab.text import iso

VERSION = "1"
"""Changes whenever the same tables would give other rows."""
COLUMNS: tuple[Column[Any], ...] = (
    Column("metric", "str", "factor", "the column of the run's table"),
    Column("point", "str", "factor", "what was measured; the same words in every run"),
    Column("value", "float", "rate", "mean of the repetitions, of latencies the geometric one; of a count, the count"),
    Column("low", "float", "rate", "the lower end of the 95 % interval, or of a count's range"),
    Column("high", "float", "rate", "the upper end"),
    Column("n", "int", "count", "repetitions that it is of"),
    Column("exact", "str", "factor", "a count as a fraction; null for what is measured, or holds to a range only"),
    Column("begun", "str", "state", "when the run was made: ISO 8601 with the zone"),
    Column("run", "str", "id", "the run's name"),
    Column("path", "str", "id", "its folder, or the bundle's file"),
    Column("run_id", "str", "id", "its identity, which copies share"),
    Column("kind", "str", "factor", "its kind"),
    Column("program", "str", "factor", "the program's name"),
    Column("program_hash", "str", "state", "content hash of its source, options and compiler"),
    Column("place", "str", "factor", "the lab, guest or host"),
    Column("kernel", "str", "state", "uname -r there"),
    Column("cpu", "str", "state", "the CPU's model there; of a lab, the DUT's"),
    Column("microcode", "str", "state", "its microcode"),
    Column("nic", "str", "state", "where the NIC is on its bus"),
    Column("driver", "str", "state", "the NIC's driver"),
    Column("firmware", "str", "state", "its firmware"),
    Column("commit", "str", "state", "the commit of the xdplab that measured"),
    Column("window", "str", "state", "the length of a trial's window and of its warm-up; throttling, if it was off"),
    Column("factors", "json", "factor", "the point's factors, a JSON object"),
)  # fmt: skip


def rows_of(run: Run[Any], path: str) -> pd.DataFrame:
    """Return the rows of a run; ``path`` is where it is. Raises XdplabError."""
    directory = run.directory
    places, measured_by = machines(directory)
    alone = next(iter(places.values())) if len(places) == 1 else UNKNOWN
    head = {
        "begun": iso(directory.begun), "run": directory.name, "path": path, "run_id": directory.run_id,
        "kind": run.kind.name, "commit": measured_by, "window": _window(run),
    }  # fmt: skip
    rows = (head | {**places.get(cells["place"], alone), **cells} for cells in values(run))
    return typed(rows, COLUMNS)


def _window(run: Run[Any]) -> str | Absent:
    """Return what a plan says of its trials' times: real-time throttling lowers rates of long windows by up to 5 %."""
    if run.kind.name == "search" or not isinstance(run.plan, Plan):
        return Absent("a run of this kind has no window")
    trial = run.plan.trial
    unthrottled = ", throttling off" if trial.throttling == "off" else ""
    return f"{trial.window_s:g} s after {trial.warmup_s:g} s{unthrottled}"


def remark_on(run: Run[Any]) -> str | None:
    """Return how far a run is that is not finished, or that has measured nothing; None for any other."""
    if [event.get("how") for event in run.directory.journal.events("planned", "ended")][-1:] == ["complete"]:
        return None  # as most are; the state of each of its trials takes a fifth of the time
    listed = kept.known_run(run.directory)
    if listed.measured or run.directory.imported:
        return None if listed.state in FINISHED else listed.progress
    return f"nothing was measured: {listed.progress}"


bundle = lazy("xdplab.studies.bundle")

JOURNAL = "journal.jsonl"
_STAMP = b"xdplab"


class Rules:
    """The rules by which a kind of run has its tables and its rows; those of each kind are asked once."""

    def __init__(self) -> None:
        self._versions: dict[str, str | None] = {}

    def of(self, kind: str) -> str | None:
        """Return the rules' version; None for a kind that this installation does not have."""
        if kind not in self._versions:
            self._versions[kind] = _rules_of(kind)
        return self._versions[kind]


def _rules_of(name: str) -> str | None:
    try:
        kind = kind_named(name)
    except (ImportError, KeyError):
        return None
    tables = kind.recipe(kind.run(RunDirectory(Path()))).version
    return f"{tables}; history {VERSION}, columns {version_of(COLUMNS)}"


@dataclass(frozen=True)
class MadeFrom:
    """What a run's rows were made from: its journal, or a bundle, and the rules. ``remark``: what is to be said."""

    bytes: int
    changed_ns: int
    kind: str
    rules: str | None
    remark: str | None = None


@dataclass(frozen=True)
class Indexed:
    """The rows of runs, and a line for each run that is not whole or has no row."""

    rows: pd.DataFrame
    remarks: list[str]


def index(folder: Path, runs: Sequence[Path]) -> Indexed:
    """Return the rows of ``runs``, which are below ``folder``: only those that are new or have changed are read."""
    file = cache_root() / "history" / f"{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]}.parquet"
    before, entries = _read(file)
    rules, paths = Rules(), {path.relative_to(folder).as_posix(): path for path in runs}
    current = {key: entry for key, entry in entries.items() if key in paths and _is_current(paths[key], entry, rules)}
    tables = [before if len(current) == len(entries) else before[before["path"].isin(list(current))]]
    remarks = {key: entry.remark for key, entry in current.items()}
    for key in paths.keys() - current.keys():
        try:
            table, entry = _rows_of(paths[key], key, rules)
        except XdplabError as error:
            remarks[key] = " ".join(str(error).split())
            continue
        tables.append(table)
        remarks[key] = entry.remark
        if not (paths[key].is_dir() and is_locked(paths[key])):  # a run under way is not at its end
            current[key] = entry
    rows = pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]
    if current != entries:
        _write(file, rows[rows["path"].isin(list(current))], current)
    lines = [_named(remark, paths[key]) for key in paths if (remark := remarks[key])]
    return Indexed(rows.assign(path=rows["path"].map({key: str(path) for key, path in paths.items()})), lines)


def _rows_of(path: Path, key: str, rules: Rules) -> tuple[pd.DataFrame, MadeFrom]:
    """Return the rows of a run or bundle with its ``key`` for its path, and its entry. Raises XdplabError."""
    stamp = _stamp(path)  # before it is read: what is written meanwhile is read the next time
    with bundle.opened(path) as run:
        entry = MadeFrom(*stamp, run.kind.name, rules.of(run.kind.name), remark_on(run))
        try:
            return rows_of(run, key), entry
        except ResultsError as error:
            return typed([], COLUMNS), replace(entry, remark=entry.remark or " ".join(str(error).split()))


def _stamp(path: Path) -> tuple[int, int]:
    """Return the size and time of what a run's rows are made from. Raises ResultsError."""
    file = path / JOURNAL if path.is_dir() else path
    try:
        at = file.stat()
    except OSError as error:
        raise ResultsError(f"{file} cannot be read: {error.strerror}") from None
    return at.st_size, at.st_mtime_ns


def _is_current(path: Path, entry: MadeFrom, rules: Rules) -> bool:
    try:
        at = _stamp(path)
    except ResultsError:
        return False
    return at == (entry.bytes, entry.changed_ns) and entry.rules is not None and entry.rules == rules.of(entry.kind)


def _named(remark: str, path: Path) -> str:
    return remark if str(path) in remark else f"{path}: {remark}"


def _read(file: Path) -> tuple[pd.DataFrame, dict[str, MadeFrom]]:
    try:
        held = pq.read_table(file)
        entries = {key: MadeFrom(**entry) for key, entry in json.loads(held.schema.metadata[_STAMP]).items()}
        return held.to_pandas(), entries
    except (OSError, ValueError, KeyError, TypeError):  # absent, damaged, or of other columns
        return typed([], COLUMNS), {}


def _write(file: Path, rows: pd.DataFrame, entries: dict[str, MadeFrom]) -> None:
    held = pa.Table.from_pandas(rows, preserve_index=False)
    stamp = json.dumps({key: asdict(entry) for key, entry in entries.items()}).encode()
    held = held.replace_schema_metadata({**(held.schema.metadata or {}), _STAMP: stamp})
    with suppress(ResultsError, OSError), replacing(file) as scratch:  # without a cache it only takes longer
        pq.write_table(held, scratch, compression="zstd")
