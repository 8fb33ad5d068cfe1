"""From the journal and the raw files to one row per trial; each arm beside no program, paired by repetition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from xdplab.absent import Absent
from xdplab.analysis.intervals import Spread
from xdplab.analysis.sentences import Estimate, estimate, span
from xdplab.analysis.values import three_digits
from xdplab.counters.cpu import TICK_NS
from xdplab.figures.marks import NO_BACKENDS, Axes, Order
from xdplab.run.columns import Column
from xdplab.run.frames import typed, why_null
from xdplab.studies.figure_table import Columns, Figure, views
from xdplab.studies.meaning import by_place, first_of, table_with_line
from xdplab.studies.neighbour.points import ARMS, NONE, NeighbourPoint, NeighbourRequest
from xdplab.studies.neighbour.tcp import AFTER, BEFORE, FULL, PACED, busy_ticks, parse_iperf3
from xdplab.studies.places import PlaceFacts
from xdplab.studies.points import Row, StudyPlan
from xdplab.studies.tables import Table

NeighbourPlan = StudyPlan[NeighbourRequest, NeighbourPoint]

GB = 1e9

COLUMNS: tuple[Column[Any], ...] = (
    Column("run_id", "str", "id", "the run"),
    Column("trial_id", "str", "id", "point and repetition"),
    Column("place", "str", "factor", "the lab"),
    Column("label", "str", "factor", "the lab in a few words, with the DUT's kernel"),
    Column("repetition", "int", "factor", "all arms of one repetition are compared with each other"),
    Column("arm", "str", "factor", "the program on the DUT's port and its mode, or no program"),
    Column("mode_obtained", "str", "factor", "the mode that the kernel reports; null without a program"),
    Column("dut_offloads", "str", "state", "of tso, gso, gro, lro: those on at the DUT's port meanwhile"),
    Column("tg_offloads", "str", "state", "the same at the TG's port: a native program on a veth changes it"),
    Column("throughput_bps", "float", "rate", "TCP payload that the DUT's server received, one stream at full rate"),
    Column("received_bytes", "int", "count", "that payload"),
    Column("retransmits", "int", "count", "segments that the TG sent again meanwhile"),
    Column("congestion", "str", "state", "the TG's congestion control, which sets TCP's rate: bbr, cubic"),
    Column("cpu_s", "float", "time", "time in which all CPUs of the DUT's kernel worked meanwhile, from /proc/stat; in "
           "a lab with one kernel they are the sender's too"),
    Column("cpu_s_per_gb", "float", "rate", "CPU time per gigabyte (10⁹ bytes) received"),
    Column("rtt_us", "int", "time", "TCP's smoothed round-trip time (the sender's tcpi_rtt): its mean in a second at "
           "10 Mbit/s"),
)  # fmt: skip
_MEASURED = tuple(column.name for column in COLUMNS if column.kind not in ("id", "factor"))


@dataclass
class NeighbourFacts(PlaceFacts):
    """A trial's facts: the mode, and the offloads that were on while it sent."""

    mode_obtained: str | None = None
    dut_offloads: str | None = None
    tg_offloads: str | None = None


class Metric(NamedTuple):
    """A column that is compared: its ``title``, its unit, and what divides it into that unit."""

    column: str
    title: str
    unit: str
    scale: float


METRICS = (
    Metric("throughput_bps", "throughput", "Gbit/s", 1e9),
    Metric("cpu_s_per_gb", "CPU", "s/GB", 1.0),
    Metric("rtt_us", "RTT", "µs", 1.0),
)


def table_of(plan: NeighbourPlan) -> pd.DataFrame:
    """Return one row per trial, in the order of arms, repetition after repetition."""
    rows = [row | {"label": row["label"] or row["place"]} for row in plan.rows(NeighbourFacts, _values, _MEASURED)]
    rows.sort(key=lambda row: (row["place"], row["repetition"], [*ARMS].index(row["arm"])))
    return typed(rows, COLUMNS)


def _values(_point: NeighbourPoint, _facts: NeighbourFacts, raw: Path) -> Iterator[Row]:
    full, paced = (parse_iperf3((raw / name).read_bytes()) for name in (FULL, PACED))
    before, after = (busy_ticks((raw / name).read_bytes()) for name in (BEFORE, AFTER))
    cpu_s = (after - before) * TICK_NS / 1e9
    yield {
        "throughput_bps": full.received_bytes * 8 / full.seconds,
        "received_bytes": full.received_bytes,
        "retransmits": full.retransmits,
        "congestion": full.congestion,
        "cpu_s": cpu_s,
        "cpu_s_per_gb": cpu_s / full.received_bytes * GB if full.received_bytes else Absent("nothing was received"),
        "rtt_us": paced.rtt_us,
    }


def ratios(rows: pd.DataFrame, column: str) -> dict[str, Estimate]:
    """Return each arm's quotient to no program in one lab, paired by repetition, with its interval; arms without a
    pair are left out."""
    wide = rows.pivot(index="repetition", columns="arm", values=column).astype(float)
    if NONE not in wide:
        return {}
    wide = wide.where(wide.gt(0))  # a quotient of nothing says nothing
    pairs = {arm: (wide[arm] / wide[NONE]).dropna() for arm in ARMS if arm in wide and arm != NONE}
    return {
        arm: Estimate.of({arm: {float(str(n)): float(value) for n, value in of_arm.items()}})
        for arm, of_arm in pairs.items()
        if len(of_arm)
    }


def means(rows: pd.DataFrame, metric: Metric) -> dict[str, Estimate]:
    """Return each arm's geometric mean in the metric's unit, with its interval."""
    measured = rows[rows[metric.column].fillna(0).gt(0)]
    spreads = {
        str(arm): Spread.of(of_arm.astype(float) / metric.scale, "geometric")
        for arm, of_arm in measured.groupby("arm", sort=False)[metric.column]
    }
    return {arm: estimate(spread.mean, spread.low, spread.high) for arm, spread in spreads.items()}


def tables_of(plan: NeighbourPlan, table: pd.DataFrame) -> dict[str, Table]:
    """Return one row per lab and arm: means, and quotients to no program."""
    rows = [_shown(of_lab, arm) for _, of_lab in table.groupby("place", sort=False) for arm in of_lab["arm"].unique()]
    title = "TCP through the port; × is to no program, paired by repetition"
    return {"arms": table_with_line(title, pd.DataFrame(rows), lambda *_: first_of(results(plan, table)), table)}


def _shown(of_lab: pd.DataFrame, arm: str) -> dict[str, object]:
    rows = of_lab[of_lab["arm"].eq(arm)]
    measured = rows[rows["throughput_bps"].notna()]
    row: dict[str, object] = {"place": rows["label"].iloc[0], "arm": arm, "n": len(measured)}
    for metric in METRICS:
        mean, ratio = means(rows, metric).get(arm), ratios(of_lab, metric.column).get(arm)
        row[f"{metric.title}, {metric.unit}"] = three_digits(mean.value) if mean else None
        row[f"× {metric.title}"] = ratio.text() if ratio else None
    row["TG's offloads"] = ", ".join(measured["tg_offloads"].unique()) or None
    return row | {"why not": next(iter(why_null(rows, "throughput_bps").dropna()), None)}


_SENTENCES = (
    ("throughput_bps", "TCP keeps", " of the throughput without a program"),
    ("cpu_s_per_gb", "a gigabyte takes", " of the CPU time without a program"),
    ("rtt_us", "the round trip takes", " of the time without a program"),
)


def results(_plan: object, table: pd.DataFrame) -> list[str]:
    """Return what programs leave of throughput, what a gigabyte and a round trip cost, as quotients to no program."""

    def of_place(rows: pd.DataFrame, column: str, verb: str, end: str) -> str:
        of_arms = ratios(rows, column)
        return f"{verb} {span([*of_arms.items()])}{end}" if of_arms else ""

    return [
        by_place(table, "", partial(of_place, column=column, verb=verb, end=end)) for column, verb, end in _SENTENCES
    ]


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
            "n": int(of_lab.loc[of_lab["arm"].eq(arm), metric.column].gt(0).sum()),
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
