"""The thesis' figures as published and corrected: marks and labels, drawn like every other figure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from textwrap import shorten
from typing import Literal, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xdplab.analysis.intervals import Spread
from xdplab.analysis.values import records
from xdplab.figures.marks import COLUMNS, Axes, Look, Order, View, Words, marks_frame
from xdplab.thesis.language import (
    ABSENT,
    AS_PUBLISHED,
    BY_DUT,
    CLOCK,
    CORRECTED,
    CORRECTED_Y,
    HUE_TITLES,
    LEFT_OUT,
    NO_INTERVAL,
    NO_VALUE,
    NOT_MEASURED,
    POINTS,
    POOLED,
    PRINTED_ERRORS,
    PUBLISHED_Y,
    RING,
    RING_ALWAYS,
    SCALES,
    WHAT,
    X_LABELS,
    Language,
    reason_in,
    shown_label,
)
from xdplab.thesis.published import (
    FAMILIES,
    MARK_COLUMNS,
    MODES,
    RANKS,
    Axis,
    Spec,
    as_printed,
    axis,
    axis_power,
    by_cpu,
    drawn_repetition,
    lean,
    place_names,
    printed_rows,
    published_marks,
    ranked,
    selected,
)
from xdplab.thesis.rules import LEAST_CLOCK_ERROR, clock_ratio, corrected, like_for_like, ring_depths, rings_of

PALETTE = "Paired"
USER = "user"
MOST_REASONS = 4
REASON_CHARS = 130  # then whole words are left out
ORIGINAL_REPETITIONS = {"native": 3, "generic": 3, "af_xdp": 3}


@dataclass(frozen=True, eq=False)
class Source:
    """One imported run, prepared once for all figures.

    ``printed``: what was printed; ``better``: trials as the better counter tells them, with ``ring_share``, the frames
    in flight over the ring's entries; ``clock``: the generator's seconds in the DUT's.
    """

    run_id: str
    printed: pd.DataFrame
    better: pd.DataFrame
    alike: dict[str, tuple[int, ...]]
    clock: float = 1.0


CORRECTED_COLUMNS = (
    "forwarded_pps",
    "latency_mean_ns",
    "dut_cpus",
    "softirq_by_cpu_percent",
    "user_percent",
    "verdict",
    "reason",
    "limited_by",
    "null_reasons",
    "instructions",
    "branches",
    "l1d_loads",
    "l1d_misses",
)


def source_of(trials: pd.DataFrame) -> Source:
    """Prepare the judged trials of an imported run."""
    better = corrected(trials)
    rows = lean(better, CORRECTED_COLUMNS)
    rows = rows.assign(forwarded_l2_bps=rows["forwarded_pps"] * rows["frame_bytes"] * 8)
    rows = rows.assign(ring_share=_ring_share(rows, ring_depths(better)))
    run_id = str(trials["run_id"].iloc[0]) if len(trials) else ""
    alike = like_for_like(better, ORIGINAL_REPETITIONS)
    return Source(run_id, printed_rows(trials), rows, alike, clock_ratio(trials)[0])


def _ring_share(rows: pd.DataFrame, depths: dict[tuple[str, int], int]) -> pd.Series:
    """Return latency × rate a CPU at work over the entries of the repetition's ring; NaN if that is not known."""
    places = [(rings_of(mode), int(number)) for mode, number in zip(rows["mode"], rows["repetition"], strict=True)]
    entries = pd.Series([depths.get(place, np.nan) for place in places], index=rows.index, dtype=float)
    return rows["latency_mean_ns"] * 1e-9 * rows["forwarded_pps"] / rows["dut_cpus"] / entries


# --- as published ---


def published_view(source: Source, spec: Spec, language: Language = "en") -> View:
    """Return what the published figure shows: marks of published_marks, words in ``language``."""
    marks = published_marks(source.printed, spec)
    label_of = PUBLISHED_Y[spec.family].of(language)
    pooled = pools_sizes(spec)
    if pooled:
        marks = marks.merge(bootstrap(as_printed(source.printed, spec), spec), on=["panel", "hue", "x"], how="left")
    interval = POOLED if pooled else NO_INTERVAL
    notes = (AS_PUBLISHED, interval, *([PRINTED_ERRORS[spec.family]] if spec.family in PRINTED_ERRORS else []))
    numbers = {"folders": ", ".join(folders(spec)), "seed": SEED, "resamples": RESAMPLES}
    caption = " ".join(note.of(language).format(**numbers) for note in notes)
    caption += _empty_panels(marks, spec, language)
    # `marks` hold the axis' power of ten already; the words need it.
    power = power_of(source, spec) if FAMILIES[spec.family].unit is None else 1.0
    label = label_of.format(power="" if power == 1 else f" (×10{_superscript(int(np.log10(power)))})")
    return View(
        marks_frame(records(marks)),
        look_of(spec, language, label, (caption,)),
    )


def _empty_panels(marks: pd.DataFrame, spec: Spec, language: Language) -> str:
    """Name the panels without a mark: an axis without bars looks like a rate of 0."""
    drawn = set(marks["panel"])
    empty = [shown_label(panel, language) for panel in _labels(axis(spec, "panel")) if panel not in drawn]
    return " " + NO_VALUE.of(language).format(panels=", ".join(empty)) if empty else ""


SEED = 2022
RESAMPLES = 1000  # seaborn's own number


def pools_sizes(spec: Spec) -> bool:
    """True if a bar is a mean over frame sizes: seaborn then drew an interval by itself."""
    return spec.family == "softirq" and not spec.frame_bytes


def bootstrap(rows: pd.DataFrame, spec: Spec) -> pd.DataFrame:
    """Return low and high of each bar: the 95 % percentile interval of the mean over resampled frame sizes.

    As seaborn's barplot draws it by default (Efron 1979), which uses no seed: this is one draw of it, with SEED.
    """
    rng = np.random.default_rng(SEED)
    intervals = []
    for key, values in ranked(rows, spec).groupby(RANKS, sort=True)["printed"]:
        sample = values.to_numpy(dtype=float)
        means = sample[rng.integers(0, len(sample), (RESAMPLES, len(sample)))].mean(axis=1)
        low, high = np.percentile(means, (2.5, 97.5)) if len(sample) > 1 else (np.nan, np.nan)
        intervals.append((*place_names(spec, key), low, high))
    return pd.DataFrame(intervals, columns=["panel", "hue", "x", "low", "high"])


def power_of(source: Source, spec: Spec) -> float:
    """Return the power of ten above the published axis of counts."""
    rows = drawn_repetition(selected(source.printed, spec), spec)
    return axis_power(rows[FAMILIES[spec.family].column].dropna())


def _superscript(number: int) -> str:
    return "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(number))


def folders(spec: Spec) -> list[str]:
    """Return the folders of the repetitions that were drawn."""
    names = {mode: f"resultados{'_af_xdp' if mode == 'af_xdp' else ''}{n}" for mode, n in spec.repetitions.items()}
    return list(dict.fromkeys(names.values()))


def look_of(
    spec: Spec, language: Language, y_label: str, caption: tuple[str, ...], y_scale: Literal["linear", "log"] = "linear"
) -> Look:
    """Return the words, levels and colours of a figure's panels."""
    hues, panels, x_values = (_labels(axis(spec, place)) for place in ("hue", "panel", "x"))
    return Look(
        Axes(X_LABELS[spec.x].of(language), y_label, y_scale=y_scale),
        Order(hues, panels, x_values, palette=PALETTE),
        Words(hue_title=HUE_TITLES[spec.hue].of(language), caption=caption),
    )


def scale_of(spec: Spec) -> Literal["linear", "log"]:
    """Return the scale of corrected and repeated values; the published page is linear throughout."""
    return "log" if spec.family == "latency" else "linear"


def _labels(a: Axis) -> tuple[str, ...]:
    return tuple(a.label(level) for level in a.levels)


def translated(view: View, language: Language) -> View:
    """Return a view whose labels are drawn in ``language``; the marks on disk keep theirs."""
    marks, order = view.marks.copy(), view.look.order
    for name in ("panel", "hue"):
        marks[name] = [shown_label(str(label), language) for label in marks[name]]
    panels, hues = (tuple(shown_label(label, language) for label in labels) for labels in (order.panels, order.hues))
    return View(marks, replace(view.look, order=replace(order, panels=panels, hues=hues)))


# --- corrected ---

VALUES = {
    "throughput": ("forwarded_l2_bps", 1e9),
    "latency": ("latency_mean_ns", 1e3),
    "softirq": ("cpu_value", 1.0),
    "instructions": ("instructions", 1.0),
    "branches": ("branches", 1.0),
    "l1_loads": ("l1d_loads", 1.0),
    "l1_load_misses": ("l1d_misses", 1.0),
}


def corrected_rows(source: Source, spec: Spec) -> pd.DataFrame:
    """Return the like-for-like rows of a figure, its value in the column ``value``; one row per CPU where it has CPUs.

    A value that is missing or not credible is null, with the reason in ``why``.
    """
    rows = selected(source.better, spec)
    pairs = {(mode, float(repetition)) for mode, repetitions in source.alike.items() for repetition in repetitions}
    measured = zip(rows["mode"].tolist(), rows["repetition"].tolist(), strict=True)
    rows = rows[np.array([pair in pairs for pair in measured], dtype=bool)]
    if spec.hue == "cpu":
        rows = _with_user_core(rows)
    column, _ = VALUES[spec.family]
    believed = rows["verdict"] == "valid"
    value = rows[column].astype(float).where(believed)
    columns = ("verdict", "reason", "null_reasons", "limited_by")
    cells = zip(value.isna().tolist(), zip(*(rows[name].tolist() for name in columns), strict=True), strict=True)
    reasons = [_why(row, column) if missing else "" for missing, row in cells]
    return rows.assign(value=value, why=reasons).reset_index(drop=True)


def _with_user_core(rows: pd.DataFrame) -> pd.DataFrame:
    """Add to the softirq of CPUs 0 to 7 what AF_XDP's own core does in user space."""
    user = rows[(rows["mode"] == "af_xdp") & rows["user_percent"].notna()]
    user = user.assign(cpu=USER, cpu_value=user["user_percent"])
    unknown = rows[rows["softirq_by_cpu_percent"].isna()].assign(cpu=0.0, cpu_value=np.nan)
    cpus = by_cpu(rows, "softirq_by_cpu_percent")
    parts = [part.astype({"cpu": object}) for part in (cpus, user, unknown) if len(part)]
    return pd.concat(parts) if parts else rows.assign(cpu=None, cpu_value=np.nan)


EVENT_COLUMNS = {"instructions", "branches", "l1d_loads", "l1d_misses"}
_NULL_REASON = {"cpu_value": "cpu_softirq_cores", "forwarded_l2_bps": "rx_packets"}


def _why(row: tuple[object, ...], column: str) -> str:
    verdict, reason, nulls, limit = row
    if verdict != "valid" and column not in EVENT_COLUMNS:
        return str(reason)
    if column == "forwarded_l2_bps" and limit == "generator":
        return "at the generator's ceiling: the DUT may have forwarded more"
    return _null_reasons(str(nulls or "{}")).get(_NULL_REASON.get(column, column), "not recorded")


@lru_cache(maxsize=256)
def _null_reasons(text: str) -> dict[str, str]:
    """Thousands of characters that most trials share."""
    return cast(dict[str, str], json.loads(text))


def corrected_marks(rows: pd.DataFrame, spec: Spec) -> pd.DataFrame:
    """Return the corrected figure's marks from ``corrected_rows``; a mark that nothing supports is absent."""
    measured = rows[rows["value"].notna()]
    user = measured["cpu"].eq(USER) if spec.hue == "cpu" else pd.Series(False, index=measured.index)
    parts = [_means(measured[~user], spec, None), _means(measured[user].assign(cpu=0), spec, USER)]
    return marks_frame(mark for part in parts for mark in part)


def _means(rows: pd.DataFrame, spec: Spec, hue: str | None) -> Iterator[dict[str, object]]:
    """Yield one mark per place: the mean over repetitions, each a mean over frame sizes where a figure pools them."""
    if rows.empty:
        return
    unit = VALUES[spec.family][1]
    at = ranked(rows, spec)
    repetitions = at.groupby([*RANKS, "mode", "repetition"])["value"].mean()
    keys = [tuple(index[: len(RANKS)]) for index in repetitions.index.to_list()]
    means = repetitions.to_numpy(dtype=float)
    limits, points = (_sets(at, name) for name in ("limited_by", "point_id"))
    for key, rows_of_key in groupby(range(len(keys)), keys.__getitem__):  # sorted; a Series each would take seconds
        spread = _on_its_scale(means[list(rows_of_key)], spec, unit)
        panel, label, x = place_names(spec, key)
        yield {
            "figure": spec.figure, "file": spec.file, "kind": spec.kind, "panel": panel, "hue": hue or label, "x": x,
            "value": spread.mean, "low": spread.low, "high": spread.high, "n": spread.n, "verdict": "valid",
            "limited_by": _limit(limits[key]) if spec.family == "throughput" else None,
            "points": ",".join(sorted(map(str, points[key]))),
        }  # fmt: skip


def _places(at: pd.DataFrame) -> list[tuple[int, ...]]:
    """Return the ranks of each row of ``ranked``."""
    return list(zip(*(at[rank].tolist() for rank in RANKS), strict=True))


def _sets(at: pd.DataFrame, column: str) -> dict[tuple[int, ...], set[object]]:
    """Return the values of a column at each place; pandas makes an array for each, in ten times the time."""
    sets: dict[tuple[int, ...], set[object]] = {}
    for place, value in zip(_places(at), at[column].tolist(), strict=True):
        sets.setdefault(place, set()).add(value)
    return sets


def _on_its_scale(values: NDArray[np.float64], spec: Spec, unit: float) -> Spread:
    """Shares of a CPU lie between 0 and 100 %, everything else above 0; user time may be of several CPUs."""
    if spec.family == "softirq" and ((values >= 0) & (values <= 100)).all():
        spread = Spread.of(values / 100, "logit")
        return replace(spread, mean=100 * spread.mean, low=100 * spread.low, high=100 * spread.high)
    return Spread.of(values / unit, "log")


def _limit(limits: Collection[object]) -> str | None:
    """What bounds one repetition's rate bounds the mean's."""
    return next((name for name in ("generator", "link", "dut") if name in limits), None)


def corrected_view(source: Source, spec: Spec, language: Language = "en") -> View:
    """Return the corrected version of a published figure; its caption says what the data cannot show."""
    rows = corrected_rows(source, spec)
    marks = corrected_marks(rows, spec)
    left_out = _left_out(source, spec, language) if spec.family in WHAT else ""
    remarks = (_what(source, spec, language), _of_the_ring(rows, spec, language), _by_dut(rows, language))
    caption = [part for part in (*remarks, left_out, absent_words(rows, spec, language)) if part]
    if rows.empty:
        caption = [NOT_MEASURED.of(language)]
    label = CORRECTED_Y[spec.family].of(language).format(power="")
    look = look_of(spec, language, label, tuple(caption), scale_of(spec))
    if spec.hue == "cpu":
        look = replace(look, order=replace(look.order, hues=(*look.order.hues, USER)))
    return View(marks, look)


def _repetitions(numbers: dict[str, tuple[int, ...]], spec: Spec) -> str:
    shown = [mode for mode in MODES if mode in spec.repetitions and (spec.mode in (None, mode))]
    return ", ".join(f"{MODES[m]} {'+'.join(map(str, numbers[m]))}" for m in shown if numbers.get(m))


def _what(source: Source, spec: Spec, language: Language) -> str:
    if spec.family not in WHAT:
        return ""
    what, numbers = WHAT[spec.family].of(language), _repetitions(source.alike, spec)
    if spec.family == "throughput" and abs(source.clock - 1) >= LEAST_CLOCK_ERROR:
        what += CLOCK.of(language).format(percent=100 * (source.clock - 1))
    scale = SCALES["logit" if spec.family == "softirq" else "log"].of(language)
    return CORRECTED.of(language).format(what=what, repetitions=numbers, scale=scale)


RING_FULL = 0.5


def _of_the_ring(rows: pd.DataFrame, spec: Spec, language: Language) -> str:
    """Say at how many points the latency is a ring's fill, and at how many the ring stays less than half full."""
    shares = (
        rows.loc[rows["value"].notna(), "ring_share"].dropna() if spec.family == "latency" else pd.Series(dtype=float)
    )
    if shares.empty:
        return ""
    full = int((shares >= RING_FULL).sum())
    return (RING_ALWAYS if full == len(shares) else RING).of(language).format(full=full, all=len(shares))


def _by_dut(rows: pd.DataFrame, language: Language) -> str:
    measured = rows[rows["value"].notna()]
    trials = zip(measured["trial_id"].tolist(), measured["reason"].tolist(), strict=True)
    by_dut = {trial for trial, reason in trials if str(reason).startswith("by the DUT's count")}
    return BY_DUT.of(language).format(count=len(by_dut)) if by_dut else ""


def _left_out(source: Source, spec: Spec, language: Language) -> str:
    measured = source.better.groupby("mode")["repetition"].unique()
    others = {
        mode: tuple(sorted(int(n) for n in measured.get(mode, ()) if n not in source.alike.get(mode, ())))
        for mode in spec.repetitions
    }
    repetitions_text = _repetitions(others, spec)
    return LEFT_OUT.of(language).format(repetitions=repetitions_text) if repetitions_text else ""


def absent_words(rows: pd.DataFrame, spec: Spec, language: Language) -> str:
    """Return why marks are absent: places where no like-for-like trial has a value, by reason."""
    shown = rows[rows["cpu"] != USER] if spec.hue == "cpu" else rows
    at = ranked(shown, spec)
    places, reasons = _places(at), at["why"].tolist()
    measured = {place for place, has_value in zip(places, at["value"].notna().tolist(), strict=True) if has_value}
    empty: dict[tuple[int, ...], str] = {}
    for place, reason in zip(places, reasons, strict=True):
        if place not in measured:
            empty.setdefault(place, str(reason))
    missing = Counter(_brief(reason_in(language, empty[place])) for place in sorted(empty))
    parts = [POINTS.of(language).format(count=n, reason=reason) for reason, n in missing.most_common(MOST_REASONS)]
    return ABSENT.of(language).format(parts="; ".join(parts)) if parts else ""


@lru_cache(maxsize=256)
def _brief(reason: str) -> str:
    """Reasons that differ in their numbers are one; those of perf and of the digits keep them."""
    text = re.sub(r"\d[\d.,]{2,}", "n", reason).replace("; ", ", ")  # reasons are told apart by semicolons
    return shorten(text, REASON_CHARS, placeholder=" …")


def published_table(view: View) -> pd.DataFrame:
    """Return a published view's marks with the columns of the reference tables, and intervals where there were some."""
    drawn = ["low", "high"] if view.marks["low"].notna().any() else []
    return view.marks[[*MARK_COLUMNS, *drawn]]


def corrected_table(view: View) -> pd.DataFrame:
    """Return a corrected view's marks: the same columns first, then intervals and provenance."""
    return view.marks[[*MARK_COLUMNS, *(name for name in COLUMNS if name not in MARK_COLUMNS)]]
