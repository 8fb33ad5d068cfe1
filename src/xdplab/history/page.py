"""One HTML file of a history: what has changed first, then a plot for each point. It loads nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast
from urllib.parse import quote

import numpy as np
import pandas as pd

from xdplab.analysis.change import ChangeOverTime
from xdplab.analysis.values import is_null, three_digits
from xdplab.history import plots, shown
from xdplab.history.changes import ChangesOverTime
from xdplab.history.machines import MACHINE
from xdplab.history.plots import Shapes, Spot, shapes
from xdplab.run.disk import write_whole
from xdplab.studies.report import rendered
from xdplab.text import many

TEMPLATE = Path(__file__).with_name("page.html.j2")
MOST_LISTED, MOST_PLOTS, MOST_LINKED = 200, 400, 60
"""Changes in the list, plots in the page, and runs of a plot whose dots are links: the page opens in two seconds."""


@dataclass(frozen=True)
class RunLink:
    """A run's place in a plot, and where it leads."""

    spot: Spot
    href: str
    title: str


@dataclass(frozen=True)
class Mark(RunLink):
    """A change, by its number in the list."""

    number: int


@dataclass(frozen=True)
class Listed:
    """A change in the list, its plot, and where its two runs are."""

    change: ChangeOverTime
    plot: str
    before: str
    after: str


@dataclass(frozen=True)
class Plot:
    """The values of a metric, point and place over time; ``name`` is its place in the page."""

    name: str
    metric: str
    title: str
    shapes: Shapes
    marks: list[Mark]
    links: list[RunLink]
    caption: str


def write_page(rows: pd.DataFrame, over_time: ChangesOverTime, remarks: Sequence[str], path: Path) -> Path:
    """Write the page of the rows of a history. Raises ResultsError."""
    return write_whole(path, html(rows, over_time, remarks, path.absolute().parent).encode())


def html(rows: pd.DataFrame, over_time: ChangesOverTime, remarks: Sequence[str], folder: Path) -> str:
    """Return the page; ``folder`` is where it will be, and its links begin there."""
    dated = rows.assign(date=pd.to_datetime(rows["begun"], utc=True, format="ISO8601"))
    dated = dated[rows["value"].notna()].sort_values(["date", "path"], kind="stable")
    numbered: dict[_Key, dict[int, ChangeOverTime]] = {}
    for number, change in enumerate(over_time.changed, 1):
        numbered.setdefault((change.metric, change.point, change.place), {})[number] = change
    groups = {_key(names): group for names, group in dated.groupby(list(_KEY), sort=False, dropna=False)}
    order = sorted(groups, key=lambda key: min(numbered.get(key, {len(over_time.changed) + 1: None})))[:MOST_PLOTS]
    lead = cache(lambda run: _link(Path(run), folder))
    drawn = {key: _plot(f"p{n}", groups[key], numbered.get(key, {}), lead) for n, key in enumerate(order)}
    sections = {"Plots with a change": [plot for plot in drawn.values() if plot.marks]}
    for plot in drawn.values():
        if not plot.marks:
            sections.setdefault(plot.metric, []).append(plot)
    listed = [
        Listed(one, drawn[one.metric, one.point, one.place].name, lead(one.before_path), lead(one.path))
        for one in over_time.changed[:MOST_LISTED]
    ]
    return rendered(
        TEMPLATE,
        counted=", ".join([many(rows["run_id"].nunique(), "run"), f"{len(groups)} series"]),
        everywhere=list(shown.everywhere(rows)),
        listed=listed,
        more=len(over_time.changed) - len(listed),
        machines=over_time.machines,
        remarks=[*remarks, *over_time.remarks],
        sections=[(title, many(len(made), "plot"), made) for title, made in sections.items() if made],
        not_drawn=len(groups) - len(drawn),
        size=(plots.WIDTH, plots.HEIGHT, plots.LEFT, plots.RIGHT, plots.TOP, plots.BOTTOM),
    )


_KEY = ("metric", "point", "place")
_Key = tuple[str, str, str | None]


def _key(names: object) -> _Key:
    metric, point, place = cast("tuple[str, str, object]", names)
    return metric, point, None if is_null(place) else str(place)


def _plot(name: str, rows: pd.DataFrame, changed: dict[int, ChangeOverTime], lead: Callable[[str], str]) -> Plot:
    paths = rows["path"].tolist()
    machine = rows.groupby(list(MACHINE), sort=False, dropna=False).ngroup().to_numpy()
    borders = [int(run) + 1 for run in np.flatnonzero(np.diff(machine))]
    by_run = dict(sorted((paths.index(change.path), number) for number, change in changed.items()))
    metric = str(rows["metric"].iloc[0])
    made = shapes(rows, metric, list(by_run), borders)
    marks = [
        Mark(spot, lead(paths[run]), changed[number].text, number)
        for spot, (run, number) in zip(made.spots, by_run.items(), strict=True)
    ]
    first = rows.iloc[0]
    title = str(first["point"]) if is_null(first["place"]) else f"{first['point']}, {first['place']}"
    return Plot(name, metric, title, made, marks, _links(rows, made, lead), _caption(rows))


def _links(rows: pd.DataFrame, made: Shapes, lead: Callable[[str], str]) -> list[RunLink]:
    if len(rows) > MOST_LINKED:
        return []
    texts = (f"{run}: {three_digits(value)}" for run, value in zip(rows["run"], rows["value"], strict=True))
    return [RunLink(*one) for one in zip(made.places, map(lead, rows["path"]), texts, strict=True)]


def _caption(rows: pd.DataFrame) -> str:
    begun = [str(rows["begun"].iloc[place])[:16].replace("T", " ") for place in (0, -1)]
    return f"{many(len(rows), 'run')}, side by side, {' to '.join(dict.fromkeys(begun))}"


def _link(run: Path, folder: Path) -> str:
    """Return the way from a folder to a run: to its report if there is one, else to its folder, or to a bundle."""
    report = run / "report.html"
    place = os.path.relpath(report if report.is_file() else run, folder)
    return quote(place) + ("/" if run.is_dir() and not report.is_file() else "")
