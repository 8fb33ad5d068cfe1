"""Views: trials in, marks and their look out. One function per figure; values come in the unit of the axis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product

import pandas as pd

from xdplab.analysis.series import rows_where, valid
from xdplab.errors import NotApplicableError
from xdplab.figures.caption import MADE_OF, Captioned, caption, short_caption, why_null
from xdplab.figures.factors import (
    FACTORS,
    FigureRequest,
    free_factors,
    is_believable,
    label_column,
    label_order,
    levels,
    title_of,
)
from xdplab.figures.marks import Axes, Look, Order, Scale, View, collect, marks_frame
from xdplab.plan.factors import of_program

UNITS: dict[str, tuple[tuple[float, str], ...]] = {
    "pps": ((1e6, "Mpps"), (1e3, "kpps"), (1.0, "pps")),
    "bps": ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")),
    "ns": ((1e6, "ms"), (1e3, "µs"), (1.0, "ns")),
}


def unit_of(values: pd.Series, family: str) -> tuple[float, str]:
    """Return (divisor, unit) that leaves the greatest value between 1 and 1000."""
    most = values.abs().max()
    table = UNITS[family]
    return next(((size, unit) for size, unit in table if most >= size), table[-1])


def labelled(request: FigureRequest, x: pd.Series | None = None) -> pd.DataFrame:
    """Return the rows that make marks with the columns panel, hue, x and value."""
    rows, layout = request.shown, request.layout
    places = rows[layout.x] if x is None else x.loc[rows.index]
    return pd.DataFrame(
        {
            "panel": label_column(rows, layout.panel, alone=True),
            "hue": label_column(rows, layout.hue, alone=False),
            "x": places.astype("object"),
            "value": rows[request.value].astype(float),
            "verdict": rows["verdict"].astype("object"),
            "limited_by": rows["limited_by"].astype("object"),
            "point_id": rows["point_id"].astype("object"),
            "repetition": rows.get("repetition"),  # a ratio of two runs has none
        }
    )


def unlimited(rows: pd.DataFrame) -> pd.DataFrame:
    """Return ``rows`` without their limits: who limited the rate bounds a rate, not a share, a count or a time."""
    return rows.assign(limited_by=None)


def described(
    request: FigureRequest,
    marks: Iterable[Mapping[str, object]],
    look: Look,
    *notes: str,
    beside: Sequence[str] = (),
    intervals: str = "95 % t interval",
) -> View:
    """Return the view of ``marks``, with captions, colours, and the orders of its hues and panels.

    ``look`` has what is this figure's own, ``notes`` are its own paragraphs of the caption; factors ``beside`` differ
    among the marks; ``intervals`` is what error bars are.
    """
    table, panel, figure = marks_frame(marks), request.layout.panel, Captioned(request)
    shown, used = request.shown, (*request.used, *beside)
    order = replace(
        look.order,
        palette=palette_of(request.layout.hue),
        columns=shown[panel[-1]].nunique() if len(panel) > 1 else 0,
        grid=len(panel) == ROWS_AND_COLUMNS,
        hues=hue_order(request),
        panels=label_order(crossed(shown, panel) if len(panel) == ROWS_AND_COLUMNS else shown, panel, alone=True),
    )
    words = replace(
        look.words,
        hue_title=title_of(request.layout.hue),
        caption=caption(figure, table, used, *notes, intervals=intervals),
        short_caption=short_caption(figure),
        intervals="95 % intervals",
    )
    return View(table, replace(look, order=order, words=words))


ROWS_AND_COLUMNS = 2


def crossed(shown: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return each combination of the factors' levels, a row each, also those that were not measured."""
    present = [[*levels(shown, name), *([None] if shown[name].isna().any() else [])] for name in names]
    return pd.DataFrame(list(product(*present)), columns=list(names))


def hue_order(request: FigureRequest) -> tuple[str, ...]:
    return label_order(request.shown, request.layout.hue, alone=False)


PALETTES = {"mode": "colorblind", "program_name": "colorblind:3", "quantile": "viridis"}


def palette_of(hue: Sequence[str]) -> str:
    """Return the palette of a factor: a colour means one thing in all figures of a run.

    Modes have the first colours, programs later ones, and levels that are numbers go from dark to light.
    """
    first = hue[0] if hue else "mode"
    numbers = first in FACTORS and FACTORS[first].dtype in ("int", "float")
    return PALETTES.get(first, "viridis" if numbers else "colorblind:7")


def closed_loop(trials: pd.DataFrame) -> str:
    """Return what the rates of a closed loop hold, or nothing: how much of a packet's time is the program at N = 0.

    Of points that differ, such as of several frame sizes, the least and the most: a median over them is none's.
    """
    read = ["run_id", "point_id", "trial_id", "attempt", "verdict", "arrangement", "accesses", "mode", "ns_per_packet"]
    trials = trials[[*read, "testrun_raw_ns"]]  # rows of fewer columns are selected in less time
    loop = valid(rows_where(trials, trials["arrangement"].eq("shared")))
    if loop.empty:
        return ""
    zeros = loop[loop["accesses"].eq(0).fillna(False) & loop["ns_per_packet"].notna() & loop["testrun_raw_ns"].notna()]
    shares = []
    for mode in levels(zeros, "mode"):
        rows = zeros[zeros["mode"].eq(str(mode))]
        program_ns, whole = (
            _middle(rows, name, digits) for name, digits in (("testrun_raw_ns", 1), ("ns_per_packet", 0))
        )
        shares.append(f"{program_ns} of {whole} ns in {FACTORS['mode'].label(mode)} mode")
    program = f" At N = 0 the program itself takes {', '.join(shares)}; the rest is the harness." if shares else ""
    return f"A closed loop: sender, link, DUT and receiver share the CPUs, and no NIC moves the payload.{program}"


ALIKE = 0.05
"""Medians of points that differ by no larger share are told as one number."""


def _middle(rows: pd.DataFrame, name: str, digits: int) -> str:
    medians = rows[name].astype(float).groupby(rows["point_id"]).median()
    if medians.max() > (1 + ALIKE) * medians.min():
        return f"{medians.min():.{digits}f} to {medians.max():.{digits}f}"
    return f"{rows[name].astype(float).median():.{digits}f}"


RATES = {
    "forwarded_pps": ("pps", "forwarding rate"),
    "forwarded_l2_bps": ("bps", "throughput"),
    "offered_pps": ("pps", "offered rate"),
}
ACCESSES = "memory accesses per packet (N)"


def _rate_view(
    request: FigureRequest, kind: str, x_label: str, x_scale: Scale = "category", x_values: tuple[object, ...] = ()
) -> View:
    rows = labelled(request)
    family, label = RATES[request.value]
    size, unit = unit_of(rows["value"], family)
    look = Look(Axes(x_label, f"{label} ({unit})", x_scale), Order(x_values=x_values))
    marks = collect(rows, request.figure, kind, size)
    del rows  # of a million trials it takes as much as a caption's own tables
    return described(request, marks, look, closed_loop(request.trials))


def throughput(request: FigureRequest) -> View:
    """Forwarding rate against N."""
    return _rate_view(request, "line", ACCESSES, "counts")


def baseline(request: FigureRequest) -> View:
    """Forwarding rate of N = 0 by frame size; frames of several sizes come last."""
    sizes = sorted(request.trials["frame_bytes"].dropna().unique(), key=lambda size: (isinstance(size, str), size))
    return _rate_view(request, "bar", "frame size (B, with FCS)", x_values=tuple(sizes))


def programs(request: FigureRequest) -> View:
    """Forwarding rate by program, the user's own among them."""
    names = request.trials["program"]
    order = tuple(
        dict.fromkeys(names.loc[request.trials.sort_values(["program_name", "accesses"], kind="stable").index])
    )
    return _rate_view(request, "bar", "program", x_values=order)


def program_labels(trials: pd.DataFrame) -> pd.Series:
    """Return ``chase read, N = 100`` for generated programs and the file's name for a user's.

    What else distinguishes programs of one name, such as their ``rodata``, stands behind it.
    """
    named = ["program_name", "accesses"]
    for name in free_factors(trials, named):
        named += [name] if of_program(FACTORS[name]) and name in free_factors(trials, named) else []
    return label_column(trials, named, alone=True)


def busy(request: FigureRequest) -> View:
    """Busy CPUs in the window against N: the DUT's, or the whole machine's where TG and DUT share it."""
    marks = collect(unlimited(labelled(request)), request.figure, "line")
    whose = "DUT" if request.value.startswith("cpu_") else "whole machine"
    look = Look(Axes(ACCESSES, f"busy CPUs ({whose})", "counts"))
    return described(request, marks, look, "CPU time is counted by clock ticks: coarse over one window.")


def need(trials: pd.DataFrame, column: str, otherwise: str) -> pd.DataFrame:
    """Return ``trials``, or raise NotApplicableError saying what none of them has, and why."""
    if not is_believable(trials, column).any():
        raise NotApplicableError(otherwise + why_null(trials, [MADE_OF.get(column, column)]))
    return trials


def only(trials: pd.DataFrame, mask: pd.Series | Sequence[bool], otherwise: str) -> pd.DataFrame:
    """Return the rows of a mask, or raise NotApplicableError saying what there is none of."""
    chosen = rows_where(trials, pd.Series(mask, index=trials.index))
    if chosen.empty:
        raise NotApplicableError(otherwise)
    return chosen
