"""`perf stat -j`: one JSON object per line; and the check that perf counted the machine, not the command it ran.

perf writes values as strings, and `<not supported>` or `<not counted>` where it has none. Its JSON has no header, so
only the recorded argument vector shows the target (its text form has it in the first line). With -A some versions
(6.12) add the PMU to an event's name, `context-switches [software]`; others (6.1, 7.2) do not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, get_args

from xdplab.errors import FormatError
from xdplab.formats.reading import count_of, lines_of, object_of, optional_number, refuse, text_field

TOOL = "perf stat"
Missing = Literal["<not supported>", "<not counted>"]
TargetKind = Literal["system", "cpus", "process", "command"]

# Options of perf stat that take a value (builtin-stat.c): the next argument is not the measured command.
_SHORT_WITH_VALUE = frozenset("eptrxoICDGM")
_LONG_WITH_VALUE = re.compile(
    "event|filter|pid|tid|cpu|repeat|field-separator|cgroup|for-each-cgroup|output|log-fd|pre|post|interval-print|"
    "interval-count|timeout|delay|metrics|td-level|cputype|control"
)
_HEADER = re.compile(r"Performance counter stats for (.+?):?\s*$")
_GROUP = re.compile(r"\{([^{}]*)\}(?::\w+)?")
_EVENT = re.compile(r"(?:/[^/]*/|[^,/])+")
_OF_PMU = re.compile(r"[^/]+/([^/]*)/:?(\w*)")
_PMU = re.compile(r" \[[^][]+\]$")
_BARE_NAN = re.compile(r":\s*-?(?:nan|inf)\b")


@dataclass(frozen=True)
class PerfCount:
    """One event, named as it was asked for, of one interval and CPU.

    ``value`` is None for ``reason`` (perf's own words).
    ``running_percent`` below 100 means that events shared a hardware counter and perf scaled ``value``. ``cpu`` is None
    if perf summed over them (no -A).
    """

    event: str
    value: float | None
    reason: str | None
    unit: str
    running_percent: float | None
    cpu: int | None = None


@dataclass(frozen=True)
class Target:
    """What perf counted, and the text that says so."""

    kind: TargetKind
    text: str


def parse_perf_json(data: bytes | str) -> tuple[PerfCount, ...]:
    """Return the counts of `perf stat -j`, in its order. Raises FormatError on any line that is not one."""
    rows = enumerate(lines_of(data, TOOL), start=1)
    parsed = [_count(line, number) for number, line in rows if line.strip() and not line.startswith("#")]
    counts = tuple(count for count in parsed if count is not None)
    if not counts:
        refuse(TOOL, "no counter in it")
    return counts


def _count(text: str, line: int) -> PerfCount | None:
    """Return the count in one line; None if the line only adds another metric of the event before (perf 6.5 on)."""
    # Some versions print C's nan for a metric that they could not derive; JSON has no nan.
    fields = object_of(_BARE_NAN.sub(": null", text), TOOL, line=line)
    if "metric-value" in fields and "event" not in fields:
        return None
    value, reason = _value(text_field(fields, "counter-value", TOOL, line=line), line)
    cpu = text_field(fields, "cpu", TOOL, line=line) if "cpu" in fields else None
    return PerfCount(
        event=_PMU.sub("", text_field(fields, "event", TOOL, line=line)),
        value=value,
        reason=reason,
        unit=text_field(fields, "unit", TOOL, line=line),
        running_percent=optional_number(fields.get("pcnt-running")),
        cpu=None if cpu is None else count_of(cpu, TOOL, line=line),
    )


def _value(word: str, line: int) -> tuple[float | None, str | None]:
    if word in get_args(Missing):
        return None, word
    try:
        value = float(word)
    except ValueError:
        refuse(TOOL, "not a count (was it run under LC_ALL=C?)", line=line, text=word)
    if not math.isfinite(value) or "_" in word:
        refuse(TOOL, "not a count", line=line, text=word)
    return value, None


def target_of_argv(argv: Sequence[str]) -> Target:
    """Return what `perf stat` with these arguments counts. Raises FormatError if it is not `perf stat`.

    A process wins over everything ("PID/TID switch overriding SYSTEM"); without target and command perf counts the
    system.
    """
    words = list(argv)
    if "stat" not in words:
        raise FormatError(f"not a perf stat command: {' '.join(words)}", remedy="record perf with `perf stat -a`")
    options, command = _split_options(words[words.index("stat") + 1 :])
    if options & {"p", "t", "pid", "tid"}:
        return Target("process", "a process id")
    if options & {"C", "cpu"}:
        return Target("cpus", "a list of CPUs")
    if options & {"a", "all-cpus"} or not command:
        return Target("system", "system wide")
    return Target("command", " ".join(command))


def events_of_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the events that `perf stat` gets with these arguments, by separate `-e LIST` arguments.

    As perf does, split at commas, but not within slashes (`cpu/event=0x3c,umask=0x0/`). Groups are their events.
    """
    lists = [_GROUP.sub(r"\1", list) for option, list in pairwise(argv) if option == "-e"]
    return tuple(event for list in lists for event in _EVENT.findall(list))


def named_as_asked(counts: Sequence[PerfCount], events: Sequence[str]) -> tuple[PerfCount, ...]:
    """Return the counts under the names that were requested as ``events``.

    On a machine with several kinds of cores, perf prints `cycles` once for each kind, as `cpu_core/cycles/` and
    `cpu_atom/cycles/`; a group's modifier may follow a name.
    """
    return tuple(replace(count, event=_asked_name(count.event, events)) for count in counts)


def _asked_name(printed: str, events: Sequence[str]) -> str:
    of_pmu = _OF_PMU.fullmatch(printed)
    plain = of_pmu[1] if of_pmu else printed
    modified = f"{plain}:{of_pmu[2]}" if of_pmu and of_pmu[2] else plain
    names = (printed, modified, plain, plain.partition(":")[0])
    return next((name for name in names if name in events), printed)


def _split_options(words: list[str]) -> tuple[set[str], list[str]]:
    """Return the names of the options and the measured command that follows them."""
    names: set[str] = set()
    position = 0
    while position < len(words) and words[position].startswith("-") and words[position] != "--":
        options, takes_next = _option(words[position])
        names |= options
        position += 1 + takes_next
    return names, [word for word in words[position:] if word != "--"]


def _option(word: str) -> tuple[set[str], bool]:
    """Return the names in one word of options, and whether the next word is its value."""
    if word.startswith("--"):
        name, equals, _ = word[2:].partition("=")
        return {name}, not equals and _LONG_WITH_VALUE.fullmatch(name) is not None
    for index, letter in enumerate(word[1:], start=1):
        if letter in _SHORT_WITH_VALUE:
            return set(word[1 : index + 1]), index == len(word) - 1
    return set(word[1:]), False


def target_of_header(data: bytes | str) -> Target:
    """Return the target that the text form of `perf stat` names. Raises FormatError if it has no such line."""
    for line in lines_of(data, TOOL):
        if match := _HEADER.search(line):
            return _named_target(match[1].strip())
    refuse(TOOL, "no line `Performance counter stats for …`")


def _named_target(quoted: str) -> Target:
    name = quoted.strip("'")
    if name == "system wide":
        return Target("system", name)
    if name.startswith("CPU(s)"):
        return Target("cpus", name)
    if quoted.startswith(("process id", "thread id")):
        return Target("process", quoted)
    return Target("command", name)


def require_system_wide(target: Target) -> Target:
    """Return ``target`` if perf counted whole CPUs. Raises FormatError otherwise: counts of a command do not include
    XDP."""
    if target.kind in ("system", "cpus"):
        return target
    raise FormatError(
        f"perf counted {target.kind} `{target.text}`, not the machine: XDP runs in softirqs that it never sees",
        remedy="record perf with `perf stat -a` or `-C CPUS`",
    )
