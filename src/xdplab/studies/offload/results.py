"""What a run of study offload says: whether the kernels answer as their sources say, and where they refuse."""

from __future__ import annotations

import pandas as pd

from xdplab.studies.offload.points import OffloadPoint, OffloadRequest
from xdplab.studies.offload.rows import differing
from xdplab.studies.points import StudyPlan
from xdplab.studies.sentences import sentence
from xdplab.text import many

MOST_NAMED = 3


def results(_plan: StudyPlan[OffloadRequest, OffloadPoint], table: pd.DataFrame) -> list[str]:
    """Return how many answers are as the sources say, where kernels refuse, and what differs between kernels."""
    answered = table[table["obtained"].notna()]
    if answered.empty:
        return []
    return [sentence(text) for text in (_as_expected(answered), _refused(answered), _between_kernels(answered))]


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
