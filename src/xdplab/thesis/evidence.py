"""What the rules of an imported run look at, and what they share in saying it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pandas as pd

from xdplab.analysis.findings import Finding, Severity, files_of, points_of


@dataclass(frozen=True, eq=False)
class Evidence:
    """``trials``: judged, last attempts; ``better``: as the better counter tells them; ``attempts``: all of them."""

    trials: pd.DataFrame
    better: pd.DataFrame
    attempts: pd.DataFrame


ImportRule = Callable[[Evidence], Iterator[Finding]]


def by_repetition(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for (mode, repetition), group in rows.groupby(["mode", "repetition"], sort=True):
        yield f"{mode}, repetition {int(str(repetition))}", group


def points_text(rows: pd.DataFrame, most: int = 4) -> str:
    """Return some of the points as text: ``8 queues, 64 B, N = 12800``."""
    columns = zip(rows["queues"], rows["frame_bytes"], rows["accesses"], strict=True)
    points = list(dict.fromkeys(f"{q} queue{'' if q == 1 else 's'}, {size} B, N = {n}" for q, size, n in columns))
    return "; ".join(points[:most]) + (f" and {len(points) - most} more" if len(points) > most else "")


def finding_of(
    rule: str, severity: Severity, what: str, rows: pd.DataFrame, evidence: dict[str, float] | None = None
) -> Finding:
    numbers = {"trials": float(len(rows)), **(evidence or {})}
    return Finding(rule, severity, what, points_of(rows), numbers, files_of(rows))
