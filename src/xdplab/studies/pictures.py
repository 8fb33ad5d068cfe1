"""The figures of kinds of run whose views are made of their table."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from xdplab.errors import FigureError, NotApplicableError, PlanError
from xdplab.figures.album import Drawn
from xdplab.figures.marks import View
from xdplab.figures.save import save
from xdplab.lazy import lazy
from xdplab.run.disk import write_whole
from xdplab.studies import environment
from xdplab.studies.kind import Run
from xdplab.studies.tables import markdown, write_tables

if TYPE_CHECKING:
    from xdplab.figures import draw as drawer
else:
    drawer = lazy("xdplab.figures.draw")

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

    def draw(self, run: Run[Any], names: Sequence[str], style: str, out: Path | None) -> list[str]:
        for name in names:
            self._require(name)
        if self.with_tables:
            write_tables(run.tables(), run.directory.outputs / "tables")
        wanted = names or (self.views if self.possible is None else self.possible(run.plan))
        views = {name: make for name, make in self.views.items() if name in wanted}
        around = environment.summary(run.directory)
        folder = out or run.directory.figures
        return lines(draw_views(views, run.rows(), folder, style=style, run=run.directory.run_id, around=around))

    def figure(self, run: Run[Any], name: str | None, **options: Any) -> Any:
        """Draw one figure; ``options``: style, ax, figsize, caption."""
        chosen = name or next(iter(self.views), "")
        self._require(chosen)
        return drawer.draw(self.views[chosen](run.rows()), **options)

    def explain(self, run: Run[Any], figure: str, mark: str, data: Sequence[Path]) -> list[str]:
        raise PlanError(f"--explain is for XDP traffic: {run.directory.path} is of kind {run.kind.name}")

    def _require(self, name: str) -> None:
        if name not in self.views:
            raise FigureError(f"no figure {name!r}", remedy=f"figures are {', '.join(self.views)}")


def lines(drawn: Sequence[Drawn]) -> list[str]:
    """Return a line per figure: where it is, or why it is not."""
    lines = []
    for figure in drawn:
        where = next((file for file in figure.files if file.suffix == ".png"), None)
        lines.append(f"figure {figure.stem}: {where}" if where else f"no figure {figure.stem}: {figure.reason}")
    return lines


def draw_views(
    views: Mapping[str, MakeView], table: pd.DataFrame, folder: Path, *, style: str, run: str, around: str | None = None
) -> list[Drawn]:
    """Draw every figure the table holds something for, its marks as CSV and Markdown; for the rest, the reason.

    ``around``, what the run was measured with, is the last line of each caption; it is not on the figure, where it
    would take half of the height.
    """
    drawn = []
    for name, make in views.items():
        try:
            view = make(table)
        except NotApplicableError as error:
            drawn.append(Drawn(name, name, (), str(error)))
            continue
        if around:
            short = view.look.words.short_caption or view.caption
            view = view.captioned((*view.caption, f"Measured with {around}."), short)
        files = save(view, folder / name, style=style, source={"run": run})
        shown = view.marks.drop(columns=["file", "limited_by"]).dropna(axis=1, how="all")
        caption = "\n".join(view.caption)
        text = f"# {view.look.axes.y_label}\n\n{markdown(shown)}\n{caption}\n"
        note = write_whole(folder / f"{name}.md", text.encode())
        drawn.append(Drawn(name, name, (*files, note)))
    return drawn
