"""From the journal and the raw files to one row per program, and one row per search for the largest N."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from operator import sub
from pathlib import Path
from typing import Any

import pandas as pd

from xdplab.absent import Absent, or_absent
from xdplab.formats.reading import lines_of
from xdplab.formats.verifier import VerifiedProgram, parse_bpfverify
from xdplab.labs.base import OWN_KERNEL
from xdplab.run.columns import Column
from xdplab.run.frames import typed, with_values
from xdplab.studies.verifier.points import LINUX, VerifierPlan, VerifierPoint
from xdplab.studies.verifier.study import PREVAIL_RAW, PROBES, TIMED, WATCHED, SizeTried, VerifierFacts, answer

PROGRAM_ID = "program_id"


COLUMNS: tuple[Column[Any], ...] = (
    Column("run_id", "str", "factor", "the run"),
    Column("trial_id", "str", "factor", "point and repetition"),
    Column("repetition", "int", "factor", "1 …; a guest is measured once, since it counts"),
    Column("verifier", "str", "factor", "linux, or the name of a PREVAIL"),
    Column("kernel", "str", "factor", "host, a guest's version, or null for PREVAIL"),
    Column("kernel_release", "str", "factor", "uname -r of it"),
    Column("label", "str", "factor", "verifier and kernel as figures name them"),
    Column("clock", "str", "factor", "what the machine's nanosecond is: time or instructions"),
    Column("given", "str", "factor",
           "flags, tables (types, variables, targets), modules that the user gave; null: none"),
    Column("corpus", "str", "factor", "directory, archive, family, or system"),
    Column("object", "str", "factor", "path within the corpus, or what was generated"),
    Column("sha256", "str", "factor", "of the object's bytes"),
    Column("section", "str", "factor", "ELF section of the program"),
    Column("program", "str", "factor", "its function"),
    Column("program_id", "str", "factor", "object, section and function as the kernel has them: joins verifiers"),
    Column("program_type", "str", "factor", "as libbpf names it"),
    Column("loader", "str", "factor", "libbpf or raw (objects that libbpf 1.0 does not take)"),
    Column("family", "str", "factor", "of a generated program"),
    Column("n", "int", "factor", "its size: iterations or branches"),
    Column("form", "str", "factor", "rolled or unrolled"),
    Column("exit", "str", "factor", "how a loop ends: < or !="),
    Column("maps", "str", "factor", "btf or legacy"),
    Column("compiler", "str", "factor", "which clang"),
    Column("mcpu", "str", "factor", "instruction set"),
    Column("compiled_by", "str", "factor", "the clang that the object's debug information names"),
    Column("insns", "int", "count", "instructions handed to the verifier", null="PREVAIL tells none, no kernel has it"),
    Column("insns_hash", "str", "factor", "of those instructions, map descriptors apart"),
    Column("verdict", "str", "verdict", "accepted, rejected, complexity, environment, no_type, loader"),
    Column("cause", "str", "verdict", "why not accepted", null="accepted"),
    Column("complaint", "str", "verdict", "the last lines of the verifier's or loader's own output",
           null="no words of the verifier or loader"),
    Column("loads", "int", "count", "loads (or PREVAIL runs) behind the times"),
    Column("load_ns", "float", "time", "median over the loads of BPF_PROG_LOAD; of PREVAIL's process, wall",
           null="the clock counts instructions"),
    Column("load_instructions", "float", "count", "the same where the clock counts instructions",
           null="the clock is time"),
    Column("verify_ns", "float", "time",
           "median of the kernel's word on the same loads (µs steps); PREVAIL (old): its analysis",
           null="the clock counts instructions"),
    Column("verify_instructions", "float", "count", "the same where the clock counts instructions",
           null="the clock is time"),
    Column("rest_ns", "float", "time",
           "median of load less verifying: JIT, allocation, system call (null from 7.2 on)",
           null="the clock counts instructions"),
    Column("user_ns", "float", "time", "PREVAIL: user time of its process", null="of PREVAIL only"),
    Column("processed_insns", "int", "count", "instructions the verifier looked at",
           null="the verifier's log says none"),
    Column("total_states", "int", "count", "states it made", null="the verifier's log says none"),
    Column("peak_states", "int", "count", "states it held at once", null="the verifier's log says none"),
    Column("max_states_per_insn", "int", "count", "of one instruction", null="the verifier's log says none"),
    Column("mark_read", "int", "count", "longest walk to mark a register as read, as the log says",
           null="the verifier's log says none"),
    Column("stack_depths", "str", "size", "bytes of stack of the program and each subprogram, such as 24+8+8",
           null="PREVAIL tells no stack depth"),
    Column("stack_sum_bytes", "int", "size", "their sum, as veristat's stack_depth",
           null="PREVAIL tells no stack depth"),
    Column("stack_chain_bytes", "int", "size", "most along a chain of calls, each rounded up by the kernel",
           null="PREVAIL tells no stack depth"),
    Column("branches", "int", "count", "calls of push_stack(); null if the kernel does not have it as a function",
           null="PREVAIL does not tell it"),
    Column("memory_bytes", "float", "size", "most held at once: by kmalloc less kfree; PREVAIL: by its process",
           null="nothing measured it"),
    Column("peak_bytes", "float", "size", "page tracepoints: slabs that are filled later are missing",
           null="PREVAIL does not tell it"),
    Column("cgroup_peak_bytes", "float", "size", "memory control group", null="PREVAIL does not tell it"),
    Column("xlated_bytes", "float", "size", "size after the verifier's rewriting", null="the kernel did not load it"),
    Column("jited_bytes", "float", "size", "size as machine code; null where interpreted",
           null="the kernel did not compile it"),
)  # fmt: skip
NOT_LOADED, NO_TIME = "it came to no verifier", "the verifier's log has no time of each load"
JIT_INSIDE_SINCE = (7, 2)
"""From this kernel on bpf_check() runs the JIT, so load less verifying is not the JIT's share."""


def table_of(plan: VerifierPlan) -> pd.DataFrame:
    """Return one row per program of each trial's last attempt, with `COLUMNS`."""
    return joined(typed(plan.rows(VerifierFacts, _rows), COLUMNS))


def joined(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with `PROGRAM_ID`, and with the kernel's instruction count for PREVAIL, which gives none.

    The kernel names a program by its function; PREVAIL names old programs by their section. If the kernel sees one
    program in that section of the object, it is the same one.
    """
    names = ["sha256", "section", "program"]
    linux = table[table["verifier"] == LINUX].drop_duplicates(names)
    alone = linux[~linux.duplicated(["sha256", "section"], keep=False)]
    by_section = alone.set_index(["sha256", "section"])["program"].to_dict()
    by_name = set(linux[names].itertuples(index=False, name=None))
    keys = [
        key if key in by_name else (*key[:2], by_section.get(key[:2], key[2]))
        for key in table[names].itertuples(index=False, name=None)
    ]
    ids = pd.array(["/".join("" if pd.isna(part) else part for part in key) for key in keys], dtype="string")
    named = table.assign(**{PROGRAM_ID: ids})
    sizes = named[named["insns"].notna()].drop_duplicates(PROGRAM_ID).set_index(PROGRAM_ID)["insns"]
    insns = named["insns"].fillna(named[PROGRAM_ID].map(sizes).astype("Int64"))
    return with_values(named, "insns", insns)


def largest_of(plan: VerifierPlan) -> pd.DataFrame:
    """Return one row per search: its factors, ``largest_n`` (null if no limit was found) and how many were tried."""
    rows = []
    for trial, attempt, raw in plan.attempts():
        path = raw / PROBES
        if trial.point.task == "largest":
            probes = [SizeTried(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
            row = asdict(trial.point) | {"largest_n": answer(probes), "tried": len(probes), "reason": attempt.reason}
            rows.append(row)
    return pd.DataFrame(rows)


def _rows(point: VerifierPoint, facts: VerifierFacts, raw: Path) -> Iterator[dict[str, Any]]:
    if point.task != "verify":
        return
    release, clock = str(facts.kernel_release), str(facts.clock)
    base = {"kernel": point.kernel or None, "label": _label(point, release)}
    if point.verifier != LINUX:
        for line in lines_of((raw / PREVAIL_RAW).read_text(), "PREVAIL") if (raw / PREVAIL_RAW).stat().st_size else ():
            yield base | _prevail(json.loads(line))
        return
    watched = {(p.section, p.name): p for p in _programs(raw / WATCHED)}
    for program in _programs(raw / TIMED):
        timed = _program(program, clock, release)
        yield base | timed | _watched(watched.get((program.section, program.name)))


def _programs(path: Path) -> tuple[VerifiedProgram, ...]:
    return parse_bpfverify(path.read_bytes())


def _label(point: VerifierPoint, release: str) -> str:
    own_kernel = f" ({point.kernel})" if point.kernel.startswith(OWN_KERNEL) else ""
    given = f" ({point.given})" if point.given else ""
    return f"Linux {release}{own_kernel}{given}" if point.verifier == LINUX else point.verifier


def _median(values: Iterable[int]) -> float | None:
    values = list(values)
    return float(statistics.median(values)) if values else None


def _program(program: VerifiedProgram, clock: str, release: str) -> dict[str, Any]:
    stats = program.stats
    load = or_absent(_median(program.load_ns), NOT_LOADED)
    verified = [us * 1000 for us in program.verify_us if us is not None]
    verify: float | Absent | None = (
        _median(verified) if len(verified) == len(program.load_ns) else None
    )  # the same loads
    rest: float | Absent = Absent("this kernel's verifier runs the JIT")
    if verify is None:
        verify = rest = Absent(NO_TIME if program.load_ns else NOT_LOADED)
    elif _version(release) < JIT_INSIDE_SINCE:
        rest = or_absent(_median(map(sub, program.load_ns, verified)), NOT_LOADED)
    unit = "ns" if clock == "time" else "instructions"
    return {
        "section": program.section,
        "program": program.name,
        "program_type": program.program_type,
        "loader": program.loader,
        "verdict": program.verdict,
        "compiled_by": program.compiler,
        "cause": program.cause,
        "complaint": program.complaint,
        "loads": len(program.load_ns),
        f"load_{unit}": load,
        f"verify_{unit}": verify,
        **({"rest_ns": rest} if unit == "ns" else {}),
        "processed_insns": stats.processed_insns,
        "total_states": stats.total_states,
        "peak_states": stats.peak_states,
        "max_states_per_insn": stats.max_states_per_insn,
        "mark_read": stats.mark_read,
        **asdict(program.code),
        **stack_columns(program),
    }


def stack_columns(program: VerifiedProgram) -> dict[str, Any]:
    """Return a program's columns of its stack, in bytes, as the verifier's log tells it; Absent where it does not."""
    depths, chain = program.stats.stack_depths, program.stats.stack_chain
    if depths is None:
        why = Absent("the verifier's log says none" if program.load_ns else NOT_LOADED)
        return dict.fromkeys(("stack_depths", "stack_sum_bytes", "stack_chain_bytes"), why)
    most = or_absent(chain, "this kernel's log does not say it (that of 7.2 does)")
    if chain == 0 and program.verdict != "accepted":
        most = Absent("the verifier stopped before it followed the calls")
    return {"stack_depths": "+".join(map(str, depths)), "stack_sum_bytes": sum(depths), "stack_chain_bytes": most}


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())


def _watched(program: VerifiedProgram | None) -> dict[str, Any]:
    if program is None:
        why = Absent("the watched load did not come to it")
        return dict.fromkeys(("memory_bytes", "peak_bytes", "cgroup_peak_bytes", "branches"), why)
    w = program.watched
    return {
        "memory_bytes": or_absent(w.kmalloc_peak_bytes, w.kmalloc_reason),
        "peak_bytes": or_absent(w.peak_bytes, w.peak_reason),
        "cgroup_peak_bytes": or_absent(w.cgroup_peak_bytes, w.cgroup_reason),
        "branches": or_absent(w.branches, w.branches_reason),
    }


def _prevail(run: Mapping[str, Any]) -> dict[str, Any]:
    analysis = run["analysis_s"]
    return {
        "section": run["section"],
        "program": run["name"] or None,
        "verdict": run["verdict"],
        "cause": run["cause"],
        "loads": 1,
        "load_ns": run["wall_s"] * 1e9,
        "verify_ns": Absent("this PREVAIL tells no time of its own") if analysis is None else analysis * 1e9,
        **dict.fromkeys(("rest_ns", "xlated_bytes", "jited_bytes"), Absent("PREVAIL loads nothing")),
        "user_ns": run["user_s"] * 1e9,
        "memory_bytes": run["peak_bytes"],
    }
