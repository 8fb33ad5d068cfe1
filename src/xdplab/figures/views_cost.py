"""Views of what the work costs: service time with its line, cost of an access, counters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isnan

import pandas as pd

from xdplab.analysis.fit import Line, Slope, fit_line, slope
from xdplab.figures.factors import FigureRequest, label_order
from xdplab.figures.marks import Axes, Look, Order, View, Words, collect
from xdplab.figures.views import ACCESSES, described, hue_order, labelled, unlimited


def service_time(request: FigureRequest) -> View:
    """CPU time per packet against N, with the line t0 + c N of each hue and panel, and c with its interval."""
    rows = labelled(request)
    marks = collect(rows, request.figure, "point")
    notes: dict[str, list[tuple[str, str]]] = {}
    believed = rows[rows["verdict"] == "valid"]
    for (panel, hue), group in believed.groupby(["panel", "hue"], sort=False):
        x = group["x"].astype(float)
        line, cost = fit_line(x, group["value"]), slope(x, group["value"], group["repetition"])
        if line is None or cost is None:
            continue
        marks += _line_marks(request.figure, str(panel), str(hue), line, float(group["x"].max()))
        notes.setdefault(str(panel), []).append((str(hue), cost_text(cost)))
    # One N, or programs of one's own, have no line.
    model = "Lines: t = t0 + c·N, least squares weighted by 1/t²; c with its 95 % interval over repetitions."
    place = {hue: rank for rank, hue in enumerate(hue_order(request))}
    ordered = {panel: tuple(sorted(lines, key=lambda line: place[line[0]])) for panel, lines in notes.items()}
    look = Look(Axes(ACCESSES, "CPU time per packet (ns)", "linear"), words=Words(notes=ordered))
    return described(request, marks, look, model if notes else "")


def cost_text(cost: Slope) -> str:
    """Return ``c = 2.41 ± 0.02 ns`` with the digits that the interval allows."""
    if isnan(cost.half):
        return f"c = {cost.c:.3g} ns"
    digits = max(0, min(4, -int(f"{cost.half:.0e}".split("e")[1]))) if cost.half > 0 else 3
    return f"c = {round(cost.c, digits) + 0.0:.{digits}f} ± {cost.half:.{digits}f} ns"


def _line_marks(figure: str, panel: str, hue: str, line: Line, last: float) -> list[dict[str, object]]:
    base = {"figure": figure, "file": figure, "kind": "fit", "panel": panel, "hue": hue, "verdict": "valid"}
    return [base | {"x": x, "value": line.at(x)} for x in (0.0, last)]


def access_cost(request: FigureRequest) -> View:
    """CPU time of one access by program, with BPF_PROG_TEST_RUN of the same program beside it."""
    rows = labelled(request, request.trials["program"])
    marks = collect(unlimited(rows), request.figure, "bar")
    check = replace(request, value="testrun_an_access_ns")
    beside = unlimited(labelled(check, request.trials["program"]))
    marks += [mark for mark in collect(beside, request.figure, "point") if mark["kind"] != "raw"]  # rings are the bars'
    counts = sorted(request.trials["accesses"].dropna().unique())
    note = f"(1/rate(N) − 1/rate(0)) × CPUs / N at the largest N of each program ({', '.join(map(str, counts))})."
    names = label_order(request.trials, ("program_name",), alone=True)
    words = Words(point_label="BPF_PROG_TEST_RUN", bar_values=True)
    look = Look(Axes("program", "CPU time per access (ns)"), Order(x_values=names), words)
    return described(request, marks, look, note, beside=("accesses",))


@dataclass(frozen=True)
class Counter:
    """``column`` divided by ``per``, both of trials.parquet; ``title`` is the panel's."""

    column: str
    per: str | None
    title: str


COUNTERS = (
    Counter("instructions", "perf_packets", "instructions per packet"),
    Counter("cycles", "perf_packets", "cycles per packet"),
    Counter("ipc", None, "instructions per cycle"),
    Counter("branches", "perf_packets", "branches per packet"),
    Counter("branch_misses", "perf_packets", "branch misses per packet"),
    Counter("l1d_loads", "perf_packets", "L1d loads per packet"),
    Counter("l1d_misses", "perf_packets", "L1d misses per packet"),
    Counter("host_instructions", "perf_packets", "instructions per packet (whole machine)"),
    Counter("host_cycles", "perf_packets", "cycles per packet (whole machine)"),
    Counter("host_context_switches", None, "context switches in the perf pass (whole machine)"),
    Counter("softnet_squeezed", None, "NAPI out of budget (times)"),
    Counter("softnet_dropped", None, "backlog drops (frames)"),
    Counter("xsk_dropped", None, "AF_XDP ring drops (frames)"),
    Counter("program_run_ns", None, "program run time (ns, BPF statistics)"),
)


def melted_counters(trials: pd.DataFrame) -> pd.DataFrame:
    """Return one row per trial and counter that it has, with the columns counter and counter_value.

    A counter that is 0 in every trial makes no panel: the column silent names it.
    """
    silent = silent_counters(trials)
    trials = trials.assign(silent=", ".join(counter.title for counter in silent))
    parts = [trials.iloc[:0].assign(counter="", counter_value=pd.Series(dtype="Float64"))]
    for counter in COUNTERS:
        if counter in silent:
            continue
        values = trials[counter.column].astype("Float64")
        if counter.per is not None:
            values = values / trials[counter.per].astype("Float64").where(trials[counter.per].gt(0))
        counter_rows = trials.assign(counter=counter.title, counter_value=values)
        parts.append(counter_rows[values.notna()])
    return pd.concat(parts, ignore_index=True)


def silent_counters(trials: pd.DataFrame) -> list[Counter]:
    """Return the counters that were read and are 0 in every trial."""
    return [c for c in COUNTERS if trials[c.column].notna().any() and not trials[c.column].any()]


def counters(request: FigureRequest) -> View:
    """Counters against N, with one panel per counter."""
    marks = collect(unlimited(labelled(request)), request.figure, "line")
    silent = request.trials["silent"].iloc[0]
    names = request.trials["counter"].unique()
    title = str(names[0]) if len(names) == 1 else ""  # several name their panels
    look = Look(Axes(ACCESSES, title, "counts", share_y=False))
    return described(request, marks, look, f"0 in every trial: {silent}." if silent else "")
