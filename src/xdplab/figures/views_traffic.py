"""Views of XDP traffic besides rates: latency by load, evenness over queues, the rates of labs side by side; what the
work costs (service time with its line, cost of an access, counters); two runs as a ratio at each point.

The harness view shows the parts of a packet's time in a closed loop: the program, the way in, the way back. On shared
CPUs a packet's time is that of sender, link, DUT and receiver together. BPF_PROG_TEST_RUN gives the time of the
program; sender and receiver are measured alone, without a link; a program that drops takes only the way in. The rest of
the whole is the way back: if it is negative, one of the parts was measured wrongly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import isnan

import pandas as pd

from xdplab.analysis.fit import Line, Slope, fit_line, slope
from xdplab.analysis.intervals import Spread, values_of_one_point
from xdplab.analysis.labs import in_several_labs
from xdplab.analysis.series import SETTING, key_of, reached, valid
from xdplab.analysis.values import records
from xdplab.errors import FigureError, NotApplicableError
from xdplab.figures.factors import PIECES, FigureChoice, FigureRequest, arrange, compound, label_order, levels
from xdplab.figures.marks import Axes, Look, Order, View, Words, collect
from xdplab.figures.views import ACCESSES, described, hue_order, labelled, program_labels, unit_of, unlimited
from xdplab.text import many

MEDIANS = "Each mark is the median of the repetitions' quantiles; from six repetitions on it has an interval."
QUANTILES = {"p50": "latency_p50_ns", "p99": "latency_p99_ns", "p99.9": "latency_p999_ns"}


def melted_latency(trials: pd.DataFrame, quantiles: tuple[str, ...] = tuple(QUANTILES)) -> pd.DataFrame:
    """Return one row per trial and quantile, with the columns quantile and latency_ns."""
    parts = [trials.assign(quantile=name, latency_ns=trials[QUANTILES[name]]) for name in quantiles]
    return pd.concat(parts, ignore_index=True)


def load_labels(trials: pd.DataFrame) -> tuple[pd.Series, str]:
    """Return each row's load (``20``, ``50 % PDR``, ``500Mbit/s``, ``max``) and the unit of those in frames."""
    rates = trials["rate_requested_pps"].astype("Float64").where(trials["load"].astype(str).str.endswith("pps"))
    size, unit = unit_of(rates.dropna(), "pps") if rates.notna().any() else (1.0, "")
    paced = {str(load): rate / size for load, rate in zip(trials["load"], rates, strict=True) if not pd.isna(rate)}
    labels = _apart(paced)
    return pd.Series([_load_label(str(load), labels) for load in trials["load"]], index=trials.index), unit


ENOUGH_DIGITS, ALL_DIGITS = 3, 17


def _apart(rates: Mapping[str, float]) -> dict[str, str]:
    """Return a label for each load, with as many digits as tell the loads of this figure apart."""
    for digits in range(ENOUGH_DIGITS, ALL_DIGITS + 1):
        labels = {load: f"{rate:.{digits}g}" for load, rate in rates.items()}
        if len(set(labels.values())) == len(labels):
            return labels
    return {load: f"{rate:.{ENOUGH_DIGITS}g} ({load})" for load, rate in rates.items()}  # one rate, spelled twice


def _load_label(load: str, paced: Mapping[str, str]) -> str:
    return f"{load[:-1].strip()} % PDR" if load.endswith("%") else paced.get(load, load)


def _not_reached(trials: pd.DataFrame) -> str:
    """Name what is left out: ``1Mpps (0.28 Mpps offered)``."""
    loads = [
        f"{load} ({rows['offered_pps'].median() / 1e6:.2g} Mpps offered)"
        for load, rows in trials[~reached(trials)].groupby("load", sort=False)
    ]
    return f"Not drawn, for the load was not reached: {', '.join(loads)}." if loads else ""


def _from_due(trials: pd.DataFrame) -> str:
    due = trials["latency_from"].eq("due").fillna(False).any()
    return "At a paced load the round trip counts from the time a frame was due." if due else ""


def _batches(trials: pd.DataFrame) -> str:
    """Name the batch sizes of paced loads: a frame waits for its batch, so a new size makes a step in a curve."""
    sizes = sorted(trials.loc[trials["rate_requested_pps"].notna(), "batch"].dropna().unique())
    return f"Paced in batches of {', '.join(f'{size:g}' for size in sizes)} frames." if sizes else ""


def latency(request: FigureRequest) -> View:
    """Round trip by load; a paced load is the headline, maximum load is queueing and stands apart."""
    left_out, trials = _not_reached(request.trials), request.trials[reached(request.trials)]
    request = replace(request, trials=trials)
    labels, load_unit = load_labels(trials)
    ordered = trials.sort_values("rate_requested_pps", na_position="last").index
    rows = unlimited(labelled(request, labels))
    size, unit = (1e3, "µs") if rows["value"].max() > 1e3 else (1.0, "ns")
    paced = trials.loc[rows.index, "rate_requested_pps"].notna()
    marks = collect(rows[paced], request.figure, "line", size, middle="median")
    marks += collect(rows[~paced], request.figure, "point", size, middle="median")
    quantiles = trials["quantile"].unique()
    which = f"{quantiles[0]} " if len(quantiles) == 1 else ""
    load = f"offered load ({load_unit})" if load_unit else "offered load"
    look = Look(
        Axes(load, f"{which}round trip ({unit})", y_scale="log"),
        Order(x_values=tuple(dict.fromkeys(labels.loc[ordered]))),
        Words(point_label="max load: queueing, not latency"),
    )
    notes = (_from_due(trials), _batches(trials), left_out, MEDIANS)
    return described(request, marks, look, *notes, beside=("batch",), intervals="95 % interval of the median")


def melted_queues(trials: pd.DataFrame) -> pd.DataFrame:
    """Return one row per trial and receive queue, with the columns queue and queue_share (% of the frames)."""
    counted = trials[trials["rx_by_queue"].notna()]
    frames = counted["rx_by_queue"].map(json.loads)
    arrived = frames[frames.map(sum) > 0]
    if arrived.empty:
        raise NotApplicableError("frames by queue were not counted")
    long = arrived.explode().rename("queue_share").astype("Float64")
    queue = long.groupby(level=0).cumcount().rename("queue")
    share = 100 * long / long.groupby(level=0).transform("sum")
    return trials.join(pd.concat([queue, share], axis=1), how="inner").reset_index(drop=True)


def evenness(request: FigureRequest) -> View:
    """Share of the frames that each receive queue got; the dashed line is an even share, if a panel has one."""
    marks = collect(unlimited(labelled(request)), request.figure, "bar")
    panels = labelled(request).assign(queues=request.trials["queues"])
    counts = {str(panel): sorted(group["queues"].unique()) for panel, group in panels.groupby("panel")}
    rules = {panel: 100 / int(queues[0]) for panel, queues in counts.items() if len(queues) == 1}
    axes = Axes("receive queue", "share of the frames (%)", share_x=False, share_y=False, rules=rules)
    order = Order(x_values=tuple(range(int(request.trials["queue"].max()) + 1)))
    return described(request, marks, Look(axes, order), "Dashed: an even share." if rules else "")


def relative_rates(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials of points that several labs measured, with ``lab_ratio``: rate / mean of the labs' means."""
    rows = in_several_labs(trials)
    if rows.empty:
        raise NotApplicableError("no point was measured in several labs: `xdplab run PLAN --labs A,B` does it")
    means = rows.groupby(["point_id", "lab"])["forwarded_pps"].mean().groupby("point_id").mean()
    return rows.assign(lab_ratio=rows["forwarded_pps"] / rows["point_id"].astype("str").map(means))


def labs(request: FigureRequest) -> View:
    """Rate by lab, relative to the mean of the same point over all labs."""
    rows = unlimited(labelled(request))
    points = [point for _, point in rows.groupby("point_id", sort=False)]
    marks = [mark for point in points for mark in collect(point, request.figure, "point")]
    note = "One mark per point and lab: its rate over the mean of the point in all labs, 1 where the labs are equal."
    axes = Axes("lab", "rate / mean of all labs", from_zero=False, rules={"": 1.0})
    order = Order(x_values=tuple(sorted(request.trials["lab"].dropna().unique())))
    return described(request, marks, Look(axes, order), note, beside=("accesses",))


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


def lookup_cost(request: FigureRequest) -> View:
    """Time of one lookup, by BPF_PROG_TEST_RUN, against its map's entries; a line for each kind of map."""
    marks = collect(unlimited(labelled(request)), request.figure, "line")
    note = "(test run of N − test run of 0) / N: one lookup, its key and the read of its value, of keys in turn."
    look = Look(Axes("entries of the map", "time per lookup (ns)", "log"))  # a difference may be below zero
    left_out = int(request.trials["left_out"].iloc[0])
    others = [f"Left out: {many(left_out, 'point')} without given entries."] * (left_out > 0)
    return described(request, marks, look, note, *others, beside=("accesses", "program_name"))


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
        if (has := values.notna()).any():
            parts.append(trials[has].assign(counter=counter.title, counter_value=values[has]))
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


PROGRAM, SENDER, WAY_IN, RECEIVER, WAY_BACK = PIECES


def pieces(trials: pd.DataFrame) -> pd.DataFrame:
    """Return one row per trial of N = 0 and piece, with the columns piece and piece_ns (CPU time per packet).

    ``trials`` are settled and at maximum load. Trials of a program that drops are needed in the same setting and
    repetition, and the pass ``harness`` of both. Raises NotApplicableError without any, FigureError if several
    programs drop.
    """
    shared = valid(trials[trials["arrangement"].eq("shared").fillna(False)])
    shared = shared[shared[["ns_per_packet", "testrun_raw_ns", "sender_ns", "harness_ns"]].notna().all(axis=1)]
    drops = shared[shared["action"].eq("drop").fillna(False)]
    if drops["program_name"].nunique() > 1:
        names = ", ".join(sorted(drops["program_name"].unique()))
        raise FigureError(f"several programs drop: {names}", remedy="choose the trials with where=")
    zeros = shared[shared["accesses"].eq(0).fillna(False)]
    zeros = zeros.assign(place=key_of(zeros, SETTING))
    first = zeros.groupby("place")["point_id"].transform("first")
    zeros = zeros[zeros["point_id"].eq(first)]  # N = 0 of any workload is the same code
    without_program = drops.assign(place=key_of(drops, SETTING))[
        ["place", "repetition", "ns_per_packet", "testrun_raw_ns"]
    ]
    both = zeros.merge(without_program, on=["place", "repetition"], suffixes=("", "_dropped"))
    if both.empty:
        raise NotApplicableError(
            "no program that drops was measured beside N = 0 on shared CPUs, with pass harness: see plans/harness.yaml"
        )
    dropped = both["ns_per_packet_dropped"] - both["testrun_raw_ns_dropped"]
    receiver = both["harness_ns"] - both["sender_ns"]  # below 0 too: a mean without would be biased
    parts = {
        PROGRAM: both["testrun_raw_ns"],
        SENDER: both["sender_ns"],
        WAY_IN: dropped - both["sender_ns"],
        RECEIVER: receiver,
        WAY_BACK: both["ns_per_packet"] - both["testrun_raw_ns"] - dropped - receiver,
    }
    return pd.concat([both.assign(piece=name, piece_ns=ns) for name, ns in parts.items()], ignore_index=True)


def harness(request: FigureRequest) -> View:
    """CPU time per packet of N = 0 by mode, piece upon piece: the mean over the repetitions of each."""
    rows = unlimited(labelled(request))
    hues = hue_order(request)
    marks: list[dict[str, object]] = []
    for (panel, x), place in rows.groupby(["panel", "x"], sort=False):
        below = 0.0
        for hue in hues:
            piece = place[place["hue"] == hue]
            if piece.empty:
                continue
            values = values_of_one_point(piece, "value")
            top = below + float(values.mean())
            mark = {"figure": request.figure, "file": request.figure, "kind": "stack", "panel": panel, "hue": hue}
            size = {"x": x, "value": top, "low": below, "n": len(values), "verdict": "valid"}
            marks.append(mark | size | _points(piece))
            below = top
    note = (
        f"N = 0: {PROGRAM} by BPF_PROG_TEST_RUN; {SENDER} and {RECEIVER} alone, without a link; {WAY_IN}: a program "
        f"that drops, less its own time and the sender's; {WAY_BACK}: what these leave of the whole. Differences are "
        f"of one repetition; means over the repetitions. {summed(rows)}"
    )
    look = Look(Axes("mode", "CPU time per packet (ns)"), Order(x_values=tuple(levels(request.trials, "mode"))))
    return described(request, marks, look, note, beside=("accesses",), intervals="")


def summed(rows: pd.DataFrame) -> str:
    """Return whether the pieces sum to the whole: at no point may one be below zero by more than its error."""
    below = []
    for (panel, hue, x), piece in rows.groupby(["panel", "hue", "x"], sort=False):
        spread = Spread.of(piece["value"])
        if (spread.high if spread.n > 1 else spread.mean) < 0:
            below.append(f"{hue} in {x} mode is {spread.mean:.0f} ns{f' ({panel})' if panel else ''}")
    if below:
        return f"The pieces do not sum to the whole: {'; '.join(below)}."
    repeated = rows.groupby(["panel", "hue", "x"]).size().min() > 1
    certainty = " by more than its 95 % interval" if repeated else ""
    return f"The pieces sum to the whole: none is below zero{certainty}."


def _points(rows: pd.DataFrame) -> dict[str, object]:
    return {"points": ",".join(sorted(set(rows["point_id"].dropna().astype(str))))}


COMPARE, RATE = "compare", "forwarded_pps"


def compare_view(rows: pd.DataFrame, *, names: tuple[str, str] = ("a", "b"), metric: str = RATE) -> View:
    """Return the view of ``decide.compare.compare(a, b)``: ratio b/a by N, or by program with a user's among them.

    ``names`` label the two runs, ``metric`` is the column that was compared. Raises NotApplicableError if no point has
    a ratio.
    """
    if rows["ratio"].isna().all():
        raise NotApplicableError("the two runs have no valid point in common")
    counted = bool(rows["accesses"].notna().all())
    x = "accesses" if counted else "program"
    judged = rows.assign(verdict="valid", limited_by=None, program=program_labels(rows))
    compared = judged[judged["ratio"].notna()]
    layout = arrange(compared, x, FigureChoice(), ("queues", "program_name", "frame_bytes", "mode"), ("mode",))
    request = FigureRequest(COMPARE, judged, compound(compared, layout), "ratio")
    note = f"{names[1]} over {names[0]}: ratio of geometric means, 95 % interval with the spread of runs as its floor."
    what = "rate" if metric == RATE else metric
    axes = Axes(
        ACCESSES if counted else "program",
        f"{what} of {names[1]} / {names[0]}",
        "counts" if counted else "category",
        from_zero=False,
        rules={"": 1.0},
    )
    marks = _marks(labelled(request), compared)
    return described(request, marks, Look(axes), note, *_without(rows), intervals="")


def _marks(rows: pd.DataFrame, compared: pd.DataFrame) -> Iterable[Mapping[str, object]]:
    """A ratio is one number with its own interval, so this averages nothing."""
    kind = "line" if compared["accesses"].notna().all() else "point"
    place = rows[["panel", "hue", "x", "value"]].assign(figure=COMPARE, file=COMPARE, kind=kind)
    n = compared[["n_a", "n_b"]].min(axis=1)
    interval = compared[["low", "high"]].assign(n=n, verdict="valid", limited_by=None, points=compared["point_id"])
    return records(pd.concat([place, interval], axis=1))


def _without(rows: pd.DataFrame) -> list[str]:
    lost = rows[rows["ratio"].isna()]
    reasons = "; ".join(sorted(lost["reason"].dropna().unique()))
    return [f"No ratio for {len(lost)} of {len(rows)} points: {reasons}."] if len(lost) else []
