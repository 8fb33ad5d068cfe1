"""The JSON lines of loadbench: sizes, every repetition, and a last line; without it the output was truncated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xdplab.formats.reading import lines_of, object_of, refuse, text_field
from xdplab.formats.tool_error import message_of

TOOL = "loadbench"
SIZES, CYCLE, ERROR, END = ("program", "module"), ("cycle", "start"), "error", "end"

Counts = Mapping[str, int | None]


@dataclass(frozen=True)
class LoadError:
    """Why it ended early: the step, the message of the tool or the kernel, and the verifier's last lines if there are
    any.

    ``step`` is ``open``, ``load``, ``attach``, ``init_module``, ``trace`` and the like.
    """

    step: str
    message: str


@dataclass(frozen=True)
class LoadBench:
    """``cycles``: each repetition's nanoseconds of its place's clock by name, in order; null if not measured.

    ``sizes`` are bytes and instructions by name. ``error`` is None if it went to its end.
    """

    cycles: tuple[Counts, ...]
    sizes: Counts = field(default_factory=dict)
    error: LoadError | None = None


def parse_loadbench(data: bytes | str) -> LoadBench:
    """Return the output of one run of loadbench. Raises FormatError naming the line."""
    cycles: list[Counts] = []
    sizes: Counts = {}
    lines = lines_of(data, TOOL)
    for number, text in enumerate(lines, start=1):
        fields = object_of(text, TOOL, line=number)
        kind = text_field(fields, "type", TOOL, line=number)
        if kind == ERROR:
            return LoadBench(tuple(cycles), sizes, _error(fields, number))
        if kind in SIZES:
            sizes = _counts(fields, number)
        elif kind in CYCLE:
            cycles.append(_counts(fields, number))
        elif kind != END:
            refuse(TOOL, "an unknown type", line=number, text=kind)
    if kind != END:
        refuse(TOOL, "no last line (cut?)", line=len(lines))
    return LoadBench(tuple(cycles), sizes)


def _counts(fields: dict[str, object], line: int) -> Counts:
    counts: dict[str, int | None] = {}
    for key, value in fields.items():
        if key in ("type", "name"):
            continue
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            refuse(TOOL, f"no count in field `{key}`", line=line, text=repr(value))
        counts[key] = value
    return counts


def _error(fields: dict[str, object], line: int) -> LoadError:
    text_field(fields, "message", TOOL, line=line)
    return LoadError(text_field(fields, "step", TOOL, line=line), message_of(fields))
