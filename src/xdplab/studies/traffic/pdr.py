"""Loads that are shares of the PDR: taken from a search, kept in the run, so that it stays whole by itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from xdplab.errors import ResultsError, UnsupportedError
from xdplab.plan import Point
from xdplab.run.rundir import RunDirectory

FILE = "pdr.json"
SEARCHES = "searches.parquet"


def keep_pdr(run: RunDirectory, search: Path) -> None:
    """Copy the PDRs of a search's run into ``run``: the median of the repetitions of each point.

    Raises ResultsError where ``search`` is no finished search.
    """
    try:
        table = pd.read_parquet(search / SEARCHES)
    except OSError as error:
        raise ResultsError(f"{search} holds no search: {error}", remedy="`xdplab search PLAN` makes one") from None
    medians = table.dropna(subset=["pdr_pps"]).groupby("pdr_key")["pdr_pps"].median()
    run.write_json(FILE, {"search": search.name, "pdr_pps": {str(k): float(v) for k, v in medians.items()}})


def known_pdr(run: RunDirectory) -> dict[str, float]:
    """Return the PDRs in frames a second that ``run`` holds, by `Point.pdr_key`."""
    path = run.path / FILE
    return dict(json.loads(path.read_text())["pdr_pps"]) if path.exists() else {}


def offered_rate(point: Point, pdr: Mapping[str, float]) -> float | None:
    """Return the rate to offer in frames a second, None for the most. Raises UnsupportedError where no PDR is known."""
    if point.load_share is None:
        return point.rate_pps
    if point.pdr_key not in pdr:
        raise UnsupportedError(
            f"load {point.load}: no PDR of this point is known",
            remedy="`xdplab search PLAN`, then `xdplab run PLAN --pdr-from ITS_RUN`",
        )
    return point.load_share * pdr[point.pdr_key]
