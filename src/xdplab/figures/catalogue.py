"""The figures by name, and the one way to ask for them: choose rows, arrange factors, build the view, draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from numpy.typing import NDArray

from xdplab.analysis.series import settled, with_baselines
from xdplab.figures import views
from xdplab.figures.draw import draw
from xdplab.figures.factors import (
    ALIASES,
    FACTORS,
    FigureError,
    NotApplicableError,
    arrange,
    compound,
    levels,
)
from xdplab.figures.marks import View
from xdplab.figures.styles import Style
from xdplab.figures.views import Request, need, only

MOST_FIGURES = 12  # of one name; more is an album nobody looks at


@dataclass(frozen=True)
class Entry:
    """``select`` takes the settled trials and the value asked for; it returns (rows, value column) or raises.

    ``hues`` and ``panels`` are the factors preferred there; ``ignore`` names factors that make no difference here.
    """

    text: str
    select: Callable[[pd.DataFrame, str | None], tuple[pd.DataFrame, str]]
    build: Callable[[Request], View]
    x: str = "accesses"
    hues: tuple[str, ...] = ("queues", "program_name", "frame_bytes", "working_set_bytes", "mode")
    panels: tuple[str, ...] = ("mode",)


def _by_accesses(trials: pd.DataFrame, value: str) -> pd.DataFrame:
    known = only(trials, trials["accesses"].notna(), "no program with a known number of accesses")
    return need(with_baselines(known), value, f"no trial has {value}")


def _throughput(trials: pd.DataFrame, value: str | None) -> tuple[pd.DataFrame, str]:
    value = value or "forwarded_pps"
    rows = _by_accesses(trials, value)
    if views.believable(rows, value)["accesses"].nunique() < 2:
        raise NotApplicableError("only one N was measured: there is nothing to draw it against")
    return rows, value


def _baseline(trials: pd.DataFrame, value: str | None) -> tuple[pd.DataFrame, str]:
    value = value or "forwarded_pps"
    rows = only(trials, trials["accesses"].eq(0), "N = 0 was not measured")
    program = ("program_name", "form", "map_type", "working_set_bytes")
    same = rows.assign(**{name: pd.array([pd.NA] * len(rows), dtype=rows[name].dtype) for name in program})
    return need(same, value, f"no trial of N = 0 has {value}"), value


def _programs(trials: pd.DataFrame, value: str | None) -> tuple[pd.DataFrame, str]:
    value = value or "forwarded_pps"
    only(trials, trials["accesses"].isna() & trials["program_name"].notna(), "no program of the user's own")
    return need(trials, value, f"no trial has {value}"), value


def _busy(trials: pd.DataFrame, value: str | None) -> tuple[pd.DataFrame, str]:
    for name in [value] if value else ["cpu_busy_cores", "host_busy_cores"]:
        if trials[name].notna().any():
            return _by_accesses(trials, name), name
    raise NotApplicableError("CPU use was not measured")


CATALOGUE: dict[str, Entry] = {
    "throughput": Entry("forwarding rate against accesses per packet", _throughput, views.throughput),
    "baseline": Entry(
        "forwarding rate of the program without accesses, by frame size", _baseline, views.baseline,
        x="frame_bytes", hues=("mode", "queues"), panels=("queues",),
    ),
    "programs": Entry(
        "forwarding rate by program, the user's own among them", _programs, views.programs, x="program",
        hues=("mode", "queues"), panels=("queues", "frame_bytes"),
    ),
    "busy": Entry("busy CPUs against accesses per packet", _busy, views.busy),
}  # fmt: skip


def entry_named(name: str) -> Entry:
    """Return a catalogue entry. Raises FigureError for an unknown name."""
    if name not in CATALOGUE:
        raise FigureError(f"unknown figure {name!r}", remedy=f"one of {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


def chosen(trials: pd.DataFrame, where: Mapping[str, object] | None) -> pd.DataFrame:
    """Return the rows where each named column has the value, or one of the values, asked for. Raises FigureError."""
    for word, wanted in (where or {}).items():
        name = ALIASES.get(word, word)
        if name not in trials:
            raise FigureError(f"where: no column {word!r}", remedy=f"for example {', '.join(FACTORS)}")
        wanted_all = list(wanted) if isinstance(wanted, list | tuple | set) else [wanted]
        there = levels(trials, name)
        trials = trials[trials[name].isin(wanted_all).fillna(False).astype(bool)]
        if trials.empty:
            found = ", ".join(map(str, there)) or "only nulls"
            raise FigureError(f"where: no trial has {word} = {wanted!r}", remedy=f"there is {found}")
    return trials


def _prepared(
    name: str, trials: pd.DataFrame, hue: str | None, panel: str | None, value: str | None
) -> tuple[Entry, Request]:
    entry = entry_named(name)
    if value is not None and value not in trials:
        raise FigureError(f"no column {value!r}", remedy="a rate, a time or a share of trials.parquet")
    rows, column = entry.select(settled(trials), value)
    rows = rows.assign(program=views.program_labels(rows)) if entry.x == "program" else rows
    shown = views.believable(rows, column)
    layout = arrange(shown, entry.x, hue, panel, entry.hues, entry.panels)
    return entry, Request(name, rows, layout, column)


def view(
    name: str,
    trials: pd.DataFrame,
    *,
    hue: str | None = None,
    panel: str | None = None,
    where: Mapping[str, object] | None = None,
    value: str | None = None,
) -> View:
    """Return the marks and look of a figure. Raises FigureError, NotApplicableError."""
    entry, request = _prepared(name, chosen(trials, where), hue, panel, value)
    shown = views.believable(request.trials, request.value)
    return entry.build(Request(name, request.trials, compound(shown, request.layout), request.value))


def figure(
    name: str,
    trials: pd.DataFrame,
    *,
    hue: str | None = None,
    panel: str | None = None,
    style: str | Style = "paper-1col",
    where: Mapping[str, object] | None = None,
    value: str | None = None,
) -> Axes | NDArray[Any]:
    """Draw one figure of the catalogue from trials; return its Axes, or an array of them.

    ``hue`` and ``panel`` name factors (``""`` for none); ``where`` picks trials, for example
    ``{"engine": "live", "frame_bytes": [64, 1500]}``; ``value`` another column, such as ``forwarded_l2_bps``.
    Raises FigureError with what to choose where the trials do not fit one figure.
    """
    return draw(view(name, trials, hue=hue, panel=panel, where=where, value=value), style)
