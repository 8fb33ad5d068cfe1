"""From the journal and the raw files to one row per question; the tables and sentences that are made of these rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from xdplab.run.columns import Column
from xdplab.run.frames import typed, why_null
from xdplab.studies.meaning import Meaning, table_with_line
from xdplab.studies.offload.bench import ANSWER, OffloadFacts, read
from xdplab.studies.offload.points import OffloadPoint, OffloadRequest, kernel_of
from xdplab.studies.offload.questions import QUESTIONS
from xdplab.studies.points import Row, StudyPlan
from xdplab.studies.tables import Table
from xdplab.text import many

OffloadPlan = StudyPlan[OffloadRequest, OffloadPoint]

COLUMNS: tuple[Column[Any], ...] = (
    Column("run_id", "str", "id", "the run"),
    Column("trial_id", "str", "id", "point and trial"),
    Column("place", "str", "factor", "the guest that was asked"),
    Column("kernel", "str", "factor", "its kernel, by name"),
    Column("kernel_release", "str", "factor", "uname -r there"),
    Column("group", "str", "factor", "what the question is about"),
    Column("question", "str", "factor", "its name"),
    Column("asked", "str", "factor", "what was asked"),
    Column("expected", "str", "factor", "the answer that the sources say"),
    Column("source", "str", "factor", "the function or document that says so"),
    Column("obtained", "str", "state", "the answer"),
    Column("as_expected", "bool", "verdict", "whether they are the same"),
    Column("words", "str", "state", "the kernel's own words", null="it gave none"),
)  # fmt: skip

_SHOWN = {"asked": "asked", "expected": "expected", "source": "said in", "obtained": "obtained", "words": "words"}
_NUMBER = re.compile(r"\d+")


def table_of(plan: OffloadPlan) -> pd.DataFrame:
    """Return one row per question and place, in the questions' order."""
    rows = [row | _question(row) for row in plan.rows(OffloadFacts, _answers, ("obtained", "as_expected", "words"))]
    order = {name: number for number, name in enumerate(QUESTIONS)}
    places = {place: number for number, place in enumerate(plan.request.places)}
    rows.sort(key=lambda row: (places[row["place"]], order[row["question"]]))
    return typed(rows, COLUMNS)


def _question(row: Row) -> Row:
    question = QUESTIONS[row["question"]]
    texts = {name: getattr(question, name) for name in ("group", "asked", "expected", "source")}
    return texts | {"kernel": kernel_of(row["place"])}


def _answers(point: OffloadPoint, _facts: OffloadFacts, raw: Path) -> Iterator[Row]:
    answer = read(raw / ANSWER)
    yield answer._asdict() | {"as_expected": answer.obtained == QUESTIONS[point.question].expected}


def tables_of(_plan: OffloadPlan, table: pd.DataFrame) -> dict[str, Table]:
    """Return one row per kernel, what differs between kernels, and one table per place with every question."""
    tables = {
        "kernels": table_with_line("netdevsim, by kernel", _kernels(table), _answered(_as_expected), table),
        "differing": table_with_line(
            "What differs between kernels, in words or in what came",
            differing(table),
            _answered(_between_kernels),
            table,
        ),
    }
    for place, rows in table[table["obtained"].notna()].groupby("place", sort=False):
        shown = rows[list(_SHOWN)].rename(columns=_SHOWN)
        shown.insert(4, "as expected", rows["as_expected"].map({True: "yes", False: "no"}))
        tables[f"offload-{str(place).replace(':', '-')}"] = table_with_line(
            f"XDP offload in {place}", shown, _answered(_refused), rows
        )
    return tables


def _answered(of: Callable[[pd.DataFrame], str]) -> Meaning:
    return lambda _, table: of(answered) if len(answered := table[table["obtained"].notna()]) else ""


def _kernels(table: pd.DataFrame) -> pd.DataFrame:
    groups = table.groupby("place", sort=False)
    return pd.DataFrame(
        {
            "kernel": kernel_of(str(place)),
            "release": _first(rows["kernel_release"]),
            "asked": int(rows["obtained"].notna().sum()),
            "as expected": int(rows["as_expected"].fillna(False).sum()),
            "not asked": int(rows["obtained"].isna().sum()),
            "why not": _first(why_null(rows, "obtained")),
        }
        for place, rows in groups
    )


def differing(table: pd.DataFrame) -> pd.DataFrame:
    """Return the answers that are not the same in all kernels; program ids and other numbers apart."""
    answered = table[table["obtained"].notna()]
    answers = answered["obtained"] + ": " + answered["words"].fillna("").str.replace(_NUMBER, "N", regex=True)
    kinds = answers.groupby(answered["question"]).transform("nunique")
    return answered[kinds > 1].sort_values(["question", "place"])[["asked", "kernel", "obtained", "words"]]


def _first(column: pd.Series[Any]) -> str | None:
    values = column.dropna()
    return None if values.empty else str(values.iloc[0])


MOST_NAMED = 3


def results(_plan: object, table: pd.DataFrame) -> Iterable[str]:
    """Return how many answers are as the sources say, where kernels refuse, and what differs between kernels."""
    answered = table[table["obtained"].notna()]
    if answered.empty:
        return ()
    return _as_expected(answered), _refused(answered), _between_kernels(answered)


def _as_expected(answered: pd.DataFrame) -> str:
    kernels = ", ".join(dict.fromkeys(answered["kernel"]))
    others = answered[~answered["as_expected"].astype(bool)]
    whole = f"{len(answered) - len(others)} of {many(len(answered), 'answer')} of netdevsim's card are what the "
    whole += f"kernel's sources say (Linux {kernels})"
    named = [f"{row['asked']} ({row['kernel']}): {row['obtained']}" for row in others.to_dict("records")]
    more = len(named) - MOST_NAMED
    listed = "; ".join(named[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"{whole}; other than said: {listed}" if named else whole


def _refused(answered: pd.DataFrame) -> str:
    each = answered.drop_duplicates("question")
    refused = each[each["obtained"].str.startswith("refused")]
    steps = refused["obtained"].str.removeprefix("refused").str.strip().replace("", "elsewhere").value_counts()
    where = ", ".join(f"{count} {step}" for step, count in steps.items())
    return f"a program that the card cannot take is refused early: {where}" if len(refused) else "nothing was refused"


def _between_kernels(answered: pd.DataFrame) -> str:
    kernels, unlike = answered["kernel"].nunique(), differing(answered)["asked"].unique()
    if kernels < 2:
        return "no frame was forwarded: netdevsim executes nothing, so there is no figure of it"
    if not len(unlike):
        return f"all {kernels} kernels give the same answers, in the same words"
    return f"the {kernels} kernels differ in {many(len(unlike), 'answer')} or in its words, such as: {unlike[0]}"
