"""XDP traffic as a kind of run. Figures, audits, comparisons and races are loaded by name: measuring needs none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import pandas as pd

from xdplab.analysis import MARGIN
from xdplab.analysis.findings import Finding
from xdplab.labs import use_lab
from xdplab.later import later
from xdplab.run.progress import Observer
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import RunState, read_state
from xdplab.studies.comparing import ComparedRuns
from xdplab.studies.every import AnyAudit, AnyRun, Where, require_same_kind
from xdplab.studies.tables import Table
from xdplab.studies.traffic import runs
from xdplab.studies.traffic.planned import run_plan
from xdplab.studies.traffic.runs import MEASURED, TrafficMethod

audits, comparison = later("xdplab.studies.traffic.audits"), later("xdplab.studies.traffic.comparison")
calibrating = later("xdplab.studies.traffic.calibrating")
explaining, pictures = later("xdplab.studies.traffic.explain"), later("xdplab.studies.traffic.pictures")
fleet, race = later("xdplab.studies.traffic.fleet"), later("xdplab.studies.traffic.race")
catalogue, results = later("xdplab.figures.catalogue"), later("xdplab.analysis.summary")


class PlanRun:
    """A run of XDP traffic."""

    kind_name = "traffic"
    metric = "forwarded_pps"

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory

    @classmethod
    def open(cls, directory: RunDirectory) -> Self:
        return cls(directory)

    @property
    def way(self) -> TrafficMethod:
        return MEASURED

    @property
    def state(self) -> RunState:
        return read_state(self.directory)

    @property
    def is_race(self) -> bool:
        return run_plan(self.directory).race is not None

    def measure(self, observer: Observer, where: Where) -> RunState:
        """Measure the missing trials where the run was, or in the lab or labs of ``where``.

        Raises StrangersFileError for another user's run.
        """
        self.directory.require_trust()
        labs = where.labs
        if not labs and where.lab is None:
            labs = runs.shared_by(self.directory)
        if labs:
            with fleet.joined(labs, where.scheduler) as together:
                state: RunState = together.execute(self.directory, observer, self.way)
                return state
        with use_lab(where.lab or runs.lab_of(self.directory)) as lab:
            return runs.execute(self.directory, lab, observer, self.way, steal=where.steal)

    def complete(self) -> list[str]:
        return runs.complete(self.directory, self.way.recipe)

    def keep_tables(self) -> Path:
        return runs.keep_tables(self.directory, self.way.recipe)

    def check_raw(self) -> None:
        runs.check_raw(self.directory)

    def attempts(self, read: Callable[[Path], pd.DataFrame] | None = None) -> pd.DataFrame:
        """Return every attempt that ended, a row each, judged by the current rules; ``read`` reads a part."""
        return runs.trials_table(self.directory, read)

    def rows(self) -> pd.DataFrame:
        """Return one row per trial: its last attempt, judged by the current rules."""
        return runs.last_of_each(self.attempts())

    def samples(self) -> pd.DataFrame:
        """Return one row per interval of 100 ms."""
        return runs.samples_table(self.directory)

    def points_summary(self) -> pd.DataFrame:
        """Return one row per point: varying factors, n, means with their intervals, verdicts."""
        points: pd.DataFrame = results.points_summary(self.rows())
        return points

    def tables(self) -> dict[str, Table]:
        trials = self.rows()
        if trials.empty:
            return {}
        alike = results.constant_words(trials, results.varying(trials))
        title = f"{trials['point_id'].nunique()} points, mean ± half of its 95 % interval over n valid repetitions"
        return {"points": Table(f"{title}; {alike}", results.for_people(results.points_summary(trials)))}

    def summary(self) -> list[str]:
        """The results in a few lines: a race's answer, verdicts, the reasons of trials that are not valid."""
        settled = self.rows()
        counts = settled["verdict"].value_counts()
        lines = [race.race_line(self.directory)] if self.is_race else []
        lines += ["verdicts: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.items())]
        others = settled[settled["verdict"] != "valid"]
        for (verdict, reason), rows in others.groupby(["verdict", "reason"], dropna=False):
            lines.append(f"  {verdict} ({len(rows)}): {reason}")
        return lines

    def draw_figures(
        self, *, names: Sequence[str] = (), style: str = "paper-1col", out: Path | None = None
    ) -> list[str]:
        lines: list[str] = pictures.draw_figures(self, names=names, style=style, out=out)
        return lines

    @property
    def figure_names(self) -> list[str]:
        return list(catalogue.CATALOGUE)

    def figure(self, name: str | None = None, **options: Any) -> Any:
        """Draw one figure; ``options``: hue, panel, where, value, style, ax, figsize, caption."""
        return catalogue.figure(name or "throughput", self.rows(), **options)

    def explain(self, figure: str, mark: str, data: Sequence[Path] = ()) -> list[str]:
        """Return the trials and raw files behind the marks of a figure; ``data`` are an import's logs."""
        lines: list[str] = explaining.explain(self.directory, self.attempts(), figure, mark)
        return lines

    def findings(self) -> list[Finding]:
        found: list[Finding] = audits.findings(self.attempts())
        return found

    def audit(self) -> AnyAudit:
        found: AnyAudit = audits.audit(self.directory.name, self.attempts())
        return found

    def around(self) -> dict[str, str]:
        """Return the state of the hosts before the run, and the plan's times."""
        facts: dict[str, str] = comparison.around(self.directory)
        return facts

    def compare(
        self, other: AnyRun, metric: str | None = None, *, equal: Sequence[AnyRun] = (), margin: float = MARGIN
    ) -> ComparedRuns:
        """Say whether ``other`` is faster than, slower than or the same as this run, point by point and over all."""
        require_same_kind(self, other, *equal)
        value = metric or self.metric
        usable = calibrating.usable(value, equal)
        kept = calibrating.calibrated(self.around(), other.around()) if usable else None
        found: ComparedRuns = comparison.compared(self, other, value, equal=equal, margin=margin, calibration=kept)
        return found
