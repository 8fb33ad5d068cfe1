"""Regenerated marks against marks that were read back from the published figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from xdplab.errors import FigureError
from xdplab.thesis.published import MARK_COLUMNS

TOLERANCE = 0.001  # of the axis' range
KEY = ["file", "kind", "panel", "hue", "x"]


@dataclass(frozen=True)
class Check:
    """One figure against its reference: ``worst`` is the largest difference as a share of the axis' range.

    ``off`` marks differ by more than the tolerance, ``absent`` are in the reference only, ``extra`` here only; a bar
    of no height is as good as none.
    """

    file: str
    marks: int
    worst: float
    off: int
    absent: int
    extra: int

    @property
    def equal(self) -> bool:
        return not (self.off or self.absent or self.extra)


def read_marks(path: Path) -> pd.DataFrame:
    """Return a marks table from CSV (`#` begins a comment). Raises FigureError if it has other columns."""
    try:
        table = pd.read_csv(path, comment="#", dtype=dict.fromkeys(("figure", *KEY), str))
    except (OSError, ValueError) as error:
        raise FigureError(f"{path} is no marks table: {error}") from error
    if missing := set(MARK_COLUMNS) - set(table.columns):
        raise FigureError(f"{path} is no marks table: it lacks {', '.join(sorted(missing))}")
    return table


def check_marks(marks: pd.DataFrame, reference: pd.DataFrame, tolerance: float = TOLERANCE) -> list[Check]:
    """Compare each figure that ``reference`` has; figures that it lacks are not looked at."""
    return [_check(str(file), marks[marks["file"] == file], own, tolerance) for file, own in reference.groupby("file")]


def _check(file: str, marks: pd.DataFrame, reference: pd.DataFrame, tolerance: float) -> Check:
    top, bottom = reference["value"].max(), min(0.0, reference["value"].min())
    span = float(top - bottom) or 1.0
    both = reference[[*KEY, "value"]].merge(
        marks[[*KEY, "value"]], on=KEY, how="outer", suffixes=("_there", "_here"), indicator=True
    )
    bar = both["kind"] == "bar"
    there = both["value_there"].mask(bar & both["value_there"].isna(), 0.0)
    here = both["value_here"].mask(bar & both["value_here"].isna(), 0.0)
    difference = (here - there).abs() / span
    far = ~(difference <= tolerance)
    known = both["_merge"] == "both"
    return Check(
        file,
        len(reference),
        float(difference[known].max()) if known.any() else 0.0,
        int((far & known).sum()),
        int((far & (both["_merge"] == "left_only")).sum()),
        int((far & (both["_merge"] == "right_only")).sum()),
    )
