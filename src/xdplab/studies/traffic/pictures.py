"""The figures of a run of XDP traffic, and the way from a mark back to its trials and their raw files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from xdplab.errors import FigureError
from xdplab.figures import catalogue
from xdplab.figures.album import draw_all, views_of
from xdplab.figures.catalogue import CATALOGUE, read_narrowed
from xdplab.figures.factors import filed
from xdplab.figures.marks import View
from xdplab.figures.outcome import Drawn
from xdplab.run.rundir import RunDirectory
from xdplab.studies.kind import Run
from xdplab.studies.traffic.kind import is_race
from xdplab.studies.traffic.race import side_order


def names(run: Run[Any]) -> list[str]:
    return list(CATALOGUE)


def draw(run: Run[Any], names: Sequence[str], **options: Any) -> list[Drawn]:
    """Draw all figures that apply (or ``names``). A race has one point a side: figures over points are none of its."""
    choice, output = filed(options, run.directory.figures)
    trials = run.rows() if choice.where else run.rows(read_narrowed)  # any column may choose
    drawn = draw_all(_in_order(run, trials), output, names, choice)
    return drawn if names or not is_race(run) else [one for one in drawn if not one.lacking]


def figure(run: Run[Any], name: str | None, **options: Any) -> Any:
    """Draw one figure; ``options``: hue, panel, where, value, style, width, height, caption, ax."""
    return catalogue.figure(name or "throughput", _in_order(run, run.rows()), **options)


def _in_order(run: Run[Any], trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials of a race with its programs in the order of its sides; those of another run unchanged."""
    if not is_race(run):
        return trials
    names = trials.drop_duplicates("point_id").set_index("point_id")["program_name"].astype("str")
    ordered = list(dict.fromkeys(names[point] for point in side_order(run.directory) if point in names.index))
    return trials.assign(program_name=pd.Categorical(trials["program_name"].astype("str"), ordered, ordered=True))


def explain(run: Run[Any], figure: str, mark: str, data: Sequence[Path] = ()) -> list[str]:
    """Return the trials and raw files behind the marks of a figure; ``data`` are an import's logs."""
    return marks_of(run.directory, run.attempts(), figure, mark)


Place = tuple[str, str, str]
"""Panel, hue and x of a mark."""


def marks_of(run: RunDirectory, trials: pd.DataFrame, figure: str, mark: str) -> list[str]:
    """Return each mark that ``mark`` names, the values of its repetitions, and the raw files of its trials, once.

    ``mark`` is ``PANEL|HUE|X`` as in the figure's CSV; parts may be omitted, and panels abbreviated. Raises
    FigureError if there is no such mark.
    """
    return list(_of_run(run, trials, figure, mark))


def matches(place: Place, mark: str) -> bool:
    """True where each part of ``mark`` (up to three) equals its place's label, or a whole word of it."""
    labels = tuple(label.lower() for label in place)
    parts = [part.strip().lower() for part in re.split(r"[|/;,]", mark)]
    if len(parts) > 3:
        return False
    if len(parts) < 3:
        return all(any(part == label or part in label.split() for label in labels) for part in parts)
    return all(part in ("", "*", label) or part in label.split() for part, label in zip(parts, labels, strict=True))


def _of_run(run: RunDirectory, trials: pd.DataFrame, figure: str, mark: str) -> Iterator[str]:
    count = 0
    for stem, view in views_of(figure, trials):
        if not isinstance(view, View):
            continue
        marks = view.marks[view.marks["kind"].ne("fit")]
        places = [(str(row["panel"] or ""), str(row["hue"] or ""), str(row["x"])) for row in marks.to_dict("records")]
        for place in dict.fromkeys(place for place in places if matches(place, mark)):
            count += 1
            here = marks[[other == place for other in places]]
            yield from _mark_lines(f"{stem}: {' | '.join(place)}", here)
            points = dict.fromkeys(point for one in here["points"].astype(str) for point in one.split(","))
            yield from _raw_lines(run, trials, list(points))
    if not count:
        raise FigureError(f"{figure} has no mark {mark!r}", remedy="PANEL|HUE|X as in the figure's CSV")


def _mark_lines(title: str, marks: pd.DataFrame) -> Iterator[str]:
    raw = marks["kind"].eq("raw")
    for row in marks[~raw].to_dict("records"):
        n = "" if pd.isna(row["n"]) else f", n = {row['n']:.0f}"
        yield f"{title}: {row['value']:g} {row['kind']}{n}"
    if raw.any():
        yield f"  one repetition each: {', '.join(f'{value:g}' for value in marks.loc[raw, 'value'])}"


def _raw_lines(run: RunDirectory, trials: pd.DataFrame, points: Sequence[str]) -> Iterator[str]:
    for row in trials[trials["point_id"].isin(points)].itertuples():
        folder = run.raw_dir(str(row.trial_id), int(str(row.attempt)))
        files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        where = folder.relative_to(run.path).as_posix()
        text = f"{where}/: {', '.join(files)}" if files else "no raw file"
        yield f"  repetition {row.repetition}, attempt {row.attempt}, {row.verdict}: {text}"
