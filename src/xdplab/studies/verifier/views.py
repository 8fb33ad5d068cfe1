"""The study's figures: each is a row of one table; marks come only from the table of programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from xdplab.analysis.intervals import Spread
from xdplab.errors import NotApplicableError
from xdplab.figures.marks import Look, View, marks_frame
from xdplab.studies.frame import MakeView
from xdplab.studies.verifier.points import LINUX
from xdplab.studies.verifier.rows import PROGRAM_ID
from xdplab.studies.verifier.summaries import ENVIRONMENT, is_generated
from xdplab.text import many

FEWEST_FOR_TREND = 8
MOST_OFF = 2.0
"""A trend is drawn where nine of ten programs are within this factor of it, and all of them within its square."""

REASONS = {"memory_bytes": "memory_reason", "cgroup_peak_bytes": "cgroup_reason", "branches": "branches_reason"}
Choose = Callable[[pd.DataFrame], pd.DataFrame]


def _linux(table: pd.DataFrame) -> pd.DataFrame:
    return table.loc[table["verifier"] == LINUX]


@dataclass(frozen=True)
class Figure:
    """``y`` against ``x``: columns of the table; ``scale`` divides ``y`` into the unit of ``y_label``.

    ``each``: each repetition has its own mark, because ``y`` describes the method and its mean says nothing.
    """

    name: str
    x: str
    y: str
    x_label: str
    y_label: str
    scale: float = 1.0
    hue: tuple[str, ...] = ("label",)
    panel: tuple[str, ...] = ()
    kind: str = "point"
    choose: Choose = _linux
    note: str = ""
    trend: bool = True
    each: bool = False


def _loops(table: pd.DataFrame) -> pd.DataFrame:
    return _btf(table.loc[table["family"].eq("double_strcmp").fillna(False)])


def _sized(table: pd.DataFrame) -> pd.DataFrame:
    """A kernel's, without rolled loops: their work grows with N and their instructions do not."""
    return _growing(_linux(table))


def _growing(table: pd.DataFrame) -> pd.DataFrame:
    return table.loc[table["form"].fillna("").ne("rolled")]


def _btf(table: pd.DataFrame) -> pd.DataFrame:
    """Loops that end by ``<``, with maps of today: what is compared over anything else."""
    return table.loc[table["exit"].fillna("<").eq("<") & table["maps"].fillna("btf").eq("btf")]


def _linux_loops(table: pd.DataFrame) -> pd.DataFrame:
    return _loops(_linux(table))


def _loops_once(table: pd.DataFrame) -> pd.DataFrame:
    """The loops of one kernel: a program has as many instructions, whichever kernel verifies it."""
    rows = _linux_loops(table)
    return rows.loc[rows["kernel"].eq(rows["kernel"].iloc[0])] if len(rows) else rows


def _native(table: pd.DataFrame) -> pd.DataFrame:
    rows = _linux(table)
    return rows.loc[rows["clock"].eq("time").fillna(False)]


def _native_sized(table: pd.DataFrame) -> pd.DataFrame:
    return _growing(_native(table))


def _native_loops(table: pd.DataFrame) -> pd.DataFrame:
    return _loops(_native(table))


def _one_build(table: pd.DataFrame) -> pd.DataFrame:
    """The newest compiler's v3 programs (or its newest set): one line per verifier."""
    made = table.loc[table["compiler"].notna()]
    if made.empty:
        return made
    newest = max(made["compiler"].unique(), key=lambda name: int(name.split()[-1]))
    own: pd.DataFrame = made.loc[made["compiler"] == newest]
    mcpu = "v3" if "v3" in set(own["mcpu"]) else max(own["mcpu"])
    return own.loc[own["mcpu"] == mcpu]


def _versus(table: pd.DataFrame) -> pd.DataFrame:
    """This machine's kernel and every PREVAIL: nothing where there is no PREVAIL."""
    both = table.loc[table["clock"].eq("time").fillna(False)]
    return both if both["verifier"].ne(LINUX).any() else both.iloc[:0]


INSNS, ITERATIONS, SIZE = "instructions of the program", "loop iterations N", "size N of the family's program"
TIME, MEMORY, BRANCHES = "verifying, ms", "peak memory, kB", "branches (push_stack calls)"
PROCESSED, LOADING = "processed instructions", "loading or running, ms"
MS, KB, MILLION = 1e6, 1e3, 1e6
COMPILER, FORM_SET, FORM, LABEL, FAMILY = ("compiler",), ("form", "mcpu"), ("form",), ("label",), ("family",)
COUNTED_INSNS = "verifier's own instructions, millions"
COUNTED = "Guests that count instructions: 1 ns of their clock is one instruction."
OTHER_TIME = "Linux: BPF_PROG_LOAD alone, median of several. PREVAIL: one whole process, with its start."
OTHER_MEMORY = "Linux: what the verifier allocates. PREVAIL: its whole process."
TIMED = "Times are of this machine's own kernel: the clock of a guest counts instructions."


def _one_built(table: pd.DataFrame) -> pd.DataFrame:
    return _one_build(_linux_loops(table))


def _families(table: pd.DataFrame) -> pd.DataFrame:
    """Families of one form, such as the user's own: loops have figures by form."""
    return _one_build(_linux(table.loc[table["family"].notna() & table["form"].isna()]))


def _versus_sized(table: pd.DataFrame) -> pd.DataFrame:
    return _growing(_versus(table))


def _versus_loops(table: pd.DataFrame) -> pd.DataFrame:
    return _one_build(_loops(_versus(table)))


WITHOUT_ROLLED: tuple[Choose, ...] = (_sized, _native_sized, _versus_sized)

FIGURES = (
    Figure("time", "insns", "verify_ns", INSNS, TIME, MS, choose=_sized, note=TIMED),
    Figure("memory", "insns", "memory_bytes", INSNS, MEMORY, KB, choose=_sized),
    Figure("memory-cgroup", "insns", "cgroup_peak_bytes", INSNS, "peak charged memory, kB", KB, choose=_sized),
    Figure("processed", "insns", "processed_insns", INSNS, PROCESSED, choose=_sized),
    Figure("states", "insns", "total_states", INSNS, "states made", choose=_sized),
    Figure("branches", "insns", "branches", INSNS, BRANCHES, choose=_sized),
    Figure("counted", "insns", "verify_instructions", INSNS, COUNTED_INSNS, MILLION, choose=_sized, note=COUNTED),
    Figure("loads", "insns", "loads", INSNS, "loads behind a time", choose=_native_sized, trend=False, each=True),
    Figure("loops-time", "n", "verify_ns", ITERATIONS, TIME, MS, COMPILER, FORM_SET, "line", _native_loops, TIMED),
    Figure("loops-insns", "n", "insns", ITERATIONS, INSNS, 1, COMPILER, FORM_SET, "line", _loops_once),
    Figure("loops-memory", "n", "memory_bytes", ITERATIONS, MEMORY, KB, COMPILER, FORM_SET, "line", _native_loops),
    Figure("compilers", "n", "processed_insns", ITERATIONS, PROCESSED, 1, COMPILER, FORM_SET, "line", _native_loops),
    Figure("kernels", "n", "processed_insns", ITERATIONS, PROCESSED, 1, LABEL, FORM, "line", _one_built),
    Figure("kernels-time", "n", "verify_ns", ITERATIONS, TIME, MS, LABEL, FORM, "line", _one_built, TIMED),
    Figure("kernels-counted", "n", "verify_instructions", ITERATIONS, COUNTED_INSNS, MILLION, LABEL, FORM, "line",
           _one_built, COUNTED),
    Figure("kernels-memory", "n", "memory_bytes", ITERATIONS, MEMORY, KB, LABEL, FORM, "line", _one_built),
    Figure("kernels-branches", "n", "branches", ITERATIONS, BRANCHES, 1, LABEL, FORM, "line", _one_built),
    Figure("families", "n", "processed_insns", SIZE, PROCESSED, 1, LABEL, FAMILY, "line", _families),
    Figure("families-time", "n", "verify_ns", SIZE, TIME, MS, LABEL, FAMILY, "line", _families, TIMED),
    Figure("families-memory", "n", "memory_bytes", SIZE, MEMORY, KB, LABEL, FAMILY, "line", _families),
    Figure("prevail-time", "insns", "load_ns", INSNS, LOADING, MS, choose=_versus_sized, note=OTHER_TIME),
    Figure("prevail-memory", "insns", "memory_bytes", INSNS, MEMORY, KB, choose=_versus_sized, note=OTHER_MEMORY),
    Figure("prevail-loops", "n", "load_ns", ITERATIONS, LOADING, MS, LABEL, FORM, "line", _versus_loops, OTHER_TIME),
    Figure("prevail-loops-memory", "n", "memory_bytes", ITERATIONS, MEMORY, KB, LABEL, FORM, "line", _versus_loops,
           OTHER_MEMORY),
)  # fmt: skip


def view_of(figure: Figure, table: pd.DataFrame) -> View:
    """Return marks and look of one figure. Raises NotApplicableError if the table holds nothing for it."""
    chosen = figure.choose(table)
    needed = [figure.x, figure.y, *figure.hue, *figure.panel]
    shown = chosen.dropna(subset=[name for name in needed if name in chosen])
    shown = shown[~shown["verdict"].isin(ENVIRONMENT)]
    above = (shown[figure.y] > 0) & (shown[figure.x] > 0)
    off_axis, shown = shown[~above], shown[above]
    if shown.empty:
        raise NotApplicableError(f"no program has both {figure.x} and {figure.y}{_because(figure, chosen)}")
    unknown = chosen[chosen[figure.y].isna() & ~chosen["verdict"].isin(ENVIRONMENT)]
    labelled = shown.assign(
        panel=_panels(figure, shown), hue=_joined(shown, figure.hue), mark=_verdicts(shown["verdict"])
    )
    marks = marks_frame([*_marks(figure, labelled), *(_trends(figure, labelled) if _has_trends(figure) else [])])
    caption = [*_caption(figure, shown, marks), *_not_drawn(figure, unknown, off_axis)]
    every = table.dropna(subset=list(figure.hue))
    return View(marks, _look(figure, caption, hues=sorted(set(_joined(every, figure.hue)))))


def _has_trends(figure: Figure) -> bool:
    return figure.trend and figure.kind == "point"


def _because(figure: Figure, chosen: pd.DataFrame) -> str:
    """The reason that the table gives most often for a null, where it gives any."""
    column = REASONS.get(figure.y, "")
    said = chosen[column].dropna() if column in chosen else chosen.iloc[:0]
    return f": {said.mode().iloc[0]}" if len(said) else ""


def _panels(figure: Figure, rows: pd.DataFrame) -> pd.Series:
    """Each corpus has a panel, and so have generated programs, whose sizes were chosen."""
    if figure.kind != "point":
        return _joined(rows, figure.panel)
    own, corpora = is_generated(rows), rows["corpus"].astype(str)
    several = own.any() or corpora.nunique() > 1
    return corpora.mask(own, "generated programs") if several else _joined(rows, figure.panel)


def _joined(rows: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    words = rows[list(names)].astype(str).agg(" ".join, axis=1) if names else ""
    return pd.Series(words, index=rows.index, dtype=object)


def _verdicts(verdicts: pd.Series) -> pd.Series:
    return verdicts.eq("accepted").map({True: "valid", False: "invalid"})


def _marks(figure: Figure, rows: pd.DataFrame) -> list[dict[str, object]]:
    """One mark per program or size: mean over repetitions, with its interval; times always with their verdict."""
    points = rows.assign(point=rows["trial_id"].str.rsplit("-", n=1).str[0])
    keys = ["panel", "hue", figure.x, "mark"] + (["point", "section", "program"] if figure.kind == "point" else [])
    keys += ["repetition"] if figure.each else []
    marks: list[dict[str, object]] = []
    for key, group in points.groupby(keys, sort=True, dropna=False):
        found = Spread.of(group[figure.y].astype(float) / figure.scale, "log")  # the axis is one: no end below 0
        place = {"figure": figure.name, "file": figure.name, "kind": figure.kind, "panel": key[0], "hue": key[1]}
        size = {"x": float(str(key[2])), "value": found.mean, "low": found.low, "high": found.high, "n": found.n}
        marks.append(place | size | {"verdict": key[3], "points": ",".join(sorted(set(group["point"])))})
    return marks


def _trends(figure: Figure, rows: pd.DataFrame) -> list[dict[str, object]]:
    """A straight line in the logarithms through the accepted programs: value = a · x^b."""
    marks: list[dict[str, object]] = []
    for (panel, hue), group in rows[rows["mark"] == "valid"].groupby(["panel", "hue"], sort=False):
        x, y = group[figure.x].astype(float), group[figure.y].astype(float) / figure.scale
        if x.nunique() < FEWEST_FOR_TREND:
            continue
        slope, offset = np.polyfit(np.log(x), np.log(y), 1)
        off = np.abs(np.log(y) - offset - slope * np.log(x))
        if np.quantile(off, 0.9) > np.log(MOST_OFF) or off.max() > 2 * np.log(MOST_OFF):
            continue  # one power of the size does not describe these programs
        place = {"figure": figure.name, "file": figure.name, "kind": "fit", "panel": panel, "hue": hue}
        for end in (x.min(), x.max()):
            marks.append(place | {"x": end, "value": float(np.exp(offset + slope * np.log(end))), "verdict": "valid"})
    return marks


def _look(figure: Figure, caption: Sequence[str], hues: Sequence[str]) -> Look:
    """``hues``: those of the whole run, so that a kernel has one colour in all its figures."""
    return Look(
        x_label=figure.x_label,
        y_label=figure.y_label,
        x_scale="log",
        y_scale="log",
        hues=tuple(hues),
        legend={"invalid": "not accepted (finding or limit)"},
        caption=tuple(caption),
    )


def _caption(figure: Figure, shown: pd.DataFrame, marks: pd.DataFrame) -> list[str]:
    found = {str(label): int(rows["repetition"].nunique()) for label, rows in shown.groupby("label", sort=False)}
    most = max(found.values(), default=0)
    fewer = ", ".join(f"{count} of {label}" for label, count in found.items() if count < most)
    words = many(most, "repetition") + (f" ({fewer})" if fewer else "")
    first = f"{_count(shown)}, {' and '.join(dict.fromkeys(shown['label']))}; n = {words}."
    parts = [first, figure.note]
    if marks["low"].notna().any():
        parts.append("Bars: 95 % intervals of the mean.")
    if marks["kind"].eq("fit").any():
        parts.append(
            f"Lines: power laws, where nine of ten accepted programs are within a factor of {MOST_OFF:g} "
            f"and all of them within {MOST_OFF**2:g}."
        )
    if figure.choose in WITHOUT_ROLLED:
        parts.append("Without rolled loops: their instructions do not grow with N.")
    return [part for part in parts if part]


def _not_drawn(figure: Figure, unknown: pd.DataFrame, off_axis: pd.DataFrame) -> list[str]:
    """Say for each kernel how many programs have no value, with the most frequent reason, and how many are zero."""
    column = REASONS.get(figure.y)
    parts = []
    for label, rows in unknown.groupby("label", sort=False) if column else ():
        reasons = rows[column].dropna()
        if len(reasons):
            parts.append(f"{label}: {_count(rows)} without a value: {reasons.mode().iloc[0]}.")
    if len(off_axis):
        parts.append(f"{_count(off_axis)} with 0 not drawn: the axes are logarithmic.")
    return parts


def _count(rows: pd.DataFrame) -> str:
    programs = rows[PROGRAM_ID].nunique()  # PREVAIL may name a program otherwise than the kernel
    return many(programs, "program")


VIEWS: dict[str, MakeView] = {figure.name: partial(view_of, figure) for figure in FIGURES}
