"""What a run of study verifier says: what is accepted, what verifying costs, and how it grows with a program."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from xdplab.analysis.conclusions import Estimate
from xdplab.analysis.intervals import Spread
from xdplab.analysis.values import three_digits
from xdplab.studies.points import StudyPlan
from xdplab.studies.sentences import sentence, span
from xdplab.studies.verifier.points import LINUX, VerifierPoint, VerifierRequest
from xdplab.studies.verifier.rows import largest_of
from xdplab.studies.verifier.summaries import ENVIRONMENT, first_of_each, general
from xdplab.text import many

MOST_NAMED = 4
MUCH_WORK = 1000
"""Instructions to process from which on the cost of one is not that of starting a load."""


def results(plan: StudyPlan[VerifierRequest, VerifierPoint], table: pd.DataFrame) -> list[str]:
    """Return the programs accepted and the largest of them, the cost of an instruction to process, and how the work
    grows with a program's size."""
    if table.empty:
        return []
    accepted = "; ".join(filter(None, (_accepted(table), _largest(largest_of(plan.directory, plan.trials)))))
    return [sentence(text) for text in (accepted, _cost(table), _growth(table)) if text]


def _accepted(table: pd.DataFrame) -> str:
    each = first_of_each(table)
    judged = each[~each["verdict"].isin(ENVIRONMENT)]
    texts = []
    for label, rows in judged.groupby("label", sort=False):
        refused = rows[rows["verdict"].ne("accepted")]
        causes = refused["cause"].fillna("no cause given").map(general).value_counts()
        why = f", most often not for: {causes.index[0]}" if len(causes) else ""
        texts.append(f"{label} accepts {len(rows) - len(refused)} of {many(len(rows), 'program')}{why}")
    return _first(texts, "verifiers")


def _first(texts: list[str], what: str) -> str:
    more = len(texts) - MOST_NAMED
    return "; ".join(texts[:MOST_NAMED]) + (f"; {more} more {what}" if more > 0 else "")


def _largest(largest: pd.DataFrame) -> str:
    if largest.empty or largest["largest_n"].isna().all():
        return ""
    sizes = {str(form): rows["largest_n"].dropna().astype(int) for form, rows in largest.groupby("form", sort=True)}
    texts = [f"{_between(one.min(), one.max())} {form}" for form, one in sizes.items() if len(one)]
    return f"the largest loop within its limit has N = {' and '.join(texts)}"


def _between(least: float, most: float) -> str:
    first, last = three_digits(least), three_digits(most)
    return first if first == last else f"{first} to {last}"


def _cost(table: pd.DataFrame) -> str:
    worked = table[table["verifier"].eq(LINUX) & table["processed_insns"].ge(MUCH_WORK)]
    texts = []
    for column, unit, counted in (("verify_ns", " ns", False), ("verify_instructions", " instructions", True)):
        for label, rows in worked.dropna(subset=[column]).groupby("label", sort=False):
            families = rows["family"].fillna(rows["corpus"]).str.cat(rows["form"], sep=" ", na_rep="").str.strip()
            values = {str(name): _of_one(of_family, column) for name, of_family in rows.groupby(families, sort=False)}
            texts.append(f"{span(values, unit, exact=counted)}, {label}")
    return f"an instruction that the verifier looks at costs {_first(texts, 'kernels')}" if texts else ""


def _of_one(rows: pd.DataFrame, column: str) -> Estimate:
    """Return the cost of an instruction: the mean over a family's programs, with its interval over repetitions."""
    logs = (rows[column].astype(float) / rows["processed_insns"].astype(float)).map(np.log)
    joint = Spread.of(logs.groupby(rows["repetition"]).mean())
    return Estimate(*np.exp([joint.mean, joint.low, joint.high]).tolist())


def _growth(table: pd.DataFrame) -> str:
    sized = table[table["verifier"].eq(LINUX) & table["n"].notna() & table["processed_insns"].gt(0)]
    texts = [text for family, rows in sized.groupby("family", sort=False) for text in _powers(str(family), rows)]
    return f"the work grows {_first(texts, 'families')}" if texts else ""


def _powers(family: str, rows: pd.DataFrame) -> Iterator[str]:
    """Give the power of N by which a family's work grows, from the middle of its sizes to the largest, by form.

    Two sizes are no trend: then, how many times it grows.
    """
    for form, of_form in rows.assign(form=rows["form"].fillna("")).groupby("form", sort=True):
        work = of_form.groupby("n")["processed_insns"].median().astype(float).sort_index()
        if len(work) < 2:
            continue
        upper = work.iloc[-max(2, len(work) // 2) :]
        (first, last), ends = (upper.index[0], upper.index[-1]), np.log([upper.iloc[0], upper.iloc[-1]])
        power = (ends[1] - ends[0]) / np.log(last / first)
        grows = f"with N^{power:.2f}" if len(work) > 2 else f"{three_digits(work.iloc[-1] / work.iloc[0])} times"
        yield f"{grows} ({' '.join(filter(None, (family, str(form))))}, N = {first} to {last})"
