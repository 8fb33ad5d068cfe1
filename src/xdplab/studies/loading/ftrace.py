"""Traces of the kernel's function_graph tracer, as tracefs' ``trace`` file shows them.

Kernel documentation: Documentation/trace/ftrace.rst, "function graph tracer". Columns are an absolute time (where it is
on), CPU, task (where it is on), duration, and calls nested as C blocks; what was written to ``trace_marker`` stands
between them as a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from xdplab.formats.reading import lines_of, refuse

TOOL = "function_graph"

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
            refuse(TOOL, "no call", line=number, text=body)
        elif call["ending"] == " {":
            stack.append(call["name"])
        elif line.duration_ns is not None:
            calls.append(TracedCall(call["name"], line.duration_ns, tuple(stack), mark))
    return tuple(calls)


def _lines(data: bytes | str) -> Iterator[tuple[_Line, int]]:
    for number, text in enumerate(lines_of(data, TOOL), start=1):
        if "[LOST " in text:
            refuse(TOOL, "the kernel lost events", line=number, text=text)
        if _BESIDE.fullmatch(text):
            continue
        line = _LINE.fullmatch(text)
        rest = _REST.fullmatch(line["rest"]) if line else None
        if line is None or rest is None:
            refuse(TOOL, "no line of a trace", line=number, text=text)
        if rest["body"].strip():
            yield _Line(line["task"] or line["cpu"], _duration(rest), rest["body"].strip()), number


def _duration(rest: re.Match[str]) -> int | None:
    if rest["us"] is None:
        return None
    return int(rest["us"][:15]) * 1000 + int((rest["part"] or "").ljust(3, "0"))
