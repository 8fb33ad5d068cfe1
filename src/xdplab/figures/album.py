"""Draws every figure that a run has data for, split so that no values are mixed; gives the reason for every other.

The gallery is a page with each of them in every style, to review before printing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path

import pandas as pd

from xdplab.analysis.intervals import MixedPointsError
from xdplab.errors import FigureError
from xdplab.figures.catalogue import CATALOGUE, chosen, entry_named, narrowed, prepared
from xdplab.figures.factors import (
    FACTORS,
    MAX_HUES,
    NEVER_MIXED,
    FigureChoice,
    FigureFiles,
    FigureRequest,
    Layout,
    levels,
)
from xdplab.figures.marks import View
from xdplab.figures.outcome import Drawn
from xdplab.figures.save import mapped, provenance, save
from xdplab.figures.styles import STYLES
from xdplab.run.disk import write_whole

MOST_FIGURES = 12  # per name: more are not looked at
CHOOSES_ITSELF = FigureChoice()


def draw_all(
    trials: pd.DataFrame,
    output: FigureFiles,
    names: Sequence[str] = (),
    choice: FigureChoice = CHOOSES_ITSELF,
) -> list[Drawn]:
    """Draw every figure of the catalogue (or ``names``) as ``output`` says; one entry per figure, drawn or not.

    Without a folder none is drawn, and there are entries of those that could not be.

    Raises FigureError where no trial is as ``choice`` wants.
    """
    trials = narrowed(chosen(trials, choice.where or {}))
    draw = partial(_draw_name, trials, output, choice, provenance(trials))
    processes = None if output.folder else 1
    again = bool(trials["point_id"].duplicated().any())
    drawn = mapped(draw, names or [*CATALOGUE], processes, formats=output.formats, intervals=again)
    return [one for figures in drawn for one in figures]


def _draw_name(
    trials: pd.DataFrame, output: FigureFiles, choice: FigureChoice, source: Mapping[str, str], name: str
) -> list[Drawn]:
    done: list[Drawn] = []
    for stem, drawn in views_of(name, trials, choice):
        try:
            if not isinstance(drawn, View):
                raise drawn
            if files := save(drawn, stem, output, source):
                done.append(Drawn(name, stem, files, text=entry_named(name).text))
        except FigureError as error:
            done.append(Drawn.refused(name, stem, error))
    return done


def views_of(
    name: str, trials: pd.DataFrame, choice: FigureChoice = CHOOSES_ITSELF
) -> Iterator[tuple[str, View | FigureError]]:
    """Yield (stem, view) of each figure that ``name`` makes of these trials, or (stem, why there is none)."""
    count = 0
    together = (*entry_named(name).across, *(choice.hues or ()), *(choice.panels or ()))
    apart = [factor for factor in NEVER_MIXED if factor not in together and trials[factor].nunique() > 1]
    for mixed, group in split(trials, apart):
        stem = "-".join((name, *mixed))
        try:
            _, request = prepared(name, group, choice)
        except FigureError as error:
            yield stem, error
            continue
        parts = list(split(request.trials, request.layout.rest, request.shown))
        for rest, rows in parts[: MOST_FIGURES - count]:
            yield "-".join((stem, *rest)), _view(name, request, rows, (*apart, *request.layout.rest))
        count += len(parts)
        if count > MOST_FIGURES:
            varying = ", ".join(request.layout.rest)
            yield stem, FigureError(f"{count} figures would be too many: {varying} vary", remedy=CHOOSE)
            return


CHOOSE = "choose with --where, in a notebook with where="


def _view(name: str, request: FigureRequest, rows: pd.DataFrame, apart: tuple[str, ...]) -> View | FigureError:
    layout = Layout(request.layout.x, request.layout.hue, request.layout.panel)
    part = FigureRequest(name, rows, layout, request.value, apart)
    if layout.hue and len(part.shown[list(layout.hue)].drop_duplicates()) > MAX_HUES:
        return FigureError(f"more than {MAX_HUES} levels of {' and '.join(layout.hue)}", remedy=CHOOSE)
    try:
        return entry_named(name).build(part)
    except MixedPointsError as error:
        return FigureError(error.message, remedy=error.remedy)


def split(
    trials: pd.DataFrame, names: Sequence[str], among: pd.DataFrame | None = None
) -> Iterator[tuple[tuple[str, ...], pd.DataFrame]]:
    """Yield (slugs, rows) of each combination of ``names`` found ``among`` the rows, in the factors' order.

    Valid trials to which a factor does not apply are a combination of their own, without its slug.
    """
    if not names:
        yield (), trials
        return
    first, *others = names
    source = trials if among is None else among
    without = (source[first].isna() & source["verdict"].eq("valid")).any()
    for level in [*levels(source, first), *([None] if without else [])]:
        rows = _at(trials, first, level)
        inner = None if among is None else _at(among, first, level)
        for slugs, part in split(rows, others, inner):
            yield (*(() if level is None else (slug(first, level),)), *slugs), part


def _at(rows: pd.DataFrame, name: str, level: object) -> pd.DataFrame:
    return rows[rows[name].isna() if level is None else rows[name].isin([level])]


def slug(name: str, level: object) -> str:
    """Return a level as a part of a file name: ``64B``, ``chase-read``, ``8q``."""
    labels = {"frame_bytes": f"{level}B", "queues": f"{level}q", "accesses": f"N{level}", "arrangement": str(level)}
    return re.sub(r"[^A-Za-z0-9.]+", "-", labels.get(name, FACTORS[name].shown.short(str(level)))).strip("-")


DrawIn = Callable[[str, Path], Sequence[Drawn]]
"""Draws all figures in a style into a folder."""

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Figures of {name}</title>
<style>body {{ font-family: sans-serif; margin: 1rem; }}
figure {{ display: inline-block; margin: 0 1rem 1rem 0; vertical-align: top; }}
img {{ border: 1px solid #ccc; max-width: 100%; }} figcaption {{ color: #444; }}</style></head>
<body><h1>Figures of {name}</h1>
{body}</body></html>
"""


def write_gallery(name: str, draw_in: DrawIn, folder: Path) -> Path:
    """Draw every figure in each style into ``folder/STYLE`` and return the page that shows them, by figure.

    Images have the size at which they are printed. Raises ResultsError where a file cannot be written.
    """
    absent: dict[str, None] = {}
    for style in STYLES:
        drawn = draw_in(style, folder / style)
        absent |= dict.fromkeys(f"{figure.stem}: {figure.reason}" for figure in drawn if not figure.files)
    stems = {path.stem: None for style in STYLES for path in sorted((folder / style).glob("*.svg"))}
    parts = [_in_each_style(stem, folder) for stem in stems]
    parts += ["<h2>Not there</h2>", "<ul>", *(f"<li>{escape(line)}</li>" for line in absent), "</ul>"] if absent else []
    page = PAGE.format(name=escape(name), body="\n".join(parts))
    return write_whole(folder / "gallery.html", page.encode())


def _in_each_style(stem: str, folder: Path) -> str:
    """Return a heading with the figure in each style that has it."""
    shown = [style for style in STYLES if (folder / style / f"{stem}.svg").is_file()]
    images = "\n".join(
        f'<figure><img src="{escape(style)}/{escape(stem)}.svg" alt="{escape(stem)}, {escape(style)}">'
        f"<figcaption>{escape(style)}</figcaption></figure>"
        for style in shown
    )
    return f"<h2>{escape(stem)}</h2>\n{images}"
