"""Both modes side by side: repetitions collapsed, the interpreter's cost and the JIT's in one row."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from xdplab.studies.jit.classes import CLASSES
from xdplab.studies.jit.points import INTERPRETER, JIT, MODES, TEST_BPF

SPEED_UP = "speed_up"
_WHERE = ["label", "unit"]


def collapsed(table: pd.DataFrame, keys: Sequence[str], values: Sequence[str]) -> pd.DataFrame:
    """Return one row of ``keys`` and mode: for instructions the minimum of the repetitions, for times the median.

    A timer tick only adds to a count; disturbances of a time go both ways.
    """
    groups = table.groupby([*_WHERE, *keys, "mode"], sort=False, dropna=False)[list(values)]
    least, middle = groups.min(), groups.median()
    counts = least.index.get_level_values("unit") == "instructions"
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


def tests(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per test of module test_bpf that ran: its cost in each mode is the mean over its cases."""
    ran = table[(table["part"] == TEST_BPF) & table["case"].notna()]
    keys = ["subject", "number", "name", "classic"]
    by_case = collapsed(ran, [*keys, "case"], ["cost"])
    by_test = by_case.groupby([*_WHERE, *keys, "mode"], sort=False, dropna=False)["cost"].mean().reset_index()
    return side_by_side(by_test, keys).sort_values(["label", "subject", "number"])


def part(table: pd.DataFrame, name: str) -> pd.DataFrame:
    return table[table["part"] == name]


def with_groups(classes: pd.DataFrame) -> pd.DataFrame:
    """Return rows of classes in the order they are declared, with the group of each."""
    order = {name: at for at, name in enumerate(CLASSES)}
    ordered = classes.sort_values("subject", key=lambda names: names.map(order), kind="stable")
    return ordered.assign(group=[CLASSES[name].group for name in ordered["subject"]])
