"""What a plan puts into the maps of a user's program: in the plan itself, or in files that it names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

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
PAIR = {"key", "value"}
"""The parts of an entry."""


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
        for row in contents if isinstance(contents, list) else ():
            if row.keys() != PAIR:
                raise ValueError(f"{name}: {row} is not {{key: …, value: …}}")
    return given


def entries(given: Mapping[str, Any]) -> tuple[Entry, ...]:
    """Return the maps of a plan in a form that can be compared, by their names; files stay files."""
    return tuple(entry for name, contents in sorted(given.items()) for entry in _entries(name, contents))


def _entries(name: str, contents: Any) -> Iterator[Entry]:
    if isinstance(contents, str):
        yield name, "", contents
        return
    for key, value in pairs(contents):
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


def pairs(contents: Any) -> Iterator[Row]:
    """Yield key and value of each entry that the plan itself holds."""
    if isinstance(contents, Mapping):
        yield from contents.items()
        return
    yield from map(_pair, contents)


def _pair(row: Any) -> Row:
    return row if isinstance(row, tuple) else (row["key"], row["value"])
