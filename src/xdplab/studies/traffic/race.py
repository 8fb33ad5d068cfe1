"""Runs that end by their results: when a rate is known, or a race has its answer; and a race's state, from its trials.

A released trial stays in the plan. The journal says why it was not measured; `resume` decides as the run did.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import log
from statistics import median

import pandas as pd

from xdplab.analysis.count_rules import say_kept
from xdplab.analysis.decide.race import Known, Outcome, Standing, median_interval, standing
from xdplab.analysis.series import valid
from xdplab.analysis.values import records
from xdplab.analysis.verdicts import is_senders_rate
from xdplab.errors import ResultsError
from xdplab.plan import Arrangement, Plan, Point, Trial
from xdplab.plan.factors import BY_COLUMN, of_program
from xdplab.plan.model import Race, Until
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import Attempt, last_attempts
from xdplab.studies.traffic.run_files import race_pairs, run_plan, why_not_sliced
from xdplab.studies.traffic.trials import attempt_rows, settled_trials

PointPair = tuple[Point, Point]
Values = dict[tuple[str, int], float]
"""Of a column, by point and repetition."""
Senders = Mapping[tuple[str, int], bool]
"""Whether a valid trial's rate is the sender's: then it is equal whatever the programs cost."""
MEASUREMENTS = {"testrun_raw_ns": ("test run", "ns"), "packet_instructions": ("perf", "instructions")}
"""What tells two sides apart per packet beside their rates: columns, each with its words."""


def _arrangement(run: RunDirectory) -> Arrangement:
    arrangement: Arrangement = next(run.journal.events("planned"))["arrangement"]
    return arrangement


def deciding_pairs(plan: Plan, arrangement: Arrangement) -> list[tuple[Point, Point]]:
    """Return the pairs whose rates decide a race: those at maximum load, if there are any.

    A paced rate is the one that was asked for, on both sides: it would hide the others' difference.
    """
    pairs = race_pairs(plan, arrangement)
    return [(a, b) for a, b in pairs if a.load == b.load == "max"] or pairs


def _pairs(run: RunDirectory, plan: Plan) -> list[PointPair]:
    return deciding_pairs(plan, _arrangement(run))


def _standing(
    pairs: Sequence[PointPair],
    rates: Values,
    slices: Values,
    race: Race,
    senders: Senders,
    tried: Mapping[str, set[int]],
) -> Standing:
    """``tried``: the repetitions of each point that were tried, whatever came of them."""
    ids = [(a.point_id, b.point_id) for a, b in pairs]
    of_pairs = [is_senders for (point, _), is_senders in senders.items() if point in chain(*ids)]
    carried = bool(of_pairs) and all(of_pairs)
    state = standing({} if carried else rates, slices, ids, race.margin)
    whole = set.intersection(*(tried.get(point, set()) for point in chain(*ids)))
    return replace(state, carried=carried, lost=0 if carried else len(whole) - state.ratio.n)


class OpenEnded:
    """Sees each attempt of a run as it ends; ``rates`` are those of valid trials, in frames per second."""

    def __init__(self, run: RunDirectory, plan: Plan, trials: Sequence[Trial]) -> None:
        self._run, self._plan, self._trials = run, plan, trials
        self._tried: dict[str, set[int]] = {trial.point.point_id: set() for trial in trials}
        self.rates: Values = {}
        self._slices: Values = {}
        self._senders: dict[tuple[str, int], bool] = {}
        self._kept: str | None = None
        before = last_attempts(run)
        for trial in trials:
            if trial.trial_id in before:
                self.ended(trial, before[trial.trial_id])

    def ended(self, trial: Trial, attempt: Attempt) -> None:
        key = (trial.point.point_id, trial.repetition)
        self._tried[key[0]].add(key[1])
        self.rates.pop(key, None)
        self._slices.pop(key, None)
        self._senders.pop(key, None)
        if attempt.status == "measured":
            row = attempt_rows(self._run, trial, attempt, window_s=self._plan.trial.window_s).row
            if row["verdict"] == "valid" and row.get("forwarded_pps"):
                self.rates[key] = row["forwarded_pps"]
                self._senders[key] = is_senders_rate(row)
                if ratio := row.get("slices_ratio"):
                    self._slices[key] = ratio
            elif (kept := say_kept(row)) == row["reason"]:
                self._kept = kept  # as in each of its trials

    def released(self) -> Mapping[str, Sequence[str]]:
        """Return the ids of trials that need not be measured, by the reason."""
        if self._plan.race is not None:
            return self._race(self._plan.race)
        until = self._plan.repetitions
        return {} if isinstance(until, int) else self._points(until)

    def _race(self, race: Race) -> Mapping[str, Sequence[str]]:
        pairs = _pairs(self._run, self._plan)
        standing_now = _standing(pairs, self.rates, self._slices, race, self._senders, self._tried)
        tried = min(len(repetitions) for repetitions in self._tried.values())
        over = tried >= race.at_least and (standing_now.settled or not standing_now.ratio.n)
        if over or (tried and self._kept and not standing_now.ratio.n):
            return {self._kept or standing_now.text: [trial.trial_id for trial in self._trials]}
        return {}

    def _points(self, until: Until) -> Mapping[str, Sequence[str]]:
        """N = 0 is repeated as long as any other point: each repetition's costs are relative to its own baseline."""
        texts = {point: self._why_settled(point, until) for point in self._tried}
        zeros = {t.point.point_id for t in self._trials if t.point.program.accesses == 0}
        others = {point for point in texts if point not in zeros}
        if any(texts[point] is None for point in others):
            texts |= dict.fromkeys(zeros)
        by_text: dict[str, list[str]] = {}
        for trial in self._trials:
            if text := texts[trial.point.point_id]:
                by_text.setdefault(text, []).append(trial.trial_id)
        return by_text

    def _why_settled(self, point: str, until: Until) -> str | None:
        if len(self._tried[point]) < until.at_least:
            return None
        logs = [log(rate) for (name, _), rate in sorted(self.rates.items()) if name == point]
        if not logs:
            return f"none of {len(self._tried[point])} trials of the point was valid"
        spread = median_interval(logs)
        half = max(spread.high - spread.median, spread.median - spread.low)
        if len(logs) < until.at_least or half > log(1 + until.until):
            return None
        return f"the rate is known to {until.until:.1%}"


def standing_of(run: RunDirectory) -> Standing:
    """Return the state of the run's race, by its valid trials. Raises ResultsError for a run without a race."""
    plan = run_plan(run)
    if plan.race is None:
        raise ResultsError(f"{run.path} is not a race", remedy="`xdplab race A B`, or a plan with `race:`")
    trials = settled_trials(run)
    tried = {str(point): set(of_point.astype(int)) for point, of_point in trials.groupby("point_id")["repetition"]}
    rows = valid(trials)
    rates, slices = _by_trial(rows, "forwarded_pps"), _by_trial(rows, "slices_ratio")
    senders = {(str(row["point_id"]), int(str(row["repetition"]))): is_senders_rate(row) for row in records(rows)}
    return _standing(_pairs(run, plan), rates, slices, plan.race, senders, tried)


def _by_trial(rows: pd.DataFrame, column: str) -> Values:
    """Return the column's values that are there, by point and repetition."""
    keys = zip(rows["point_id"], rows["repetition"], rows[column], strict=True)
    return {(str(point), int(repetition)): float(value) for point, repetition, value in keys if not pd.isna(value)}


def outcome_of(run: RunDirectory) -> Outcome:
    """Return the state of the run's race with its evidence. Raises ResultsError for a run that is not a race."""
    state, names = standing_of(run), race_names(run)
    pairs = _pairs(run, run_plan(run))
    if len(pairs) != 1:
        return Outcome(state, names)  # a time per packet, or more of it, is of one pair
    ((a, b),) = pairs
    rows = valid(settled_trials(run))
    rows = rows.assign(packet_instructions=rows["instructions"] / rows["perf_packets"])
    times = [ns for (point, _), ns in _by_trial(rows, "ns_per_packet").items() if point == a.point_id]
    more = {what: _more_of(_by_trial(rows, column), a, b) for column, what in MEASUREMENTS.items()}
    more = {what: one for what, one in more.items() if one.n}
    return Outcome(state, names, median(times) if times else None, more)


def _more_of(values: Values, a: Point, b: Point) -> Known:
    """Return the median of what b has more than a in each repetition."""
    pairs = [(values.get((a.point_id, n)), value) for (point, n), value in values.items() if point == b.point_id]
    return median_interval([value - before for before, value in pairs if before is not None])


def race_line(run: RunDirectory) -> str:
    """Return what a race found, and why it ended. Raises ResultsError for a run that is not a race."""
    outcome, plan = outcome_of(run), run_plan(run)
    assert plan.race is not None  # `outcome_of` has refused it
    n, most = outcome.standing.ratio.n, plan.race.at_most
    ended = f" The race ended with the pair that decided it, of at most {most}." if outcome.standing.settled else ""
    return f"{outcome.text}{_why_by_windows(run, outcome.standing)}.{ended if n < most else ''}"


_TOLD_BY_OTHERS = ("point_id", "file", "program_sha256", "frames_sha256", "rate_requested_pps")


def race_sides(plan: Plan, arrangement: Arrangement) -> tuple[str, str]:
    """Return a description of A and of B of a race: the factors in which their first points differ."""
    first, second = race_pairs(plan, arrangement)[0]
    cells = first.factors() | {"lab": first.lab}, second.factors() | {"lab": second.lab}
    differing = [name for name in cells[0] if cells[0][name] != cells[1][name]]
    names = [name for name in differing if name not in _TOLD_BY_OTHERS]
    names = names or [name for name in differing if name in ("file", "program_sha256")][:1]  # of one name
    if "program_name" in names:
        names = [name for name in names if name in ("program_name", "accesses") or not of_program(BY_COLUMN[name])]

    def text(side: Mapping[str, object]) -> str:
        values = {name: plan.lab if (name, side[name]) == ("lab", "auto") else side[name] for name in names}
        plain = ("program_name", "file", "mode", "lab")
        shown = [(name, value) for name, value in values.items() if value is not None]
        return ", ".join(f"{value}" if name in plain else f"{name} {value}" for name, value in shown)

    return text(cells[0]), text(cells[1])


def race_names(run: RunDirectory) -> tuple[str, str]:
    """Return the names of a and of b of a race."""
    return race_sides(run_plan(run), _arrangement(run))


def side_order(run: RunDirectory) -> list[str]:
    """Return the point ids of a race in the order of its sides, a first."""
    return [
        point.point_id for side in zip(*race_pairs(run_plan(run), _arrangement(run)), strict=True) for point in side
    ]


def _why_by_windows(run: RunDirectory, standing: Standing) -> str:
    """Return why programs did not take turns under one sender although the plan asks for it."""
    plan = run_plan(run)
    if standing.carried or standing.by == "slices" or plan.race is None or plan.race.by == "windows":
        return ""
    rows = settled_trials(run)
    sliced = {point for point, _ in _by_trial(valid(rows), "slices_ratio")}
    a, b = next((a, b) for a, b in _pairs(run, plan) if b.point_id not in sliced)
    of_trials = map(json.loads, rows.loc[rows["point_id"].eq(b.point_id), "null_reasons"].dropna())
    reason = why_not_sliced(a, b) or next((one["slices_ratio"] for one in of_trials if "slices_ratio" in one), None)
    return f" ({reason})" if reason else ""
