"""A run in a notebook's hand: it is started in a process of its own, watched, stopped, resumed, and shown."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.figure import Figure
from seaborn.axisgrid import FacetGrid

from xdplab.analysis.findings import Finding
from xdplab.analysis.summary import varying
from xdplab.errors import ResultsError, XdplabError
from xdplab.figures import explore
from xdplab.plan.model import claims_room
from xdplab.run import watching
from xdplab.run.disk import holder, is_locked, open_file
from xdplab.run.state import RunState, is_beginning
from xdplab.shown import ReadableFrame, small_table
from xdplab.studies.kind import Run
from xdplab.studies.traffic.trials import latencies_of

if TYPE_CHECKING:
    from xdplab.notebook import LabInUse

_COLOURS = ("FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE")
"""Variables that would fill a log with a terminal's control sequences."""
_FIRST = ("repetition", "forwarded_pps", "access_ns", "testrun_ns", "latency_p50_ns", "verdict", "reason", "limited_by")
STOP_S = 30.0
"""Seconds that a stopped run may take to restore its devices."""


def started(run: Run[Any], lab: LabInUse | None = None) -> RunInHand:
    """Continue a run in a process of its own; an interrupt of the notebook stops only the watching."""
    path = run.directory.path
    print(f"measuring into {path}: run.watch() shows how far it is, run.stop() ends it")  # noqa: T201
    where = ["--lab", lab.lab.name] if lab else []  # a study's plan names its places
    argv = [sys.executable, "-m", "xdplab", *where, "resume", str(path), "--no-figures"]
    plain = {name: value for name, value in os.environ.items() if name not in _COLOURS}  # the log is plain text
    with open_file(path / "run.log", "w") as log:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=plain
        )
    return RunInHand(run, process)


class RunInHand:
    """A run of any kind, finished or under way; ``on_disk`` is the run that the command line has, too."""

    def __init__(self, on_disk: Run[Any], process: subprocess.Popen[bytes] | None = None) -> None:
        self.on_disk = on_disk
        self.directory = on_disk.directory
        self._process = process

    @property
    def path(self) -> Path:
        return self.directory.path

    @property
    def state(self) -> RunState:
        """Which trials are planned, measured and missing."""
        return self.on_disk.state

    @property
    def trials(self) -> pd.DataFrame:
        """The results that count: one row per trial; for a study, one per measurement.

        For XDP traffic, the columns that vary and the results come first; `docs/reference/columns.md` has every column.
        """
        rows = self.on_disk.rows()
        if self.on_disk.kind.planning or rows.empty:
            return ReadableFrame(rows)
        first = [name for name in (*varying(rows), *_FIRST) if name in rows]
        return ReadableFrame(rows[[*dict.fromkeys(first), *(name for name in rows if name not in first)]])

    @property
    def samples(self) -> pd.DataFrame:
        """One row per interval of 100 ms, for XDP traffic. Raises ResultsError for other kinds of run."""
        return self.on_disk.samples()

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The tables that the command line prints, by name."""
        return {name: ReadableFrame(table.frame) for name, table in self.on_disk.tables().items()}

    @property
    def notes(self) -> tuple[str, ...]:
        """What a study leaves out, with the reason; empty for other kinds of run."""
        return self.on_disk.plan.notes if self.on_disk.kind.planning else ()

    def summary(self) -> pd.DataFrame:
        """One row per point: varying factors, n, means with their 95 % intervals, verdicts; for a study its first
        table."""
        return ReadableFrame(next((table.numbers for table in self.on_disk.tables().values()), self.trials))

    def watch(self) -> RunInHand:
        """Show the run's progress until it ends, also if another process started it: a bar, or lines in a log.

        An interrupt ends only the watching: the run continues. Raises ResultsError with the last message of a run that
        failed.
        """
        ended = watching.watch(
            lambda: self.state, self._under_way, lambda: watching.counted(self.on_disk.rows()), self.directory.name
        )
        if ended and self._process is not None and self._process.returncode:
            lines = (self.path / "run.log").read_text(errors="replace").strip().splitlines()[-3:]
            raise ResultsError(f"the run ended with exit code {self._process.returncode}: {' / '.join(lines)}")
        return self

    def stop(self) -> RunInHand:
        """End the measuring, wherever it was started; finished trials are kept, and `resume` continues.

        Raises ResultsError if nothing measures into the run, or another user's process does.
        """
        number = self._process.pid if self._process and self._process.poll() is None else holder(self.path)
        if number is None:
            raise ResultsError(f"{self.directory.name} is not being measured", remedy="run.resume() continues it")
        try:
            os.kill(number, signal.SIGTERM)
        except PermissionError:
            raise ResultsError(f"{self.directory.name} is measured by another user's process {number}") from None
        until = time.monotonic() + STOP_S
        while self._under_way() and time.monotonic() < until:
            time.sleep(watching.POLL_S / 5)
        return self

    def resume(self, lab: LabInUse | None = None) -> RunInHand:
        """Continue a run that was stopped, killed, or has failed trials, in a process of its own, as `plan.start` does.

        It continues where it was measured, or in ``lab``. Raises ResultsError while it is being measured.
        """
        if self._under_way():
            raise ResultsError(
                f"{self.directory.name} is being measured already", remedy="run.watch() shows how far it is"
            )
        self._process = started(self.on_disk, lab)._process
        return self

    def _under_way(self) -> bool:
        if self._process is not None:
            return self._process.poll() is None
        return is_locked(self.directory.path) or is_beginning(self.directory)

    @property
    def claims(self) -> pd.DataFrame:
        """Its claims: whether each holds, is refuted or cannot be told here, its interval and the trials behind it.

        They are those of its plan, or of claims.yaml in its folder. Raises PlanError for a run without any.
        """
        return ReadableFrame([*map(asdict, claims_room("judged").judged(self.on_disk))])

    def findings(self) -> pd.DataFrame:
        """Findings over several points and repetitions: points and files comma-separated, evidence as JSON."""
        names = [field.name for field in fields(Finding)]
        rows = [
            vars(one)
            | {"points": ",".join(one.points), "files": ",".join(one.files)}
            | {"evidence": json.dumps(one.evidence, sort_keys=True)}
            for one in self.on_disk.findings()
        ]
        return ReadableFrame(pd.DataFrame(rows, columns=names))

    @property
    def figures(self) -> list[str]:
        """The names that `figure` takes for this run."""
        return self.on_disk.figure_names

    @property
    def factors(self) -> list[str]:
        """The factors in which its trials differ, as `figure` and `plot` take them for hue and panel."""
        return [] if self.on_disk.kind.planning else varying(self.on_disk.rows())

    def figure(self, name: str | None = None, **options: Any) -> Figure:
        """Draw one figure, the first that the run has data for by default; return the matplotlib Figure.

        Its ``caption`` is the whole one, and ``tex`` that for LaTeX; a figure on ``ax`` has none.

        Options, by the names of `xdplab figures`: ``style`` (notebook, paper-1col, paper-2col, slides), ``width`` (acm,
        ieee, usenix, a4, slide, "84mm", or inches) and ``height``, ``caption`` (False: not on the picture), ``ax``
        (Axes of your own, for a figure of one panel); of XDP traffic also ``hue`` and ``panel`` (factors; two for the
        rows and columns of panels, "" for none), ``where`` ({column: value or values}) and ``value`` (another column of
        the figure's kind). Raises FigureError naming the figures, and the smallest size where one is too small.
        """
        usual = {} if "width" in options else {"style": "notebook"}
        return sheet_of(self.on_disk.figure(name, **(usual | options)))

    def plot(
        self, y: str, x: str = "accesses", hue: str | None = None, panel: explore.Panel = None, **options: Any
    ) -> Any:
        """Draw any column of the valid trials against any other, and return seaborn's FacetGrid.

        Numbers as ``x`` make lines (`seaborn.relplot`), text makes points (`seaborn.catplot`); ``panel`` is that
        of `figure`, and other options are theirs (``kind``, ``errorbar``, ``height``, ``row``, …). ``where`` chooses
        trials: {column: value or values}. A repetition is one value; the interval is seaborn's, over repetitions.
        Raises FigureError if one mark would average over several points.
        """
        return explore.plot(self.on_disk.rows(), y, x, hue, panel, **options)

    def over_time(
        self, y: str = "rx_pps", hue: str | None = None, panel: explore.Panel = None, **options: Any
    ) -> FacetGrid:
        """Draw the TG's rate (``rx_pps`` or ``tx_pps``) over the measured seconds, one line per trial; a FacetGrid."""
        return explore.over_time(self.samples, self.on_disk.rows(), y, hue, panel, **options)

    def latency_cdf(self, hue: str | None = None, panel: explore.Panel = None, **options: Any) -> FacetGrid:
        """Draw the share of frames that came back within a time, one line per trial; a FacetGrid.

        ``where={"load": "20kpps"}`` chooses a paced load: at maximum load a round trip is queueing.
        """
        return explore.latency_cdf(latencies_of(self.directory), self.on_disk.rows(), hue, panel, **options)

    def __repr__(self) -> str:
        return f"{self.directory.name}: {self.state.text}"

    @property
    def about(self) -> dict[str, str]:
        """What the run's table in a notebook says: its state, verdicts, tables and figures."""
        about = {"folder": os.path.relpath(self.path), "state": self.state.text}
        if not self._under_way():
            with suppress(XdplabError):  # a damaged run still shows its name
                verdicts = watching.counted(self.on_disk.rows())
                about["verdicts"] = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
                about["figures"] = ", ".join(self.figures)
        return about | {"next": "run.watch(), run.stop()" if self._under_way() else "run.summary(), run.figure(…)"}

    @property
    def links(self) -> list[str]:
        """The run's report, if it has one, and its plan, from the notebook's folder: JupyterLab opens no folder."""
        return [os.path.relpath(file) for name in ("report.html", "plan.yaml") if (file := self.path / name).exists()]

    def _repr_html_(self) -> str:
        return small_table(self.directory.name, self.about, self.links)


def sheet_of(axes: Any) -> Figure:
    sheet = axes.figure
    assert isinstance(sheet, Figure)
    return sheet
