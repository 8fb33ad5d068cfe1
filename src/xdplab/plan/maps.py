"""What a plan puts into the maps of a user's program: in the plan itself, or in files that it names."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from xdplab.errors import PlanError

Contents = str | dict[int | str, Any] | list[dict[str, Any]]
"""A file (CSV or JSON), values by key, or a list of ``{key: …, value: …}`` for keys that are structs."""
Row = tuple[Any, Any]
Entry = tuple[str, str, str]
"""A map's name, and the texts of a key and of its value; for a file an empty key, and the file's path."""
FILE_KINDS = (".csv", ".json")
LONGEST_LABEL = 40
INDEXED = ("array", "percpu_array")
IN_USER_SPACE = (*INDEXED, "hash")
"""Kinds of maps that a generated lookup has in user space too."""
_PAIR = {"key", "value"}
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


def why_no_lookup(map_type: str, entries: int, hit: int) -> str | None:
    """Return in words why a generated program cannot look up in such a map, or None."""
    if hit != 100 and map_type in INDEXED:
        return f"hit: {hit}: each index of map_type {map_type} has an entry, so its lookups hit; leave `hit` out"
    if entries * hit % 100:
        return f"hit: {hit} % of {entries} entries is no whole number; take a multiple of 100 entries"
    return None


def checked_maps(given: dict[str, Any]) -> dict[str, Any]:
    """Return the maps of a plan. Raises ValueError for contents of another form."""
    for name, contents in given.items():
        if isinstance(contents, str) and Path(contents).suffix not in FILE_KINDS:
            raise ValueError(f"{name}: {contents!r} is no file of entries: its name ends in .csv or .json")
        if isinstance(contents, list) and (odd := next((row for row in contents if row.keys() != _PAIR), None)):
            raise ValueError(f"{name}: {odd} is not {{key: …, value: …}}")
    return given


def entries(given: Mapping[str, Any]) -> tuple[Entry, ...]:
    """Return the maps of a plan in a form that can be compared, by their names; files stay files."""
    return tuple(entry for name, contents in sorted(given.items()) for entry in _entries(name, contents))


def _entries(name: str, contents: Any) -> Iterator[Entry]:
    if isinstance(contents, str):
        yield name, "", contents
        return
    for key, value in _pairs(contents):
        yield name, _key_text(key), _text(value)


def _key_text(key: Any) -> str:
    return _text(key) if isinstance(key, dict | list) else str(key)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def as_given(listed: Iterable[Entry]) -> dict[str, Any]:
    """Return the maps as a plan has them: the opposite of `entries`."""
    maps: dict[str, Any] = {}
    for name, key, value in listed:
        if not key:
            maps[name] = value
        else:
            row = {"key": json.loads(key) if key[0] in "{[" else key, "value": json.loads(value)}
            maps.setdefault(name, []).append(row)
    return maps


def files_of(listed: Iterable[Entry]) -> dict[str, str]:
    """Return the paths of files that fill maps, by the map's name."""
    return {name: value for name, key, value in listed if not key}


def named_only(listed: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return the entries with a file's name in place of its path: what identifies a point."""
    return tuple((name, key, value if key else Path(value).name) for name, key, value in listed)


def cell(listed: Iterable[Entry]) -> str:
    """Return the text of a column."""
    texts = (f"{name}[{key}]={value}" if key else f"{name}={Path(value).name}" for name, key, value in listed)
    return " ".join(texts).replace('"', "") or "none"


def label(level: str) -> str:
    """Return a column's text as a label: many entries are named by their maps."""
    names = dict.fromkeys(re.findall(r"(?:^| )(\w+)(?=[\[=])", level))
    return f"maps {level if len(level) <= LONGEST_LABEL else ', '.join(names)}"


def rows_of(contents: Any, place: str) -> Iterator[Row]:
    """Yield key and value of each entry. Raises PlanError, with the line of a file that cannot be read."""
    if not isinstance(contents, str):
        yield from _pairs(contents)
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


def _pairs(contents: Any) -> Iterator[Row]:
    if isinstance(contents, Mapping):
        yield from contents.items()
        return
    yield from map(_pair, contents)


def _pair(row: Any) -> Row:
    return row if isinstance(row, tuple) else (row["key"], row["value"])


Column = tuple[list[Any], Sequence[Any]]
"""The steps to a field, such as ``["key", "src"]``, and its value in each entry."""


def columns_of(contents: Any) -> list[Column]:
    """Return many entries by columns, which are packed all at once; none if they have no columns."""
    try:
        if isinstance(contents, str) and contents.endswith(".csv"):
            return _columns_of_csv(Path(contents).read_text())
        given = json.loads(Path(contents).read_text()) if isinstance(contents, str) else contents
        if isinstance(given, dict):
            keys, values = list(given), list(given.values())
        elif isinstance(given[0], tuple):
            keys, values = [key for key, _ in given], [value for _, value in given]
        elif all(row.keys() == _PAIR for row in given):
            keys, values = [row["key"] for row in given], [row["value"] for row in given]
        else:
            return []
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError):
        return []
    fields = values[0].keys() if values and isinstance(values[0], dict) else None
    if fields and all(isinstance(value, dict) and value.keys() == fields for value in values):
        return [(["key"], keys), *((["value", name], [value[name] for value in values]) for name in fields)]
    return [(["key"], keys), (["value"], values)]


def _columns_of_csv(text: str) -> list[Column]:
    reader = csv.reader(text.splitlines())
    header = next(reader, [])
    cells: list[str] = []
    for row in reader:
        if len(row) not in (0, len(header)):
            return []
        cells += row
    return [(_steps(name), cells[at :: len(header)]) for at, name in enumerate(header)] if cells else []


def _steps(name: str) -> list[Any]:
    return [step[0] or int(step[1]) for step in _STEP.findall(name.strip())]


def _of_json(text: str, place: str) -> Iterator[Row]:
    try:
        contents = json.loads(text)
    except json.JSONDecodeError as error:
        raise PlanError(f"{place} is not JSON: {error}") from None
    listed = isinstance(contents, list) and all(isinstance(row, dict) and row.keys() == _PAIR for row in contents)
    if not listed and not isinstance(contents, dict):
        raise PlanError(f'{place} holds neither {{"KEY": VALUE}} nor [{{"key": …, "value": …}}]')
    yield from _pairs(contents)


def _of_csv(text: str, place: str) -> Iterator[Row]:
    """Columns are ``key`` and ``value``, or their parts: ``key.src``, ``value.limits[0]``."""
    reader = csv.reader(text.splitlines())
    header = [name.strip() for name in next(reader, [])]
    paths = [_steps(name) for name in header]
    if {path[0] for path in paths if path} != _PAIR:
        raise PlanError(f"{place}: its first line names the columns: `key,value`, or parts as `key.src,value.hits`")
    for row in reader:
        if not row:
            continue
        if len(row) != len(header):
            raise PlanError(f"{place}:{reader.line_num}: {len(row)} cells are below {len(header)} names")
        whole: dict[Any, Any] = {}
        for path, each in zip(paths, row, strict=True):
            _put(whole, path, each.strip())
        yield _listed(whole["key"]), _listed(whole["value"])


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
