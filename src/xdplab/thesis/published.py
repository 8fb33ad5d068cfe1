"""The thesis' 110 figures as views: which trials stand where, and what was drawn of them.

"As published" is a view like any other: the last row or sample of one repetition, without a verdict. Each figure is a
row of published.csv: its family says what was drawn, its panel, hue and x say along which factors, the rest is held.
Source of the definitions: I. F. Capeletti, Unipampa 2022; no value of it is here.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import floor, log10
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from xdplab.analysis.series import plain, settled
from xdplab.errors import FigureError
from xdplab.thesis.columns import TRIAL_EXTRAS

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
    """One published figure: a row of published.csv. A factor that is held is a value, None if it is not.

    ``file`` is its path below graficos/; ``figure`` its number in the text, empty if it has none there.
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
    text = (resources.files("xdplab.thesis") / "published.csv").read_text()
    return tuple(_spec(row) for row in csv.DictReader(text.splitlines()))


def _spec(row: dict[str, str]) -> Spec:
    xdp, af_xdp = row["xdp_repetition"], row["af_xdp_repetition"]
    repetitions = {"native": xdp, "generic": xdp, "af_xdp": af_xdp}
    return Spec(
        **{name: row[name] for name in ("file", "figure", "family", "kind", "panel", "hue", "x")},
        mode=row["mode"] or None,
        queues=row["queues"] or None,
        frame_bytes=tuple(int(size) for size in row["frame_bytes"].split("|") if size),
        accesses=int(row["accesses"]) if row["accesses"] else None,
        repetitions={mode: int(number) for mode, number in repetitions.items() if number},
    )


PERF_FIGURES = {
    "29": "instrucoes_hook_ebpf_x_packet_size@alg_12800",
    "30": "branches_hook_x_algoritmo@64B",
    "31": "branches_hook_x_packet_size@12800",
    "32": "loads_hits_hook_ebpf_x_algoritmo@packet_size_1024",
    "33": "loads_misses_hook_ebpf_x_algoritmo@packet_size_1024",
}
"""The perf figures behind 28, in the text's order (instructions, branches, L1 loads, L1 load misses): the files carry
no numbers, and some exist twice."""


def figure_named(name: str) -> Spec:
    """Return the figure of that path, path without suffix, or number. Raises FigureError naming what is like it."""
    name = PERF_FIGURES.get(name, name)
    named = [s for s in published_figures() if name in (s.file, s.stem, s.figure) and name]
    if not named:
        similar = [spec.file for spec in published_figures() if name in spec.file][:5]
        raise FigureError(
            f"no published figure {name!r}",
            remedy=f"did you mean {', '.join(similar)}?" if similar else "use a path of the list, or a number from 18",
        )
    return named[0]


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
        unit = {True: " fila", False: " filas"}[spec.family == "softirq"] + " de processamento"
        return Axis("queues", QUEUES, lambda queues: f"{queues}{unit if place == 'panel' else ''}")
    if factor == "frame_bytes":
        prefix = "Pacotes de " if place == "panel" else ""
        return Axis("frame_bytes", spec.frame_bytes or FRAMES, lambda size: f"{prefix}{size}B")
    if factor == "cpu":
        return Axis("cpu", CPUS, str)
    return Axis("accesses", ACCESSES, lambda n: "baseline" if n == 0 else str(n))


FACTORS = ("mode", "queues", "frame_bytes", "accesses", "repetition")


def lean(trials: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return the settled trials' factors and ``columns``, numbers as floats: 110 figures choose among them."""
    names = dict.fromkeys((*FACTORS, "trial_id", "point_id", "attempt", *columns))
    present = [name for name in names if name in trials]
    # Chosen first: all columns of a trial have ten times as many bytes.
    last = settled(trials[list(dict.fromkeys(["run_id", *present]))])
    return plain(last, present).reset_index(drop=True)


def selected(rows: pd.DataFrame, spec: Spec) -> pd.DataFrame:
    """Return the rows of any repetition whose factors the figure shows."""
    shown = rows["mode"].isin([spec.mode] if spec.mode else list(spec.repetitions))
    if spec.queues == "best":
        shown &= rows["queues"] == rows["mode"].map(BEST_QUEUES)
    elif spec.queues is not None:
        shown &= rows["queues"] == int(spec.queues)
    if spec.frame_bytes:
        shown &= rows["frame_bytes"].isin(spec.frame_bytes)
    if spec.accesses is not None:
        shown &= rows["accesses"] == spec.accesses
    return rows[shown]


def drawn_repetition(rows: pd.DataFrame, spec: Spec) -> pd.DataFrame:
    return rows[rows["repetition"] == rows["mode"].map(spec.repetitions)]


def by_cpu(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return one row per trial and CPU 0 to 7, with the columns cpu and cpu_value (%), from a column of JSON lists."""
    measured = rows[rows[column].notna()]
    lists = [json.loads(text)[: len(CPUS)] for text in measured[column]]
    long = measured.loc[measured.index.repeat([len(values) for values in lists])]
    cpus = [float(cpu) for values in lists for cpu in range(len(values))]
    return long.assign(cpu=cpus, cpu_value=np.array([v for values in lists for v in values], dtype=float))


def ranked(rows: pd.DataFrame, spec: Spec) -> pd.DataFrame:
    """Return the rows that have a place, with its rank along each axis in the columns at_panel, at_hue and at_x."""
    ranks = np.empty((len(PLACES), len(rows)), dtype=int)
    for number, place in enumerate(PLACES):
        along = axis(spec, place)
        rank_of = {level: rank for rank, level in enumerate(along.levels)}
        ranks[number] = [rank_of.get(level, -1) for level in rows[along.column].tolist()]
    placed = (ranks >= 0).all(axis=0)
    return rows[placed].assign(**dict(zip(RANKS, ranks[:, placed], strict=True)))


def place_names(spec: Spec, key: Any) -> tuple[str, str, str]:
    """Return the labels (panel, hue, x) of the ranks that ``ranked`` gave."""
    axes = (axis(spec, place) for place in PLACES)
    panel, hue, x = (along.label(along.levels[rank]) for along, rank in zip(axes, key, strict=True))
    return panel, hue, x


PLACES = ("panel", "hue", "x")
RANKS = ["at_panel", "at_hue", "at_x"]


# --- as published ---


@dataclass(frozen=True)
class FigureFamily:
    """``column`` is what was drawn, ``unit`` what it was divided by (None: perf counts, see ``axis_power``)."""

    column: str
    unit: float | None = 1.0


FAMILIES = {
    "throughput": FigureFamily("published_l2_bps", 1e9),
    "latency": FigureFamily("published_latency_s"),
    "softirq": FigureFamily("cpu_value"),
    "instructions": FigureFamily("published_instructions", None),
    "branches": FigureFamily("published_branches", None),
    "l1_loads": FigureFamily("published_l1d_loads", None),
    "l1_load_misses": FigureFamily("published_l1d_misses", None),
}
BAR_MARGIN = 1.05  # of matplotlib's axis above the highest bar


def axis_power(values: pd.Series) -> float:
    """Return the power of ten that matplotlib writes above the axis of plain counts: 1 below a million.

    ScalarFormatter takes it out from an order of magnitude of 6 on, judged by the highest tick within the axis.
    """
    top = BAR_MARGIN * float(values.max()) if len(values) else 0.0
    order = floor(log10(top)) if top > 0 else 0
    return 10.0**order if order >= 6 else 1.0


def printed_rows(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that ``published_marks`` takes: those of an imported run, each number as it was printed."""
    rows = lean(trials, [column.name for column in TRIAL_EXTRAS if column.name.startswith("published_")])
    return rows.assign(published_l2_bps=rows["published_rx_mean_pps"] * rows["frame_bytes"] * 8)


def as_printed(rows: pd.DataFrame, spec: Spec) -> pd.DataFrame:
    """Return the rows that the figure was drawn from, with their value in the column ``printed``."""
    rows = drawn_repetition(selected(rows, spec), spec)
    rows = by_cpu(rows, "published_softirq_percent") if spec.hue == "cpu" else rows
    rows = rows.assign(printed=rows[FAMILIES[spec.family].column].astype(float))
    rows = rows[rows["printed"].notna()].reset_index(drop=True)
    return rows[rows["printed"] >= 0] if spec.family == "latency" else rows


def published_marks(rows: pd.DataFrame, spec: Spec) -> pd.DataFrame:
    """Return what the published figure shows, one row per mark with MARK_COLUMNS; a bar of no height is no mark.

    ``rows`` are those of ``printed_rows``. Values are in the unit of the axis: Gbit/s, seconds, percent, counts with
    the axis' own power of ten.
    """
    means = ranked(as_printed(rows, spec), spec).groupby(RANKS, sort=True)["printed"].mean()
    drawn = means[means != 0] if spec.kind == "bar" else means
    shown = [(place_names(spec, key), value) for key, value in zip(drawn.index, drawn.to_list(), strict=True)]
    unit = FAMILIES[spec.family].unit or axis_power(pd.Series([value for _, value in shown], dtype=float))
    marks = [(spec.figure, spec.file, spec.kind, *place, value / unit) for place, value in shown]
    return pd.DataFrame(marks, columns=list(MARK_COLUMNS))


# --- regenerated marks against marks that were read back from the published figures ---

TOLERANCE = 0.001  # of the axis' range
KEY = ["file", "kind", "panel", "hue", "x"]


@dataclass(frozen=True)
class Check:
    """One figure against its reference: ``worst`` is the largest difference as a share of the axis' range.

    ``off`` marks differ by more than the tolerance, ``absent`` are in the reference only, ``extra`` here only; a bar
    of no height is as good as none.
    """

    file: str
    marks: int
    worst: float
    off: int
    absent: int
    extra: int

    @property
    def equal(self) -> bool:
        return not (self.off or self.absent or self.extra)


def read_marks(path: Path) -> pd.DataFrame:
    """Return a marks table from CSV (`#` begins a comment). Raises FigureError if it has other columns."""
    try:
        table = pd.read_csv(path, comment="#", dtype=dict.fromkeys(("figure", *KEY), str))
    except (OSError, ValueError) as error:
        raise FigureError(f"{path} is no marks table: {error}") from error
    if missing := set(MARK_COLUMNS) - set(table.columns):
        raise FigureError(f"{path} is no marks table: it lacks {', '.join(sorted(missing))}")
    return table


def check_marks(marks: pd.DataFrame, reference: pd.DataFrame, tolerance: float = TOLERANCE) -> list[Check]:
    """Compare each figure that ``reference`` has; figures that it lacks are not looked at."""
    return [
        _check(str(file), marks[marks["file"] == file], expected, tolerance)
        for file, expected in reference.groupby("file")
    ]


def _check(file: str, marks: pd.DataFrame, reference: pd.DataFrame, tolerance: float) -> Check:
    top, bottom = reference["value"].max(), min(0.0, reference["value"].min())
    span = float(top - bottom) or 1.0
    both = reference[[*KEY, "value"]].merge(
        marks[[*KEY, "value"]], on=KEY, how="outer", suffixes=("_there", "_here"), indicator=True
    )
    bar = both["kind"] == "bar"
    expected = both["value_there"].mask(bar & both["value_there"].isna(), 0.0)
    here = both["value_here"].mask(bar & both["value_here"].isna(), 0.0)
    difference = (here - expected).abs() / span
    far = ~(difference <= tolerance)
    in_both = both["_merge"] == "both"
    return Check(
        file,
        len(reference),
        float(difference[in_both].max()) if in_both.any() else 0.0,
        int((far & in_both).sum()),
        int((far & (both["_merge"] == "left_only")).sum()),
        int((far & (both["_merge"] == "right_only")).sum()),
    )
