"""What a run of study loading says: the verifier's share of a load, and BPF beside a module as programs grow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from xdplab.analysis.conclusions import Estimate
from xdplab.studies.loading.parts import part_intervals, parts, wholes
from xdplab.studies.loading.points import BPF, MODULE, LoadingPoint, LoadingRequest
from xdplab.studies.points import StudyPlan
from xdplab.studies.sentences import estimate, one_of_places, percent, sentence, span

NAMES = {BPF: "for BPF", MODULE: "for a module"}


def results(_plan: StudyPlan[LoadingRequest, LoadingPoint], table: pd.DataFrame) -> list[str]:
    """Return the share of verifying, what a longer program costs, and BPF beside a module."""
    loads = parts(table)
    sized, whole = loads[loads["accesses"].notna() & loads["whole"].gt(0)], wholes(table)
    texts = (_verifying(sized, table), _growth(whole), _beside(whole))
    return [sentence(text) for text in texts if text]


def _ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the smallest and the largest N of the last form, which grows with N."""
    of_form = rows[rows["form"].eq(sorted(rows["form"].dropna().unique())[-1])].sort_values("accesses")
    return of_form.iloc[[0, -1]] if len(of_form) > 1 else of_form


def _verifying(sized: pd.DataFrame, table: pd.DataFrame) -> str:
    bpf = sized[sized["kind"].eq(BPF) & sized["verify"].notna()]
    ends = part_intervals(table)
    ends = ends[ends["kind"].eq(BPF) & ends["step"].eq("verify")]
    texts = {}
    for label, rows in bpf.groupby("label", sort=False):
        shares = []
        for row in _ends(rows).to_dict("records"):
            own = ends[ends["label"].eq(label) & ends["form"].eq(row["form"]) & ends["accesses"].eq(row["accesses"])]
            shares.append(f"{_share(row, own)} (N = {row['accesses']})")
        texts[str(label)] = " and ".join(shares)
    return f"verifying is {one_of_places(texts)} of loading BPF" if texts else ""


def _share(row: Mapping[Any, Any], own: pd.DataFrame) -> str:
    share = percent(row["verify"] / row["whole"])
    if row["clock"] != "time":
        return share
    if own.empty:
        return f"about {share}"
    low, high = (percent(float(own[end].iloc[0]) / row["whole"]).removesuffix(" %") for end in ("low", "high"))
    return f"{share} [{low}, {high}]"


def _growth(whole: pd.DataFrame) -> str:
    texts = {}
    for label, of_place in whole.dropna(subset=["accesses"]).groupby("label", sort=False):
        ends = {str(kind): _ends(rows) for kind, rows in of_place.groupby("kind", sort=False)}
        steps = [f"{_grows(rows)} times {NAMES[kind]}" for kind, rows in ends.items() if len(rows) > 1]
        if steps:
            first, last = next(rows["accesses"].tolist() for rows in ends.values() if len(rows) > 1)
            texts[str(label)] = f"{' and '.join(steps)} from N = {first} to {last}"
    return f"the cost grows {one_of_places(texts)}" if texts else ""


def _grows(rows: pd.DataFrame) -> str:
    return span({"": _quotient(rows.iloc[-1], rows.iloc[0])}, exact=rows["clock"].iloc[0] != "time")


def _beside(whole: pd.DataFrame) -> str:
    sides = [whole[whole["kind"].eq(kind)].drop(columns="kind") for kind in (BPF, MODULE)]
    both = sides[0].merge(sides[1], on=["place", "label", "clock", "program", "form", "accesses"], suffixes=("", "_b"))
    texts = {}
    for label, rows in both.groupby("label", sort=False):
        module = rows[["median_b", "low_b", "high_b"]].set_axis(["median", "low", "high"], axis=1)
        values = {
            "one clock read" if pd.isna(row["accesses"]) else f"{row['form']}, N = {row['accesses']}": _quotient(
                row, other
            )
            for (_, row), (_, other) in zip(rows.iterrows(), module.iterrows(), strict=True)
        }
        texts[str(label)] = f"{span(values, exact=rows['clock'].iloc[0] != 'time')} times the same code as a module"
    return f"loading BPF costs {one_of_places(texts)}" if texts else ""


def _program(row: pd.Series) -> str:
    return "one clock read" if pd.isna(row["accesses"]) else f"{row['form']}, N = {row['accesses']}"


def _quotient(row: pd.Series, other: pd.Series) -> Estimate:
    """Return a ratio; its interval holds whatever two values within their intervals give."""
    return estimate(row["median"] / other["median"], row["low"] / other["high"], row["high"] / other["low"])
