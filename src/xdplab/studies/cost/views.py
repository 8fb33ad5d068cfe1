"""The study's figures: a packet's time against its instructions, and its instructions by kernel."""

from __future__ import annotations

import re

import pandas as pd

from xdplab.figures.marks import Axes, Order, Words
from xdplab.studies.cost.measurement import CALLED, PROGRAM, WHOLE
from xdplab.studies.cost.points import AF_XDP, PACKETS
from xdplab.studies.figure_table import Columns, Figure, Marks, each_row, mark_at, views
from xdplab.text import natural


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


KERNELS = "kernels"
MODE_TEXTS = {"native": "native", "generic": "generic", "af_xdp": "AF_XDP", "test_run": "test run"}


def _by_kernel(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each packet of several kernels, in their order; a panel for each mode.

    Packets that a socket sends are left out: their path is another one.
    """
    rows = table.loc[table["part"].eq(WHOLE) & (table["way"].ne(PACKETS) | table["mode"].eq(AF_XDP))]
    if rows["kernel_release"].nunique() < 2:
        return rows.iloc[:0]
    rows = rows.sort_values("kernel_release", key=lambda names: names.map(natural), kind="stable")
    sizes = rows["frame_bytes"].nunique() > 1
    ends = {name: rows[f"{name}_instructions"].where(rows["exact"].isna()) for name in ("low", "high")}
    return rows.assign(
        panel=rows["mode"].map(MODE_TEXTS),
        hue=rows["program"] + ((", " + rows["frame_bytes"].astype("string") + " B").fillna("") if sizes else ""),
        x=rows["kernel_release"].str.removesuffix("-amd64"),
        n=1,
        **ends,
    )


_LOOKUPS = re.compile(r"lookup:(?P<n>\d+)(?:, (?P<map>[a-z]\w*))?, (?P<entries>\d+) entries(?:, (?P<hit>\d+) % hits)?")
"""The name that a case of given entries has: `xdplab.studies.cost.gathering`."""


def _lookups(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each case of lookups in a map of given entries: the program's instructions with those that it
    calls, less those at N = 0, by N; a panel for hits and for misses, by mode and kernel if there are several."""
    work = table.loc[table["part"].isin((PROGRAM, CALLED))].groupby("trial_id")["instructions"].sum()
    cases = table.loc[table["part"].eq(WHOLE)].assign(work=lambda rows: rows["trial_id"].map(work).astype("Float64"))
    zeros = cases.loc[cases["program"].str.match(r"\w+:0(,|$)")].drop_duplicates(_SETTING)
    named = cases["program"].str.extract(_LOOKUPS).astype({"n": "Float64", "entries": "Float64"})
    rows = cases.join(named).loc[lambda rows: rows["n"].gt(0).fillna(False)]
    rows = rows.merge(zeros[[*_SETTING, "work"]], on=_SETTING, suffixes=("", "_at_0"))
    panel = rows["hit"].fillna("100") + " % hits"
    for name in (name for name in ("mode", "kernel") if rows[name].nunique() > 1):
        panel += ", " + rows[name].astype(str)
    each = (rows["work"] - rows["work_at_0"]) / rows["n"]
    return rows.assign(panel=panel, hue=rows["map"].fillna("percpu_array"), each=each, n=1).sort_values("entries")


_SETTING = ["mode", "kernel", "frame_bytes", "flows"]

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
        ),
        Figure(
            KERNELS,
            _by_kernel,
            Axes("Linux", "instructions per packet", share_y=False),
            Columns(y="instructions"),
            caption=(
                "Instructions are counted in a guest. A bar is a range to which they hold in other boots.",
                "Before Linux 5.18 a socket sends the frames of native and generic mode; they are left out.",
            ),
            order=Order(panels=tuple(MODE_TEXTS.values())),
            words=Words(hue_title="program"),
            nothing="packets were counted in one kernel: `--kernel 6.1 --kernel 6.12` compares them",
            title="Instructions of a packet by kernel",
            exact=True,
        ),
        Figure(
            "lookup_cost",
            _lookups,
            Axes("entries of the map", "instructions per lookup", "log"),
            Columns(x="entries", y="each"),
            caption=(
                "(program with what it calls at N − the same at 0) / N: one lookup, its key and the read of its value.",
                "Instructions are counted in a guest, of hash maps without the kernel's random seed.",
            ),
            words=Words(hue_title="map"),
            nothing=(
                "no lookups in maps of given entries were counted with N = 0: "
                "`xdplab cost plans/maps.yaml --mode test_run` counts them"
            ),
            title="Instructions of a lookup against the entries of its map",
            exact=True,
        ),
    ]
)
