"""All published figures: of an imported run (as published or corrected), or from one's own run, on the same pages with
what was published in grey behind it; drawn by several processes, CSV beside each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from xdplab.analysis.series import settled
from xdplab.analysis.values import records
from xdplab.errors import FigureError
from xdplab.figures import DEFAULT_FORMATS
from xdplab.figures.factors import free_factors
from xdplab.figures.marks import View, marks_frame
from xdplab.figures.save import mapped, render
from xdplab.figures.styles import style_named
from xdplab.run.disk import write_whole
from xdplab.thesis.language import CORRECTED_Y, NOT_MEASURED, OWN, OWN_BEHIND, OWN_LIMITS, Language
from xdplab.thesis.printed import printed_sheet
from xdplab.thesis.published import FAMILIES, MARK_COLUMNS, MODES, Spec, lean, published_figures, published_marks
from xdplab.thesis.views import (
    CORRECTED_COLUMNS,
    Source,
    absent_words,
    corrected_marks,
    corrected_rows,
    corrected_table,
    corrected_view,
    look_of,
    power_of,
    published_table,
    published_view,
    scale_of,
    source_of,
)

Which = Literal["as-published", "corrected"]
Drawn = tuple["Regenerated", pd.DataFrame]
WHICH: tuple[Which, ...] = ("as-published", "corrected")
VIEWS = {"as-published": published_view, "corrected": corrected_view}
TABLES = {"as-published": published_table, "corrected": corrected_table}
STYLE = "paper-2col"


@dataclass(frozen=True)
class Regenerated:
    """One figure: its files, and how many marks it has."""

    spec: Spec
    which: str
    files: tuple[Path, ...]
    marks: int


@dataclass(frozen=True)
class Edition:
    """Which published figures are drawn anew, into which folder, in which language, in which formats (none: marks)."""

    folder: Path
    language: Language = "en"
    formats: Sequence[str] = DEFAULT_FORMATS
    figures: Sequence[Spec] = field(default_factory=published_figures)

    def write(self, spec: Spec, which: str, page: Figure | None, table: pd.DataFrame, run_id: str) -> tuple[Path, ...]:
        """Write ``folder``/``which``/<the figure's path> in each format, and its marks as CSV; return the paths."""
        base, notes = self.folder / which / spec.stem, {"run": run_id, "figure": spec.file}
        style, files = style_named(STYLE), list[Path]()
        if page is not None:
            for suffix in self.formats:
                files.append(write_whole(Path(f"{base}.{suffix}"), render(page, suffix, style, spec.stem, notes)))
        files.append(write_csv(Path(f"{base}.csv"), table))
        return tuple(files)

    def write_marks(self, which: str, drawn: Sequence[Drawn]) -> None:
        """Write the marks of all figures into ``folder``/``which``.csv."""
        tables = [table for figure, table in drawn if figure.which == which]
        write_csv(self.folder / f"{which}.csv", pd.concat(tables, ignore_index=True))


def regenerate(
    trials: pd.DataFrame,
    edition: Edition,
    which: Sequence[Which] = WHICH,
    *,
    processes: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Regenerated]:
    """Draw the published figures from judged imported trials, as published and corrected.

    ``progress`` is told how many figures are drawn. Raises ResultsError if a file cannot be written.
    """
    jobs = [(spec, kind) for kind in which for spec in edition.figures]
    drawn = list(mapped(partial(_draw, source_of(trials), edition), jobs, processes, progress, edition.formats))
    for kind in which:
        edition.write_marks(kind, drawn)
    return [figure for figure, _ in drawn]


def _draw(source: Source, edition: Edition, job: tuple[Spec, Which]) -> Drawn:
    spec, which = job
    view = VIEWS[which](source, spec, edition.language)
    page = None
    if edition.formats:
        page = printed_sheet(view, spec, language=edition.language, empty=which == "corrected")
    table = TABLES[which](view)
    files = edition.write(spec, which, page, table, source.run_id)
    return Regenerated(spec, which, files, len(table)), table


def write_csv(path: Path, table: pd.DataFrame) -> Path:
    """Write a table, whole or not at all."""
    return write_whole(path, table.to_csv(index=False, lineterminator="\n").encode())


THESIS_FACTORS = ("mode", "queues", "frame_bytes", "accesses")
REPEATED = "repeated"


@dataclass(frozen=True, eq=False)
class OwnRun:
    """Trials of one's own as a source of the thesis' figures, and in words what they were measured with.

    ``shared``: TG and DUT share CPUs. ``wired``: the link has a rate of its own. ``cpus``: those the DUT had.
    """

    source: Source
    name: str
    setting: str
    repetitions: int
    shared: bool
    wired: bool
    cpus: int | None


def own_run(name: str, trials: pd.DataFrame) -> OwnRun:
    """Return a run's trials at maximum load as the thesis' figures need them.

    Raises FigureError if none has the thesis' factors, or where anything else varies: no mark joins two points.
    """
    rows = settled(trials)
    rows = rows[rows["load"].eq("max").fillna(False) & rows["accesses"].notna() & rows["mode"].isin(list(MODES))]
    if rows.empty:
        raise FigureError(
            f"{name}: no trial at maximum load has the thesis' factors ({', '.join(THESIS_FACTORS)})",
            remedy="measure plans/thesis-mini.yaml",
        )
    if more := [column for column in free_factors(rows, THESIS_FACTORS) if column not in ("xsk_attach", "xsk_bind")]:
        raise FigureError(
            f"{name}: {', '.join(more)} vary beside the thesis' factors", remedy="measure one level of them, or --only"
        )
    absent = {column: None for column in CORRECTED_COLUMNS if column not in rows}
    values = lean(rows.assign(**absent), CORRECTED_COLUMNS)
    values = values.assign(forwarded_l2_bps=values["forwarded_pps"] * values["frame_bytes"] * 8, ring_share=np.nan)
    repetitions = {
        str(mode): tuple(sorted(map(int, of_mode["repetition"].unique()))) for mode, of_mode in values.groupby("mode")
    }
    held = ("lab", "arrangement", "engine", "program_name")
    setting = [str(rows[column].dropna().iloc[0]) for column in held if rows[column].notna().any()]
    cpus = rows["dut_cpus"].dropna()
    return OwnRun(
        source=Source(str(rows["run_id"].iloc[0]), pd.DataFrame(), values, repetitions),
        name=name,
        setting=", ".join(setting),
        repetitions=max(len(numbers) for numbers in repetitions.values()),
        shared=bool(rows["arrangement"].eq("shared").any()),
        wired=bool(rows["link_bps"].notna().any()),
        cpus=int(cpus.max()) if len(cpus) else None,
    )


IN_OWN_UNIT = {"throughput": 1.0, "latency": 1e6, "softirq": 1.0}
"""From the published axis to one's own: seconds to µs. Counts are those of the axis, times its power of ten."""


def behind(published: Source, spec: Spec) -> pd.DataFrame:
    """Return the published marks in the unit of one's own axis."""
    marks = published_marks(published.printed, spec)
    power = power_of(published, spec) if FAMILIES[spec.family].unit is None else IN_OWN_UNIT[spec.family]
    return marks_frame(records(marks.assign(value=marks["value"] * power)))


def own_view(run: OwnRun, spec: Spec, language: Language = "en", *, published: bool = True) -> View:
    """Return the figure's marks from one's own trials, with t intervals; notes say what they cannot tell."""
    rows = corrected_rows(run.source, spec)
    marks = corrected_marks(rows, spec) if len(rows) else marks_frame([])
    marks = marks[marks["value"] > 0] if spec.family == "latency" else marks
    measured_with = OWN.of(language).format(name=run.name, setting=run.setting, repetitions=run.repetitions)
    limits = [OWN_LIMITS[key].of(language) for key in limits_of(run, spec)]
    why = absent_words(rows, spec, language) if len(rows) else NOT_MEASURED.of(language)
    notes = [measured_with, *([OWN_BEHIND.of(language)] if published else []), *limits, *([why] if why else [])]
    label = CORRECTED_Y[spec.family].of(language).format(power="")
    return View(marks, look_of(spec, language, label, tuple(notes), scale_of(spec)))


def limits_of(run: OwnRun, spec: Spec) -> list[str]:
    """Return what the lab cannot say of a figure, as keys of OWN_LIMITS."""
    limits = [] if run.wired else ["no NIC"]
    limits += ["shared"] if run.shared else []
    queues = [spec.queues] if spec.queues not in (None, "best") else [str(8)]
    return limits + (["few CPUs"] if run.cpus is not None and run.cpus < max(int(str(q)) for q in queues) else [])


def repeat(
    run: OwnRun,
    edition: Edition,
    *,
    published: Source | None,
    processes: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Regenerated]:
    """Draw the published figures from one's own trials.

    ``published``: an import's source, whose marks stand in grey behind; None leaves them out.
    """
    drawn = list(
        mapped(partial(_draw_own, run, published, edition), edition.figures, processes, progress, edition.formats)
    )
    edition.write_marks(REPEATED, drawn)
    return [figure for figure, _ in drawn]


def _draw_own(run: OwnRun, published: Source | None, edition: Edition, spec: Spec) -> Drawn:
    view = own_view(run, spec, edition.language, published=published is not None)
    grey = behind(published, spec) if published is not None else None
    page = None
    if edition.formats:
        page = printed_sheet(view, spec, behind=grey, language=edition.language, empty=True)
    table = own_table(view, grey)
    files = edition.write(spec, REPEATED, page, table, run.source.run_id)
    return Regenerated(spec, REPEATED, files, len(view.marks)), table


def own_table(view: View, grey: pd.DataFrame | None) -> pd.DataFrame:
    """Return one's own marks, and the published ones in the same unit, told apart by the column ``of``."""
    marks = corrected_table(view).assign(of="own")
    if grey is None:
        return marks
    table = marks_frame([*records(marks[list(marks.columns.drop("of"))]), *records(grey[list(MARK_COLUMNS)])])
    return corrected_table(replace(view, marks=table)).assign(of=["own"] * len(marks) + ["published"] * len(grey))
