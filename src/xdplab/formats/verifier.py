"""What tools print of the kernel's verifier: its log at level 4, bpfverify's JSON lines that hold it, veristat's CSV.

The log ends with ``verification time N usec``, ``stack depth N+N+…``, ``processed N insns (limit N)
max_states_per_insn N total_states N peak_states N mark_read N``, as kernel/bpf/verifier.c writes them since 5.2; 7.2
adds ``max N`` to the stack depth, and ``insns processed N+N+…``. Counts are deterministic, times are not.
Source of the CSV's names and units: ``stat_defs`` in tools/testing/selftests/bpf/veristat.c. A statistic that veristat
could not obtain is ``N/A``, or negative.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import Any

from xdplab.formats.reading import as_object, count_of, last_words, lines_of, object_of, refuse, text_field

TOOL = "bpfverify"
VERDICTS = ("accepted", "rejected", "complexity", "environment", "no_type", "loader")
"""Accepted; the verifier's own finding; over its limits; what this machine lacks; no program type; not loadable."""

_TIME = re.compile(r"^verification time (\d+) usec", re.MULTILINE)
_COUNTS = re.compile(
    r"^processed (?P<processed_insns>\d+) insns \(limit (?P<limit_insns>\d+)\) "
    r"max_states_per_insn (?P<max_states_per_insn>\d+) total_states (?P<total_states>\d+) "
    r"peak_states (?P<peak_states>\d+) mark_read (?P<mark_read>\d+)",
    re.MULTILINE,
)
_STACK = re.compile(r"^stack depth (\d{1,9}(?:\+\d{1,9})*)(?: max (\d{1,9}))?$", re.MULTILINE)


@dataclass(frozen=True)
class VerifierStats:
    """The statistics at the end of the log; every field is None if the kernel did not get there.

    ``stack_depths``: bytes of stack of the main program and of each subprogram, in the order of their code;
    ``stack_chain``: the most bytes along a chain of calls, if the kernel prints it. It is 0 if the verifier stopped
    before it followed the calls.
    """

    verify_us: int | None = None
    processed_insns: int | None = None
    limit_insns: int | None = None
    max_states_per_insn: int | None = None
    total_states: int | None = None
    peak_states: int | None = None
    mark_read: int | None = None
    stack_depths: tuple[int, ...] | None = None
    stack_chain: int | None = None


@dataclass(frozen=True)
class StepLog:
    """The log of each step of one load: ``bytes`` kept of it, and whether it was ``full``.

    A full log keeps its end from Linux 6.4 on, which also tells ``true_bytes``, the length of the whole log; a second
    load then keeps ``first_bytes``, its beginning. Before 6.4 a full log keeps its beginning, ``true_bytes`` is None.
    """

    bytes: int
    full: bool
    true_bytes: int | None
    first_bytes: int | None


@dataclass(frozen=True)
class ProgramCode:
    """A program's instructions as they were handed over, and its size in the kernel; null if there was no load."""

    insns: int | None
    insns_hash: str | None
    xlated_bytes: int | None
    jited_bytes: int | None


@dataclass(frozen=True)
class WatchedLoad:
    """Memory of a load in bytes, and its branches (calls of push_stack); each with a reason if it is null."""

    kmalloc_peak_bytes: int | None
    kmalloc_reason: str | None
    peak_bytes: int | None
    peak_reason: str | None
    cgroup_peak_bytes: int | None
    cgroup_reason: str | None
    branches: int | None
    branches_reason: str | None


@dataclass(frozen=True)
class VerifiedProgram:
    """One program of one object, as bpfverify saw it. ``load_ns``: each BPF_PROG_LOAD, nanoseconds of its clock;
    ``verify_us``: the kernel's own verification time of the same loads in microseconds, None if its log has none.

    ``complaint`` is the log's text before its statistics, or the loader's message. ``compiler`` is the one that the
    object's debug information names.
    """

    object: str
    section: str | None
    name: str | None
    loader: str | None
    program_type: str | None
    code: ProgramCode
    verdict: str
    cause: str | None
    load_ns: tuple[int, ...]
    verify_us: tuple[int | None, ...]
    watched: WatchedLoad
    complaint: str | None
    stats: VerifierStats
    compiler: str | None = None
    steps: StepLog | None = None


def parse_stats(log: str) -> VerifierStats:
    """Return the statistics of the last verification in ``log``."""
    times = _TIME.findall(log)
    counts = list(_COUNTS.finditer(log))
    fields: dict[str, Any] = {name: _count(text) for name, text in counts[-1].groupdict().items()} if counts else {}
    return VerifierStats(_count(times[-1]) if times else None, **fields, **_stack(log))


def _stack(log: str) -> dict[str, Any]:
    chains = _STACK.findall(log)
    if not chains:
        return {}
    depths, chain = chains[-1]
    return {
        "stack_depths": tuple(int(depth) for depth in depths.split("+")),
        "stack_chain": int(chain) if chain else None,
    }


def parse_bpfverify(data: bytes | str) -> tuple[VerifiedProgram, ...]:
    """Return one row per program, and one per object without programs. Raises FormatError naming the line."""
    return tuple(_program(line, number) for number, line in enumerate(lines_of(data, TOOL), start=1))


def lines_by_object(data: bytes) -> dict[str, bytes]:
    """Return the lines of each object, as they are. Raises FormatError naming a line without an object."""
    logs: dict[str, bytes] = {}
    for number, line in enumerate(lines_of(data, TOOL), start=1):
        fields = object_of(line, TOOL, line=number)
        name = text_field(fields, "object", TOOL, line=number)
        logs[name] = logs.get(name, b"") + line.encode() + b"\n"
    return logs


def _count(text: str) -> int | None:
    return int(text) if len(text) < 20 else None


def _program(line: str, number: int) -> VerifiedProgram:
    fields = object_of(line, TOOL, line=number)
    verdict = text_field(fields, "verdict", TOOL, line=number)
    if verdict not in VERDICTS:
        refuse(TOOL, "an unknown verdict", line=number, text=verdict)

    def text(key: str) -> str | None:
        return None if fields.get(key) is None else text_field(fields, key, TOOL, line=number)

    def count(key: str) -> int | None:
        value = fields.get(key)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            refuse(TOOL, f"no count in field `{key}`", line=number, text=repr(value))
        return value

    log = text("log") or ""
    return VerifiedProgram(
        object=text_field(fields, "object", TOOL, line=number),
        section=text("section"),
        name=text("name"),
        loader=text("loader"),
        program_type=text("program_type"),
        code=ProgramCode(count("insns"), text("hash"), count("xlated_bytes"), count("jited_bytes")),
        verdict=verdict,
        cause=text("cause"),
        load_ns=_times(fields.get("load_ns", []), number),
        verify_us=_verify_times(fields, number),
        watched=WatchedLoad(
            kmalloc_peak_bytes=count("kmalloc_peak_bytes"),
            kmalloc_reason=text("kmalloc_reason"),
            peak_bytes=count("peak_bytes"),
            peak_reason=text("peak_reason"),
            cgroup_peak_bytes=count("cgroup_peak_bytes"),
            cgroup_reason=text("cgroup_reason"),
            branches=count("branches"),
            branches_reason=text("branches_reason"),
        ),
        complaint=text("words") or last_words(log) or None,
        stats=parse_stats(log),
        compiler=text("compiler"),
        steps=_steps(fields.get("steps"), number),
    )


def _steps(value: object, number: int) -> StepLog | None:
    """The kernel's length of a log includes the final NUL; this one does not."""
    if value is None:
        return None
    fields = as_object(value, TOOL, line=number)

    def count(key: str) -> int | None:
        return None if fields.get(key) is None else _times([fields[key]], number)[0]

    kept, full, whole = count("bytes"), fields.get("full"), count("true_bytes")
    if kept is None or not isinstance(full, bool):
        refuse(TOOL, "a log of steps without its size", line=number, text=repr(value))
    return StepLog(kept, full, None if whole is None else whole - 1, count("first_bytes"))


def _times(value: object, number: int) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(isinstance(t, int) and not isinstance(t, bool) for t in value):
        refuse(TOOL, "times that are not counts", line=number, text=repr(value))
    return tuple(value)


def _verify_times(fields: dict[str, Any], number: int) -> tuple[int | None, ...]:
    """One value per load; null where the kernel's log has none."""
    loads = len(_times(fields.get("load_ns", []), number))
    values = fields.get("verify_us", [])
    if not isinstance(values, list) or len(values) != loads:
        refuse(TOOL, "not one verifying time per load", line=number, text=repr(values))
    return tuple(None if value is None else _times([value], number)[0] for value in values)


VERISTAT = "veristat"
VERISTAT_VERDICTS = {"success": "accepted", "failure": "failure"}
"""veristat gives no causes: a failure may be the verifier's finding, its limit, or the environment."""

_CSV_COLUMNS: dict[str, tuple[str, int]] = {
    "total_insns": ("processed_insns", 1),
    "total_states": ("total_states", 1),
    "peak_states": ("peak_states", 1),
    "max_states_per_insn": ("max_states_per_insn", 1),
    "max_mark_read_len": ("mark_read", 1),
    "stack_depth": ("stack_sum_bytes", 1),
    "prog_size": ("insns", 1),
    "prog_size_jited": ("jited_bytes", 1),
    "duration": ("verify_ns", 1000),
    "mem_peak": ("cgroup_peak_bytes", 1 << 20),
}
"""A column of veristat, the study's column, and the factor between their units (µs and MiB to ns and bytes)."""

_NAMES = ("file_name", "prog_name", "verdict")


def parse_veristat(text: str) -> list[dict[str, Any]]:
    """Return one row per program: ``object``, ``program``, ``verdict``, and the study's columns, null if missing.

    Raises FormatError for any other file, and for a comparison that veristat wrote.
    """
    header, *lines = lines_of(text, VERISTAT)
    columns = header.split(",")
    missing = [name for name in _NAMES if name not in columns]
    if missing:
        refuse(VERISTAT, f"no column {', '.join(missing)}", line=1, text=header)
    if not lines:
        refuse(VERISTAT, "no program in it")
    return [_row(_fields(line, columns, number), number) for number, line in enumerate(lines, 2)]


def _fields(line: str, columns: list[str], number: int) -> dict[str, str]:
    try:
        (fields,) = csv.reader([line], strict=True)
    except csv.Error as error:
        refuse(VERISTAT, str(error), line=number, text=line)
    if len(fields) != len(columns):
        refuse(VERISTAT, f"{len(fields)} fields for {len(columns)} columns", line=number, text=line)
    return dict(zip(columns, fields, strict=True))


def _row(row: dict[str, str], number: int) -> dict[str, Any]:
    verdict = VERISTAT_VERDICTS.get(row["verdict"])
    if verdict is None:
        refuse(VERISTAT, f"verdict {row['verdict']!r} is neither success nor failure", line=number)
    fields: dict[str, Any] = {"object": row["file_name"], "program": row["prog_name"], "verdict": verdict}
    for theirs, (ours, unit) in _CSV_COLUMNS.items():
        fields[ours] = _number(row.get(theirs), unit, number)
    return fields


def _number(word: str | None, unit: int, line: int) -> int | None:
    if not word or word == "N/A" or word.startswith("-"):
        return None
    return count_of(word, VERISTAT, line=line) * unit
