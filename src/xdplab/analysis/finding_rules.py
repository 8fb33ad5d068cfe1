"""The rules that make findings: pure functions over a run's trials, listed in ``RULES``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import hypot, isnan, nan, sqrt

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype

from xdplab.analysis.cost_rules import (
    OF_WORK,
    cost_not_resolved,
    testrun_contradicted,
    testrun_disagrees,
    work_differs,
)
from xdplab.analysis.findings import Finding, Rule, files_of, points_of
from xdplab.analysis.fit import STAGE, fit_line, fits
from xdplab.analysis.intervals import Spread, of_one_point
from xdplab.analysis.labs import labs_differ
from xdplab.analysis.load_rules import (
    DISTURBED_BY,
    clock_differs,
    disturbances,
    drifts,
    held_back,
    nothing_forwarded,
    paced_loss,
)
from xdplab.analysis.repetition_rules import (
    load_classes,
    names_of,
    programs_differ,
    repetition_apart,
    repetition_classes,
    repetitions_differ,
)
from xdplab.analysis.series import (
    BELIEVED,
    LABEL,
    PROGRAM_KEY,
    SERIES,
    SETTING_KEY,
    by_series,
    is_plain,
    key_of,
    places_by,
    plain,
    rows_where,
    same_reason,
    series_of,
    settled,
    valid,
    with_keys,
)
from xdplab.analysis.settings_rules import settings_differ
from xdplab.text import many

SIGMAS = 3.0
CHANGE = 0.05  # of a rate or a time that matters
RING_MATCH = 0.10
FLAT = 0.03
MOST = 0.5
MOST_PREDICTED = 0.10  # a drop that a flat series should show


@dataclass(frozen=True)
class SeriesPoint:
    """One N of a series: its interval and the standard error of its mean."""

    accesses: int
    spread: Spread
    se: float
    rows: pd.DataFrame


def pooled_cv(spreads: Sequence[Spread]) -> float:
    """Return the relative SD between repetitions, pooled over the points that are not 0; NaN without a repeated one."""
    samples = [spread for spread in spreads if spread.n > 1 and spread.mean]
    spare = sum(sample.n - 1 for sample in samples)
    return sqrt(sum((sample.n - 1) * sample.cv**2 for sample in samples) / spare) if spare else nan


def places(rows: pd.DataFrame, value: str) -> list[SeriesPoint]:
    """Return a series' N with their means; two lucky repetitions do not make an error smaller than the pooled one."""
    measured = rows_where(rows, rows[value].notna())
    groups = [(accesses, measured.iloc[at]) for accesses, at in places_by(measured["accesses"])]
    spreads = [of_one_point(group, value) for _, group in groups]
    pooled = pooled_cv(spreads)
    result = []
    for (accesses, group), spread in zip(groups, spreads, strict=True):
        cv = max((c for c in (spread.cv, pooled) if not isnan(c)), default=nan)
        error = spread.mean * cv / sqrt(spread.n) if spread.mean else 0.0
        result.append(SeriesPoint(int(accesses), spread, error, group))
    return result


def rate_rises(trials: pd.DataFrame) -> Iterator[Finding]:
    """More accesses cannot make a packet cheaper: a rate rising with N means that something else changed."""
    for label, rows in by_series(valid(trials)):
        seen: list[SeriesPoint] = []
        for place in places(rows, "forwarded_pps"):
            lowest = min(seen, key=lambda other: other.spread.mean, default=None)
            seen.append(place)
            if lowest is None:
                continue
            rise, error = place.spread.mean - lowest.spread.mean, hypot(place.se, lowest.se)
            if not (rise > SIGMAS * error and rise > CHANGE * lowest.spread.mean):
                continue
            both, before = pd.concat([lowest.rows, place.rows]), lowest.spread.mean
            more = f"{rise / before:.0%} more than" if before else "frames, and none at"
            what = f"{label}: N = {place.accesses} forwards {more} N = {lowest.accesses}"
            numbers = {"pps": place.spread.mean, "pps_before": before}
            if error > 0:
                numbers["standard_errors"] = rise / error
            yield Finding("rate rises with N", "warning", what, points_of(both), numbers, files_of(both))


def off_the_line(trials: pd.DataFrame) -> Iterator[Finding]:
    """Points off the line t0 + c N through the others (only DUT-limited points), the worst one first."""
    for label, rows, _ in fits(trials):
        points = places(rows, "ns_per_packet")
        while len(points) >= 4:
            misses = [_miss(points, place) for place in points]
            worst = max(range(len(points)), key=lambda i: abs(misses[i][0]))
            share, sigmas = misses[worst]
            if not (abs(share) > CHANGE and abs(sigmas) > SIGMAS):
                break
            place = points.pop(worst)
            side = "above" if share > 0 else "below"
            what = f"{label}: N = {place.accesses} lies {abs(share):.0%} {side} the line of the other N"
            numbers = {"ns_per_packet": place.spread.mean, "share": share, "standard_errors": abs(sigmas)}
            yield Finding("off the line", "warning", what, points_of(place.rows), numbers, files_of(place.rows))


def _miss(points: Sequence[SeriesPoint], place: SeriesPoint) -> tuple[float, float]:
    """Return the distance of a point from the line through the others, as a share and in standard errors."""
    others = pd.concat([other.rows for other in points if other is not place])
    line = fit_line(others["accesses"].astype(float), others["ns_per_packet"].astype(float))
    if line is None or line.at(place.accesses) <= 0:
        return 0.0, 0.0
    off = place.spread.mean - line.at(place.accesses)
    error = hypot(place.se, *(e for e in (line.t0_se, line.c_se * place.accesses) if not isnan(e)))
    return off / line.at(place.accesses), off / error if error > 0 else nan


def latency_is_a_ring(trials: pd.DataFrame) -> Iterator[Finding]:
    """Little's law: latency x rate is the number of frames in flight; if it equals a ring's depth, the ring causes the
    latency. Repetitions are looked at one by one: another may have had another depth."""
    for label, rows in by_series(valid(trials)):
        filled = rows_where(rows, rows["latency_mean_ns"].gt(0) & rows["forwarded_pps"].gt(0))
        for fills in _same_rings(filled):
            shown = filled.iloc[np.concatenate([fill.places for fill in fills])]
            entries = float(np.mean([fill.entries for fill in fills]))
            count = shown["accesses"].nunique()
            repetitions = names_of([fill.repetition for fill in fills])
            what = (
                f"{label}, {repetitions}: latency × rate is {entries:.0f} frames per queue at {count} N "
                f"({fills[0].how}): the latency is the fill of a ring"
            )
            numbers = {"entries_a_queue": entries, "points": float(count)}
            yield Finding("latency is a ring's fill", "warning", what, points_of(shown), numbers, files_of(shown))


@dataclass(frozen=True)
class _Fill:
    """What a ring held in one repetition of a series, at these places of its rows: frames per queue, and ``how`` that
    is known to be a ring."""

    repetition: float
    places: NDArray[np.intp]
    entries: float
    how: str


def _same_rings(filled: pd.DataFrame) -> list[list[_Fill]]:
    """Return the repetitions in which a ring was full, those with the same depth together."""
    columns = ("queues_reached", "queues", "latency_mean_ns", "forwarded_pps", "rx_ring_entries")
    reached, queues, latency, rate, depth = (filled[name].to_numpy(dtype=float, na_value=nan) for name in columns)
    in_flight = latency * 1e-9 * rate / np.where(reached > 0, reached, queues)
    rings: list[list[_Fill]] = []
    _, number = np.unique(filled["repetition"].to_numpy(dtype=float, na_value=nan), return_inverse=True)
    count, met, unknown = (np.bincount(number, of) for of in (None, _met(in_flight, depth), np.isnan(depth)))
    looked_at = np.flatnonzero(((met >= 2) | ((count >= 3) & (unknown == count)))[number])  # few of many repetitions
    for repetition, of in places_by(filled["repetition"].iloc[looked_at]):
        places = looked_at[of]
        ring = _ring(in_flight[places], depth[places], rate[places])
        if ring is None:
            continue
        fill = _Fill(repetition, places[ring[0]], *ring[1:])
        for same in rings:
            if same[0].how == fill.how and abs(fill.entries / same[0].entries - 1) < RING_MATCH:
                same.append(fill)
                break
        else:
            rings.append([fill])
    return rings


def _met(in_flight: NDArray[np.float64], depth: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.abs(in_flight / depth - 1) < RING_MATCH


def _ring(
    in_flight: NDArray[np.float64], depth: NDArray[np.float64], rates: NDArray[np.float64]
) -> tuple[NDArray[np.bool_], float, str] | None:
    """Return which rows a ring explains, its entries, and how that is known.

    A known ring depth must occur at two N; an unknown one is a constant while the rate changes.
    """
    met = _met(in_flight, depth)
    if met.sum() >= 2:
        return met, float(in_flight[met].mean()), f"the ring has {depth[met][0]:.0f} entries"
    if len(rates) < 3 or not np.isnan(depth).all() or rates.max() <= 1.5 * rates.min():
        return None
    if in_flight.std(ddof=1) < CHANGE * in_flight.mean():
        return np.full(len(rates), True), float(in_flight.mean()), "the same while the rate changes"
    return None


def plateaus(trials: pd.DataFrame) -> Iterator[Finding]:
    """The smallest N all forward the same although their cost differs: the generator or the link limits the rate. If
    nothing known limits it, the cost must make more of a difference than the errors of the rates."""
    for label, rows in by_series(valid(trials)):
        if rows["rate_requested_pps"].notna().any():
            continue
        points = places(rows_where(rows, rows["forwarded_pps"] > 0), "forwarded_pps")
        flat = [place for place in points if abs(place.spread.mean / points[0].spread.mean - 1) <= FLAT]
        if len(flat) < 2 or flat != points[: len(flat)]:
            continue
        shown = pd.concat([place.rows for place in flat])
        predicted = _predicted_drop(rows, flat)
        maker = _maker(shown)
        explained = maker is not None
        if not explained and not predicted > max(MOST_PREDICTED, SIGMAS * _error_of_ratio(flat[0], flat[-1])):
            continue
        maker = maker or "something other than the DUT's work"
        what = f"{label}: N = {flat[0].accesses} to {flat[-1].accesses} forward the same: {maker} limits the rate"
        numbers = {"pps": flat[0].spread.mean} | ({} if isnan(predicted) else {"predicted_drop": predicted})
        severity = "info" if explained else "warning"
        yield Finding("plateau", severity, what, points_of(shown), numbers, files_of(shown))  # type: ignore[arg-type]


def _error_of_ratio(first: SeriesPoint, last: SeriesPoint) -> float:
    """Return the standard error of the ratio of two rates; 0 if no point of the series was repeated."""
    error = hypot(first.se / first.spread.mean, last.se / last.spread.mean)
    return 0.0 if isnan(error) else error


def _maker(plateau: pd.DataFrame) -> str | None:
    """Return what limits the rate in most trials of a plateau, if it is not the work per packet, else None."""
    outside = plateau["limited_by"].isin(["generator", "link"])
    if outside.mean() > MOST:
        return f"the {' and the '.join(sorted(set(plateau.loc[outside, 'limited_by'])))}"
    stages = plateau[STAGE].dropna() if STAGE in plateau else pd.Series(dtype=object)
    return f"the {stages.mode().iloc[0]}" if len(stages) > MOST * len(plateau) else None


def _predicted_drop(rows: pd.DataFrame, flat: Sequence[SeriesPoint]) -> float:
    """Return the share by which the rate should have dropped along the plateau, by the cost of the N beyond it."""
    beyond = rows[rows["accesses"].gt(flat[-1].accesses) & rows["ns_per_packet"].notna()]
    line = fit_line(beyond["accesses"].astype(float), beyond["ns_per_packet"].astype(float)) if len(beyond) else None
    start = flat[0].rows
    period = (1e9 * start["dut_cpus"].fillna(1).astype(float) / start["forwarded_pps"].astype(float)).mean()
    more = line.c * (flat[-1].accesses - flat[0].accesses) if line is not None else nan
    return float(more / (period + more))


def missing_points(trials: pd.DataFrame) -> Iterator[Finding]:
    """Combinations of factors that the mode's other points suggest but that have no trial."""
    varied = ["queues", "frame_bytes", "accesses"]
    held = tuple(name for name in SERIES if name not in varied)
    last = settled(trials)
    counted = rows_where(last, last["accesses"].notna())
    again = counted[["accesses"]].assign(series=series_of(counted)).duplicated()
    once = counted[~again | counted[varied].isna().any(axis=1)]
    factors = once[[*varied, "mode", "program_name", "engine"]]
    for _, rows in factors.groupby(key_of(once, held), sort=False):
        measured = set(rows[varied].itertuples(index=False, name=None))
        grid = list(product(*(sorted(rows[name].dropna().unique()) for name in varied)))
        absent = [combination for combination in grid if combination not in measured]
        if not absent or len(absent) > len(measured):  # a sparse plan suggests no further points
            continue
        examples = "; ".join(f"{q:g} queues, {size:g} B, N = {n:g}" for q, size, n in absent[:4])
        label = " ".join(str(rows[name].iloc[0]) for name in ("mode", "program_name", "engine"))
        what = f"{label}: {len(absent)} of {len(grid)} points are missing ({examples}{' …' if len(absent) > 4 else ''})"
        yield Finding("missing points", "info", what, (), {"missing": float(len(absent)), "grid": float(len(grid))})


def without_valid_trial(trials: pd.DataFrame) -> Iterator[Finding]:
    """Points that were tried but have no valid trial, by reason; points with too few valid repetitions."""
    last = settled(trials)
    valid_count = last["verdict"].eq("valid").fillna(False).groupby(last["point_id"]).sum()
    lost = last[last["point_id"].map(valid_count).eq(0) & last["verdict"].isin(["invalid", "failed"])]
    for _, rows in lost.groupby([lost["verdict"], same_reason(lost)], dropna=False, sort=False):
        count = rows["point_id"].nunique()
        why = f"{rows['verdict'].iloc[0]}: {rows['reason'].iloc[0]}"
        what = f"{many(count, 'point')}{_of_program(rows, last)} without a valid trial, {why}"
        yield Finding("no valid trial", "warning", what, points_of(rows), {"points": float(count)}, files_of(rows))
    most = int(valid_count.max()) if len(valid_count) else 0
    short = last[last["point_id"].map(valid_count).between(1, most - 1)]
    if len(short):
        count = short["point_id"].nunique()
        what = f"{count} point{'s have' if count > 1 else ' has'} fewer valid repetitions than {most}"
        numbers = {"points": float(count), "least": float(valid_count[valid_count > 0].min())}
        yield Finding("fewer repetitions", "info", what, points_of(short), numbers)


def _of_program(rows: pd.DataFrame, trials: pd.DataFrame) -> str:
    """Return the program of ``rows`` in words, if they have one and the run has others."""
    names = rows["program_name"].dropna().unique()
    return f" of {names[0]}" if len(names) == 1 < trials["program_name"].nunique() else ""


OF_ROWS = ("run_id", "point_id", "trial_id", "attempt", "order", "repetition", "accesses", "verdict", "lab")
RATE, TIME, COST = "forwarded_pps", "ns_per_packet", ("access_ns", "testrun_ns", "dut_cpus", "forwarded_pps")
AT_MAXIMUM = (RATE, "rate_requested_pps")
READ: dict[str, tuple[str, ...]] = {
    "repetitions differ": (*AT_MAXIMUM, "slices_ratio"),
    "programs differ": ("program_hash", "program_tag", "program_insns"),
    "settings differ": ("settings",),
    "rate rises with N": (RATE,),
    "off the line": (TIME, STAGE),
    "test run disagrees": COST,
    "test run contradicted": ("testrun_raw_ns", "program_run_ns", "rate_requested_pps"),
    "cost not resolved": COST,
    "unequal work": OF_WORK,
    "repetitions form classes": (*AT_MAXIMUM, TIME, STAGE),
    "program loads form classes": (RATE,),
    "repetition apart": (*AT_MAXIMUM, "testrun_raw_ns", "program_run_raw_ns"),
    "latency is a ring's fill": (RATE, "latency_mean_ns", "queues", "queues_reached", "rx_ring_entries"),
    "plateau": (*AT_MAXIMUM, TIME, STAGE, "limited_by", "dut_cpus"),
    "nothing forwarded": (RATE,),
    "generator held back": ("rate_requested_pps", "offered_pps", "generator_pps"),
    "labs differ": AT_MAXIMUM,
    "clock differs": ("cycles_per_ns", "cycles_per_ns_from"),
    "drift": AT_MAXIMUM,
    "no valid trial": ("reason", "program_name"),
    "missing points": SERIES,
}
"""What a rule reads beside `OF_ROWS`: whoever copies rows of a million trials copies no more. Those that are not here
read what a verdict does, too, of few rows."""
OF_VERDICTS = (
    *("lost_packets", "rx_packets", "dut_rx_packets", "dut_tx_packets", "duplicate_packets", "foreign_packets"),
    *("loss_ratio", "link_bps", "tx_late_packets", "host_busy_cores", *DISTURBED_BY),
    *("dut_driver", "host_softnet_dropped"),
)
NEEDED = tuple(
    name for name in dict.fromkeys((*SERIES, *OF_ROWS, *sum(READ.values(), ()), *OF_VERDICTS)) if name != STAGE
)
OF_RULES = ("mode", "workload", "program_name", "load", "lab", "arrangement", "directions")
"""Texts of a series that rules read; the others are in its key and its label."""
OF_ALL = ("settings differ", "no valid trial", "missing points")
"""Rules that do not only ask valid trials."""
RULES: dict[str, Rule] = {
    "repetitions differ": repetitions_differ,
    "programs differ": programs_differ,
    "settings differ": settings_differ,
    "rate rises with N": rate_rises,
    "off the line": off_the_line,
    "test run disagrees": testrun_disagrees,
    "test run contradicted": testrun_contradicted,
    "cost not resolved": cost_not_resolved,
    "unequal work": work_differs,
    "repetitions form classes": repetition_classes,
    "program loads form classes": load_classes,
    "repetition apart": repetition_apart,
    "latency is a ring's fill": latency_is_a_ring,
    "plateau": plateaus,
    "paced load is lost": paced_loss,
    "nothing forwarded": nothing_forwarded,
    "generator held back": held_back,
    "labs differ": labs_differ,
    "clock differs": clock_differs,
    "drift": drifts,
    "disturbances": disturbances,
    "no valid trial": without_valid_trial,
    "missing points": missing_points,
}


def find(trials: pd.DataFrame, rules: Mapping[str, Rule] = RULES) -> list[Finding]:
    """Apply every rule to judged and derived trials; warnings first, then in the table's order."""
    whole = trials if SETTING_KEY in trials else with_keys(for_rules(trials))
    spare = [name for name in SERIES if name not in OF_RULES and not is_numeric_dtype(whole[name])]
    believed = valid(whole.drop(columns=spare)).assign(**{BELIEVED: True})
    findings = [
        finding for name, rule in rules.items() for finding in rule(_read(whole if name in OF_ALL else believed, name))
    ]
    return sorted(findings, key=lambda finding: finding.severity != "warning")


def for_rules(trials: pd.DataFrame) -> pd.DataFrame:
    """Return what rules read of the trials, as `plain` columns."""
    return trials if is_plain(trials) else plain(trials, [*NEEDED, *([STAGE] if STAGE in trials else [])])


def _read(trials: pd.DataFrame, rule: str) -> pd.DataFrame:
    """Return the columns that a rule reads."""
    if rule not in READ:
        return trials
    read = dict.fromkeys((*OF_ROWS, *READ[rule], SETTING_KEY, PROGRAM_KEY, LABEL, BELIEVED))
    return trials[[name for name in read if name in trials or name not in (STAGE, BELIEVED)]]
