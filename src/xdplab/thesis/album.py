"""All published figures of an imported run, as published or corrected: drawn by several processes, CSV beside each."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Literal, TypeVar

import pandas as pd

from xdplab.figures.marks import View
from xdplab.figures.save import render
from xdplab.figures.styles import DEFAULT_FORMATS, style_named
from xdplab.run.disk import write_whole
from xdplab.thesis.language import NO_MARK, Language
from xdplab.thesis.printed import printed_sheet
from xdplab.thesis.published import Spec, published_figures
from xdplab.thesis.views import (
    Source,
    corrected_table,
    corrected_view,
    published_table,
    published_view,
    source_of,
    translated,
)

Which = Literal["as-published", "corrected"]
Drawn = tuple["Regenerated", pd.DataFrame]
J = TypeVar("J")
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


def regenerate(
    trials: pd.DataFrame,
    folder: Path,
    *,
    which: Sequence[Which] = WHICH,
    language: Language = "en",
    formats: Sequence[str] = DEFAULT_FORMATS,
    figures: Sequence[Spec] | None = None,
    processes: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Regenerated]:
    """Draw the published figures from judged imported trials into ``folder``/<which>/<path>, marks as CSV beside each.

    ``folder``/<which>.csv holds the marks of all; ``progress`` is told how many figures are drawn.
    Raises ResultsError if a file cannot be written.
    """
    source = source_of(trials)
    chosen = published_figures() if figures is None else tuple(figures)
    jobs = [(spec, kind) for kind in which for spec in chosen]
    one = partial(_one, source, folder, language, tuple(formats))
    done = list(mapped(one, jobs, processes, progress))
    for kind in which:
        tables = [table for made, table in done if made.which == kind]
        write_csv(folder / f"{kind}.csv", pd.concat(tables, ignore_index=True))
    return [made for made, _ in done]


def mapped(
    one: Callable[[J], Drawn],
    jobs: Sequence[J],
    processes: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Drawn]:
    """Draw in several processes (one a CPU where it is None), in the jobs' order, telling how many are done."""
    for count, made in enumerate(_mapped(one, jobs, processes or os.cpu_count() or 1), 1):
        if progress is not None:
            progress(count)
        yield made


def _mapped(one: Callable[[J], Drawn], jobs: Sequence[J], processes: int) -> Iterator[Drawn]:
    if processes < 2 or len(jobs) < 4:
        yield from map(one, jobs)
        return
    # Forked, a worker has matplotlib, its fonts and the trials already.
    with ProcessPoolExecutor(processes, mp_context=get_context("fork"), initializer=_collect_rarely) as pool:
        yield from pool.map(one, jobs, chunksize=2)


COLLECTED = 100_000  # objects


def _collect_rarely() -> None:
    """A figure makes some 100,000 objects, many in cycles: to look for those after every 700 took 7 % of the time."""
    gc.freeze()
    gc.set_threshold(COLLECTED)


def _one(
    source: Source, folder: Path, language: Language, formats: tuple[str, ...], job: tuple[Spec, Which]
) -> tuple[Regenerated, pd.DataFrame]:
    spec, which = job
    view = VIEWS[which](source, spec, language)
    base, table = folder / which / spec.stem, TABLES[which](view)
    drawn = _drawn(view, spec, which, source, language, formats)
    files = [write_whole(Path(f"{base}.{suffix}"), data) for suffix, data in drawn]
    files.append(write_csv(Path(f"{base}.csv"), table))
    return Regenerated(spec, which, tuple(files), len(table)), table


def _drawn(
    view: View, spec: Spec, which: Which, source: Source, language: Language, formats: tuple[str, ...]
) -> list[tuple[str, bytes]]:
    if not formats:
        return []
    notes = {"run": source.run_id, "figure": spec.file}
    style = style_named(STYLE)
    empty = "" if which == "as-published" else NO_MARK.of(language)
    page = printed_sheet(translated(view, language), spec, view.caption, language=language, empty=empty)
    return [(suffix, render(page, suffix, style, spec.stem, notes)) for suffix in formats]


def write_csv(path: Path, table: pd.DataFrame) -> Path:
    """Write a table, whole or not at all."""
    return write_whole(path, table.to_csv(index=False, lineterminator="\n").encode())
