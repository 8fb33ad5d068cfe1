"""All published figures of an imported run, as published or corrected: drawn by several processes, CSV beside each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import pandas as pd
from matplotlib.figure import Figure

from xdplab.figures.save import render
from xdplab.figures.several import mapped
from xdplab.figures.styles import DEFAULT_FORMATS, style_named
from xdplab.run.disk import write_whole
from xdplab.thesis.language import Language
from xdplab.thesis.printed import printed_sheet
from xdplab.thesis.published import Spec, published_figures
from xdplab.thesis.views import (
    Source,
    corrected_table,
    corrected_view,
    published_table,
    published_view,
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
