"""The study's figures: distributions of times, medians of counted instructions, chains by their length."""

from __future__ import annotations

from functools import partial

import pandas as pd

from xdplab.figures.marks import Axes, Order, Words
from xdplab.studies.execution.points import BACKENDS
from xdplab.studies.execution.summaries import clock_steps, is_warm, medians, rank, values
from xdplab.studies.figure_table import Columns, Content, Figure, Marks, each_row, several_places, views
from xdplab.text import many

BACKEND_WORDS = {"interpreter": "interpreter", "jit": "JIT", "module": "module", "user": "user space"}
KINDS = {"host": "host", "uml": "uml", "kvm": "vm"}
"""Name of the figures of each kind of place whose clock is time."""

WHERE = {"host": "on this machine", "uml": "in user-mode Linux", "kvm": "in a guest under KVM"}
TEMPERATURES = {"": ("warm", "warm"), "-cold": ("cold", "before each call loaded anew and caches evicted")}
"""By the end of a figure's name: how its calls are called, and how they were made."""
NS, INSTRUCTIONS = "time of a call, ns", "instructions of a call"


def times(kind: str, temperature: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return every call of each backend, one panel per benchmark; each backend's maximum is labelled with its index.

    Each of several places, or settings of one, has panels of its own: no distribution is of two of them.
    """
    named = table["place"].astype(str).str.split(":").str[0]
    calls = _with_panels(values(table[named.eq(kind) & table["clock"].eq("time")]))
    chosen = calls["cold"].astype(bool) if temperature == "cold" else is_warm(calls)
    calls = calls[chosen & (calls["links"].isna() | calls["links"].eq(32))]
    comparable = calls[calls["trap"].isna()]
    seen = comparable["value"].gt(0)
    highest = comparable[seen].groupby(["panel", "backend"])["value"].idxmax()
    text = pd.Series({at: f"call {comparable.loc[at, 'call']}" for at in highest}, dtype=object)
    samples = comparable.assign(value=comparable["value"].where(seen), n=1, x="", text=text, drawn_as="sample")
    return pd.concat([samples, _unseen(comparable[~seen], table)])


def _unseen(calls: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per benchmark and backend for the calls that a clock did not see: its step, and their number."""
    steps = clock_steps(table)
    rows = calls.groupby(["panel", "hue", "benchmark", "label"], sort=False).size().rename("n").reset_index()
    text = rows["n"].map(lambda count: many(count, "call"))
    return rows.assign(value=rows["label"].map(steps).astype(float), x="", text=text, drawn_as="below")


def _with_panels(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with ``panel``, the benchmark, and its place and setting where there are several; and ``hue``."""
    panel = rows["benchmark"] + (", " + rows["label"] if several_places(rows) else "")
    return rows.assign(panel=panel, hue=rows["backend"].map(BACKEND_WORDS))


def counts(table: pd.DataFrame) -> pd.DataFrame:
    """Return the calls whose instructions were counted."""
    counted = table["clock"].eq("instructions") & is_warm(table) & table["trap"].isna()
    return values(table[counted & (table["links"].isna() | table["links"].eq(32))])


def chains(clock: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return the calls of a chain of each length, of places with that clock."""
    rows = table[table["clock"].eq(clock) & table["links"].notna() & is_warm(table)]
    return values(rows) if rows["links"].nunique() > 1 else rows.iloc[:0]


def pauses(table: pd.DataFrame) -> pd.DataFrame:
    """Return the timed calls after each pause: what idling costs.

    A panel has one benchmark of one place and setting.
    """
    rows = table[table["clock"].eq("time") & ~table["cold"].astype(bool) & table["trap"].isna()]
    return values(rows.sort_values("place", kind="stable")) if rows["pause_us"].nunique() > 1 else rows.iloc[:0]


def _medians(figure: Figure, rows: pd.DataFrame) -> Marks:
    """Return a mark per point and backend: the median of its calls."""
    links = rows.drop_duplicates("benchmark").set_index("benchmark")["links"]
    points = medians(rows)
    points = _with_panels(points[points["value"].notna()])
    pause = points["pause_us"].map("{:,}".format)
    return each_row(figure, points.assign(links=points["benchmark"].map(links).astype("Int64"), pause=pause))


def _benchmarks(content: Content) -> Order:
    names = sorted((str(name) for name in content.rows["benchmark"].unique()), key=rank)
    return Order(HUES, x_values=tuple(names))


def _panels(content: Content) -> Order:
    """Return the panels in their order: by benchmark, then by place."""
    each = _with_panels(content.rows).drop_duplicates("panel")
    each = each.sort_values("benchmark", key=lambda names: names.map(rank), kind="stable")
    pauses = sorted(content.rows["pause_us"].dropna().unique())
    return Order(HUES, tuple(each["panel"]), tuple(f"{pause:,}" for pause in pauses))


def _repetitions(content: Content) -> str:
    if content.rows["clock"].eq("instructions").all():
        return "Counted by the emulator: a nanosecond of the guest's clock is one instruction."
    return f"n = {many(int(content.rows['repetition'].nunique()), 'repetition')}."


HUES = tuple(BACKEND_WORDS.values())
WARM = "{places}; warm."
IDLING = "After a pause the CPU comes out of an idle state, and others have used its caches."
UNSEEN = Words(legend={"below": "calls shorter than one step of the clock"})
TOO_SHORT = "chains of at least two lengths are needed"

FIGURES = (
    *(
        Figure(
            f"times-{name}{end}", partial(times, kind, temperature), Axes("", NS, y_scale="log", share_y=False),
            kind="sample", order=_panels, words=UNSEEN, figure="times",
            caption=(f"{{places}}; {how}.", _repetitions, "A maximum bears the index of its call, counted from 0."),
            nothing=f"no call was timed {temperature} in such a place",
            title=f"Time of a call, {temperature}, {WHERE[name]}",
        )
        for name, kind in KINDS.items()
        for end, (temperature, how) in TEMPERATURES.items()
    ),
    Figure(
        "counts", counts, Axes("", INSTRUCTIONS, y_scale="log"), Columns("benchmark", panel=("label",)), kind="beside",
        order=_benchmarks, collect=_medians, caption=(WARM, _repetitions), nothing="nothing was counted",
        title="Instructions of a call, by benchmark and backend", exact=True,
    ),
    Figure(
        "pauses", pauses, Axes("asleep before each call, µs", NS, y_scale="log", share_y=False), Columns("pause"),
        order=_panels, collect=_medians, caption=("{places}.", _repetitions, IDLING),
        nothing="calls after at least two pauses are needed", title="Time of a call after a pause",
    ),
    *(
        Figure(
            f"chains-{name}", partial(chains, clock), Axes("links", unit, "log", "log"),
            Columns("links", panel=("label",)), order=Order(HUES), collect=_medians,
            caption=(WARM, _repetitions), nothing=TOO_SHORT, figure="chains",
            title=f"{what} of a call through a chain of tail calls, by its length", exact=clock == "instructions",
        )
        for name, clock, unit, what in (
            ("counts", "instructions", INSTRUCTIONS, "Instructions"), ("times", "time", NS, "Time"),
        )
    ),
)  # fmt: skip
VIEWS = views(FIGURES)
assert set(BACKEND_WORDS) == set(BACKENDS)
