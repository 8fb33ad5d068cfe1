"""From the journal and the raw files to rows: a packet's whole cost and its parts, each source line, each function."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from xdplab.absent import Absent
from xdplab.errors import PlanError, UnsupportedError
from xdplab.run.columns import Column
from xdplab.run.frames import typed
from xdplab.run.rundir import RunDirectory, read_json
from xdplab.studies import kinds
from xdplab.studies.cost.counts import CacheLines, Cost, cost_in
from xdplab.studies.cost.measurement import (
    ALLOCATOR,
    APPLICATION,
    CALLED,
    PATH,
    PROGRAM,
    WHOLE,
    Instruction,
    Place,
    Tally,
)
from xdplab.studies.cost.points import CostPoint, CostRequest
from xdplab.studies.places import PlaceFacts
from xdplab.studies.points import Row, StudyPlan

TIMES = "times.json"
"""The file of a run of study cost that holds them."""

_KEY = ("program", "mode", "frame_bytes", "flows")


class Times(NamedTuple):
    """A packet's time in ns in valid trials: the median, the least and the most."""

    ns_per_packet: float
    low_ns: float
    high_ns: float
    timed_trials: int


def times_file(run: Path) -> bytes:
    """Return what `times_in` reads: the times of the valid trials of a run of traffic, by program, mode and frames.

    Several points that differ in something else, such as maps or VLAN tags, have none.
    Raises PlanError if the run measured in several labs: their times have no mean.
    """
    rows = kinds.open_run(run).rows()
    if not {"lab", "ns_per_packet"} <= set(rows):
        raise PlanError(f"{run} is no run of traffic, so it has no times to stand beside counts")
    if rows["lab"].nunique() > 1:
        raise PlanError(f"{run}: it measured in several labs", remedy="name a run of one lab")
    valid = rows.loc[rows["verdict"].eq("valid") & rows["queues"].eq(1) & rows["ns_per_packet"].notna()]
    return (json.dumps(list(_times_of(valid)), indent=1) + "\n").encode()


def _times_of(trials: pd.DataFrame) -> Iterator[dict[str, Any]]:
    names = trials["workload"] + ":" + trials["accesses"].astype("string")
    named = trials.assign(program=names.where(trials["accesses"].notna(), trials["program_name"]))
    for _, group in named.groupby(list(_KEY), dropna=False):
        if group["point_id"].nunique() > 1:
            continue  # such as programs of one name: nothing tells which is meant
        ns = group["ns_per_packet"].astype(float)
        times = Times(float(ns.median()), float(ns.min()), float(ns.max()), len(ns))
        (key,) = json.loads(group[list(_KEY)].head(1).to_json(orient="records"))
        yield key | times._asdict()


def times_in(directory: RunDirectory) -> dict[tuple[Any, ...], Times]:
    """Return the times that a run of study cost holds, by `key_of` its points; none if no run was named."""
    path = directory.path / TIMES
    if not path.exists():
        return {}
    return {
        tuple(row[name] for name in _KEY): Times(*(row[name] for name in Times._fields))
        for row in read_json(path, list)
    }


def key_of(point: CostPoint) -> tuple[Any, ...]:
    """Return what a time belongs to."""
    return tuple(getattr(point, name) for name in _KEY)


LINE, INSTRUCTION, FUNCTION = "line", "instruction", "function"
CLASS = "class"
PLACES = (LINE, INSTRUCTION)
MADE_UP = "(made up by the compiler)"
PARTS = (WHOLE, PROGRAM, CALLED, APPLICATION, PATH, ALLOCATOR, *PLACES, CLASS, FUNCTION)
_OF_WHOLE = "of the whole and its parts only"
_WITH_A_RANGE = "of the whole, its parts and functions only"
_TIMED = "of the whole only, if a run of traffic was named in which one point has this program, mode and frames"

COLUMNS: tuple[Column[Any], ...] = (
    Column("run_id", "str", "factor", "the run"),
    Column("trial_id", "str", "factor", "point and repetition"),
    Column("program", "str", "factor", "the program's file, or workload and N"),
    Column("kernel", "str", "factor", "the guest's kernel as it was asked for"),
    Column("kernel_release", "str", "factor", "uname -r of it"),
    Column("mode", "str", "factor", "native, generic, af_xdp or test_run"),
    Column("way", "str", "factor", "how frames came: live, packets of a socket, or a test run"),
    Column("frame_bytes", "int", "factor", "size of the frames with FCS; null: of a pcap, or several"),
    Column("flows", "int", "factor", "flows that take turns"),
    Column("compiler", "str", "factor", "clang that made the program; null for an object"),
    Column("part", "str", "factor", ", ".join(PARTS)),
    Column("name", "str", "factor", "of a line its text, of an instruction its disassembly, of a function its name"),
    Column("file", "str", "factor", "of a line"),
    Column("line", "int", "factor", "of a line; 0: code that the compiler made up"),
    Column("function", "str", "factor", "of an instruction of which no source line is known"),
    Column("offset_bytes", "int", "factor", "of an instruction, from its function's start"),
    Column("instructions", "float", "count", "per packet; of lines, instructions and functions without what they call"),
    Column("exact", "str", "factor", "the same as a fraction; null where it holds to a range only"),
    Column("called_instructions", "float", "count", "per packet, of the kernel's functions that a line calls",
           null="of lines and instructions only"),
    Column("called_exact", "str", "factor", "of lines and instructions: the same as a fraction"),
    Column("low_instructions", "float", "count", "the least that it may take in another boot", null=_WITH_A_RANGE),
    Column("high_instructions", "float", "count", "the most that it may take in another boot", null=_WITH_A_RANGE),
    Column("share", "float", "share", "of the packets whose program takes so many instructions, with what it calls",
           null="of classes only"),
    Column("came_back", "float", "share", "of the frames, to the sender; of a test run, those with XDP_TX",
           null="of the whole only"),
    Column("passed_on", "float", "share", "of the frames, to the kernel's IP layer; of a test run, those with XDP_PASS",
           null="of the whole only"),
    Column("loads", "float", "count", "reads of memory per packet", null=_OF_WHOLE),
    Column("stores", "float", "count", "writes of memory per packet", null=_OF_WHOLE),
    Column("branches", "float", "count", "conditional branches per packet", null=_OF_WHOLE),
    Column("data_cache_lines", "int", "count", "different lines of 64 B that a packet that comes alone reads or writes",
           null=_OF_WHOLE),
    Column("code_cache_lines", "int", "count", "different lines of 64 B of the code that runs for it", null=_OF_WHOLE),
    Column("ns_per_packet", "float", "time", "median of the run of traffic that was named", null=_TIMED),
    Column("low_ns", "float", "time", "the least of its valid trials", null=_TIMED),
    Column("high_ns", "float", "time", "the most of its valid trials", null=_TIMED),
    Column("timed_trials", "int", "count", "their number", null=_TIMED),
)  # fmt: skip


def table_of(plan: StudyPlan[CostRequest, CostPoint]) -> pd.DataFrame:
    """Return `COLUMNS`: a row for the whole of each packet, its parts, lines and functions; programs in their order.

    Raises UnsupportedError where packets were counted, and none has a cost.
    """
    times = times_in(plan.directory)
    refused: list[UnsupportedError] = []

    def read(point: CostPoint, _facts: PlaceFacts, raw: Path) -> Iterator[Row]:
        try:
            whole, *others = rows_of(cost_in(raw))
        except UnsupportedError as error:  # by today's rules; the answer of a run with others names it
            refused.append(error)
            return
        timed = times.get(key_of(point))
        yield whole if timed is None else whole | timed._asdict()
        yield from others

    order = {trial.trial_id: plan.points.index(trial.point) for trial in plan.trials}
    rows = sorted(plan.rows(PlaceFacts, read), key=lambda row: order[row["trial_id"]])
    if refused and not rows:
        raise refused[0]
    return typed(rows, COLUMNS)


def rows_of(cost: Cost) -> Iterator[Row]:
    """Yield the rows of one packet's cost, that of the whole first."""
    whole = Tally(*(sum((getattr(one, n) for one in cost.tallies.values()), Fraction()) for n in Tally.__annotations__))
    for part, tally in {WHOLE: whole, **cost.tallies}.items():
        half = sum(cost.halves.values()) if part == WHOLE else cost.halves.get(part, Fraction())
        yield {
            "part": part,
            "exact": None if half else str(tally.instructions),
            "came_back": float(cost.came_back) if part == WHOLE else None,
            "passed_on": float(cost.passed_on) if part == WHOLE else None,
            "low_instructions": float(tally.instructions - half),
            "high_instructions": float(tally.instructions + half),
            **{name: float(getattr(tally, name)) for name in Tally.__annotations__},
            **_cache_lines(cost.cache_lines[part]),
        }
    for place, (inside, called) in sorted(cost.lines.items()):
        row = {"exact": str(inside), "instructions": float(inside)}
        yield _place(place) | row | {"called_exact": str(called), "called_instructions": float(called)}
    for took, share in cost.shares.items():
        yield {"part": CLASS, "exact": str(took), "instructions": float(took), "share": float(share)}
    if not cost.shares:
        why = Absent("the program's runs do not add up to its count: it was interrupted")
        yield {"part": CLASS, "share": why, "instructions": why}
    for name, count in sorted(cost.functions.items(), key=lambda item: (-item[1], item[0])):
        half = cost.ranged.get(name, Fraction())
        yield {
            "part": FUNCTION,
            "name": name,
            "instructions": float(count),
            "exact": None if half else str(count),
            "low_instructions": float(count - half),
            "high_instructions": float(count + half),
        }


def _cache_lines(lines: CacheLines | Absent) -> dict[str, int | Absent]:
    data, code = (lines, lines) if isinstance(lines, Absent) else lines
    return {"data_cache_lines": data, "code_cache_lines": code}


def _place(place: Place) -> dict[str, Any]:
    if isinstance(place, Instruction):
        return {"part": INSTRUCTION, "name": place.text, "function": place.function, "offset_bytes": place.offset}
    return {"part": LINE, "name": place.text, "file": place.file, "line": place.number}


def place_name(row: Mapping[Any, Any] | pd.Series[Any], *, in_files: bool = False) -> str:
    """Return how a reader calls the line or instruction of a row; ``in_files``: a line with its file, of several."""
    if row["part"] == INSTRUCTION:
        return f"{row['function']}+{row['offset_bytes']:#x}"
    return f"line {Path(row['file']).name}:{row['line']}" if in_files else f"line {row['line']}"
