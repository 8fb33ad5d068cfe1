"""The study's figures: each is a row of one table; marks come only from the table of programs."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from xdplab.analysis.intervals import Spread
from xdplab.figures.caption import because
from xdplab.figures.marks import Axes, Order, Words
from xdplab.run.frames import why_null
from xdplab.studies.figure_table import Choose, Columns, Content, Figure, Marks, joined, mark_at, views
from xdplab.studies.verifier.points import LINUX
from xdplab.studies.verifier.rows import PROGRAM_ID
from xdplab.studies.verifier.summaries import ENVIRONMENT, is_generated
from xdplab.text import many

FEWEST_FOR_TREND = 8
REASONED = ("memory_bytes", "cgroup_peak_bytes", "branches")
"""What some kernels cannot count: a figure says why."""
MOST_OFF = 2.0
"""A trend is drawn where nine of ten programs are within this factor of it, and all of them within its square."""


def _linux(table: pd.DataFrame) -> pd.DataFrame:
    return table.loc[table["verifier"] == LINUX]


def _timed(table: pd.DataFrame) -> pd.DataFrame:
    return table.loc[table["clock"].eq("time").fillna(False)]


def _growing(table: pd.DataFrame) -> pd.DataFrame:
    """Without rolled loops: their work grows with N and their instructions do not."""
    return table.loc[table["form"].fillna("").ne("rolled")]


def _loops(table: pd.DataFrame) -> pd.DataFrame:
    """Loops that end by ``<``, with maps of today: what is compared over anything else."""
    loops = table.loc[table["family"].eq("double_strcmp").fillna(False)]
    return loops.loc[loops["exit"].fillna("<").eq("<") & loops["maps"].fillna("btf").eq("btf")]


def _of_one_kernel(rows: pd.DataFrame) -> pd.DataFrame:
    """A program has as many instructions, whichever kernel verifies it."""
    return rows.loc[rows["kernel"].eq(rows["kernel"].iloc[0])] if len(rows) else rows


def _one_build(table: pd.DataFrame) -> pd.DataFrame:
    """The newest compiler's v3 programs (or its newest set): one line per verifier."""
    compiled = table.loc[table["compiler"].notna()]
    if compiled.empty:
        return compiled
    newest = max(compiled["compiler"].unique(), key=lambda name: int(name.split()[-1]))
    of_newest: pd.DataFrame = compiled.loc[compiled["compiler"] == newest]
    mcpu = "v3" if "v3" in set(of_newest["mcpu"]) else max(of_newest["mcpu"])
    return of_newest.loc[of_newest["mcpu"] == mcpu]


def _if_prevail(table: pd.DataFrame) -> pd.DataFrame:
    """This machine's kernel and every PREVAIL: nothing where there is no PREVAIL."""
    return table if table["verifier"].ne(LINUX).any() else table.iloc[:0]


def _of_one_form(table: pd.DataFrame) -> pd.DataFrame:
    """Families of one form, such as the user's own: loops have figures by form."""
    return table.loc[table["family"].notna() & table["form"].isna()]


def _chosen(*steps: Choose) -> Choose:
    """Return the choice of rows that makes these choices one after the other."""
    return lambda table: functools.reduce(lambda rows, step: step(rows), steps, table)


_sized = _chosen(_linux, _growing)
_native_loops = _chosen(_linux, _timed, _loops)
_loops_once = _chosen(_linux, _loops, _of_one_kernel)
_one_built = _chosen(_linux, _loops, _one_build)
_families = _chosen(_of_one_form, _linux, _one_build)
_versus_sized = _chosen(_timed, _if_prevail, _growing)
_versus_loops = _chosen(_timed, _if_prevail, _loops, _one_build)


def _programs(figure: Figure, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the programs that were judged and have every value of the figure."""
    drawn = figure.columns
    complete = rows.dropna(subset=[drawn.x, drawn.y, *drawn.hue, *drawn.panel])
    return complete[~complete["verdict"].isin(ENVIRONMENT)]


def _on_axes(figure: Figure, rows: pd.DataFrame) -> pd.DataFrame:
    programs = _programs(figure, rows)
    return programs[(programs[figure.columns.y] > 0) & (programs[figure.columns.x] > 0)]


def _reasons(figure: Figure, rows: pd.DataFrame) -> list[str]:
    """Return the reasons that the table gives for nulls, where it gives any."""
    return list(why_null(rows, figure.columns.y).dropna()) if figure.columns.y in REASONED else []


def _nothing(figure: Figure, rows: pd.DataFrame) -> str:
    reasons = _reasons(figure, rows)
    if rows.empty:
        return "no PREVAIL took part (--prevail PATH)" if figure.name.startswith("prevail") else "no such program"
    if figure.columns.y == "verify_instructions":
        return "no guest took part, which counts instructions (--kernel 6.1)"
    why = f": {because(reasons)}" if reasons else ""
    return f"no program has a value for {figure.axes.x_label} and {figure.axes.y_label}{why}"


def _means(figure: Figure, rows: pd.DataFrame) -> Marks:
    """One mark per program or size: mean over repetitions, with its interval; times always with their verdict."""
    shown, drawn = _labelled(figure, rows), figure.columns
    keys = ["panel", "hue", drawn.x, "mark"]
    keys += ["point", "section", "program"] if figure.kind == "point" else []
    marks: Marks = []
    for key, group in shown.groupby(keys, sort=True, dropna=False):
        mean = Spread.of(group[drawn.y].astype(float) / drawn.scale, "log")  # the axis is one: no end below 0
        size = {"x": float(str(key[2])), "value": mean.mean, "low": mean.low, "high": mean.high, "n": mean.n}
        points = ",".join(sorted(set(group["point"])))
        marks.append(mark_at(figure, panel=key[0], hue=key[1], verdict=key[3], points=points, **size))
    return marks


def _labelled(figure: Figure, rows: pd.DataFrame) -> pd.DataFrame:
    shown = _on_axes(figure, rows)
    return shown.assign(
        panel=_panels(figure, shown),
        hue=joined(shown, figure.columns.hue),
        mark=shown["verdict"].eq("accepted").map({True: "valid", False: "invalid"}),
        point=shown["trial_id"].str.rsplit("-", n=1).str[0],
    )


def _panels(figure: Figure, rows: pd.DataFrame) -> pd.Series:
    """Each corpus has a panel, and so have generated programs, whose sizes were chosen."""
    if figure.kind != "point":
        return joined(rows, figure.columns.panel)
    generated, corpora = is_generated(rows), rows["corpus"].astype(str)
    several = generated.any() or corpora.nunique() > 1
    return corpora.mask(generated, "generated programs") if several else joined(rows, figure.columns.panel)


def _means_and_trends(figure: Figure, rows: pd.DataFrame) -> Marks:
    """The means, and straight lines in the logarithms through the accepted programs: value = a · x^b."""
    marks, shown, drawn = _means(figure, rows), _labelled(figure, rows), figure.columns
    for (panel, hue), group in shown[shown["mark"] == "valid"].groupby(["panel", "hue"], sort=False):
        x, y = group[drawn.x].astype(float), group[drawn.y].astype(float) / drawn.scale
        if x.nunique() < FEWEST_FOR_TREND:
            continue
        slope, offset = np.polyfit(np.log(x), np.log(y), 1)
        off = np.abs(np.log(y) - offset - slope * np.log(x))
        if np.quantile(off, 0.9) > np.log(MOST_OFF) or off.max() > 2 * np.log(MOST_OFF):
            continue  # one power of the size does not describe these programs
        for end in (x.min(), x.max()):
            value = float(np.exp(offset + slope * np.log(end)))
            marks.append(mark_at(figure, kind="fit", panel=panel, hue=hue, x=end, value=value))
    return marks


def _hues(content: Content) -> Order:
    """Return those of the whole run, so that a kernel has one colour in all its figures."""
    complete = content.table.dropna(subset=list(content.figure.columns.hue))
    return Order(tuple(sorted(set(joined(complete, content.figure.columns.hue)))))


def _how_many(content: Content) -> str:
    shown = _on_axes(content.figure, content.rows)
    repetitions = {str(label): int(rows["repetition"].nunique()) for label, rows in shown.groupby("label", sort=False)}
    most = max(repetitions.values(), default=0)
    fewer = ", ".join(f"{count} of {label}" for label, count in repetitions.items() if count < most)
    repetitions_text = many(most, "repetition") + (f" ({fewer})" if fewer else "")
    return f"{_count(shown)}, {' and '.join(dict.fromkeys(shown['label']))}; n = {repetitions_text}."


def _intervals(content: Content) -> str:
    return "Bars: 95 % intervals of the mean." if content.marks["low"].notna().any() else ""


def _power_laws(content: Content) -> str:
    if not content.marks["kind"].eq("fit").any():
        return ""
    return (
        f"Lines: power laws, where nine of ten accepted programs are within a factor of {MOST_OFF:g} "
        f"and all of them within {MOST_OFF**2:g}."
    )


def _not_drawn(content: Content) -> list[str]:
    """Say for each kernel how many programs have no value, and why; and how many are zero."""
    figure, rows = content.figure, content.rows
    unknown = rows[rows[figure.columns.y].isna() & ~rows["verdict"].isin(ENVIRONMENT)]
    parts = [
        f"{label}: {_count(programs)} without a value: {because(reasons)}."
        for label, programs in unknown.groupby("label", sort=False)
        if (reasons := _reasons(figure, programs))
    ]
    zero = _programs(figure, rows).drop(_on_axes(figure, rows).index)
    return parts + ([f"{_count(zero)} with 0 not drawn: the axes are logarithmic."] if len(zero) else [])


def _count(rows: pd.DataFrame) -> str:
    programs = rows[PROGRAM_ID].nunique()  # PREVAIL may name a program otherwise than the kernel
    return many(programs, "program")


@dataclass(frozen=True)
class Quantity:
    """A column of the table on the axis ``label``, in whose unit ``scale`` is one; ``title``: in words."""

    column: str
    label: str
    title: str
    scale: float = 1.0
    note: str = ""

    @property
    def is_time(self) -> bool:
        return self.column.endswith("_ns")

    def against(self, x: str, hue: tuple[str, ...], panel: tuple[str, ...]) -> Columns:
        return Columns(x, self.column, hue, panel, self.scale)


INSNS, ITERATIONS, SIZE = "instructions of the program", "loop iterations N", "size N of the family's program"
TIME = Quantity(
    "verify_ns", "verifying, ms", "Time to verify", 1e6,
    "Times are of this machine's own kernel: the clock of a guest counts instructions.",
)  # fmt: skip
LOADING = Quantity(
    "load_ns", "loading or running, ms", "Time of Linux and PREVAIL", 1e6,
    "Linux: BPF_PROG_LOAD alone, median of several. PREVAIL: one whole process, with its start.",
)  # fmt: skip
COUNTED = Quantity(
    "verify_instructions", "verifier's own instructions, millions", "Instructions that verifying executes", 1e6,
    "Guests that count instructions: 1 ns of their clock is one instruction.",
)  # fmt: skip
MEMORY = Quantity("memory_bytes", "peak memory, kB", "Peak memory of verifying", 1e3)
MEMORY_OF_EACH = replace(
    MEMORY,
    title="Peak memory of Linux and PREVAIL",
    note="Linux: what the verifier allocates. PREVAIL: its whole process.",
)
CHARGED = Quantity("cgroup_peak_bytes", "peak charged memory, kB", "Memory charged while verifying", 1e3)
BRANCHES = Quantity("branches", "branches (push_stack calls)", "Branches that the verifier keeps for later")
PROCESSED = Quantity("processed_insns", "processed instructions", "Instructions that the verifier looks at")
STATES = Quantity("total_states", "states made", "States that the verifier makes")
INSTRUCTIONS = Quantity("insns", INSNS, "Instructions that the compiler makes")
COMPILER, FORM_SET, FORM, LABEL, FAMILY = ("compiler",), ("form", "mcpu"), ("form",), ("label",), ("family",)
ROLLED = "Without rolled loops: their instructions do not grow with N."


def _figure(name: str, choose: Choose, of: Quantity, x_label: str, by: str, **more: Any) -> Figure:
    return Figure(
        name, choose, Axes(x_label, of.label, "log", "log"), order=_hues,
        title=f"{of.title}, {by}", exact=not of.is_time,
        words=Words(legend={"invalid": "not accepted (finding or limit)"}), nothing=_nothing, **more,
    )  # fmt: skip


def _by_insns(name: str, choose: Choose, of: Quantity) -> Figure:
    caption = (_how_many, of.note, _intervals, _power_laws, ROLLED, _not_drawn)
    return _figure(
        name, choose, of, INSNS, "by the size of a program", columns=of.against("insns", LABEL, ()), kind="point",
        collect=_means_and_trends, caption=caption,
    )  # fmt: skip


def _by_n(
    name: str, choose: Choose, of: Quantity, hue: tuple[str, ...] = LABEL, panel: tuple[str, ...] = FORM
) -> Figure:
    label = SIZE if panel == FAMILY else ITERATIONS
    caption = (_how_many, of.note, _intervals, _not_drawn)
    by = "by family and size" if panel == FAMILY else f"by iterations of a loop and {_BY[hue]}"
    columns = of.against("n", hue, panel)
    return _figure(name, choose, of, label, by, columns=columns, collect=_means, caption=caption)


_BY: dict[tuple[str, ...], str] = {COMPILER: "compiler", LABEL: "kernel"}


FIGURES = (
    _by_insns("time", _sized, TIME),
    _by_insns("memory", _sized, MEMORY),
    _by_insns("memory-cgroup", _sized, CHARGED),
    _by_insns("processed", _sized, PROCESSED),
    _by_insns("states", _sized, STATES),
    _by_insns("branches", _sized, BRANCHES),
    _by_insns("counted", _sized, COUNTED),
    _by_n("loops-time", _native_loops, TIME, COMPILER, FORM_SET),
    _by_n("loops-insns", _loops_once, INSTRUCTIONS, COMPILER, FORM_SET),
    _by_n("loops-memory", _native_loops, MEMORY, COMPILER, FORM_SET),
    _by_n("compilers", _native_loops, PROCESSED, COMPILER, FORM_SET),
    _by_n("kernels", _one_built, PROCESSED),
    _by_n("kernels-time", _one_built, TIME),
    _by_n("kernels-counted", _one_built, COUNTED),
    _by_n("kernels-memory", _one_built, MEMORY),
    _by_n("kernels-branches", _one_built, BRANCHES),
    _by_n("families", _families, PROCESSED, panel=FAMILY),
    _by_n("families-time", _families, TIME, panel=FAMILY),
    _by_n("families-memory", _families, MEMORY, panel=FAMILY),
    _by_insns("prevail-time", _versus_sized, LOADING),
    _by_insns("prevail-memory", _versus_sized, MEMORY_OF_EACH),
    _by_n("prevail-loops", _versus_loops, LOADING),
    _by_n("prevail-loops-memory", _versus_loops, MEMORY_OF_EACH),
)
VIEWS = views(FIGURES)
