"""What a run of study cost says: tables of a packet, the program's lines and the kernel's functions; and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import pandas as pd

from xdplab.analysis.sentences import estimate, percent, span
from xdplab.studies.cost.counts import shares_text
from xdplab.studies.cost.measurement import ALLOCATOR, APPLICATION, CALLED, PATH, PROGRAM, WHOLE
from xdplab.studies.cost.points import TEST_RUN, CostPoint, CostRequest
from xdplab.studies.cost.rows import CLASS, FUNCTION, INSTRUCTION, MADE_UP, PLACES, place_name
from xdplab.studies.meaning import supported, table_with_line
from xdplab.studies.points import StudyPlan
from xdplab.studies.tables import Table

TOP = 20
_CASE = ["program", "kernel", "mode", "frame_bytes"]
_HEADS = {"kernel": "Linux", "frame_bytes": "B"}
PARTS = {
    WHOLE: "in all",
    PROGRAM: "of the program",
    CALLED: "called by it",
    APPLICATION: "of the application",
    PATH: "kernel's path",
    ALLOCATOR: "its allocator",
}


def tables_of(plan: StudyPlan[CostRequest, CostPoint], table: pd.DataFrame) -> dict[str, Table]:
    """Return the cost of each program's packet, the lines of each, and the functions below them."""
    tables = {"cost": table_with_line("Instructions per packet", whole(table), _wholes, table)}
    if len(beside := timed(table)):
        title = "Instructions per packet beside its time, median (least to most)"
        tables["time"] = table_with_line(title, beside, _per_ns, table)
    if len(paths := classes(table)):
        title = "Packets whose path differs, instructions of the program with what it calls"
        tables["classes"] = table_with_line(title, paths, _paths, table)
    cases = [rows for _, rows in table.groupby("trial_id", sort=False)]
    for number, rows in enumerate(cases, start=1):
        name = "lines" if len(cases) == 1 else f"lines{number}"
        title = _lines_title(rows.iloc[0], plan.request.top)
        tables[name] = table_with_line(title, lines(rows, plan.request.top), lambda _, rows: _most_of_all(rows), rows)
    if len(table) and not table.loc[table["part"].eq(WHOLE), [*_CASE[1:], "flows"]].duplicated().any():
        title = f"The {TOP} functions that take most, instructions per packet"
        tables["functions"] = table_with_line(title, functions(table), _first_functions, table)
    return tables


def _wholes(_shown: pd.DataFrame, table: pd.DataFrame) -> str:
    """Say the range of several packets' costs; of one packet the answer, which has its parts."""
    rows = table.loc[table["part"].eq(WHOLE)]
    if len(rows) == 1:
        return _of(rows.iloc[0], table, {})
    ends = ("instructions", "low_instructions", "high_instructions")
    values = [(_named(row, rows), estimate(*(row[end] for end in ends))) for row in rows.to_dict("records")]
    costs = span(values, exact=True) if rows["exact"].notna().all() else supported(values, "")
    return f"a packet costs {costs.strip()} instructions" if costs else ""


def _named(row: Mapping[Any, Any], rows: pd.DataFrame) -> str:
    """Return a packet by what differs among several."""
    names = [name for name in (*_CASE, "flows") if rows[name].nunique(dropna=False) > 1]
    return ", ".join(f"{row[name]}{f' {unit}' if (unit := _UNITS.get(name)) else ''}" for name in names)


MANY_TIMES = 6
"""Trials from which on the least and the most of them hold their median at 95 %."""


def _per_ns(_shown: pd.DataFrame, table: pd.DataFrame) -> str:
    rows = table.loc[table["part"].eq(WHOLE) & table["timed_trials"].ge(MANY_TIMES)]
    ends = ("ns_per_packet", "high_ns", "low_ns")
    values = [
        (_named(row, rows), estimate(*(row["instructions"] / row[end] for end in ends)))
        for row in rows.to_dict("records")
    ]
    text = supported(values, "instructions per ns")
    return f"a packet gets {text}" if text else ""


def _paths(_shown: pd.DataFrame, table: pd.DataFrame) -> str:
    named = [(rows["program"].iloc[0], text) for _, rows in table.groupby("trial_id", sort=False)
             if (text := _varying(rows))]  # fmt: skip
    return "; ".join(text.replace("the program", program, 1) for program, text in named[:_MOST])


def _first_functions(_shown: pd.DataFrame, table: pd.DataFrame) -> str:
    """Say which function takes most of each of the first packets."""
    texts = []
    wholes = table.loc[table["part"].eq(WHOLE)]
    for row in wholes.head(_MOST).to_dict("records"):
        most = table.loc[table["trial_id"].eq(row["trial_id"]) & table["part"].eq(FUNCTION)].iloc[0]
        share = percent(most["instructions"] / row["instructions"])
        where = _named(row, wholes)
        texts.append(f"{most['name']} ({share}{f', {where}' if where else ''})")
    return f"the function with most of a packet's instructions is {', '.join(texts)}"


def whole(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each case: the parts of a packet's cost, its loads, stores and branches, its program's cache
    lines."""
    parts = table.loc[table["part"].isin(PARTS)]
    rows = []
    for _, part in parts.groupby("trial_id", sort=False):
        by_part = {str(one["part"]): one for one in part.to_dict("records")}
        row = {name: by_part[WHOLE][name] for name in _CASE}
        row |= {head: count_text(by_part[name]) if name in by_part else None for name, head in PARTS.items()}
        digits = 1 if pd.notna(by_part[WHOLE]["exact"]) else 0
        row |= {name: f"{by_part[WHOLE][name]:.{digits}f}" for name in ("loads", "stores", "branches")}
        rows.append(row | {"its cache lines": _cache_lines(by_part[PROGRAM])})
    unused = [PARTS[part] for part in (APPLICATION, ALLOCATOR) if not parts["part"].eq(part).any()]
    return pd.DataFrame(rows).rename(columns=_HEADS).drop(columns=unused, errors="ignore")


def timed(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each case that a run of traffic measured: instructions, time in ns, and their ratio."""
    rows = table.loc[table["part"].eq(WHOLE) & table["ns_per_packet"].notna()].reset_index(drop=True)
    number = {name: rows[name].map("{:.4g}".format).astype("string") for name in ("ns_per_packet", "low_ns", "high_ns")}
    per_ns = (rows["instructions"] / rows["ns_per_packet"]).map("{:.2f}".format)
    shown = rows[_CASE].assign(instructions=rows["instructions"].map(_number))
    shown["ns"] = number["ns_per_packet"] + " (" + number["low_ns"] + " to " + number["high_ns"] + ")"
    return shown.assign(**{"n": rows["timed_trials"], "instructions per ns": per_ns}).rename(columns=_HEADS)


def _lines_title(case: pd.Series[Any], top: int) -> str:
    which = f"The {top} lines that take most" if top else "Lines"
    size = "" if pd.isna(case["frame_bytes"]) else f", {case['frame_bytes']} B"
    return f"{which} of {case['program']} ({case['mode']}{size}, Linux {case['kernel']}), instructions per packet"


def lines(table: pd.DataFrame, top: int = 0) -> pd.DataFrame:
    """Return the source lines in their order, or the ``top`` that take most with what they call, these first.

    Where no line is known there is a row for each instruction.
    """
    rows = table.loc[table["part"].isin(PLACES)].sort_values(["file", "line", "function", "offset_bytes"])
    both = rows["instructions"] + rows["called_instructions"]
    if top:
        both = both.sort_values(ascending=False, kind="stable").head(top)
        rows = rows.loc[both.index]
    counts = {"own": rows["instructions"].map(_number), "with calls": both.map(_number)}
    several = rows["file"].nunique() > 1
    place = rows.apply(lambda row: place_name(row, in_files=several).removeprefix("line "), axis=1)
    text = rows["name"].where(rows["part"].eq(INSTRUCTION) | rows["line"].gt(0), MADE_UP)
    shown = pd.DataFrame({**counts, "line": place, "source": text.str.slice(0, 78)})
    return shown.reset_index(drop=True)


def classes(table: pd.DataFrame) -> pd.DataFrame:
    """Return the share of packets that take so many instructions, of programs with more than one path."""
    rows = table.loc[table["part"].eq(CLASS) & table["share"].notna()]
    rows = rows.loc[rows.groupby("trial_id")["share"].transform("size").gt(1)]
    shown = rows[_CASE].assign(share=rows["share"].map("{:.2%}".format), instructions=rows["instructions"].astype(int))
    return shown.rename(columns=_HEADS).reset_index(drop=True)


def functions(table: pd.DataFrame) -> pd.DataFrame:
    """Return the functions that take most, each without what it calls; a column for each kernel and mode."""
    rows = table.loc[table["part"].eq(FUNCTION)].reset_index(drop=True)
    case = [name for name in ("kernel", "mode", "frame_bytes") if rows[name].nunique(dropna=False) > 1]
    if not case:
        top = rows.head(TOP)
        return pd.DataFrame({"instructions": top["instructions"].map(_number), "function": top["name"]})
    heads = rows[case].astype(str).agg(", ".join, axis=1)
    wide = rows.assign(case=heads).pivot_table(index="name", columns="case", values="instructions", sort=False)
    wide = wide.loc[wide.max(axis=1).sort_values(ascending=False).index].head(TOP)
    return wide.map(_number).reset_index(names="function")


def count_text(row: Mapping[Any, Any] | pd.Series[Any]) -> str:
    """Return a count to the digit that holds, or the middle of its range with half of it."""
    if pd.notna(row["exact"]):
        return _number(row["instructions"])
    half = (row["high_instructions"] - row["low_instructions"]) / 2
    return f"{row['instructions']:.0f} ± {max(half, 1):.0f}"


def _cache_lines(row: Mapping[Any, Any]) -> str:
    data, code = row["data_cache_lines"], row["code_cache_lines"]
    return "" if pd.isna(data) else f"{data:.0f} data, {code:.0f} code"


def _number(value: float) -> str:
    return "" if pd.isna(value) else f"{value:.3f}"


_MOST = 3
_UNITS = {"frame_bytes": "B", "flows": "flows"}
_TO_A_RANGE = {
    PATH: "the kernel's path holds to a range only",
    ALLOCATOR: "what the path's allocator takes differs between boots, and with it the whole; all else is exact",
}


def results(plan: StudyPlan[CostRequest, CostPoint], table: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence for each of the first packets, with the line that takes most, and one on what is inexact, and on
    what older rules gave a cost."""
    cases = [rows for _, rows in table.groupby("trial_id", sort=False)]
    units = {name: unit for name, unit in _UNITS.items() if table[name].nunique() > 1}
    yield from (_of(rows.iloc[0], rows, units) for rows in cases[:_MOST])
    for part, words in _TO_A_RANGE.items():
        if inexact := ", ".join(dict.fromkeys(_inexact(table, part))):
            yield f"{words}: {inexact}"
    measured = (trial for trial, attempt, _ in plan.attempts() if attempt.status == "measured")
    if refused := [str(trial.point) for trial in measured if not table["trial_id"].eq(trial.trial_id).any()]:
        yield f"it was counted, but has no cost, and says why if it is counted again: {'; '.join(refused)}"


def _of(case: pd.Series[Any], rows: pd.DataFrame, units: Mapping[str, str]) -> str:
    """Return the sentence of a case, which names the traffic that differs from case to case, by its ``units``."""
    parts_of_it = rows.loc[rows["part"].isin(PARTS)].to_dict("records")
    counts = {str(row["part"]): count_text(row).removesuffix(".000") for row in parts_of_it}
    parts = f"{counts[PROGRAM]} its own, {counts[CALLED]} of what it calls, {counts[PATH]} of the kernel's path"
    parts += f", {counts[ALLOCATOR]} of its allocator" if ALLOCATOR in counts else ""
    traffic = "".join(f", {case[name]} {unit}" for name, unit in units.items() if pd.notna(case[name]))
    where = f"{case['program']} ({case['mode'].replace('_', ' ')}{traffic}, Linux {case['kernel']})"
    text = f"a packet costs {counts[WHOLE]} instructions in {where}: {parts}"
    return "; ".join(filter(None, (text, _most(rows), _varying(rows), _became(case))))


def _most_of_all(rows: pd.DataFrame) -> str:
    program = rows.loc[rows["part"].isin((PROGRAM, CALLED)), "instructions"].sum()
    return f"{most} of {program:g} of the program and what it calls" if (most := _most(rows)) else ""


def _most(rows: pd.DataFrame) -> str:
    lines = rows.loc[rows["part"].isin(PLACES)]
    both = (lines["instructions"] + lines["called_instructions"]).reset_index(drop=True)
    if lines.empty:
        return ""
    most = place_name(lines.iloc[int(both.argmax())], in_files=lines["file"].nunique() > 1)
    return f"{most} takes most: {both.max():g}"


def _became(whole: pd.Series[Any]) -> str:
    """Say what became of the frames, if they did not all come back."""
    back, passed = whole["came_back"], whole["passed_on"]
    if back == 1:
        return ""
    ended = 1 - back - passed
    if whole["mode"] == TEST_RUN:
        return f"it returned XDP_TX for {back:.1%} of the frames, XDP_PASS for {passed:.1%}"
    text = f"{back:.1%} of the frames came back, {passed:.1%} went on to the kernel's IP layer"
    return f"{text}, {ended:.1%} did neither (if a map lacks its entries, `--map` fills it)" if ended > 0 else text


def _varying(rows: pd.DataFrame) -> str:
    """Say which paths packets take, if it is not one."""
    classes = rows.loc[rows["part"].eq(CLASS) & rows["share"].notna()]
    if len(classes) < 2:
        return ""
    shares = {int(row["exact"]): Fraction(row["share"]) for row in classes.to_dict("records")}
    return f"the program with what it calls takes {shares_text(shares)}"


def _inexact(table: pd.DataFrame, part: str) -> Iterator[str]:
    for row in table.loc[table["part"].eq(part) & table["exact"].isna()].to_dict("records"):
        yield f"{row['program']} {row['mode']} {row['kernel']}"
