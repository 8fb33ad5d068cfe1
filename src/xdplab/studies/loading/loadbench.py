"""What the study's tools print: loadbench's JSON lines, and the traces of the kernel's function_graph tracer.

loadbench gives sizes, every repetition, and a last line; without it the output was truncated. Of the tracer, tracefs'
``trace`` file is read (Documentation/trace/ftrace.rst, "function graph tracer"): columns are an absolute time (where it
is on), CPU, task (where it is on), duration, and calls nested as C blocks; what was written to ``trace_marker`` stands
between them as a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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


TRACER = "function_graph"

# Spaces are taken whole and never given back (`*+`): tried in every split, 4 kB of them took 43 s.
_LINE = re.compile(r"(?: *+\d+\.\d+ \| ++)? *+(?P<cpu>\d+)\) (?: *+(?P<task>\S.*?-\d+) *+\|)?(?P<rest>.*)")
_REST = re.compile(r" *+(?:[$@*#!+] )? *+(?:(?P<us>\d+)(?:\.(?P<part>\d{1,3}))? us)? *+\|(?P<body>.*)")
_CALL = re.compile(r"(?P<name>[\w.$]+)(?: \[\w+\])?\(.*\)(?P<ending>;| \{)(?: /\*.*\*/)?")
_END = re.compile(r"\}(?: /\*.*\*/)?")
_MARK = re.compile(r"/\* (?P<text>.*?) ?\*/")
_BESIDE = re.compile(r"#.*| *-{20,}| *\d+\) .* => .*| *\d+\) +(?:=+>|<=+) \|.*|")


@dataclass(frozen=True)
class TracedCall:
    """One call that ended: nanoseconds of the trace's clock with all it called (three digits of a µs, or seven in all).

    ``inside`` are the traced functions around it, the outermost first; ``mark`` what was last written to
    ``trace_marker`` before it ended, or ''.
    """

    function: str
    duration_ns: int
    inside: tuple[str, ...]
    mark: str


@dataclass(frozen=True)
class _Line:
    task: str
    duration_ns: int | None
    body: str


def parse_function_graph(data: bytes | str) -> tuple[TracedCall, ...]:
    """Return the calls of a trace in the order they ended; what it does not hold whole is left out.

    Raises FormatError if a line is no trace's, and where the kernel lost events: sums over such a trace are wrong.
    """
    stacks: dict[str, list[str]] = {}
    calls: list[TracedCall] = []
    mark = ""
    for line, number in _lines(data):
        body, stack = line.body, stacks.setdefault(line.task, [])
        if match := _MARK.fullmatch(body):
            mark = match["text"]
        elif _END.fullmatch(body):
            if stack and line.duration_ns is not None:  # else it began before the trace
                calls.append(TracedCall(stack.pop(), line.duration_ns, tuple(stack), mark))
        elif (call := _CALL.fullmatch(body)) is None:
            refuse(TRACER, "no call", line=number, text=body)
        elif call["ending"] == " {":
            stack.append(call["name"])
        elif line.duration_ns is not None:
            calls.append(TracedCall(call["name"], line.duration_ns, tuple(stack), mark))
    return tuple(calls)


def _lines(data: bytes | str) -> Iterator[tuple[_Line, int]]:
    for number, text in enumerate(lines_of(data, TRACER), start=1):
        if "[LOST " in text:
            refuse(TRACER, "the kernel lost events", line=number, text=text)
        if _BESIDE.fullmatch(text):
            continue
        line = _LINE.fullmatch(text)
        rest = _REST.fullmatch(line["rest"]) if line else None
        if line is None or rest is None:
            refuse(TRACER, "no line of a trace", line=number, text=text)
        if rest["body"].strip():
            yield _Line(line["task"] or line["cpu"], _duration(rest), rest["body"].strip()), number


def _duration(rest: re.Match[str]) -> int | None:
    if rest["us"] is None:
        return None
    return int(rest["us"][:15]) * 1000 + int((rest["part"] or "").ljust(3, "0"))
