"""Two runs of any kind side by side: differences of environment, warnings, and the comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from typing import Any

import pandas as pd

from xdplab.analysis.decide import Decision
from xdplab.analysis.values import records
from xdplab.errors import PlanError, ResultsError
from xdplab.lazy import lazy
from xdplab.run import frames
from xdplab.run.rundir import RunDirectory
from xdplab.text import many

comparison = lazy("xdplab.analysis.decide.compare")

EXIT_CODES = {"equivalent": 0, "differs": 1, "undecided": 2}
LONGEST = 60
TOLD = ("n_a", "n_b", "ratio", "low", "high", "verdict", "detectable", "needed", "reason")
"""The columns of a comparison's points that a person reads, besides the factors that vary."""


def _varies(column: pd.Series) -> bool:
    return column.name in comparison.POINT and column.nunique() > 1


@dataclass(frozen=True)
class Unlike:
    """A difference of the runs' environments; null means unknown. ``told`` says it in words of its own."""

    what: str
    first: str | None
    second: str | None
    told: str | None = None

    @property
    def text(self) -> str:
        if self.told:
            return self.told
        first, second = (f"{value or ''}\n" for value in (self.first, self.second))
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
        is_long = alike > LONGEST // 2 and min(len(first), len(second)) > LONGEST
        start = 0
        if is_long or "\n" in first[1:alike]:
            part = max(first.rfind(space, 0, alike) for space in " \n") + 1
            start = max(part or alike, alike - LONGEST // 2)
        return f"{self.what}: {_short(self.first, start)} → {_short(self.second, start)}"


@dataclass(frozen=True)
class ComparedRuns:
    """``doubts``: the findings (warnings) and drifts of each run, by its name, which come before any ratio."""

    metric: str
    names: tuple[str, str]
    unlike: tuple[Unlike, ...]
    doubts: Mapping[str, tuple[str, ...]]
    decision: Decision

    def named(self, first: str, second: str) -> ComparedRuns:
        doubts = zip((first, second), self.doubts.values(), strict=True)
        return replace(self, names=(first, second), doubts=dict(doubts))

    @property
    def exit_code(self) -> int:
        """0 equivalent, 1 differs, 2 undecided."""
        return EXIT_CODES[self.decision.verdict]

    @property
    def verdict(self) -> str:
        """``equivalent``, ``differs`` or ``undecided``."""
        return self.decision.verdict

    @property
    def points(self) -> pd.DataFrame:
        """One row per point: factors, n, geometric means, ratio with interval, verdict, detectable difference."""
        return self.decision.points

    @property
    def readable(self) -> pd.DataFrame:
        """The points with what a person reads: the factors that vary, and the result."""
        points = self.decision.points.dropna(axis=1, how="all")
        return points[[name for name in points if name in TOLD or _varies(points[name])]]

    def to_json(self) -> dict[str, Any]:
        """Return everything, for a script."""
        d = self.decision
        environment = [asdict(one) for one in self.unlike]
        doubts = {name: list(doubts) for name, doubts in self.doubts.items()}
        around = {"environment": environment, "doubts": doubts}
        decided = {"margin": d.margin, "spread": d.spread, "joint": d.joint}
        return compared_json(self.names, (self.metric,), d.verdict, frames.records(d.points), **around, **decided)

    def lines(self) -> list[str]:
        """Return the lines before the table of points, and the answer."""
        d = self.decision
        around = [f"  {one.text}" for one in self.unlike] or ["  nothing; all that was recorded is the same"]
        doubted = [f"  {name}: {doubt}" for name, doubts in self.doubts.items() for doubt in doubts] or ["  nothing"]
        counts = d.points["verdict"].value_counts()
        points = ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "none could be compared"
        lines = ["What differs around the runs:", *around, "What to doubt:", *doubted]
        lines += [f"{self.metric}, {self.names[1]} over {self.names[0]}; {d.spread}.", f"  by point: {points}"]
        return [*lines, *_joint_lines(d), f"Answer: {d.verdict} (margin {d.margin:.1%}).{self._causes()}"]

    def _causes(self) -> str:
        """Return what else than the change in question may be the cause of a difference."""
        doubts = sum(map(len, self.doubts.values()))
        counts = ((len(self.unlike), "difference", " around the runs"), (doubts, "doubt", ""))
        causes = [many(count, noun) + where for count, noun, where in counts if count]
        if self.verdict != "differs" or not causes:
            return ""
        return f" Its cause may be among the {' and the '.join(causes)} above; `xdplab race` measures both in turns."


def compared_json(
    names: Sequence[str], metrics: Sequence[str], verdict: str, points: list[dict[str, Any]], **parts: Any
) -> dict[str, Any]:
    """Return what `compare --json` prints of two sides of any kind; ``parts`` that a kind lacks are empty or null."""
    lists: dict[str, Any] = {"environment": [], "doubts": {}, "beyond": [], "open": []}
    nulls = dict.fromkeys(("margin", "spread", "joint"))
    return {
        "runs": list(names),
        "metrics": list(metrics),
        "verdict": verdict,
        **lists,
        **nulls,
        **parts,
        "points": points,
    }


def _joint_lines(d: Decision) -> list[str]:
    rows = [d.joint] if d.joint else list(records(d.points[d.points["verdict"].notna()]))
    if len(rows) != 1:
        return []
    one: Mapping[str, Any] = rows[0]
    left_out = d.joint is not None and one["points"] < d.points["verdict"].notna().sum()
    over = f"over {many(one['points'], 'point')}" if d.joint else "at the one point in common"
    over += " at maximum load" if left_out else ""
    parts = [
        f"  {over}: {one['verdict']}, ratio {one['ratio']:.4f} [{one['low']:.4f}, {one['high']:.4f}]; "
        f"a difference of {one['detectable']:.1%} would have been found with 80 % power"
    ]
    if one["verdict"] == "undecided":
        needed = one["needed"]
        parts.append(
            f"  needed to show that they are the same within {d.margin:.1%}: "
            + (
                "no number of repetitions is enough: runs lie too far apart as wholes, or too few equal runs are known "
                "to exclude that. Put both into one run: `xdplab race`"
                if pd.isna(needed)
                else f"{needed} repetitions per run"
            )
        )
    return parts


def differences(first: Mapping[str, str], second: Mapping[str, str]) -> list[Unlike]:
    """Return the differences of two runs' environments, by name."""
    names = dict.fromkeys([*first, *second])
    return [Unlike(name, first.get(name), second.get(name)) for name in names if first.get(name) != second.get(name)]


def check_runs(first: RunDirectory, second: RunDirectory, equal: Sequence[RunDirectory]) -> None:
    if len(equal) == 1:
        raise ResultsError("one equal run has no spread", remedy="give --equal twice or more, or omit it")
    taken = {first.run_id, second.run_id}
    again = [run.name for run in equal if run.run_id in taken]
    if again:
        raise ResultsError(
            f"{again[0]} is one of the compared runs, and cannot also be an equal run",
            remedy="give other runs to --equal",
        )


def names_of(first: RunDirectory, second: RunDirectory) -> tuple[str, str]:
    if first.name != second.name:
        return first.name, second.name
    return f"{first.name} (first)", f"{second.name} (second)"


def check_metric(table: pd.DataFrame, metric: str, run: RunDirectory) -> None:
    """Raise PlanError if ``table`` has no such column of numbers."""
    numbers = [str(name) for name in table.columns if pd.api.types.is_numeric_dtype(table[name])]
    if metric not in numbers:
        raise PlanError(
            f"--metric {metric}: no column of numbers in {run.name}", remedy=f"there are {', '.join(numbers)}"
        )


def compared_rows(
    runs: Sequence[RunDirectory],
    tables: Sequence[pd.DataFrame],
    metric: str,
    labels: Mapping[str, str],
    margin: float,
    unlike: Sequence[Unlike] = (),
) -> ComparedRuns:
    """Compare the tables of two runs (the first two; the others are equal runs) row by row.

    A trial may have several rows: each is a separate point, identified by its position among the rows of its trial.
    ``labels`` names the points by their ids, ``unlike`` has the differences around the first two.
    """
    first, second, *equal = runs
    check_runs(first, second, equal)
    for run, table in zip(runs, tables, strict=True):
        check_metric(table, metric, run)
    points = [rows_as_points(table, metric, labels) for table in tables]
    decision: Decision = comparison.decide(points[0], points[1], metric, equal=points[2:], margin=margin)
    names = names_of(first, second)
    return ComparedRuns(metric, names, tuple(unlike), dict.fromkeys(names, ()), decision)


def rows_as_points(table: pd.DataFrame, metric: str, labels: Mapping[str, str]) -> pd.DataFrame:
    """Return each row as a valid trial of its own point, without rows that have no value or one at or below 0."""
    if "trial_id" not in table:
        raise ResultsError("this study has no repetitions to compare")
    point = table["trial_id"].astype(str).str.rpartition("-r")
    place = (table.groupby("trial_id").cumcount() + 1).astype(str)
    name = point[0].map(lambda one: labels.get(one, one)).astype("string")
    rows = pd.DataFrame(
        {
            "point_id": (point[0] + "/" + place).astype("string"),
            "program_name": name + " / row " + place.astype("string"),
            "repetition": point[2].astype(int).astype("Int64"),
            "verdict": pd.array(["valid"] * len(table), dtype="string"),
            metric: table[metric].astype("Float64"),
        }
    )
    measured: pd.DataFrame = comparison.as_points(rows[rows[metric].gt(0).fillna(False).astype(bool)])
    return measured.reset_index(drop=True)


def _short(value: str | None, start: int) -> str:
    """Return what stands from ``start`` on, where a long value begins to differ from the other one."""
    if value is None:
        return "not known"
    rest = value[start:].strip() or ("and no more" if start else "empty")
    line = ("…" if start else "") + rest.splitlines()[0]
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
