"""Both modes side by side: repetitions collapsed, interpreter and JIT in one row; the kind that each test is of."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from xdplab.studies.jit.classes import CLASSES
from xdplab.studies.jit.points import INTERPRETER, JIT, MODES, SUITES, TEST_BPF

CLASSIC, LONG, OTHER = "classic", "long programs", "other eBPF"
_KINDS: tuple[tuple[str, str], ...] = (
    (LONG, r"BPF_MAXINSNS"),
    ("atomic", r"BPF_ATOMIC|Atomic_|ATOMIC_|STX_XADD"),
    ("byte swap", r"ALU_END|BSWAP"),
    ("multiply, divide", r"ALU(32|64)?_(IMM_|REG_)?S?(MUL|DIV|MOD)"),
    ("shift", r"ALU(32|64)?_(IMM_|REG_)?A?(LSH|RSH)|ALU(32|64)?_(IMM_|REG_)?ARSH"),
    ("alu64", r"ALU64_"),
    ("alu32", r"ALU(32)?_"),
    ("load imm64", r"LD_IMM64|LD IMM64|load 64-bit immediate"),
    ("memory", r"(BPF_)?(LDX|STX|ST)_MEM"),
    ("jump32", r"JMP32_"),
    ("jump", r"JMP_|Short relative jump|Long conditional jump|Staggered jumps"),
)
_FOUND = tuple((kind, re.compile(pattern)) for kind, pattern in _KINDS)
KINDS = (CLASSIC, "alu64", "alu32", "shift", "multiply, divide", "byte swap", "load imm64", "memory", "atomic", "jump",
         "jump32", LONG, OTHER)  # fmt: skip
"""Every kind, in the order of tables and figures."""


def kind_of(name: str, classic: bool) -> str:
    """Return the kind of a test of suite test_bpf: each has exactly one.

    A classic program has several kinds of instructions and becomes eBPF with a prologue, so all of them are one kind.
    """
    if classic:
        return CLASSIC
    return next((kind for kind, pattern in _FOUND if pattern.match(name)), OTHER)


SPEED_UP = "speed_up"
_WHERE = ["label", "unit"]


def collapsed(table: pd.DataFrame, keys: Sequence[str], values: Sequence[str]) -> pd.DataFrame:
    """Return one row of ``keys`` and mode: for instructions the minimum of the repetitions, for times the median.

    A timer tick only adds to a count; disturbances of a time go both ways. A time that is null was not above the noise:
    it stands below all others, and a median that it reaches is null. The repetitions' intervals become the one that
    holds them all.
    """
    by, names = [*_WHERE, *keys, "mode"], list(values)
    groups = table.groupby(by, sort=False, dropna=False)[names]
    below = table.assign(**{name: table[name].astype("Float64").fillna(-np.inf) for name in names})
    middle = below.groupby(by, sort=False, dropna=False)[names].median().astype(float).replace(-np.inf, np.nan)
    least, most = groups.min(), groups.max()
    counts = least.index.get_level_values("unit") == "instructions"
    for name, ends in (("low", least), ("high", most)):
        if name in values:
            middle[name] = ends[name]
    return pd.DataFrame({name: middle[name].where(~counts, least[name]) for name in values}).reset_index()


def side_by_side(table: pd.DataFrame, keys: Sequence[str], value: str = "cost") -> pd.DataFrame:
    """Return one row of ``keys``, with the value in each mode (null if there is none) and their ratio."""
    rows = collapsed(table, keys, [value])
    wide = rows.pivot(index=[*_WHERE, *keys], columns="mode", values=value)
    for mode in MODES:
        if mode not in wide:
            wide[mode] = pd.NA
    wide = wide[list(MODES)].astype("Float64")
    compared = wide[JIT].where(wide[JIT] > 0)
    wide[SPEED_UP] = wide[INTERPRETER] / compared
    return wide.rename_axis(None, axis=1).reset_index()


def shares(table: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return one row of ``keys``: in each mode the filter's cost by that of all, each collapsed over repetitions."""
    cost, total = (side_by_side(table, keys, value) for value in ("cost", "total"))
    return cost.assign(**{mode: cost[mode] / total[mode] for mode in MODES}).drop(columns=SPEED_UP)


def tests(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per test of module test_bpf that ran: its cost in each mode is the mean over its cases.

    A test that the JIT left to the interpreter has no cost by the JIT.
    """
    left = (table["mode"].eq(JIT) & table["jited"].eq(False)).fillna(False).astype(bool)
    ran = table[(table["part"] == TEST_BPF) & table["case"].notna() & ~left]
    keys = ["subject", "number", "name", "classic"]
    by_case = collapsed(ran, [*keys, "case"], ["cost"])
    by_test = by_case.groupby([*_WHERE, *keys, "mode"], sort=False, dropna=False)["cost"].mean().reset_index()
    return side_by_side(by_test, keys).sort_values(["label", "subject", "number"])


FATES = ("compiled", "left to the interpreter", "refused, as they must be", "failed")
"""The ways in which a test of suite test_bpf ends in JIT mode."""

ALL = "all tests"


def fates(table: pd.DataFrame) -> pd.DataFrame:
    """Return how many tests of suite test_bpf had each fate with the JIT, by place and kind; `ALL` kinds come last.

    A test that failed in any repetition counts as failed; one that any repetition left to the interpreter, as left.
    """
    rows = of_first_suite(table[table["part"].eq(TEST_BPF) & table["mode"].eq(JIT)])
    if rows.empty:
        return pd.DataFrame()
    rows = rows.assign(failed=~rows["passed"].fillna(False), ran=rows["jited"].notna())
    each = (
        _by_kind(rows)
        .groupby(["label", "kind", "number"], sort=False)
        .agg(failed=("failed", "any"), ran=("ran", "any"), compiled=("jited", "min"))
    )
    compiled = each["compiled"].fillna(False).astype(bool)
    fate = np.select([each["failed"], ~each["ran"], compiled], [FATES[3], FATES[2], FATES[0]], FATES[1])
    counts = each.assign(fate=fate).groupby(["label", "kind", "fate"], sort=False).size().unstack(fill_value=0)
    counts = counts.reindex(columns=FATES, fill_value=0)
    return in_order(counts.assign(tests=counts.sum(axis=1))[["tests", *FATES]].reset_index())


def kinds(table: pd.DataFrame) -> pd.DataFrame:
    """Return the means of the tests' speed-ups by place and kind, and the sizes of the compiled tests.

    Sizes are sums over the tests: BPF instructions that the JIT got, bytes of machine code, and their ratio.
    """
    ratios = _by_kind(of_first_suite(tests(table))).dropna(subset=[SPEED_UP])
    ratios = ratios.assign(log=np.log(ratios[SPEED_UP].astype(float)))
    groups = ratios.groupby(["label", "kind"], sort=False)
    means = pd.DataFrame(
        {
            "compared": groups.size(),
            "speed-up, geometric": np.exp(groups["log"].mean()).round(2),
            "speed-up, arithmetic": groups[SPEED_UP].mean().astype(float).round(2),
            "least": groups[SPEED_UP].min().astype(float).round(2),
            "most": groups[SPEED_UP].max().astype(float).round(2),
        }
    )
    return means.join(_code(table), how="outer").reset_index()


def costs(table: pd.DataFrame) -> pd.DataFrame:
    """Return the median test's cost by place, kind and mode, also for a place with only one mode."""
    groups = _by_kind(of_first_suite(tests(table))).groupby([*_WHERE, "kind"], sort=False)
    medians = groups[list(MODES)].median().round(1)
    return in_order(medians.assign(tests=groups.size()).reset_index())


def _code(table: pd.DataFrame) -> pd.DataFrame:
    rows = of_first_suite(table[table["part"].eq(TEST_BPF) & table["machine_bytes"].notna()])
    each = _by_kind(rows.drop_duplicates(["label", "number"]))
    sums = each.groupby(["label", "kind"], sort=False)[["machine_bytes", "insns"]].sum()
    return pd.DataFrame(
        {
            "BPF instructions": sums["insns"].astype("Int64"),
            "machine code, bytes": sums["machine_bytes"].astype("Int64"),
            "bytes per BPF instruction": (sums["machine_bytes"] / sums["insns"]).astype("Float64").round(2),
        }
    )


def of_first_suite(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of suite test_bpf, whose tests are of a kind."""
    return rows[rows["subject"].eq(SUITES[0])]


def _by_kind(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with the kind of their test, then all again as `ALL`. What the module does not call classic is
    eBPF."""
    classic = rows["classic"].fillna(False).astype(bool)
    names = [kind_of(str(name), bool(is_classic)) for name, is_classic in zip(rows["name"], classic, strict=True)]
    each = rows.assign(kind=pd.Series(names, index=rows.index, dtype=object))
    return pd.concat([each, each.assign(kind=ALL)])


def in_order(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows sorted by kind; the places of a kind keep their order."""
    order = {kind: at for at, kind in enumerate((*KINDS, ALL))}
    return rows.sort_values("kind", key=lambda names: names.map(order), kind="stable").reset_index(drop=True)


def part(table: pd.DataFrame, name: str) -> pd.DataFrame:
    return table[table["part"] == name]


def with_groups(classes: pd.DataFrame) -> pd.DataFrame:
    """Return rows of classes in the order they are declared, with the group of each."""
    order = {name: at for at, name in enumerate(CLASSES)}
    ordered = classes.sort_values("subject", key=lambda names: names.map(order), kind="stable")
    return ordered.assign(group=[CLASSES[name].group for name in ordered["subject"]])
