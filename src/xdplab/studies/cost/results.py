"""What a run of study cost says: what a packet costs and where, and what is inexact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import pandas as pd

from xdplab.analysis.sentences import sentence
from xdplab.studies.cost.classes import shares_text
from xdplab.studies.cost.measurement import ALLOCATOR, CALLED, PATH, PROGRAM, WHOLE
from xdplab.studies.cost.points import TEST_RUN, CostPoint, CostRequest
from xdplab.studies.cost.rows import CLASS, PLACES, place_name
from xdplab.studies.cost.summaries import PARTS, count_text
from xdplab.studies.points import StudyPlan

_MOST = 3
_UNITS = {"frame_bytes": "B", "flows": "flows"}
_TO_A_RANGE = {
    PATH: "the kernel's path holds to a range only",
    ALLOCATOR: "what the path's allocator takes differs between boots, and with it the whole; all else is exact",
}


def results(_plan: StudyPlan[CostRequest, CostPoint], table: pd.DataFrame) -> list[str]:
    """Return a sentence for each of the first packets, with the line that takes most, and one on what is inexact."""
    cases = [rows for _, rows in table.groupby("trial_id", sort=False)]
    units = {name: unit for name, unit in _UNITS.items() if table[name].nunique() > 1}
    sentences = [sentence(_of(rows.iloc[0], rows, units)) for rows in cases[:_MOST]]
    return sentences + [
        sentence(f"{words}: {inexact}")
        for part, words in _TO_A_RANGE.items()
        if (inexact := ", ".join(dict.fromkeys(_inexact(table, part))))
    ]


def _of(case: pd.Series[Any], rows: pd.DataFrame, units: Mapping[str, str]) -> str:
    """Return the sentence of a case, which names the traffic that differs from case to case, by its ``units``."""
    parts_of_it = rows.loc[rows["part"].isin(PARTS)].to_dict("records")
    counts = {str(row["part"]): count_text(row).removesuffix(".000") for row in parts_of_it}
    lines = rows.loc[rows["part"].isin(PLACES)]
    both = (lines["instructions"] + lines["called_instructions"]).reset_index(drop=True)
    parts = f"{counts[PROGRAM]} its own, {counts[CALLED]} of what it calls, {counts[PATH]} of the kernel's path"
    parts += f", {counts[ALLOCATOR]} of its allocator" if ALLOCATOR in counts else ""
    traffic = "".join(f", {case[name]} {unit}" for name, unit in units.items() if pd.notna(case[name]))
    where = f"{case['program']} ({case['mode'].replace('_', ' ')}{traffic}, Linux {case['kernel']})"
    text = f"a packet costs {counts[WHOLE]} instructions in {where}: {parts}"
    if not lines.empty:
        text += f"; {place_name(lines.iloc[int(both.argmax())])} takes most: {both.max():g}"
    return "; ".join(filter(None, (text, _varying(rows), _became(case))))


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
