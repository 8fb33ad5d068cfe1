"""Loads that are shares: of the PDR, which comes from a search and is stored in the run, or of the line rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdplab.errors import PlanError, UnsupportedError
from xdplab.plan import Point
from xdplab.plan.offered import frame_rate
from xdplab.run.rundir import RunDirectory, read_json
from xdplab.studies.trial_facts import Limit
from xdplab.text import many

FILE = "pdr.json"


def joined(run: RunDirectory, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run stores once it has the PDRs of another search, too. Raises PlanError if they contradict."""
    before = stored(run)
    old, new = before.get("pdr_pps", {}), given["pdr_pps"]
    if other := [key for key in old if new.get(key, old[key]) != old[key]]:
        raise PlanError(
            f"--pdr-from: {run.path} has the PDRs of {before.get('search')}, and {given['search']} has others of "
            f"{many(len(other), 'point')}: the repetitions of a point would have different loads",
            remedy="leave --pdr-from out, or make another run",
        )
    both = {name: before.get(name, {}) | given.get(name, {}) for name in ("pdr_pps", "labs", "limited")}
    return {**before, **given, **both}


def stored(run: RunDirectory) -> dict[str, Any]:
    """Return what a run stores of its searches; nothing where its loads need none."""
    path = run.path / FILE
    return read_json(path, dict) if path.exists() else {}


def known_pdr(run: RunDirectory) -> dict[str, float]:
    """Return the stored PDRs of ``run`` in frames per second, by `Point.pdr_key`."""
    return dict(stored(run).get("pdr_pps", {}))


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
