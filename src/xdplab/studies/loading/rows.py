"""From the journal and the raw files to one row per step and repetition."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from xdplab.absent import Absent
from xdplab.run.columns import Column
from xdplab.run.facts import facts_of
from xdplab.run.frames import typed
from xdplab.run.rundir import read_json
from xdplab.run.state import Attempt
from xdplab.studies.loading.loadbench import Counts, TracedCall, parse_function_graph, parse_loadbench
from xdplab.studies.loading.passes import COMPILED, LOGGED, PLAIN, SECTIONS, STACKS, TRACE, TRACED, LoadingFacts, shares
from xdplab.studies.loading.points import BPF, MODULE, LoadingPoint, LoadingRequest
from xdplab.studies.points import StudyPlan

SYSTEM_CALL, CLOCK, LOG, KERNEL, OBJECT = "system call", "clock", "verifier's log", "kernel", "object file"
CPU_TIME = "CPU time"
GRAPH, FENTRY, SAMPLES = "function_graph", "fentry", "perf samples"


COLUMNS: tuple[Column[Any], ...] = (
    Column("run_id", "str", "id", "the run"),
    Column("trial_id", "str", "id", "point and trial"),
    Column("task", "str", "factor", "load, compile, start (a process that does nothing) or process (a whole command)"),
    Column("place", "str", "factor", "where: host, vm:6.1:count …"),
    Column("label", "str", "factor", "the same as figures name it, with what its clock is"),
    Column("clock", "str", "factor", "what is measured there: time or instructions"),
    Column("kernel_release", "str", "factor", "uname -r there"),
    Column("kind", "str", "factor",
           "bpf, module, loader (the process alone); insmod, busybox, libbpf, bpftool (a whole process)"),
    Column("program", "str", "factor", "clock (one read of it), or the workload"),
    Column("form", "str", "factor", "bounded (a loop of blocks) or unrolled"),
    Column("accesses", "int", "factor", "N; null for clock"),
    Column("kernel", "str", "factor", "a compiled module: the kernel of its headers"),
    Column("step", "str", "factor", "the step that the value is of (see Steps)"),
    Column("source", "str", "state", "its source: the system call's own time, a clock, the verifier's log, a tracer …",
           null="nothing was measured"),
    Column("repetition", "int", "factor", "1 … within its pass; null for sizes"),
    Column("ns", "float", "time", "time; null if the clock counts instructions",
           null="the row has a value of another unit"),
    Column("instructions", "float", "count", "instructions executed; null if the clock is time",
           null="the row has a value of another unit"),
    Column("low", "float", "time", "share of samples: lower end of its 95 % interval, in the unit of the value",
           null="no share of samples"),
    Column("high", "float", "time", "share of samples: upper end of its 95 % interval", null="no share of samples"),
    Column("bytes", "float", "size", "a size", null="the row has a value of another unit"),
)  # fmt: skip

VALUES = ("source", "ns", "instructions", "bytes")

_BPF_STEPS = {
    "open_ns": ("open", CLOCK),
    "prepare_ns": ("prepare", CLOCK),
    "load_ns": ("load", SYSTEM_CALL),
    "attach_ns": ("attach", SYSTEM_CALL),
    "detach_ns": ("detach", SYSTEM_CALL),
    "close_ns": ("close", CLOCK),
}
_MODULE_STEPS = {
    "read_ns": ("read", CLOCK),
    "init_ns": ("insert", SYSTEM_CALL),
    "delete_ns": ("delete", SYSTEM_CALL),
}
STEPS = _BPF_STEPS | _MODULE_STEPS
"""Field of loadbench → step, and who says so."""

_START = {"time": ("start_ns", CLOCK), "instructions": ("own_ns", CPU_TIME)}
"""What a process costs: until it has ended; where instructions are counted, without waiting for its libraries."""

_PROCESS = {
    "time": {"run_ns": ("process", CLOCK), "then_ns": ("undo", CLOCK)},
    "instructions": {"run_own_ns": ("process", CPU_TIME), "then_own_ns": ("undo", CPU_TIME)},
}
"""The same for a process that inserts, and for one that removes."""

MODULE_CALLS = {"load_module": "load_module", "do_init_module": "do_init_module", "do_one_initcall": "init"}
_BYTES = ("xlated", "jited", "program", "map", "core", "init")

Row = dict[str, Any]


def table_of(plan: StudyPlan[LoadingRequest, LoadingPoint]) -> pd.DataFrame:
    """Return one row per step and repetition of every trial's last attempt, with `COLUMNS`."""
    run_id = plan.directory.run_id
    rows = (row for trial, last, raw in plan.attempts() for row in _trial_rows(trial.point, last, raw))
    return typed((row | {"run_id": run_id} for row in rows), COLUMNS)


def _trial_rows(point: LoadingPoint, attempt: Attempt, raw: Path) -> Iterator[Row]:
    names = ("label", "clock", "kernel_release")
    facts = facts_of(LoadingFacts, attempt)
    base = asdict(point) | {name: getattr(facts, name) for name in names} | {"trial_id": attempt.trial_id}
    if attempt.status != "measured":
        yield base | {"step": _step_of(point)} | dict.fromkeys(VALUES, Absent(attempt.reason))
        return
    unit = "instructions" if base["clock"] == "instructions" else "ns"
    for step, source, repetition, value in _values(point, facts, raw):
        yield base | {"step": step, "source": source, "repetition": repetition, unit: value}
    if facts.split_by == SAMPLES:
        yield from (base | row for row in _sampled(_cycles(raw / PLAIN), raw))
    for step, source, size in _sizes(raw):
        yield base | {"step": step, "source": source, "bytes": size}
    if reason := facts.split_reason:
        yield base | {"step": "jit" if point.kind == BPF else "init"} | dict.fromkeys(VALUES, Absent(reason))


def _step_of(point: LoadingPoint) -> str:
    """Return the step whose value an unmeasured point lacks."""
    if point.task == "process":
        return "process"
    return "load" if point.kind != MODULE else "insert"


Value = tuple[str, str, int, float]


def _values(point: LoadingPoint, facts: LoadingFacts, raw: Path) -> Iterator[Value]:
    if point.task == "compile":
        times = read_json(raw / COMPILED, lambda kept: [float(ns) for ns in kept["compile_ns"]])
        yield from (("compile", CLOCK, rank, ns) for rank, ns in enumerate(times, start=1))
        return
    plain = _cycles(raw / PLAIN)
    steps = _PROCESS[str(facts.clock)] if point.task == "process" else STEPS
    if point.task == "start":
        field, source = _START[str(facts.clock)]
        steps = {field: ("start", source)}
    for rank, cycle in enumerate(plain, start=1):
        yield from ((*steps[key], rank, ns) for key, ns in cycle.items() if key in steps and ns is not None)
    if (raw / LOGGED).exists():
        yield from _logged(_cycles(raw / LOGGED))
    yield from _parts(facts.split_by, raw)


def _cycles(path: Path) -> tuple[Counts, ...]:
    return parse_loadbench(path.read_bytes()).cycles


def _logged(cycles: Iterable[Counts]) -> Iterator[Value]:
    for rank, cycle in enumerate(cycles, start=1):
        logged, whole = cycle["logged_us"], cycle["load_ns"]
        if logged is not None and whole is not None:
            yield ("verify", LOG, rank, logged * 1000)
            yield ("load", LOG, rank, whole)


def _parts(way: str | None, raw: Path) -> Iterator[Value]:
    if way == GRAPH:
        yield from _graph_parts(raw)
    elif way == FENTRY:
        for rank, cycle in enumerate(_cycles(raw / TRACED), start=1):
            yield from _timed_parts(
                FENTRY, rank, {"load": cycle["load_ns"], "verify": _verifying(cycle), "jit": cycle["jit_ns"]}
            )


def _sampled(plain: Iterable[Counts], raw: Path) -> Iterator[Row]:
    """A profiler sees all loads together: one share of each part, times the median load, with the share's interval."""
    whole = statistics.median(ns for cycle in plain if (ns := cycle["load_ns"]) is not None)
    for step, share in shares((raw / STACKS).read_bytes()).items():
        low, high = share.interval
        step_of = {"step": step, "source": SAMPLES, "repetition": 1}
        yield step_of | {"ns": share.value * whole, "low": low * whole, "high": high * whole}


def _timed_parts(source: str, rank: int, times: Mapping[str, float | None]) -> Iterator[Value]:
    """Give a value for each step that was reported."""
    yield from ((step, source, rank, value) for step, value in times.items() if value is not None)


def _verifying(cycle: Counts) -> int | None:
    """Return nanoseconds of bpf_check() without the JIT that runs inside it."""
    check, inside = cycle["check_ns"], cycle["jit_inside_ns"]
    return None if check is None or inside is None else check - inside


def _graph_parts(raw: Path) -> Iterator[Value]:
    """Each repetition's calls stand behind its own mark; libbpf's feature probes load programs before it."""
    calls: defaultdict[str, list[TracedCall]] = defaultdict(list)
    for call in parse_function_graph((raw / TRACE).read_bytes()):
        calls[call.mark].append(call)
    for rank, cycle in enumerate(_cycles(raw / TRACED), start=1):
        calls_of = calls[f"cycle {rank - 1}"]
        for key in ("load_ns", "init_ns"):
            if (whole := cycle.get(key)) is not None:
                yield (STEPS[key][0], GRAPH, rank, whole)
        yield from ((step, GRAPH, rank, ns) for step, ns in _graph_steps(calls_of).items())


def _graph_steps(calls: list[TracedCall]) -> dict[str, int]:
    """Return nanoseconds by step. From 7.2 on, and for subprograms before, the JIT runs inside the verifier."""
    times: dict[str, int] = {}
    for call in calls:
        if call.function in MODULE_CALLS:
            step = MODULE_CALLS[call.function]
            times[step] = times.get(step, 0) + call.duration_ns
        elif call.function == "bpf_int_jit_compile":
            times["jit"] = times.get("jit", 0) + call.duration_ns
            times["verify"] = times.get("verify", 0) - (call.duration_ns if "bpf_check" in call.inside else 0)
        elif call.function == "bpf_check":
            times["verify"] = times.get("verify", 0) + call.duration_ns
    return times


def _sizes(raw: Path) -> Iterator[tuple[str, str, int]]:
    if (raw / PLAIN).exists():
        sizes = parse_loadbench((raw / PLAIN).read_bytes()).sizes
        for name in _BYTES:
            if (value := sizes.get(f"{name}_bytes")) is not None:
                yield (name, KERNEL, value)
    if (raw / SECTIONS).exists():
        yield from ((name, OBJECT, size) for name, size in read_json(raw / SECTIONS, dict).items())
