"""Decisions between runs, each with a guarantee of its own, and the answer of a comparison, which `compare` makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pandas as pd


@dataclass(frozen=True)
class Decision:
    """The answer: ``points`` has one row each, ``joint`` is over all points of both runs; ``spread`` names the
    floor."""

    points: pd.DataFrame
    joint: dict[str, object] | None
    spread: str
    margin: float

    @property
    def verdict(self) -> Literal["equivalent", "differs", "undecided"]:
        """One point that differs decides; otherwise all points together decide, or the only one that has a ratio."""
        points = [str(word) for word in self.points["verdict"].dropna()]
        verdicts = [str(self.joint["verdict"])] if self.joint else points
        if any(word not in ("equivalent", "undecided") for word in [*verdicts, *points]):
            return "differs"
        return "equivalent" if verdicts == ["equivalent"] else "undecided"
