"""The JSON lines of microbench: what was loaded, every call, and a last line; without it the output was truncated."""

from __future__ import annotations

from dataclasses import dataclass

from xdplab.formats.reading import count_field, objects_of, refuse, text_field

TOOL = "microbench"


@dataclass(frozen=True)
class TimedCall:
    """One call: nanoseconds of its place's clock. Of a user's own program only ``elapsed_ns`` is known."""

    index: int
    elapsed_ns: int
    begin_ns: int = 0
    end_ns: int = 0
    result: int = 0


@dataclass(frozen=True)
class Microbench:
    """``jited_bytes`` is 0 for interpreted programs; both sizes are null without BPF."""

    backend: str
    jited_bytes: int | None
    xlated_bytes: int | None
    calls: tuple[TimedCall, ...]


def parse_microbench(data: bytes | str) -> Microbench:
    """Return the output of one run of microbench. Raises FormatError naming the line."""
    lines = objects_of(data, TOOL)
    kinds = [text_field(fields, "type", TOOL, line=n) for n, fields in enumerate(lines, 1)]
    if kinds[0] != "loaded" or kinds[-1] != "end" or set(kinds[1:-1]) - {"call"}:
        refuse(TOOL, "not one `loaded`, calls, and one `end`", line=len(lines))
    calls = tuple(_call(fields, n) for n, fields in enumerate(lines[1:-1], 2))
    if len(calls) != count_field(lines[-1], "calls", TOOL, line=len(lines)):
        refuse(TOOL, f"{len(calls)} calls, and its end tells of others", line=len(lines))
    loaded = lines[0]
    jited, xlated = (_size(loaded, key) for key in ("jited_bytes", "xlated_bytes"))
    return Microbench(text_field(loaded, "backend", TOOL, line=1), jited, xlated, calls)


def _size(loaded: dict[str, object], key: str) -> int | None:
    return None if loaded.get(key, 0) is None else count_field(loaded, key, TOOL, line=1)


def _call(fields: dict[str, object], line: int) -> TimedCall:
    index = count_field(fields, "index", TOOL, line=line)
    if "elapsed_ns" in fields:
        return TimedCall(index, count_field(fields, "elapsed_ns", TOOL, line=line))
    begin, end, result = (count_field(fields, key, TOOL, line=line) for key in ("begin_ns", "end_ns", "result"))
    if end < begin:
        refuse(TOOL, "a call that ends before it begins", line=line)
    return TimedCall(index, end - begin, begin, end, result)
