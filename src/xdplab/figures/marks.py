"""The marks table: every number a figure shows, in the unit of its axis. Figures are drawn from it and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import pandas as pd

from xdplab.analysis.intervals import Spread, values_of_one_point
from xdplab.analysis.series import rows_where

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
Scale = Literal["category", "linear", "log", "counts"]
Middle = Literal["mean", "median"]
DEFAULT_PALETTE, NO_BACKENDS = "colorblind", "viridis"
"""The palette in which hues of all figures have their places; and one for hues that are none of them (places, steps of
a module's insertion), whose colours would be taken for backends."""


@dataclass(frozen=True)
class Axes:
    """Labels and scales of the axes.

    ``x_limits`` and ``y_limits`` are the ends of linear axes, if a standard prescribes them; ``rules`` are horizontal
    lines by panel ("" is every panel).
    """

    x_label: str
    y_label: str
    x_scale: Scale = "category"
    y_scale: Literal["linear", "log"] = "linear"
    share_x: bool = True
    share_y: bool = True
    from_zero: bool = True
    x_limits: tuple[float, float] | None = None
    y_limits: tuple[float, float] | None = None
    rules: Mapping[str, float] = field(default_factory=dict)

    @property
    def titles(self) -> tuple[str, str]:
        """The labels as they stand on the axes: a logarithmic one says so, for a place between its ticks is misread."""
        return _titled(self.x_label, self.x_scale), _titled(self.y_label, self.y_scale)


LOG = "log\N{NO-BREAK SPACE}scale"


def _titled(label: str, scale: Scale) -> str:
    if scale not in ("log", "counts"):
        return label
    return f"{label[:-1]}, {LOG})" if label.endswith(")") else f"{label} ({LOG})".strip()


@dataclass(frozen=True)
class Order:
    """The order of hues, panels and categories of the x axis (default: as the marks come), and their colours.

    ``columns``: panels per row (0: as they fit). ``grid``: each panel of the order has its place in these rows and
    columns, also one without marks. ``things``: hues that have the colour of a hue that figures of several studies
    have.
    """

    hues: tuple[str, ...] = ()
    panels: tuple[str, ...] = ()
    x_values: tuple[object, ...] = ()
    columns: int = 0
    grid: bool = False
    palette: str = DEFAULT_PALETTE
    things: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Words:
    """What stands on and below a figure.

    ``title`` stands above a figure. ``caption`` is the whole of it, one paragraph each;
    ``short_caption`` stands on the figure in its place, if given, and calls the marks' intervals ``intervals``.
    ``notes`` are lines of text inside a panel, each in the colour of its hue. ``point_label`` labels marks of kind
    ``point`` that mean something else than the rest; ``legend`` replaces texts of the legend, such as ``invalid``.
    """

    title: str = ""
    hue_title: str = ""
    caption: tuple[str, ...] = ()
    short_caption: tuple[str, ...] = ()
    intervals: str = ""
    notes: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    point_label: str = ""
    legend: Mapping[str, str] = field(default_factory=dict)
    bar_values: bool = False


@dataclass(frozen=True)
class Look:
    """How marks are drawn. Nothing here changes a value."""

    axes: Axes
    order: Order = field(default_factory=Order)
    words: Words = field(default_factory=Words)


@dataclass(frozen=True)
class View:
    """A marks table with its look: what ``draw`` draws."""

    marks: pd.DataFrame
    look: Look

    @property
    def caption(self) -> tuple[str, ...]:
        return self.look.words.caption

    @property
    def short_caption(self) -> tuple[str, ...]:
        """The caption as it stands on the figure, which says of intervals only if it has some."""
        words = self.look.words
        if not words.short_caption:
            return words.caption
        first, *more = words.short_caption
        pieces = self.marks["kind"].eq("stack")  # a piece's low is where it begins
        barred = self.marks.loc[~pieces, "low"].notna().any()
        return (f"{first}, {words.intervals}" if barred and words.intervals else first, *more)

    def captioned(self, caption: Sequence[str], short: Sequence[str] = ()) -> View:
        words = replace(self.look.words, caption=tuple(caption), short_caption=tuple(short))
        return View(self.marks, replace(self.look, words=words))


def marks_frame(rows: Iterable[Mapping[str, object]]) -> pd.DataFrame:
    """Return rows as a marks table: absent columns are null, in the table's order.

    Raises ValueError for a key that is no column: the mark's value would be lost without a word.
    """
    records = [dict(row) for row in rows]
    unknown = {key for row in records for key in row} - set(COLUMNS)
    if unknown:
        raise ValueError(f"a mark has no {', '.join(sorted(unknown))}; its columns are {', '.join(COLUMNS)}")
    table = pd.DataFrame(records, columns=list(COLUMNS))
    for name in ("value", "low", "high"):
        table[name] = pd.to_numeric(table[name]).astype(float)
    for name in ("panel", "hue", "label"):
        table[name] = table[name].astype(object)
    return table


def _limit(limits: pd.Series) -> str | None:
    """Return the limit of a mean: that of any of its repetitions, the generator or the link before the DUT."""
    kinds = set(limits.dropna().unique())
    order = ("generator", "link", "shared_cpu", "dut", "none")
    return next((name for name in order if name in kinds), None)


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
    shown = rows_where(labelled, labelled["value"].notna())
    rows: list[dict[str, object]] = []
    places = [shown[name] for name in ("panel", "hue", "x", "verdict")]
    for key, group in shown[["value", "limited_by", "point_id"]].groupby(places, sort=False, dropna=False):
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
    spread = Spread.of(values, "ranks" if middle == "median" else "linear")
    return {"value": getattr(spread, middle), "low": spread.low, "high": spread.high, "n": spread.n}
