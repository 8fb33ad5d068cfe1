"""The basics of every parser: checks of bytes, text, JSON and fields.

For any output of a tool, a parser returns rows or raises FormatError naming the tool and, if there is one, the line.

What a C tool's error line says: its message, and the end of the log (verifier, driver, libbpf) that explains it.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast, get_args, get_origin, get_type_hints

from xdplab.errors import FormatError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Record = TypeVar("_Record", bound="DataclassInstance")

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


def objects_of(data: bytes | str, tool: str) -> list[dict[str, object]]:
    """Return the JSON object of each line."""
    return [object_of(line, tool, line=number) for number, line in enumerate(lines_of(data, tool), start=1)]


def object_of(text: str, tool: str, *, line: int | None = None) -> dict[str, object]:
    """Return the JSON object that ``text`` is."""
    return as_object(json_of(text, tool, line=line), tool, line=line)


def as_list(value: object, tool: str) -> list[object]:
    """Return ``value``, a JSON list."""
    if not isinstance(value, list):
        refuse(tool, "not a JSON list", text=repr(value))
    return value


def record_of(kind: type[_Record], line_fields: Mapping[str, object], tool: str, *, line: int | None = None) -> _Record:
    """Return the dataclass ``kind`` made from a tool's line. Raises FormatError naming a field that does not fit.

    Each field of the class must be there, unless it has a default, and be of its type: an int is a count, a float a
    number from 0, a tuple a list, a mapping an object; None is null. The line may have more fields.
    """
    values: dict[str, Any] = {}
    for name, (read, has_default) in _readers(kind).items():
        if name in line_fields:
            values[name] = read(line_fields[name], name, tool, line)
        elif not has_default:
            refuse(tool, f"no field `{name}`", line=line)
    return kind(**values)


_Reader = Callable[[Any, str, str, int | None], Any]
"""From a value, its field's name, the tool and the line to what the record has."""


@functools.cache
def _readers(kind: type[DataclassInstance]) -> dict[str, tuple[_Reader, bool]]:
    """Return by field how to read it, and whether it has a default."""
    hints = get_type_hints(kind)
    without = (MISSING, MISSING)
    given = [field for field in fields(kind) if field.init]
    return {f.name: (_reader_of(hints[f.name]), (f.default, f.default_factory) != without) for f in given}


def _reader_of(hint: Any) -> _Reader:
    """Return what reads values of a type; made once, because a histogram has thousands of values."""
    inner, origin = get_args(hint), get_origin(hint)
    if type(None) in inner:
        (other,) = (_reader_of(one) for one in inner if one is not type(None))
        return lambda value, *where: None if value is None else other(value, *where)
    if origin is tuple:
        return _list_of(_reader_of(inner[0])) if inner[-1] is ... else _row_of([_reader_of(one) for one in inner])
    if origin is Mapping:
        item = _reader_of(inner[1])
        return lambda value, name, tool, line: {
            key: item(one, f"{name}.{key}", tool, line) for key, one in as_object(value, tool, line=line).items()
        }
    if is_dataclass(hint):
        return lambda value, _, tool, line: record_of(
            cast("type[DataclassInstance]", hint), as_object(value, tool, line=line), tool, line=line
        )
    return _PLAIN.get(hint, lambda value, *_: value)


def _list_of(item: _Reader) -> _Reader:
    def read(value: object, name: str, tool: str, line: int | None) -> tuple[Any, ...]:
        if not isinstance(value, list):
            refuse(tool, f"no list in field `{name}`", line=line)
        return tuple([item(one, name, tool, line) for one in value])

    return read


def _row_of(items: list[_Reader]) -> _Reader:
    def read(value: object, name: str, tool: str, line: int | None) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) != len(items):
            refuse(tool, f"no list of {len(items)} in field `{name}`", line=line)
        return tuple([item(one, name, tool, line) for item, one in zip(items, value, strict=True)])

    return read


def _count(value: object, name: str, tool: str, line: int | None) -> int:
    if type(value) is not int or value < 0:
        refuse(tool, f"no count in field `{name}`", line=line, text=repr(value))
    return value


def _size(value: object, name: str, tool: str, line: int | None) -> float:
    number = number_field({name: value}, name, tool, line=line)
    if number < 0:
        refuse(tool, f"a negative number in field `{name}`", line=line)
    return number


def _text(value: object, name: str, tool: str, line: int | None) -> str:
    return text_field({name: value}, name, tool, line=line)


def _truth(value: object, name: str, tool: str, line: int | None) -> bool:
    if not isinstance(value, bool):
        refuse(tool, f"neither true nor false in field `{name}`", line=line)
    return value


_PLAIN: dict[Any, _Reader] = {int: _count, float: _size, str: _text, bool: _truth}


def text_field(fields: dict[str, object], key: str, tool: str, *, line: int | None = None) -> str:
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


_INSTRUCTION = re.compile(r"[0-9]+: |; |from [0-9]+ to ")
_WORK = re.compile(
    r"(?:frame\d+: )?(?:[Rr]\d+|fp-?\d+)(?:_\w+)?=|mark_precise: |last_idx \d+ first_idx|regs=\w* stack=|"
    r"parent (?:didn't have|already had) regs=|(?:cur|old) state:|(?:caller|callee|returning from callee):$|"
    r"to caller at \d+:|func#\d+ @|Func#\d+ |frame ?\d+: propagating |propagating |Validating .* func#\d+"
)
"""What the verifier says of its own work, at levels 1 and 2 (kernel/bpf/verifier.c of 6.1 and 6.12)."""

_STATISTIC = re.compile(r"processed |insns processed |verification time|stack depth")
_REPEATED = re.compile(r"libbpf: (prog |failed to load object|Error in bpf_create_map|map ')|-- END PROG LOAD LOG")
"""libbpf's messages that only repeat the error number."""

MOST_WORDS = 3
"""How many of a log's last lines are quoted."""

_KERNEL = "libbpf: Kernel error message: "


_SOURCE = re.compile(r"; (?P<text>.*?)(?: @ (?P<place>\S+:\d+))?$")


def last_words(log: str) -> str:
    """Return why a load failed, from the log of verifier, driver or libbpf: its last three lines at most, on one.

    Lines before the last instruction are skipped, as are the verifier's work, statistics, repetitions of the error
    number, and a source line after the complaint.
    """
    return "; ".join(reversed(_ending(log)[0][:MOST_WORDS]))


def refused_line(log: str) -> str:
    """Return the source line that the verifier looked at last before it refused: ``mine.bpf.c:9: `*value += 1;` ``.

    Kernels before 6.10 give no file and number. Empty if the log has no complaint, or the object no debug information.
    """
    ending, before = _ending(log)
    source = next((match for line in before if (match := _SOURCE.match(line))), None)
    if source is None or not ending:
        return ""
    return f"{source['place']}: `{source['text']}`" if source["place"] else f"`{source['text']}`"


def _ending(log: str) -> tuple[list[str], Sequence[str]]:
    """Return the lines behind the last instruction, and those before, each from the log's end on."""
    lines = [line.strip().removeprefix(_KERNEL) for line in log.splitlines() if line.strip()]
    telling = [line for line in lines if not any(skipped.match(line) for skipped in (_STATISTIC, _REPEATED, _WORK))]
    backwards = list(dropwhile(lambda line: line.startswith("; "), reversed(telling)))
    ending = list(takewhile(lambda line: not _INSTRUCTION.match(line), backwards))
    return ending, backwards[len(ending) :]


def message_of(error: Mapping[str, object]) -> str:
    """Return the error of a C tool's error line: its message, the last lines of its log if it has one, and the source
    line that was refused."""
    log = error.get("log")
    if not isinstance(log, str):
        return str(error.get("message"))
    parts = ": ".join(part for part in (str(error.get("message")), last_words(log)) if part)
    return f"{parts}, at {line}" if (line := refused_line(log)) else parts
