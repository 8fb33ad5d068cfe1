"""The labs of a run side by side, for ``audit``: each point's rate by lab, and the ratio of every two labs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from xdplab.analysis.labs import LabRatio, by_lab, lab_ratios

MOST_SHOWN = 20


@dataclass(frozen=True, eq=False)
class LabsCompared:
    """``rates`` has one row per point (in words) and lab: n, median, low, high in frames per second."""

    rates: pd.DataFrame
    ratios: tuple[LabRatio, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "rates": json.loads(self.rates.to_json(orient="records")),
            "ratios": [asdict(ratio) for ratio in self.ratios],
        }

    def lines(self) -> list[str]:
        if self.rates.empty:
            return []
        shown = self.rates.head(MOST_SHOWN).to_dict("records")
        return [
            *("", "## Labs: the points that several have measured, at maximum load", ""),
            *("| labs | ratio of rates | 95 % | points | trials |", "| --- | --- | --- | --- | --- |"),
            *(f"| {r.b} / {r.a} | {r.ratio:.3f} | {r.low:.3f} – {r.high:.3f} | {r.points} | {r.trials} |"
              for r in self.ratios),
            *("", "| point | lab | median (kpps) | 95 % of the mean | n |", "| --- | --- | --- | --- | --- |"),
            *(f"| {r['point']} | {r['lab']} | {r['median'] / 1e3:.4g} | {_interval(r)} | {r['n']} |" for r in shown),
            *([f"\n{len(self.rates) - len(shown)} more rows in audit.json."] if len(self.rates) > len(shown) else []),
        ]  # fmt: skip


def labs_compared(trials: pd.DataFrame, places: Mapping[str, str]) -> LabsCompared:
    """Compare the labs of a run; ``places`` names its points in words. Empty where one lab measured each point."""
    rates = by_lab(trials)[["point_id", "lab", "n", "median", "low", "high"]]
    texts = rates["point_id"].map(lambda point: places.get(point, point))
    return LabsCompared(rates.assign(point=texts).sort_values(["point", "lab"]), tuple(lab_ratios(trials)))


def _interval(row: Mapping[Any, Any]) -> str:
    return "one trial" if row["n"] == 1 else f"{row['low'] / 1e3:.4g} – {row['high'] / 1e3:.4g}"
