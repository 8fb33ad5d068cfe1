"""A search's figures; marks come only from its table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import pandas as pd

from xdplab.errors import NotApplicableError
from xdplab.figures.marks import Look, View, marks_frame
from xdplab.studies.search.rows import point_label

RATES = {"ndr_pps": "NDR", "pdr_pps": "PDR", "mrr_pps": "MRR"}
LATENCIES = {"p50_ns": "median", "p99_ns": "99th percentile"}
SHARES = ("0", "10", "50", "90")


def rates(table: pd.DataFrame) -> View:
    """The median of each rate over repetitions, by point; the ends of a bar's line are the extremes."""
    marks = [
        {**_middle(rows[column] / 1e6), "hue": word, "x": words, "points": point}
        for (point, words), rows in _points(table)
        for column, word in RATES.items()
        if rows[column].notna().any()
    ]
    look = Look("point", "frames (Mpps)", hues=tuple(RATES.values()), caption=(_REPEATED, _NDR))
    return _view("rates", "bar", marks, look)


def latency(table: pd.DataFrame) -> View:
    """The median of latency over repetitions at each share of the PDR, by point."""
    marks = [
        {**_middle(rows[column] / 1e3), "panel": words, "hue": word, "x": f"{share} %", "points": point}
        for (point, words), rows in _points(table)
        for quantile, word in LATENCIES.items()
        for share in SHARES
        if (column := f"latency_{share}pdr_{quantile}") in rows and rows[column].notna().any()
    ]
    look = Look(
        "load (share of the PDR; 0 is the lowest)",
        "latency (µs)",
        hues=tuple(LATENCIES.values()),
        x_values=tuple(f"{share} %" for share in SHARES),
        caption=(_REPEATED,),
    )
    return _view("latency", "bar", marks, look)


def throughput(table: pd.DataFrame) -> View:
    """Draw the throughput by frame size beside the maximum rate, as RFC 2544 requires (26.1)."""
    rows = [(place, row) for place, row in _rfc2544(table) if not pd.isna(row["frame_bytes"])]
    mixes = len(_rfc2544(table)) - len(rows)
    whose = sorted({str(row["max_is"]) for _, row in rows})
    mixed = len(whose) > 1  # of labs whose links have a rate or have none: then each line says which
    marks = [
        {
            "value": float(row[column]) / 1e6,
            "hue": f"{words}{place}",
            "x": row["frame_bytes"],
            "points": row["point_id"],
        }
        for place, row in rows
        for words, column in (
            (f"maximum of the {_OF[row['max_is']]}" if mixed else "maximum", "max_pps"),
            ("throughput", "ndr_pps"),
        )
        if pd.notna(row[column])
    ]
    most = " or, if the link has no rate, ".join(f"of the {_OF[name]}" for name in reversed(whose))
    table_only = ["Frames of several sizes (IMIX) are in the table only."] if mixes else []
    said = ["Throughput: the highest rate without loss (RFC 2544, 26.1).", f"The maximum is that {most}.", *table_only]
    look = Look("frame (bytes)", "frames (Mpps)", x_scale="linear", caption=tuple(said))
    return _view("throughput", "line", marks, look)


def loss(table: pd.DataFrame) -> View:
    """Draw the frame loss rate by share of the maximum rate, one line per frame size (26.3)."""
    marks = [
        {
            "value": 100 * at["loss_ratio"],
            "hue": f"{_size(row)}{place}",
            "x": 100 * at["offered_pps"] / row["max_pps"],
            "points": row["point_id"],
        }
        for place, row in _rfc2544(table)
        for at in json.loads(row["loss_curve"])
    ]
    caption = (
        "Frame loss rate (RFC 2544, 26.3) of what was offered, from the maximum rate down to two loads without loss.",
    )
    look = Look(
        "offered (% of the maximum rate)",
        "frames lost (%)",
        x_scale="linear",
        hues=tuple(dict.fromkeys(str(mark["hue"]) for mark in marks)),
        x_limits=(0, 100),  # as the RFC prescribes
        y_limits=(0, 100),
        caption=caption,
    )
    return _view("loss", "line", marks, look)


def _size(row: dict[str, Any]) -> str:
    return "IMIX" if pd.isna(row["frame_bytes"]) else f"{row['frame_bytes']:g} B"


def _rfc2544(table: pd.DataFrame) -> list[tuple[str, dict[str, Any]]]:
    """Return each row of RFC 2544's tests, and the text that tells its point from others of the same frame size."""
    if "loss_curve" not in table:
        return []
    own = table[table["loss_curve"].notna()].sort_values("frame_bytes")
    rows: list[dict[str, Any]] = own.to_dict("records")  # type: ignore[assignment]
    words = [point_label({k: v for k, v in row.items() if pd.notna(v)}, of_frames=False) for row in rows]
    several = len(set(words)) > 1
    return [(f", {word}" if several else "", row) for word, row in zip(words, rows, strict=True)]


_OF = {"link": "medium", "generator": "generator"}
_REPEATED = "Medians over repetitions; lines reach from the least to the most."
_NDR = "NDR: no loss. PDR: the loss ratio of the profile. MRR: received at the most offered."


def _points(table: pd.DataFrame) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    if table.empty:
        return []
    words = [point_label(row) for row in table.astype("object").where(table.notna(), None).to_dict("records")]
    groups = table.assign(_words=words).groupby(["point_id", "_words"], sort=False)
    return [((str(key[0]), str(key[1])), rows) for key, rows in groups]


def _middle(values: pd.Series) -> dict[str, Any]:
    known = [float(value) for value in values.dropna()]
    ends = {"low": min(known), "high": max(known)} if len(known) > 1 else {}
    return {"value": median(known), "n": len(known), **ends}


def _view(name: str, kind: str, marks: list[dict[str, Any]], look: Look) -> View:
    if not marks:
        raise NotApplicableError(f"no point has {name}: it was not asked for, or no search came to its end")
    same = {"figure": name, "file": name, "kind": kind, "verdict": "valid"}
    return View(marks_frame({**same, **mark} for mark in marks), look)


VIEWS: Mapping[str, Callable[[pd.DataFrame], View]] = {
    "rates": rates,
    "latency": latency,
    "throughput": throughput,
    "loss": loss,
}
