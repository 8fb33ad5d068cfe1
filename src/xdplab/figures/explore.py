"""Draws any column against any factor with seaborn's figure-level functions, and behaves as they do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.ticker import EngFormatter
from seaborn.axisgrid import FacetGrid

from xdplab.analysis.series import settled
from xdplab.analysis.summary import varying
from xdplab.errors import FigureError
from xdplab.figures.catalogue import chosen
from xdplab.figures.factors import ALIASES, panel_names
from xdplab.text import unit_of

_NAMES = ("hue", "col", "row", "style", "size", "units")
Panel = str | Sequence[str] | None


def plot(trials: pd.DataFrame, y: str, x: str, hue: str | None, panel: Panel, **options: Any) -> FacetGrid:
    """Draw a column of the valid trials against another one.

    Numbers on the x axis make lines (`seaborn.relplot`), words make points with intervals (`seaborn.catplot`);
    ``options`` go to that function (``kind``, ``errorbar``, ``height``, ``col_wrap``, …), ``where`` chooses trials.
    Raises FigureError for a column that is not there, and where one mark would join several points.
    """
    last = settled(chosen(trials, options.pop("where", {})))
    if "verdict" in last:
        last = last[last["verdict"].eq("valid").fillna(False)]
    names = {"y": y, "x": x, "hue": hue, **_facets(panel), **{n: options.pop(n) for n in _NAMES if n in options}}
    columns = {place: column_of(last, name) for place, name in names.items() if name}
    shown = _plain(last.dropna(subset=[columns["y"], columns["x"]]))
    if shown.empty:
        raise FigureError(f"no valid trial has {y} and {x}", remedy="`run.trials` has the reasons in null_reasons")
    _require_points(shown, columns)
    numeric = pd.api.types.is_numeric_dtype(shown[columns["x"]]) and shown[columns["x"]].nunique() > 1
    grid_of = _lines if numeric else _categories
    return grid_of(shown, columns, options)


def _facets(panel: Panel) -> dict[str, str]:
    """Return the factor of the columns of panels, or those of their rows and columns."""
    names = panel_names(panel or "")
    return dict(zip(("row", "col")[2 - len(names) :], names, strict=True))


def _lines(shown: pd.DataFrame, columns: dict[str, str], options: dict[str, Any]) -> FacetGrid:
    kind = options.pop("kind", "line")
    usual = {"marker": "o"} if kind == "line" else {}
    return _labelled(
        sns.relplot(data=_levels_as_words(shown, columns), kind=kind, **columns, **(usual | options)), columns
    )


def _categories(shown: pd.DataFrame, columns: dict[str, str], options: dict[str, Any]) -> FacetGrid:
    kind = options.pop("kind", "point")
    usual = {"linestyle": "none", "dodge": 0.3} if kind == "point" and "hue" in columns else {}
    return _labelled(
        sns.catplot(data=_levels_as_words(shown, columns), kind=kind, **columns, **(usual | options)), columns
    )


def column_of(table: pd.DataFrame, name: str) -> str:
    """Return the column of that name, or of a plan's name for it. Raises FigureError naming columns that are alike."""
    for candidate in (name, ALIASES.get(name, name)):
        if candidate in table:
            return candidate
    near = [column for column in table if name.split("_")[0] in str(column)]
    raise FigureError(f"no column {name!r}", remedy=f"there is {', '.join(map(str, near or table.columns[:20]))}")


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    """Return columns in types that seaborn accepts: nullable numbers as float64, text as objects."""
    numbers = [c for c in table if pd.api.types.is_numeric_dtype(table[c]) and table[c].dtype != "boolean"]
    plain = table.astype({name: "object" for name in table if name not in numbers})
    for name in numbers:
        plain[name] = table[name].astype("Float64").to_numpy(dtype="float64", na_value=float("nan"))
    return plain


def _levels_as_words(shown: pd.DataFrame, columns: dict[str, str]) -> pd.DataFrame:
    """Make a numeric hue categorical, as its values are levels and not shades; a panel's title is 400, not 400.0."""
    table = shown
    for place in ("hue", "col", "row"):
        name = columns.get(place)
        if name and name not in (columns["x"], columns["y"]) and pd.api.types.is_numeric_dtype(table[name]):
            table = table.sort_values(name).assign(**{name: table[name].map("{:g}".format)})
    return table


def _labelled(grid: FacetGrid, columns: dict[str, str]) -> FacetGrid:
    """Label the axes by column and unit; a rate is read as 8 M, not as 0.8 beside a distant 1e7."""
    grid.set_axis_labels(_label(columns["x"]), _label(columns["y"]))
    for ax in grid.axes.flat:
        if _unit(columns["y"]) == "1/s":
            ax.yaxis.set_major_formatter(EngFormatter())
    return grid


def _label(column: str) -> str:
    unit = _unit(column)
    return f"{column} ({unit})" if unit else column


def _unit(column: str) -> str:
    return _OF_SAMPLES.get(column) or unit_of(column)


_OF_SAMPLES = {"rx_pps": "1/s", "tx_pps": "1/s", "t_s": "s", "latency_us": "µs"}
"""Units of columns that no table of trials has."""


def _require_points(shown: pd.DataFrame, columns: dict[str, str]) -> None:
    """Raise where one mark would join two points, or one point in two labs: their average has no meaning."""
    if "point_id" not in shown:
        return
    places = list(dict.fromkeys(name for place, name in columns.items() if place != "y"))
    ids = [name for name in ("point_id", "lab") if name in shown]
    joined = [group for _, group in shown.groupby(places, dropna=False) if len(group[ids].drop_duplicates()) > 1]
    if joined:
        apart = [name for name in varying(joined[0]) if name not in places]
        count = joined[0]["point_id"].nunique()
        what = f"{count} points that" if count > 1 else "labs that measured one point: they"
        raise FigureError(
            f"one mark would join {what} differ in {', '.join(apart)}",
            remedy=f"give hue or panel, or choose with where={{{apart[0]!r}: …}}" if apart else "choose with where={…}",
        )


def over_time(
    samples: pd.DataFrame, trials: pd.DataFrame, y: str, hue: str | None, panel: Panel, **options: Any
) -> FacetGrid:
    """Draw a rate over the seconds of the measured burst, one line per trial. ``samples`` and ``trials`` are a run's.

    ``y``: ``rx_pps`` or ``tx_pps``, of the TG. The last interval is left out: it ends after the sender has.
    """
    frames = {"rx_pps": "rx_packets", "tx_pps": "tx_packets"}.get(y)
    burst = samples[samples["burst"].eq("rate") & samples["host"].eq("tg")]
    if burst.empty or frames is None:
        raise FigureError(f"the samples have no {y}", remedy="rx_pps and tx_pps, of runs that kept their samples")
    if "attempt" in burst:  # an earlier try is no part of the trial's line
        burst = burst[burst["attempt"].eq(burst.groupby("trial_id")["attempt"].transform("max")).fillna(False)]
    spans = burst.groupby("trial_id")["t_s"].diff().fillna(burst["t_s"])
    rates = pd.DataFrame({"trial_id": burst["trial_id"], "t_s": burst["t_s"], y: burst[frames] / spans})
    whole = rates[rates["trial_id"].duplicated(keep="last")]
    return _by_trial(whole, trials, {"x": "t_s", "y": y, "hue": hue, **_facets(panel)}, options)


def latency_cdf(
    buckets: pd.DataFrame, trials: pd.DataFrame, hue: str | None, panel: Panel, **options: Any
) -> FacetGrid:
    """Draw the share of frames that came back within a time, one line per trial.

    ``buckets`` has a row per bucket of a trial's histogram: trial_id, latency_ns, count.
    """
    if buckets.empty:
        raise FigureError(
            "no latency was recorded, or its raw files are gone", remedy="`stamp` in a plan stamps frames"
        )
    counts = buckets.groupby("trial_id")["count"]
    shares = buckets.assign(
        latency_us=buckets["latency_ns"] / 1e3, share=counts.cumsum() / counts.transform("sum")
    ).drop(columns=["latency_ns", "count"])
    names = {"x": "latency_us", "y": "share", "hue": hue, **_facets(panel)}
    return _by_trial(shares, trials, names, options).set(xscale="log")


def _by_trial(
    rows: pd.DataFrame, trials: pd.DataFrame, names: Mapping[str, str | None], options: dict[str, Any]
) -> FacetGrid:
    """Draw one line per trial; ``rows`` are joined with the trial's factors by trial_id."""
    factors = chosen(trials, options.pop("where", {})).drop(columns=[names["x"], names["y"]], errors="ignore")
    joined = rows.merge(factors, on="trial_id")
    columns = {place: column_of(joined, name) for place, name in names.items() if name}
    usual = {"units": "trial_id", "estimator": None, "kind": "line"}
    shown = _levels_as_words(_plain(joined), columns)
    return _labelled(sns.relplot(data=shown, **columns, **(usual | options)), columns)
