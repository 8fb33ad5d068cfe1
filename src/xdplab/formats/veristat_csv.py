"""The kernel's veristat with ``-o csv``: one row per program, one column per statistic.

Source of names and units: ``stat_defs`` in tools/testing/selftests/bpf/veristat.c. A statistic that veristat could not
obtain is ``N/A``, or negative.
"""

from __future__ import annotations

import csv
from typing import Any

from xdplab.formats.reading import count_of, lines_of, refuse

TOOL = "veristat"
VERDICTS = {"success": "accepted", "failure": "failure"}
"""veristat gives no causes: a failure may be the verifier's finding, its limit, or the environment."""

_COUNTS: dict[str, tuple[str, int]] = {
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
    header, *lines = lines_of(text, TOOL)
    columns = header.split(",")
    missing = [name for name in _NAMES if name not in columns]
    if missing:
        refuse(TOOL, f"no column {', '.join(missing)}", line=1, text=header)
    if not lines:
        refuse(TOOL, "no program in it")
    return [_row(_fields(line, columns, number), number) for number, line in enumerate(lines, 2)]


def _fields(line: str, columns: list[str], number: int) -> dict[str, str]:
    """Return a line's fields by column."""
    try:
        (fields,) = csv.reader([line], strict=True)
    except csv.Error as error:
        refuse(TOOL, str(error), line=number, text=line)
    if len(fields) != len(columns):
        refuse(TOOL, f"{len(fields)} fields for {len(columns)} columns", line=number, text=line)
    return dict(zip(columns, fields, strict=True))


def _row(row: dict[str, str], number: int) -> dict[str, Any]:
    verdict = VERDICTS.get(row["verdict"])
    if verdict is None:
        refuse(TOOL, f"verdict {row['verdict']!r} is neither success nor failure", line=number)
    fields: dict[str, Any] = {"object": row["file_name"], "program": row["prog_name"], "verdict": verdict}
    for theirs, (ours, unit) in _COUNTS.items():
        fields[ours] = _number(row.get(theirs), unit, number)
    return fields


def _number(word: str | None, unit: int, line: int) -> int | None:
    if not word or word == "N/A" or word.startswith("-"):
        return None
    return count_of(word, TOOL, line=line) * unit
