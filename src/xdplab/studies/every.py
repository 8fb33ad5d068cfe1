"""The interface of runs of any kind. The command line and the notebook use only this."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from xdplab.analysis import MARGIN
from xdplab.analysis.findings import Finding, to_markdown
from xdplab.errors import ResultsError
from xdplab.run.disk import replacing
from xdplab.run.progress import Observer
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import Attempt, RunState
from xdplab.studies.comparing import ComparedRuns
from xdplab.studies.tables import Table
from xdplab.text import many, visible


@dataclass(frozen=True)
class Where:
    """Where a run continues: a lab, or several at once; by default where it was.

    ``steal`` takes one lab's servers from a run that is silent.
    """

    lab: str | None = None
    labs: tuple[str, ...] = ()
    scheduler: str | None = None
    steal: bool = False


class AnyAudit(Protocol):
    """The results of a run that are not trustworthy."""

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
        """The column that is compared by default."""

    @property
    def state(self) -> RunState: ...

    def measure(self, observer: Observer, where: Where) -> RunState:
        """Measure the run's missing trials and derive its tables."""

    def complete(self) -> list[str]:
        """Complete what a kill after the last trial interrupted, and return a description of it."""

    def keep_tables(self) -> Path:
        """Derive the tables if they are not current; return their folder."""

    def check_raw(self) -> None:
        """Warn (ResultsWarning) where raw files are gone."""

    def rows(self) -> pd.DataFrame:
        """Return the measurements that count, a row each. Writes nothing into the run."""

    def tables(self) -> dict[str, Table]:
        """Return the printed tables, by name."""

    def summary(self) -> list[str]:
        """Return the results in a few lines."""

    def draw_figures(self, *, names: Sequence[str] = (), style: str = ..., out: Path | None = None) -> list[str]:
        """Draw all figures that apply, or ``names``; return their files, and why the others were not drawn."""

    @property
    def figure_names(self) -> list[str]:
        """Return the names of the figures of this kind of run."""

    @property
    def figure(self) -> Callable[..., Any]:
        """Draw one figure for a notebook: its name (the first by default), and options. Raises FigureError."""

    def findings(self) -> list[Finding]: ...

    def audit(self) -> AnyAudit: ...

    def around(self) -> Mapping[str, str]:
        """Return what was recorded of the places before the run, by name."""

    def compare(
        self, other: AnyRun, metric: str | None = None, *, equal: Sequence[AnyRun] = (), margin: float = MARGIN
    ) -> ComparedRuns:
        """Compare ``other`` with this run, point by point and over all.

        ``equal``: runs that measured the same as each other. Raises ResultsError for another kind of run, PlanError
        where there is no such column.
        """


def write_audit(run: RunDirectory, found: AnyAudit) -> list[Path]:
    """Write audit.md and audit.json where the outputs of the run go; return their paths."""
    data = json.dumps(found.to_json(), indent=1, sort_keys=True) + "\n"
    texts = {"audit.md": visible(found.to_markdown()), "audit.json": data}
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
    """Return a finding for each reason why trials were not measured, and one for missing trials."""
    by_reason: dict[tuple[str, str], list[Attempt]] = {}
    for attempt in attempts:
        if attempt.status != "measured":
            by_reason.setdefault((attempt.status, str(attempt.reason)), []).append(attempt)
    found = [
        Finding(
            status,
            "warning" if status == "failed" else "info",
            f"{many(len(of), 'trial')}: {reason}",
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


def require_same_kind(run: AnyRun, *others: AnyRun) -> None:
    """Raise ResultsError if the runs are not of one kind."""
    for other in others:
        if run.kind_name != other.kind_name:
            raise ResultsError(
                f"{run.directory.name} is a run of kind {run.kind_name}, {other.directory.name} of {other.kind_name}",
                remedy="compare two runs of one kind",
            )
