"""Factors as a figure shows them: their labels, their order, and which of them make hues and panels.

What a person chooses of figures, by the same names in a notebook and on the command line: what they show, how large
they are, and which files they become.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from xdplab.analysis.series import rows_where
from xdplab.analysis.values import is_null
from xdplab.errors import FigureError
from xdplab.figures import DEFAULT_FORMATS
from xdplab.figures.styles import DEFAULT_STYLE, STYLES, Style, sized
from xdplab.plan import factors as table
from xdplab.plan.factors import Factor, Labels

PIECES = ("the program itself", "sender", "link, way in", "receiver", "link, way back")
"""What a packet's time in a closed loop is made of, from the ground up."""
# Factors of the trials, and those that a view makes of their columns.
FACTORS: dict[str, Factor] = {
    factor.column: factor for factor in table.FACTORS if "hue" in factor.shown.uses or "panel" in factor.shown.uses
} | {name: Factor(name, "run", "", identity=False, shown=Labels(full=str)) for name in ("quantile", "counter", "piece")}
ALIASES = {"workload": "program_name", "program": "program_name", "size": "frame_bytes", "N": "accesses"}
NEVER_MIXED = tuple(column for column, factor in FACTORS.items() if factor.shown.apart)
ORDERS = {"mode": tuple(table.MODES), "quantile": ("p50", "p90", "p99", "p99.9"), "piece": PIECES}
MAX_HUES, MAX_PANELS = 8, 9


def factor_name(name: str, use: Literal["hue", "panel", "axis"]) -> str:
    """Return the column for a factor's name. Raises FigureError if the name is unknown or has no such use."""
    column = ALIASES.get(name, name)
    usable = [column for column, factor in FACTORS.items() if use in factor.shown.uses]
    if column not in usable:
        near = get_close_matches(name, [*usable, *ALIASES], n=1)
        remedy = f"did you mean {near[0]}?" if near else f"for example {', '.join(usable[:4])}"
        raise FigureError(f"unknown factor {name!r} for a {use}", remedy=remedy)
    return column


def levels(trials: pd.DataFrame, name: str) -> list[object]:
    """Return the factor's levels in reading order: numbers by size, modes by their depth in the stack, and categories
    that have an order in it."""
    column = trials[name]
    values = _present(column)
    if len(values) < 2 or (isinstance(column.dtype, pd.CategoricalDtype) and column.dtype.ordered):
        return values
    order = ORDERS.get(name, ())
    return sorted(values, key=lambda v: (order.index(v) if v in order else len(order), isinstance(v, str), v))


def _present(column: pd.Series) -> list[object]:
    """Return the values of a column, each once, without null; those of categories in their order."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        counts = np.bincount(column.array.codes + 1, minlength=1)  # code -1 is null
        names = column.dtype.categories.tolist()
        return [names[place] for place in np.flatnonzero(counts[1:])]
    return [value for value in column.unique().tolist() if not is_null(value)]


def varying(trials: pd.DataFrame) -> list[str]:
    """Return the factors with more than one level, in order of the table."""
    return [name for name in FACTORS if name in trials and len(_present(trials[name])) > 1]


def free_factors(trials: pd.DataFrame, held: Sequence[str]) -> list[str]:
    """Return the factors with more than one level where ``held`` ones are the same, in order of the table."""
    held = list(dict.fromkeys(held))  # a reader may choose the x axis as hue, too
    several = [name for name in varying(trials) if name not in held]
    if not held or not several:
        return several
    _, combinations = _combined(trials, [*held, *several])
    counts = combinations.groupby(held, dropna=False)[several].nunique()
    return [name for name in several if (counts[name] > 1).any()]


@dataclass(frozen=True)
class Layout:
    """Which factors make the hues and the panels; ``rest`` still varies and needs figures of its own."""

    x: str
    hue: tuple[str, ...]
    panel: tuple[str, ...]
    rest: tuple[str, ...] = ()


@dataclass(frozen=True)
class FigureChoice:
    """What a reader chooses of a figure.

    ``hue`` and ``panel`` name factors (``""`` for none); two for ``panel`` (``"mode,frame_bytes"``, or a list) are the
    rows and columns of panels. ``where`` picks trials, for example ``{"engine": "live", "frame_bytes": [64, 1500]}``;
    ``value`` another column, such as ``forwarded_l2_bps``. Raises FigureError for a factor that cannot be one of them.
    """

    hue: str | None = None
    panel: str | Sequence[str] | None = None
    where: Mapping[str, object] | None = None
    value: str | None = None

    def __post_init__(self) -> None:
        panels, hues = self.panels or (), self.hues or ()
        if twice := [name for name in hues if name in panels]:
            raise FigureError(f"{twice[0]} cannot be hue and panel of one figure", remedy="choose another for one")

    @property
    def hues(self) -> tuple[str, ...] | None:
        """The column of the hue; none of them, or None where the figure chooses."""
        return None if self.hue is None else tuple(factor_name(name, "hue") for name in [self.hue] if name)

    @property
    def panels(self) -> tuple[str, ...] | None:
        """The columns of rows and columns of panels."""
        return None if self.panel is None else tuple(factor_name(name, "panel") for name in panel_names(self.panel))


def panel_names(panel: str | Sequence[str]) -> list[str]:
    """Return the factors that make panels: none, one, or two for rows and columns. Raises FigureError for more."""
    names = [name.strip() for name in (panel.split(",") if isinstance(panel, str) else panel) if name.strip()]
    if len(names) > 2:
        raise FigureError(f"panel takes two factors, rows and columns: {', '.join(names)} are {len(names)}")
    return names


def believable(trials: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return the rows that make marks: valid and invalid ones with a value; an invalid 0 is no measurement."""
    return rows_where(trials, is_believable(trials, value))


def is_believable(trials: pd.DataFrame, value: str) -> pd.Series:
    """Return whether each row makes a mark."""
    values = trials[value].to_numpy(dtype=float, na_value=np.nan)
    valid, invalid = (trials["verdict"].isin([verdict]).to_numpy(dtype=bool) for verdict in ("valid", "invalid"))
    return pd.Series(~np.isnan(values) & (valid | (invalid & (values != 0))), index=trials.index)


@dataclass(frozen=True)
class FigureRequest:
    """The input of a view: ``trials`` with the column ``value``, settled, of one arrangement and engine."""

    figure: str
    trials: pd.DataFrame
    layout: Layout
    value: str
    apart: tuple[str, ...] = ()
    """Factors of which every other level has a figure of its own: this one says which level it shows."""

    @cached_property
    def shown(self) -> pd.DataFrame:
        """The rows that make marks."""
        return believable(self.trials, self.value)

    @property
    def used(self) -> tuple[str, ...]:
        return (self.layout.x, *self.layout.hue, *self.layout.panel)


def _prefer(
    trials: pd.DataFrame, wanted: tuple[str, ...] | None, order: Sequence[str], held: Sequence[str]
) -> tuple[str, ...]:
    if wanted is not None:  # one level tells nothing apart: the caption names it
        return tuple(name for name in wanted if name in trials and trials[name].nunique(dropna=False) > 1)
    free = free_factors(trials, held)
    return next(((name,) for name in order if name in free), ())


def arrange(trials: pd.DataFrame, x: str, choice: FigureChoice, hues: Sequence[str], panels: Sequence[str]) -> Layout:
    """Choose hue and panel where the reader did not (``""`` means none), by the figure's order of preference."""
    of_reader = [name for name in (*(choice.hues or ()), *(choice.panels or ())) if name in trials]
    trials = trials[list(dict.fromkeys([x, *of_reader, *varying(trials)]))]  # a factor of one level is never free
    chosen_panel = _prefer(trials, choice.panels, panels, [x, *(choice.hues or ())])
    chosen_hue = _prefer(trials, choice.hues, hues, [x, *chosen_panel])
    held = list(dict.fromkeys([x, *chosen_hue, *chosen_panel]))
    rest: list[str] = []
    for name in free_factors(trials, held):  # one that another factor of the rest settles needs nothing of its own
        rest += [name] if name in free_factors(trials, [*held, *rest]) else []
    return Layout(x, chosen_hue, chosen_panel, tuple(rest))


def compound(trials: pd.DataFrame, layout: Layout) -> Layout:
    """Put every factor that still varies onto panels, then hues. Raises FigureError if they do not fit.

    Levels of different factors are never averaged.
    """
    mixed = [name for name in layout.rest if name in NEVER_MIXED]
    if mixed:
        raise FigureError(_mixed_text(trials, mixed), remedy=_choices(trials, mixed))
    hue, panel = list(layout.hue), list(layout.panel)
    for name in layout.rest:
        if name not in free_factors(trials, [layout.x, *hue, *panel]):
            continue
        if _combinations(trials, [*panel, name]) <= MAX_PANELS:
            panel.insert(0, name)
        elif _combinations(trials, [*hue, name]) <= MAX_HUES:
            hue.append(name)
        else:
            problem = f"{', '.join(layout.rest)} vary, more than one figure can show"
            raise FigureError(problem, remedy=_choices(trials, layout.rest))
    return Layout(layout.x, tuple(hue), tuple(panel))


def _combinations(trials: pd.DataFrame, names: Sequence[str]) -> int:
    return len(trials[list(names)].drop_duplicates())


def _mixed_text(trials: pd.DataFrame, names: Sequence[str]) -> str:
    listing = "; ".join(f"{name}: {', '.join(map(str, levels(trials, name)))}" for name in names)
    return f"one figure never mixes {' or '.join(names)} ({listing})"


def _choices(trials: pd.DataFrame, names: Sequence[str]) -> str:
    example = ", ".join(f"{name!r}: {levels(trials, name)[0]!r}" for name in names)
    return f"choose with where={{{example}}}"


def label_column(trials: pd.DataFrame, names: Sequence[str], *, alone: bool) -> pd.Series:
    """Return one label per row for a combination of factors; ``alone``: no legend title stands above the label."""
    if not names or trials.empty:
        return pd.Series([""] * len(trials), index=trials.index, dtype="object")
    place, combinations = _combined(trials, names)
    return pd.Series(_labels(combinations, names, alone=alone)[place], index=trials.index, dtype="object")


def _combined(trials: pd.DataFrame, names: Sequence[str]) -> tuple[npt.NDArray[np.intp], pd.DataFrame]:
    """Return each row's number of its combination, and the combinations: a million rows have a few."""
    numbers = np.zeros(len(trials), dtype=np.int64)
    for name in names:
        place, values = pd.factorize(trials[name])
        numbers, _ = pd.factorize(numbers * (len(values) + 1) + place + 1)  # the product alone could overflow
    first = ~pd.Series(numbers).duplicated().to_numpy()
    combinations = trials.loc[first, list(names)]
    categories = combinations.select_dtypes("category").columns  # `map` would leave out their nulls
    return numbers, combinations.astype(dict.fromkeys(categories, "str"))


def _labels(combinations: pd.DataFrame, names: Sequence[str], *, alone: bool) -> npt.NDArray[np.object_]:
    labels = [""] * len(combinations)
    full = alone or len(names) > 1
    for name in names:
        factor = FACTORS[name]
        label = factor.label if full else factor.shown.short
        texts = combinations[name].map(lambda v, label=label: "" if pd.isna(v) else label(str(v))).astype("object")
        labels = [f"{a}, {b}" if a and b else a or b for a, b in zip(labels, texts, strict=True)]
    return np.array(labels, dtype=object)


def label_order(trials: pd.DataFrame, names: Sequence[str], *, alone: bool) -> tuple[str, ...]:
    """Return the labels of all combinations, ordered by the factors' own order."""
    if not names or trials.empty:
        return ("",)
    _, combinations = _combined(trials, names)
    ranks = pd.DataFrame(index=range(len(combinations)))
    for name in names:
        order = levels(trials, name)
        ranks[name] = [order.index(v) if not pd.isna(v) else -1 for v in combinations[name]]
    ordered = ranks.sort_values(list(names), kind="stable").index
    return tuple(dict.fromkeys(_labels(combinations, names, alone=alone)[ordered]))


def title_of(names: Sequence[str]) -> str:
    """Return the legend's title: the factor's for one, nothing where the entries say it themselves."""
    return FACTORS[names[0]].title if len(names) == 1 else ""


OF_WHAT = tuple(field.name for field in fields(FigureChoice))
OF_SIZE = ("style", "width", "height", "caption")


@dataclass(frozen=True)
class FigureFiles:
    """The files of figures: their folder (None: nothing is written), their style with its size, and their formats."""

    folder: Path | None
    style: Style = STYLES[DEFAULT_STYLE]
    formats: tuple[str, ...] = DEFAULT_FORMATS


def taken(options: Mapping[str, Any]) -> tuple[FigureChoice, Style]:
    """Return what a figure shows, and its style with its size: the options `OF_WHAT` and `OF_SIZE`.

    Raises FigureError for another option, and for a value that is none.
    """
    if others := [name for name in options if name not in (*OF_WHAT, *OF_SIZE)]:
        names = ", ".join((*OF_WHAT, *OF_SIZE))
        raise FigureError(f"a figure has no option {others[0]!r}", remedy=f"there are {names}")
    choice = FigureChoice(**{name: options[name] for name in OF_WHAT if name in options})
    return choice, sized(**{name: options[name] for name in OF_SIZE if name in options})


def filed(options: Mapping[str, Any], folder: Path) -> tuple[FigureChoice, FigureFiles]:
    """Return what figures show, and their files.

    Beside the options of a figure: ``out`` (by default ``folder``), ``formats``, and ``why``, which writes nothing.
    """
    own = {name: options[name] for name in ("out", "formats", "why") if name in options}
    choice, style = taken({name: value for name, value in options.items() if name not in own})
    place = None if own.get("why") else own.get("out") or folder
    return choice, FigureFiles(place, style, tuple(own.get("formats") or DEFAULT_FORMATS))
