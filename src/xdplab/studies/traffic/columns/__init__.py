"""The columns of trials.parquet and samples.parquet, by what they say; each module holds those of one source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from xdplab.absent import Absent
from xdplab.analysis.derived import ACROSS_TRIALS
from xdplab.analysis.verdicts import RULES_VERSION
from xdplab.plan import Point
from xdplab.run.columns import Column, by_name, version_of
from xdplab.run.frames import NULL_REASONS, frame
from xdplab.run.rundir import RunDirectory
from xdplab.studies.traffic.columns.dut import DUT
from xdplab.studies.traffic.columns.program import PROGRAM
from xdplab.studies.traffic.columns.rates import RATE
from xdplab.studies.traffic.columns.sent import LATENCY, SENT
from xdplab.studies.traffic.columns.setup import POINT, SETUP
from xdplab.studies.traffic.columns.source import TrialSource
from xdplab.studies.traffic.pdr import stored


def _verdict(t: TrialSource) -> str:
    return t.verdict.verdict if t.attempt.status == "measured" else t.attempt.status


def _reason(t: TrialSource) -> str | None:
    if t.attempt.status != "measured":
        return t.attempt.reason
    valid = t.verdict.verdict == "valid"
    remarks = (t.verdict.reason, pdr_remark(t.run, t.point, t.facts.lab) if valid else None)
    return "; ".join(remark for remark in remarks if remark)


def pdr_remark(run: RunDirectory, point: Point, lab: str | None) -> str | None:
    """Return what is special about the PDR that the load of ``point`` is a share of; None if nothing is."""
    if point.load_share is None:
        return None
    searches = stored(run)
    labs, limits = (searches.get(name, {}).get(point.pdr_key, []) for name in ("labs", "limited"))
    parts = []
    if labs and lab is not None and labs != [lab]:
        parts.append(f"the PDR was searched in lab {', '.join(labs)}")
    if limits:
        parts.append(f"the PDR is at least what was found: {', '.join(limits)} limited the search, not the DUT")
    return "; ".join(parts) or None


def _limited_by(t: TrialSource) -> str:
    if t.verdict.limited_by is None:
        raise Absent("only a valid trial has a limit")
    return t.verdict.limited_by


VERDICT: tuple[Column[TrialSource], ...] = (
    Column("verdict", "str", "verdict", "valid, invalid, unsupported or failed", _verdict),
    Column("reason", "str", "verdict", "reason of the verdict", _reason),
    Column("rules_version", "str", "verdict", "version of the rules that made the verdict", lambda t: RULES_VERSION),
)  # fmt: skip
LIMIT: tuple[Column[TrialSource], ...] = (
    Column("limited_by", "str", "verdict", "dut, shared_cpu, generator, link or none", _limited_by),
)  # fmt: skip
"""Of measured trials alone."""

TRIALS: Mapping[str, tuple[Column[Any], ...]] = {
    "The trial and its point": POINT,
    "What was set up": SETUP,
    "Frames sent and received": SENT,
    "What the DUT counted": DUT,
    "Rates": RATE,
    "Costs, from several trials": ACROSS_TRIALS,
    "The program": PROGRAM,
    "Latency and lateness": LATENCY,
    "Verdict": (*VERDICT, *LIMIT, NULL_REASONS),
}
"""All columns of trials.parquet, by heading."""
COLUMNS = tuple(column for columns in TRIALS.values() for column in columns)
NAMES = frozenset(column.name for column in COLUMNS)

PREPARED: Mapping[str, Column[TrialSource]] = by_name(POINT, SETUP)
"""The columns of a trial that was not measured, without its verdict."""
MEASURED: Mapping[str, Column[TrialSource]] = by_name(POINT, SETUP, SENT, DUT, RATE, PROGRAM, LATENCY)
"""The columns of a measured trial, without those of its verdict, which is made of these, and of other trials."""

SAMPLES: tuple[Column[Any], ...] = (
    Column("trial_id", "str", "id", "the trial"),
    Column("attempt", "int", "id", "its attempt"),
    Column("burst", "str", "id", "which burst: rate, bpf_stats, perf or decided (verdict counting)"),
    Column("host", "str", "id", "tg or dut"),
    Column("cpu", "int", "id", "CPU; null for the whole host"),
    Column("queue", "int", "id", "queue; null for all of them"),
    Column("t_s", "float", "time", "end of the interval, from the burst's start"),
    Column("tx_packets", "int", "count", "frames sent in the interval"),
    Column("rx_packets", "int", "count", "frames received in the interval"),
)
"""The columns of samples.parquet."""


def trials_frame(rows: Sequence[Mapping[str, object]]) -> pd.DataFrame:
    """Return rows of trials as a data frame with every column of trials.parquet."""
    return frame(rows, COLUMNS)


def columns_version() -> str:
    """Return a hash of the columns: tables with a different hash are derived again."""
    return version_of(COLUMNS, SAMPLES)
