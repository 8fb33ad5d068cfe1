"""Columns of what the trial is worth: its verdict, with the reason, and what limited it."""

from __future__ import annotations

from xdplab.absent import Absent
from xdplab.analysis.verdicts import RULES_VERSION
from xdplab.run.columns import Column
from xdplab.studies.traffic import pdr
from xdplab.studies.traffic.columns.source import TrialSource


def _verdict(t: TrialSource) -> str:
    return t.verdict.verdict if t.attempt.status == "measured" else t.attempt.status


def _reason(t: TrialSource) -> str | None:
    if t.attempt.status != "measured":
        return t.attempt.reason
    valid = t.verdict.verdict == "valid"
    remarks = (t.verdict.reason, pdr.remark(t.run, t.point, t.facts.lab) if valid else None)
    return "; ".join(remark for remark in remarks if remark)


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
