"""The marks table: every number a figure shows, in the unit of its axis. Figures are drawn from it and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

from xdplab.analysis.intervals import Spread, values_of_one_point

COLUMNS = (
    "figure",
    "file",
    "kind",  # bar; line: connected; point, dot: by itself; fit: a model's line; sample: one of those a box is drawn of;
    # stack: a piece of a bar, from low to value; edge: the interval at its end; raw: one repetition; beside: markers
    # side by side by hue; below: less than value
    "panel",
    "hue",
    "x",
    "value",
    "low",  # 95 % interval over repetitions, null for one
    "high",
    "n",  # repetitions
    "verdict",
    "limited_by",
    "points",  # point_id of what is shown, comma-separated
    "label",  # text beside the mark
)
Scale = Literal["category", "linear", "log", "symlog"]
Middle = Literal["mean", "median"]
DEFAULT_PALETTE, NO_BACKENDS = "colorblind", "viridis"
"""The palette in which hues of all figures have their places; and one for hues that are none of them (places, steps of
a module's insertion), whose colours would be taken for backends."""


@dataclass(frozen=True)
class Look:
    """How marks are drawn: labels in the reader's words, order, scales. Nothing here changes a value.

    ``caption`` is the whole of it, one paragraph each; ``face`` is what stands on the figure in its place, if given;
    ``bars`` is what the marks' intervals are called there.
    ``x_values`` orders a categorical axis (default: as the marks come); ``hues`` and ``panels`` likewise. ``columns``
    is how many panels a row should have (0: as they fit). ``notes`` are lines of text inside a panel, each in the
    colour of its hue; ``rules`` are horizontal lines by panel ("" is every panel). ``point_label`` labels marks of
    kind ``point`` that mean something else than the rest; ``legend`` replaces texts of the legend, such as
    ``invalid``.
    ``x_limits`` and ``y_limits`` are the ends of linear axes, if a standard prescribes them.
    ``things``: hues that have the colour of a hue that figures of several studies have.
    """

    x_label: str
    y_label: str
    x_scale: Scale = "category"
    y_scale: Literal["linear", "log"] = "linear"
    hue_title: str = ""
    hues: tuple[str, ...] = ()
    panels: tuple[str, ...] = ()
    x_values: tuple[object, ...] = ()
    palette: str = DEFAULT_PALETTE
    caption: tuple[str, ...] = ()
    face: tuple[str, ...] = ()
    bars: str = ""
    notes: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    rules: Mapping[str, float] = field(default_factory=dict)
    point_label: str = ""
    columns: int = 0
    share_x: bool = True
    share_y: bool = True
    bar_values: bool = False
    from_zero: bool = True
    x_limits: tuple[float, float] | None = None
    y_limits: tuple[float, float] | None = None
    legend: Mapping[str, str] = field(default_factory=dict)
    things: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class View:
    """A marks table with its look: what ``draw`` draws."""

    marks: pd.DataFrame
    look: Look

    @property
    def face(self) -> tuple[str, ...]:
        """The caption as it stands on the figure, which says of intervals only if it has some."""
        if not self.look.face:
            return self.look.caption
        first, *more = self.look.face
        barred = self.marks.loc[self.marks["kind"].ne("stack"), "low"].notna().any()  # a piece's low is where it begins
        return (f"{first}, {self.look.bars}" if barred and self.look.bars else first, *more)


def marks_frame(rows: Iterable[Mapping[str, object]]) -> pd.DataFrame:
    """Return rows as a marks table: absent columns are null, in the table's order.

    Raises ValueError for a key that is no column: the mark's value would be lost without a word.
    """
    made = [dict(row) for row in rows]
    unknown = {key for row in made for key in row} - set(COLUMNS)
    if unknown:
        raise ValueError(f"a mark has no {', '.join(sorted(unknown))}; its columns are {', '.join(COLUMNS)}")
    table = pd.DataFrame(made, columns=list(COLUMNS))
    for name in ("value", "low", "high"):
        table[name] = pd.to_numeric(table[name]).astype(float)
    return table.astype(dict.fromkeys(("panel", "hue", "label"), object))


def _limit(limits: pd.Series) -> str | None:
    """Return the limit of a mean: that of any of its repetitions, the generator or the link before the DUT."""
    found = set(limits.dropna().unique())
    order = ("generator", "link", "shared_cpu", "dut", "none")
    return next((name for name in order if name in found), None)


FEW = 10
"""Below so many repetitions each of them is drawn: an interval of so few says little about their shape."""


def collect(
    labelled: pd.DataFrame, figure: str, kind: str, scale: float = 1.0, *, middle: Middle = "mean"
) -> list[dict[str, object]]:
    """Return one mark per (panel, hue, x) and validity: the repetitions' middle with its interval; few also one by one.

    ``labelled`` has the columns panel, hue, x, value, verdict, limited_by, point_id; ``value`` is divided by ``scale``.
    ``middle``: the mean with its t interval, or the median with that of order statistics. Invalid repetitions make a
    mark of their own: they are neither averaged in nor dropped. Raises MixedPointsError if a mark would be of two
    points: every view goes through here.
    """
    shown = labelled[labelled["value"].notna()]
    rows: list[dict[str, object]] = []
    for key, group in shown.groupby(["panel", "hue", "x", "verdict"], sort=False, dropna=False):
        panel, hue, x, verdict = key
        values = values_of_one_point(group, "value", scale)
        place = {"figure": figure, "file": figure, "panel": panel, "hue": hue, "x": x, "verdict": verdict}
        points = ",".join(sorted(map(str, group["point_id"].dropna().unique())))
        rows.append(
            place | _size(values, middle) | {"kind": kind, "limited_by": _limit(group["limited_by"]), "points": points}
        )
        if 1 < len(values) < FEW:
            rows += [place | {"kind": "raw", "value": value, "points": points} for value in values]
    return rows


def _size(values: pd.Series, middle: Middle) -> dict[str, object]:
    found = Spread.of(values, "ranks" if middle == "median" else "linear")
    return {"value": getattr(found, middle), "low": found.low, "high": found.high, "n": found.n}
