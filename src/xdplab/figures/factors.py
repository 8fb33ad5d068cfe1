"""Factors as a reader sees them: their labels and order, and which of them a figure puts on hue and panel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from xdplab.errors import XdplabError

Label = Callable[[str], str]


class FigureError(XdplabError):
    """A figure cannot be drawn as asked: the message says why, the remedy what to choose."""

    exit_code = 2


class NotApplicableError(FigureError):
    """These trials hold nothing for this figure."""


def _bytes(value: str) -> str:
    count = int(value)
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size and count % size == 0:
            return f"{count // size} {unit}"
    return f"{count} B"


def _words(table: Mapping[str, str]) -> Label:
    return lambda value: table.get(value, value)


MODES = {"native": "native", "generic": "generic", "af_xdp": "AF_XDP", "offload": "offload"}
ARRANGEMENTS = {"shared": "TG and DUT share CPUs", "split": "TG and DUT on own CPUs", "hosts": "two hosts"}


@dataclass(frozen=True)
class Factor:
    """``short`` labels a legend entry below ``title``; ``full`` stands alone, as on a panel or in a caption."""

    name: str
    title: str
    short: Label
    full: Label


def _plural(word: str) -> Label:
    return lambda value: f"{value} {word}" + ("" if value == "1" else "s")


FACTORS: dict[str, Factor] = {
    factor.name: factor
    for factor in (
        Factor("mode", "mode", _words(MODES), _words(MODES)),
        Factor("program_name", "program", lambda v: v.replace("-", " "), lambda v: v.replace("-", " ")),
        Factor("queues", "queues", str, _plural("queue")),
        Factor("frame_bytes", "frame size", lambda v: f"{v} B", lambda v: f"{v} B frames"),
        Factor("working_set_bytes", "working set", _bytes, lambda v: f"{_bytes(v)} working set"),
        Factor("accesses", "accesses N", str, lambda v: f"N = {v}"),
        Factor("load", "load", str, lambda v: f"load {v}"),
        Factor("quantile", "quantile", str, str),
        Factor("counter", "counter", str, str),
        Factor("xsk_attach", "AF_XDP attach", str, lambda v: f"AF_XDP on {v}"),
        Factor("xsk_bind", "AF_XDP bind", str, lambda v: f"AF_XDP {v}"),
        Factor("form", "form", str, lambda v: f"form {v}"),
        Factor("map_type", "map", str, str),
        Factor("action", "action", str, lambda v: f"action {v}"),
        Factor("flows", "flows", str, _plural("flow")),
        Factor("dst_ip_stride", "address stride", str, lambda v: f"address stride {v}"),
        Factor("dst_port", "UDP port", str, lambda v: f"UDP port {v}"),
        Factor("engine", "engine", str, lambda v: f"engine {v}"),
        Factor("arrangement", "arrangement", _words(ARRANGEMENTS), _words(ARRANGEMENTS)),
        Factor("lab", "lab", str, lambda v: f"lab {v}"),
        Factor("kernel", "kernel", str, lambda v: f"Linux {v}"),
    )
}
ALIASES = {"workload": "program_name", "program": "program_name", "size": "frame_bytes", "N": "accesses"}
NEVER_MIXED = ("lab", "kernel", "arrangement", "engine")
ORDERS = {"mode": tuple(MODES), "quantile": ("p50", "p90", "p99", "p99.9")}
MAX_HUES, MAX_PANELS = 8, 9


def factor_name(name: str) -> str:
    """Return the column a reader's word stands for. Raises FigureError for an unknown one."""
    column = ALIASES.get(name, name)
    if column not in FACTORS:
        raise FigureError(f"unknown factor {name!r}", remedy=f"one of {', '.join(FACTORS)}")
    return column


def levels(trials: pd.DataFrame, name: str) -> list[object]:
    """Return the factor's levels in reading order: numbers by size, modes by their depth in the stack."""
    found = trials[name].dropna().unique().tolist()
    order = ORDERS.get(name, ())
    return sorted(found, key=lambda v: (order.index(v) if v in order else len(order), isinstance(v, str), v))


def free_factors(trials: pd.DataFrame, held: Sequence[str]) -> list[str]:
    """Return the factors with more than one level where ``held`` ones are the same, in order of the table."""
    there = [name for name in FACTORS if name in trials and name not in held]
    if not held:
        return [name for name in there if trials[name].nunique() > 1]
    counts = trials.groupby(list(held), dropna=False)[there].nunique()
    return [name for name in there if (counts[name] > 1).any()]


@dataclass(frozen=True)
class Layout:
    """Which factors make the hues and the panels; ``rest`` still varies and needs figures of its own."""

    x: str
    hue: tuple[str, ...]
    panel: tuple[str, ...]
    rest: tuple[str, ...] = ()


def _prefer(trials: pd.DataFrame, wanted: str | None, order: Sequence[str], held: Sequence[str]) -> tuple[str, ...]:
    if wanted is not None:
        return (factor_name(wanted),) if wanted else ()
    free = free_factors(trials, held)
    return next(((name,) for name in order if name in free), ())


def arrange(
    trials: pd.DataFrame, x: str, hue: str | None, panel: str | None, hues: Sequence[str], panels: Sequence[str]
) -> Layout:
    """Choose hue and panel where the reader did not (``""`` means none), by the figure's order of preference."""
    chosen_panel = _prefer(trials, panel, panels, [x] + ([factor_name(hue)] if hue else []))
    chosen_hue = _prefer(trials, hue, hues, [x, *chosen_panel])
    rest = free_factors(trials, list(dict.fromkeys([x, *chosen_hue, *chosen_panel])))
    return Layout(x, chosen_hue, chosen_panel, tuple(rest))


def compound(trials: pd.DataFrame, layout: Layout) -> Layout:
    """Put every factor that still varies onto panels, then hues. Raises FigureError where they do not fit.

    Levels of different factors are never averaged.
    """
    mixed = [name for name in layout.rest if name in NEVER_MIXED]
    if mixed:
        raise FigureError(_mixed_words(trials, mixed), remedy=_choices(trials, mixed))
    hue, panel = list(layout.hue), list(layout.panel)
    for name in layout.rest:
        if name not in free_factors(trials, [layout.x, *hue, *panel]):
            continue
        if _combinations(trials, [*panel, name]) <= MAX_PANELS:
            panel.insert(0, name)
        elif _combinations(trials, [*hue, name]) <= MAX_HUES:
            hue.append(name)
        else:
            words = f"{', '.join(layout.rest)} vary, more than one figure can show"
            raise FigureError(words, remedy=_choices(trials, layout.rest))
    return Layout(layout.x, tuple(hue), tuple(panel))


def _combinations(trials: pd.DataFrame, names: Sequence[str]) -> int:
    return len(trials[list(names)].drop_duplicates())


def _mixed_words(trials: pd.DataFrame, names: Sequence[str]) -> str:
    found = "; ".join(f"{name}: {', '.join(map(str, levels(trials, name)))}" for name in names)
    return f"one figure never mixes {' or '.join(names)} ({found})"


def _choices(trials: pd.DataFrame, names: Sequence[str]) -> str:
    example = ", ".join(f"{name!r}: {levels(trials, name)[0]!r}" for name in names)
    return f"choose with where={{{example}}}"


def label_column(trials: pd.DataFrame, names: Sequence[str], *, alone: bool) -> pd.Series:
    """Return one label a row for a combination of factors; ``alone`` without a legend title above it."""
    labels = pd.Series([""] * len(trials), index=trials.index, dtype="object")
    full = alone or len(names) > 1
    for name in names:
        factor = FACTORS[name]
        label = factor.full if full else factor.short
        words = trials[name].map(lambda v, label=label: "" if pd.isna(v) else label(str(v))).astype("object")
        joint = [f"{a}, {b}" if a and b else a or b for a, b in zip(labels, words, strict=True)]
        labels = pd.Series(joint, index=trials.index, dtype="object")
    return labels


def label_order(trials: pd.DataFrame, names: Sequence[str], *, alone: bool) -> tuple[str, ...]:
    """Return the labels of all combinations, ordered by the factors' own order."""
    if not names or trials.empty:
        return ("",)
    ranks = pd.DataFrame(index=trials.index)
    for name in names:
        order = levels(trials, name)
        ranks[name] = [order.index(v) if not pd.isna(v) else -1 for v in trials[name]]
    ordered = ranks.sort_values(list(names), kind="stable").index
    return tuple(dict.fromkeys(label_column(trials, names, alone=alone).loc[ordered]))


def title_of(names: Sequence[str]) -> str:
    """Return the legend's title: the factor's for one, nothing where the entries say it themselves."""
    return FACTORS[names[0]].title if len(names) == 1 else ""
