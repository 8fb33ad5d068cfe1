"""A search's figures; marks come only from its table."""

from __future__ import annotations

import json
from statistics import median
from typing import Any

import pandas as pd

from xdplab.figures.marks import Axes, Order
from xdplab.studies.figure_table import Columns, Content, Figure, views
from xdplab.studies.search.rows import point_label

RATES = {"ndr_pps": "NDR", "pdr_pps": "PDR", "mrr_pps": "MRR"}
LATENCIES = {"p50_ns": "median", "p99_ns": "99th percentile"}
SHARES = ("0", "10", "50", "90")
LIMITS = {"link": "medium", "generator": "generator"}
"""Whose maximum rate a loss is compared with."""


def rates(table: pd.DataFrame) -> pd.DataFrame:
    """Return the median of each rate over repetitions, by point, with the extremes."""
    return pd.DataFrame(
        {**_middle(rows[column] / 1e6), "hue": hue, "x": label, "points": point}
        for (point, label), rows in _points(table)
        for column, hue in RATES.items()
        if rows[column].notna().any()
    )


def latency(table: pd.DataFrame) -> pd.DataFrame:
    """Return the median of latency over repetitions at each share of the PDR, by point."""
    return pd.DataFrame(
        {**_middle(rows[column] / 1e3), "panel": label, "hue": hue, "x": f"{share} %", "points": point}
        for (point, label), rows in _points(table)
        for quantile, hue in LATENCIES.items()
        for share in SHARES
        if (column := f"latency_{share}pdr_{quantile}") in rows and rows[column].notna().any()
    )


def throughput(table: pd.DataFrame) -> pd.DataFrame:
    """Return the throughput by frame size and the maximum rate beside it, as RFC 2544 requires (26.1).

    Of labs whose links have a rate or have none, each maximum says whose it is.
    """
    rows = [(place, row) for place, row in _rfc2544(table) if not pd.isna(row["frame_bytes"])]
    mixed = len({row["max_is"] for _, row in rows}) > 1
    columns = (("max_pps", "maximum"), ("ndr_pps", "throughput"))
    return pd.DataFrame(
        {
            "value": float(row[column]) / 1e6,
            "hue": f"{label} of the {LIMITS[row['max_is']]}{place}" if mixed and label == "maximum" else label + place,
            "x": row["frame_bytes"],
            "points": row["point_id"],
            "max_is": str(row["max_is"]),
        }
        for place, row in rows
        for column, label in columns
        if pd.notna(row[column])
    )


def _throughput_words(content: Content) -> list[str]:
    whose = sorted(set(content.rows["max_is"]), reverse=True)
    most = " or, if the link has no rate, ".join(f"of the {LIMITS[name]}" for name in whose)
    mixes = any(pd.isna(row["frame_bytes"]) for _, row in _rfc2544(content.table))
    only_there = ["Frames of several sizes (IMIX) are in the table only."] if mixes else []
    return [f"The maximum is that {most}.", *only_there]


def loss(table: pd.DataFrame) -> pd.DataFrame:
    """Return the frame loss rate by share of the maximum rate, by frame size (26.3)."""
    return pd.DataFrame(
        {
            "value": 100 * at["loss_ratio"],
            "hue": f"{_size(row)}{place}",
            "x": 100 * at["offered_pps"] / row["max_pps"],
            "points": row["point_id"],
        }
        for place, row in _rfc2544(table)
        for at in json.loads(row["loss_curve"])
    )


def _size(row: dict[str, Any]) -> str:
    return "IMIX" if pd.isna(row["frame_bytes"]) else f"{row['frame_bytes']:g} B"


def _rfc2544(table: pd.DataFrame) -> list[tuple[str, dict[str, Any]]]:
    """Return each row of RFC 2544's tests, and the text that tells its point from others of the same frame size."""
    if "loss_curve" not in table:
        return []
    tested = table[table["loss_curve"].notna()].sort_values("frame_bytes")
    rows: list[dict[str, Any]] = tested.to_dict("records")  # type: ignore[assignment]
    labels = [point_label({k: v for k, v in row.items() if pd.notna(v)}, of_frames=False) for row in rows]
    several = len(set(labels)) > 1
    return [(f", {word}" if several else "", row) for word, row in zip(labels, rows, strict=True)]


def _points(table: pd.DataFrame) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    if table.empty:
        return []
    labels = [point_label(row) for row in table.astype("object").where(table.notna(), None).to_dict("records")]
    groups = table.assign(_words=labels).groupby(["point_id", "_words"], sort=False)
    return [((str(key[0]), str(key[1])), rows) for key, rows in groups]


def _middle(values: pd.Series) -> dict[str, Any]:
    numbers = [float(value) for value in values.dropna()]
    ends = {"low": min(numbers), "high": max(numbers)} if len(numbers) > 1 else {}
    return {"value": median(numbers), "n": len(numbers), **ends}


def _nothing(name: str) -> str:
    return f"no point has {name}: it was not asked for, or no search came to its end"


REPEATED = "Medians over repetitions; lines reach from the least to the most."
NDR = "NDR: no loss. PDR: the loss ratio of the profile. MRR: received at the most offered."
MPPS = "frames (Mpps)"
OF_LOAD = Axes("load (share of the PDR; 0 is the lowest)", "latency (µs)")
# The RFC prescribes the axes of its figure of losses.
OF_LOSS = Axes("offered (% of the maximum rate)", "frames lost (%)", "linear", x_limits=(0, 100), y_limits=(0, 100))
LOSS_WORDS = (
    "Frame loss rate (RFC 2544, 26.3): the share of what was offered that the DUT lost, from the maximum rate down to "
    "two loads without loss."
)

FIGURES = (
    Figure(
        "rates", rates, Axes("point", MPPS), Columns(panel=()), kind="bar", order=Order(tuple(RATES.values())),
        caption=(REPEATED, NDR), nothing=_nothing("rates"),
    ),
    Figure(
        "latency", latency, OF_LOAD, kind="bar", caption=(REPEATED,), nothing=_nothing("latency"),
        order=Order(tuple(LATENCIES.values()), x_values=tuple(f"{share} %" for share in SHARES)),
    ),
    Figure(
        "throughput", throughput, Axes("frame (bytes)", MPPS, "linear"), Columns(panel=()),
        nothing=_nothing("throughput"),
        caption=("Throughput: the highest rate without loss (RFC 2544, 26.1).", _throughput_words),
    ),
    Figure("loss", loss, OF_LOSS, Columns(panel=()), caption=(LOSS_WORDS,), nothing=_nothing("loss")),
)  # fmt: skip
VIEWS = views(FIGURES)
