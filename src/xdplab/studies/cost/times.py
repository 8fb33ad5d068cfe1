"""The times that a finished run of traffic measured, to stand beside the counts of the same programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from xdplab.errors import PlanError
from xdplab.run.rundir import RunDirectory, read_json
from xdplab.studies import kinds
from xdplab.studies.cost.points import CostPoint

TIMES = "times.json"
"""The file of a run of study cost that holds them."""

_KEY = ("program", "mode", "frame_bytes", "flows")


class Times(NamedTuple):
    """A packet's time in ns in valid trials: the median, the least and the most."""

    ns_per_packet: float
    low_ns: float
    high_ns: float
    timed_trials: int


def times_file(run: Path) -> bytes:
    """Return what `times_in` reads: the times of the valid trials of a run of traffic, by program, mode and frames.

    Several points that differ in something else, such as maps or VLAN tags, have none.
    Raises PlanError if the run measured in several labs: their times have no mean.
    """
    rows = kinds.open_run(run).rows()
    if not {"lab", "ns_per_packet"} <= set(rows):
        raise PlanError(f"{run} is no run of traffic, so it has no times to stand beside counts")
    if rows["lab"].nunique() > 1:
        raise PlanError(f"{run}: it measured in several labs", remedy="name a run of one lab")
    valid = rows.loc[rows["verdict"].eq("valid") & rows["queues"].eq(1) & rows["ns_per_packet"].notna()]
    return (json.dumps(list(_times_of(valid)), indent=1) + "\n").encode()


def _times_of(trials: pd.DataFrame) -> Iterator[dict[str, Any]]:
    names = trials["workload"] + ":" + trials["accesses"].astype("string")
    named = trials.assign(program=names.where(trials["accesses"].notna(), trials["program_name"]))
    for _, group in named.groupby(list(_KEY), dropna=False):
        if group["point_id"].nunique() > 1:
            continue  # such as programs of one name: nothing tells which is meant
        ns = group["ns_per_packet"].astype(float)
        times = Times(float(ns.median()), float(ns.min()), float(ns.max()), len(ns))
        (key,) = json.loads(group[list(_KEY)].head(1).to_json(orient="records"))
        yield key | times._asdict()


def times_in(directory: RunDirectory) -> dict[tuple[Any, ...], Times]:
    """Return the times that a run of study cost holds, by `key_of` its points; none if no run was named."""
    path = directory.path / TIMES
    if not path.exists():
        return {}
    return {
        tuple(row[name] for name in _KEY): Times(*(row[name] for name in Times._fields))
        for row in read_json(path, list)
    }


def key_of(point: CostPoint) -> tuple[Any, ...]:
    """Return what a time belongs to."""
    return tuple(getattr(point, name) for name in _KEY)
