"""The figures of a run of XDP traffic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xdplab.figures import catalogue
from xdplab.figures.album import draw_all
from xdplab.figures.catalogue import CATALOGUE
from xdplab.figures.reading import read_narrowed
from xdplab.studies.kind import Run
from xdplab.studies.traffic.explain import explain as marks_of


def names(run: Run[Any]) -> list[str]:
    return list(CATALOGUE)


def draw(run: Run[Any], names: Sequence[str], style: str, out: Path | None) -> list[str]:
    """Draw all figures that apply (or ``names``) and say where they are, and why the others are not."""
    drawn = draw_all(run.rows(read_narrowed), out or run.directory.figures, style=style, names=names)
    files = [
        f"figure {d.stem}, {CATALOGUE[d.name].text}: {next(f for f in d.files if f.suffix == '.png')}"
        for d in drawn
        if d.files
    ]
    return files + [f"no figure {d.stem}: {d.reason}" for d in drawn if not d.files]


def figure(run: Run[Any], name: str | None, **options: Any) -> Any:
    """Draw one figure; ``options``: hue, panel, where, value, style, ax, figsize, caption."""
    return catalogue.figure(name or "throughput", run.rows(), **options)


def explain(run: Run[Any], figure: str, mark: str, data: Sequence[Path] = ()) -> list[str]:
    """Return the trials and raw files behind the marks of a figure; ``data`` are an import's logs."""
    return marks_of(run.directory, run.attempts(), figure, mark)
