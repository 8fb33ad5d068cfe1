"""The study's figures; marks come only from the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from xdplab.errors import NotApplicableError
from xdplab.figures.marks import NO_BACKENDS, Look, View, marks_frame
from xdplab.studies.jit import joined
from xdplab.studies.jit.joined import SPEED_UP
from xdplab.studies.jit.kinds import CLASSIC
from xdplab.studies.jit.points import AMPLIFIED, FILTERS, INSN_CLASSES, MODES, TCP, TEST_BPF, TRAFFIC, JitPoint
from xdplab.studies.jit.summaries import PUBLISHED_MEAN

WORDS = {"interpreter": "interpreter", "jit": "JIT"}
HUES = tuple(WORDS.values())
NOTHING = "nothing of it has been measured"
NO_RATIO = "no place has measured a test of test_bpf in both modes"
LONGEST_LABEL = 14
CLASS_FIGURES = {
    "arithmetic": ("alu64", "alu32", "mul, div", "shift", "byte swap"),
    "memory": ("packet", "stack", "atomic"),
    "control": ("jump", "jump32", "call"),
    "helpers": ("map lookup", "map update", "ring buffer", "helper"),
}
"""Figures of instruction classes, and the groups that are their panels."""

Marks = list[dict[str, object]]


def _mark(kind: str, panel: str, hue: str, x: object, value: float) -> dict[str, object]:
    return {"kind": kind, "panel": panel, "hue": hue, "x": x, "value": value, "verdict": "valid"}


def _both(rows: pd.DataFrame, kind: str, x: str, panel: str, scale: float = 1.0) -> Marks:
    """Return one mark per row and mode that has a value."""
    return [
        _mark(kind, str(row[panel]), WORDS[mode], row[x], float(row[mode]) * scale)
        for mode in MODES
        for row in rows.to_dict("records")
        if pd.notna(row[mode]) and row[mode] > 0
    ]


def _without_bar(rows: pd.DataFrame, measured: pd.DataFrame, keys: list[str]) -> tuple[str, ...]:
    """Return a sentence for the bars that a reader misses: which of ``rows`` have no value in a mode, and why."""
    told: dict[str, list[str]] = {}
    for row in rows.to_dict("records"):
        for mode in MODES:
            same = measured["mode"].eq(mode)
            for key in ("label", *keys):
                same &= measured[key].eq(row[key])
            reasons = measured.loc[same, "reason"].dropna()
            if pd.isna(row[mode]) and len(reasons):
                words = (WORDS[mode], row["short"], str(row["panel"]).strip())
                told.setdefault(str(reasons.iloc[0]), []).append(", ".join(filter(None, words)))
    causes = [f"{' and '.join(bars)} ({why})" for why, bars in told.items()]
    return (f"No bar: {'; '.join(causes)}.",) if causes else ()


def _view(name: str, marks: Marks, look: Look) -> View:
    if not marks:
        raise NotApplicableError(NOTHING)
    return View(marks_frame({"figure": name, "file": name} | mark for mark in marks), look)


def _unit(rows: pd.DataFrame) -> str:
    """Return the unit of an axis; a table of places with different clocks names both."""
    return " or ".join(dict.fromkeys(rows["unit"].dropna())) or "ns"


def _places(rows: pd.DataFrame) -> str:
    return "; ".join(dict.fromkeys(rows["label"]))


def _panel_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Places have panels of their own where there are several: no figure mixes their units."""
    several = rows["label"].nunique() > 1
    return rows.assign(panel=rows["label"] if several else "")


def _tests(
    name: str, x_label: str, x: str, choose: Callable[[pd.DataFrame], pd.Series]
) -> Callable[[pd.DataFrame], View]:
    """``x`` is the test's own number, or its rank among the chosen tests, from 0 as in the module."""

    def make(table: pd.DataFrame) -> View:
        rows = joined.tests(table)
        rows = _panel_of(rows[rows["subject"].eq("test_bpf") & choose(rows)])
        rows = rows.assign(rank=rows.groupby("label").cumcount())
        look = Look(
            x_label=x_label,
            y_label=f"one run, {_unit(rows)}",
            x_scale="linear",
            y_scale="log",
            hues=HUES,
            share_y=False,
            caption=(f"{_tests_of(rows)} of the kernel's module test_bpf; {_places(rows)}.", *_means(rows)),
        )
        return _view(name, _both(rows, "dot", x, "panel"), look)

    return make


def _tests_of(rows: pd.DataFrame) -> str:
    """Return the number of tests; if places measured different tests, the number of each."""
    counts = rows.groupby("label")["number"].nunique()
    return f"{' and '.join(map(str, dict.fromkeys(counts)))} tests"


def _means(rows: pd.DataFrame) -> tuple[str, ...]:
    """Return the mean speed-up as text if one place has both modes."""
    ratios = rows[SPEED_UP].dropna().astype(float)
    if ratios.empty or rows["label"].nunique() > 1:
        return ()
    geometric = float(np.exp(np.log(ratios).mean()))
    return (f"Mean speed-up {ratios.mean():.1f}× (arithmetic), {geometric:.1f}× (geometric).",)


def _speed_up(table: pd.DataFrame) -> View:
    """Each test's speed-up against its number: classic and eBPF apart."""
    rows = joined.tests(table)
    rows = _panel_of(rows[rows["subject"].eq("test_bpf")].dropna(subset=[SPEED_UP]))
    words = rows["classic"].map({True: "classic", False: "eBPF"}).fillna("unknown")
    marks = [
        _mark("dot", str(row["panel"]), str(hue), float(row["number"]), float(row[SPEED_UP]))
        for hue, row in zip(words, rows.to_dict("records"), strict=True)
    ]
    look = Look(
        x_label="number of the test",
        y_label="interpreter by JIT",
        x_scale="linear",
        y_scale="log",
        hues=("classic", "eBPF"),
        caption=(f"{_tests_of(rows)} of test_bpf; {_places(rows)}.", *_means(rows)),
    )
    return _view("speed-up", marks, look)


PUBLISHED_AS = "Elbrus, Linux 6.1, in time (published)"


def _architectures(table: pd.DataFrame) -> View:
    """Draw each kind of test, its places beside each other: ratios have no unit, so all share one axis."""
    rows = joined.kinds(table) if not table.empty else table
    if rows.empty or rows["speed-up, geometric"].isna().all():
        raise NotApplicableError(NO_RATIO)
    rows = joined.in_order(rows.dropna(subset=["speed-up, geometric"]))
    marks = [
        _mark("beside", "", row["label"], row["kind"], float(row["speed-up, geometric"]))
        for row in rows.to_dict("records")
    ]
    if rows["kind"].eq(CLASSIC).any():
        marks.append(_mark("beside", "", PUBLISHED_AS, CLASSIC, PUBLISHED_MEAN))
    compared = rows[rows["kind"].eq(joined.ALL)]
    numbers = "; ".join(f"{row['label']}: {row['compared']} tests" for row in compared.to_dict("records"))
    look = Look(
        x_label="kind of test",
        y_label="interpreter by JIT",
        y_scale="log",
        hues=(*dict.fromkeys(rows["label"]), PUBLISHED_AS),
        x_values=tuple(dict.fromkeys(rows["kind"])),
        columns=1,
        palette=NO_BACKENDS,
        caption=(
            f"Geometric means of the tests' speed-ups in test_bpf ({numbers}).",
            "Elbrus: the published mean of about 120 classic tests; the kind of mean is not published.",
        ),
    )
    return _view("architectures", marks, look)


def _of_place(rows: pd.DataFrame) -> pd.Series:
    """Return what a panel's title says of the place: nothing, where there is one."""
    if rows.empty:
        raise NotApplicableError(NOTHING)
    several = rows["label"].nunique() > 1
    return (", " + rows["label"]) if several else pd.Series("", index=rows.index)


def _of_places(rows: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(_of_place(rows)))


def _classes(name: str, groups: tuple[str, ...]) -> Callable[[pd.DataFrame], View]:
    def make(table: pd.DataFrame) -> View:
        """Return one panel per group of classes."""
        found = joined.with_groups(joined.side_by_side(joined.part(table, INSN_CLASSES), ["subject"]))
        rows = found[found["group"].isin(groups)]
        of_place = _of_place(rows)
        short = [
            _shortened("array" if subject == group else subject.removeprefix(f"{group} "))
            for subject, group in zip(rows["subject"], rows["group"], strict=True)
        ]
        rows = rows.assign(panel=rows["group"] + of_place, short=short)
        look = Look(
            x_label="instruction class",
            y_label=f"one body, {_unit(rows)}",
            y_scale="log",
            hues=HUES,
            share_x=False,
            panels=tuple(f"{group}{words}" for words in _of_places(rows) for group in groups),
            columns=1,
            caption=(f"Difference of two programs of one class by BPF_PROG_TEST_RUN; {_places(rows)}.",),
        )
        return _view(name, _both(rows, "beside", "short", "panel"), look)

    return make


def _shortened(subject: str) -> str:
    """Return a filter's name so that it fits below a bar; tables have the whole of it."""
    return subject if len(subject) <= LONGEST_LABEL else subject[: LONGEST_LABEL - 1].rstrip() + "…"


def _filters(table: pd.DataFrame) -> View:
    """Each filter on the packet that costs it most."""
    rows = joined.side_by_side(joined.part(table, FILTERS), ["subject", "name"]).dropna(subset=MODES, how="all")
    costs = rows[list(MODES)].astype(float).max(axis=1)
    worst = _panel_of(rows.loc[costs.groupby([rows["label"], rows["subject"]]).idxmax()])
    worst = worst.assign(short=worst["subject"].map(_shortened))
    look = Look(
        x_label="classic filter",
        y_label=f"one run, {_unit(worst)}",
        hues=HUES,
        share_y=False,
        columns=1,
        bar_values=True,
        caption=(
            f"Entering the filter included; on the packet that costs most; {_places(worst)}.",
            *_without_bar(worst, joined.part(table, FILTERS), ["subject", "name"]),
        ),
    )
    return _view("filters", _both(worst, "bar", "short", "panel"), look)


def _traffic(table: pd.DataFrame) -> View:
    rows = joined.shares(joined.part(table, TRAFFIC), ["subject", "number"])
    of_place = _of_place(rows)
    payload = rows["number"].astype(str) + " bytes of payload"
    rows = rows.assign(panel=payload + of_place, short=rows["subject"].map(_shortened))
    look = Look(
        x_label="classic filter of a packet socket",
        y_label="filter's share of a datagram, %",
        hues=HUES,
        columns=1,
        bar_values=True,
        caption=(
            f"UDP over loopback, send() to recv(); {_places(rows)}.",
            *_without_bar(rows, joined.part(table, TRAFFIC), ["subject", "number"]),
        ),
    )
    return _view("traffic", _both(rows, "bar", "short", "panel", 100.0), look)


def _amplified(table: pd.DataFrame) -> View:
    rows = joined.part(table, AMPLIFIED)
    keys = ["subject", "number"]
    costs, lows, highs = (joined.side_by_side(rows, keys, value) for value in ("cost", "low", "high"))
    rows = _panel_of(costs).assign(short=costs["subject"].map(_shortened))
    marks = [
        _mark("beside", str(row["panel"]), WORDS[mode], row["short"], float(row[mode]))
        | {"low": _known(lows[mode][at]), "high": _known(highs[mode][at])}
        for mode in MODES
        for at, row in zip(rows.index, rows.to_dict("records"), strict=True)
        if pd.notna(row[mode]) and row[mode] > 0
    ]
    sockets = "; ".join(f"{number:.0f} packet sockets" for number in rows["number"].unique())
    look = Look(
        x_label="classic filter of a packet socket",
        y_label=f"one run, {_unit(rows)}",
        y_scale="log",
        hues=HUES,
        share_y=False,
        columns=1,
        caption=(
            f"Entering the filter included; {sockets} run it on each datagram; {_places(rows)}.",
            *_without_bar(rows, joined.part(table, AMPLIFIED), keys),
        ),
    )
    return _view("amplified", marks, look)


def _known(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)


def _tcp(table: pd.DataFrame) -> View:
    rows = joined.shares(joined.part(table, TCP), ["subject", "name"])
    of_place = _of_place(rows)
    kind = rows["name"].astype(str).str.split(",").str[0]
    rows = rows.assign(panel=kind + of_place, short=rows["subject"].map(_shortened))
    look = Look(
        x_label="classic filter of a packet socket",
        y_label="filter's share of all work, %",
        hues=HUES,
        columns=1,
        bar_values=True,
        caption=(
            f"One TCP connection over loopback, as netperf's tests of these names; {_places(rows)}.",
            *_without_bar(rows, joined.part(table, TCP), ["subject", "name"]),
        ),
    )
    return _view("tcp", _both(rows, "bar", "short", "panel", 100.0), look)


def _all(rows: pd.DataFrame) -> pd.Series:
    return rows["number"].notna()


def _classic(rows: pd.DataFrame) -> pd.Series:
    return rows["classic"].fillna(False).astype(bool)


VIEWS: Mapping[str, Callable[[pd.DataFrame], View]] = {
    "test_bpf": _tests("test_bpf", "number of the test", "number", _all),
    "classic": _tests("classic", "classic test, in the module's order, from 0", "rank", _classic),
    "speed-up": _speed_up,
    "architectures": _architectures,
    **{f"classes-{name}": _classes(f"classes-{name}", groups) for name, groups in CLASS_FIGURES.items()},
    "filters": _filters,
    "traffic": _traffic,
    "amplified": _amplified,
    "tcp": _tcp,
}

_PARTS = {TEST_BPF: ("test_bpf", "classic"), INSN_CLASSES: tuple(f"classes-{name}" for name in CLASS_FIGURES),
          FILTERS: ("filters",), TRAFFIC: ("traffic",), AMPLIFIED: ("amplified",), TCP: ("tcp",)}  # fmt: skip
_OF_BOTH = ("speed-up", "architectures")


def possible(points: Iterable[JitPoint]) -> set[str]:
    """Return the figures of the parts that a run measures; ratios need both modes of test_bpf at one place."""
    found: set[str] = set()
    modes: dict[str, set[str]] = {}
    for point in points:
        found.update(_PARTS[point.part])
        if point.part == TEST_BPF:
            modes.setdefault(point.place, set()).add(point.mode)
    return found | (set(_OF_BOTH) if any(set(MODES) <= there for there in modes.values()) else set())
