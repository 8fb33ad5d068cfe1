"""What a run of XDP traffic says, as sentences made from its trials: the cost of an access, and ratios of rates.

The unit of every interval is the repetition, and no value joins two points: where the points differ, a sentence tells
the least and the largest value. Settings are compared within a repetition, so what changed between repetitions cancels.

Which finding matters for the conclusion of a run: the first of a table of rules, one line for all alike.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, log

import pandas as pd

from xdplab.analysis.findings import Finding
from xdplab.analysis.fit import STAGE, limited_by_dut, lines_by_repetition
from xdplab.analysis.intervals import Spread
from xdplab.analysis.load_rules import DISTURBANCES
from xdplab.analysis.sentences import Estimate, Values
from xdplab.analysis.series import (
    BELIEVED,
    LABEL,
    PROGRAM_KEY,
    SETTING_KEY,
    by_series,
    key_of,
    reached,
    settled,
    valid,
    with_keys,
)
from xdplab.analysis.summary import varying
from xdplab.analysis.values import is_null
from xdplab.plan.factors import BY_COLUMN, FACTORS, MODES, of_program
from xdplab.text import many

CHANGING = {
    "no valid trial": "these points are in no answer",
    "nothing forwarded": "",
    "repetition apart": "it is in the mean: `xdplab run PLAN --extend RUN` with more repetitions shows which is usual",
    "programs differ": "measure them in one session, with one compiler",
    "settings differ": "measure them with one setting",
    "unequal work": "their costs are of two programs",
    "test run contradicted": "one of the two times is of other work, or other caches",
    "rate rises with N": "another limit than the program was at work",
    "test run disagrees": "one of the two costs has something else in it",
    "repetitions form classes": "the mean is of no repetition",
    "off the line": "the cost of an access is not one number there",
    "plateau": "these rates are not the program's",
    "paced load is lost": "these round trips are those of a full queue",
    "latency is a ring's fill": "these round trips are a ring's, not the program's",
    "repetitions differ": "",
    "clock differs": "times at two clocks are not comparable",
    "drift": "it widens the intervals, and does not cancel between runs",
}
"""Rules whose findings change what a run says, the most important first, and what follows. An import's rules come after
them; remarks in reasons of valid trials (`DISTURBANCES`) change nothing that the intervals do not show."""
MANY = 0.25
"""Share of the trials that must run at another clock for it to change what the run says."""


@dataclass(frozen=True)
class Doubt:
    """The findings of one rule: the first of them, how many more there are, and what follows from it."""

    rule: str
    what: str
    more: int
    so: str

    @property
    def text(self) -> str:
        alike = f" ({self.more} more alike)" if self.more else ""
        return f"{self.what}{alike}" + (f": {self.so}" if self.so else "")


def is_remark(finding: Finding) -> bool:
    """Tell whether a finding changes nothing that a run says: it stands in the audit."""
    if finding.rule == "clock differs":
        return finding.evidence["trials"] < MANY * finding.evidence["of"]
    return finding.severity != "warning" or finding.rule in DISTURBANCES


def doubts(findings: Sequence[Finding]) -> list[Doubt]:
    """Return what changes what a run says, one doubt for each rule, the most important first."""
    by_rule: dict[str, list[Finding]] = {}
    for finding in findings:
        if not is_remark(finding):
            by_rule.setdefault(finding.rule, []).append(finding)
    ordered = [rule for rule in CHANGING if rule in by_rule] + [rule for rule in by_rule if rule not in CHANGING]
    return [Doubt(rule, by_rule[rule][0].what, len(by_rule[rule]) - 1, CHANGING.get(rule, "")) for rule in ordered]


def doubt(findings: Sequence[Finding], run: str, cancelled: Collection[str] = ()) -> str:
    """Return what would change the answer of the run at the path ``run``, in one or two sentences.

    ``cancelled``: rules whose findings do not concern this answer.
    """
    ordered = [one for one in doubts(findings) if one.rule not in cancelled]
    if not ordered:
        remarks = sum(finding.severity == "warning" for finding in findings)
        left = f"; `xdplab audit {run}` has {many(remarks, 'remark')} on single trials" if remarks else ""
        return f"No check speaks against it{left}."
    others = ", ".join(one.rule for one in ordered[1:])
    left = f" Other doubts: {others} (`xdplab audit {run}`)." if others else ""
    return f"What may change this: {ordered[0].text}.{left}"


SAME = 0.10
"""A ratio that is known no better than this is not called the same."""
MOST_TOLD = 4
"""Groups, or settings, that one sentence names; of more it tells the least and the most."""
NOTHING_TO_COMPARE = (
    "No point has a valid rate.",
    "Loads are paced and no latency is known: there is no rate or round trip to compare.",
)
"""Without and with valid trials."""
RATE, PACED, P99 = "forwarded_pps", "rate_requested_pps", "latency_p99_ns"
NEEDED = (
    *("run_id", "trial_id", "attempt", "point_id", "repetition", "verdict", "limited_by", "accesses", STAGE),
    *(RATE, PACED, P99, "offered_pps", "ns_per_packet", SETTING_KEY, PROGRAM_KEY, LABEL),
)
"""Beside the factors that vary."""
OF_PROGRAM = frozenset(factor.column for factor in FACTORS if of_program(factor))


def conclusions(trials: pd.DataFrame) -> list[str]:
    """Return the answer of a run in one or two sentences: costs and ratios at maximum load; round trips when paced.

    ``trials`` are judged and derived. A run whose points cannot be compared tells their rates.
    """
    last = settled(trials)
    names, keyed = varying(last), with_keys(last)
    needed = [name for name in dict.fromkeys((*NEEDED, *names)) if name in keyed]
    rows = valid(keyed[needed]).assign(**{BELIEVED: True})  # rows of all columns take three times as long
    at_max = rows[rows[PACED].isna() & rows[RATE].gt(0)]
    paced = rows[rows[PACED].notna() & rows[P99].notna() & reached(rows)]
    parts = [text for text in (cost(rows, names), ratios(at_max, names)) if text] or [rates(at_max)]
    answers = [text for text in ("; ".join(filter(None, parts)), round_trip(paced)) if text]
    return [f"{text[0].upper()}{text[1:]}." for text in answers] or [NOTHING_TO_COMPARE[not rows.empty]]


def cost(trials: pd.DataFrame, names: Sequence[str]) -> str:
    """Say what one more access costs, in ns, by mode and program: the slope of each series' time over N."""
    if trials["accesses"].nunique() < 2:
        return ""
    naming = [name for name in names if name == "mode" or (name in OF_PROGRAM and name != "accesses")]
    groups: dict[tuple[object, ...], Values] = {}
    limited = limited_by_dut(trials)
    read = dict.fromkeys(("accesses", "ns_per_packet", "repetition", SETTING_KEY, PROGRAM_KEY, LABEL, *naming))
    for series, rows in by_series(limited[list(read)]):
        repetition, lines = lines_by_repetition(rows)
        if slopes := dict(zip(repetition.tolist(), lines.c.tolist(), strict=True)):
            groups.setdefault(_place(rows.iloc[0], naming), {}).setdefault(series, {}).update(slopes)
    above = {place: kept for place, of in groups.items() if (kept := _above_noise(of))}
    if not above:
        return "what one more access costs is not above the noise" if groups else ""
    below = sum(map(len, groups.values())) - sum(map(len, above.values()))
    rest = f" (for {below} more it is not above the noise)" if below else ""
    return f"one more access costs {_listed(above, naming, ' ns')}{rest}"


def _above_noise(costs: Values) -> Values:
    """Return the series whose cost is above 0 in each repetition, or is so by the interval of its mean.

    A mean of those repetitions alone that have a cost above 0 would be of noise.
    """
    return {one: by for one, by in costs.items() if min(by.values()) > 0 or Spread.of(by.values()).low > 0}


def ratios(rows: pd.DataFrame, names: Sequence[str]) -> str:
    """Say how the rate at maximum load depends on each factor but N, at the smallest N, with all others alike."""
    if rows.empty:
        return ""
    counted = "accesses" in names and rows["accesses"].notna().any()
    at = rows[rows["accesses"].eq(rows["accesses"].min())] if counted else rows
    factors = [name for name in names if name not in ("accesses", "load") and not (counted and name in OF_PROGRAM)]
    effects = [effect for name in factors for effect in effects_of(at, name, names)]
    if not effects:
        return ""
    effects.sort(key=lambda effect: effect.size, reverse=True)
    left = len(effects) - MOST_TOLD
    texts = _together(effects[:MOST_TOLD]) + [f"{many(left, 'smaller difference')} more"] * (left > 0)
    where = f"at N = {at['accesses'].min():g} and maximum load" if counted else "at maximum load"
    return f"{where}, {', '.join(texts)}{_limited(at)}"


def _limited(rows: pd.DataFrame) -> str:
    """Say of how many points the rate is not the DUT's."""
    makers = rows[rows["limited_by"].isin(["generator", "link"])]
    if makers.empty:
        return ""
    who = " and the ".join(sorted(set(makers["limited_by"])))
    return f" (the {who} limited {makers['point_id'].nunique()} of {many(rows['point_id'].nunique(), 'rate')})"


@dataclass(frozen=True)
class Effect:
    """The rate at one level of a factor over that at another, in words."""

    level: str
    base: str
    ratio: Estimate

    @property
    def size(self) -> float:
        return 0.0 if self.is_same else abs(log(self.ratio.value))

    @property
    def is_same(self) -> bool:
        return isnan(self.ratio.least) and self.ratio.low <= 1 <= self.ratio.high

    @property
    def text(self) -> str:
        """Return what the rate at this level is, where it is the same as far as the run can tell."""
        half = max(self.ratio.high - 1, 1 - self.ratio.low)
        limit = f"±{half:.1%}" if half < 0.01 else f"±{half:.0%}"
        if half <= SAME:
            return f"with {self.level} is the same as with {self.base} within {limit}"
        return f"with {self.level} is not known to differ from that with {self.base} (less than {limit} would not show)"


def _together(effects: Sequence[Effect]) -> list[str]:
    """Return the effects in words, those against one base together."""
    texts = []
    unlike = [effect for effect in effects if not effect.is_same]
    for base in dict.fromkeys(effect.base for effect in unlike):
        first, *others = [effect for effect in unlike if effect.base == base]
        parts = [f"with {first.level} is {first.ratio.text(' times')}"]
        parts += [f"with {other.level} {other.ratio.text(' times')}" for other in others]
        texts.append(f"{' and '.join(parts)} that with {base}")
    texts += [effect.text for effect in effects if effect.is_same]
    return [f"the rate {texts[0]}", *(text.replace(" is ", " ", 1) for text in texts[1:])]


def effects_of(rows: pd.DataFrame, factor: str, names: Sequence[str]) -> Iterator[Effect]:
    """Give the effect of each level of a factor against its first one; of many levels that of the last one."""
    levels = _ordered(factor, rows[factor].dropna().unique().tolist())
    alike = [name for name in names if name != factor and name in rows]
    keys = key_of(rows, tuple(alike))
    by_level: dict[object, dict[tuple[str, float], float]] = {level: {} for level in levels}
    for level, key, repetition, rate in zip(rows[factor], keys, rows["repetition"], rows[RATE], strict=True):
        if level in by_level:
            by_level[level][str(key), float(repetition)] = float(rate)
    for level in levels[1:] if len(levels) <= MOST_TOLD else levels[-1:]:
        values: Values = {}
        for (point, repetition), rate in by_level[level].items():
            if before := by_level[levels[0]].get((point, repetition)):
                values.setdefault(point, {})[repetition] = rate / before
        if values:
            yield Effect(_name(factor, level), _name(factor, levels[0]), Estimate.of(values))


def round_trip(rows: pd.DataFrame) -> str:
    """Say how long the 99th percentile of a round trip is at paced loads, by point."""
    return _of_points(rows, P99, "the 99th percentile of a round trip is", " µs", 1e3)


def rates(rows: pd.DataFrame) -> str:
    """Say the rates at maximum load of points that differ in nothing comparable, or of the only one."""
    return _of_points(rows, RATE, "at maximum load the rate is", " Mpps", 1e6)


def _of_points(rows: pd.DataFrame, column: str, text: str, unit: str, scale: float) -> str:
    names = varying(rows) if len(rows) else []
    groups: dict[tuple[object, ...], Values] = {}
    for row in rows[list({"point_id", "repetition", column, *names})].to_dict("records"):
        values = groups.setdefault(_place(row, names), {}).setdefault(row["point_id"], {})
        values[float(row["repetition"])] = float(row[column])
    return f"{text} {_listed(groups, names, unit, scale)}" if groups else ""


def _place(row: Mapping[Hashable, object] | pd.Series, names: Sequence[str]) -> tuple[object, ...]:
    return tuple(None if is_null(row[name]) else row[name] for name in names)


def _listed(groups: dict[tuple[object, ...], Values], names: Sequence[str], unit: str, scale: float = 1.0) -> str:
    """Return each group's value: ``2.31 ns [2.2, 2.4] (native) and …``; of many groups the least and the most."""
    naming = [at for at in range(len(names)) if len({place[at] for place in groups}) > 1]
    orders = {at: _ordered(names[at], list(dict.fromkeys(place[at] for place in groups))) for at in naming}
    places = sorted(groups, key=lambda place: [orders[at].index(place[at]) for at in naming])
    estimates = [(Estimate.of(groups[place]), _words([(names[at], place[at]) for at in naming])) for place in places]
    if len(estimates) > MOST_TOLD:
        least, *_, most = sorted(estimates, key=lambda one: one[0].value)
        return f"{least[0].text(unit, scale)} ({least[1]}) to {most[0].text(unit, scale)} ({most[1]})"
    parts = [one.text(unit, scale) + (f" ({text})" if text else "") for one, text in estimates]
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _words(cells: Sequence[tuple[str, object]]) -> str:
    return ", ".join(_name(name, value) for name, value in cells if value is not None)


def _ordered(factor: str, levels: list[object]) -> list[object]:
    """Return levels in order: numbers by size, native before other modes, texts by letter."""
    if all(isinstance(level, (int, float)) for level in levels):
        return sorted(levels)  # type: ignore[type-var]
    ranks = {level: rank for rank, level in enumerate(MODES if factor == "mode" else sorted(map(str, levels)))}
    return sorted(levels, key=lambda level: ranks[str(level)])


def _name(factor: str, level: object) -> str:
    return BY_COLUMN[factor].label(int(level) if isinstance(level, float) and level.is_integer() else level)
