"""From the journal and the raw files to one row per step and repetition.

From repetitions to parts: medians of every step by source; for each load, parts that add up to its whole.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from xdplab.absent import Absent
from xdplab.analysis.intervals import Spread
from xdplab.run.columns import Column
from xdplab.run.frames import typed
from xdplab.run.rundir import read_json
from xdplab.run.state import Attempt, facts_of
from xdplab.studies.loading.passes import (
    COMPILED,
    LOGGED,
    PLAIN,
    SECTIONS,
    STACKS,
    TRACE,
    TRACED,
    Counts,
    LoadingFacts,
    TracedCall,
    parse_function_graph,
    parse_loadbench,
    shares,
)
from xdplab.studies.loading.points import BPF, MODULE, LoadingPoint, LoadingRequest
from xdplab.studies.points import Row, StudyPlan, name_places

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


def table_of(plan: StudyPlan[LoadingRequest, LoadingPoint]) -> pd.DataFrame:
    """Return one row per step and repetition of every trial's last attempt, with `COLUMNS`."""
    run_id = plan.directory.run_id
    rows = (row for trial, last, raw in plan.attempts() for row in _trial_rows(trial.point, last, raw))
    return typed(name_places(row | {"run_id": run_id} for row in rows), COLUMNS)


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
            times = {"load": cycle["load_ns"], "verify": _verifying(cycle), "jit": cycle["jit_ns"]}
            yield from ((step, FENTRY, rank, value) for step, value in times.items() if value is not None)


def _sampled(plain: Iterable[Counts], raw: Path) -> Iterator[Row]:
    """A profiler sees all loads together: one share of each part, times the median load, with the share's interval."""
    whole = statistics.median(ns for cycle in plain if (ns := cycle["load_ns"]) is not None)
    for step, share in shares((raw / STACKS).read_bytes()).items():
        low, high = share.interval
        step_of = {"step": step, "source": SAMPLES, "repetition": 1}
        yield step_of | {"ns": share.value * whole, "low": low * whole, "high": high * whole}


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


SUBJECT = ["place", "label", "clock", "kind", "program", "form", "accesses"]
BPF_PARTS = ("open", "prepare", "verify", "jit", "rest of load", "attach")
MODULE_PARTS = ("read", "copy", "layout", "finish", "init")
PREFERRED = (GRAPH, FENTRY, LOG, SAMPLES)
"""The preferred source of a part: a trace, then a log in whole µs, then a share of samples."""

WHOLES = ("load", "insert")
_BPF_WHOLE, _MODULE_WHOLE = ("open", "prepare", "load", "attach"), ("read", "insert")
_UNTRACED = _BPF_WHOLE + _MODULE_WHOLE
_STEPS = (
    "open",
    "prepare",
    "load",
    "verify",
    "jit",
    "attach",
    "read",
    "insert",
    "load_module",
    "do_init_module",
    "init",
)


def values(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that hold a duration, with it as ``value``: ns, or instructions where the clock counts those."""
    valued = table.assign(value=table["ns"].fillna(table["instructions"]))
    return valued.loc[valued["value"].notna()]


def scaled(table: pd.DataFrame) -> pd.DataFrame:
    """Return `values`, with times of traced passes scaled to the untraced one.

    If the clock is time, two passes differ by more than the cost of tracing: a part is then its share of its own
    repetition's system call, times the median of the untraced calls. Counts stay unchanged.
    """
    valued = values(table)
    wholes = valued.loc[valued["step"].isin(WHOLES)]
    untraced = wholes["source"].eq(SYSTEM_CALL)
    whole = wholes.loc[~untraced, ["trial_id", "source", "repetition", "value"]].rename(columns={"value": "own"})
    plain = wholes.loc[untraced].groupby("trial_id")["value"].median().rename("plain").reset_index()
    joined = valued.merge(whole, on=["trial_id", "source", "repetition"], how="left").merge(
        plain, on="trial_id", how="left"
    )
    watched = joined["clock"].eq("time") & joined["own"].notna()
    shares = joined["value"] / joined["own"] * joined["plain"]
    return joined.assign(value=joined["value"].where(~watched, shares)).drop(columns=["own", "plain"])


def medians(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per subject, step and source: ``median``, its 95 % interval ``low`` to ``high``, ``n``.

    ``n`` is the number of repetitions. Fewer than six repetitions have no such interval: it is null.
    """
    return _middle(scaled(table), [*SUBJECT, "task", "kernel", "step", "source"])


def _middle(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    groups = rows.groupby(by, dropna=False, sort=False)["value"]
    keys = groups.size().index
    spreads = [vars(Spread.of(values, "ranks")) for _, values in groups]  # no row at all where no load was measured
    middle = pd.DataFrame(spreads, columns=["median", "n", "low", "high"], index=keys)
    return middle.astype(float).reset_index()


def wholes(table: pd.DataFrame) -> pd.DataFrame:
    """Return `medians` of whole loads, one row per loaded program: each repetition's steps summed, untraced.

    The median of such sums differs from the sum of the steps' medians, which is ``whole`` of `parts`, where the
    repetitions spread.
    """
    valued = values(table)
    rows = valued.loc[
        valued["task"].eq("load") & valued["step"].isin(_UNTRACED) & valued["source"].isin((CLOCK, SYSTEM_CALL))
    ]
    steps = rows.groupby([*SUBJECT, "trial_id", "repetition", "step"], dropna=False, observed=True)["value"].mean()
    each = steps.unstack("step").reindex(columns=list(_UNTRACED)).dropna(how="all")
    bpf, module = (each[list(steps)].sum(axis=1, skipna=False) for steps in (_BPF_WHOLE, _MODULE_WHOLE))
    summed = bpf.fillna(module).dropna().rename("value").reset_index()
    return _middle(summed, SUBJECT)


def parts(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per loaded program: medians of its parts, which add up to ``whole``; null if not measured.

    ``load``, ``insert`` and ``whole`` are the untraced pass's; "rest of load" (``copy`` for a module) is what the
    watched parts leave of the system call.
    """
    chosen, first = _preferred_steps(table)
    wide = _wide(first).reindex(columns=list(_STEPS))
    _divide_by_samples(
        wide, _wide(chosen.loc[chosen["source"].eq(SAMPLES)]).reindex(wide.index, columns=["verify", "jit"])
    )
    return _completed(wide, _compiled(table)).reset_index().sort_values(SUBJECT, na_position="first", ignore_index=True)


def part_intervals(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per subject and part with the 95 % interval of its median, ``low`` to ``high``.

    Only parts that were timed themselves have one: what remains of a whole was not timed, and a profiler has no
    repetitions.
    """
    _, first = _preferred_steps(table)
    timed = first.loc[first["step"].isin((*BPF_PARTS, *MODULE_PARTS)) & first["low"].notna()]
    return timed[[*SUBJECT, "step", "low", "high"]]


def _preferred_steps(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the `medians` of loads, and of these the one per step that is preferred."""
    middle = medians(table)
    loads = middle.loc[middle["task"].eq("load")]
    chosen = loads.loc[~(loads["step"].isin(WHOLES) & loads["source"].ne(SYSTEM_CALL))]
    ranked = chosen.assign(rank=chosen["source"].map({name: at for at, name in enumerate(PREFERRED)}).fillna(-1))
    return chosen, ranked.sort_values("rank", kind="stable").drop_duplicates([*SUBJECT, "step"])


def _wide(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.set_index([*SUBJECT, "step"])["median"].unstack("step")


def _divide_by_samples(wide: pd.DataFrame, sampled: pd.DataFrame) -> None:
    """Split the part of a load outside the log's time into JIT and rest, in the ratio of the profiler's samples."""
    by_samples = sampled["jit"].notna()
    remainder = sampled["jit"] / (wide["load"] - sampled["verify"])
    wide.loc[by_samples, "jit"] = ((wide["load"] - wide["verify"]) * remainder)[by_samples]


def _compiled(table: pd.DataFrame) -> pd.Index:
    """Return the subjects that the kernel made machine code of."""
    images = table.loc[table["step"].eq("jited") & table["bytes"].gt(0)]
    return images.groupby(SUBJECT, dropna=False).size().index


def _completed(wide: pd.DataFrame, compiled: pd.Index) -> pd.DataFrame:
    # Without a JIT there is no such part; if it ran untimed, the rest is unknown.
    jit = wide["jit"].where(wide["jit"].notna() | wide.index.isin(compiled), 0.0)
    wide["rest of load"] = wide["load"] - wide["verify"] - jit
    wide["copy"] = wide["insert"] - wide["load_module"]
    wide["layout"] = wide["load_module"] - wide["do_init_module"]
    wide["finish"] = wide["do_init_module"] - wide["init"]
    loaded, inserted = (wide[list(steps)].sum(axis=1, skipna=False) for steps in (_BPF_WHOLE, _MODULE_WHOLE))
    wide["whole"] = loaded.fillna(inserted)
    return wide
