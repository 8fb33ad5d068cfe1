"""The study's figure: throughput, CPU time per gigabyte and round trip, by arm."""

from __future__ import annotations

import pandas as pd

from xdplab.figures.marks import NO_BACKENDS, Axes, Order
from xdplab.studies.figure_table import Columns, Figure, views
from xdplab.studies.neighbour.points import ARMS
from xdplab.studies.neighbour.rows import METRICS, means


def by_arm(table: pd.DataFrame) -> pd.DataFrame:
    """Return each arm's mean with its interval, one panel per quantity and lab."""
    several = table["label"].nunique() > 1
    rows = [
        {"panel": f"{metric.title}, {metric.unit}" + (f"\n{label}" if several else ""), "x": arm}
        | {
            "label": label,
            "value": mean.value,
            "low": mean.low,
            "high": mean.high,
            "n": len(of_lab[of_lab["arm"].eq(arm)]),
        }
        for label, of_lab in table.groupby("label", sort=False)
        for metric in METRICS
        for arm, mean in means(of_lab, metric).items()
    ]
    return pd.DataFrame(rows, columns=["panel", "x", "label", "value", "low", "high", "n"])


FIGURES = (
    Figure(
        "neighbour", by_arm, Axes("", "", share_y=False), Columns(hue=()), "bar",
        order=Order(x_values=tuple(ARMS), columns=len(METRICS), palette=NO_BACKENDS),
        caption=(
            "{places}. One stream of TCP to the port that has the program; geometric means with their 95 % intervals.",
            "CPU: time in which the DUT's CPUs worked, per 10⁹ bytes. RTT: TCP's own, at 10 Mbit/s.",
        ),
        nothing="nothing was measured", title="What a program costs the host: TCP through its port",
    ),
)  # fmt: skip
VIEWS = views(FIGURES)
