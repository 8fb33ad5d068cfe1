"""The thesis' 110 figures as views: which trials stand where, and what was drawn of them.

"As published" is a view like any other: the last row or sample of one repetition, without a verdict. Each figure is a
row of published.csv: its family says what was drawn, its panel, hue and x say along which factors, the rest is held.
Source of the definitions: I. F. Capeletti, Unipampa 2022; no value of it is here.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import floor, log10

import pandas as pd

from xdplab.figures.factors import FigureError

MARK_COLUMNS = ("figure", "file", "kind", "panel", "hue", "x", "value")
MODES = {"af_xdp": "AF_XDP", "generic": "Generic", "native": "Native"}
LATENCY_MODES = ("native", "af_xdp", "generic")  # its panels stand in another order
BEST_QUEUES = {"native": 8, "generic": 8, "af_xdp": 1}
QUEUES = (1, 2, 4, 8)
ACCESSES = (0, 1, 100, 200, 400, 800, 1600, 3200, 6400, 12800)
FRAMES = (64, 128, 256, 512, 1024, 1500)
CPUS = tuple(range(8))


@dataclass(frozen=True)
class Spec:
    """One published figure: a row of published.csv. A factor that is held is a value, None where it is not.

    ``file`` is its path below graficos/; ``figure`` its number in the text, empty where it has none there.
    """

    file: str
    figure: str
    family: str
    kind: str
    panel: str
    hue: str
    x: str
    mode: str | None
    queues: str | None
    frame_bytes: tuple[int, ...]
    accesses: int | None
    repetitions: dict[str, int]

    @property
    def stem(self) -> str:
        return self.file.removesuffix(".pdf")


@cache
def published_figures() -> tuple[Spec, ...]:
    """Return all published figures, in the list's order."""
    text = (resources.files("xdplab.figures") / "published.csv").read_text()
    return tuple(_spec(row) for row in csv.DictReader(text.splitlines()))


def _spec(row: dict[str, str]) -> Spec:
    xdp, af_xdp = row["xdp_repetition"], row["af_xdp_repetition"]
    repetitions = {"native": xdp, "generic": xdp, "af_xdp": af_xdp}
    return Spec(
        *(row[name] for name in ("file", "figure", "family", "kind", "panel", "hue", "x")),
        row["mode"] or None,
        row["queues"] or None,
        tuple(int(size) for size in row["frame_bytes"].split("|") if size),
        int(row["accesses"]) if row["accesses"] else None,
        {mode: int(number) for mode, number in repetitions.items() if number},
    )


def figure_named(name: str) -> Spec:
    """Return the figure of that path, path without suffix, or number. Raises FigureError naming what is like it."""
    found = [s for s in published_figures() if name in (s.file, s.stem, s.figure) and name]
    if not found:
        similar = [spec.file for spec in published_figures() if name in spec.file][:5]
        raise FigureError(
            f"no published figure {name!r}",
            remedy=f"did you mean {', '.join(similar)}?" if similar else "use a path of the list, or a number from 18",
        )
    return found[0]


# --- which trials stand where ---


@dataclass(frozen=True)
class Axis:
    """One factor along panels, hues or x: its levels in order, and the label of each as printed."""

    column: str
    levels: tuple[object, ...]
    label: Callable[[object], str]


def axis(spec: Spec, place: str) -> Axis:
    """Return the axis of a figure at ``place``: panel, hue or x."""
    factor = str(getattr(spec, place))
    if factor == "mode":
        levels = LATENCY_MODES if spec.family == "latency" else tuple(MODES)
        prefix = "XDP " if place == "panel" else ""
        return Axis("mode", levels, lambda mode: prefix + MODES[str(mode)])
    if factor == "queues":
        words = {True: " fila", False: " filas"}[spec.family == "softirq"] + " de processamento"
        return Axis("queues", QUEUES, lambda queues: f"{queues}{words if place == 'panel' else ''}")
    if factor == "frame_bytes":
        prefix = "Pacotes de " if place == "panel" else ""
        return Axis("frame_bytes", spec.frame_bytes or FRAMES, lambda size: f"{prefix}{size}B")
    if factor == "cpu":
        return Axis("cpu", CPUS, str)
    return Axis("accesses", ACCESSES, lambda n: "baseline" if n == 0 else str(n))


def selected(trials: pd.DataFrame, spec: Spec) -> pd.DataFrame:
    """Return the trials of any repetition whose factors the figure shows."""
    rows = trials[trials["mode"].isin(list(spec.repetitions))]
    if spec.mode is not None:
        rows = rows[rows["mode"] == spec.mode]
    if spec.queues == "best":
        rows = rows[rows["queues"].astype(float) == rows["mode"].map(BEST_QUEUES).astype(float)]
    elif spec.queues is not None:
        rows = rows[rows["queues"] == int(spec.queues)]
    if spec.frame_bytes:
        rows = rows[rows["frame_bytes"].isin(spec.frame_bytes)]
    if spec.accesses is not None:
        rows = rows[rows["accesses"] == spec.accesses]
    return rows


def drawn_repetition(rows: pd.DataFrame, spec: Spec) -> pd.DataFrame:
    """Return the rows of the repetition that was drawn; of runs appended to one file, the last."""
    wanted = rows["mode"].map(spec.repetitions)
    own = rows[rows["repetition"].astype(float) == wanted.astype(float)]
    return own.sort_values("attempt", kind="stable").drop_duplicates("trial_id", keep="last")


def by_cpu(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return one row a trial and CPU 0 to 7, with the columns cpu and cpu_value, from a column of JSON lists."""
    known = rows[rows[column].notna()]
    lists = [json.loads(text)[: len(CPUS)] for text in known[column]]
    long = known.assign(cpu=[list(range(len(values))) for values in lists], cpu_value=lists)
    return long.explode(["cpu", "cpu_value"], ignore_index=True)


def placed(rows: pd.DataFrame, spec: Spec) -> Iterator[tuple[tuple[str, str, str], pd.DataFrame]]:
    """Yield ((panel, hue, x), rows) in the figure's order; combinations without a row are left out."""
    axes = [axis(spec, place) for place in ("panel", "hue", "x")]
    ranks = [{level: rank for rank, level in enumerate(a.levels)} for a in axes]
    known = rows.assign(**{f"_{i}": rows[a.column].map(ranks[i]) for i, a in enumerate(axes)})
    known = known.dropna(subset=["_0", "_1", "_2"])
    for key, group in known.groupby(["_0", "_1", "_2"], sort=True):
        panel, hue, x = (a.label(a.levels[int(place)]) for a, place in zip(axes, key, strict=True))  # type: ignore[arg-type]
        yield (panel, hue, x), group


# --- as published ---


@dataclass(frozen=True)
class Family:
    """``column`` is what was drawn, ``unit`` what it was divided by (None: perf counts, see ``axis_power``)."""

    column: str
    unit: float | None = 1.0


FAMILIES = {
    "throughput": Family("published_l2_bps", 1e9),
    "latency": Family("published_latency_s"),
    "softirq": Family("cpu_value"),
    "instructions": Family("published_instructions", None),
    "branches": Family("published_branches", None),
    "l1_loads": Family("published_l1d_loads", None),
    "l1_load_misses": Family("published_l1d_misses", None),
}
BAR_MARGIN = 1.05  # of matplotlib's axis above the highest bar


def axis_power(values: pd.Series) -> float:
    """Return the power of ten that matplotlib writes above the axis of plain counts: 1 below a million.

    ScalarFormatter takes it out from an order of magnitude of 6 on, judged by the highest tick within the axis.
    """
    top = BAR_MARGIN * float(values.max()) if len(values) else 0.0
    order = floor(log10(top)) if top > 0 else 0
    return 10.0**order if order >= 6 else 1.0


def as_printed(trials: pd.DataFrame, spec: Spec) -> pd.DataFrame:
    """Return the rows that the figure was drawn from, with their value in the column ``printed``."""
    rows = drawn_repetition(selected(trials, spec), spec)
    if spec.hue == "cpu":
        rows = by_cpu(rows, "published_softirq_percent")
    family = FAMILIES[spec.family]
    if spec.family == "throughput":
        rows = rows.assign(published_l2_bps=rows["published_rx_mean_pps"] * rows["frame_bytes"] * 8)
    values = rows[family.column].astype("Float64")
    rows = rows.assign(printed=values.astype(float))[values.notna().to_numpy()]
    return rows[rows["printed"] >= 0] if spec.family == "latency" else rows


def published_marks(trials: pd.DataFrame, spec: Spec) -> pd.DataFrame:
    """Return what the published figure shows, one row a mark with MARK_COLUMNS; a bar of no height is no mark.

    Values are in the unit of the axis: Gbit/s, seconds, percent, counts with the axis' own power of ten.
    """
    means = [(place, float(rows["printed"].mean())) for place, rows in placed(as_printed(trials, spec), spec)]
    shown = [(place, value) for place, value in means if value != 0 or spec.kind != "bar"]
    unit = FAMILIES[spec.family].unit or axis_power(pd.Series([value for _, value in shown], dtype=float))
    marks = [(spec.figure, spec.file, spec.kind, *place, value / unit) for place, value in shown]
    return pd.DataFrame(marks, columns=list(MARK_COLUMNS))
