"""Two runs side by side: what was not the same around them, what is to be doubted, then what their values say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from xdplab.analysis.compare import MARGIN, Decision, Drift, decide, drift
from xdplab.analysis.values import records
from xdplab.errors import ResultsError
from xdplab.run.rundir import RunDirectory
from xdplab.studies.traffic import audits, runs
from xdplab.studies.traffic.planned import run_plan

EXIT_CODES = {"equivalent": 0, "differs": 1, "undecided": 2}
LONGEST = 60
DRIFT_P, DRIFT_SHARE = 0.01, 0.01
"""A drift is said where chance makes it once in a hundred runs, and it moves the rates by 1 % or more."""


@dataclass(frozen=True)
class Unlike:
    """Something around the runs that was not the same; null is not known."""

    what: str
    first: str | None
    second: str | None

    @property
    def words(self) -> str:
        return f"{self.what}: {_short(self.first)} → {_short(self.second)}"


@dataclass(frozen=True)
class Comparison:
    """``doubts``: the findings (warnings) and drifts of each run, by its name, which come before any ratio."""

    metric: str
    names: tuple[str, str]
    unlike: tuple[Unlike, ...]
    doubts: Mapping[str, tuple[str, ...]]
    decision: Decision

    @property
    def exit_code(self) -> int:
        """0 equivalent, 1 differs, 2 undecided."""
        return EXIT_CODES[self.decision.verdict]

    def to_json(self) -> dict[str, Any]:
        """Return everything, for a script."""
        d = self.decision
        return {
            "metric": self.metric,
            "runs": list(self.names),
            "environment": [asdict(one) for one in self.unlike],
            "doubts": {name: list(words) for name, words in self.doubts.items()},
            "verdict": d.verdict,
            "margin": d.margin,
            "spread": d.spread,
            "joint": d.joint,
            "points": json.loads(d.points.to_json(orient="records")),
        }

    def lines(self) -> list[str]:
        """Return what comes before the table of points, and the answer."""
        d = self.decision
        around = [f"  {one.words}" for one in self.unlike] or ["  nothing that was recorded"]
        doubted = [f"  {name}: {words}" for name, every in self.doubts.items() for words in every] or ["  nothing"]
        counts = d.points["verdict"].value_counts()
        points = ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "none could be compared"
        lines = ["Not the same around the runs:", *around, "To be doubted:", *doubted]
        lines += [f"{self.metric}, {self.names[1]} over {self.names[0]}; {d.spread}.", f"  by point: {points}"]
        return [*lines, *_joint_lines(d), f"Answer: {d.verdict} (margin {d.margin:.1%})."]


def _joint_lines(d: Decision) -> list[str]:
    rows = [d.joint] if d.joint else list(records(d.points[d.points["verdict"].notna()]))
    if len(rows) != 1:
        return []
    one: Mapping[str, Any] = rows[0]
    over = f"over {one['points']} points" if d.joint else "at the one point in common"
    words = [
        f"  {over}: {one['verdict']}, ratio {one['ratio']:.4f} [{one['low']:.4f}, {one['high']:.4f}]; "
        f"a difference of {one['detectable']:.1%} would have been found with 80 %"
    ]
    if one["verdict"] == "undecided":
        needed = one["needed"]
        words.append(
            f"  to show that they are the same within {d.margin:.1%}: "
            + (
                "no number of repetitions, for runs spread too much as wholes: put both into one run"
                if pd.isna(needed)
                else f"{needed} repetitions per run"
            )
        )
    return words


def compared(
    first: RunDirectory,
    second: RunDirectory,
    metric: str = "forwarded_pps",
    *,
    equal: Sequence[RunDirectory] = (),
    margin: float = MARGIN,
) -> Comparison:
    """Compare ``second`` to ``first``; ``equal`` are two or more runs that measured the same as each other.

    Raises ResultsError where one of them is also compared, or is alone: a run has no spread by itself.
    """
    _check(first, second, equal)
    tables = [runs.trials_table(run) for run in (first, second)]
    settled = [table.drop_duplicates("trial_id", keep="last", ignore_index=True) for table in tables]
    if metric not in settled[0]:
        raise ResultsError(f"no column {metric!r} in {first.name}", remedy="a number of trials.parquet")
    names = _names(first, second)
    doubts = {
        name: tuple(_doubts(run, table, metric))
        for name, run, table in zip(names, (first, second), tables, strict=True)
    }
    decision = decide(settled[0], settled[1], metric, equal=[runs.settled_trials(run) for run in equal], margin=margin)
    return Comparison(metric, names, tuple(_unlike(first, second, *settled)), doubts, decision)


def _check(first: RunDirectory, second: RunDirectory, equal: Sequence[RunDirectory]) -> None:
    if len(equal) == 1:
        raise ResultsError("one equal run has no spread", remedy="give --equal twice or more, or leave it out")
    taken = {first.run_id, second.run_id}
    again = [run.name for run in equal if run.run_id in taken]
    if again:
        raise ResultsError(
            f"{again[0]} is compared and cannot say how equal runs spread too", remedy="give other runs to --equal"
        )


def _names(first: RunDirectory, second: RunDirectory) -> tuple[str, str]:
    if first.name != second.name:
        return first.name, second.name
    return f"{first.name} (first)", f"{second.name} (second)"


def _doubts(run: RunDirectory, table: pd.DataFrame, metric: str) -> list[str]:
    found = [f"{one.rule}: {one.what}" for one in audits.findings(run, table) if one.severity == "warning"]
    moved: Drift | None = drift(table, metric)
    if moved is not None and moved.p < DRIFT_P and abs(moved.share) >= DRIFT_SHARE:
        found.append(
            f"drift: {metric} changed by {moved.share:+.1%} from the first to the last trial (p = {moved.p:.1g})"
        )
    return found


def _unlike(first: RunDirectory, second: RunDirectory, a: pd.DataFrame, b: pd.DataFrame) -> list[Unlike]:
    before, after = (_around(run) for run in (first, second))
    known = [
        Unlike(name, before.get(name), after.get(name))
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]
    both = a.drop_duplicates("point_id").merge(b.drop_duplicates("point_id"), on="point_id")
    changed = int((both["program_hash_x"] != both["program_hash_y"]).fillna(False).sum())
    if changed:
        known.append(Unlike("program bytes", None, f"others at {changed} of {len(both)} points"))
    return known


def _around(run: RunDirectory) -> dict[str, str]:
    """Return the hosts' state before the last session, line by line, and the plan's times."""
    facts = {} if run.imported else {f"trial.{k}": str(v) for k, v in run_plan(run).trial.model_dump().items()}
    path = run.path / "manifest.json"
    sessions = json.loads(path.read_text())["sessions"] if path.is_file() else []
    before = [event["state"] for event in sessions if event["when"] == "before"]
    if not before:
        return facts
    state = before[-1]
    facts["lab"] = str(state["lab"])
    facts |= {f"xdplab.{name}": str(value) for name, value in state["xdplab"].items()}
    for host in ("dut", "tg"):
        for name, answer in state[host].items():
            if name not in _COUNTERS:
                facts |= _flat(f"{host} {name}", str(answer.get("value", f"absent: {answer.get('absent')}")))
    return facts


_COUNTERS = ("link", "memory")
"""What differs between any two runs: interface numbers, counters, free memory."""


def _flat(name: str, value: str) -> dict[str, str]:
    """Split ``key: value`` lines, so that a difference names the one line that differs."""
    if value.startswith("{"):  # lscpu -J
        fields = json.loads(value).get("lscpu", [])
        return {f"{name} {f['field'].rstrip(':')}": str(f["data"]) for f in fields if "MHz" not in f["field"]}
    lines = value.splitlines()
    if len(lines) < 2 or not all(":" in line for line in lines[1:]):
        return {name: value}
    parts = [line.rsplit(":", 1) if line.startswith("/") else line.split(":", 1) for line in lines]
    return {f"{name} {part[0].strip()}": part[-1].strip() for part in parts}


def _short(value: str | None) -> str:
    if value is None:
        return "not known"
    line = value.splitlines()[0] if value else "empty"
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
