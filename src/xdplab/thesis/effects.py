"""What a finding changes in the published figures: each is drawn with and without the fault, and the marks are
compared. An effect is the mark without the fault: another number, or no mark if no number is known. A finding without
an effect changes what marks mean, and no mark.

The audit of an imported run begins with one page of what the findings change, as a referee reads it; the details are
behind it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xdplab.analysis.findings import Finding
from xdplab.analysis.series import settled
from xdplab.text import many
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
    "last sample for a run": {_SOFTIRQ: lambda trials: by_cpu_table(trials["softirq_by_cpu_percent"])},
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


# --- what a finding changes in the published figures, as a table that needs nothing to draw with ---


@dataclass(frozen=True)
class Changes:
    """By figure: how many of its marks change, and by how much at most, as a share of the axis' range."""

    marks: dict[str, int] = field(default_factory=dict)
    most: dict[str, float] = field(default_factory=dict)


def trials_of(finding: Finding) -> list[str]:
    """Return the trial_ids that a finding's raw folders name."""
    return [parts[1] for name in finding.files if (parts := name.split("/"))[0] == "raw" and len(parts) > 1]


LINES = 10
SUPERSEDED = frozenset({"latency is a ring's fill", "repetitions form classes", "no valid trial", "fewer repetitions"})
"""Rules of every run that an import's own rules say better: ring depth, other program, deaf generator, no traffic."""
IN_SHORT = {
    "deaf generator": "drawn as no throughput while the DUT forwarded",
    "deaf generator by signature": "drawn as no throughput; what the DUT forwarded is not known",
    "no traffic": "no counter saw a frame: no measurement",
    "counts differ": "the generator missed frames that the DUT sent",
    "counts disagree": "the generator missed frames that the DUT sent",
    "generator-limited plateau": "the generator's own ceiling, drawn as the DUT's rate",
    "appended runs": "two runs in a file; the other one would have been drawn so",
    "negative latency": "left out of the figures; some can be had",
    "frames of others in the mean": "latencies that hold frames of others",
    "two latencies in a run": "one number for two states",
    "rate steps in mid-run": "one number for two states",
    "ring-bound latency": "the latency is the fill of a ring",
    "other ring depth": "the latency is the fill of a ring, and not of the same one in every repetition",
    "other program": "repetitions that measured other code",
    "perf of the wrong target": "counts that say nothing of XDP",
    "one AF_XDP socket": "the queue count changes the steering, not the work",
    "last sample for a run": "two seconds stand for a minute",
    "clocks": "every rate that the generator counted",
    "sent more than the link carries": "no loss can be had",
    "missing points": "cells without a measurement",
    "accesses not as labelled": "N + 1 lookups whose value is never read",
    "other program, by its source": "AF_XDP ran other code than XDP",
    "axis in another unit": "seconds, labelled nanoseconds",
    "rate labels swapped": "two columns of the CSV files have each other's names",
}


def kept(ours: Sequence[Finding], common: Sequence[Finding]) -> list[Finding]:
    """Return the import's findings and those of every run, each statement once."""
    findings: dict[tuple[str, str], Finding] = {}
    for finding in (*ours, *(f for f in common if f.rule not in SUPERSEDED)):
        findings.setdefault((finding.rule, finding.what), finding)
    return list(findings.values())


def ordered(findings: Sequence[Finding], changes: Mapping[str, Changes]) -> list[str]:
    """Return the rules: those that change most marks first, then by severity and number of trials."""
    rules: dict[str, list[Finding]] = {}
    for finding in findings:
        rules.setdefault(finding.rule, []).append(finding)

    def weight(rule: str) -> tuple[int, bool, bool, int]:
        marks = sum(changes[rule].marks.values()) if rule in changes else 0
        warned = any(finding.severity == "warning" for finding in rules[rule])
        return (-marks, rule not in IN_SHORT, not warned, -_trials(rules[rule]))

    return sorted(rules, key=weight)


def _trials(findings: Sequence[Finding]) -> int:
    return len({trial for finding in findings for trial in trials_of(finding)})


def first_page(findings: Sequence[Finding], changes: Mapping[str, Changes], figures: int) -> list[str]:
    """Return the page in Markdown: ten lines at the most, each a kind of finding with what it truly changes."""
    rules = ordered(findings, changes)
    lines = [
        f"{len(findings)} findings of {len(rules)} kinds. A finding changes a figure where the figure, made again",
        f"without the fault, has other marks ({figures} figures; a change below 10⁻⁴ of the axis is none).",
        "",
        "| finding | trials | changes | what it means |",
        "| --- | --- | --- | --- |",
    ]
    for rule in rules[:LINES]:
        of_rule = [finding for finding in findings if finding.rule == rule]
        short = IN_SHORT.get(rule) or of_rule[0].what
        lines.append(f"| {rule} | {_trials(of_rule)} | {_changed(changes.get(rule))} | {short} |")
    if len(rules) > LINES:
        lines += ["", f"Further kinds: {', '.join(rules[LINES:])}."]
    return [*lines, ""]


def _changed(changes: Changes | None) -> str:
    if changes is None or not changes.marks:
        return "no mark: what marks mean"
    marks = sum(changes.marks.values())
    figures, most = many(len(changes.marks), "figure"), max(changes.most.values())
    if not most:
        return f"{many(marks, 'mark')} at 0 left out, in {figures}"
    return f"{many(marks, 'mark')} in {figures}, by up to {_percent(most)} of the axis"


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{100 * share:.2g} %"
