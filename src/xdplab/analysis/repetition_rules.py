"""The rules on the repetitions of a point: how far they lie apart, and which of them are unlike the others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import hypot, nan, sqrt
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from xdplab.analysis.findings import Finding, files_of, points_of
from xdplab.analysis.fit import limited_by_dut, lines_by_repetition
from xdplab.analysis.intervals import Spread, special, t_quantile
from xdplab.analysis.series import by_series, places_by, point_label, rows_where, valid
from xdplab.analysis.values import is_null, three_digits
from xdplab.text import many

Rates = np.ndarray[Any, np.dtype[np.float64]]

CHANGE = 0.05  # of a rate that matters
SLOPE_CHANGE = 0.10
CLASS_SIGMAS = 4.0
OF_ONE_LAB = ["point_id", "lab"]
"""Equal labs that share a run measure the same points: what differs between labs is told of the labs."""
APART, APART_WIDTHS, APART_SIGMAS, APART_CHANCE = 0.10, 3.0, 4.0, 0.001
"""How far one repetition must be from the nearest other one, as a share of the rate and in ranges of the others; and
from the others' mean, in standard deviations of the run's usual point or, in a run of few points, so far that chance
reaches it in one of a thousand points."""
PROVED = 0.50
"""Share by which one of two repetitions must be slower, in traffic and in its test run, to be the one that is apart."""
TEST_RUN_CHANGE = 0.25
"""Share by which the same program's test runs differ without a disturbance."""
OTHER_POINTS = 5  # that tell the run's usual spread by their median
NOISY = 0.05  # of a rate, between the repetitions of the usual point


def repetitions_differ(trials: pd.DataFrame) -> Iterator[Finding]:
    """The repetitions of the usual point at maximum load differ by more than 5 % (standard deviation): the machine was
    not the same in all of them, and an average is no better than its interval.

    The ratio of a race by slices does not suffer: both sides share each moment. There it is no warning.
    """
    unpaced = _at_maximum(trials)
    if not _repeated(unpaced):
        return
    spread = spread_of_points(unpaced)["spread"]
    usual = _usual(spread)
    if not usual > NOISY:
        return
    rates = unpaced.groupby(OF_ONE_LAB, sort=False, dropna=False)["forwarded_pps"]
    samples = [Spread.of(of_point) for _, of_point in rates if len(of_point) > 1]
    half = median((sample.high - sample.mean) / sample.mean for sample in samples)
    low, high = (float(spread.quantile(share)) for share in (0.25, 0.75))
    what = (
        f"at maximum load, the repetitions of a point differ by {usual:.0%} (standard deviation, median of "
        f"{many(len(spread), 'point')}; quartiles {low:.0%} and {high:.0%}): half of the rates are known to no better "
        f"than ±{half:.0%}, and a smaller difference may be chance; a quieter machine or more repetitions help"
    )
    worst = [str(point) for point in spread[spread > NOISY].sort_values(ascending=False, kind="stable").index]
    files = files_of(unpaced[unpaced["point_id"].isin(worst)])
    numbers = {"sd_share": usual, "half_width_share": half, "points": float(len(spread))}
    sliced = bool(unpaced["slices_ratio"].notna().any())
    what += ". This does not concern the race's ratio: in slices both sides share each moment" if sliced else ""
    yield Finding("repetitions differ", "info" if sliced else "warning", what, tuple(worst), numbers, files)


def programs_differ(trials: pd.DataFrame) -> Iterator[Finding]:
    """All repetitions of a point run the same program: the content hash of source, options and compiler is one, and
    so are the instructions of the attached program. The hash changes with an update of clang, or with a header of a
    user's program, between two sessions of a run; the instructions also with `net.core.bpf_jit_harden`.
    """
    rows = valid(trials)
    built = rows.groupby("point_id", sort=False)[["program_hash", "program_tag", "program_insns"]].nunique().max(axis=1)
    other = rows[rows["point_id"].isin(built.index[built > 1])]
    if other.empty:
        return
    count = other["point_id"].nunique()
    what = (
        f"the repetitions of {many(count, 'point')} ran different programs (source, options, compiler or the kernel's "
        "own changes differ between them): an average joins them; `program_hash`, `program_tag` and `program_insns` "
        "name each"
    )
    yield Finding("programs differ", "warning", what, points_of(other), {"points": float(count)}, files_of(other))


def _at_maximum(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the valid trials whose rate is a result: a paced rate is the one that was asked for."""
    rows = valid(trials)
    return rows_where(rows, rows["rate_requested_pps"].isna() & rows["forwarded_pps"].gt(0))


def _repeated(rows: pd.DataFrame) -> bool:
    """Tell whether any point has two repetitions: most rules take a hundred times as long to find out."""
    return bool(rows.duplicated(OF_ONE_LAB).any())


def spread_of_points(rows: pd.DataFrame) -> pd.DataFrame:
    """Return, by point_id, how much the repetitions differ, as a share of the rate (of its logarithm): ``sd`` is the
    sample's standard deviation, ``free`` its degrees of freedom, ``spread`` an estimate for a median over points.

    That is ``sd`` divided by the root of chi-squared's median over ``free``: of points that all have the same spread,
    half are then above it, however few repetitions they have. Points with one repetition have none.
    """
    logs = rows[OF_ONE_LAB].assign(log=np.log(rows["forwarded_pps"].to_numpy(dtype=float)))
    by_point = logs.groupby(OF_ONE_LAB, sort=False, dropna=False)["log"].agg(["var", "count"]).reset_index()
    by_point = by_point[by_point["count"] > 1].assign(free=by_point["count"] - 1)
    squares = (by_point["var"] * by_point["free"]).groupby(by_point["point_id"], sort=False).sum()
    free = by_point["free"].groupby(by_point["point_id"], sort=False).sum()
    spreads = pd.DataFrame({"sd": np.sqrt(squares / free), "free": free})
    medians = free.map({count: 2 * special.gammaincinv(count / 2, 0.5) / count for count in free.unique()})
    return spreads.assign(spread=spreads["sd"] / np.sqrt(medians.astype(float)))


def _of_points(rows: pd.DataFrame) -> Iterator[NDArray[np.intp]]:
    """Yield the places of each point's rows: few rules find something, and tables of all points take long to make."""
    return (places for _, places in places_by(rows.groupby(OF_ONE_LAB, sort=False, dropna=False).ngroup()))


def _usual(spread: pd.Series) -> float:
    """Return the spread of the usual point: the median, which a few points with a repetition apart do not move."""
    return float(spread.median()) if len(spread) else nan


def _elsewhere(spreads: pd.DataFrame, points: Collection[object]) -> pd.DataFrame:
    """Return the spreads of all points but these."""
    return spreads[~spreads.index.isin(list(points))]


def repetition_apart(trials: pd.DataFrame) -> Iterator[Finding]:
    """One repetition of a point whose rate is far from all others, compared with the range of those, and with how much
    the repetitions of the run's other points differ (paced ones, or ones at maximum load, as this one is).

    Averages, lines and costs include it, and its counts say nothing: TG and DUT agree on it.
    """
    forwarding = valid(trials)
    forwarding = forwarding[forwarding["forwarded_pps"].gt(0)]
    paced = forwarding["rate_requested_pps"].notna()
    for alike in (forwarding[~paced], forwarding[paced]):
        yield from _apart_of(alike)


def _apart_of(alike: pd.DataFrame) -> Iterator[Finding]:
    if not _repeated(alike):
        return
    spreads = spread_of_points(alike)
    rates_of_rows: Rates = alike["forwarded_pps"].to_numpy(dtype=float)
    for places in _of_points(alike):
        places = places[np.argsort(rates_of_rows[places], kind="stable")]
        rates = rates_of_rows[places]
        point = alike["point_id"].iloc[places[0]]
        apart = _apart(rates, spreads, point) or _proved(rates, alike["testrun_raw_ns"].iloc[places])
        if apart is None:
            continue
        ordered, (place, gap) = alike.iloc[places], apart
        one, others = ordered.iloc[[place]], ordered.drop(index=ordered.index[place])
        middle = float(others["forwarded_pps"].median())
        share = float(one["forwarded_pps"].iloc[0]) / middle - 1
        rest = f"the other {len(others)}" if len(others) > 1 else "the other"
        what = (
            f"{point_label(one)}: repetition {one['repetition'].iloc[0]:g} forwards "
            f"{abs(share):.0%} {'more' if share > 0 else 'less'} than {rest}"
        )
        numbers = {"pps": middle * (1 + share), "pps_of_others": middle, "gap_pps": gap}
        yield Finding(
            "repetition apart", "warning", what + _program_time(one, others), points_of(one), numbers, files_of(one)
        )


def _apart(rates: Rates, spreads: pd.DataFrame, point: object) -> tuple[int, float] | None:
    """Return the place of the one sorted rate of a point that is apart, and its distance from the nearest other one.

    ``spreads``: those of the run's points. By ranges alone, one of three repetitions would often be apart by chance.
    """
    if len(rates) < 3:
        return None
    ends = {0: (rates[1] - rates[0], np.ptp(rates[1:])), len(rates) - 1: (rates[-1] - rates[-2], np.ptp(rates[:-1]))}
    place, (gap, width) = max(ends.items(), key=lambda end: end[1][0])
    if not (gap > APART * np.median(rates) and gap > APART_WIDTHS * width):
        return None  # most: what follows looks at all points
    others = np.log(np.delete(rates, place))
    away = abs(float(np.log(rates[place]) - others.mean()))
    return (place, float(gap)) if away > _by_chance(others, _elsewhere(spreads, {point})) else None


def _proved(rates: Rates, test_runs: pd.Series) -> tuple[int, float] | None:
    """Return the slower of two sorted rates, and its distance, if its test run was as much slower: the program is the
    same, so the CPU was not. Rates alone do not tell which of two is unusual."""
    if len(rates) != 2 or test_runs.isna().any():
        return None
    slower, faster = test_runs.astype(float)
    unlike = rates[1] / rates[0] - 1 > PROVED and slower / faster - 1 > PROVED
    return (0, float(rates[1] - rates[0])) if unlike else None


def _by_chance(others: Rates, elsewhere: pd.DataFrame) -> float:
    """Return how far a repetition may lie from the mean of the point's others (logarithms), as a share of the rate.

    Too few points do not know the usual spread, and their median would not resist one that is unlike the rest. So it is
    pooled with that of the others, and its own error counts, by Student's distribution.
    """
    if len(elsewhere) >= OTHER_POINTS:
        sd, deviations = _usual(elsewhere["spread"]), APART_SIGMAS
    else:
        free = float(elsewhere["free"].sum()) + len(others) - 1
        squares = float((elsewhere["free"] * elsewhere["sd"] ** 2).sum()) + float(((others - others.mean()) ** 2).sum())
        sd, deviations = sqrt(squares / free), t_quantile(1 - APART_CHANCE / 2, free)
    return deviations * sd * sqrt(1 + 1 / len(others))


def _program_time(one: pd.DataFrame, others: pd.DataFrame) -> str:
    """Tell whether the program itself ran for another time: in its test run, else by the kernel's count in traffic."""
    for column, clock in (("testrun_raw_ns", "in its test run"), ("program_run_raw_ns", "by BPF statistics")):
        time, usual = one[column].iloc[0], others[column].median()
        if is_null(time) or is_null(usual):
            continue
        times = f"{three_digits(time)} ns per frame, in the others {three_digits(usual)}"
        alone = abs(time / usual - 1) <= TEST_RUN_CHANGE
        who = "so the traffic was disturbed" if alone else "so its CPU was, not only its traffic"
        return f"; {clock} the program took {times}: {who}"
    return ""


def repetition_classes(trials: pd.DataFrame) -> Iterator[Finding]:
    """Repetitions whose cost of an access differs by more than their errors, and by more than the repetitions of other
    series differ, ran another program."""
    limited = limited_by_dut(trials)
    if limited["repetition"].nunique() < 2:
        return
    spreads = spread_of_points(_at_maximum(trials))
    for label, rows in by_series(limited):
        repetition, lines = lines_by_repetition(rows)
        resolved = (lines.points >= 3) & ~np.isnan(lines.c_se)
        costs = zip(lines.c[resolved].tolist(), lines.c_se[resolved].tolist(), strict=True)
        slopes = dict(zip(repetition[resolved].tolist(), costs, strict=True))
        if len(_split(slopes, 0.0)) < 2:  # most: what follows looks at all points
            continue
        others = _elsewhere(spreads, set(rows["point_id"]))["spread"]
        classes = _split(slopes, _usual(others) if len(others) >= OTHER_POINTS else 0.0)
        if len(classes) < 2:
            continue
        classes_text = "; ".join(
            f"{names_of(members)}: {three_digits(median(slopes[m][0] for m in members))} ns" for members in classes
        )
        what = f"{label}: repetitions form classes by the cost of an access ({classes_text})"
        numbers = {f"c_ns_repetition_{repetition:g}": slope for repetition, (slope, _) in slopes.items()}
        yield Finding("repetitions form classes", "warning", what, points_of(rows), numbers, files_of(rows))


def names_of(members: Sequence[float]) -> str:
    """Return repetitions in words: ``repetition 2``, ``repetitions 1, 3``."""
    return f"repetition{'s' if len(members) > 1 else ''} {', '.join(f'{member:g}' for member in sorted(members))}"


def _split(values: dict[float, tuple[float, float]], usual: float) -> list[list[float]]:
    """Split sorted values where neighbours differ by more than a tenth of the largest and four standard errors.

    ``usual``: how much repetitions differ elsewhere in the run, as a share; it is part of the error.
    """
    ordered = sorted(values, key=lambda name: values[name][0])
    classes: list[list[float]] = []
    largest = max((abs(value) for value, _ in values.values()), default=0.0)
    for name in ordered:
        value, error = values[name]
        before = values[classes[-1][-1]] if classes else None
        if before is not None:
            gap = value - before[0]
            apart = gap > SLOPE_CHANGE * largest and gap > CLASS_SIGMAS * hypot(error, before[1], usual * largest)
        if before is None or apart:
            classes.append([])
        classes[-1].append(name)
    return classes


def load_classes(trials: pd.DataFrame) -> Iterator[Finding]:
    """Program loads of one point that form two groups of two or more, far apart compared with their width."""
    believed = valid(trials)
    rates_of_rows = believed["forwarded_pps"].to_numpy(dtype=float, na_value=nan)
    for places in _of_points(believed):
        rates = np.sort(rates_of_rows[places])
        rates = rates[rates > 0]
        if len(rates) < 4:
            continue
        cut = 2 + int(np.argmax(np.diff(rates)[1:-1]))
        gap, width = rates[cut] - rates[cut - 1], max(np.ptp(rates[:cut]), np.ptp(rates[cut:]))
        if gap <= CHANGE * np.median(rates) or gap <= 5 * width:
            continue
        share, rows = float(rates[cut:].mean() / rates[:cut].mean() - 1), believed.iloc[places]
        what = f"{point_label(rows)}: loads form two classes {share:.0%} apart"
        numbers = {"low_pps": float(rates[:cut].mean()), "high_pps": float(rates[cut:].mean()), "gap_pps": float(gap)}
        yield Finding("program loads form classes", "info", what, points_of(rows), numbers, files_of(rows))
