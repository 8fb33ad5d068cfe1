"""Views of what happens to the traffic: latency by load, evenness over queues, the rates of labs side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from xdplab.analysis.labs import in_several_labs
from xdplab.analysis.series import reached
from xdplab.errors import NotApplicableError
from xdplab.figures.factors import FigureRequest
from xdplab.figures.marks import Axes, Look, Order, View, Words, collect
from xdplab.figures.views import described, labelled, unit_of, unlimited

MEDIANS = "Each mark is the median of the repetitions' quantiles; from six repetitions on it has an interval."
QUANTILES = {"p50": "latency_p50_ns", "p99": "latency_p99_ns", "p99.9": "latency_p999_ns"}


def melted_latency(trials: pd.DataFrame, quantiles: tuple[str, ...] = tuple(QUANTILES)) -> pd.DataFrame:
    """Return one row per trial and quantile, with the columns quantile and latency_ns."""
    parts = [trials.assign(quantile=name, latency_ns=trials[QUANTILES[name]]) for name in quantiles]
    return pd.concat(parts, ignore_index=True)


def load_labels(trials: pd.DataFrame) -> tuple[pd.Series, str]:
    """Return each row's load (``20``, ``50 % PDR``, ``500Mbit/s``, ``max``) and the unit of those in frames."""
    rates = trials["rate_requested_pps"].astype("Float64").where(trials["load"].astype(str).str.endswith("pps"))
    size, unit = unit_of(rates.dropna(), "pps") if rates.notna().any() else (1.0, "")
    paced = {str(load): rate / size for load, rate in zip(trials["load"], rates, strict=True) if not pd.isna(rate)}
    labels = _apart(paced)
    return pd.Series([_load_label(str(load), labels) for load in trials["load"]], index=trials.index), unit


ENOUGH_DIGITS, ALL_DIGITS = 3, 17


def _apart(rates: Mapping[str, float]) -> dict[str, str]:
    """Return a label for each load, with as many digits as tell the loads of this figure apart."""
    for digits in range(ENOUGH_DIGITS, ALL_DIGITS + 1):
        labels = {load: f"{rate:.{digits}g}" for load, rate in rates.items()}
        if len(set(labels.values())) == len(labels):
            return labels
    return {load: f"{rate:.{ENOUGH_DIGITS}g} ({load})" for load, rate in rates.items()}  # one rate, spelled twice


def _load_label(load: str, paced: Mapping[str, str]) -> str:
    return f"{load[:-1].strip()} % PDR" if load.endswith("%") else paced.get(load, load)


def _not_reached(trials: pd.DataFrame) -> str:
    """Name what is left out: ``1Mpps (0.28 Mpps offered)``."""
    loads = [
        f"{load} ({rows['offered_pps'].median() / 1e6:.2g} Mpps offered)"
        for load, rows in trials[~reached(trials)].groupby("load", sort=False)
    ]
    return f"Not drawn, for the load was not reached: {', '.join(loads)}." if loads else ""


def _from_due(trials: pd.DataFrame) -> str:
    due = trials["latency_from"].eq("due").fillna(False).any()
    return "At a paced load the round trip counts from the time a frame was due." if due else ""


def _batches(trials: pd.DataFrame) -> str:
    """Name the batch sizes of paced loads: a frame waits for its batch, so a new size makes a step in a curve."""
    sizes = sorted(trials.loc[trials["rate_requested_pps"].notna(), "batch"].dropna().unique())
    return f"Paced in batches of {', '.join(f'{size:g}' for size in sizes)} frames." if sizes else ""


def latency(request: FigureRequest) -> View:
    """Round trip by load; a paced load is the headline, maximum load is queueing and stands apart."""
    left_out, trials = _not_reached(request.trials), request.trials[reached(request.trials)]
    request = replace(request, trials=trials)
    labels, load_unit = load_labels(trials)
    ordered = trials.sort_values("rate_requested_pps", na_position="last").index
    rows = unlimited(labelled(request, labels))
    size, unit = (1e3, "µs") if rows["value"].max() > 1e3 else (1.0, "ns")
    paced = trials.loc[rows.index, "rate_requested_pps"].notna()
    marks = collect(rows[paced], request.figure, "line", size, middle="median")
    marks += collect(rows[~paced], request.figure, "point", size, middle="median")
    quantiles = trials["quantile"].unique()
    which = f"{quantiles[0]} " if len(quantiles) == 1 else ""
    load = f"offered load ({load_unit})" if load_unit else "offered load"
    look = Look(
        Axes(load, f"{which}round trip ({unit})", y_scale="log"),
        Order(x_values=tuple(dict.fromkeys(labels.loc[ordered]))),
        Words(point_label="max load: queueing, not latency"),
    )
    notes = (_from_due(trials), _batches(trials), left_out, MEDIANS)
    return described(request, marks, look, *notes, beside=("batch",), intervals="95 % interval of the median")


def melted_queues(trials: pd.DataFrame) -> pd.DataFrame:
    """Return one row per trial and receive queue, with the columns queue and queue_share (% of the frames)."""
    counted = trials[trials["rx_by_queue"].notna()]
    frames = counted["rx_by_queue"].map(json.loads)
    arrived = frames[frames.map(sum) > 0]
    if arrived.empty:
        raise NotApplicableError("frames by queue were not counted")
    long = arrived.explode().rename("queue_share").astype("Float64")
    queue = long.groupby(level=0).cumcount().rename("queue")
    share = 100 * long / long.groupby(level=0).transform("sum")
    return trials.join(pd.concat([queue, share], axis=1), how="inner").reset_index(drop=True)


def evenness(request: FigureRequest) -> View:
    """Share of the frames that each receive queue got; the dashed line is an even share, if a panel has one."""
    marks = collect(unlimited(labelled(request)), request.figure, "bar")
    panels = labelled(request).assign(queues=request.trials["queues"])
    counts = {str(panel): sorted(group["queues"].unique()) for panel, group in panels.groupby("panel")}
    rules = {panel: 100 / int(queues[0]) for panel, queues in counts.items() if len(queues) == 1}
    axes = Axes("receive queue", "share of the frames (%)", share_x=False, share_y=False, rules=rules)
    order = Order(x_values=tuple(range(int(request.trials["queue"].max()) + 1)))
    return described(request, marks, Look(axes, order), "Dashed: an even share." if rules else "")


def relative_rates(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials of points that several labs measured, with ``lab_ratio``: rate / mean of the labs' means."""
    rows = in_several_labs(trials)
    if rows.empty:
        raise NotApplicableError("no point was measured in several labs: `xdplab run PLAN --labs A,B` does it")
    means = rows.groupby(["point_id", "lab"])["forwarded_pps"].mean().groupby("point_id").mean()
    return rows.assign(lab_ratio=rows["forwarded_pps"] / rows["point_id"].astype("str").map(means))


def labs(request: FigureRequest) -> View:
    """Rate by lab, relative to the mean of the same point over all labs."""
    rows = unlimited(labelled(request))
    points = [point for _, point in rows.groupby("point_id", sort=False)]
    marks = [mark for point in points for mark in collect(point, request.figure, "point")]
    note = "One mark per point and lab: its rate over the mean of the point in all labs, 1 where the labs are equal."
    axes = Axes("lab", "rate / mean of all labs", from_zero=False, rules={"": 1.0})
    order = Order(x_values=tuple(sorted(request.trials["lab"].dropna().unique())))
    return described(request, marks, Look(axes, order), note, beside=("accesses",))
