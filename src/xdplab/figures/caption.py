"""A figure's caption: the lab, the factors held constant, what the intervals are, what is not shown.

The whole caption goes into a text file beside the figure; on it stand the few words without which it misleads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

import pandas as pd

from xdplab.analysis.cost_rules import OF_WORK, unequal_work
from xdplab.analysis.count_rules import returns_frames
from xdplab.analysis.series import key_of, rows_where, same_reason
from xdplab.analysis.values import records
from xdplab.figures.factors import FACTORS, FigureRequest, levels
from xdplab.plan.factors import of_program
from xdplab.text import many

VIRTUAL = ("netns", "vm")
MOST_REASONS = 3
MOST_LEVELS = 3
OF_A_PLACE = ("lab", "arrangement")
"""Factors that every short caption begins with."""


OF_A_CAPTION = {
    *FACTORS,
    *OF_WORK,
    *("lab", "kernel", "reason", "repetition", "point_id", "dut_cpus", "dut_tx_packets", "rx_packets", "null_reasons"),
}


def _narrow(trials: pd.DataFrame, value: str) -> pd.DataFrame:
    """Keep only the columns that a caption reads: selecting rows from all hundred nullable columns is slow."""
    return trials[[name for name in trials if name in OF_A_CAPTION or name == value]]


def _judged(trials: pd.DataFrame) -> pd.DataFrame:
    return rows_where(trials, trials["verdict"].isin(["valid", "invalid"]))


def _each_once(trials: pd.DataFrame) -> pd.DataFrame:
    """Return each trial once: a table of quantiles, counters or queues has a row for each of them, and N = 0 stands in
    every series that it is lent to."""
    keys = [name for name in ("run_id", "trial_id") if name in trials]
    if "trial_id" not in keys or trials["trial_id"].is_unique or trials["trial_id"].isna().any():
        return trials
    return trials.drop_duplicates(keys)


def _drawn(trials: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return the trials that were measured and have the value; all that were measured if none has it."""
    judged = _judged(trials)
    has_value = judged[value].notna().astype(bool) if value in judged else pd.Series(True, index=judged.index)
    return rows_where(judged, has_value) if has_value.any() else judged


def lab_words(lab: str) -> str:
    """Return ``virtual lab: netns`` or ``lab: rack.yaml``: a virtual lab's rates are not a NIC's."""
    virtual = all(part.split(":")[0] in VIRTUAL for part in lab.split(" / "))
    return f"virtual lab: {lab}" if virtual else f"lab: {lab}"


def _lab(trials: pd.DataFrame) -> str:
    parts = [" and ".join(lab_words(str(lab)) for lab in levels(trials, "lab"))]
    parts += [" and ".join(FACTORS["arrangement"].label(v) for v in levels(trials, "arrangement"))]
    engines, kernels = levels(trials, "engine"), levels(trials, "kernel")
    parts += ["engine " + " and ".join(map(str, engines))] if engines else []
    parts += ["Linux " + " and ".join(map(str, kernels))] if kernels else []
    return " · ".join(part for part in parts if part)


def _repetitions(marks: pd.DataFrame, intervals: str) -> str:
    counts = marks.loc[~marks["verdict"].eq("invalid").fillna(False).astype(bool), "n"].dropna()
    if counts.empty:
        return ""
    low, high = int(counts.min()), int(counts.max())
    text = f"n = {many(low, 'repetition')}" if low == high else f"n = {low} to {high} repetitions"
    if high < 2 or (intervals and marks["low"].isna().all()):
        return f"{text}, no interval"
    return f"{text}, error bars: {intervals}" if intervals else text


def _held(shown: pd.DataFrame, used: Sequence[str], apart: Sequence[str], *, always: bool = False) -> str:
    """Name the factors held constant: those that differ from the default, or only those in every caption (``always``).

    Those that tell the figure ``apart`` from others of the run are named with their levels. A setting that differs
    among the marks and has no axis is named, too, except with ``always``: else it would pass for an effect of the axis.

    A factor that one of the programs does not have, such as a working set, is left out.
    """
    parts = []
    for name, factor in FACTORS.items():
        said_elsewhere = factor.shown.caption == "own" and (name not in apart or name in OF_A_PLACE)
        named = name in apart or factor.shown.caption == "always"
        is_held = name in shown and name not in used and not said_elsewhere and (named or not always)
        is_held = is_held and not (of_program(factor) and shown[name].isna().any())
        values = levels(shown, name) if is_held else []
        if len(values) == 1 and (named or str(values[0]) != factor.level):
            parts.append(factor.label(values[0]))
        elif len(values) > 1 and not of_program(factor) and not always:
            labels = [factor.label(value) for value in values]
            more = [f"{len(labels) - MOST_LEVELS} more"] if len(labels) > MOST_LEVELS else []
            parts.append(" or ".join(labels[:MOST_LEVELS] + more))
    return ", ".join(parts)


def _reasons(rows: pd.DataFrame, verdict: str) -> list[str]:
    """Return one phrase per mode and reason, ``native (1 point): the TG was deaf``; a mode has one reason per lab."""
    chosen = rows[rows["verdict"].isin([verdict])]
    if chosen.empty:
        return []
    keys = [chosen["mode"]] if verdict == "unsupported" else [chosen["mode"], same_reason(chosen)]
    phrases = []
    for _, group in chosen.groupby(keys, dropna=False, sort=False):
        count, reason = group["point_id"].nunique(), str(group["reason"].iloc[0]).rstrip(" .")
        mode = FACTORS["mode"].label(group["mode"].iloc[0])
        phrases.append(f"{mode} ({many(count, 'point')}): {reason}")
    more = len(phrases) - MOST_REASONS
    return phrases[:MOST_REASONS] + ([f"and {more} more in trials.parquet"] if more > 0 else [])


@dataclass(frozen=True)
class Captioned:
    """What both captions of a figure speak of: its trials, and those of them that it can show."""

    request: FigureRequest

    @cached_property
    def trials(self) -> pd.DataFrame:
        return _narrow(self.request.trials, self.request.value)

    @cached_property
    def shown(self) -> pd.DataFrame:
        return _drawn(self.trials, self.request.value)

    @cached_property
    def others(self) -> pd.DataFrame:
        """The trials that are not valid, with what their verdicts say."""
        return self.trials.loc[~self.trials["verdict"].isin(["valid"]), ["verdict", "mode", "point_id", "reason"]]

    @cached_property
    def measured(self) -> pd.DataFrame:
        """Each trial that was measured, once."""
        return _each_once(_judged(self.trials))

    @cached_property
    def one_count(self) -> str:
        return _one_count(self.shown)

    @cached_property
    def unequal_work(self) -> str:
        return _unequal_work(self.shown)


def short_caption(figure: Captioned) -> tuple[str, ...]:
    """Return the text on the figure itself: lab, repetitions, constant factors, and every warning a reader needs.

    The file beside the figure has the rest.
    """
    shown, used, apart = figure.shown, figure.request.used, figure.request.apart
    places = [lab_words(str(lab)) for lab in levels(shown, "lab")]
    parts = [" and ".join(places), *(FACTORS["arrangement"].label(v) for v in levels(shown, "arrangement"))]
    believed = rows_where(shown, ~shown["verdict"].eq("invalid").fillna(False))  # invalid ones are in no mean
    # A point has a mark in each lab and of each counter, of the repetitions that it has there.
    mark = ["point_id", *(name for name in dict.fromkeys(used) if name in believed)]
    counts = pd.Series(dtype=int)
    if "repetition" in shown:
        counts = believed.groupby(mark, dropna=False)["repetition"].nunique()
    if not counts.empty:
        low, high = int(counts.min()), int(counts.max())
        parts.append(f"n = {low if low == high else f'{low} to {high}'}")
    first = " · ".join(part for part in parts if part)
    absent = [line for verdict in ("unsupported", "failed") for line in _absent(figure.others, verdict, shown)]
    unequal = "Not the same work in every mode." if figure.unequal_work else ""
    warned = [unequal, *absent, figure.one_count, _without_value(figure, why=False)]
    return tuple(
        part for part in (first, _held(shown, used, apart, always=True), " ".join(filter(None, warned))) if part
    )


def _absent(trials: pd.DataFrame, verdict: str, shown: pd.DataFrame) -> list[str]:
    """Name the modes whose points have no trial to show, ``Unsupported: offload.``; of a mode that has other points to
    show, say how many: ``Failed: native (1 point).``"""
    chosen = trials[trials["verdict"].isin([verdict])]
    if chosen.empty:
        return []
    chosen = chosen[~chosen["point_id"].isin(shown["point_id"].dropna())]
    drawn = levels(shown, "mode")
    parts = []
    for mode in levels(chosen, "mode"):
        count = chosen.loc[chosen["mode"].eq(str(mode)), "point_id"].nunique()
        parts.append(FACTORS["mode"].label(mode) + (f" ({many(count, 'point')})" if mode in drawn else ""))
    return [f"{verdict.capitalize()}: {', '.join(parts)}."] if parts else []


def _not_shown(trials: pd.DataFrame) -> list[str]:
    parts = []
    for verdict in ("unsupported", "failed", "invalid"):
        reasons = _reasons(trials, verdict)
        parts += [f"{verdict.capitalize()}: {'; '.join(reasons).removesuffix('.')}."] if reasons else []
    return parts


def _few_cpus(shown: pd.DataFrame) -> str:
    fewer = shown["queues"].astype("Float64").gt(shown["dut_cpus"].astype("Float64")).fillna(False).astype(bool)
    if not fewer.any():
        return ""
    cpus = shown.loc[fewer, "dut_cpus"].max()
    return f"More queues than the {many(cpus, 'CPU')} at work show the mechanism, not the scaling."


def _unequal_work(shown: pd.DataFrame) -> str:
    """Warn where modes are compared whose accesses are different work for the CPU."""
    phrases = unequal_work(shown) if {"access_loads", "accesses"} <= set(shown) else []
    return f"Not the same work: {'; '.join(phrases)}." if phrases else ""


def _one_count(shown: pd.DataFrame) -> str:
    """Count the trials that only one side counted: a single count cannot be checked."""
    if not {"dut_tx_packets", "rx_packets", "action"} <= set(shown):
        return ""
    names = [name for name in ("action", "directions") if name in shown]
    acted = key_of(shown, tuple(names))
    returns = {
        key: returns_frames(row)
        for key, row in zip(acted.unique(), records(shown[names][~acted.duplicated()]), strict=True)
    }
    returned = acted.map(returns).astype(bool) & shown["action"].notna()
    whose = (("the TG's", "dut_tx_packets"), ("the DUT's", "rx_packets"))
    needed = [name for name in ("run_id", "trial_id", *(other for _, other in whose)) if name in shown]
    judged = _each_once(shown.loc[shown["verdict"].eq("valid") & returned, needed])
    alone = [(side, int(judged[other].isna().sum())) for side, other in whose]
    parts = [f"{count} of {many(len(judged), 'trial')}: {side}" for side, count in alone if count]
    return f"One count only ({'; '.join(parts)})." if parts else ""


_NO_PASS = re.compile(r"the plan asks for no (\w+) pass")


def why_null(trials: pd.DataFrame, columns: Iterable[str]) -> str:
    """Return why none of these columns has a value, ``: reason``, or the passes that a plan lacks for them."""
    texts = map(str, trials["null_reasons"].dropna().unique()) if "null_reasons" in trials else ()
    of_rows = [json.loads(text) for text in texts]
    reasons = dict.fromkeys(one[name] for one in of_rows for name in columns if name in one)
    lacking = sorted({match[1] for match in map(_NO_PASS.match, reasons) if match})
    if lacking:
        return f": the plan asks for no {' and no '.join(lacking)} pass; add passes: [rate, {', '.join(lacking)}]"
    return f": {'; '.join([*reasons][:MOST_REASONS])}" if reasons else ""


MADE_OF = {"an_access_ns": "access_ns"}
"""Values that a figure makes of a column, whose reasons are theirs."""


def because(reasons: Iterable[str], things: Iterable[str] = ()) -> str:
    """Return ``reason (2); other reason (1)``, the most frequent first; in place of counts, the names of ``things``."""
    named: dict[str, list[str]] = {}
    for reason, thing in zip_longest(reasons, things, fillvalue=""):
        named.setdefault(reason, []).append(thing)
    ordered = sorted(named.items(), key=lambda item: -len(item[1]))
    phrases = [f"{reason} ({'; '.join(filter(None, names)) or len(names)})" for reason, names in ordered]
    more = len(phrases) - MOST_REASONS
    return "; ".join(phrases[:MOST_REASONS] + ([f"and {more} more reasons"] if more > 0 else []))


def _without_value(figure: Captioned, *, why: bool) -> str:
    """Say how many measured trials have no value, and why: a missing point looks like one that was not planned."""
    judged, value = figure.measured, figure.request.value
    if value not in judged or "null_reasons" not in judged:
        return ""
    name = MADE_OF.get(value, value)
    texts = [json.loads(text).get(name) for text in judged["null_reasons"][judged[value].isna()].dropna()]
    reasons = [reason for reason in texts if reason]
    sentence = f"{len(reasons)} of {many(len(judged), 'trial')} have no {name}"
    return (f"{sentence}: {because(reasons)}." if why else f"{sentence}.") if reasons else ""


def caption(
    figure: Captioned, marks: pd.DataFrame, used: Sequence[str], *notes: str, intervals: str
) -> tuple[str, ...]:
    """Return the caption's paragraphs.

    ``used`` factors differ among the marks; ``notes`` are the view's own; ``intervals`` names what error bars are.
    """
    shown, request = figure.shown, figure.request
    first = "; ".join(
        part
        for part in (
            _lab(shown),
            _held(shown, used, [name for name in request.apart if FACTORS[name].shown.caption != "own"]),
            _repetitions(marks, intervals),
        )
        if part
    )
    parts = (
        f"{first}.",
        *notes,
        figure.one_count,
        _few_cpus(shown),
        figure.unequal_work,
        _without_value(figure, why=True),
        *_not_shown(figure.others),
    )
    return tuple(part for part in parts if part)
