"""A study's figures as rows of one table: what is drawn against what, how, and what the caption says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pandas as pd

from xdplab.errors import NotApplicableError
from xdplab.figures.marks import Axes, Look, Order, View, Words, collect, marks_frame

Row = dict[Any, Any]
Marks = list[dict[str, object]]
MakeView = Callable[[pd.DataFrame], View]


@dataclass(frozen=True)
class Content:
    """What a ``figure`` holds: of the study's ``table`` the chosen ``rows``, of these the ``marks``."""

    figure: Figure
    table: pd.DataFrame
    rows: pd.DataFrame
    marks: pd.DataFrame


Choose = Callable[[pd.DataFrame], pd.DataFrame]
Collect = Callable[["Figure", pd.DataFrame], Marks]
Part = str | Callable[[Content], str | Iterable[str]]


@dataclass(frozen=True)
class Columns:
    """The columns of the chosen rows that are drawn; several hues or panels are one label.

    ``scale`` divides ``y`` and its interval into the unit of the axis.
    """

    x: str = "x"
    y: str = "value"
    hue: tuple[str, ...] = ("hue",)
    panel: tuple[str, ...] = ("panel",)
    scale: float = 1.0


@dataclass(frozen=True)
class Figure:
    """One figure.

    ``choose`` returns rows of the table, of which ``columns`` are drawn. `each_row` makes a mark of each row with a
    value, ``collect`` may make others. ``{unit}`` in the label of an axis and ``{places}`` in the caption are those of
    the rows. ``nothing`` says why there is no figure; ``figure`` is its name in the marks; ``exact``: a repetition
    would give the values again.
    """

    name: str
    choose: Choose
    axes: Axes
    columns: Columns = Columns()
    kind: str = "line"
    caption: tuple[Part, ...] = ()
    order: Order | Callable[[Content], Order] = field(default_factory=Order)
    words: Words = field(default_factory=Words)
    collect: Collect | None = None
    nothing: str | Callable[[Figure, pd.DataFrame], str] = "nothing of it has been measured"
    figure: str = ""
    title: str = ""
    exact: bool = False


def view_of(figure: Figure, table: pd.DataFrame) -> View:
    """Return marks and look of one figure. Raises NotApplicableError if the table holds nothing for it."""
    rows = figure.choose(table)
    collect = figure.collect or each_row
    marks = collect(figure, rows.loc[rows[figure.columns.y].notna()]) if len(rows) else []
    if not marks:
        raise NotApplicableError(figure.nothing if isinstance(figure.nothing, str) else figure.nothing(figure, rows))
    content = Content(figure, table, rows, without_trends(marks_frame(marks), exact=figure.exact))
    caption = tuple(paragraph for part in figure.caption for paragraph in _paragraphs(part, content) if paragraph)
    axes = replace(figure.axes, y_label=figure.axes.y_label.format(unit=_unit(rows)))
    order = figure.order if isinstance(figure.order, Order) else figure.order(content)
    return View(content.marks, Look(axes, order, replace(figure.words, title=figure.title, caption=caption)))


FEWEST_OF_TREND = 3
"""Sizes that a line joins at least: two points are no trend."""


def without_trends(marks: pd.DataFrame, *, exact: bool) -> pd.DataFrame:
    """Return marks of which no line joins two points, or, unless they are ``exact``, values that were measured once."""
    lines = marks["kind"].eq("line")
    each = marks[lines].groupby(["panel", "hue"], dropna=False)
    apart = each["x"].transform("nunique") < FEWEST_OF_TREND
    if not exact:
        apart |= each["n"].transform("max").astype(float).fillna(1) < 2
    return marks.assign(kind=marks["kind"].mask(apart.reindex(marks.index, fill_value=False), "point"))


def views(figures: Iterable[Figure]) -> dict[str, MakeView]:
    """Return the function that makes each figure's view, by the figure's name."""
    return {figure.name: partial(view_of, figure) for figure in figures}


def mark_at(figure: Figure, **place: object) -> dict[str, object]:
    """Return what each mark of a figure has, and its ``place``."""
    name = figure.figure or figure.name
    return {"figure": name, "file": name, "kind": figure.kind, "verdict": "valid", **place}


OWN = ("low", "high", "n", "verdict", "points")
"""Columns of rows that marks have by the same name."""


def each_row(figure: Figure, rows: pd.DataFrame) -> Marks:
    """Return one mark per row.

    Read if the rows have them: ``low``, ``high``, ``n``, ``verdict``, ``points``, ``text`` (beside the mark),
    ``drawn_as`` (in place of the figure's kind).
    """
    panel, hue = figure.columns.panel, figure.columns.hue
    labelled = rows.assign(_panel=joined(rows, panel) if panel else None, _hue=joined(rows, hue))
    return [_mark(figure, row) for row in labelled.to_dict("records")]


def medians(figure: Figure, rows: pd.DataFrame) -> Marks:
    """Return one mark for the rows that have panel, hue and x in common: their median, with its interval."""
    return collect(rows, figure.name, figure.kind, figure.columns.scale, middle="median")


def _mark(figure: Figure, row: Row) -> dict[str, object]:
    columns = figure.columns
    mark = mark_at(figure, panel=row["_panel"], hue=row["_hue"], x=row[columns.x])
    mark |= {name: row[name] for name in OWN if name in row and not pd.isna(row[name])}
    mark |= {"value": row[columns.y], "label": row.get("text"), "kind": row.get("drawn_as", figure.kind)}
    return mark | {name: float(str(mark[name])) / columns.scale for name in ("value", "low", "high") if name in mark}


def joined(rows: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    """Return one label per row, of all these columns."""
    labels = rows[list(names)].astype(str).agg(" ".join, axis=1) if names and len(rows) else ""
    return pd.Series(labels, index=rows.index, dtype=object)


def _paragraphs(part: Part, content: Content) -> Sequence[str]:
    text = part if isinstance(part, str) else part(content)
    paragraphs = [text] if isinstance(text, str) else list(text)
    return [line.replace("{places}", places_of(content.rows)) if "{places}" in line else line for line in paragraphs]


def places_of(rows: pd.DataFrame) -> str:
    return "; ".join(dict.fromkeys(rows["label"]))


def _unit(rows: pd.DataFrame) -> str:
    """Return the unit of an axis; rows of places with different clocks name both."""
    return " or ".join(dict.fromkeys(rows["unit"].dropna())) if "unit" in rows else ""


def several_places(rows: pd.DataFrame) -> bool:
    """Return whether each place needs panels of its own: no figure mixes their units."""
    return bool(rows["label"].nunique() > 1)
