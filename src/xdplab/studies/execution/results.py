"""What a run of study execution says: BPF against the same code elsewhere, and the cost of one more tail call."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from xdplab.studies.execution.points import ExecutionPoint, ExecutionRequest
from xdplab.studies.execution.summaries import is_warm, medians
from xdplab.studies.points import StudyPlan
from xdplab.studies.sentences import estimate, one_of_places, sentence, span

BACKENDS = {"jit": "compiled BPF", "interpreter": "interpreted BPF", "module": "a module"}
OTHERS = {"user": "user space", "module": "a module"}
CLOCK_ALONE = "empty"
"""The benchmark that does nothing between its two looks at the clock: a ratio of it says nothing of code."""


def results(_plan: StudyPlan[ExecutionRequest, ExecutionPoint], table: pd.DataFrame) -> list[str]:
    """Return how each backend compares with the same code as a module or in user space, called warm, and what one more
    tail call costs."""
    warm = table[is_warm(table) & table["trap"].isna()]
    costs = medians(warm) if len(warm) else warm
    if costs.empty:
        return []
    ratios = (_beside(costs, backend) for backend in ("jit", "interpreter"))
    return [sentence(text) for text in (*ratios, _of_a_link(costs, warm)) if text]


def _beside(costs: pd.DataFrame, backend: str) -> str:
    rows = costs[costs["backend"].eq(backend) & costs["ratio"].notna() & costs["benchmark"].ne(CLOCK_ALONE)]
    parts = {
        str(label): f"{_ratios(of_place)} times {OTHERS[of_place['reference'].iloc[0]]}"
        for label, of_place in rows.groupby("label", sort=False)
    }
    return f"{BACKENDS[backend]} takes {one_of_places(parts)}" if parts else ""


def _ratios(rows: pd.DataFrame) -> str:
    values = {row["benchmark"]: estimate(row["ratio"], row["ratio_low"], row["ratio_high"])
              for row in rows.to_dict("records")}  # fmt: skip
    return span(values, exact=_counted(rows))


def _of_a_link(costs: pd.DataFrame, table: pd.DataFrame) -> str:
    links = table.dropna(subset=["links"]).drop_duplicates("benchmark").set_index("benchmark")["links"]
    chains = costs.assign(links=costs["benchmark"].map(links)).dropna(subset=["links", "value"])
    parts = dict(_links(chains))
    return f"one more tail call costs {one_of_places(parts)}" if parts else ""


def _links(chains: pd.DataFrame) -> Iterator[tuple[str, str]]:
    for label, of_place in chains.groupby("label", sort=False):
        texts = []
        for backend in ("interpreter", "jit", "user"):
            rows = of_place[of_place["backend"].eq(backend)].sort_values("links")
            if rows["links"].nunique() > 1:
                first, last = rows.iloc[0], rows.iloc[-1]
                each = (last["value"] - first["value"]) / float(last["links"] - first["links"])
                unit = " instructions" if _counted(rows) else " ns"
                text = span({"": estimate(each)}, unit, exact=_counted(rows))
                texts.append(f"{text} {_HOW[backend]}")
        if texts:
            yield str(label), ", ".join(texts)


_HOW = {"interpreter": "interpreted", "jit": "compiled", "user": "as a call in user space"}


def _counted(rows: pd.DataFrame) -> bool:
    return bool(rows["clock"].eq("instructions").all())
