"""What is made of the study's rows: the tables (parts of a load, BPF against modules, sources, memory, compiling), and
the sentences of its result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from xdplab.analysis.sentences import Estimate, estimate, percent, span
from xdplab.studies.loading.points import (
    BPF,
    BPFTOOL,
    BUSYBOX,
    INSMOD,
    LIBBPF,
    LOADER,
    MODULE,
    PROCESS_WORDS,
)
from xdplab.studies.loading.rows import (
    BPF_PARTS,
    FENTRY,
    GRAPH,
    LOG,
    MODULE_PARTS,
    SAMPLES,
    SUBJECT,
    SYSTEM_CALL,
    medians,
    part_intervals,
    parts,
    wholes,
)
from xdplab.studies.meaning import Make, Meaning, by_place, supported

TOLERANCE = 0.02
"""By how much the parts of a traced load may exceed the whole of an untraced one: the cost of tracing."""

UNITS = {"time": "µs", "instructions": "k insns"}
"""Of the numbers in tables: thousands of ns, or of instructions."""

NAMED = ["place", "program", "form", "accesses"]


def parts_table(table: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Return the parts of one kind, in µs or thousands of instructions, with their repetitions."""
    shares = parts(table)
    of_kind = shares.loc[shares["kind"].eq(kind)]
    whole = "load" if kind == BPF else "insert"
    shown = [*(BPF_PARTS if kind == BPF else MODULE_PARTS), whole, "whole"]
    out = of_kind[NAMED].assign(unit=of_kind["clock"].map(UNITS))
    out = out.join(_repetitions(table, whole), on=NAMED)
    out[shown] = (of_kind[shown].astype(float) / 1000).round(2)
    return out.dropna(axis=1, how="all")


def _repetitions(table: pd.DataFrame, step: str) -> pd.Series:
    rows = table.loc[table["step"].eq(step) & table["source"].eq(SYSTEM_CALL)]
    return rows.groupby(NAMED, dropna=False).size().rename("n")


def versus(table: pd.DataFrame) -> pd.DataFrame:
    """Return BPF against module in one place: the whole of each, and module over BPF."""
    wide = wholes(table).pivot_table(
        index=["clock", *NAMED],
        columns="kind",
        values="median",
        dropna=False,
        sort=False,
    )
    if not {BPF, MODULE} <= set(wide.columns):
        return pd.DataFrame()
    both = wide.dropna(subset=[BPF, MODULE]).reset_index().rename_axis(columns=None)
    out = both[NAMED].assign(unit=both["clock"].map(UNITS))
    out["BPF"], out["module"] = (both[BPF] / 1000).round(2), (both[MODULE] / 1000).round(2)
    return out.assign(**{"BPF / module": (both[BPF] / both[MODULE]).round(3)})


def crosscheck(table: pd.DataFrame) -> pd.DataFrame:
    """Return the verifying time from the log and from the tracer, and whether the parts are at most the whole."""
    middle = medians(table)
    rows = middle.loc[middle["kind"].eq(BPF) & middle["step"].isin(("verify", "jit", "load"))]
    keyed = rows.assign(who=rows["step"] + ", " + rows["source"])
    wide = keyed.pivot_table(index=SUBJECT, columns="who", values="median", dropna=False, sort=False).dropna(how="all")
    traced = next((name for name in (GRAPH, FENTRY, SAMPLES) if f"verify, {name}" in wide), None)
    log = f"verify, {LOG}"
    if traced is None or log not in wide:
        return pd.DataFrame()
    wide = wide.reindex(columns=[*dict.fromkeys([*wide.columns, f"load, {SYSTEM_CALL}"])])
    tracers = [name for name in (GRAPH, FENTRY, SAMPLES) if f"verify, {name}" in wide]
    verify = wide[[f"verify, {name}" for name in tracers]].bfill(axis=1).iloc[:, 0]
    jit = wide[[f"jit, {name}" for name in tracers if f"jit, {name}" in wide]].bfill(axis=1).iloc[:, 0]
    share = (verify + jit.fillna(0.0)) / wide[f"load, {SYSTEM_CALL}"]
    out = wide.reset_index()[[*NAMED, "clock"]].rename_axis(columns=None)
    out["log"], out["traced"] = (wide[log] / 1000).round(2).to_numpy(), (verify / 1000).round(2).to_numpy()
    out["log / traced"] = (wide[log] / verify).round(3).to_numpy()
    out["parts / whole"] = share.round(3).to_numpy()
    out["parts ≤ whole"] = (
        (share <= 1 + TOLERANCE).map({True: "yes", False: "NO"}).where(share.notna(), None).to_numpy()
    )
    return out.assign(unit=out.pop("clock").map(UNITS)).dropna(subset=["log", "traced"], how="any")


def memory(table: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Return bytes in the kernel of one kind: a BPF program's image, instructions and maps; a module's core."""
    sizes = table.loc[table["bytes"].notna() & table["kind"].eq(kind)]
    index = [*NAMED, "kernel_release"]
    wide = sizes.pivot_table(index=index, columns="step", values="bytes", dropna=False, sort=False).dropna(how="all")
    shown = wide[[name for name in _SIZES if name in wide]].rename(columns=_SIZES).astype("Int64").reset_index()
    return shown.drop(columns="kernel_release").sort_values(NAMED, na_position="first").rename_axis(columns=None)


_SIZES = {
    "jited": "JIT image",
    "xlated": "instructions kept",
    "program": "charged",
    "map": "maps charged",
    "core": "core",
    "init": "init",
    "text": "text",
    "rodata": "read-only",
    "data": "data",
    "bss": "bss",
    "file": "file",
}


def compiling(table: pd.DataFrame) -> pd.DataFrame:
    """Return milliseconds of this machine to compile each program: clang, or a module's make against a kernel."""
    middle = medians(table)
    rows = middle.loc[middle["task"].eq("compile")].sort_values(["kind", *NAMED], na_position="first")
    what = rows["kind"].where(rows["kind"].eq(BPF), "module for " + rows["kernel"])
    out = rows[["program", "form", "accesses"]].assign(compiled=what, ms=(rows["median"] / 1e6).round(1))
    return out.assign(n=rows["n"].astype(int))


def starting(table: pd.DataFrame) -> pd.DataFrame:
    """Return the cost of a loader process that loads nothing."""
    middle = medians(table)
    rows = middle.loc[middle["task"].eq("start")]
    shown = rows[["place"]].assign(unit=rows["clock"].map(UNITS))
    for name in ("median", "low", "high"):
        shown[name] = (rows[name] / 1000).round(1)
    return shown.assign(n=rows["n"].astype(int))


PUBLISHED_LOADER = {"process": "a loader of the published project", "unit": "ms", "median": 87.0, "by insmod": 1.2}
"""Of the student project in docs/results/published.md, figure 3 (kernel 5.10 in QEMU): "whole insmod" against "a
program that only calls load_bpf_file"."""


def processes(table: pd.DataFrame) -> pd.DataFrame:
    """Return the cost of inserting the simple program by a whole process and of removing it, also relative to insmod.

    Each ratio is of one place. The published numbers are below, in their published unit.
    """
    middle = medians(table)
    rows = middle.loc[middle["task"].isin(("process", "start")) & middle["step"].isin(PROCESS_STEPS)]
    if not rows["task"].eq("process").any():
        return pd.DataFrame()
    named = process_names(rows).dropna()
    rows = rows.loc[named.index]
    insmod = rows.loc[named.eq(PROCESS_WORDS[INSMOD])].set_index("place")["median"]
    out = rows[["place"]].assign(process=named, unit=rows["clock"].map(UNITS))
    for name in ("median", "low", "high"):
        out[name] = (rows[name] / 1000).round(1)
    out["by insmod"] = (rows["median"] / rows["place"].map(insmod)).round(2)
    out = out.assign(n=rows["n"].astype("Int64")).sort_values("place", kind="stable")
    return pd.concat([out, pd.DataFrame([PUBLISHED_LOADER | {"place": "published: Linux 5.10 in QEMU"}])])


def process_names(rows: pd.DataFrame) -> pd.Series:
    """Return the names of rows of tasks ``process`` and ``start``, in the order shown; null for other rows."""
    keys = list(zip(rows["kind"], rows["step"], strict=True))
    named = pd.Series([_PROCESS_NAMES.get(key) for key in keys], index=rows.index, dtype=object)
    rank = {name: at for at, name in enumerate(_PROCESS_NAMES.values())}
    return named.sort_values(key=lambda names: names.map(rank), kind="stable")


_PROCESS_NAMES = {
    (LOADER, "start"): "a process that does nothing",
    (LIBBPF, "process"): PROCESS_WORDS[LIBBPF],
    (BPFTOOL, "process"): PROCESS_WORDS[BPFTOOL],
    (BUSYBOX, "process"): PROCESS_WORDS[BUSYBOX],
    (INSMOD, "process"): PROCESS_WORDS[INSMOD],
    (BUSYBOX, "undo"): "busybox rmmod",
    (INSMOD, "undo"): "rmmod",
}
PROCESS_STEPS = ("process", "undo", "start")


def _checked(shown: pd.DataFrame, _table: pd.DataFrame) -> str:
    return by_place(shown, "the verifier's log and the trace of bpf_check() differ by at most", _agreement)


def _agreement(checked: pd.DataFrame) -> str:
    """Say by how much the two times of verifying differ, and whether the parts of a load are at most the whole."""
    worst = checked.iloc[int((checked["log / traced"] - 1).abs().argmax())]
    over = int(checked["parts ≤ whole"].eq("NO").sum())
    text = f"the parts exceed the whole for {over} of {len(checked)} programs" if over else _NO_EXCESS
    apart = f"{abs(worst['log / traced'] - 1) * 100:.1f} % ({_program(worst)})"
    return f"{apart}; {text}"


_NO_EXCESS = "verifying and JIT together are nowhere more than BPF_PROG_LOAD"


def _sizes_of(size: str, words: str) -> Meaning:
    """Say how the size of a column grows from the smallest N to the largest."""

    def grown(rows: pd.DataFrame) -> str:
        ends = _ends(rows.dropna(subset=["accesses", size]))
        if len(ends) < 2:
            return ""
        (first, last), sizes = ends["accesses"], ends[size].astype(float).tolist()
        return f"{sizes[1] / sizes[0]:.3g} times as large from N = {first} to {last}"

    return lambda shown, _table: by_place(shown, f"{words} becomes", grown)


def _compiled(_shown: pd.DataFrame, table: pd.DataFrame) -> str:
    rows = medians(table)
    rows = rows.loc[rows["task"].eq("compile") & rows["kind"].isin((BPF, MODULE))]
    keys = [*NAMED[1:], "kernel"]
    bpf, module = (rows.loc[rows["kind"].eq(kind)] for kind in (BPF, MODULE))
    both = module[[*keys, *_ENDS]].merge(bpf[[*NAMED[1:], *_ENDS]], on=NAMED[1:], suffixes=("", "_b"))
    values = [(f"{_program(row)}, {row['kernel']}", _by_other(row)) for _, row in both.iterrows()]
    text = supported(values, "times as long for a module as for BPF")
    return f"compiling takes {text}" if text else ""


def _started(shown: pd.DataFrame, _table: pd.DataFrame) -> str:
    def alone(rows: pd.DataFrame) -> str:
        (row,) = rows.to_dict("records")
        value = estimate(*(row[end] for end in _ENDS))
        return supported([("", value)], f"{row['unit']} before it loads anything")

    return by_place(shown, "a loader's process takes", alone)


def _inserted(shown: pd.DataFrame, _table: pd.DataFrame) -> str:
    """Say how long each process takes beside insmod, where both have an interval."""

    def beside(rows: pd.DataFrame) -> str:
        insmod = rows.loc[rows["process"].eq(PROCESS_WORDS[INSMOD])]
        others = rows.drop(index=insmod.index)[["process", *_ENDS]]
        both = others.merge(insmod[list(_ENDS)], how="cross", suffixes=("", "_b"))
        return supported([(row["process"], _by_other(row)) for _, row in both.iterrows()], "times insmod")

    return by_place(shown, "a whole process takes", beside)


_ENDS = ("median", "low", "high")


TABLES: dict[str, tuple[str, Make, Meaning]] = {
    "bpf": (
        "A BPF program's load, in parts (medians; whole: their sum)",
        lambda table: parts_table(table, BPF),
        lambda _, table: _verifying(table),
    ),
    "module": (
        "A module's insertion, in parts (medians; whole: their sum)",
        lambda table: parts_table(table, MODULE),
        lambda _, table: _growth(wholes(table)),
    ),
    "versus": ("BPF against module, without compiling", versus, lambda _, table: _beside(wholes(table))),
    "crosscheck": ("Verifying: the log's word against the trace's", crosscheck, _checked),
    "memory-bpf": (
        "Memory of a BPF program in the kernel, bytes",
        lambda table: memory(table, BPF),
        _sizes_of("JIT image", "the JIT's image"),
    ),
    "memory-module": (
        "Memory of a module in the kernel, bytes; its sections",
        lambda table: memory(table, MODULE),
        _sizes_of("core", "a module's core"),
    ),
    "compile": ("Compiling on this machine, ms", compiling, _compiled),
    "start": ("The loader's process alone", starting, _started),
    "processes": ("Inserting the simple program by whole processes", processes, _inserted),
}


NAMES = {BPF: "for BPF", MODULE: "for a module"}


def results(_plan: object, table: pd.DataFrame) -> Iterable[str]:
    """Return the share of verifying, what a longer program costs, and BPF beside a module."""
    whole = wholes(table)
    return _verifying(table), _growth(whole), _beside(whole)


def _ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the smallest and the largest N of the last form, which grows with N."""
    of_form = rows[rows["form"].eq(sorted(rows["form"].dropna().unique())[-1])].sort_values("accesses")
    return of_form.iloc[[0, -1]] if len(of_form) > 1 else of_form


def _verifying(table: pd.DataFrame) -> str:
    loads = parts(table)
    sized = loads[loads["accesses"].notna() & loads["whole"].gt(0)]
    bpf = sized[sized["kind"].eq(BPF) & sized["verify"].notna()]
    ends = part_intervals(table)
    ends = ends[ends["kind"].eq(BPF) & ends["step"].eq("verify")]

    def shares(rows: pd.DataFrame) -> Iterator[str]:
        for row in _ends(rows).to_dict("records"):
            same = ends["label"].eq(row["label"]) & ends["form"].eq(row["form"]) & ends["accesses"].eq(row["accesses"])
            yield f"{_share(row, ends[same])} (N = {row['accesses']})"

    return by_place(bpf, "verifying is", lambda rows: " and ".join(shares(rows)), " of loading BPF")


def _share(row: Mapping[Any, Any], own: pd.DataFrame) -> str:
    share = percent(row["verify"] / row["whole"])
    if row["clock"] != "time":
        return share
    if own.empty:
        return f"about {share}"
    low, high = (percent(float(own[end].iloc[0]) / row["whole"]).removesuffix(" %") for end in ("low", "high"))
    return f"{share} [{low}, {high}]"


def _growth(whole: pd.DataFrame) -> str:
    def grown(of_place: pd.DataFrame) -> str:
        ends = {str(kind): _ends(rows) for kind, rows in of_place.groupby("kind", sort=False)}
        steps = [f"{_grows(rows)} times {NAMES[kind]}" for kind, rows in ends.items() if len(rows) > 1]
        if not steps:
            return ""
        first, last = next(rows["accesses"].tolist() for rows in ends.values() if len(rows) > 1)
        return f"{' and '.join(steps)} from N = {first} to {last}{_unit(of_place)}"

    return by_place(whole.dropna(subset=["accesses"]), "the cost grows", grown)


def _unit(rows: pd.DataFrame) -> str:
    """Return what is counted where it is no time."""
    return "" if rows["clock"].iloc[0] == "time" else " (instructions in a guest)"


def _grows(rows: pd.DataFrame) -> str:
    return span([("", _quotient(rows.iloc[-1], rows.iloc[0]))], exact=rows["clock"].iloc[0] != "time")


def _beside(whole: pd.DataFrame) -> str:
    sides = [whole[whole["kind"].eq(kind)].drop(columns="kind") for kind in (BPF, MODULE)]
    both = sides[0].merge(sides[1], on=["place", "label", "clock", "program", "form", "accesses"], suffixes=("", "_b"))

    def beside(rows: pd.DataFrame) -> str:
        values = [(_program(row), _by_other(row)) for _, row in rows.iterrows()]
        return f"{span(values, exact=rows['clock'].iloc[0] != 'time')} times the same code as a module{_unit(rows)}"

    return by_place(both, "loading BPF costs", beside)


def _program(row: pd.Series) -> str:
    return "one clock read" if pd.isna(row["accesses"]) else f"{row['form']}, N = {row['accesses']}"


def _by_other(row: pd.Series) -> Estimate:
    """Return a median by the one whose columns end in ``_b``."""
    return _quotient(row, row[[f"{name}_b" for name in _ENDS]].set_axis(_ENDS))


def _quotient(row: pd.Series, other: pd.Series) -> Estimate:
    """Return a ratio; its interval holds whatever two values within their intervals give."""
    return estimate(row["median"] / other["median"], row["low"] / other["high"], row["high"] / other["low"])
