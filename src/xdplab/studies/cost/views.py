"""The study's figure: a packet's time against its instructions."""

from __future__ import annotations

import pandas as pd

from xdplab.figures.marks import Axes, Words
from xdplab.studies.cost.measurement import WHOLE
from xdplab.studies.figure_table import Columns, Figure, Marks, each_row, mark_at, views


def _timed(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each packet with a time; a panel for each mode, and each kernel if there are several."""
    rows = table.loc[table["part"].eq(WHOLE) & table["ns_per_packet"].notna()]
    panel = rows["mode"].astype(str)
    if rows["kernel"].nunique() > 1:
        panel += ", Linux " + rows["kernel"].astype(str)
    return rows.assign(
        **{"panel": panel, "hue": rows["program"], "x": rows["instructions"].round()},
        **{"low": rows["low_ns"], "high": rows["high_ns"], "n": rows["timed_trials"]},
    )


def _with_equal_ipc(figure: Figure, rows: pd.DataFrame) -> Marks:
    """Return the packets' marks, and in each panel the line of the median's instructions per ns."""
    rate = float((rows["instructions"] / rows["ns_per_packet"]).astype(float).median())
    hue = f"{rate:.2g} instructions per ns"
    ends = (float(rows["x"].min()), float(rows["x"].max()))
    lines = [
        mark_at(figure, panel=panel, hue=hue, x=x, value=x / rate) | {"kind": "fit"}
        for panel in rows["panel"].unique()
        for x in ends
    ]
    return each_row(figure, rows) + lines


VIEWS = views(
    [
        Figure(
            "time",
            _timed,
            Axes("instructions per packet", "ns per packet", "log", "log"),
            Columns(y="ns_per_packet"),
            kind="point",
            collect=_with_equal_ipc,
            caption=(
                "Instructions are counted in a guest, times measured by a run of traffic: median, least and most.",
                "On the line a packet has the median's instructions per ns; above it, it waits more.",
            ),
            words=Words(hue_title="program"),
            nothing="no run of traffic with these packets was named: `xdplab cost results/RUN` counts a run's programs",
            title="Time of a packet against its instructions",
            exact=True,
        )
    ]
)
