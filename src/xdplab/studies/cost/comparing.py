"""Two runs of study cost: which totals differ, and by how much. Counts are exact: there is no interval, no spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from xdplab.analysis import MARGIN
from xdplab.errors import PlanError, ResultsError
from xdplab.run import frames
from xdplab.studies.comparing import EXIT_CODES, Unlike, compared_json, names_of
from xdplab.studies.cost.gate import CostDifference, cases_of, taken
from xdplab.studies.cost.measurement import PATH
from xdplab.studies.kind import Run

METRIC = "instructions"


@dataclass(frozen=True)
class ComparedCosts:
    """The packets of the second run against those of the first; ``alone``: those that one of them lacks, in words."""

    names: tuple[str, str]
    differences: list[CostDifference]
    alone: list[str]
    metric: str = METRIC

    @property
    def unlike(self) -> tuple[Unlike, ...]:
        """What was not the same besides the programs."""
        lines = dict.fromkeys(line for one in self.differences for line in one.made_otherwise)
        return tuple(Unlike(line.partition(":")[0], None, None, line) for line in lines)

    @property
    def verdict(self) -> str:
        """``undecided`` where compiler, kernel or what became of the frames differ, or a total holds to a range."""
        if self.unlike:
            return "undecided"
        if any(one.changed for one in self.differences):
            return "differs"
        return "undecided" if any(PATH in one.inexact for one in self.differences) else "equivalent"

    @property
    def exit_code(self) -> int:
        """0 equivalent, 1 differs, 2 undecided."""
        return EXIT_CODES[self.verdict]

    @property
    def points(self) -> pd.DataFrame:
        """One row per packet and total, in instructions; no difference where one of them holds to a range."""
        rows = [row for one in self.differences for row in _rows(one)]
        return pd.DataFrame(rows).astype(dict.fromkeys(("old", "new", "difference"), "Float64"))

    @property
    def readable(self) -> pd.DataFrame:
        """The points without what does not differ from packet to packet."""
        points = self.points
        return points[[name for name in points if name not in _TRAFFIC or points[name].nunique() > 1]]

    def to_json(self) -> dict[str, Any]:
        """Return everything, for a script."""
        parts = {
            "environment": [vars(one) for one in self.unlike],
            "beyond": self._changes,
            "open": [*self._inexact, *self.alone],
        }
        return compared_json(self.names, (METRIC,), self.verdict, frames.records(self.points), **parts)

    def lines(self) -> list[str]:
        """Return the lines before the table of points, and the answer."""
        first = [f"instructions per packet, exact: {self.names[1]} against {self.names[0]}"]
        first += [f"not comparable: {one.text}" for one in self.unlike]
        return [
            *first,
            *(self._changes or ["no total differs"]),
            *self._inexact,
            *self.alone,
            f"Answer: {self.verdict}.",
        ]

    @property
    def _changes(self) -> list[str]:
        return [f"{one.new.title}: {_changed_totals(one)}" for one in self.differences if one.changed]

    @property
    def _inexact(self) -> list[str]:
        texts = [f"{one.new.title}: {', '.join(one.inexact)}" for one in self.differences if one.inexact]
        return [f"not judged, because it holds to a range only: {text}" for text in texts]


def _changed_totals(one: CostDifference) -> str:
    totals = [total for total in one.to_json()["totals"] if total["difference"]]
    return ", ".join(f"{t['name']} {t['old']:.7g} → {t['new']:.7g} ({t['difference']:+.4g})" for t in totals)


_TRAFFIC = ("kernel", "mode", "frame_bytes", "flows")


def _rows(one: CostDifference) -> list[dict[str, Any]]:
    facts = one.to_json()
    counts = {total.pop("name"): total for total in facts["totals"]}
    missing = {"old": None, "new": None, "difference": None}
    return [
        {"program": one.new.name, **facts["traffic"], "part": part, **counts.get(part, missing)} for part in one.parts
    ]


def compare(first: Run[Any], second: Run[Any], metric: str, equal: Sequence[Run[Any]], margin: float) -> ComparedCosts:
    """Compare two runs. Raises PlanError for what exact counts do not have, ResultsError for other packets."""
    if metric != METRIC:
        raise PlanError(f"--metric {metric}: costs are compared by {METRIC}", remedy="leave it out")
    if equal or margin != MARGIN:
        raise PlanError(
            "counts are exact: they have no margin, and equal runs no spread",
            remedy="`xdplab cost … --against RUN --tolerance N` lets growth through",
        )
    names = names_of(first.directory, second.directory)
    old, new = (cases_of(run.rows()) for run in (first, second))
    left = [*old]
    pairs = [(taken(left, old, case), case) for case in new]
    differences = [CostDifference(before, case) for before, case in pairs if before is not None]
    if not differences:
        raise ResultsError(f"{names[0]} and {names[1]} have no packet in common", remedy="`xdplab show RUN` has them")
    used = [one.old for one in differences]
    alone = [(names[0], case) for case in old if case not in used]
    alone += [(names[1], case) for before, case in pairs if before is None]
    return ComparedCosts(names, differences, [f"only in {name}: {case.title}" for name, case in alone])
