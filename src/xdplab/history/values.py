"""What each kind of run says of its points: a row for each point and metric."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import lru_cache
from math import nan
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xdplab.absent import Absent
from xdplab.analysis.intervals import Spread
from xdplab.analysis.series import SERIES, label_of, objects, places_by
from xdplab.analysis.summary import VALUES, is_latency, spread_of, that_count
from xdplab.analysis.values import is_null, number, records
from xdplab.errors import ResultsError
from xdplab.lazy import lazily
from xdplab.plan.factors import FACTORS
from xdplab.run.frames import NULL_REASONS
from xdplab.studies.kind import Run
from xdplab.studies.points import place_in
from xdplab.text import many

with lazily():
    import pyarrow.parquet as pq

    from xdplab.studies import comparing
    from xdplab.studies.cost import gate
    from xdplab.studies.search import rows as searches

Cells = dict[str, Any]
_ONE = Absent("one repetition has no interval")
_NO_PROGRAM = Absent("a run of this kind does not say which program a value is of")


def values(run: Run[Any]) -> Iterator[Cells]:
    """Yield a row for each point of a run and each of its metrics, without what is the run's own.

    ``place`` is the name of the lab or guest, ``factors`` are the point's; an `Absent` cell has its reason. Raises
    ResultsError for a run that has no number.
    """
    return _OF_KIND.get(run.kind.name, _of_study)(run)


def _of_traffic(run: Run[Any]) -> Iterator[Cells]:
    trials = that_count(run.attempts(_read))
    numbers = {column: trials[column].to_numpy(dtype=float, na_value=nan) for column, _ in VALUES.values()}
    believed, at_paced = objects(trials["verdict"]).to_numpy() == "valid", trials["paced"].to_numpy(dtype=bool)
    for head, places in _points(trials):
        valid = places[believed[places]]
        for value, (column, _) in VALUES.items():
            cells = numbers[column][valid[at_paced[valid]] if is_latency(value) else valid]
            if (spread := spread_of(value, cells[~np.isnan(cells)])) is not None:
                yield head | {"metric": column} | _cells(spread)
            elif column == run.metric:
                yield head | {"metric": column} | _nothing(_why_none(trials.iloc[places], column))


def _why_none(rows: pd.DataFrame, column: str) -> str:
    """Return why a point has no value; where trials are valid, as in an emulator, their table says it."""
    if count := int(rows["verdict"].eq("valid").sum()):
        return f"{many(count, 'valid trial')} without {column}: `null_reasons` in trials.parquet says why"
    return f"no trial is valid: {next(iter(rows['reason'].dropna()), 'no reason was recorded')}"


_FACTORS = [factor.column for factor in FACTORS]
_READ = {
    *("run_id", "point_id", "trial_id", "attempt", "lab", "verdict", "reason", "program_hash", "offered_pps"),
    *_FACTORS, *(column for column, _ in VALUES.values()),
}  # fmt: skip


def _read(path: Path) -> pd.DataFrame:
    """Read a third of a table's columns, not in types of pandas' own, which take five times as long."""
    file = pq.ParquetFile(path, read_dictionary=["reason"])  # a long text that most rows share
    held = file.read([name for name in file.schema_arrow.names if name in _READ])
    table: pd.DataFrame = held.to_pandas(ignore_metadata=True, integer_object_nulls=True)
    return table


def _points(trials: pd.DataFrame) -> Iterator[tuple[Cells, NDArray[np.intp]]]:
    """Yield what the rows of each point of each lab share, and where its trials are.

    Points of one name, such as an edited file's, have their program in it.
    """
    groups = trials.groupby(["point_id", "lab"], sort=False, dropna=False).ngroup()
    of_point = [places for _, places in places_by(groups)]
    at = np.array([places[0] for places in of_point], dtype=np.intp)
    names = [name for name in dict.fromkeys((*_FACTORS, "program_hash", "lab")) if name in trials]
    columns = [trials[name].array.take(at).to_numpy().tolist() for name in names]
    firsts = [
        {name: None if is_null(cell) else cell for name, cell in zip(names, cells, strict=True)}
        for cells in zip(*columns, strict=True)
    ]
    texts = [_described(*((name, first.get(name)) for name in _FACTORS)) for first in firsts]
    same_name = Counter((name, first["lab"]) for (name, _), first in zip(texts, firsts, strict=True))
    for places, first, (name, factors) in zip(of_point, firsts, texts, strict=True):
        program = "" if same_name[name, first["lab"]] == 1 else f", program {first['program_hash']}"
        yield _head(name + program, first, factors), places


@lru_cache(maxsize=4096)  # the points of many runs are the same
def _described(*factors: tuple[str, Any]) -> tuple[str, str]:
    """Return a point's name, and its factors as JSON."""
    row = dict(factors)
    label = label_of({name: row[name] for name in SERIES})
    accesses = number(row, "accesses")
    return label if accesses is None else f"{label}, N = {accesses:g}", _json(row)


def _of_search(run: Run[Any]) -> Iterator[Cells]:
    rows = run.rows()
    for _, group in rows.groupby(["point_id", "lab"], sort=False, dropna=False):
        first = records(group.iloc[:1])[0]
        plain = {name: None if is_null(value) else value for name, value in first.items()}
        head = _head(searches.point_label(plain), plain, _json({name: plain.get(name) for name in _FACTORS}))
        for column in _SEARCHED:
            rates = group[column].dropna().astype(float)
            why = json.loads(str(first[NULL_REASONS.name])).get(column, "the search found none")
            yield head | {"metric": column} | (_cells(Spread.of(rates)) if len(rates) else _nothing(why))


_SEARCHED = ("pdr_pps", "ndr_pps", "mrr_pps")


_WHOLE = "whole"


def _of_cost(run: Run[Any]) -> Iterator[Cells]:
    """Yield the totals of each packet: they are exact, or hold to a range."""
    table, points = run.rows(), {f"{point.point_id}-r1": point for point in run.plan.points}
    names = dict(
        zip(points, gate.numbered(f"{point}, {many(point.flows, 'flow')}" for point in points.values()), strict=True)
    )
    for row in records(table[table["part"].isin(gate.TOTALS)]):
        point = points[str(row["trial_id"])]
        settings = {name: getattr(point, name) for name in ("program", "kernel", "mode", "way", "frame_bytes", "flows")}
        head = _head(names[str(row["trial_id"])], row, _json(settings)) | {
            "program_hash": PurePosixPath(point.object).name, "place": point.place, "kernel": row["kernel_release"],
        }  # fmt: skip
        exact = None if is_null(row["exact"]) else row["exact"]
        ends = {"low": row["low_instructions"], "high": row["high_instructions"], "n": 1, "exact": exact}
        part = "" if row["part"] == _WHOLE else f"{row['part']}_"
        yield head | {"metric": f"{part}instructions", "value": row["instructions"]} | ends


def _of_study(run: Run[Any]) -> Iterator[Cells]:
    """Yield what `compare` compares of a study's points: its first column of numbers."""
    if not (metric := run.metric):
        raise ResultsError("its answers are words: it has no number to follow")
    plan = run.plan
    labels = {point.point_id: str(point) for point in plan.points}
    places = {trial.point.point_id: place_in(trial) for trial in plan.trials}
    settings = {point.point_id: asdict(point) for point in plan.points}
    rows = comparing.rows_as_points(run.rows(), metric, labels)
    for (key, name), group in rows.groupby(["point_id", "program_name"], sort=False):
        point = str(key).rpartition("/")[0]
        head = _head(str(name), {}, _json(settings[point])) | {"place": places[point]}
        yield head | {"metric": metric} | _cells(Spread.of(group[metric].astype(float)))


_OF_KIND: Mapping[str, Callable[[Run[Any]], Iterator[Cells]]] = {
    "traffic": _of_traffic,
    "import": _of_traffic,
    "search": _of_search,
    "cost": _of_cost,
}
"""The other kinds are studies whose points have repetitions of a number."""


def _json(factors: Mapping[str, Any]) -> str:
    """Return those factors that a person can name: words and numbers."""
    named = {
        key: value for key, value in factors.items() if isinstance(value, str | int | float) and not is_null(value)
    }
    return json.dumps(named, sort_keys=True)


def _head(name: str, row: Mapping[str, Any], factors: str) -> Cells:
    """Return what all metrics of a point share; ``factors`` are the point's, as JSON."""
    program = {"program": row.get("program_name", row.get("program")), "program_hash": row.get("program_hash")}
    cells = {key: None if is_null(value) else value for key, value in {**program, "place": row.get("lab")}.items()}
    cells["program_hash"] = cells["program_hash"] or _NO_PROGRAM
    return {"point": name, **cells, "factors": factors}


def _cells(spread: Spread) -> Cells:
    ends = {name: getattr(spread, name) if spread.n > 1 else _ONE for name in ("low", "high")}
    return {"value": spread.mean, "n": spread.n, **ends}


def _nothing(why: str) -> Cells:
    return dict.fromkeys(("value", "low", "high"), Absent(why)) | {"n": 0}
