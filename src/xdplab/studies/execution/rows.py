"""From the journal and the raw files to one row per call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from xdplab.run.facts import facts_of
from xdplab.run.state import Attempt
from xdplab.studies.execution.benchmarks import all_benchmarks
from xdplab.studies.execution.microbench import parse_microbench
from xdplab.studies.execution.points import ExecutionPoint, ExecutionRequest, Trial
from xdplab.studies.execution.study import CALLS, ExecutionFacts
from xdplab.studies.points import StudyPlan
from xdplab.studies.tables import StudyColumn, typed

COLUMNS = (
    StudyColumn("run_id", "string", "the run", "factor"),
    StudyColumn("trial_id", "string", "point and repetition", "factor"),
    StudyColumn("repetition", "Int64", "1 …; a guest that counts is measured once", "factor"),
    StudyColumn("place", "string", "host, or the lab", "factor"),
    StudyColumn("label", "string", "place, kernel and clock as figures name them", "factor"),
    StudyColumn("kernel_release", "string", "uname -r of it", "factor"),
    StudyColumn("clock", "string", "what the place's nanosecond is: time or instructions", "factor"),
    StudyColumn("backend", "string", "interpreter, jit, module or user", "factor"),
    StudyColumn("benchmark", "string", "its name, or that of a user's own pair", "factor"),
    StudyColumn("title", "string", "what it does", "factor"),
    StudyColumn("own", "boolean", "a user's own pair: that its halves do the same work is unproved", "factor"),
    StudyColumn("trap", "string", "why it compares with nothing; null for all others", "factor"),
    StudyColumn("links", "Int64", "length of a chain; null for other benchmarks", "factor"),
    StudyColumn("cold", "boolean", "loaded anew and caches evicted before each call", "factor"),
    StudyColumn("pause_us", "Int64", "asleep before each call; 0: the calls follow each other", "factor"),
    StudyColumn("evicted_bytes", "Int64", "how much was walked through before each cold call", "factor"),
    StudyColumn("jited_bytes", "Int64", "size as machine code; 0: interpreted; null: no BPF", "count"),
    StudyColumn("xlated_bytes", "Int64", "size after the verifier's rewriting; null: no BPF", "count"),
    StudyColumn("work", "string", "what the algorithm makes one call do; null of a user's own pair", "factor"),
    StudyColumn(
        "work_steps", "Int64", "how many of these the loaded code made in the emulator; null: not proved so", "count"
    ),
    StudyColumn(
        *("work_instructions", "Int64"),
        *("its instructions between its clocks there, without those of what it calls; null: not proved so", "count"),
    ),
    StudyColumn("executions", "Int64", "of the work between the two looks at the clock", "factor"),
    StudyColumn("call", "Int64", "index of the execution, from 0", "factor"),
    StudyColumn(
        "elapsed_ns", "Int64", "between the two looks at the clock; null where instructions are counted", "time"
    ),
    StudyColumn("instructions", "Int64", "the same where the place's nanosecond is an instruction; else null", "count"),
    StudyColumn(
        "result", "string", "what the work gave, an unsigned number of 64 bits; null of a user's own pair", "count"
    ),
)


def table_of(plan: StudyPlan[ExecutionRequest, ExecutionPoint]) -> pd.DataFrame:
    """Return one row per call of each trial's last attempt, with `COLUMNS`."""
    run_id = plan.directory.run_id
    measured = (attempt for attempt in plan.attempts() if attempt[1].status == "measured")
    return typed(({"run_id": run_id} | row for attempt in measured for row in _rows(plan.request, *attempt)), COLUMNS)


def _rows(request: ExecutionRequest, trial: Trial, attempt: Attempt, raw: Path) -> Iterator[dict[str, Any]]:
    base = _factors(request, trial, attempt)
    timed = base["clock"] == "time"
    for call in parse_microbench((raw / CALLS).read_bytes()).calls:
        yield base | {
            "call": call.index,
            "elapsed_ns": call.elapsed_ns if timed else None,
            "instructions": None if timed else call.elapsed_ns,
            "result": None if trial.point.own else str(call.result),
        }


_WORK = ("work_steps", "work_instructions")


def _factors(request: ExecutionRequest, trial: Trial, attempt: Attempt) -> dict[str, Any]:
    point, facts = trial.point, facts_of(ExecutionFacts, attempt)
    benchmark = None if point.own else all_benchmarks(request.accesses, executions=request.executions)[point.benchmark]
    copied = ("label", "kernel_release", "clock", "jited_bytes", "xlated_bytes", "evicted_bytes", *_WORK)
    return {
        "trial_id": trial.trial_id,
        "repetition": trial.repetition,
        "place": point.place,
        "backend": point.backend,
        "benchmark": point.benchmark,
        "title": benchmark.title if benchmark else "a user's own pair",
        "own": point.own,
        "trap": benchmark.trap if benchmark else None,
        "links": benchmark.input if benchmark and benchmark.kernel == "chain" else None,
        "executions": benchmark.executions if benchmark else 1,
        "work": str(benchmark.task) if benchmark else None,
        "cold": point.cold,
        "pause_us": request.pause_us if point.pause_us is None else point.pause_us,
        **{name: getattr(facts, name) for name in copied},
    }
