"""The table of many runs: gathered below folders, chosen, and ordered."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal, get_args

import pandas as pd

from xdplab.errors import PlanError, ResultsError
from xdplab.history.index import JOURNAL, index
from xdplab.text import many, natural

By = Literal["date", "kernel", "commit", "program"]
BY = get_args(By)
_COLUMN = {"kernel": "kernel", "commit": "commit", "program": "program_hash"}
_AHEAD_S = 60.0
"""How far two clocks may differ before a run is called one of the future."""
_NAMED = 3
_BISECTION, _MANIFEST = "bisect.json", "manifest.json"
"""The files by which a bisection's folder is told, whose races are of its commits; and a run that lost its journal."""


@dataclass(frozen=True)
class History:
    """``rows``: one for each run, point and metric, in columns of `xdplab.history.index.COLUMNS` and ``null_reasons``.
    ``remarks``: a line for each thing below the folders that is odd, or not shown."""

    rows: pd.DataFrame
    remarks: tuple[str, ...]

    def chosen(self, metrics: Sequence[str] = (), where: Mapping[str, str] | None = None) -> History:
        """Return the rows of these metrics, and of the points with these factors.

        A metric that no run has is a remark while there are others. Raises PlanError if nothing would be left.
        """
        kept, absent = self._of_metrics(metrics)
        remarks = (*self.remarks, *(f"--metric {name}: no run has it; there are {self._metrics}" for name in absent))
        if metrics and kept.empty and not self.rows.empty:
            raise PlanError(f"--metric {', '.join(absent)}: no run has it", remedy=f"there are {self._metrics}")
        return History(_where(kept, where or {}), remarks)

    def _of_metrics(self, metrics: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
        here = set(self.rows["metric"].unique())
        kept = self.rows[self.rows["metric"].isin(list(metrics))] if metrics else self.rows
        return kept, [name for name in metrics if name not in here]

    @property
    def _metrics(self) -> str:
        return ", ".join(self.rows["metric"].unique())

    def ordered(self, by: By = "date") -> History:
        """Return the rows by metric and point, those of a point by date, or by kernel, commit or program first.

        Kernels are in the order of their numbers; commits and programs in that of the first run that has them.
        """
        rows = self.rows.assign(_date=pd.to_datetime(self.rows["begun"], utc=True, format="ISO8601"))
        rows = rows.assign(_by=_ranks(rows, by), _metric=pd.factorize(rows["metric"])[0])
        rows = rows.sort_values(["_metric", "point", "_by", "_date", "path"], kind="stable", ignore_index=True)
        return replace(self, rows=rows.drop(columns=["_date", "_by", "_metric"]))


def history(
    *folders: str | Path, metric: str | Sequence[str] = (), where: Mapping[str, str] | None = None, by: By = "date"
) -> History:
    """Return the history of all runs and bundles below ``folders``.

    Raises ResultsError for a folder that is not there, PlanError for a factor or metric that no run has.
    """
    metrics = [metric] if isinstance(metric, str) else metric
    return gathered([Path(folder) for folder in folders]).chosen(metrics, where).ordered(by)


def gathered(folders: Sequence[Path]) -> History:
    """Return the rows of every run and bundle below ``folders``; a copy of a run is left out. Raises ResultsError."""
    tables, remarks = [], []
    for folder in folders:
        below = _Contents.of(folder)
        indexed = index(folder, below.runs)
        tables.append(indexed.rows)
        remarks += [*indexed.remarks, *below.remarks(folder)]
    rows = pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]
    rows, copies = _without_copies(rows)
    return History(rows, (*remarks, *copies, *_of_the_future(rows)))


@dataclass(frozen=True)
class _Contents:
    """What is below a folder: runs and bundles, other files, and a line for each folder that cannot be read."""

    runs: list[Path]
    foreign: list[Path]
    unread: list[str]

    @classmethod
    def of(cls, folder: Path) -> _Contents:
        if not folder.exists():
            raise ResultsError(f"{folder} does not exist", remedy="name a folder of runs, such as results")
        contents = cls([], [], [])
        if folder.is_file():
            contents.runs.append(folder)
        for place, folders, files in os.walk(folder, onerror=lambda error: contents.unread.append(str(error))):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            if JOURNAL in files:
                contents.runs.append(Path(place))
                folders.clear()
                continue
            if _BISECTION in files:
                folders.clear()
                continue
            if _MANIFEST in files:
                folders.clear()
                contents.unread.append(f"{place}: a run without its {JOURNAL}")
                continue
            paths = [Path(place, name) for name in sorted(files) if not name.startswith(".")]
            contents.runs.extend(path for path in paths if path.suffix == ".zip")
            contents.foreign.extend(path for path in paths if path.suffix != ".zip")
        return contents

    def remarks(self, folder: Path) -> Iterator[str]:
        yield from self.unread
        if self.foreign:
            first = ", ".join(str(path.relative_to(folder)) for path in self.foreign[:_NAMED])
            more = f" and {len(self.foreign) - _NAMED} more" if len(self.foreign) > _NAMED else ""
            yield f"{folder}: {many(len(self.foreign), 'file')} of no run: {first}{more}"
        if not self.runs:
            yield f"{folder} holds no run and no bundle"


def _where(rows: pd.DataFrame, where: Mapping[str, str]) -> pd.DataFrame:
    """Return the rows whose points have these factors. Raises PlanError for a factor that no point has."""
    if not where or rows.empty:
        return rows
    texts = {text: json.loads(text) for text in rows["factors"].unique()}
    names = sorted({name for factors in texts.values() for name in factors})
    for name in where:
        if name not in names:
            raise PlanError(f"--where: no point has the factor {name}", remedy=f"there are {', '.join(names)}")
    fitting = [text for text, has in texts.items() if all(str(has.get(name)) == value for name, value in where.items())]
    if not fitting:
        conditions = ",".join(f"{name}={value}" for name, value in where.items())
        raise PlanError(f"--where {conditions} leaves no point", remedy="leave it out to see them all")
    return rows[rows["factors"].isin(fitting)]


def _ranks(rows: pd.DataFrame, by: By) -> pd.Series[int]:
    """Return the place of each row's kernel, commit or program among the others; null is last."""
    if by == "date":
        return pd.Series(0, index=rows.index)
    column = rows[_COLUMN[by]]
    levels = list(rows.sort_values("_date")[_COLUMN[by]].dropna().unique())
    if by == "kernel":
        levels.sort(key=natural)
    return column.map({level: place for place, level in enumerate(levels)}).fillna(len(levels)).astype(int)


def _without_copies(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of one folder or bundle for each run's identity, that with most values, and a line for each other
    copy."""
    places = rows.assign(less=-rows["n"].fillna(0)).groupby(["run_id", "path"], as_index=False)["less"].sum()
    places = places.assign(bundle=places["path"].str.endswith(".zip")).sort_values(["less", "bundle", "path"])
    places = places.assign(first=places.groupby("run_id")["path"].transform("first"))
    copies = places[places["path"].ne(places["first"])]
    copied = zip(copies["path"], copies["first"], copies["run_id"], strict=True)
    lines = [f"{path} has the identity of {of}, {run_id}: it is shown once" for path, of, run_id in copied]
    return (rows[~rows["path"].isin(copies["path"])] if len(copies) else rows), lines


def _of_the_future(rows: pd.DataFrame) -> Iterator[str]:
    for path, begun in rows[["path", "begun"]].drop_duplicates().to_numpy():
        if datetime.fromisoformat(begun).timestamp() > time.time() + _AHEAD_S:
            yield f"{path} was begun at {begun}, which is still to come: check the clock of the machine that measured"
