"""The study's figures; marks come only from the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
import pandas as pd

from xdplab.figures.caption import because
from xdplab.figures.marks import NO_BACKENDS, Axes, Order, Words
from xdplab.run.frames import why_null
from xdplab.studies.figure_table import Columns, Content, Figure, several_places, views
from xdplab.studies.jit import joined
from xdplab.studies.jit.joined import CLASSIC, SPEED_UP
from xdplab.studies.jit.points import AMPLIFIED, FILTERS, INSN_CLASSES, MODES, TCP, TEST_BPF, TRAFFIC, JitPoint
from xdplab.studies.jit.summaries import PUBLISHED_MEAN

WORDS = {"interpreter": "interpreter", "jit": "JIT"}
HUES = tuple(WORDS.values())
LONGEST_LABEL = 14
CLASS_FIGURES = {
    "arithmetic": ("alu64", "alu32", "mul, div", "shift", "byte swap"),
    "memory": ("packet", "stack", "atomic"),
    "control": ("jump", "jump32", "call"),
    "helpers": ("map lookup", "map update", "ring buffer", "helper"),
}
"""Figures of instruction classes, and the groups that are their panels."""
MEAN = "speed-up, geometric"
PUBLISHED_AS = "Elbrus, Linux 6.1, in time (published)"


def _by_mode(rows: pd.DataFrame, **more: pd.DataFrame) -> pd.DataFrame:
    """Return each row once per mode: with its ``value``, null if it is not above 0, and the values of ``more``."""
    parts = [
        rows.assign(
            hue=WORDS[mode],
            mode=mode,
            value=rows[mode].astype(float).where(rows[mode] > 0),
            **{name: wide[mode].loc[rows.index] for name, wide in more.items()},
        )
        for mode in MODES
    ]
    return pd.concat(parts)


def _panels(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(panel=rows["label"] if several_places(rows) else "")


def _of_place(rows: pd.DataFrame) -> pd.Series:
    """Return what a panel's title says of the place: nothing, where there is one."""
    return (", " + rows["label"]) if several_places(rows) else pd.Series("", index=rows.index)


def _with_reasons(rows: pd.DataFrame, measured: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Add the column ``reason`` to rows of each mode: why one has no cost."""
    by = ["label", *keys, "mode"]
    reasons = measured.assign(reason=why_null(measured, "cost")).dropna(subset=["reason"]).drop_duplicates(by)
    return rows.merge(reasons[[*by, "reason"]], on=by, how="left")


def _tests(table: pd.DataFrame) -> pd.DataFrame:
    rows = joined.tests(table)
    return _panels(rows[rows["subject"].eq("test_bpf") & rows["number"].notna()])


def _all_tests(table: pd.DataFrame) -> pd.DataFrame:
    return _by_mode(_tests(table))


def _classic_tests(table: pd.DataFrame) -> pd.DataFrame:
    """Return the classic tests with their ``rank``, from 0 as in the module."""
    rows = _tests(table)
    rows = _panels(rows[rows["classic"].fillna(False).astype(bool)])
    return _by_mode(rows.assign(rank=rows.groupby("label").cumcount()))


def _speed_ups(table: pd.DataFrame) -> pd.DataFrame:
    rows = _tests(table).dropna(subset=[SPEED_UP])
    hues = rows["classic"].map({True: "classic", False: "eBPF"}).fillna("unknown")
    return _panels(rows.assign(hue=hues, number=rows["number"].astype(float)))


def _tests_of(suite: str) -> Callable[[Content], str]:
    def counted(content: Content) -> str:
        """Return the number of tests; if places measured different tests, the number of each."""
        counts = content.rows.groupby("label")["number"].nunique()
        return f"{' and '.join(map(str, dict.fromkeys(counts)))} tests of {suite}; {{places}}."

    return counted


def _means(content: Content) -> str:
    """Return the mean speed-up as text if one place has both modes."""
    each = content.rows.drop_duplicates(["label", "number", "name", "classic"])
    ratios = each[SPEED_UP].dropna().astype(float)
    if ratios.empty or several_places(each):
        return ""
    geometric = float(np.exp(np.log(ratios).mean()))
    return f"Mean speed-up {ratios.mean():.1f}× (arithmetic), {geometric:.1f}× (geometric)."


def _architectures(table: pd.DataFrame) -> pd.DataFrame:
    """Return each kind of test, its places beside each other: ratios have no unit, so all share one axis."""
    rows = joined.kinds(table) if not table.empty else table
    if rows.empty:
        return rows
    rows = joined.in_order(rows.dropna(subset=[MEAN]))
    published = pd.DataFrame([{"label": PUBLISHED_AS, "kind": CLASSIC, MEAN: PUBLISHED_MEAN}])
    return (pd.concat([rows, published]) if rows["kind"].eq(CLASSIC).any() else rows).assign(panel="")


def _compared(content: Content) -> str:
    compared = content.rows[content.rows["kind"].eq(joined.ALL)]
    numbers = "; ".join(f"{row['label']}: {row['compared']:g} tests" for row in compared.to_dict("records"))
    return f"Geometric means of the tests' speed-ups in test_bpf ({numbers})."


def _classes(groups: tuple[str, ...], table: pd.DataFrame) -> pd.DataFrame:
    """Return the classes of some groups; each group, of each place, has a panel."""
    classes = joined.with_groups(joined.side_by_side(joined.part(table, INSN_CLASSES), ["subject"]))
    rows = classes[classes["group"].isin(groups)]
    short = [
        _shortened("array" if subject == group else subject.removeprefix(f"{group} "))
        for subject, group in zip(rows["subject"], rows["group"], strict=True)
    ]
    return _by_mode(rows.assign(panel=rows["group"].astype("object") + _of_place(rows), short=short))


def _groups_in_order(groups: tuple[str, ...], content: Content) -> Order:
    places = dict.fromkeys(_of_place(content.rows))
    return Order(HUES, tuple(f"{group}{place}" for place in places for group in groups), columns=1)


def _shortened(subject: str) -> str:
    """Return a filter's name so that it fits below a bar; tables have the whole of it."""
    return subject if len(subject) <= LONGEST_LABEL else subject[: LONGEST_LABEL - 1].rstrip() + "…"


def _filters(table: pd.DataFrame) -> pd.DataFrame:
    """Each filter on the packet that costs it most."""
    measured, keys = joined.part(table, FILTERS), ["subject", "name"]
    rows = joined.side_by_side(measured, keys).dropna(subset=MODES, how="all")
    costs = rows[list(MODES)].astype(float).max(axis=1)
    worst = _panels(rows.loc[costs.groupby([rows["label"], rows["subject"]]).idxmax()])
    return _with_reasons(_by_mode(_short(worst)), measured, keys)


def _amplified(table: pd.DataFrame) -> pd.DataFrame:
    measured, keys = joined.part(table, AMPLIFIED), ["subject", "number"]
    costs, lows, highs = (joined.side_by_side(measured, keys, value) for value in ("cost", "low", "high"))
    return _with_reasons(_by_mode(_short(_panels(costs)), low=lows, high=highs), measured, keys)


def _shares(part: str, key: str, panels: Callable[[pd.Series], pd.Series], table: pd.DataFrame) -> pd.DataFrame:
    """Return a filter's share of all work in percent; ``panels`` names the panel of each value of ``key``."""
    measured, keys = joined.part(table, part), ["subject", key]
    rows = joined.shares(measured, keys)
    rows = rows.assign(**{mode: rows[mode] * 100.0 for mode in MODES}, panel=panels(rows[key]) + _of_place(rows))
    return _with_reasons(_by_mode(_short(rows)), measured, keys)


def _short(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(short=rows["subject"].map(_shortened))


def _without_bar(content: Content) -> str:
    """Say which bars a reader misses, and why."""
    rows = content.rows[content.rows["value"].isna() & content.rows["reason"].notna()]
    bars = [
        ", ".join(filter(None, (row["hue"], row["short"], str(row["panel"]).strip())))
        for row in rows.to_dict("records")
    ]
    return f"No bar: {because(rows['reason'], bars)}." if bars else ""


def _sockets(content: Content) -> str:
    sockets = "; ".join(f"{number:.0f} packet sockets" for number in content.rows["number"].unique())
    return f"Entering the filter included; {sockets} run it on each datagram; {{places}}."


BY_MODE, IN_ONE_COLUMN = Order(HUES), Order(HUES, columns=1)
ONE_RUN, PACKET_SOCKET = "one run, {unit}", "classic filter of a packet socket"
ELBRUS = "Elbrus: the published mean of about 120 classic tests; the kind of mean is not published."
VALUES_ABOVE = Words(bar_values=True)

FIGURES = (
    Figure(
        "test_bpf", _all_tests, Axes("number of the test", ONE_RUN, "linear", "log", share_y=False), Columns("number"),
        kind="dot", order=BY_MODE,
        title="The kernel's own tests, interpreted and compiled",
        caption=(_tests_of("the kernel's module test_bpf"), _means),
    ),
    Figure(
        "classic", _classic_tests,
        Axes("classic test, in the module's order, from 0", ONE_RUN, "linear", "log", share_y=False), Columns("rank"),
        kind="dot", order=BY_MODE,
        title="The kernel's own classic tests, interpreted and compiled",
        caption=(_tests_of("the kernel's module test_bpf"), _means),
    ),
    Figure(
        "speed-up", _speed_ups, Axes("number of the test", "interpreter by JIT", "linear", "log"),
        Columns("number", SPEED_UP), kind="dot", order=Order(("classic", "eBPF")),
        title="What compiling gains, by test",
        caption=(_tests_of("test_bpf"), _means),
    ),
    Figure(
        "architectures", _architectures, Axes("kind of test", "interpreter by JIT", y_scale="log"),
        Columns("kind", MEAN, ("label",)), kind="beside", order=Order(columns=1, palette=NO_BACKENDS),
        title="What compiling gains, by kind of test and place",
        caption=(_compared, ELBRUS),
        nothing="no place has measured a test of test_bpf in both modes",
    ),
    *(
        Figure(
            f"classes-{name}", partial(_classes, groups),
            Axes("instruction class", "one body, {unit}", y_scale="log", share_x=False), Columns("short"),
            kind="beside", order=partial(_groups_in_order, groups),
            title=f"One instruction, interpreted and compiled: {name}",
            caption=("Difference of two programs of one class by BPF_PROG_TEST_RUN; {places}.",),
        )
        for name, groups in CLASS_FIGURES.items()
    ),
    Figure(
        "filters", _filters, Axes("classic filter", ONE_RUN, share_y=False), Columns("short"), kind="bar",
        order=IN_ONE_COLUMN, words=VALUES_ABOVE,
        title="What a classic filter costs, interpreted and compiled",
        caption=("Entering the filter included; on the packet that costs most; {places}.", _without_bar),
    ),
    Figure(
        "traffic", partial(_shares, TRAFFIC, "number", lambda bytes_: bytes_.astype(str) + " bytes of payload"),
        Axes(PACKET_SOCKET, "filter's share of a datagram, %"), Columns("short"), kind="bar",
        order=IN_ONE_COLUMN, words=VALUES_ABOVE,
        title="A filter's share of the work for a datagram",
        caption=("UDP over loopback, send() to recv(); {places}.", _without_bar),
    ),
    Figure(
        "amplified", _amplified, Axes(PACKET_SOCKET, ONE_RUN, y_scale="log", share_y=False), Columns("short"),
        kind="beside", order=IN_ONE_COLUMN,
        title="What a filter costs, by many packet sockets",
        caption=(_sockets, _without_bar),
    ),
    Figure(
        "tcp", partial(_shares, TCP, "name", lambda names: names.astype(str).str.split(",").str[0]),
        Axes(PACKET_SOCKET, "filter's share of all work, %"), Columns("short"), kind="bar",
        order=IN_ONE_COLUMN, words=VALUES_ABOVE,
        title="A filter's share of the work for TCP",
        caption=("One TCP connection over loopback, as netperf's tests of these names; {places}.", _without_bar),
    ),
)  # fmt: skip
VIEWS = views(FIGURES)

_PARTS = {TEST_BPF: ("test_bpf", "classic"), INSN_CLASSES: tuple(f"classes-{name}" for name in CLASS_FIGURES),
          FILTERS: ("filters",), TRAFFIC: ("traffic",), AMPLIFIED: ("amplified",), TCP: ("tcp",)}  # fmt: skip
_OF_BOTH = ("speed-up", "architectures")


def possible(points: Iterable[JitPoint]) -> set[str]:
    """Return the figures of the parts that a run measures; ratios need both modes of test_bpf at one place."""
    names: set[str] = set()
    modes: dict[str, set[str]] = {}
    for point in points:
        names.update(_PARTS[point.part])
        if point.part == TEST_BPF:
            modes.setdefault(point.place, set()).add(point.mode)
    return names | (set(_OF_BOTH) if any(set(MODES) <= of_place for of_place in modes.values()) else set())
