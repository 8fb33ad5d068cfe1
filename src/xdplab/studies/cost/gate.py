"""The gate: a packet's cost against a baseline, which is a file in a repository, or a run; and two runs compared.

A baseline has exact fractions, so a difference of one instruction is a difference. Lines are compared by their text,
because a line that is added moves the numbers of those below it; a line that is gone, with the new one most like it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from xdplab.analysis import MARGIN
from xdplab.errors import PlanError, ResultsError
from xdplab.run import frames
from xdplab.run.disk import reason, write_whole
from xdplab.studies.comparing import EXIT_CODES, Unlike, compared_json, names_of
from xdplab.studies.cost.measurement import ALLOCATOR, APPLICATION, CALLED, PATH, PROGRAM, WHOLE
from xdplab.studies.cost.rows import FUNCTION, MADE_UP, PLACES
from xdplab.studies.kind import Run
from xdplab.text import many

TOTALS = (WHOLE, PROGRAM, CALLED, APPLICATION, PATH, ALLOCATOR)
_TRAFFIC = ("kernel", "mode", "frame_bytes", "flows")
_TOOLS = ("compiler", "kernel_release")
_BECAME = ("came_back", "passed_on")
"""What became of the frames: a program that drops them all costs less, and is no better for it."""
_MADE_WITH = (*_TOOLS, *_BECAME)
_NONE = "0.00% of the frames"
MOST_PAIRS = 50_000
"""Lines gone times lines come, which take seconds. More are those of another program, or its machine instructions."""
ALIKE = 0.6
"""The least ratio of two lines of which one became the other: what difflib itself calls close."""
MAP_HINT = "does a map lack its entries (`--map`)?"

Counts = Mapping[str, Fraction]


@dataclass(frozen=True)
class Case:
    """The cost of one packet: ``totals``, ``lines`` (with what they call) and ``functions``, by name.

    ``made_with``: what else changes a count. ``name`` is the program's; ``traffic`` says kernel, mode and frames.
    """

    name: str
    traffic: tuple[str, ...]
    made_with: Mapping[str, str]
    totals: Counts
    lines: Counts
    functions: Counts

    @property
    def drops_all(self) -> bool:
        return all(self.made_with[name] == _NONE for name in _BECAME)

    @property
    def title(self) -> str:
        kernel, mode, frame_bytes, flows = self.traffic
        return f"{self.name} ({kernel}, {mode}, {frame_bytes} B, {flows} {'flow' if flows == '1' else 'flows'})"


def judged_totals(*cases: Case) -> tuple[str, ...]:
    """Return the totals whose sum is a packet's cost: the whole, or those of its parts that each case has exactly."""
    exact = [name for name in TOTALS if all(name in case.totals for case in cases)]
    return (WHOLE,) if WHOLE in exact else tuple(exact)


@dataclass(frozen=True)
class CostDifference:
    """What changed from a baseline's case to one of today: ``old`` and ``new`` are of the same traffic."""

    old: Case
    new: Case

    @property
    def made_otherwise(self) -> list[str]:
        """What differs besides the program: then no count says anything about it."""
        pairs = ((name, self.old.made_with[name], self.new.made_with[name]) for name in _MADE_WITH)
        return [f"{name}: was {old}, is {new}" for name, old, new in pairs if old != new]

    @property
    def changed(self) -> bool:
        """Tell whether a total that both have exactly is another one."""
        return any(old != new for _, old, new in self._total_rows())

    @property
    def growth(self) -> tuple[Fraction, str]:
        """By how many instructions a packet grows, and the names of the totals that are judged; less than 0 if it
        shrinks. What moves from the program into what it calls is no growth."""
        names = judged_totals(self.old, self.new)
        grown = (self.new.totals[name] - self.old.totals[name] for name in names)
        return sum(grown, Fraction()), " and ".join(names)

    @property
    def parts(self) -> list[str]:
        """The totals' names: not each path goes through user space, or allocates."""
        either = {**self.old.totals, **self.new.totals}
        return [name for name in TOTALS if name not in (APPLICATION, ALLOCATOR) or name in either]

    @property
    def inexact(self) -> list[str]:
        """The totals that one of them has to a range only: nothing is said of their growth."""
        return [name for name in self.parts if name not in self.old.totals or name not in self.new.totals]

    @property
    def text(self) -> str:
        """How many instructions a packet of the new program takes more or less, and where most of them are."""
        old, new = (case.totals[PROGRAM] + case.totals[CALLED] for case in (self.old, self.new))
        releases = dict.fromkeys(case.made_with["kernel_release"] for case in (self.old, self.new))
        kernel = f"Linux {' → '.join(releases)}, {self.new.traffic[1]}"
        if old == new:
            text = f"{self.new.name} executes as many instructions per packet as {self.old.name}"
            return f"{text}: {float(old):g} ({kernel})"
        how = "more" if new > old else "fewer"
        text = (
            f"{self.new.name} executes {float(abs(new - old)):g} instructions {how} per packet than {self.old.name}: "
        )
        return f"{text}{float(old):g} → {float(new):g} with what it calls ({kernel}){self.most_changed(new - old)}"

    def most_changed(self, difference: Fraction) -> str:
        """Say at which line most of a difference is; an empty text if no line is known."""
        sign = 1 if difference > 0 else -1
        changes = {line: new - old for line, old, new in self._line_rows if line != MADE_UP and (new - old) * sign > 0}
        line = max(changes, key=lambda one: abs(changes[one]), default=None)
        return "" if line is None else f"; {float(changes[line]):+g} at `{line}`"

    def _total_rows(self) -> list[Change]:
        return [(name, self.old.totals[name], self.new.totals[name]) for name in self.parts if name not in self.inexact]

    @cached_property
    def _line_rows(self) -> list[Change]:
        return _changes(_reworded(self.old.lines, self.new.lines), self.new.lines)

    def _function_rows(self) -> list[Change]:
        return [] if self.inexact else _changes(self.old.functions, self.new.functions)

    @property
    def totals(self) -> pd.DataFrame:
        """Return old, new and difference of each total that both have."""
        return _frame("instructions", self._total_rows())

    @property
    def lines(self) -> pd.DataFrame:
        """Return the lines that changed, with what they call, the largest difference first."""
        return _frame("line", self._line_rows)

    @property
    def functions(self) -> pd.DataFrame:
        """Return the functions that changed, each without what it calls, the largest difference first; none if the
        whole is inexact."""
        return _frame("function", self._function_rows())

    def to_json(self) -> dict[str, Any]:
        """Return everything, for a script: instructions per packet."""
        return {
            "program": self.new.name,
            "against": self.old.name,
            "traffic": dict(zip(_TRAFFIC, self.new.traffic, strict=True)),
            "made_otherwise": self.made_otherwise,
            "inexact": self.inexact,
            "totals": _facts(self._total_rows()),
            "lines": _facts(self._line_rows),
            "functions": _facts(self._function_rows()),
        }


@dataclass(frozen=True)
class Gate:
    """What the gate says of a baseline and today; growth up to ``tolerance`` instructions is let through."""

    differences: list[CostDifference]
    tolerance: Fraction

    @property
    def made_otherwise(self) -> list[str]:
        return list(dict.fromkeys(line for one in self.differences for line in one.made_otherwise))

    @property
    def verdict(self) -> str:
        """``no more``, ``more`` or ``not comparable``."""
        if self.made_otherwise:
            return "not comparable"
        return "more" if any(one.growth[0] > self.tolerance for one in self.differences) else "no more"

    def text(self, baseline: str) -> str:
        """Say the verdict on ``baseline`` in a sentence, what may be the cause where nothing compares, and that frames
        which neither come back nor go on may be what a map lets through."""
        ended = sum(one.new.drops_all for one in self.differences)
        doubt = f"; no frame of {many(ended, 'packet')} came back or went on: {MAP_HINT}" if ended else ""
        return self._verdict_text(baseline) + doubt

    def _verdict_text(self, baseline: str) -> str:
        if self.made_otherwise:
            lost = any(line.startswith(_BECAME) for line in self.made_otherwise)
            hint = f"; {MAP_HINT}" if lost else ""
            return f"not comparable with {baseline}: {'; '.join(self.made_otherwise)}{hint}"
        most = max(self.differences, key=lambda one: one.growth[0])
        more, total = most.growth
        if self.verdict == "more":
            text = f"more than {baseline}: {most.new.title}: {float(more):+.3f} instructions per packet, {total}"
            return text + most.most_changed(more)
        return f"no more than {baseline}" + (f", within {float(self.tolerance):g}" if more > 0 else "")

    def to_json(self) -> dict[str, Any]:
        differences = [one.to_json() for one in self.differences]
        return {"tolerance": float(self.tolerance), "verdict": self.verdict, "differences": differences}


Change = tuple[str, Fraction, Fraction]
"""A name, what was counted of it before, and what now."""


def _changes(old: Counts, new: Counts) -> list[Change]:
    """Return what changed, the largest difference first."""
    rows = [(key, old.get(key, Fraction()), new.get(key, Fraction())) for key in dict.fromkeys((*old, *new))]
    return sorted((row for row in rows if row[1] != row[2]), key=lambda row: -abs(row[2] - row[1]))


def _reworded(old: Counts, new: Counts) -> Counts:
    """Return the old lines, each that is gone under the text of the new one that is most like it: a renamed variable is
    no growth, and hides none."""
    gone, come = [line for line in old if line not in new], [line for line in new if line not in old]
    texts, taken = dict[str, str](), set[str]()
    for _, before, after in sorted(_alike(gone, come), reverse=True, key=lambda pair: pair[0]):
        if before not in texts and after not in taken:
            texts[before] = after
            taken.add(after)
    return {texts.get(line, line): count for line, count in old.items()}


def _alike(gone: Sequence[str], come: Sequence[str]) -> Iterator[tuple[float, str, str]]:
    """Yield the pairs of lines that are alike, with how much."""
    if len(gone) * len(come) > MOST_PAIRS:
        return
    for after in come:
        matcher = SequenceMatcher(None, b=after)  # it keeps what it knows of the second one
        for before in gone:
            matcher.set_seq1(before)
            bounds = (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio)  # each below the one before it
            if all((ratio := of()) >= ALIKE for of in bounds):
                yield ratio, before, after


def _frame(name: str, rows: list[Change]) -> pd.DataFrame:
    shown = [(f"{float(a):.3f}", f"{float(b):.3f}", f"{float(b - a):+.3f}", key) for key, a, b in rows]
    return pd.DataFrame(shown, columns=["old", "new", "difference", name])


def _facts(rows: list[Change]) -> list[dict[str, Any]]:
    return [{"name": key, "old": float(a), "new": float(b), "difference": float(b - a)} for key, a, b in rows]


def cases_of(table: pd.DataFrame) -> list[Case]:
    """Return a case for each trial of a run's table; a total that holds to a range only is left out of it."""
    return [_case(rows) for _, rows in table.groupby("trial_id", sort=False)]


def _case(rows: pd.DataFrame) -> Case:
    first = rows.iloc[0]
    totals = {str(row["part"]): row["exact"] for row in rows.to_dict("records") if row["part"] in TOTALS}
    return Case(
        str(first["program"]),
        tuple(str(first[name]) for name in _TRAFFIC),
        {name: str(first[name]) for name in _TOOLS} | {name: _became(rows, name) for name in _BECAME},
        {name: Fraction(exact) for name, exact in totals.items() if pd.notna(exact)},
        _summed(_lines(rows)),
        _summed(_functions(rows)),
    )


def _became(rows: pd.DataFrame, name: str) -> str:
    (share,) = rows.loc[rows["part"].eq(WHOLE), name]
    return f"{share:.2%} of the frames"


def _summed(counts: Iterator[tuple[str, Fraction]]) -> Counts:
    summed: Counter[str] = Counter()
    for name, count in counts:
        summed[name] += count  # type: ignore[assignment]
    return summed  # type: ignore[return-value]


def _lines(rows: pd.DataFrame) -> Iterator[tuple[str, Fraction]]:
    for row in rows.loc[rows["part"].isin(PLACES)].to_dict("records"):
        yield str(row["name"]) or MADE_UP, Fraction(row["exact"]) + Fraction(row["called_exact"])


def _functions(rows: pd.DataFrame) -> Iterator[tuple[str, Fraction]]:
    for row in rows.loc[rows["part"].eq(FUNCTION)].to_dict("records"):
        if pd.notna(row["exact"]):
            yield str(row["name"]), Fraction(row["exact"])


def numbered(titles: Iterable[str]) -> Iterator[str]:
    """Yield the titles of a run's packets; a second one of the same title has a number."""
    times: Counter[str] = Counter()
    for title in titles:
        times[title] += 1
        yield title + (f", {times[title]}" if times[title] > 1 else "")


def compared(old: list[Case], new: list[Case]) -> list[CostDifference]:
    """Return a difference for each case of ``new``.

    A case is compared with the one of the same program, or with the only program of the baseline, in the same traffic;
    programs of one name in their order. Where the baseline has it of other kernels only, with the first of these.
    Raises ResultsError for one that the baseline lacks.
    """
    left = [*old]
    differences = []
    for case in new:
        if (before := taken(left, old, case)) is None:
            names = "; ".join(one.title for one in old)
            raise ResultsError(
                f"the baseline lacks {case.title}; it has {names}", remedy="write it anew: `--write FILE`"
            )
        differences.append(CostDifference(before, case))
    return differences


def taken(left: list[Case], old: list[Case], case: Case) -> Case | None:
    """Return the case of a baseline to compare with; of what is ``left`` of it, one of the same name is taken away."""
    is_only = len({one.name for one in old}) == 1
    named = [one for one in old if one.name == case.name or is_only]
    if same := next((one for one in left if one in named and one.traffic == case.traffic), None):
        if same.name == case.name:
            left.remove(same)
        return same
    elsewhere = [one for one in named if one.traffic[1:] == case.traffic[1:]]
    return elsewhere[0] if elsewhere and all(one.traffic != case.traffic for one in elsewhere) else None


def write_baseline(cases: list[Case], path: Path) -> None:
    """Write a baseline. Raises ResultsError if the disk refuses."""
    write_whole(path, (json.dumps([_as_json(case) for case in cases], indent=1) + "\n").encode(), wait=True)


def read_baseline(path: Path) -> list[Case]:
    """Read a baseline. Raises ResultsError if it is none."""
    try:
        return [_from_json(values) for values in list(json.loads(path.read_text()))]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ResultsError(
            f"{path} is no baseline: {reason(error)}",
            remedy="`xdplab cost … --write FILE` makes one; `--against git:COMMIT` counts a commit's program",
        ) from None


def _as_json(case: Case) -> dict[str, Any]:
    counts = {name: {key: str(n) for key, n in getattr(case, name).items()} for name in _COUNTS}
    return {"program": case.name, "traffic": list(case.traffic), "made_with": dict(case.made_with)} | counts


def _from_json(values: Mapping[str, Any]) -> Case:
    counts = ({key: Fraction(n) for key, n in values[name].items()} for name in _COUNTS)
    made_with = {name: values["made_with"][name] for name in _MADE_WITH}
    return Case(values["program"], tuple(values["traffic"]), made_with, *counts)


_COUNTS = ("totals", "lines", "functions")


METRIC = "instructions"


@dataclass(frozen=True)
class ComparedCosts:
    """The packets of the second run against those of the first; ``alone``: those that one of them lacks, in words."""

    names: tuple[str, str]
    differences: list[CostDifference]
    alone: list[str]
    metric: str = METRIC

    @property
    def unlike(self) -> tuple[Unlike, ...]:
        """What was not the same besides the programs."""
        lines = dict.fromkeys(line for one in self.differences for line in one.made_otherwise)
        return tuple(Unlike(line.partition(":")[0], None, None, line) for line in lines)

    @property
    def verdict(self) -> str:
        """``undecided`` where compiler, kernel or what became of the frames differ, or a total holds to a range."""
        if self.unlike:
            return "undecided"
        if any(one.changed for one in self.differences):
            return "differs"
        return "undecided" if any(PATH in one.inexact for one in self.differences) else "equivalent"

    @property
    def exit_code(self) -> int:
        """0 equivalent, 1 differs, 2 undecided."""
        return EXIT_CODES[self.verdict]

    @property
    def points(self) -> pd.DataFrame:
        """One row per packet and total, in instructions; no difference where one of them holds to a range."""
        rows = [row for one in self.differences for row in _rows(one)]
        return pd.DataFrame(rows).astype(dict.fromkeys(("old", "new", "difference"), "Float64"))

    @property
    def readable(self) -> pd.DataFrame:
        """The points without what does not differ from packet to packet."""
        points = self.points
        return points[[name for name in points if name not in _TRAFFIC or points[name].nunique() > 1]]

    def to_json(self) -> dict[str, Any]:
        """Return everything, for a script."""
        parts = {
            "environment": [vars(one) for one in self.unlike],
            "beyond": self._changes,
            "open": [*self._inexact, *self.alone],
        }
        return compared_json(self.names, (METRIC,), self.verdict, frames.records(self.points), **parts)

    def lines(self) -> list[str]:
        """Return the lines before the table of points, and the answer."""
        first = [f"instructions per packet, exact: {self.names[1]} against {self.names[0]}"]
        first += [f"not comparable: {one.text}" for one in self.unlike]
        return [
            *first,
            *(self._changes or ["no total differs"]),
            *self._inexact,
            *self.alone,
            f"Answer: {self.verdict}.",
        ]

    @property
    def _changes(self) -> list[str]:
        return [f"{one.new.title}: {_changed_totals(one)}" for one in self.differences if one.changed]

    @property
    def _inexact(self) -> list[str]:
        texts = [f"{one.new.title}: {', '.join(one.inexact)}" for one in self.differences if one.inexact]
        return [f"not judged, because it holds to a range only: {text}" for text in texts]


def _changed_totals(one: CostDifference) -> str:
    totals = [total for total in one.to_json()["totals"] if total["difference"]]
    return ", ".join(f"{t['name']} {t['old']:.7g} → {t['new']:.7g} ({t['difference']:+.4g})" for t in totals)


def _rows(one: CostDifference) -> list[dict[str, Any]]:
    facts = one.to_json()
    counts = {total.pop("name"): total for total in facts["totals"]}
    missing = {"old": None, "new": None, "difference": None}
    return [
        {"program": one.new.name, **facts["traffic"], "part": part, **counts.get(part, missing)} for part in one.parts
    ]


def compare(first: Run[Any], second: Run[Any], metric: str, equal: Sequence[Run[Any]], margin: float) -> ComparedCosts:
    """Compare two runs. Raises PlanError for what exact counts do not have, ResultsError for other packets."""
    if metric != METRIC:
        raise PlanError(f"--metric {metric}: costs are compared by {METRIC}", remedy="leave it out")
    if equal or margin != MARGIN:
        raise PlanError(
            "counts are exact: they have no margin, and equal runs no spread",
            remedy="`xdplab cost … --against RUN --tolerance N` lets growth through",
        )
    names = names_of(first.directory, second.directory)
    old, new = (cases_of(run.rows()) for run in (first, second))
    left = [*old]
    pairs = [(taken(left, old, case), case) for case in new]
    differences = [CostDifference(before, case) for before, case in pairs if before is not None]
    if not differences:
        raise ResultsError(f"{names[0]} and {names[1]} have no packet in common", remedy="`xdplab show RUN` has them")
    used = [one.old for one in differences]
    alone = [(names[0], case) for case in old if case not in used]
    alone += [(names[1], case) for before, case in pairs if before is None]
    return ComparedCosts(names, differences, [f"only in {name}: {case.title}" for name, case in alone])
