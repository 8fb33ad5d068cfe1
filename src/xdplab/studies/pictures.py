"""The figures of kinds of run whose views are made of their table."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from xdplab.errors import FigureError, NotApplicableError, PlanError
from xdplab.figures.factors import OF_WHAT, FigureFiles, filed, taken
from xdplab.figures.marks import View
from xdplab.figures.outcome import Drawn
from xdplab.figures.save import mapped, save
from xdplab.lazy import lazily
from xdplab.run.disk import write_whole
from xdplab.studies import environment
from xdplab.studies.kind import Run
from xdplab.studies.tables import markdown, write_tables

with lazily():
    from xdplab.figures import draw as drawer

MakeView = Callable[[pd.DataFrame], View]


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
