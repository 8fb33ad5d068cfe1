"""Files that fill a user's map, CSV or JSON: their entries one by one, or by columns that are packed all at once."""

from __future__ import annotations

import csv
import gc
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path
from typing import Any

from xdplab.errors import PlanError
from xdplab.lazy import lazily
from xdplab.plan.maps import PAIR, Row, pairs

with lazily():
    import pyarrow as arrow
    import pyarrow.compute as arrow_compute
    import pyarrow.csv as arrow_csv

Column = tuple[list[Any], Sequence[Any]]
"""The steps to a field, such as ``["key", "src"]``, and its value in each entry: an Arrow array if all are texts, or
all are integers of 64 bits."""
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")
_PARTED = re.compile(r'"\s+:')


def rows_of(contents: Any, place: str) -> Iterator[Row]:
    """Yield key and value of each entry. Raises PlanError, with the line of a file that cannot be read."""
    if not isinstance(contents, str):
        yield from pairs(contents)
        return
    path = Path(contents)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise PlanError(f"{place}: {path}: {reason}", remedy="paths are relative to the plan's file") from None
    yield from (
        _of_json(text, f"{place}: {path.name}") if path.suffix == ".json" else _of_csv(text, f"{place}: {path.name}")
    )


@contextmanager
def _no_collection() -> Iterator[None]:
    """Look for no garbage: of a million values each stays, and all would be looked at again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@_no_collection()
def columns_of(contents: Any) -> list[Column]:
    """Return many entries by columns, which are packed all at once; none if they have no columns."""
    try:
        if not isinstance(contents, str):
            return _columns_of(contents)
        path = Path(contents)
        if path.suffix == ".csv":
            return _columns_of_csv(path)
        text = path.read_text()
        columns = _columns_of(json.loads(text))
        return columns if _is_whole(columns, text) else _columns_of(_parsed(text))
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError):
        return []


def _columns_of(given: Any) -> list[Column]:
    if isinstance(given, dict):
        keys, values = list(given), list(given.values())
    elif all(isinstance(row, tuple) or row.keys() == PAIR for row in given):
        rows = list(pairs(given))
        keys, values = [key for key, _ in rows], [value for _, value in rows]
    else:
        return []
    return [*_columns("key", keys), *_columns("value", values)]


def _is_whole(columns: Sequence[Column], text: str) -> bool:
    """Return whether ``columns`` have each name of a JSON text, where Python keeps the last of two equal ones.

    A quote and a colon end each name, and other texts can only add to their number, if no space parts the two. To look
    at each object while it is read takes a million of them a second more.
    """
    if not columns or not all(isinstance(values, arrow.Array) for _, values in columns):
        return False  # a value may have names inside
    in_row = 1 if text.lstrip().startswith("{") else len(PAIR)
    names = len(columns[0][1]) * (in_row + sum(len(steps) - 1 for steps, _ in columns))
    return not _PARTED.search(text) and text.count('":') == names


def _columns(part: str, values: Sequence[Any]) -> Iterator[Column]:
    """Yield the fields that each value has, or the values."""
    fields = values[0].keys() if isinstance(values[0], dict) else ()
    if fields and all(isinstance(value, dict) and value.keys() == fields for value in values):
        yield from (([part, name], _array([value[name] for value in values])) for name in fields)
    else:
        yield [part], _array(values)


def _array(values: Sequence[Any]) -> Sequence[Any]:
    try:
        array = arrow.array(values)
    except (ValueError, TypeError, OverflowError):
        return values
    alike = arrow.types.is_string(array.type) or arrow.types.is_integer(array.type)
    return array if alike and not array.null_count else values


def _columns_of_csv(path: Path) -> list[Column]:
    with path.open() as file:
        header = next(csv.reader(file), [])
    if _overlapping([_steps(name) for name in header]) is not None:
        return []
    names = [f"{at}" for at in range(len(header))]
    table = arrow_csv.read_csv(
        path,
        arrow_csv.ReadOptions(column_names=names, skip_rows=1),
        convert_options=arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, arrow.string())),
    ).combine_chunks()
    columns = [arrow_compute.utf8_trim_whitespace(column.chunk(0)) for column in table.columns if len(table)]
    return list(zip(map(_steps, header), columns, strict=True)) if columns else []


def _steps(name: str) -> list[Any]:
    return [step[0] or int(step[1]) for step in _STEP.findall(name.strip())]


def _parsed(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_each_once)


def _each_once(given: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of a JSON file, of which Python would keep the last of two equal keys. Raises ValueError."""
    whole = dict(given)
    if len(whole) < len(given):
        ((twice, _),) = Counter(name for name, _ in given).most_common(1)
        values = ", ".join(json.dumps(value) for name, value in given if name == twice)
        raise ValueError(f"{twice} is given twice in one object: {values}")
    return whole


def _of_json(text: str, place: str) -> Iterator[Row]:
    try:
        contents = _parsed(text)
    except json.JSONDecodeError as error:
        raise PlanError(f"{place} is not JSON: {error}") from None
    except ValueError as error:
        raise PlanError(f"{place}: {error}") from None
    listed = isinstance(contents, list) and all(isinstance(row, dict) and row.keys() == PAIR for row in contents)
    if not listed and not isinstance(contents, dict):
        raise PlanError(f'{place} holds neither {{"KEY": VALUE}} nor [{{"key": …, "value": …}}]')
    yield from pairs(contents)


def _of_csv(text: str, place: str) -> Iterator[Row]:
    """Columns are ``key`` and ``value``, or their parts: ``key.src``, ``value.limits[0]``."""
    reader = csv.reader(text.splitlines())
    header = [name.strip() for name in next(reader, [])]
    paths = [_steps(name) for name in header]
    if {path[0] for path in paths if path} != PAIR:
        raise PlanError(f"{place}: its first line names the columns: `key,value`, or parts as `key.src,value.hits`")
    if (twice := _overlapping(paths)) is not None:
        raise PlanError(f"{place}: its first line names {header[twice]} and a part of it, or names it twice")
    for row in reader:
        if not row:
            continue
        if len(row) != len(header):
            raise PlanError(f"{place}:{reader.line_num}: {len(row)} cells are below {len(header)} names")
        whole: dict[Any, Any] = {}
        for path, each in zip(paths, row, strict=True):
            _put(whole, path, each.strip())
        yield _listed(whole["key"]), _listed(whole["value"])


def _overlapping(paths: Sequence[list[Any]]) -> int | None:
    """Return which path ends where another one goes on or ends, if one does."""
    pairs_of_paths = permutations(enumerate(paths), 2)
    return next((at for (at, one), (_, other) in pairs_of_paths if one == other[: len(one)]), None)


def _put(whole: dict[Any, Any], path: list[Any], value: str) -> None:
    for step in path[:-1]:
        whole = whole.setdefault(step, {})
    whole[path[-1]] = value


def _listed(part: Any) -> Any:
    """Return the parts with elements of an array as a list."""
    if not isinstance(part, dict):
        return part
    inside = {step: _listed(one) for step, one in part.items()}
    return [inside[step] for step in sorted(inside)] if all(isinstance(step, int) for step in inside) else inside
