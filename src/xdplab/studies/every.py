"""What every run can be asked, whatever it measured. The command line and the notebook ask nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from xdplab.analysis.compare import ratio
from xdplab.analysis.findings import Finding, to_markdown
from xdplab.errors import PlanError, ResultsError
from xdplab.run.disk import replacing
from xdplab.run.progress import Observer
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import Attempt, RunState
from xdplab.studies.tables import Table


@dataclass(frozen=True)
class Where:
    """Where a run goes on: a lab, or several at once; by default where it was."""

    lab: str | None = None
    labs: tuple[str, ...] = ()
    scheduler: str | None = None


class AnyAudit(Protocol):
    """What is not to be believed of a run."""

    def to_json(self) -> dict[str, Any]: ...

    def to_markdown(self) -> str: ...


class AnyRun(Protocol):
    """A run on disk: XDP traffic, a search, or a study of the execution side."""

    @property
    def directory(self) -> RunDirectory: ...

    @property
    def kind_name(self) -> str: ...

    @property
    def metric(self) -> str:
        """The column that is compared unless another one is asked for."""

    @property
    def state(self) -> RunState: ...

    def measure(self, observer: Observer, where: Where) -> RunState:
        """Measure what the run owes and derive its tables."""

    def complete(self) -> list[str]:
        """Do what a kill after the last trial left undone, and return what that was, in words."""

    def keep_tables(self) -> Path:
        """Derive the tables where they are not current; return the folder that holds them."""

    def check_raw(self) -> None:
        """Warn (ResultsWarning) where raw files are gone."""

    def rows(self) -> pd.DataFrame:
        """Return the measurements that count, a row each. Writes nothing into the run."""

    def tables(self) -> dict[str, Table]:
        """Return what is printed, by name."""

    def summary(self) -> list[str]:
        """Return what came out, in a few lines."""

    def draw_figures(self, *, names: Sequence[str] = (), style: str = ..., out: Path | None = None) -> list[str]:
        """Draw what applies, or ``names``; return where it is, and why the rest is not."""

    @property
    def figure(self) -> Callable[..., Any]:
        """Draw one figure for a notebook: its name (the first by default), and options. Raises FigureError."""

    def findings(self) -> list[Finding]: ...

    def audit(self) -> AnyAudit: ...

    def compare(self, other: AnyRun, metric: str | None = None) -> pd.DataFrame:
        """Return the ratios of ``other`` to this run, point by point. Raises ResultsError for another kind of run."""


class AnyKind(Protocol):
    """A kind of run: what opens one."""

    @property
    def name(self) -> str: ...

    def open(self, path: Path) -> AnyRun: ...


def write_audit(run: RunDirectory, found: AnyAudit) -> list[Path]:
    """Write audit.md and audit.json where the outputs of the run go; return their paths."""
    data = json.dumps(found.to_json(), indent=1, sort_keys=True) + "\n"
    texts = {"audit.md": found.to_markdown(), "audit.json": data}
    for name, text in texts.items():
        with replacing(run.outputs / name) as scratch:
            scratch.write_text(text)
    return [run.outputs / name for name in texts]


@dataclass(frozen=True)
class PlainAudit:
    """Findings alone."""

    run: str
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        return {"run": self.run, "findings": [asdict(finding) for finding in self.findings]}

    def to_markdown(self) -> str:
        return to_markdown(self.findings).replace("# Findings", f"# Audit of {self.run}\n\n## Findings", 1)


def not_measured(attempts: Iterable[Attempt], state: RunState) -> list[Finding]:
    """Return a finding for each reason why trials were not measured, and one for those that are still owed."""
    by_reason: dict[tuple[str, str], list[Attempt]] = {}
    for attempt in attempts:
        if attempt.status != "measured":
            by_reason.setdefault((attempt.status, str(attempt.reason)), []).append(attempt)
    found = [
        Finding(
            status,
            "warning" if status == "failed" else "info",
            f"{len(of)} trials: {reason}",
            tuple(dict.fromkeys(a.trial_id.rpartition("-r")[0] for a in of)),
            {"trials": float(len(of))},
            tuple(f"raw/{a.trial_id}/{a.attempt}" for a in of),
        )
        for (status, reason), of in by_reason.items()
    ]
    if owed := [trial for trial in state.owed if trial not in state.last]:
        points = tuple(dict.fromkeys(trial.rpartition("-r")[0] for trial in owed))
        found.append(Finding("owed", "warning", f"{len(owed)} trials were not tried yet", points))
    return found


def check_metric(table: pd.DataFrame, metric: str) -> None:
    """Raise PlanError where ``table`` has no such column of numbers."""
    numbers = [str(name) for name in table.columns if pd.api.types.is_numeric_dtype(table[name])]
    if metric not in numbers:
        raise PlanError(f"--metric {metric}: no column of numbers", remedy=f"there are {', '.join(numbers)}")


def require_same_kind(run: AnyRun, other: AnyRun) -> None:
    if run.kind_name != other.kind_name:
        raise ResultsError(
            f"{run.directory.name} is a run of kind {run.kind_name}, {other.directory.name} of {other.kind_name}",
            remedy="compare two runs of one kind",
        )


def compare_rows(a: pd.DataFrame, b: pd.DataFrame, metric: str, words: dict[str, str]) -> pd.DataFrame:
    """Return one row per point and place in its trials' tables: means, n, and the ratio b/a with its 95 % interval.

    ``words`` names the points. A trial may leave several rows: rows are the same one where they stand at the same place
    of trials of one point. Only positive values count.
    """
    sides = [_values(table, metric) for table in (a, b)]
    rows: list[dict[str, Any]] = []
    for key in dict.fromkeys([*sides[0], *sides[1]]):
        place = {"point_id": key[0], "point": words.get(key[0], key[0]), "row": key[1]}
        first, second = (side.get(key) for side in sides)
        if first is None or second is None:
            missing = "first" if first is None else "second"
            n_a, n_b = (0 if side is None else len(side) for side in (first, second))
            rows.append({**place, "n_a": n_a, "n_b": n_b, "reason": f"no value in the {missing} run"})
            continue
        found = ratio(first, second)
        why = None if found.differs is not None else "too few repetitions for an interval, or copies of one value"
        rows.append({**place, **vars(found), "differs": found.differs, "reason": why})
    columns = [
        "point_id",
        "point",
        "row",
        "n_a",
        "n_b",
        "mean_a",
        "mean_b",
        "ratio",
        "low",
        "high",
        "differs",
        "reason",
    ]
    return pd.DataFrame(rows, columns=columns)


def _values(table: pd.DataFrame, metric: str) -> dict[tuple[str, int], pd.Series]:
    point = table["trial_id"].str.rpartition("-r")[0]
    keyed = table.assign(_point=point, _row=table.groupby("trial_id").cumcount() + 1)
    known = keyed[keyed[metric].gt(0).fillna(False).astype(bool)]
    groups = known.groupby(["_point", "_row"], sort=False)[metric]
    return {(str(point), int(str(row))): values.astype(float) for (point, row), values in groups}
