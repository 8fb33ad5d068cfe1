"""What a run of study cost says: what a packet costs and where, and what is inexact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import pandas as pd

from xdplab.analysis.sentences import sentence
from xdplab.studies.cost.classes import shares_text
from xdplab.studies.cost.counts import CALLED, PATH, PROGRAM, WHOLE
from xdplab.studies.cost.points import CostPoint, CostRequest
from xdplab.studies.cost.rows import CLASS, PLACES, place_name
from xdplab.studies.points import StudyPlan

_MOST = 3
_UNITS = {"frame_bytes": "B", "flows": "flows"}


def results(_plan: StudyPlan[CostRequest, CostPoint], table: pd.DataFrame) -> list[str]:
    """Return a sentence for each of the first packets, with the line that takes most, and one on what is inexact."""
    cases = [rows for _, rows in table.groupby("trial_id", sort=False)]
    units = {name: unit for name, unit in _UNITS.items() if table[name].nunique() > 1}
    sentences = [sentence(_of(rows.iloc[0], rows, units)) for rows in cases[:_MOST]]
    inexact = ", ".join(dict.fromkeys(_inexact(table)))
    return [*sentences, *([sentence(f"the kernel's path holds to a range only: {inexact}")] if inexact else [])]


def _of(case: pd.Series[Any], rows: pd.DataFrame, units: Mapping[str, str]) -> str:
    """Return the sentence of a case, which names the traffic that differs from case to case, by its ``units``."""
    whole = {str(row["part"]): row["instructions"] for row in rows.to_dict("records")}
    lines = rows.loc[rows["part"].isin(PLACES)]
    both = (lines["instructions"] + lines["called_instructions"]).reset_index(drop=True)
    parts = f"{whole[PROGRAM]:g} its own, {whole[CALLED]:g} of what it calls, {whole[PATH]:.6g} of the kernel's path"
    traffic = "".join(f", {case[name]} {unit}" for name, unit in units.items() if pd.notna(case[name]))
    where = f"{case['program']} ({case['mode'].replace('_', ' ')}{traffic}, Linux {case['kernel']})"
    text = f"a packet costs {whole[WHOLE]:.7g} instructions in {where}: {parts}"
    if not lines.empty:
        text += f"; {place_name(lines.iloc[int(both.argmax())])} takes most: {both.max():g}"
    return "; ".join(filter(None, (text, _varying(rows), _became(case))))


def _became(whole: pd.Series[Any]) -> str:
    """Say what became of the frames, if they did not all come back."""
    back, passed = whole["came_back"], whole["passed_on"]
    if pd.isna(back) or back == 1:
        return ""
    ended = 1 - back - passed
    text = f"{back:.1%} of the frames came back, {passed:.1%} went on to the kernel's IP layer"
    return f"{text}, {ended:.1%} did neither (if a map lacks its entries, `--map` fills it)" if ended > 0 else text


def _varying(rows: pd.DataFrame) -> str:
    """Say which paths packets take, if it is not one."""
    classes = rows.loc[rows["part"].eq(CLASS) & rows["share"].notna()]
    if len(classes) < 2:
        return ""
    shares = {int(row["exact"]): Fraction(row["share"]) for row in classes.to_dict("records")}
    return f"the program with what it calls takes {shares_text(shares)}"


def _inexact(table: pd.DataFrame) -> Iterator[str]:
    for row in table.loc[table["part"].eq(WHOLE) & table["exact"].isna()].to_dict("records"):
        yield f"{row['program']} {row['mode']} {row['kernel']}"
