"""The basics of every parser: checks of bytes, text, JSON and fields.

For any output of a tool, a parser returns rows or raises FormatError naming the tool and, if there is one, the line.
"""

from __future__ import annotations

import json
import math
from typing import NoReturn, cast

from xdplab.errors import FormatError

_EXCERPT = 60
REMEDY = "look at the raw file: it is truncated or empty, or another tool wrote it"


def refuse(tool: str, what: str, *, line: int | None = None, text: str = "") -> NoReturn:
    """Raise FormatError: ``tool``, the 1-based ``line`` where known, ``what`` is wrong, and the wrong text."""
    where = f"{tool}: line {line}" if line is not None else tool
    excerpt = f": {text[:_EXCERPT]!r}" if text else ""
    raise FormatError(f"{where}: {what}{excerpt}", remedy=REMEDY)


def text_of(data: bytes | str, tool: str) -> str:
    """Return ``data`` as text. Raises FormatError if it is empty or binary."""
    text = data if isinstance(data, str) else _decoded(data, tool)
    if "\0" in text:
        refuse(tool, "a NUL byte", line=text.count("\n", 0, text.index("\0")) + 1)
    if not text.strip():
        refuse(tool, "empty")
    return text


def _decoded(data: bytes, tool: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        refuse(tool, "binary bytes", line=data.count(b"\n", 0, error.start) + 1)


def lines_of(data: bytes | str, tool: str) -> list[str]:
    """Return the lines of ``data`` without their ends.

    Raises FormatError if it is empty or binary, or if the last line has no end: half a number looks like a number.
    """
    text = text_of(data, tool).replace("\r\n", "\n")
    if not text.endswith("\n"):
        refuse(tool, "the last line has no end (cut?)", line=text.count("\n") + 1, text=text[text.rfind("\n") + 1 :])
    return text.rstrip("\n").split("\n")


def json_of(data: bytes | str, tool: str, *, line: int | None = None) -> object:
    """Return the one JSON value in ``data``. Raises FormatError if there is none, or only a part of one."""
    text = text_of(data, tool)
    try:
        return cast("object", json.loads(text, parse_constant=lambda name: None))
    except json.JSONDecodeError as error:
        refuse(tool, f"not JSON ({error.msg})", line=line or error.lineno, text=text[error.pos : error.pos + _EXCERPT])
    except (ValueError, RecursionError):
        refuse(tool, "JSON that no tool writes", line=line, text=text)


def as_object(value: object, tool: str, *, line: int | None = None) -> dict[str, object]:
    """Return ``value``, a JSON object."""
    if not isinstance(value, dict):
        refuse(tool, "not a JSON object", line=line, text=repr(value))
    return value


def as_list(value: object, tool: str) -> list[object]:
    """Return ``value``, a JSON list."""
    if not isinstance(value, list):
        refuse(tool, "not a JSON list", text=repr(value))
    return value


def text_field(fields: dict[str, object], key: str, tool: str, *, line: int | None = None) -> str:
    """Return the string at ``key``."""
    value = fields.get(key)
    if not isinstance(value, str):
        refuse(tool, f"no text in field `{key}`", line=line, text=repr(value))
    return value


def count_field(fields: dict[str, object], key: str, tool: str, *, line: int | None = None) -> int:
    """Return the count (an integer from 0) at ``key``."""
    value = fields.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        refuse(tool, f"no count in field `{key}`", line=line, text=repr(value))
    return value


def number_field(fields: dict[str, object], key: str, tool: str, *, line: int | None = None) -> float:
    """Return the finite number at ``key``."""
    value = optional_number(fields.get(key))
    if value is None:
        refuse(tool, f"no number in field `{key}`", line=line, text=repr(fields.get(key)))
    return value


def optional_number(value: object) -> float | None:
    """Return ``value`` as a finite float, or None if it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def count_of(word: str, tool: str, *, line: int | None = None, base: int = 10) -> int:
    """Return the count that ``word`` is in ASCII digits of ``base``, without sign or underscore."""
    try:
        if word.isascii() and word.isalnum():
            return int(word, base)
    except ValueError:
        pass
    refuse(tool, "not a count", line=line, text=word)
