"""What a finding changes in the published figures: each is drawn with and without the fault, and the marks are
compared. An effect is the mark without the fault: another number, or no mark if no number is known. A finding without
an effect changes what marks mean, and no mark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xdplab.analysis.findings import Finding
from xdplab.analysis.series import settled
from xdplab.thesis.audit_page import Changes, trials_of
from xdplab.thesis.published import (
    CPUS,
    FAMILIES,
    RANKS,
    Spec,
    drawn_repetition,
    printed_rows,
    published_figures,
    ranked,
    selected,
)
from xdplab.thesis.rules import clock_ratio

Array = NDArray[np.floating[Any]]
Places = NDArray[np.integer[Any]]
SMALLEST = 1e-4
"""Of an axis' range: marks of the published PDFs can be read back that closely, and smaller changes cannot be seen."""
_RATE, _LATENCY, _SOFTIRQ = "published_rx_mean_pps", "published_latency_s", "published_softirq_percent"
_PERF = tuple(family.column for family in FAMILIES.values() if family.unit is None)


def _column(trials: pd.DataFrame, name: str) -> Array:
    return trials[name].astype("Float64").to_numpy(dtype=float, na_value=np.nan)


def _nothing(trials: pd.DataFrame) -> Array:
    return np.full(len(trials), np.nan)


def _latency_s(trials: pd.DataFrame) -> Array:
    return _column(trials, "latency_mean_ns") * 1e-9


def _steady(trials: pd.DataFrame) -> Array:
    return by_cpu_table(trials["softirq_by_cpu_percent"])


def by_cpu_table(lists: pd.Series) -> Array:
    """Return (trials, CPUs) from a column of JSON lists; what is absent is NaN."""
    table = np.full((len(lists), len(CPUS)), np.nan)
    for row, text in enumerate(lists):
        if isinstance(text, str):
            values = json.loads(text)[: len(CPUS)]
            table[row, : len(values)] = [np.nan if value is None else value for value in values]
    return table


Effect = Callable[[pd.DataFrame], Array]
EFFECTS: dict[str, dict[str, Effect]] = {
    "deaf generator": {_RATE: lambda t: _column(t, "dut_count_pps"), _LATENCY: _nothing},
    "deaf generator by signature": {_RATE: _nothing, _LATENCY: _nothing},
    "counts differ": {_RATE: lambda t: _column(t, "forwarded_pps")},
    "counts disagree": {_RATE: lambda t: _column(t, "forwarded_pps")},
    "generator-limited plateau": {_RATE: lambda t: _column(t, "dut_count_pps")},
    "appended runs": {
        _RATE: lambda t: _column(t, f"first_{_RATE}"),
        _LATENCY: lambda t: _column(t, f"first_{_LATENCY}"),
    },
    "no traffic": {
        _RATE: _nothing,
        _LATENCY: _nothing,
        _SOFTIRQ: lambda t: np.full((len(t), len(CPUS)), np.nan),
    },
    "negative latency": {_LATENCY: _latency_s},
    "frames of others in the mean": {_LATENCY: _latency_s},
    "perf of the wrong target": dict.fromkeys(_PERF, _nothing),
    "last sample for a run": {_SOFTIRQ: _steady},
    "clocks": {_RATE: lambda t: _column(t, _RATE) / _column(t, "clock_ratio")},
}


@dataclass(frozen=True, eq=False)
class _Places:
    """Which trials (rows) and CPUs stand at which of a figure's marks."""

    spec: Spec
    rows: Places
    cpus: Places | None
    marks: Places
    count: int

    def drawn(self, values: Array, scale: Array) -> Array:
        """Return the figure's marks, NaN if there is none: a mean over no value, or a bar of no height."""
        drawn_values = values[self.rows] * scale[self.rows] if self.cpus is None else values[self.rows, self.cpus]
        drawn_values = (
            np.where(drawn_values < 0, np.nan, drawn_values) if self.spec.family == "latency" else drawn_values
        )
        measured = ~np.isnan(drawn_values)
        counts = np.bincount(self.marks[measured], minlength=self.count)
        sums = np.bincount(self.marks[measured], drawn_values[measured], minlength=self.count)
        with np.errstate(invalid="ignore"):
            means = np.where(counts > 0, sums / counts, np.nan)
        return np.where(means == 0, np.nan, means) if self.spec.kind == "bar" else means


class Album:
    """The published figures of an imported run, to be made again without one fault or another."""

    def __init__(self, judged: pd.DataFrame) -> None:
        last = settled(judged).reset_index(drop=True)
        first = judged.sort_values("attempt", kind="stable").drop_duplicates("trial_id").set_index("trial_id")
        for name in (_RATE, _LATENCY):
            last[f"first_{name}"] = first[name].reindex(last["trial_id"]).array
        last["clock_ratio"] = clock_ratio(judged)[0]
        self.trials = last
        self.place = {str(name): at for at, name in enumerate(last["trial_id"])}
        columns = {family.column for family in FAMILIES.values()} - {"cpu_value", "published_l2_bps"}
        self.printed = {name: _column(last, name) for name in (*columns, _RATE)}
        self.printed[_SOFTIRQ] = by_cpu_table(last[_SOFTIRQ])
        rows = printed_rows(judged).reset_index(drop=True)
        self.rows = rows.assign(row=[self.place[str(name)] for name in rows["trial_id"]])
        self.figures = [self._places(spec) for spec in published_figures()]

    def _places(self, spec: Spec) -> _Places:
        rows = drawn_repetition(selected(self.rows, spec), spec)
        if spec.hue == "cpu":
            rows = rows.loc[rows.index.repeat(len(CPUS))].assign(cpu=np.tile(CPUS, len(rows)))
        at = ranked(rows, spec)
        marks = at.groupby(RANKS, sort=True).ngroup().to_numpy()
        cpus = at["cpu"].to_numpy(dtype=np.int64) if spec.hue == "cpu" else None
        return _Places(spec, at["row"].to_numpy(dtype=np.int64), cpus, marks, int(marks.max(initial=-1)) + 1)

    def changes(self, rule: str, trials: Iterable[str]) -> Changes:
        """Return what the figures would show without what ``rule`` found in ``trials`` (trial_id)."""
        concerned = np.array(sorted({self.place[name] for name in trials if name in self.place}), dtype=np.int64)
        of_rule = Changes()
        if not len(concerned):
            return of_rule
        for column, effect in EFFECTS.get(rule, {}).items():
            without = self.printed[column].copy()
            without[concerned] = effect(self.trials.iloc[concerned])
            for places in self.figures:
                if _drawn_column(places.spec) == column and np.isin(places.rows, concerned).any():
                    self._compare(places, column, without, of_rule)
        return of_rule

    def _compare(self, places: _Places, column: str, without: Array, changes: Changes) -> None:
        scale = _column(self.trials, "frame_bytes") * 8 if column == _RATE else np.ones(len(self.trials))
        before, after = (places.drawn(values, scale) for values in (self.printed[column], without))
        span = float(np.nanmax(before)) if not np.isnan(before).all() else float(np.nanmax(after, initial=0))
        share = np.abs(np.nan_to_num(after) - np.nan_to_num(before)) / (span or 1.0)
        changed = (np.isnan(before) != np.isnan(after)) | (share > SMALLEST)
        if changed.any():
            file = places.spec.file
            changes.marks[file] = int(changed.sum())
            changes.most[file] = float(share[changed].max())


def _drawn_column(spec: Spec) -> str:
    named = {"throughput": _RATE, "softirq": _SOFTIRQ}
    return named.get(spec.family, FAMILIES[spec.family].column)


def by_rule(album: Album, findings: Sequence[Finding]) -> Mapping[str, Changes]:
    """Return what all findings of one rule change together."""
    trials: dict[str, list[str]] = {}
    for finding in findings:
        trials.setdefault(finding.rule, []).extend(trials_of(finding))
    return {rule: album.changes(rule, names) for rule, names in trials.items()}
