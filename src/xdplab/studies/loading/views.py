"""The study's figures: distributions of a simple program, parts and wholes by N, memory, compiling."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd

from xdplab.errors import NotApplicableError
from xdplab.figures.marks import DEFAULT_PALETTE, NO_BACKENDS, Look, View, collect, marks_frame
from xdplab.studies.loading.parts import BPF_PARTS, MODULE_PARTS, SUBJECT, part_intervals, parts, scaled, values, wholes
from xdplab.studies.loading.points import BPF, CLOCK, MODULE
from xdplab.studies.loading.rows import FENTRY, GRAPH, LOG, SAMPLES, SYSTEM_CALL
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
_FORMS = "A bounded program is a loop of blocks; an unrolled one grows with N."

_BARS = "with their 95 % intervals (from six repetitions on)"
_PIECES = "Pieces are medians; a bar at an end is the 95 % interval of that piece (timed itself, six times or more)."
_PROGRAM = [name for name in SUBJECT if name not in ("label", "clock")]

_HUES = ("BPF_PROG_LOAD", "init_module(2)")

Row = dict[Any, Any]


def simple(clock: str, table: pd.DataFrame) -> View:
    """Return every BPF_PROG_LOAD beside every init_module(2) of the program that reads the clock once."""
    rows = _simple(table, clock)
    shown = rows.loc[rows["step"].isin(("load", "insert")) & rows["source"].eq(SYSTEM_CALL)]
    words = dict(zip(("load", "insert"), _HUES, strict=True))
    marks = _samples("simple", shown, words, shown["label"])
    return _boxes(marks, shown, clock)


def simple_parts(clock: str, table: pd.DataFrame) -> View:
    """Return every time in the verifier beside every time in the JIT, of the same program."""
    rows = _simple(table, clock)
    shown = rows.loc[rows["kind"].eq(BPF) & rows["step"].isin(("verify", "jit"))]
    words = {
        (step, source): f"{step}, {source}" for step in ("verify", "jit") for source in (GRAPH, FENTRY, LOG, SAMPLES)
    }
    named = shown.assign(step=[words[key] for key in zip(shown["step"], shown["source"], strict=True)])
    each, shared = named.loc[named["low"].isna()], named.loc[named["low"].notna()]
    marks = [*_samples("simple-parts", each, {}, each["label"]), *map(_shared, shared.to_dict("records"))]
    return _boxes([mark | {"x": mark["hue"], "hue": ""} for mark in marks], shown, clock)


def _shared(row: Row) -> dict[str, object]:
    """A profiler's share is one number with its interval, not one per load."""
    place = {"figure": "simple-parts", "file": "simple-parts", "kind": "point", "verdict": "valid", "n": 1, "x": ""}
    size = {name: row[key] / 1000 for name, key in (("value", "value"), ("low", "low"), ("high", "high"))}
    return place | size | {"hue": row["step"], "panel": row["label"]}


def processes(clock: str, table: pd.DataFrame) -> View:
    """Draw every whole process that inserts the simple program, beside rmmod and a process that does nothing."""
    rows = values(table)
    rows = rows.loc[rows["clock"].eq(clock) & rows["task"].isin(("process", "start"))]
    names = process_names(rows).dropna()
    named = rows.loc[names.index].assign(step=names)
    if not named["task"].eq("process").any():
        raise NotApplicableError(f"no whole process was measured where the clock is {clock}")
    marks = [mark | {"x": mark["hue"], "hue": ""} for mark in _samples("processes", named, {}, named["label"])]
    note = () if clock == "time" else ("A process's own CPU time: it does not wait for its libraries to be read.",)
    return _boxes(marks, named, clock, note)


def _simple(table: pd.DataFrame, clock: str) -> pd.DataFrame:
    rows = scaled(table)
    found = rows.loc[rows["clock"].eq(clock) & rows["task"].eq("load") & rows["program"].eq(CLOCK)]
    if found.empty:
        raise NotApplicableError(f"no place's clock is {clock}")
    return found


def _samples(figure: str, rows: pd.DataFrame, words: Mapping[str, str], panels: pd.Series) -> list[dict[str, object]]:
    place = {"figure": figure, "file": figure, "kind": "sample", "verdict": "valid", "n": 1, "x": ""}
    each = zip(rows["step"], rows["value"], panels, strict=True)
    return [
        place | {"hue": words.get(step, step), "value": value / 1000, "panel": panel} for step, value, panel in each
    ]


def _boxes(marks: Sequence[Row], shown: pd.DataFrame, clock: str, note: tuple[str, ...] = ()) -> View:
    if not marks:
        raise NotApplicableError("nothing of the simple program was measured")
    repetitions = int(shown["repetition"].max())
    caption = (f"A program that reads the clock once; up to {repetitions} repetitions.", *note, *_clock_note(clock))
    look = Look(
        x_label="",
        y_label=CLOCK_WORDS[clock],
        hues=_HUES,
        y_scale="log",
        share_y=False,
        caption=caption,
        from_zero=False,
    )
    return View(marks_frame(marks), look)


def shares(kind: str, clock: str, table: pd.DataFrame) -> View:
    """Return the parts of a load as shares of its whole, piled up, by N; below each N what the whole is."""
    found = parts(table)
    rows = found.loc[
        found["kind"].eq(kind) & found["clock"].eq(clock) & found["accesses"].notna() & found["whole"].gt(0)
    ]
    names = BPF_PARTS if kind == BPF else MODULE_PARTS
    ends = {
        (*key, step): (low, high)
        for *key, step, low, high in part_intervals(table)[[*_PROGRAM, "step", "low", "high"]].itertuples(index=False)
    }
    marks = [mark for row in rows.sort_values("accesses").to_dict("records") for mark in _pile(row, names, ends)]
    if not marks:
        raise NotApplicableError(f"no {KIND_WORDS[kind]} was loaded where the clock is {clock}")
    look = Look(
        x_label="accesses N, and the whole",
        y_label="share, %",
        hues=tuple(PART_WORDS[name] for name in names),
        palette=DEFAULT_PALETTE if kind == BPF else NO_BACKENDS,
        share_x=False,
        columns=1,
        caption=("; ".join(dict.fromkeys(rows["label"])) + ".", _WHOLES[kind], _FORMS, _PIECES, *_clock_note(clock)),
    )
    return View(marks_frame(marks), look)


def _pile(
    row: Row, names: Sequence[str], ends: Mapping[tuple[object, ...], tuple[float, float]]
) -> list[dict[str, object]]:
    """Return the pieces of one bar. A part that was not measured is missing, and the bar is shorter by it."""
    whole, at = row["whole"], 0.0
    x = f"{row['accesses']}\n{_short(whole, str(row['clock']))}"
    place = {"figure": "parts", "file": "parts", "kind": "stack", "panel": f"{row['place']}, {row['form']}", "x": x}
    marks: list[dict[str, object]] = []
    for name in names:
        size = row.get(name)
        if size is None or pd.isna(size):
            continue
        top = at + max(size, 0.0) / whole * 100
        piece = place | {"hue": PART_WORDS[name], "value": top, "verdict": "valid"}
        marks.append(piece | {"low": at})
        if own := ends.get((*(row[column] for column in _PROGRAM), name)):
            low, high = (at + end / whole * 100 for end in own)
            marks.append(piece | {"kind": "edge", "low": low, "high": high})
        at = top
    return marks


def _short(value: float, clock: str) -> str:
    """Return a whole in few letters: ``4.2 ms``, ``14.4 M``."""
    units = (("s", 1e9), ("ms", 1e6), ("µs", 1e3)) if clock == "time" else (("G", 1e9), ("M", 1e6), ("k", 1e3))
    unit, scale = next(((u, s) for u, s in units if value >= s), units[-1])
    return f"{value / scale:.3g} {unit}"


def total(clock: str, table: pd.DataFrame) -> View:
    """Return the whole of loading by N, both kinds and forms, one panel per place."""
    found = wholes(table)
    rows = found.loc[found["clock"].eq(clock) & found["accesses"].notna()]
    if rows.empty:
        raise NotApplicableError(f"nothing was loaded where the clock is {clock}")
    marks = [
        {"figure": "total", "file": "total", "kind": "line", "panel": row["label"], "x": float(row["accesses"]),
         "hue": f"{KIND_WORDS[row['kind']]}, {row['form']}", "n": row["n"], "verdict": "valid",
         **{name: row[column] / 1000 for name, column in (("value", "median"), ("low", "low"), ("high", "high"))}}
        for row in rows.to_dict("records")
    ]  # fmt: skip
    caption = (*_WHOLES.values(), _FORMS, f"Medians of whole loads, {_BARS}.", *_clock_note(clock))
    things = {mark["hue"]: KIND_WORDS[kind] for mark, kind in zip(marks, rows["kind"], strict=True)}
    return View(marks_frame(marks), _by_n(CLOCK_WORDS[clock], caption, things))


MEMORY_WORDS = {
    (BPF, "jited"): "BPF: JIT image",
    (BPF, "xlated"): "BPF: instructions kept",
    (BPF, "map"): "BPF: maps charged",
    (MODULE, "text"): "module: text",
    (MODULE, "core"): "module: core, with its working set",
}


def memory(table: pd.DataFrame) -> View:
    """Return bytes in the kernel by N, one panel per form; of the first place that has them."""
    rows = table.loc[table["bytes"].notna() & table["accesses"].notna()]
    places = [
        label for label in rows["label"].unique() if {BPF, MODULE} <= set(rows.loc[rows["label"].eq(label), "kind"])
    ]
    place = next(iter(places), rows["label"].iloc[0] if len(rows) else None)
    marks = []
    for row in rows.loc[rows["label"].eq(place)].to_dict("records") if place else ():
        words = MEMORY_WORDS.get((row["kind"], row["step"]))
        if words and row["bytes"] > 0:
            mark = {"figure": "memory", "file": "memory", "kind": "line", "panel": row["form"], "hue": words}
            marks.append(mark | {"x": float(row["accesses"]), "value": row["bytes"] / 1024, "verdict": "valid"})
    if not marks:
        raise NotApplicableError("no size is known")
    caption = (
        f"{place}. {_FORMS} Each size is read once, from the loaded program: the same object has the same size.",
    )
    things = {words: KIND_WORDS[kind] for (kind, _), words in MEMORY_WORDS.items()}
    return View(marks_frame(marks), _by_n("KiB", caption, things, tuple(MEMORY_WORDS.values())))


def compiling(table: pd.DataFrame) -> View:
    """Return the time to compile by N, BPF and module."""
    rows = values(table)
    rows = rows.loc[rows["task"].eq("compile") & rows["accesses"].notna()]
    if rows.empty:
        raise NotApplicableError("nothing was compiled")
    headers = rows["kernel"].map(lambda kernel: f" for {kernel}" if kernel else "")
    hues, sizes = rows["kind"].map(KIND_WORDS) + headers + ", " + rows["form"], rows["accesses"].astype(float)
    each = rows.assign(panel="", hue=hues, x=sizes, verdict="valid", limited_by=None, point_id=rows["trial_id"])
    fewest = each.groupby(["hue", "x"]).size().min()
    marks = collect(each, "compile", "line", 1e6, middle="median")
    times = "Compiled once each" if fewest == 1 else f"Medians of {fewest} or more, {_BARS}"
    caption = ("This machine's time; clang for BPF, make of the kernel's headers for a module.", f"{times}.")
    return View(
        marks_frame(marks), _by_n("compiling, ms", caption, dict(zip(hues, rows["kind"].map(KIND_WORDS), strict=True)))
    )


def _by_n(y_label: str, caption: tuple[str, ...], things: Mapping[str, str], hues: tuple[str, ...] = ()) -> Look:
    return Look(
        x_label="accesses N",
        y_label=y_label,
        x_scale="log",
        y_scale="log",
        hues=hues,
        things=things,
        caption=caption,
    )


def _clock_note(clock: str) -> tuple[str, ...]:
    return (_COUNTED,) if clock == "instructions" else ()


CLOCKS = {"times": "time", "counts": "instructions"}
VIEWS: dict[str, Callable[[pd.DataFrame], View]] = {
    **{f"simple-{name}": partial(simple, clock) for name, clock in CLOCKS.items()},
    **{f"simple-parts-{name}": partial(simple_parts, clock) for name, clock in CLOCKS.items()},
    **{f"processes-{name}": partial(processes, clock) for name, clock in CLOCKS.items()},
    **{f"parts-{kind}-{name}": partial(shares, kind, clock) for kind in KIND_WORDS for name, clock in CLOCKS.items()},
    **{f"total-{name}": partial(total, clock) for name, clock in CLOCKS.items()},
    "memory": memory,
    "compile": compiling,
}
