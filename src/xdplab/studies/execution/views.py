"""The study's figures: distributions of times, medians of counted instructions, chains by their length."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import pandas as pd

from xdplab.errors import NotApplicableError
from xdplab.figures.marks import Look, View, marks_frame
from xdplab.studies.execution.points import BACKENDS
from xdplab.studies.execution.summaries import Row, clock_steps, is_warm, medians, rank, values
from xdplab.text import many

BACKEND_WORDS = {"interpreter": "interpreter", "jit": "JIT", "module": "module", "user": "user space"}
KINDS = {"host": "host", "uml": "uml", "kvm": "vm"}
"""Name of the figures of each kind of place whose clock is time."""

TEMPERATURES = {"": False, "-cold": True}
_NS, _INSTRUCTIONS = "time of a call, ns", "instructions of a call"


def _of_kind(table: pd.DataFrame, kind: str) -> pd.DataFrame:
    named = table["place"].astype(str).str.split(":").str[0]
    return table[named.eq(kind) & table["clock"].eq("time")]


def times(kind: str, cold: bool, table: pd.DataFrame) -> View:
    """Return every call of each backend, one panel per benchmark; each backend's maximum is labelled with its index.

    Each of several places, or settings of one, has panels of its own: no distribution is of two of them.
    """
    shown = _with_panels(values(_of_kind(table, kind)))
    chosen = shown["cold"].astype(bool) if cold else is_warm(shown)
    shown = shown[chosen & (shown["links"].isna() | shown["links"].eq(32))]
    known = shown[shown["trap"].isna()]
    if known.empty:
        raise NotApplicableError(f"no call was timed {'cold' if cold else 'warm'} in such a place")
    shown = known[known["value"].gt(0)]
    highest = shown.groupby(["panel", "backend"])["value"].idxmax()
    words = {int(at): f"call {shown.loc[at, 'call']}" for at in highest}
    marks = [_sample(at, row, words) for at, row in zip(shown.index, shown.to_dict("records"), strict=True)]
    marks += _unseen(known[known["value"].le(0)], clock_steps(table))
    look = replace(_look(known, _NS, cold, share_y=False), legend={"below": "calls shorter than one step of the clock"})
    look = replace(look, panels=_panels(known))
    labels = "A maximum bears the index of its call, counted from 0."
    return View(marks_frame(marks), replace(look, caption=(*look.caption, labels)))


def _unseen(calls: pd.DataFrame, steps: Mapping[str, int]) -> list[dict[str, object]]:
    """Return one mark per benchmark and backend for the calls that a clock did not see: its step, and their number."""
    return [
        {
            **_sample(0, {"panel": panel, "backend": backend, "value": float(steps[str(label)])}, {}),
            **{"kind": "below", "label": many(len(group), "call"), "n": len(group)},
        }
        for (panel, backend, label), group in calls.groupby(["panel", "backend", "label"], sort=False)
    ]


def _with_panels(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with their ``panel``: the benchmark, and the place with its setting where there are several."""
    several = rows["label"].nunique() > 1
    return rows.assign(panel=rows["benchmark"] + (", " + rows["label"] if several else ""))


def _panels(rows: pd.DataFrame) -> tuple[str, ...]:
    """Return the panels in their order: by benchmark, then by place."""
    each = rows.drop_duplicates("panel")
    return tuple(each.sort_values("benchmark", key=lambda names: names.map(rank), kind="stable")["panel"])


def _sample(at: int, row: Row, words: dict[int, str]) -> dict[str, object]:
    place = {"figure": "times", "file": "times", "kind": "sample", "panel": row["panel"]}
    backend = BACKEND_WORDS[str(row["backend"])]
    return place | {"hue": backend, "x": "", "value": row["value"], "n": 1, "verdict": "valid", "label": words.get(at)}


def counts(table: pd.DataFrame) -> View:
    """Return one mark per backend and benchmark: the median of counted instructions, one panel per place."""
    counted = table[table["clock"].eq("instructions") & is_warm(table) & table["trap"].isna()]
    counted = counted[counted["links"].isna() | counted["links"].eq(32)]
    if counted.empty:
        raise NotApplicableError("nothing was counted")
    found = medians(counted)
    marks = [_mark("counts", "beside", row, row["benchmark"]) for row in found.to_dict("records")]
    return View(marks_frame(marks), _look(counted, _INSTRUCTIONS, False))


def chains(clock: str, table: pd.DataFrame) -> View:
    """Return the medians of a chain by its length, one panel per place, of places with that clock."""
    shown = table[table["clock"].eq(clock) & table["links"].notna() & is_warm(table)]
    if shown["links"].nunique() < 2:
        raise NotApplicableError("chains of at least two lengths are needed")
    links = shown.drop_duplicates("benchmark").set_index("benchmark")["links"]
    found = medians(shown)
    marks = [_mark("chains", "line", row, int(links[row["benchmark"]])) for row in found.to_dict("records")]
    look = _look(shown, _NS if clock == "time" else _INSTRUCTIONS, False)
    return View(marks_frame(marks), replace(look, x_label="links", x_scale="log", x_values=()))


def pauses(table: pd.DataFrame) -> View:
    """Return the medians of timed calls by the pause before each: what idling costs.

    A panel has one benchmark of one place and setting.
    """
    shown = table[table["clock"].eq("time") & ~table["cold"].astype(bool) & table["trap"].isna()]
    if shown["pause_us"].nunique() < 2:
        raise NotApplicableError("calls after at least two pauses are needed")
    found = medians(shown)
    found = _with_panels(found[found["value"].notna()])
    marks = [
        _mark("pauses", "line", row | {"label": row["panel"]}, f"{row['pause_us']:,}")
        for row in found.to_dict("records")
    ]
    order = tuple(f"{pause:,}" for pause in sorted(found["pause_us"].unique()))
    cause = "After a pause the CPU comes out of an idle state, and others have used its caches."
    look = replace(_look(shown, _NS, False, share_y=False), x_label="asleep before each call, µs", x_values=order)
    where = f"{'; '.join(dict.fromkeys(shown['label']))}."
    look = replace(look, panels=_panels(found), caption=(where, *look.caption[1:], cause))
    return View(marks_frame(marks), look)


def _mark(figure: str, kind: str, row: Row, x: object) -> dict[str, object]:
    place = {"figure": figure, "file": figure, "kind": kind, "panel": row["label"], "x": x}
    size = {name: row[name] for name in ("value", "low", "high", "n")}
    return place | size | {"hue": BACKEND_WORDS[str(row["backend"])], "verdict": "valid"}


def _look(shown: pd.DataFrame, y_label: str, cold: bool, share_y: bool = True) -> Look:
    order = tuple(sorted(shown["benchmark"].unique(), key=rank))
    how = "before each call loaded anew and caches evicted" if cold else "warm"
    return Look(
        x_label="",
        y_label=y_label,
        y_scale="log",
        hues=tuple(BACKEND_WORDS.values()),
        panels=order,
        x_values=order,
        share_y=share_y,
        caption=(f"{'; '.join(dict.fromkeys(shown['label']))}; {how}.", *_notes(shown)),
    )


def _notes(shown: pd.DataFrame) -> tuple[str, ...]:
    if shown["clock"].eq("instructions").all():
        return ("Counted by the emulator: a nanosecond of the guest's clock is one instruction.",)
    repetitions = int(shown["repetition"].nunique())
    return (f"n = {many(repetitions, 'repetition')}.",)


VIEWS: dict[str, Callable[[pd.DataFrame], View]] = {
    **{
        f"times-{name}{end}": partial(times, kind, cold)
        for name, kind in KINDS.items()
        for end, cold in TEMPERATURES.items()
    },
    "counts": counts,
    "pauses": pauses,
    "chains-counts": partial(chains, "instructions"),
    "chains-times": partial(chains, "time"),
}
assert set(BACKEND_WORDS) == set(BACKENDS)
