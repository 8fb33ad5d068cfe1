"""A run's counts as JSON for what tracks benchmarks over commits.

A benchmark is a packet of a program, and each of its totals a measure. A total that is known to a range has
the range's ends beside it.
Sources: github-action-benchmark's README, ``customSmallerIsBetter``; https://bencher.dev/bmf.json.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any

from xdplab.lazy import lazily

with lazily():
    from xdplab.studies.cost import gate

if TYPE_CHECKING:
    import pandas as pd


def _totals(table: pd.DataFrame) -> Iterator[tuple[str, str, list[dict[Hashable, Any]]]]:
    """Yield each packet's name (a second one has a number), what it was counted with, and the rows of its totals."""
    cases = gate.cases_of(table)
    packets = table.groupby("trial_id", sort=False)
    for case, name, (_, rows) in zip(cases, gate.numbered(case.title for case in cases), packets, strict=True):
        made_with = f"Linux {case.made_with['kernel_release']}, {case.made_with['compiler']}"
        yield name, made_with, rows.loc[rows["part"].isin(gate.TOTALS)].to_dict("records")


def _github_action_benchmark(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {"name": f"{name}: {row['part']}", "unit": "instructions per packet", "value": row["instructions"]}
        | ({} if row["exact"] else {"range": f"± {row['high_instructions'] - row['instructions']:g}"})
        | {"extra": made_with}
        for name, made_with, rows in _totals(table)
        for row in rows
    ]


def _bencher(table: pd.DataFrame) -> dict[str, dict[str, dict[str, float]]]:
    return {
        name: {
            f"instructions-{row['part']}": {
                "value": row["instructions"],
                "lower_value": row["low_instructions"],
                "upper_value": row["high_instructions"],
            }
            for row in rows
        }
        for name, _, rows in _totals(table)
    }


TRACKERS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "github-action-benchmark": _github_action_benchmark,
    "bencher": _bencher,
}
