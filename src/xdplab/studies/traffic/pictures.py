"""The figures of a run of XDP traffic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from xdplab.figures.album import draw_all
from xdplab.figures.catalogue import CATALOGUE
from xdplab.figures.reading import read_narrowed
from xdplab.studies.traffic.runs import last_of_each

if TYPE_CHECKING:
    from xdplab.studies.traffic.kind import PlanRun


def draw_figures(run: PlanRun, *, names: Sequence[str] = (), style: str, out: Path | None = None) -> list[str]:
    """Draw all figures that apply (or ``names``) and say where they are, and why the others are not."""
    trials = last_of_each(run.attempts(read_narrowed))
    drawn = draw_all(trials, out or run.directory.figures, style=style, names=names)
    made = [
        f"figure {d.stem}, {CATALOGUE[d.name].text}: {next(f for f in d.files if f.suffix == '.png')}"
        for d in drawn
        if d.files
    ]
    return made + [f"no figure {d.stem}: {d.reason}" for d in drawn if not d.files]
