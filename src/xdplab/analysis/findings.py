"""Findings over several trials. A finding never makes a trial invalid: it says where to look again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

Severity = Literal["info", "warning"]


@dataclass(frozen=True)
class Finding:
    """``what`` was found, by which ``rule``, at which points (point_id), from which numbers and raw files."""

    rule: str
    severity: Severity
    what: str
    points: tuple[str, ...] = ()
    evidence: dict[str, float] = field(default_factory=dict)
    files: tuple[str, ...] = ()


Rule = Callable[[pd.DataFrame], Iterator[Finding]]


def points_of(rows: pd.DataFrame) -> tuple[str, ...]:
    """Return the rows' point_ids, once each, in order."""
    return tuple(map(str, rows["point_id"].dropna().unique()))


def files_of(rows: pd.DataFrame) -> tuple[str, ...]:
    """Return the folders of the rows' raw output in the run directory."""
    named = rows[rows["trial_id"].notna()]
    attempts = named["attempt"].fillna(1).astype(int)
    return tuple(f"raw/{trial}/{attempt}" for trial, attempt in zip(named["trial_id"], attempts, strict=True))


def to_frame(findings: Iterable[Finding]) -> pd.DataFrame:
    """Return one row per finding; points and files comma-separated, evidence as JSON."""
    rows = [
        dict(
            vars(f), points=",".join(f.points), files=",".join(f.files), evidence=json.dumps(f.evidence, sort_keys=True)
        )
        for f in findings
    ]
    return pd.DataFrame(rows, columns=["rule", "severity", "what", "points", "evidence", "files"])


def to_markdown(findings: Iterable[Finding]) -> str:
    """Return the findings as a Markdown list, each with its numbers and their sources."""
    lines = ["# Findings", ""]
    for finding in findings:
        lines.append(f"- **{finding.rule}** ({finding.severity}): {finding.what}")
        numbers = ", ".join(f"{name} = {value:.4g}" for name, value in finding.evidence.items())
        lines += [f"  - numbers: {numbers}"] if numbers else []
        lines += [f"  - points: {_some(finding.points)}"] if finding.points else []
        lines += [f"  - files: {_some(finding.files)}"] if finding.files else []
    return "\n".join(lines if len(lines) > 2 else [*lines, "No finding."]) + "\n"


def _some(names: tuple[str, ...], most: int = 6) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
