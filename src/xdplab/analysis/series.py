"""Which rows belong together: settled trials, points, and series of points that differ in N only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype

from xdplab.analysis.values import Row, is_null, records
from xdplab.analysis.verdicts import OFFERED_SHARE
from xdplab.plan.factors import FACTORS, changed, of_program

# The fixed columns of a series: the setting, and the program without its N.
SETTING = tuple(factor.column for factor in FACTORS if not of_program(factor))
PROGRAM = tuple(factor.column for factor in FACTORS if of_program(factor) and factor.name != "accesses")
SERIES = SETTING + PROGRAM
SETTING_KEY, PROGRAM_KEY, LABEL = "setting_key", "program_key", "series_label"
BELIEVED = "believed"
"""Whoever applies many rules marks the rows that are `valid` by a column of this name."""


def key_of(trials: pd.DataFrame, columns: tuple[str, ...]) -> pd.Series:
    """Return one text key per row; null counts as a value, so rows with nulls group and compare.

    Texts are made once per level and once per combination of levels: a run has few of them and many rows.
    """
    if trials.empty:
        return pd.Series(index=trials.index, dtype="object")
    keys = np.array([""], dtype=object)
    codes = np.zeros(len(trials), dtype=np.int64)
    for number, name in enumerate(columns):
        if (text := only_text(trials[name])) is not None:
            keys = keys + "|" + text if number else np.array([text], dtype=object)
            continue
        of_row, texts = levels(trials[name])
        codes, combined = pd.factorize(codes * len(texts) + of_row)
        before, level = keys[combined // len(texts)], texts[combined % len(texts)]
        keys = before + "|" + level if number else level
    return pd.Series(keys[codes] if len(columns) else "", index=trials.index, dtype="object")


def only_text(column: pd.Series) -> str | None:
    """Return the text of a column with one level, as most columns of most runs are: counting levels takes 20 times as
    long. None if there are more, or no row."""
    if column.empty:
        return None
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = column.array.codes  # a list of a million texts takes a tenth of a second
        same = (codes == codes[0]).all()
        return ("-" if codes[0] < 0 else _text(column.dtype.categories[codes[0]])) if same else None
    if is_numeric_dtype(column.dtype):
        null = column.isna().to_numpy()
        if null.any():
            return "-" if null.all() else None
        numbers = column.to_numpy()
        return _text(numbers[0].item()) if (numbers == numbers[0]).all() else None
    values = column.tolist()
    first = values[0]
    if is_null(first):
        return "-" if column.isna().all() else None
    try:
        same = values.count(first) == len(values) and len(set(map(type, values))) == 1  # 1, 1.0 and True are equal
    except TypeError:  # pd.NA is neither equal nor unequal
        return None
    return _text(first) if same else None


def levels(column: pd.Series) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the level of each row as a number, and the text of each level; the last one is null's."""
    if column.dtype == object:  # 1, 1.0 and True are equal, their texts are not
        column = pd.Series([None if is_null(value) else _text(value) for value in column.tolist()], dtype="object")
    codes, distinct = pd.factorize(column)
    texts = np.array([*("-" if is_null(value) else _text(value) for value in distinct.tolist()), "-"], dtype=object)
    return np.where(codes < 0, len(texts) - 1, codes), texts


def _text(value: object) -> str:
    """Return the text of a value; -0.0 is 0.0, since the two are equal and one level."""
    return str(value + 0.0) if isinstance(value, float) else str(value)


def plain(trials: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return the columns as float64 (NaN for null) and text: grouping a hundred nullable columns costs seconds.

    Their names are Python's own: from Arrow's, each access to a column makes its name anew.
    """
    numbers = [name for name in columns if is_numeric_dtype(trials[name])]
    floats = np.empty((len(numbers), len(trials)))
    for row, name in zip(floats, numbers, strict=True):  # not from a list of all of them, which would be held, too
        row[:] = trials[name].to_numpy(dtype="float64", na_value=float("nan"))
    texts = {name: _plain_text(trials[name]) for name in columns if name not in numbers}
    frame = pd.DataFrame(floats.T, columns=numbers, index=trials.index, copy=False)
    frame = pd.concat([frame, pd.DataFrame(texts, index=trials.index)], axis=1)
    return frame.set_axis(pd.Index(frame.columns, dtype="object"), axis=1)


def is_plain(trials: pd.DataFrame) -> bool:
    """Tell whether all columns are as `plain` makes them."""
    return all(kind in (float, object) or isinstance(kind, pd.CategoricalDtype) for kind in set(trials.dtypes))


def with_integers(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials with whole numbers of factors as integers, as a person reads them."""
    names = [factor.column for factor in FACTORS if factor.dtype == "int" and factor.column in trials]
    return trials.astype(dict.fromkeys(names, "Int64"))


def objects(column: pd.Series) -> pd.Series:
    """Return a column as Python objects, None for null; equal texts are one object, because some have thousands of
    characters and stand in thousands of rows.
    """
    return pd.Series(_objects(column), index=column.index, dtype="object")


def _plain_text(column: pd.Series) -> pd.Series:
    """Categories stay: a code takes an eighth of the memory."""
    return column if isinstance(column.dtype, pd.CategoricalDtype) else objects(column)


def _objects(column: pd.Series) -> np.ndarray[Any, Any]:
    if not isinstance(column.dtype, pd.StringDtype):
        cells = column.to_numpy(dtype="object", copy=True)
        cells[column.isna().to_numpy()] = None
        return cells
    codes, levels = pd.factorize(column)
    return np.array([*levels.tolist(), None], dtype=object)[codes]  # null has the code -1


def places_by(numbers: pd.Series) -> Iterator[tuple[float, NDArray[np.intp]]]:
    """Yield each value of a column of numbers, ascending, NaN for null, and the places of the rows that have it: to
    group a table of thousands of repetitions takes seconds."""
    values = numbers.to_numpy(dtype=float, na_value=float("nan"))
    levels, codes = np.unique(values, return_inverse=True)
    ends = np.cumsum(np.bincount(codes, minlength=len(levels)))
    yield from zip(levels.tolist(), np.split(np.argsort(codes, kind="stable"), ends)[:-1], strict=True)


def rows_where(trials: pd.DataFrame, mask: pd.Series) -> pd.DataFrame:
    """Return the rows where ``mask`` is true, null being false; all of them are not copied."""
    chosen = mask.fillna(False).astype(bool)
    return trials if chosen.all() else trials[chosen]


def settled(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the last attempt of each trial: earlier attempts are not measurements."""
    if BELIEVED in trials or trials["trial_id"].isna().any():
        return trials
    first = "attempt" in trials and trials["attempt"].eq(1).fillna(False).all()  # then no trial has a second one
    alone = first or trials["trial_id"].is_unique or not trials.duplicated(["run_id", "trial_id"]).any()
    if alone and trials.index.is_monotonic_increasing:
        return trials  # each has one attempt: a copy of all columns would take longer than the rest
    ordered = trials.sort_values("attempt", kind="stable", na_position="first")
    by_trial = ordered.groupby(["run_id", "trial_id"], sort=False, dropna=False, observed=True)
    return trials.loc[by_trial.tail(1).index.sort_values()]


def same_reason(trials: pd.DataFrame) -> pd.Series:
    """Return each row's reason without its numbers: this groups trials with the same fault."""
    return trials["reason"].astype("string").str.replace(r"\d[\d.,]*", "n", regex=True)


def valid(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the valid ones of the last attempts; of rows that are known to be these, all, without a look at them."""
    if BELIEVED in trials:
        return trials
    last = settled(trials)
    return rows_where(last, last["verdict"].eq("valid"))


def with_baselines(trials: pd.DataFrame) -> pd.DataFrame:
    """Return ``trials`` with each N = 0 that has no program of its own lent to the series of its setting.

    N = 0 does no access, so a plan may measure it once for all workloads; series then start at the same point.
    """
    frame = trials.reset_index(drop=True)
    zero = frame["accesses"].eq(0).fillna(False).astype(bool)
    counted = frame["accesses"].gt(0).fillna(False).astype(bool)
    if not (zero.any() and counted.any()):
        return frame
    keyed = with_keys(frame)
    setting, program, series = keyed[SETTING_KEY], keyed[PROGRAM_KEY], series_of(keyed)
    alone = zero & ~series.isin(series[counted].unique())
    given: list[int] = []
    parts: list[pd.DataFrame] = []
    for place, orphans in program[alone].groupby(setting[alone], sort=False):
        in_setting = setting.eq(place)
        owners = program[in_setting & counted]
        if owners.empty:
            continue
        given.extend(orphans.index)
        lent = frame.loc[orphans.index[orphans.eq(orphans.iloc[0])]]  # two programs have no common baseline
        heirs = sorted({*owners} - {*program[in_setting & zero]})
        parts += [_lend(lent, frame, owners.index[owners.eq(heir)][0]) for heir in heirs]
    return pd.concat([frame.drop(given), *parts], ignore_index=True) if given else frame


def _lend(orphans: pd.DataFrame, frame: pd.DataFrame, owner: int) -> pd.DataFrame:
    """Return the rows with the program of the row at ``owner``."""
    names = [name for name in (*PROGRAM, PROGRAM_KEY, LABEL) if name in frame]
    return orphans.assign(**{name: frame[name].array.take([owner] * len(orphans)) for name in names})


def with_keys(trials: pd.DataFrame) -> pd.DataFrame:
    """Return ``trials`` with numbers of their settings and programs, and the labels of their series: whoever asks for
    series of several parts of a table makes them once for all."""
    if SETTING_KEY in trials:
        return trials
    keys = {SETTING_KEY: SETTING, PROGRAM_KEY: PROGRAM}
    keyed = trials.assign(**{key: pd.factorize(key_of(trials, names), sort=True)[0] for key, names in keys.items()})
    codes, _ = pd.factorize(series_of(keyed))
    firsts = trials[~pd.Series(codes).duplicated().to_numpy()][list(SERIES)]
    labels = np.array([*map(label_of, records(firsts)), ""], dtype=object)[codes]
    return keyed.assign(**{LABEL: pd.Categorical(labels)})


def series_of(trials: pd.DataFrame) -> pd.Series:
    """Return the number of each row's series."""
    keyed = with_keys(trials)
    return keyed[SETTING_KEY] * 2**32 + keyed[PROGRAM_KEY]


def by_series(trials: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield (label, rows by N) of every series with known N; the label names the fixed columns."""
    counted = with_baselines(with_keys(rows_where(trials, trials["accesses"].notna())))
    if counted.empty:
        return
    series, accesses = pd.factorize(series_of(counted))[0], counted["accesses"].to_numpy(dtype=float)
    ordered, ends = counted.take(np.lexsort((accesses, series))), np.cumsum(np.bincount(series)).tolist()
    for start, end in pairwise([0, *ends]):
        yield first_label(rows := ordered.iloc[start:end]), rows


def label_of(row: Row) -> str:
    """Return a short name of a series: ``native chase-read 1 queue 64 B live max``."""
    parts = [
        _word(row, "mode"),
        _word(row, "program_name"),
        _word(row, "queues", " queue" if row.get("queues") == 1 else " queues"),
        _word(row, "frame_bytes", " B"),
        _word(row, "working_set_bytes", " B working set"),
        _word(row, "engine"),
        _word(row, "load"),
    ]
    factors = {name: value for name, value in row.items() if not is_null(value)}
    more = changed(factors, "mode", "program_name", "queues", "frame_bytes", "working_set_bytes", "accesses", "load")
    return ", ".join([" ".join(part for part in parts if part), *more])


def first_label(rows: pd.DataFrame) -> str:
    """Return the label of the first row: what all rows of a series share."""
    if LABEL in rows:
        return str(rows[LABEL].iloc[0])
    first = rows.iloc[:1]  # choosing the columns of all rows first takes ten times as long
    return label_of(records(first[list(SERIES)])[0])


def point_label(rows: pd.DataFrame) -> str:
    """Return the label of the first row with its N; a user's program has none."""
    accesses = rows["accesses"].iloc[0]
    return first_label(rows) + ("" if pd.isna(accesses) else f", N = {accesses:g}")


def _word(row: Row, name: str, unit: str = "") -> str:
    value = row.get(name)
    if is_null(value):
        return ""
    return f"{value:g}{unit}" if isinstance(value, float) else f"{value}{unit}"


def reached(trials: pd.DataFrame) -> pd.Series:
    """Return False for each paced load that was asked for and not offered: its latency is that of another load."""
    requested, offered = (trials[name].astype("Float64") for name in ("rate_requested_pps", "offered_pps"))
    return ~(offered < OFFERED_SHARE * requested).fillna(False).astype(bool)
