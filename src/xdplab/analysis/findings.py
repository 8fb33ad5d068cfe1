"""Findings over several trials. A finding never makes a trial invalid: it says where to look again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
