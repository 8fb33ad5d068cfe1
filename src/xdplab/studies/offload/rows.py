"""From the journal and the raw files to one row per question, and one row per kernel."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd

from xdplab.run.facts import facts_of
from xdplab.run.state import Attempt
from xdplab.studies.offload.bench import read
from xdplab.studies.offload.points import OffloadPoint, OffloadRequest, kernel_of
from xdplab.studies.offload.questions import QUESTIONS
from xdplab.studies.offload.study import ANSWER, OffloadFacts
from xdplab.studies.points import StudyPlan, StudyTrial
from xdplab.studies.tables import Table

OffloadPlan = StudyPlan[OffloadRequest, OffloadPoint]

COLUMNS = {
    "run_id": "string",
    "trial_id": "string",
    "place": "string",
    "kernel": "string",
    "kernel_release": "string",
    "group": "string",
    "question": "string",
    "asked": "string",
    "expected": "string",
    "source": "string",
    "obtained": "string",
    "as_expected": "boolean",
    "words": "string",
    "reason": "string",
}
"""Column → type. ``obtained`` and ``as_expected`` are null if the question could not be put, for ``reason``."""

_SHOWN = {"asked": "asked", "expected": "expected", "source": "said in", "obtained": "obtained", "words": "words"}
_NUMBER = re.compile(r"\d+")


def table_of(plan: OffloadPlan) -> pd.DataFrame:
    """Return one row per question and place, in the questions' order."""
    rows = [_row(plan.directory.run_id, *attempt) for attempt in plan.attempts()]
    order = {name: number for number, name in enumerate(QUESTIONS)}
    places = {place: number for number, place in enumerate(plan.request.places)}
    rows.sort(key=lambda row: (places[row["place"]], order[row["question"]]))
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def _row(run_id: str, trial: StudyTrial[OffloadPoint], attempt: Attempt, raw: Path) -> dict[str, Any]:
    point = trial.point
    question = QUESTIONS[point.question]
    row = {name: getattr(question, name) for name in ("group", "asked", "expected", "source")}
    row |= {"run_id": run_id, "trial_id": trial.trial_id, "place": point.place, "question": point.question}
    row |= {"kernel": kernel_of(point.place), "kernel_release": facts_of(OffloadFacts, attempt).kernel_release}
    if attempt.status != "measured":
        return row | {"reason": attempt.reason}
    answer = read(raw / ANSWER)
    return row | {
        "obtained": answer.obtained,
        "as_expected": answer.obtained == question.expected,
        "words": answer.words,
    }


def tables_of(_plan: OffloadPlan, table: pd.DataFrame) -> dict[str, Table]:
    """Return one row per kernel, what differs between kernels, and one table per place with every question."""
    tables = {
        "kernels": Table("netdevsim, by kernel", _kernels(table)),
        "differing": Table("What differs between kernels, in words or in what came", _differing(table)),
    }
    for place, rows in table[table["obtained"].notna()].groupby("place", sort=False):
        shown = rows[list(_SHOWN)].rename(columns=_SHOWN)
        shown.insert(4, "as expected", rows["as_expected"].map({True: "yes", False: "no"}))
        tables[f"offload-{str(place).replace(':', '-')}"] = Table(f"XDP offload in {place}", shown)
    return tables


def _kernels(table: pd.DataFrame) -> pd.DataFrame:
    groups = table.groupby("place", sort=False)
    return pd.DataFrame(
        {
            "kernel": kernel_of(str(place)),
            "release": _first(rows["kernel_release"]),
            "asked": int(rows["obtained"].notna().sum()),
            "as expected": int(rows["as_expected"].fillna(False).sum()),
            "not asked": int(rows["obtained"].isna().sum()),
            "why not": _first(rows["reason"]),
        }
        for place, rows in groups
    )


def _differing(table: pd.DataFrame) -> pd.DataFrame:
    """Return the answers that are not the same in all kernels; program ids and other numbers apart."""
    answered = table[table["obtained"].notna()]
    answers = answered["obtained"] + ": " + answered["words"].fillna("").str.replace(_NUMBER, "N", regex=True)
    kinds = answers.groupby(answered["question"]).transform("nunique")
    return answered[kinds > 1].sort_values(["question", "place"])[["asked", "kernel", "obtained", "words"]]


def _first(column: pd.Series[Any]) -> str | None:
    values = column.dropna()
    return None if values.empty else str(values.iloc[0])
