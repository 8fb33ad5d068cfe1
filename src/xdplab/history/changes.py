"""Where an exact count changes from one run to the next: it needs no statistics, since any difference is a change."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pandas as pd

from xdplab.analysis.values import is_null, records

_AROUND = {"program_hash": "program", "kernel": "kernel", "commit": "xdplab"}


@dataclass(frozen=True)
class ExactChange:
    """A count of a point that differs from that of the run before. ``otherwise``: what else differs between the two."""

    metric: str
    point: str
    old: float
    new: float
    difference: float
    before: str
    run: str
    otherwise: tuple[str, ...]

    @property
    def text(self) -> str:
        around = "; ".join(self.otherwise) or "program, kernel and xdplab are the same"
        change = f"{self.old:,.10g} → {self.new:,.10g} ({self.difference:+,.10g})"
        return f"Changed: {self.metric} of {self.point}: {change} from {self.before} to {self.run}; {around}"


def exact_changes(rows: pd.DataFrame) -> list[ExactChange]:
    """Return the changes of exact counts, the largest share first; the runs of a point follow each other by date."""
    counted = rows[rows["exact"].notna()]
    dated = counted.assign(date=pd.to_datetime(counted["begun"], utc=True, format="ISO8601"))
    changes = []
    for _, group in dated.sort_values(["date", "path"], kind="stable").groupby(["metric", "point"], sort=False):
        runs = records(group)
        changes += [_change(old, new) for old, new in pairwise(runs) if old["exact"] != new["exact"]]
    return sorted(changes, key=lambda one: -abs(one.difference) / max(one.old, 1))


def _change(old: Any, new: Any) -> ExactChange:
    difference = Fraction(new["exact"]) - Fraction(old["exact"])
    names = tuple(
        f"{word} {_short(old[name])} → {_short(new[name])}" for name, word in _AROUND.items() if _differ(old, new, name)
    )
    values = float(old["value"]), float(new["value"]), float(difference)
    return ExactChange(new["metric"], new["point"], *values, old["run"], new["run"], names)


def _differ(old: Any, new: Any, name: str) -> bool:
    values = [None if is_null(row[name]) else row[name] for row in (old, new)]
    return values[0] != values[1]


def _short(value: object) -> str:
    return "not known" if is_null(value) else str(value)
