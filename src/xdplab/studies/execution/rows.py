"""From the journal and the raw files to one row per call."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from xdplab.run.columns import Column
from xdplab.run.frames import typed
from xdplab.studies.execution.benchmarks import all_benchmarks, parse_microbench
from xdplab.studies.execution.points import CALLS, ExecutionFacts, ExecutionPoint, ExecutionRequest
from xdplab.studies.points import StudyPlan

COLUMNS: tuple[Column[Any], ...] = (
    Column("run_id", "str", "factor", "the run"),
    Column("trial_id", "str", "factor", "point and repetition"),
    Column("repetition", "int", "factor", "1 …; a guest that counts is measured once"),
    Column("place", "str", "factor", "host, or the lab"),
    Column("label", "str", "factor", "place, kernel and clock as figures name them"),
    Column("kernel_release", "str", "factor", "uname -r of it"),
    Column("clock", "str", "factor", "what the place's nanosecond is: time or instructions"),
    Column("backend", "str", "factor", "interpreter, jit, module or user"),
    Column("benchmark", "str", "factor", "its name, or that of a user's own pair"),
    Column("title", "str", "factor", "what it does"),
    Column("own", "bool", "factor", "a user's own pair: that its halves do the same work is unproved"),
    Column("trap", "str", "factor", "why it compares with nothing; null for all others"),
    Column("links", "int", "factor", "length of a chain; null for other benchmarks"),
    Column("cold", "bool", "factor", "loaded anew and caches evicted before each call"),
    Column("pause_us", "int", "factor", "asleep before each call; 0: the calls follow each other"),
    Column("evicted_bytes", "int", "factor", "how much was walked through before each cold call"),
    Column("jited_bytes", "int", "count", "size as machine code; 0: interpreted; null: no BPF", null="no BPF"),
    Column("xlated_bytes", "int", "count", "size after the verifier's rewriting; null: no BPF", null="no BPF"),
    Column("work", "str", "factor", "what the algorithm makes one call do; null of a user's own pair"),
    Column("work_steps", "int", "count", "how many of these the wrapper made as the proof's guest executed it",
           null="a user's own pair"),
    Column("work_instructions", "int", "count",
           "its instructions between its clocks there, without those of what it calls; of BPF, the JIT's for 6.1",
           null="a user's own pair"),
    Column("executions", "int", "factor", "of the work between the two looks at the clock"),
    Column("call", "int", "factor", "index of the execution, from 0"),
    Column("elapsed_ns", "int", "time", "between the two looks at the clock; null where instructions are counted",
           null="the clock counts instructions"),
    Column("instructions", "int", "count", "the same where the place's nanosecond is an instruction; else null",
           null="the clock is time"),
    Column("result", "str", "count", "what the work gave, an unsigned number of 64 bits; null of a user's own pair",
           null="a user's own pair"),
)  # fmt: skip


def table_of(plan: StudyPlan[ExecutionRequest, ExecutionPoint]) -> pd.DataFrame:
    """Return one row per call of each trial's last attempt, with `COLUMNS`."""
    return typed(plan.rows(ExecutionFacts, partial(_rows, plan.request)), COLUMNS)


def _rows(
    request: ExecutionRequest, point: ExecutionPoint, facts: ExecutionFacts, raw: Path
) -> Iterator[dict[str, Any]]:
    benchmark = None if point.own else all_benchmarks(request.accesses, executions=request.executions)[point.benchmark]
    base = {
        "title": benchmark.title if benchmark else "a user's own pair",
        "trap": benchmark.trap if benchmark else None,
        "links": benchmark.input if benchmark and benchmark.kernel == "chain" else None,
        "executions": benchmark.executions if benchmark else 1,
        "work": str(benchmark.task) if benchmark else None,
    }
    timed = facts.clock == "time"
    for call in parse_microbench((raw / CALLS).read_bytes()).calls:
        yield base | {
            "call": call.index,
            "elapsed_ns": call.elapsed_ns if timed else None,
            "instructions": None if timed else call.elapsed_ns,
            "result": None if point.own else str(call.result),
        }
