"""From the journal and the raw files to one row per program, and one row per search for the largest N."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from xdplab.formats.reading import lines_of
from xdplab.formats.verifier_log import VerifiedProgram, parse_bpfverify
from xdplab.labs.base import OWN_KERNEL
from xdplab.run.facts import facts_of
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import Attempt, last_attempts
from xdplab.studies.tables import StudyColumn, typed
from xdplab.studies.verifier.points import LINUX, VerifierTrial
from xdplab.studies.verifier.study import PREVAIL_RAW, PROBES, TIMED, WATCHED, SizeTried, VerifierFacts, answer

PROGRAM_ID = "program_id"


COLUMNS = (
    StudyColumn("run_id", "string", "the run", "factor"),
    StudyColumn("trial_id", "string", "point and repetition", "factor"),
    StudyColumn("repetition", "Int64", "1 …; a guest is measured once, since it counts", "factor"),
    StudyColumn("verifier", "string", "linux, or the name of a PREVAIL", "factor"),
    StudyColumn("kernel", "string", "host, a guest's version, or null for PREVAIL", "factor"),
    StudyColumn("kernel_release", "string", "uname -r of it", "factor"),
    StudyColumn("label", "string", "verifier and kernel as figures name them", "factor"),
    StudyColumn("clock", "string", "what the machine's nanosecond is: time or instructions", "factor"),
    StudyColumn(
        "given", "string", "flags, tables (types, variables, targets), modules that the user gave; null: none", "factor"
    ),
    StudyColumn("corpus", "string", "directory, archive, family, or system", "factor"),
    StudyColumn("object", "string", "path within the corpus, or what was generated", "factor"),
    StudyColumn("sha256", "string", "of the object's bytes", "factor"),
    StudyColumn("section", "string", "ELF section of the program", "factor"),
    StudyColumn("program", "string", "its function", "factor"),
    StudyColumn(
        "program_id", "string", "object, section and function as the kernel has them: joins verifiers", "factor"
    ),
    StudyColumn("program_type", "string", "as libbpf names it", "factor"),
    StudyColumn("loader", "string", "libbpf or raw (objects that libbpf 1.0 does not take)", "factor"),
    StudyColumn("family", "string", "of a generated program", "factor"),
    StudyColumn("n", "Int64", "its size: iterations or branches", "factor"),
    StudyColumn("form", "string", "rolled or unrolled", "factor"),
    StudyColumn("exit", "string", "how a loop ends: < or !=", "factor"),
    StudyColumn("maps", "string", "btf or legacy", "factor"),
    StudyColumn("compiler", "string", "which clang", "factor"),
    StudyColumn("mcpu", "string", "instruction set", "factor"),
    StudyColumn("compiled_by", "string", "the clang that the object's debug information names", "factor"),
    StudyColumn("insns", "Int64", "instructions handed to the verifier", "count"),
    StudyColumn("insns_hash", "string", "of those instructions, map descriptors apart", "factor"),
    StudyColumn("verdict", "string", "accepted, rejected, complexity, environment, no_type, loader", "verdict"),
    StudyColumn("cause", "string", "why not accepted", "verdict"),
    StudyColumn("complaint", "string", "the last lines of the verifier's or loader's own output", "verdict"),
    StudyColumn("loads", "Int64", "loads (or PREVAIL runs) behind the times", "count"),
    StudyColumn("load_ns", "Float64", "median over the loads of BPF_PROG_LOAD; of PREVAIL's process, wall", "time"),
    StudyColumn("load_instructions", "Float64", "the same where the clock counts instructions", "count"),
    StudyColumn(
        "verify_ns",
        "Float64",
        "median of the kernel's word on the same loads (µs steps); PREVAIL (old): its analysis",
        "time",
    ),
    StudyColumn("verify_instructions", "Float64", "the same where the clock counts instructions", "count"),
    StudyColumn(
        "rest_ns",
        "Float64",
        "median of load less verifying: JIT, allocation, system call (null from 7.2 on)",
        "time",
    ),
    StudyColumn("user_ns", "Float64", "PREVAIL: user time of its process", "time"),
    StudyColumn("processed_insns", "Int64", "instructions the verifier looked at", "count"),
    StudyColumn("total_states", "Int64", "states it made", "count"),
    StudyColumn("peak_states", "Int64", "states it held at once", "count"),
    StudyColumn("max_states_per_insn", "Int64", "of one instruction", "count"),
    StudyColumn("mark_read", "Int64", "longest walk to mark a register as read, as the log says", "count"),
    StudyColumn(
        "stack_depths", "string", "bytes of stack of the program and each subprogram, such as 24+8+8", "memory"
    ),
    StudyColumn("stack_sum_bytes", "Int64", "their sum, as veristat's stack_depth", "memory"),
    StudyColumn("stack_chain_bytes", "Int64", "most along a chain of calls, each rounded up by the kernel", "memory"),
    StudyColumn("stack_reason", "string", "why stack_depths is null", "verdict"),
    StudyColumn("stack_chain_reason", "string", "why stack_chain_bytes is null", "verdict"),
    StudyColumn(
        "branches", "Int64", "calls of push_stack(); null if the kernel does not have it as a function", "count"
    ),
    StudyColumn(
        "memory_bytes", "Float64", "most held at once: by kmalloc less kfree; PREVAIL: by its process", "memory"
    ),
    StudyColumn("peak_bytes", "Float64", "page tracepoints: slabs that are filled later are missing", "memory"),
    StudyColumn("cgroup_peak_bytes", "Float64", "memory control group", "memory"),
    StudyColumn("memory_reason", "string", "why memory_bytes is null", "verdict"),
    StudyColumn("peak_reason", "string", "why peak_bytes is null", "verdict"),
    StudyColumn("cgroup_reason", "string", "why cgroup_peak_bytes is null", "verdict"),
    StudyColumn("branches_reason", "string", "why branches is null", "verdict"),
    StudyColumn("xlated_bytes", "Float64", "size after the verifier's rewriting", "memory"),
    StudyColumn("jited_bytes", "Float64", "size as machine code; null where interpreted", "memory"),
)
JIT_INSIDE_SINCE = (7, 2)
"""From this kernel on bpf_check() runs the JIT, so load less verifying is not the JIT's share."""


def table_of(run: RunDirectory, trials: Iterable[VerifierTrial]) -> pd.DataFrame:
    """Return one row per program of each trial's last attempt, with `COLUMNS`."""
    by_id = {t.trial_id: t for t in trials}
    rows = [
        row | {"run_id": run.run_id}
        for attempt in last_attempts(run).values()
        for row in _rows(run, by_id[attempt.trial_id], attempt)
    ]
    return joined(typed(rows, COLUMNS))


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
    return named.assign(insns=named["insns"].fillna(named[PROGRAM_ID].map(sizes).astype("Int64")))


def largest_of(run: RunDirectory, trials: Iterable[VerifierTrial]) -> pd.DataFrame:
    """Return one row per search: its factors, ``largest_n`` (null if no limit was found) and how many were tried."""
    by_id = {t.trial_id: t for t in trials}
    rows = []
    for attempt in last_attempts(run).values():
        trial = by_id[attempt.trial_id]
        path = run.raw_dir(attempt.trial_id, attempt.attempt) / PROBES
        if trial.point.task == "largest":
            probes = [SizeTried(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
            row = asdict(trial.point) | {"largest_n": answer(probes), "tried": len(probes), "reason": attempt.reason}
            rows.append(row)
    return pd.DataFrame(rows)


def _rows(run: RunDirectory, trial: VerifierTrial, attempt: Attempt) -> Iterator[dict[str, Any]]:
    raw = run.raw_dir(attempt.trial_id, attempt.attempt)
    if attempt.status != "measured" or trial.point.task != "verify":
        return
    base = _factors(trial, attempt)
    if trial.point.verifier != LINUX:
        for line in lines_of((raw / PREVAIL_RAW).read_text(), "PREVAIL") if (raw / PREVAIL_RAW).stat().st_size else ():
            yield base | _prevail(json.loads(line))
        return
    watched = {(p.section, p.name): p for p in _programs(raw / WATCHED)}
    for program in _programs(raw / TIMED):
        timed = _program(program, base["clock"], str(base["kernel_release"]))
        yield base | timed | _watched(watched.get((program.section, program.name)))


def _programs(path: Path) -> tuple[VerifiedProgram, ...]:
    return parse_bpfverify(path.read_bytes())


def _factors(trial: VerifierTrial, attempt: Attempt) -> dict[str, Any]:
    point, facts = trial.point, facts_of(VerifierFacts, attempt)
    identity = {"trial_id": trial.trial_id, "repetition": trial.repetition, "clock": facts.clock}
    release = facts.kernel_release
    own_kernel = f" ({point.kernel})" if point.kernel.startswith(OWN_KERNEL) else ""
    given = f" ({point.given})" if point.given else ""
    label = f"Linux {release}{own_kernel}{given}" if point.verifier == LINUX else point.verifier
    fields = asdict(point) | {"kernel": point.kernel or None, "kernel_release": release, "label": label}
    return identity | {k: v for k, v in fields.items() if k != "task"}


def _median(values: Iterable[int]) -> float | None:
    values = list(values)
    return float(statistics.median(values)) if values else None


def _program(program: VerifiedProgram, clock: str, release: str) -> dict[str, Any]:
    stats, load = program.stats, _median(program.load_ns)
    verifying = [None if us is None else us * 1000 for us in program.verify_us]
    measured = [ns for ns in verifying if ns is not None]
    verify = _median(measured) if len(measured) == len(program.load_ns) else None  # of the loads of load_ns, or null
    timed = clock == "time"
    together = _version(release) >= JIT_INSIDE_SINCE
    whole = zip(program.load_ns, measured, strict=True) if verify is not None and not together else ()
    rest = _median(ns - verified for ns, verified in whole)
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
        "load_ns": load if timed else None,
        "verify_ns": verify if timed else None,
        "rest_ns": rest if timed else None,
        "load_instructions": None if timed else load,
        "verify_instructions": None if timed else verify,
        "processed_insns": stats.processed_insns,
        "total_states": stats.total_states,
        "peak_states": stats.peak_states,
        "max_states_per_insn": stats.max_states_per_insn,
        "mark_read": stats.mark_read,
        **asdict(program.code),
        **stack_columns(program),
    }


def stack_columns(program: VerifiedProgram) -> dict[str, Any]:
    """Return a program's columns of its stack, in bytes, as the verifier's log tells it; with the reason where not."""
    depths, chain = program.stats.stack_depths, program.stats.stack_chain
    if depths is None:
        why = "the verifier's log says none" if program.load_ns else "it came to no verifier"
        return {"stack_reason": why, "stack_chain_reason": why}
    columns: dict[str, Any] = {"stack_depths": "+".join(map(str, depths)), "stack_sum_bytes": sum(depths)}
    if chain is None:
        return columns | {"stack_chain_reason": "this kernel's log does not say it (that of 7.2 does)"}
    if chain == 0 and program.verdict != "accepted":
        return columns | {"stack_chain_reason": "the verifier stopped before it followed the calls"}
    return columns | {"stack_chain_bytes": chain}


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())


def _watched(program: VerifiedProgram | None) -> dict[str, Any]:
    if program is None:
        reasons = ("memory_reason", "peak_reason", "cgroup_reason")
        return dict.fromkeys(reasons, "the watched load did not come to it")
    columns = asdict(program.watched)
    memory = {"memory_bytes": columns.pop("kmalloc_peak_bytes"), "memory_reason": columns.pop("kmalloc_reason")}
    return columns | memory


def _prevail(run: Mapping[str, Any]) -> dict[str, Any]:
    analysis = run["analysis_s"]
    return {
        **dict.fromkeys(("stack_reason", "stack_chain_reason"), "PREVAIL tells no stack depth"),
        "section": run["section"],
        "program": run["name"] or None,
        "verdict": run["verdict"],
        "cause": run["cause"],
        "loads": 1,
        "load_ns": run["wall_s"] * 1e9,
        "verify_ns": None if analysis is None else analysis * 1e9,
        "user_ns": run["user_s"] * 1e9,
        "memory_bytes": run["peak_bytes"],
    }
