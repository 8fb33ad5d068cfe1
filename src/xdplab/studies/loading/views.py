"""The study's figures: distributions of a simple program, parts and wholes by N, memory, compiling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pandas as pd

from xdplab.errors import NotApplicableError
from xdplab.figures.marks import DEFAULT_PALETTE, NO_BACKENDS, Axes, Order
from xdplab.studies.figure_table import Columns, Content, Figure, Row, medians, views
from xdplab.studies.loading.points import BPF, CLOCK, MODULE
from xdplab.studies.loading.rows import (
    BPF_PARTS,
    MODULE_PARTS,
    SUBJECT,
    SYSTEM_CALL,
    part_intervals,
    parts,
    scaled,
    values,
    wholes,
)
from xdplab.studies.loading.summaries import process_names

KIND_WORDS = {BPF: "BPF", MODULE: "module"}
CLOCK_WORDS = {"time": "µs", "instructions": "instructions, thousands"}
PART_WORDS = {
    "open": "open: libbpf reads the ELF file",
    "prepare": "prepare: maps, BTF, relocations",
    "verify": "verify: bpf_check()",
    "jit": "JIT: bpf_int_jit_compile()",
    "rest of load": "rest of BPF_PROG_LOAD",
    "attach": "attach: bpf_link to a veth",
    "read": "read the file",
    "copy": "copy: init_module(2) before load_module()",
    "layout": "load_module(): layout, relocations, sysfs",
    "finish": "do_init_module() around its init",
    "init": "its own init: attach",
}
_COUNTED = "Instructions counted by the emulator: one nanosecond of the guest's clock is one."
_WHOLES = {
    BPF: "Whole of BPF: open, prepare, BPF_PROG_LOAD, attach.",
    MODULE: "Whole of a module: its file read, init_module(2).",
}
_READ_ONCE = "Each size is read once, from the loaded program: the same object has the same size."
_FORMS = "A bounded program is a loop of blocks; an unrolled one grows with N."

_BARS = "with their 95 % intervals (from six repetitions on)"
_PIECES = "Pieces are medians; a bar at an end is the 95 % interval of that piece (timed itself, six times or more)."
_PROGRAM = [name for name in SUBJECT if name not in ("label", "clock")]

_HUES = ("BPF_PROG_LOAD", "init_module(2)")
CLOCKS = {"times": "time", "counts": "instructions"}


def simple(clock: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return every BPF_PROG_LOAD and every init_module(2) of the program that reads the clock once."""
    rows = _simple(table, clock)
    shown = rows.loc[rows["step"].isin(("load", "insert")) & rows["source"].eq(SYSTEM_CALL)]
    return _samples(shown).assign(hue=shown["step"].map(dict(zip(("load", "insert"), _HUES, strict=True))), x="")


def simple_parts(clock: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return every time in the verifier and every time in the JIT, of the same program, by their source.

    A profiler's share is one number with its interval, not one per load.
    """
    rows = _simple(table, clock)
    shown = rows.loc[rows["kind"].eq(BPF) & rows["step"].isin(("verify", "jit"))]
    named = _samples(shown).assign(x=shown["step"] + ", " + shown["source"], hue="", drawn_as="sample")
    shares = shown["low"].notna()
    return pd.concat([named.loc[~shares], named.loc[shares].assign(drawn_as="point")])


def processes(clock: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return every whole process that inserts the simple program, rmmod, and every process that does nothing."""
    rows = values(table)
    rows = rows.loc[rows["clock"].eq(clock) & rows["task"].isin(("process", "start"))]
    names = process_names(rows).dropna()
    named = rows.loc[names.index]
    if not named["task"].eq("process").any():
        raise NotApplicableError(f"no whole process was measured where the clock is {clock}")
    return _samples(named).assign(x=names, hue="")


def _simple(table: pd.DataFrame, clock: str) -> pd.DataFrame:
    rows = scaled(table)
    of_clock = rows.loc[rows["clock"].eq(clock) & rows["task"].eq("load") & rows["program"].eq(CLOCK)]
    if of_clock.empty:
        raise NotApplicableError(f"no place's clock is {clock}")
    return of_clock


def _samples(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(n=1, panel=rows["label"])


def _up_to(content: Content) -> str:
    repetitions = int(content.rows["repetition"].max())
    return f"A program that reads the clock once; up to {repetitions} repetitions."


def shares(kind: str, clock: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return the parts of a load as shares of its whole, piled up, by N; below each N what the whole is."""
    whole = parts(table)
    rows = whole.loc[
        whole["kind"].eq(kind) & whole["clock"].eq(clock) & whole["accesses"].notna() & whole["whole"].gt(0)
    ]
    names = BPF_PARTS if kind == BPF else MODULE_PARTS
    ends = {
        (*key, step): (low, high)
        for *key, step, low, high in part_intervals(table)[[*_PROGRAM, "step", "low", "high"]].itertuples(index=False)
    }
    piles = [_pile(row, names, ends) for row in rows.sort_values("accesses").to_dict("records")]
    return pd.DataFrame([piece for pile in piles for piece in pile])


def _pile(row: Row, names: Sequence[str], ends: Mapping[tuple[object, ...], tuple[float, float]]) -> list[Row]:
    """Return the pieces of one bar. A part that was not measured is missing, and the bar is shorter by it."""
    whole, at = row["whole"], 0.0
    x = f"{row['accesses']}\n{_short(whole, str(row['clock']))}"
    place = {"label": row["label"], "panel": f"{row['place']}, {row['form']}", "x": x}
    pieces: list[Row] = []
    for name in names:
        size = row.get(name)
        if size is None or pd.isna(size):
            continue
        top = at + max(size, 0.0) / whole * 100
        piece = place | {"hue": PART_WORDS[name], "value": top}
        pieces.append(piece | {"low": at, "drawn_as": "stack"})
        if ends_of := ends.get((*(row[column] for column in _PROGRAM), name)):
            low, high = (at + end / whole * 100 for end in ends_of)
            pieces.append(piece | {"low": low, "high": high, "drawn_as": "edge"})
        at = top
    return pieces


def _short(value: float, clock: str) -> str:
    """Return a whole in few letters: ``4.2 ms``, ``14.4 M``."""
    units = (("s", 1e9), ("ms", 1e6), ("µs", 1e3)) if clock == "time" else (("G", 1e9), ("M", 1e6), ("k", 1e3))
    unit, scale = next(((u, s) for u, s in units if value >= s), units[-1])
    return f"{value / scale:.3g} {unit}"


def total(clock: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return the whole of loading by N, both kinds and forms, one panel per place."""
    rows = wholes(table)
    rows = rows.loc[rows["clock"].eq(clock) & rows["accesses"].notna()]
    thing = rows["kind"].map(KIND_WORDS)
    return rows.assign(
        panel=rows["label"], hue=thing + ", " + rows["form"], thing=thing, accesses=rows["accesses"].astype(float)
    )


MEMORY_WORDS = {
    (BPF, "jited"): "BPF: JIT image",
    (BPF, "xlated"): "BPF: instructions kept",
    (BPF, "map"): "BPF: maps charged",
    (MODULE, "text"): "module: text",
    (MODULE, "core"): "module: core, with its working set",
}


_THINGS_IN_MEMORY = {hue: KIND_WORDS[kind] for (kind, _), hue in MEMORY_WORDS.items()}


def memory(table: pd.DataFrame) -> pd.DataFrame:
    """Return bytes in the kernel by N, one panel per form; of the first place that has them of both kinds."""
    rows = table.loc[table["bytes"].notna() & table["accesses"].notna()]
    kinds = rows.groupby("label", sort=False)["kind"].agg(set)
    place = next(iter([*kinds.index[kinds.map({BPF, MODULE}.issubset).astype(bool)], *kinds.index]), "")
    keys = zip(rows["kind"], rows["step"], strict=True)
    hues = pd.Series([MEMORY_WORDS.get(key) for key in keys], index=rows.index, dtype=object)
    named = rows.assign(hue=hues, panel=rows["form"], accesses=rows["accesses"].astype(float))
    return named.loc[named["label"].eq(place) & named["hue"].notna() & named["bytes"].gt(0)]


def compiling(table: pd.DataFrame) -> pd.DataFrame:
    """Return the time to compile by N, BPF and module."""
    rows = values(table)
    rows = rows.loc[rows["task"].eq("compile") & rows["accesses"].notna()]
    headers = rows["kernel"].map(lambda kernel: f" for {kernel}" if kernel else "").astype("object")
    thing = rows["kind"].map(KIND_WORDS)
    hues, sizes = thing + headers + ", " + rows["form"], rows["accesses"].astype(float)
    columns = {"verdict": "valid", "limited_by": None, "point_id": rows["trial_id"]}
    return rows.assign(panel="", hue=hues, x=sizes, thing=thing, **columns)


def _how_often(content: Content) -> str:
    fewest = content.rows.groupby(["hue", "x"]).size().min()
    return "Compiled once each." if fewest == 1 else f"Medians of {fewest} or more, {_BARS}."


def _things(content: Content) -> Order:
    return Order(things=dict(zip(content.rows["hue"], content.rows["thing"], strict=True)))


def _by_n(y_label: str) -> Axes:
    return Axes("accesses N", y_label, "log", "log")


def _box(kind: str, choose: Callable[[str, pd.DataFrame], pd.DataFrame], name: str, *notes: str) -> Figure:
    """Return a figure of boxes; ``name`` is that of the clock in names of figures."""
    clock = CLOCKS[name]
    axes = Axes("", CLOCK_WORDS[clock], y_scale="log", share_y=False, from_zero=False)
    return Figure(
        f"{kind}-{name}", partial(choose, clock), axes, Columns(scale=1000), "sample", figure=kind,
        order=Order(_HUES) if kind == "simple" else Order(palette=NO_BACKENDS),
        caption=(_up_to, *notes, _NOTES[name]), nothing="nothing of the simple program was measured",
        title=TITLES[kind], exact=name == "counts",
    )  # fmt: skip


def _piles(kind: str, name: str) -> Figure:
    names, palette = (BPF_PARTS, DEFAULT_PALETTE) if kind == BPF else (MODULE_PARTS, NO_BACKENDS)
    axes = Axes("accesses N, and the whole", "share, %", share_x=False)
    order = Order(tuple(PART_WORDS[part] for part in names), columns=1, palette=palette)
    return Figure(
        f"parts-{kind}-{name}", partial(shares, kind, CLOCKS[name]), axes, order=order, figure="parts",
        caption=("{places}.", _WHOLES[kind], _FORMS, _PIECES, _NOTES[name]),
        nothing=f"no {KIND_WORDS[kind]} was loaded where the clock is {CLOCKS[name]}",
        title=f"Parts of loading {'a BPF program' if kind == BPF else 'a module'}, by accesses N",
    )  # fmt: skip


TITLES = {
    "simple": "Loading the smallest program: BPF_PROG_LOAD and init_module(2)",
    "simple-parts": "Verifying and compiling the smallest program",
    "processes": "Whole processes that load the smallest program",
}
_NOTES = {"times": "", "counts": _COUNTED}
_OWN_TIME = {"times": "", "counts": "A process's own CPU time: it does not wait for its libraries to be read."}

FIGURES = (
    *(_box("simple", simple, name) for name in CLOCKS),
    *(_box("simple-parts", simple_parts, name) for name in CLOCKS),
    *(_box("processes", processes, name, _OWN_TIME[name]) for name in CLOCKS),
    *(_piles(kind, name) for kind in KIND_WORDS for name in CLOCKS),
    *(
        Figure(
            f"total-{name}", partial(total, clock), _by_n(CLOCK_WORDS[clock]), Columns("accesses", "median", scale=1e3),
            order=_things, caption=(*_WHOLES.values(), _FORMS, f"Medians of whole loads, {_BARS}.", _NOTES[name]),
            nothing=f"nothing was loaded where the clock is {clock}", figure="total", exact=clock == "instructions",
            title="What loading costs, by accesses N",
        )
        for name, clock in CLOCKS.items()
    ),
    Figure(
        "memory", memory, _by_n("KiB"), Columns("accesses", "bytes", scale=1024),
        nothing="no size is known", exact=True, title="Memory in the kernel, by accesses N",
        order=Order(tuple(MEMORY_WORDS.values()), things=_THINGS_IN_MEMORY),
        caption=(f"{{places}}. {_FORMS} {_READ_ONCE}",),
    ),
    Figure(
        "compile", compiling, _by_n("compiling, ms"), Columns(scale=1e6), collect=medians, order=_things,
        caption=("This machine's time; clang for BPF, make of the kernel's headers for a module.", _how_often),
        nothing="nothing was compiled", title="Time to compile, by accesses N",
    ),
)  # fmt: skip
VIEWS = views(FIGURES)
