"""Loads that are shares: of the PDR, which comes from a search and is stored in the run, or of the line rate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

from xdplab.errors import UnsupportedError
from xdplab.plan import Point
from xdplab.plan.factors import frame_rate
from xdplab.run.rundir import RunDirectory
from xdplab.studies.trial_facts import Limit

FILE = "pdr.json"


def of_search(name: str, table: pd.DataFrame) -> dict[str, Any]:
    """Return the part of a search's table that a run stores: the median PDR over the repetitions of each point."""
    medians = table.dropna(subset=["pdr_pps"]).groupby("pdr_key")["pdr_pps"].median()
    return {"search": name, "pdr_pps": {str(key): float(value) for key, value in medians.items()}}


def known_pdr(run: RunDirectory) -> dict[str, float]:
    """Return the stored PDRs of ``run`` in frames per second, by `Point.pdr_key`."""
    path = run.path / FILE
    return dict(json.loads(path.read_text())["pdr_pps"]) if path.exists() else {}


def offered_rate(point: Point, pdr: Mapping[str, float], link: Limit) -> float | None:
    """Return the rate to offer in frames per second, None for the maximum.

    ``link``: the cable's bits per second (L1). Raises UnsupportedError for a share of an unknown rate.
    """
    if point.line_share is not None:
        if link.rate is None:
            raise UnsupportedError(f"load {point.load}: {link.missing}", remedy="write a rate, such as 20kpps")
        return frame_rate(point.line_share * link.rate, point.mean_frame_bytes)
    if point.load_share is None:
        return point.rate_pps
    if point.pdr_key not in pdr:
        raise UnsupportedError(
            f"load {point.load}: no PDR of this point is known",
            remedy="`xdplab search PLAN`, then `xdplab run PLAN --pdr-from ITS_RUN`",
        )
    return point.load_share * pdr[point.pdr_key]
