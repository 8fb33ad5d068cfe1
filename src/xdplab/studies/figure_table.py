"""A study's figures as rows of one table: what is drawn against what, how, and what the caption says; and how a run of
such a kind draws them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from xdplab.errors import FigureError, NotApplicableError, PlanError
from xdplab.figures.factors import OF_WHAT, FigureFiles, filed, taken
from xdplab.figures.marks import Axes, Look, Order, View, Words, collect, marks_frame
from xdplab.figures.outcome import Drawn
from xdplab.figures.save import mapped, save
from xdplab.lazy import lazily
from xdplab.run.disk import write_whole
from xdplab.studies import environment
from xdplab.studies.kind import Run
from xdplab.studies.tables import markdown, write_tables

with lazily():
    from xdplab.figures import draw as drawer

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


@dataclass(frozen=True)
class Views:
    """Figures by name; ``possible``: those that a run's plan can give, so that others are not missed.

    ``with_tables``: the printed tables are written with the figures.
    """

    views: Mapping[str, MakeView]
    possible: Callable[[Any], Container[str]] | None = None
    with_tables: bool = False

    def names(self, run: Run[Any]) -> list[str]:
        return list(self.views)

    def draw(self, run: Run[Any], names: Sequence[str], **options: Any) -> list[Drawn]:
        for name in names:
            self._require(name)
        _require_none(options, run)
        _, output = filed(options, run.directory.figures)
        if self.with_tables:
            write_tables(run.tables(), run.directory.outputs / "tables")
        wanted = names or (self.views if self.possible is None else self.possible(run.plan))
        views = {name: make for name, make in self.views.items() if name in wanted}
        around = environment.summary(run.directory)
        return draw_views(views, run.rows(), output, run=run.directory.run_id, around=around)

    def figure(self, run: Run[Any], name: str | None, *, ax: Any = None, **options: Any) -> Any:
        """Draw one figure, by default the first that the run holds something for; ``options``: style, width, height,
        caption, ax. Raises FigureError."""
        if name is not None or not self.views:
            self._require(name or "")
        _require_none(options, run)
        _, style = taken(options)
        view = _with_surroundings(self._view(run.rows(), name), environment.summary(run.directory))
        return drawer.draw(view, style, ax=ax)

    def _view(self, rows: pd.DataFrame, name: str | None) -> View:
        *others, last = self.views if name is None else [name]
        for other in others:
            with suppress(NotApplicableError):
                return self.views[other](rows)
        return self.views[last](rows)

    def explain(self, run: Run[Any], figure: str, mark: str, data: Sequence[Path]) -> list[str]:
        raise PlanError(f"--explain is for XDP traffic: {run.directory.path} is of kind {run.kind.name}")

    def _require(self, name: str) -> None:
        if name not in self.views:
            raise FigureError(f"no figure {name!r}", remedy=f"figures are {', '.join(self.views)}")


def _require_none(options: Mapping[str, Any], run: Run[Any]) -> None:
    """Raise FigureError where a figure of a table would have to show something else than it does."""
    if given := [name for name in OF_WHAT if options.get(name) is not None]:
        raise FigureError(
            f"{given[0]} is chosen of figures of XDP traffic: {run.directory.path} is of kind {run.kind.name}",
            remedy="width, height, style and caption are chosen of any figure",
        )


def draw_views(
    views: Mapping[str, MakeView], table: pd.DataFrame, output: FigureFiles, *, run: str, around: str | None = None
) -> list[Drawn]:
    """Draw every figure the table holds something for, its marks as CSV and Markdown; for the rest, the reason.

    ``around``: what the run was measured with.
    """

    def draw(name: str) -> list[Drawn]:
        try:
            view = _with_surroundings(views[name](table), around)
            files = save(view, name, output, {"run": run})
        except FigureError as error:
            return [Drawn.refused(name, name, error)]
        shown = view.marks.drop(columns=["file", "limited_by"]).dropna(axis=1, how="all")
        caption = "\n".join(view.caption)
        text = f"# {view.look.words.title or view.look.axes.y_label}\n\n{markdown(shown)}\n{caption}\n"
        if not output.folder:
            return []
        return [Drawn(name, name, (*files, write_whole(output.folder / f"{name}.md", text.encode())))]

    return [
        one for drawn in mapped(draw, [*views], None if output.folder else 1, formats=output.formats) for one in drawn
    ]


def _with_surroundings(view: View, around: str | None) -> View:
    """Say what the run was measured with in the caption's last line; not on the figure, of whose height it would take
    half."""
    if not around:
        return view
    short = view.look.words.short_caption or view.caption
    return view.captioned((*view.caption, f"Measured with {around}."), short)
