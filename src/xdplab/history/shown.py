"""The table for a person: a block for each metric and point, and what all rows share once above them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pandas as pd

from xdplab.analysis.intervals import Spread
from xdplab.analysis.sentences import WIDEST, estimate
from xdplab.analysis.values import records, three_digits
from xdplab.history.changes import LEAST_RUNS
from xdplab.history.machines import MACHINE

_AROUND = ("kernel", *MACHINE, "commit", "place")
_HASH = 8
"""Characters of a program's hash and of a commit that a person reads."""


def everywhere(rows: pd.DataFrame) -> Iterator[str]:
    """Yield a line with what is the same in all rows."""
    shared = {name: rows[name].iloc[0] for name in _AROUND if len(rows) and _is_shared(rows[name])}
    if shared:
        yield "In all rows: " + ", ".join(f"{name} {value}" for name, value in shared.items()) + "."


def series(rows: pd.DataFrame, changed: Collection[tuple[str, str]]) -> Iterator[tuple[str, list[dict[str, Any]], str]]:
    """Yield the title, the rows and the `meaning` of each metric and point, in their order."""
    varying = [name for name in (*_AROUND, "window") if rows[name].notna().any() and not _is_shared(rows[name])]
    cells = records(rows)
    for (metric, point), group in rows.reset_index(drop=True).groupby(["metric", "point"], sort=False):
        yield f"{metric}: {point}", [_row(cells[place], varying) for place in group.index], meaning(group, changed)


def meaning(rows: pd.DataFrame, changed: Collection[tuple[str, str]]) -> str:
    """Say of the rows of a metric and point that nothing has changed, where equal counts or enough runs of one machine
    tell it; what is in ``changed`` has a line of its own."""
    if len(rows) < 2:
        return ""
    runs = rows[rows["value"].notna()]
    if len(runs) < 2 or len(runs[["place", *MACHINE]].drop_duplicates()) > 1:
        return ""
    if (runs["metric"].iloc[0], runs["point"].iloc[0]) in changed:
        return ""
    if runs["exact"].notna().all():
        return f"The same in all {len(runs)} runs."
    if len(runs) < 2 * LEAST_RUNS or not runs["value"].gt(0).all():
        return ""
    spread = Spread.of(runs["value"].astype(float), "geometric")
    half = max(spread.high / spread.mean - 1, 1 - spread.low / spread.mean)
    return f"No step in {len(runs)} runs; their mean is known to ±{half:.1%}."


def _is_shared(column: pd.Series[Any]) -> bool:
    return bool(column.notna().all() and column.nunique() == 1)


def _row(row: Any, varying: list[str]) -> dict[str, Any]:
    cells = {
        "begun": str(row["begun"])[:16].replace("T", " "),
        "value": None if pd.isna(row["value"]) else _number(row["value"], row["exact"]),
        "interval": None if pd.isna(row["low"]) or pd.notna(row["exact"]) else _interval(row),
        "n": row["n"],
        "program": None if pd.isna(row["program_hash"]) else str(row["program_hash"])[:_HASH],
    }
    around = {name: None if pd.isna(row[name]) else row[name] for name in varying}
    return cells | around | {"run": row["run"]}


def _interval(row: Any) -> str:
    if not estimate(row["value"], row["low"], row["high"]).is_known:
        return f"wider than {WIDEST:g}-fold"
    return f"[{three_digits(row['low'])}, {three_digits(row['high'])}]"


def _number(value: float, exact: object) -> str:
    return three_digits(value) if pd.isna(exact) else f"{value:,.10g}"  # type: ignore[call-overload]
