"""The points that a claim is about: those of a plan before it is measured, and those of a run with their values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import Any

from xdplab.absent import Absent
from xdplab.analysis import QUEUED
from xdplab.analysis.summary import paced
from xdplab.analysis.values import Row, is_null, number, records, text
from xdplab.analysis.verdicts import is_senders_rate
from xdplab.claims.grammar import Claim, Sentence, sentences
from xdplab.errors import PlanError
from xdplab.lazy import lazily
from xdplab.plan import Plan, points_of
from xdplab.plan.factors import BY_COLUMN, BY_NAME, FACTORS, of_program
from xdplab.run.frames import NULL_REASONS
from xdplab.studies.kind import Run
from xdplab.yaml_errors import line_of
from xdplab.yaml_file import composed

with lazily():
    from xdplab.studies import comparing
    from xdplab.studies.cost import gate, measurement
    from xdplab.studies.search import rows as searches
    from xdplab.studies.traffic import columns

_AS_MEASURED = frozenset({"lab", "kernel", "arrangement"})
"""Factors that a plan may leave to the lab."""
_FOLLOWING = frozenset({"point_id", "rate_requested_pps", "program_sha256", "frames_sha256", "kernel"})
"""Columns that follow from others: points that are compared may differ in them."""
_OF_PROGRAM = frozenset(factor.column for factor in FACTORS if of_program(factor) and factor.name != "accesses")
_OF_COST = ("program", "kernel", "mode", "frame_bytes", "flows")
_OF_DUT = ("forwarded_pps", "forwarded_l2_bps", "pdr_pps", "ndr_pps", "mrr_pps")
"""Rates that are the DUT's, unless the sender limits them."""
MOST_NAMED = 6


@dataclass(frozen=True)
class ClaimedPoint:
    """A point, and its values of one metric by repetition, each with its trial.

    ``exact``: the ends of a count that each repetition gives again. ``carried``: its rates are the
    sender's. ``why``: why it has no value.
    """

    factors: Mapping[str, Any]
    values: Mapping[int, float] = field(default_factory=dict)
    trials: Mapping[int, str] = field(default_factory=dict)
    exact: tuple[float, float] | None = None
    carried: bool = False
    why: str = "it was not measured"

    def text(self, names: Iterable[str]) -> str:
        """Return the point by these factors."""
        shown = [(name, self.factors.get(name)) for name in names]
        return ", ".join(_label(name, value) for name, value in shown if not is_null(value))


def _label(name: str, value: Any) -> str:
    if name == "accesses":
        return f"N = {_text(value)}"
    return BY_COLUMN[name].label(_text(value)) if name in BY_COLUMN else f"{name} {_text(value)}"


Instance = tuple[ClaimedPoint, ...]
"""Points that a claim sets against each other: two sides, or the members of an order or of a series."""


def words_of(instance: Instance, among: Sequence[Instance]) -> str:
    """Return what tells an instance from the others that a claim is about, its sides first: ``native / generic``."""
    names = varying(point for one in among for point in one)
    sides = varying(instance)
    texts = [" / ".join(point.text(sides) for point in instance)] if sides else []
    return ", ".join(filter(None, [*texts, instance[0].text(name for name in names if name not in sides)]))


def planned_points(plan: Plan) -> list[ClaimedPoint]:
    """Return the points of a plan, where what the lab decides is null. Raises PlanError."""
    unknown = dict.fromkeys(_AS_MEASURED)
    planned = points_of(plan, "split")
    automatic = all(block.arrangement == "auto" for block in plan.blocks)
    return [ClaimedPoint(unknown | point.factors() | ({"arrangement": None} if automatic else {})) for point in planned]


def require_points(plan: Plan, where: str, source: str) -> None:
    """Raise PlanError with each claim of a plan whose points or whose metric it does not have, and its line."""
    points = planned_points(plan)
    refuse(sentences(plan.claims), lambda _: points, metrics_of_plan(plan), where, source)


def metrics_of_plan(plan: Plan) -> set[str]:
    """Return the metrics that a run or a search of a plan may have."""
    return {*columns.NAMES, *searches.COLUMNS, *(metric.name for metric in plan.metrics)}


def refuse(claims: Sequence[Sentence], points: Any, metrics: Iterable[str], where: str, source: str) -> None:
    """Raise PlanError with each claim that has no points or no metric, and its line; ``points`` are those of a
    metric."""
    wrong = []
    for one in claims:
        try:
            if one.claim.metric not in metrics:
                raise ValueError(f"there is no metric {one.claim.metric}")
            instances(one.claim, points(one.claim.metric))
        except ValueError as error:
            line = line_of(composed(source), ("claims", one.place)) if source else 0
            wrong.append(f"{f'line {line}: ' if line else ''}claim {one.place + 1}: {error}")
    if wrong:
        raise PlanError(f"{where}: {'; '.join(wrong)}", remedy="`xdplab plan --factors` lists what points differ in")


def instances(claim: Claim, points: Sequence[ClaimedPoint]) -> list[Instance]:
    """Return what a claim is about. It is about all of these: it holds if each holds.

    Raises ValueError for a condition that no point fits, and for a point that has no counterpart, or several.
    """
    if not points:
        raise ValueError("no trial has ended")
    chosen = _chosen(points, claim.where)
    if claim.form == "count":
        return [(point,) for point in chosen]
    if claim.form == "linear":
        return _series(chosen)
    names = {_column(name, points) for side in claim.sides for name in side}
    free = names | _FOLLOWING | (_OF_PROGRAM if names & _OF_PROGRAM else frozenset())
    sides = [_chosen(chosen, side) for side in claim.sides]
    rows = [(first, *(_counterpart(first, side, free) for side in sides[1:])) for first in sides[0]]
    for place, side in enumerate(sides[1:], 1):
        for point in side:
            if not any(row[place] is point for row in rows):
                _counterpart(point, sides[0], free)
    return rows


def _series(points: Sequence[ClaimedPoint]) -> list[Instance]:
    """Return the points that differ in N only, by N."""
    free = _FOLLOWING | {"accesses"}

    def key(point: ClaimedPoint) -> str:
        return json.dumps({name: _text(value) for name, value in point.factors.items() if name not in free})

    counted = sorted((point for point in points if not is_null(point.factors.get("accesses"))), key=key)
    by_n = [sorted(group, key=lambda one: float(one.factors["accesses"])) for _, group in groupby(counted, key)]
    if not by_n or min(len(series) for series in by_n) < 3:
        raise ValueError("a line needs points of three N or more that differ in nothing else")
    return [tuple(series) for series in by_n]


def _chosen(points: Sequence[ClaimedPoint], conditions: Mapping[str, Any]) -> list[ClaimedPoint]:
    for name, value in conditions.items():
        column = _column(name, points)
        if isinstance(value, int | float) and any(isinstance(point.factors[column], str) for point in points):
            raise ValueError(f"{name} {_text(value)} is no text: write it in quotes, as YAML takes 6.10 for 6.1")
        levels = dict.fromkeys(_text(point.factors[column]) for point in points)
        fitting = {_text(value)} | ({_text(None)} if column in _AS_MEASURED else set())
        points = [point for point in points if _text(point.factors[column]) in fitting]
        if not points:
            there_are = ", ".join(list(levels)[:MOST_NAMED])
            raise ValueError(f"no point has {name} {_text(value)} (there is {there_are})")
    return list(points)


def _column(name: str, points: Sequence[ClaimedPoint]) -> str:
    column = BY_NAME[name].column if name in BY_NAME else name
    has = points[0].factors
    column = "program_name" if column == "program" and "program" not in has else column
    if column not in has:
        raise ValueError(f"{name} is not a factor")
    return column


def _counterpart(point: ClaimedPoint, others: Sequence[ClaimedPoint], free: Iterable[str]) -> ClaimedPoint:
    """Return the one of ``others`` that differs from a point in ``free`` factors only; null fits any value."""
    names = [name for name, value in point.factors.items() if name not in free and not is_null(value)]
    fitting = [other for other in others if _fits(other, point, names)]
    if len(fitting) == 1:
        return fitting[0]
    of = point.text([name for name in varying(others) if name not in free] or ["program_name", "program", "mode"])
    if not fitting:
        unlike = [[name for name in names if not _fits(other, point, [name])] for other in others]
        nearest = ", ".join(sorted(unlike, key=len)[0])
        raise ValueError(f"{of} has no counterpart: the nearest differs in {nearest} too; leave it out by `where`")
    apart = [name for name in varying(fitting) if name not in free] or _unlike(fitting)
    raise ValueError(f"{of} has {len(fitting)} counterparts, which differ in {', '.join(apart)}: name it")


def _fits(other: ClaimedPoint, point: ClaimedPoint, names: Iterable[str]) -> bool:
    return all(is_null(other.factors.get(name)) or other.factors[name] == point.factors[name] for name in names)


def varying(points: Iterable[ClaimedPoint]) -> list[str]:
    """Return the factors in which points differ, without those that follow from others."""
    return [name for name in _unlike(list(points)) if name not in _FOLLOWING | {"file"}]


def _unlike(points: Sequence[ClaimedPoint]) -> list[str]:
    names = points[0].factors if points else ()
    return [name for name in names if len({_text(point.factors.get(name)) for point in points}) > 1]


def _text(value: Any) -> str:
    if is_null(value):
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- what a run has measured ---


def metrics_of(run: Run[Any]) -> list[str]:
    if run.kind.name == "cost":
        return [_metric(part) for part in gate.TOTALS]
    return [str(name) for name in run.rows().columns]


def measured_points(run: Run[Any], metric: str) -> list[ClaimedPoint]:
    """Return the points of a run of any kind with their values of a metric."""
    if run.kind.name == "cost":
        return _of_cost(run, metric)
    return _of_study(run, metric) if run.kind.planning else _of_traffic(run, metric)


def _of_traffic(run: Run[Any], metric: str) -> list[ClaimedPoint]:
    """Of traffic, searches and imports, which have a row per trial."""
    groups: dict[tuple[Any, Any], list[Row]] = {}
    table = run.rows()
    if metric.startswith("latency_") and "rate_requested_pps" in table:
        table = table.assign(queued=~paced(table))
    for row in records(table):
        groups.setdefault((row["point_id"], text(row, "lab")), []).append(row)
    columns = ("point_id", "program_name", "rate_requested_pps", *(factor.column for factor in FACTORS))
    automatic = isinstance(run.plan, Plan) and all(block.traffic.batch == ["auto"] for block in run.plan.blocks)
    names = [name for name in dict.fromkeys(columns) if not (automatic and name == "batch")]  # it follows the load
    return [
        _measured({name: None if is_null(rows[0].get(name)) else rows[0].get(name) for name in names}, rows, metric)
        for rows in groups.values()
    ]


def _measured(factors: Mapping[str, Any], rows: Sequence[Row], metric: str) -> ClaimedPoint:
    valid = [row for row in rows if text(row, "verdict") in ("valid", None)]
    point = ClaimedPoint(factors)
    if not valid:
        return replace(point, why=f"no trial is valid: {text(rows[0], 'reason')}")
    if all(row.get("queued") for row in valid):
        return replace(point, why=QUEUED)
    valid = [row for row in valid if not row.get("queued")]
    if metric in _OF_DUT and any(_is_senders(row) for row in valid):
        return replace(point, why="the generator limits its rate: it is not the DUT's")
    values = {int(str(row["repetition"])): value for row in valid if (value := number(row, metric)) is not None}
    if not values:
        return replace(point, why=f"{metric} is null: {_reason(valid[0], metric)}")
    trials = {int(str(row["repetition"])): str(row["trial_id"]) for row in valid}
    carried = metric in _OF_DUT and all(map(is_senders_rate, valid))
    return replace(point, values=values, trials={key: trials[key] for key in values}, carried=carried)


def _is_senders(row: Row) -> bool:
    return text(row, "limited_by") == "generator" and number(row, "rate_requested_pps") is None


def _reason(row: Row, metric: str) -> str:
    return str(json.loads(text(row, NULL_REASONS.name) or "{}").get(metric, "no reason was recorded"))


def _of_study(run: Run[Any], metric: str) -> list[ClaimedPoint]:
    """Of a study, whose table has rows per point, as `compare` takes them."""
    plan = run.plan
    labels = {point.point_id: str(point) for point in plan.points}
    factors = {point.point_id: asdict(point) for point in plan.points}
    rows = comparing.rows_as_points(run.rows(), metric, labels)
    points = []
    for key, group in rows.groupby("point_id", sort=False):
        point, _, place = str(key).rpartition("/")
        repeated = group.assign(trial_id=[f"{point}-r{number}" for number in group["repetition"]])
        points.append(_measured(factors[point] | {"row": int(place)}, records(repeated), metric))
    return points


def _metric(part: str) -> str:
    return "instructions" if part == measurement.WHOLE else f"{part}_instructions"


def _of_cost(run: Run[Any], metric: str) -> list[ClaimedPoint]:
    """Of counted packets, whose totals are exact, or hold to a range."""
    table, points = run.rows(), {f"{point.point_id}-r1": point for point in run.plan.points}
    counted = []
    for row in records(table[table["part"].isin(gate.TOTALS)]):
        if _metric(str(row["part"])) == metric:
            point = points[trial := str(row["trial_id"])]
            ends = [number(row, name) for name in ("low_instructions", "high_instructions")]
            value = number(row, "instructions")
            one = ClaimedPoint({name: getattr(point, name) for name in _OF_COST})
            if value is not None:
                least, most = (value if end is None else end for end in ends)
                one = replace(one, values={1: value}, trials={1: trial}, exact=(least, most))
            counted.append(one)
    return counted


def require_values(instance: Instance) -> None:
    """Raise Absent with why a point of an instance has no value."""
    for point in instance:
        if not point.values:
            raise Absent(point.why)
