"""The figures of an import: those of XDP traffic, whose marks lead to the lines of its logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xdplab.studies.kind import Run
from xdplab.studies.traffic.pictures import draw, figure, names
from xdplab.thesis.explain import explain as lines_of

__all__ = ["draw", "explain", "figure", "names"]


def explain(run: Run[Any], figure: str, mark: str, data: Sequence[Path] = ()) -> list[str]:
    """Return the lines of the logs behind the marks of a published figure."""
    return lines_of(run.attempts(), figure, mark, data)
