"""From the journal and the raw files to one row per change; what is made of the rows: tables, sentences, figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from xdplab.absent import Absent
from xdplab.analysis.intervals import Spread
from xdplab.analysis.values import three_digits
from xdplab.figures.marks import Axes, Order
from xdplab.run.columns import Column
from xdplab.run.frames import typed, why_null
from xdplab.run.state import Attempt, facts_of
from xdplab.studies.figure_table import Figure, medians, views
from xdplab.studies.meaning import by_place, first_of, table_with_line
from xdplab.studies.outage.bench import OutageFacts, gaps_of, heard_in
from xdplab.studies.outage.points import BARE, CHANGES, MODES, OutagePoint, OutageRequest
from xdplab.studies.points import StudyPlan, StudyTrial, name_places
from xdplab.studies.tables import Table

OutagePlan = StudyPlan[OutageRequest, OutagePoint]

COLUMNS: tuple[Column[Any], ...] = (
    Column("run_id", "str", "id", "the run"),
    Column("trial_id", "str", "id", "point and trial"),
    Column("point_id", "str", "id", "the point"),
    Column("place", "str", "factor", "the lab"),
    Column("label", "str", "factor", "the same as figures name it, with its kernel"),
    Column("driver", "str", "factor", "of the DUT's port, as `ethtool -i` has it"),
    Column("kernel_release", "str", "factor", "uname -r on the DUT"),
    Column("mode", "str", "factor", "native or generic: of the program before the change; of attach, after it"),
    Column("event", "str", "factor", "the change: control (none), attach, replace, detach, switch (of mode)"),
    Column("rate_pps", "int", "factor", "pace of the frames"),
    Column("dark_ms", "float", "time", "the longest run of missing numbers, by their pace"),
    Column("dark_packets", "int", "count", "the longest run of missing numbers"),
    Column("lost_packets", "int", "count", "missing numbers between the first and the last frame that came"),
    Column("bare_ms", "float", "time", "bare_packets, by their pace"),
    Column("bare_packets", "int", "count", "frames that came between the two programs, and no program had"),
    Column("held_ms", "float", "time", "the most that a frame was later on its way than the frame before it"),
    Column("arrived_packets", "int", "count", "frames that came"),
    Column("resolution_ms", "float", "time", "the time between two frames at their pace: no shorter outage is seen"),
    Column("late_ms", "float", "time", "how long after its time a frame was sent, at most"),
)  # fmt: skip
VALUES = tuple(column.name for column in COLUMNS if column.kind in ("time", "count"))
_NO_PROGRAM = Absent("before or after this change no program is attached: frames pass bare by intent")


def table_of(plan: OutagePlan) -> pd.DataFrame:
    """Return one row per change, by place, mode and event."""
    rows = name_places(_row(plan.directory.run_id, *attempt) for attempt in plan.attempts())
    places, events = plan.request.places, list(CHANGES)
    rows.sort(key=lambda row: (places.index(row["place"]), MODES.index(row["mode"]), events.index(row["event"])))
    return typed(rows, COLUMNS)


def _row(run_id: str, trial: StudyTrial[OutagePoint], attempt: Attempt, raw: Path) -> dict[str, Any]:
    point, facts = trial.point, facts_of(OutageFacts, attempt)
    row = asdict(point) | {"run_id": run_id, "trial_id": trial.trial_id, "point_id": point.point_id}
    del row["window_s"]
    row |= {"label": facts.label or point.place, "driver": facts.driver, "kernel_release": facts.kernel_release}
    if attempt.status != "measured":
        return row | dict.fromkeys(VALUES, Absent(attempt.reason))
    change, spacing_ms = CHANGES[point.event], 1000 / point.rate_pps
    gaps = gaps_of(heard_in(raw), change)
    bare = _NO_PROGRAM if BARE in change else gaps.bare
    return row | {
        "dark_ms": gaps.longest * spacing_ms,
        "dark_packets": gaps.longest,
        "lost_packets": gaps.lost,
        "bare_ms": bare if isinstance(bare, Absent) else bare * spacing_ms,
        "bare_packets": bare,
        "held_ms": gaps.held_ns / 1e6,
        "arrived_packets": gaps.came,
        "resolution_ms": spacing_ms,
        "late_ms": Absent("the generator did not say") if facts.late_ns is None else facts.late_ns / 1e6,
    }


def middles(table: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return the median of a column with its interval, its least and most, a row per place, mode and event with one."""
    rows = []
    points = table[table[value].notna()].groupby(["place", "label", "mode", "event"], sort=False)
    for (place, label, mode, event), group in points:
        values = group[value].astype(float)
        spread = Spread.of(values, "ranks")
        ends = {"n": spread.n, "low": spread.low, "high": spread.high, "least": values.min(), "most": values.max()}
        rows.append({"place": place, "label": label, "mode": mode, "event": event, "median": spread.median, **ends})
    return pd.DataFrame(rows, columns=["place", "label", "mode", "event", "median", *_ENDS])


_ENDS = ("n", "low", "high", "least", "most")


SHOWN = {"lost": "lost_packets", "dark ms": "dark_ms", "bare ms": "bare_ms", "held ms": "held_ms"}


def tables_of(plan: OutagePlan, table: pd.DataFrame) -> dict[str, Table]:
    """Return a row per place, mode and change with the medians and their 95 % intervals; what was not measured."""
    named = {column: middles(table, value) for column, value in SHOWN.items()}
    keys = ["place", "mode", "event"]
    rows = named["lost"][[*keys, "n"]]
    for column, values in named.items():
        texts = values[keys].assign(**{column: [_text(row) for row in values.to_dict("records")]})
        rows = rows.merge(texts, on=keys, how="left")
    drivers = table.groupby("place", sort=False)["driver"].first()
    rows.insert(1, "driver", rows["place"].map(drivers))
    missing = table[table["dark_ms"].isna()].assign(reason=why_null(table, "dark_ms"))
    left_out = missing.groupby(["place", "mode", "reason"], sort=False).size().rename("trials").reset_index()
    title = "Frames lost by a change: medians [95 % interval], of fewer than six (least to most)"
    shown = rows.rename(columns=_NAMES)
    return {
        "outage": table_with_line(title, shown, lambda *_: first_of(results(plan, table)), table),
        "missing": Table("Not measured", left_out),
    }


_NAMES = {"event": "change"}


def _text(row: dict[Any, Any]) -> str:
    middle, low, high, least, most = (three_digits(row[name]) for name in ("median", *_ENDS[1:]))
    spread = f" ({least} to {most})" if pd.isna(row["low"]) else f" [{low}, {high}]"
    return middle + spread if row["n"] > 1 else middle


def results(_plan: object, table: pd.DataFrame) -> Iterable[str]:
    """Return which changes lose frames, how long a change of mode leaves them bare, and the floor of the method."""
    dark, bare, held = (middles(table, name) for name in ("dark_ms", "bare_ms", "held_ms"))
    if dark.empty:
        return ()
    bare = bare[bare["event"].eq("switch")]
    while_bare = by_place(bare, "frames pass without a program:", _named)
    return by_place(dark, "", lambda rows: _dark(rows, table)), while_bare, _floor(table, held)


def _dark(rows: pd.DataFrame, table: pd.DataFrame) -> str:
    """Name the changes whose whole interval is darker than each control of the place."""
    control = table[table["event"].eq("control") & table["label"].isin(rows["label"])]["dark_ms"].dropna()
    if control.empty or rows["low"].isna().all():
        lossy = rows[rows["most"] > 0]
        others = "every change" if lossy.empty else "the others"
        each = ", ".join(filter(None, (_named(lossy), f"{others} 0 ms" if len(lossy) < len(rows) else "")))
        return f"dark, median of {rows['n'].max()}: {each}; to judge a change takes six repetitions, and a control"
    lossy = rows[rows["low"] > control.max()]
    return "no change is shown to be darker than the controls" if lossy.empty else f"dark are {_named(lossy)}"


def _named(rows: pd.DataFrame) -> str:
    return ", ".join(f"{row['event']} ({row['mode']}) {_text(row)} ms" for row in rows.to_dict("records"))


def _floor(table: pd.DataFrame, held: pd.DataFrame) -> str:
    control = table[table["event"].eq("control") & table["dark_ms"].notna()]
    resolution = three_digits(float(table["resolution_ms"].max()))
    if control.empty:
        return f"no control was measured; the resolution is {resolution} ms"
    quiet = held[held["event"].eq("control")]["median"]
    return (
        f"with nothing done, at most {int(control['lost_packets'].max())} frames are lost, and one is held for "
        f"{three_digits(float(quiet.max()))} ms (median); the resolution is {resolution} ms"
    )


def changes(value: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return the change's milliseconds of every trial that has them, by the change."""
    rows = table[table[value].notna()]
    columns = {"verdict": "valid", "limited_by": None, "hue": rows["mode"], "x": rows["event"]}
    return rows.assign(panel=rows["driver"] + ", " + rows["place"], value=rows[value].astype(float), **columns)


_ORDER = Order(MODES, x_values=tuple(CHANGES))
_BARS = "Medians with their 95 % intervals (from six repetitions on). Hues: the mode before the change."


def _figure(name: str, value: str, title: str, y_label: str, note: str) -> Figure:
    return Figure(
        name, partial(changes, value), Axes("", y_label, share_y=False), kind="beside", collect=medians, order=_ORDER,
        caption=("{places}.", note, _BARS), nothing="nothing was measured", title=title,
    )  # fmt: skip


FIGURES = (
    _figure(
        "dark", "dark_ms", "Dark while an XDP program changes", "dark, ms",
        "The longest run of frames that did not come, by their pace.",
    ),
    _figure(
        "bare", "bare_ms", "Without a program while one is changed", "bare, ms",
        "Frames that came between the two programs, by their pace: no program had them.",
    ),
    _figure(
        "held", "held_ms", "Frames held while an XDP program changes", "held, ms",
        "The most that a frame was later on its way than the frame before it; that of the control is the floor.",
    ),
)  # fmt: skip
VIEWS = views(FIGURES)
