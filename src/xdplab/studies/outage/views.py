"""The study's figures: how long a change is dark and bare, and how long frames are held, by change, mode and driver."""

from __future__ import annotations

from functools import partial

import pandas as pd

from xdplab.figures.marks import Axes, Order, collect
from xdplab.studies.figure_table import Figure, views
from xdplab.studies.outage.points import CHANGES, MODES, OTHER_MODE
from xdplab.studies.outage.rows import name_of


def changes(value: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return the change's milliseconds of every trial that has them, by the change."""
    rows = table[table[value].notna()]
    names = [name_of(event, mode) for event, mode in zip(rows["event"], rows["mode"], strict=True)]
    columns = {"verdict": "valid", "limited_by": None, "hue": rows["mode"]}
    return rows.assign(panel=rows["driver"] + ", " + rows["place"], x=names, value=rows[value].astype(float), **columns)


def _medians(figure: Figure, rows: pd.DataFrame) -> list[dict[str, object]]:
    return collect(rows, figure.name, figure.kind, middle="median")


_ORDER = Order(
    MODES, x_values=tuple(dict.fromkeys(name_of(event, mode) for event in CHANGES for mode in OTHER_MODE.values()))
)
_BARS = "Medians with their 95 % intervals (from six repetitions on). Hues: the mode before the change."


def _figure(name: str, value: str, title: str, y_label: str, note: str) -> Figure:
    return Figure(
        name, partial(changes, value), Axes("", y_label, share_y=False), kind="beside", collect=_medians, order=_ORDER,
        caption=("{places}.", note, _BARS), nothing="nothing was measured", title=title,
    )  # fmt: skip


FIGURES = (
    _figure(
        "dark", "dark_ms", "Dark while an XDP program changes", "dark, ms",
        "The longest run of frames that did not come, by their pace.",
    ),
    _figure(
        "bare", "bare_ms", "Without a program while one is changed", "bare, ms",
        "Frames that came between the two programs, by their pace: no program had them.",
    ),
    _figure(
        "held", "held_ms", "Frames held while an XDP program changes", "held, ms",
        "The most that a frame was later on its way than the frame before it; that of the control is the floor.",
    ),
)  # fmt: skip
VIEWS = views(FIGURES)
