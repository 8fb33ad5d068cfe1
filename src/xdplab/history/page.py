"""One HTML file of a history: what has changed first, then a plot for each point. It loads nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from xdplab.analysis.change import ChangeOverTime
from xdplab.analysis.values import is_null, three_digits
from xdplab.history import shown
from xdplab.history.changes import ChangesOverTime
from xdplab.history.machines import MACHINE
from xdplab.run.disk import write_whole
from xdplab.studies.report import rendered
from xdplab.text import many, unit_of

Numbers = NDArray[np.float64]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 940, 200, 62, 14, 34, 26
MOST_DATES, DATE_WIDTH = 7, 110
NUMBER_WIDTH, ROWS_OF_NUMBERS = 27, 2
_SCALES = {"1/s": (("Mpps", 1e6), ("kpps", 1e3), ("pps", 1.0)), "ns": (("ms", 1e6), ("µs", 1e3), ("ns", 1.0))}
_NEAR = 0.95
"""The share of the intervals that a plot has room for: those of two repetitions are twelve times as wide as others."""


@dataclass(frozen=True)
class Tick:
    """A place on an axis, and its text."""

    at: float
    text: str


@dataclass(frozen=True)
class Spot:
    """The place of a run in a plot."""

    x: float
    y: float
    row: int = 0
    """The row of a change's number above the plot: numbers side by side would cover each other."""


@dataclass(frozen=True)
class Shapes:
    """What a plot is drawn from, in its own units: ``dots``, ``intervals`` and ``levels`` are the data of paths."""

    unit: str
    dots: str
    intervals: str
    levels: str
    places: list[Spot]
    """Where each run is."""
    borders: list[float]
    """Where another machine begins."""
    spots: list[Spot]
    values: list[Tick]
    dates: list[Tick]


def shapes(rows: Any, metric: str, changed: Sequence[int], borders: Sequence[int]) -> Shapes:
    """Return the shapes of a series, its runs side by side in their order.

    ``changed``, ``borders``: the runs at which its value, or its machine, is another one.
    """
    values, low, high = (rows[name].to_numpy(dtype=float, na_value=np.nan) for name in ("value", "low", "high"))
    unit, divisor = _scale(metric, values)
    bottom, top = _reach(values, low, high)
    x = LEFT + (np.arange(len(values)) + 0.5) * (WIDTH - LEFT - RIGHT) / len(values)
    down = (HEIGHT - TOP - BOTTOM) / (top - bottom)
    y, y_low, y_high = (np.clip(TOP + (top - ends) * down, TOP, HEIGHT - BOTTOM) for ends in (values, low, high))
    ticks = MaxNLocator(4).tick_values(bottom / divisor, top / divisor)
    return Shapes(
        unit,
        _dots(x, y),
        _intervals(x, y_low, y_high),
        _levels(x, y, sorted({*changed, *borders})),
        [Spot(_at(a), _at(b)) for a, b in zip(x, y, strict=True)],
        [_at((x[run - 1] + x[run]) / 2) for run in borders],
        _spots(x, y, changed),
        [Tick(_at(TOP + (top - t * divisor) * down), f"{t:.10g}") for t in ticks if bottom <= t * divisor <= top],
        _dates(x, [str(begun) for begun in rows["begun"]]),
    )


def _scale(metric: str, values: Numbers) -> tuple[str, float]:
    """Return the unit in which the numbers of an axis are short, and what a value is divided by."""
    unit = unit_of(metric)
    largest = float(np.abs(values).max())
    scales = _SCALES.get(unit, ((unit, 1.0),))
    return next((scale for scale in scales if largest >= scale[1]), scales[-1])


def _reach(values: Numbers, low: Numbers, high: Numbers) -> tuple[float, float]:
    """Return from where to where a plot goes: all values, and nearly all intervals."""
    bottom, top = float(values.min()), float(values.max())
    if np.isfinite(low).any():
        bottom = min(bottom, float(np.nanquantile(low, 1 - _NEAR)))
        top = max(top, float(np.nanquantile(high, _NEAR)))
    room = 0.06 * (top - bottom) or abs(top) * 0.05 or 1.0
    return bottom - room, top + room


def _at(number: float) -> float:
    return round(float(number), 1)


def _dots(x: Numbers, y: Numbers) -> str:
    """Return a stroke without length for each value, which a round end makes a dot; one for those at one pixel."""
    return "".join(f"M{a} {b}h0" for a, b in dict.fromkeys(zip(x.round(1).tolist(), y.round().tolist(), strict=True)))


def _intervals(x: Numbers, low: Numbers, high: Numbers) -> str:
    """Return a stroke for each interval, or for those that share a pixel."""
    here = np.isfinite(low) & np.isfinite(high)
    x, low, high = x[here], low[here], high[here]
    if len(x) > WIDTH:
        x, first = np.unique(x.round(), return_index=True)
        low, high = np.maximum.reduceat(low, first), np.minimum.reduceat(high, first)
    ends = zip(x.round(1).tolist(), low.round().tolist(), high.round().tolist(), strict=True)
    return "".join(f"M{a} {b:.0f}V{c:.0f}" for a, b, c in ends)


def _levels(x: Numbers, y: Numbers, borders: Sequence[int]) -> str:
    """Return a line at the mean of the runs between two changes, if there is one."""
    if not borders:
        return ""
    half = (x[1] - x[0]) / 2 if len(x) > 1 else 0.0
    pieces = zip(np.split(x, borders), np.split(y, borders), strict=True)
    return "".join(f"M{_at(at[0] - half)} {_at(level.mean())}H{_at(at[-1] + half)}" for at, level in pieces)


def _spots(x: Numbers, y: Numbers, runs: Sequence[int]) -> list[Spot]:
    spots: list[Spot] = []
    for run in runs:
        near = bool(spots) and x[run] - spots[-1].x < NUMBER_WIDTH
        row = (spots[-1].row + 1) % ROWS_OF_NUMBERS if near else 0
        spots.append(Spot(_at(x[run]), _at(y[run]), row))
    return spots


def _dates(x: Numbers, begun: Sequence[str]) -> list[Tick]:
    """Return some days, or times where all are of one day, none of them twice and none over another."""
    one_day = begun[0][:10] == begun[-1][:10]
    texts = [text[11:16] if one_day else text[:10] for text in begun]
    ticks: list[Tick] = []
    for run in np.unique(np.linspace(0, len(x) - 1, MOST_DATES).round().astype(int)):
        if not ticks or (x[run] - ticks[-1].at >= DATE_WIDTH and texts[run] != ticks[-1].text):
            ticks.append(Tick(_at(x[run]), texts[run]))
    return ticks


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
        size=(WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM),
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
