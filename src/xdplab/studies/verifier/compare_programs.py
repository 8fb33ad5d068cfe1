"""A and B per program: two kernels, two versions of objects, two runs, or a CSV that veristat wrote."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd

from xdplab.analysis.values import Row, is_null, number, records, text
from xdplab.errors import PlanError, ResultsError
from xdplab.formats.verifier import parse_veristat
from xdplab.run.disk import reason
from xdplab.studies.comparing import EXIT_CODES, compared_json
from xdplab.studies.kind import Run
from xdplab.studies.verifier.points import LINUX

COUNTS = (
    *("insns", "processed_insns", "total_states", "peak_states", "max_states_per_insn", "mark_read", "branches"),
    *("stack_sum_bytes", "stack_chain_bytes"),
)
MEDIANS = (
    *("verify_ns", "load_ns", "verify_instructions", "load_instructions"),
    *("memory_bytes", "cgroup_peak_bytes", "xlated_bytes", "jited_bytes"),
)
METRICS = (*COUNTS, *MEDIANS)
SHOWN = ("processed_insns", "total_states", "verify_ns", "verify_instructions", "memory_bytes")
"""The default metrics, if either side has them."""

ACCEPTED, FAILURE = "accepted", "failure"
_IDENTITY = ["object", "section", "program", "verdict", "stack_depths"]
_CONDITION = re.compile(r"\s*(\w+)\s*(<=|>=|!=|<|>|=)\s*(.+?)\s*")
_COMPARE = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq, "!=": operator.ne,
}  # fmt: skip


@dataclass(frozen=True)
class Side:
    """One of the two: its name, and one row per program: `_IDENTITY` and `METRICS`. veristat gives no section: ''."""

    name: str
    rows: pd.DataFrame


@dataclass(frozen=True)
class ComparisonOptions:
    """The options for output and thresholds.

    ``filters``: conditions on columns such as ``processed_insns_b>1000`` or ``program=xdp_*``, which all hold;
    ``sort``: a column, largest first, or ``-`` and a column, smallest first; ``thresholds``: most growth of B over A
    by metric, in percent.
    """

    metrics: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    sort: str | None = None
    top: int | None = None
    thresholds: tuple[str, ...] = ()


@dataclass(frozen=True)
class ComparedPrograms:
    """``programs``: the filtered and sorted programs of both sides; ``beyond``: those that grew beyond a threshold or
    are no longer accepted; ``open``: those that a threshold could not judge; ``notes``: names left out of the
    comparison."""

    names: tuple[str, str]
    metrics: tuple[str, ...]
    programs: pd.DataFrame
    top: int | None
    beyond: tuple[str, ...]
    open: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0: nothing beyond a threshold; 1: something is; 2: something could not be judged, or nothing was compared."""
        return 1 if self.beyond else 2 if self.open else 0

    @property
    def table(self) -> pd.DataFrame:
        return self.programs if self.top is None else self.programs.head(self.top)

    @property
    def readable(self) -> pd.DataFrame:
        """The same for a reader: each metric as ``A → B`` with the change in percent."""
        rows = records(self.table)
        cells = {name: [_arrow(row, name) for row in rows] for name in ("verdict", *self.metrics)}
        return pd.DataFrame({name: self.table[name].tolist() for name in ("object", "program")} | cells)

    def to_json(self) -> dict[str, Any]:
        """Return everything, for a script; the points are the programs shown."""
        verdict = {code: word for word, code in EXIT_CODES.items()}[self.exit_code]
        points = [{k: None if is_null(v) else v for k, v in row.items()} for row in records(self.table)]
        judged = {"beyond": list(self.beyond), "open": [*self.open, *self.notes]}
        return compared_json(self.names, self.metrics, verdict, points, **judged)

    def lines(self) -> list[str]:
        """Return the lines below the table."""
        both = self.programs
        present = both["verdict_a"].notna() & both["verdict_b"].notna()
        lines = [f"A: {self.names[0]}", f"B: {self.names[1]}"]
        lines.append(
            f"{len(both)} programs: {int(present.sum())} in both, {int((present & _verdict_differs(both)).sum())} with "
            f"another verdict, {int(both['verdict_b'].isna().sum())} in A only, {int(both['verdict_a'].isna().sum())} "
            "in B only"
        )
        for metric in self.metrics:
            a, b = (both.loc[present, f"{metric}_{side}"].astype("Float64") for side in "ab")
            shared = a.notna() & b.notna()
            if shared.any():
                total = b[shared].sum() - a[shared].sum()
                equal = int((a[shared] == b[shared]).sum())
                lines.append(
                    f"{metric}: {a[shared].sum():.0f} → {b[shared].sum():.0f} ({total:+.0f}"
                    f"{_percent(a[shared].sum(), b[shared].sum())}) over {int(shared.sum())} programs, {equal} equal"
                )
        lines += [*self.notes, *(f"beyond: {one}" for one in self.beyond), *(f"open: {one}" for one in self.open)]
        return lines


def side_of_run(run: Run[Any], kernel: str | None = None, corpus: str | None = None) -> Side:
    """Return the results of a run's kernel, one row per program: counts of the first repetition, medians of times.

    Raises ResultsError for a run of another kind, without a kernel, or with several kernels of which none is chosen.
    """
    if run.kind.name != "verifier":
        raise ResultsError(
            f"{run.directory.name} is a run of kind {run.kind.name}: only the verifier study compares programs"
        )
    rows = run.rows()
    rows = rows[rows["verifier"] == LINUX]
    kernels = list(dict.fromkeys(rows["kernel"].dropna()))
    if kernel is None and len(kernels) > 1:
        raise ResultsError(
            f"{run.directory.name} has kernels {', '.join(kernels)}", remedy=f"--kernels {kernels[0]},{kernels[1]}"
        )
    if kernel is not None and kernel not in kernels:
        raise PlanError(f"{run.directory.name} has no kernel {kernel}", remedy=f"it has {', '.join(kernels) or 'none'}")
    kept = rows if kernel is None else rows[rows["kernel"] == kernel]
    kept = kept if corpus is None else kept[kept["corpus"] == corpus]
    label = next(iter(kept["label"].dropna()), "no program")
    parts = [run.directory.name, label, *([corpus] if corpus else [])]
    return Side(", ".join(parts), _one_each(kept))


def side_of_csv(path: Path) -> Side:
    """Return the programs of a CSV that veristat wrote. Raises ResultsError, FormatError."""
    try:
        written = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"{path}: {reason(error)}", remedy="name a CSV of veristat (-o csv)") from error
    return Side(f"veristat's {path.name}", _one_each(pd.DataFrame(parse_veristat(written))))


def sides_within(run: Run[Any]) -> tuple[Side, Side]:
    """Return the two sides that one run has: its two kernels, or its two corpora on one kernel. Raises ResultsError."""
    rows = run.rows()
    rows = rows[rows["verifier"] == LINUX] if "verifier" in rows else rows.iloc[:0]
    kernels = list(dict.fromkeys(sorted(rows["kernel"].dropna(), key=_order(run)))) if len(rows) else []
    if len(kernels) == 2:
        first, second = (side_of_run(run, kernel) for kernel in kernels)
        return first, second
    corpora = sorted(set(rows["corpus"].dropna())) if len(rows) else []
    if len(kernels) == 1 and len(corpora) == 2:
        first, second = (side_of_run(run, kernels[0], corpus) for corpus in corpora)
        return first, second
    raise ResultsError(
        f"{run.directory.name} has {len(kernels)} kernels and {len(corpora)} corpora: two sides are two of either",
        remedy="name a second run, or --kernels A,B",
    )


def compared(a: Side, b: Side, options: ComparisonOptions) -> ComparedPrograms:
    """Compare two sides program by program. Raises PlanError for a column, metric or threshold that does not exist."""
    thresholds = dict(_threshold(threshold) for threshold in options.thresholds)
    metrics = tuple(dict.fromkeys([*(options.metrics or _present(a, b)), *thresholds]))
    for metric in metrics:
        if metric not in METRICS:
            raise PlanError(f"there is no metric {metric}", remedy=f"there are {', '.join(METRICS)}")
    frame, notes = _joined(a.rows, b.rows)
    frame = _with_differences(frame)
    for condition in options.filters:
        frame = frame[_holds(frame, condition)]
    frame = _sorted(frame, options.sort, metrics)
    beyond, unjudged = _judged(frame, thresholds)
    columns = [name for metric in metrics for name in (f"{metric}_a", f"{metric}_b", f"{metric}_diff", f"{metric}_pct")]
    shown = frame[["object", "program", "verdict_a", "verdict_b", *columns]].reset_index(drop=True)
    return ComparedPrograms((a.name, b.name), metrics, shown, options.top, beyond, unjudged, notes)


def _one_each(rows: pd.DataFrame) -> pd.DataFrame:
    whole = rows.reindex(columns=[*_IDENTITY, *METRICS])
    names = ["object", "section", "program"]
    whole[names] = whole[names].astype("string").fillna("")
    whole["stack_depths"] = whole["stack_depths"].astype("string")
    numbers = whole[list(METRICS)].apply(pd.to_numeric).astype("Float64")
    groups = pd.concat([whole[_IDENTITY], numbers], axis=1).groupby(names, sort=False)
    ways = dict.fromkeys(("verdict", "stack_depths", *COUNTS), "first") | dict.fromkeys(MEDIANS, "median")
    one: pd.DataFrame = groups.agg(ways).reset_index()
    return one


def _joined(a: pd.DataFrame, b: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Join by object, section and program, as far as both sides have them; one object on each side needs no name.

    veristat has only the object's file name, and no section. A name that a side has twice is left out, with a note.
    """
    sections = all(bool(side["section"].ne("").any()) for side in (a, b))
    alone = a["object"].nunique() == b["object"].nunique() == 1
    keyed = [side.assign(key=_keys(side, sections=sections, alone=alone)) for side in (a, b)]
    twice = {key for side in keyed for key in side.loc[side["key"].duplicated(keep=False), "key"]}
    left = [side[~side["key"].isin(twice)] for side in keyed]
    joined = left[0].merge(left[1], on="key", how="outer", suffixes=("_a", "_b"), sort=False)
    for name in ("object", "program"):
        joined[name] = joined[f"{name}_a"].fillna(joined[f"{name}_b"])
    notes = (f"{len(twice)} names that a side has more than once are left out, such as {min(twice)}",) if twice else ()
    return joined, notes


def _keys(side: pd.DataFrame, *, sections: bool, alone: bool) -> pd.Series:
    objects = side["object"] if sections else side["object"].map(lambda name: PurePosixPath(name).name)
    parts = [*([] if alone else [objects]), *([side["section"]] if sections else []), side["program"]]
    key = parts[0].astype(object)
    for part in parts[1:]:
        key = key + "/" + part.astype(object)
    return key


def _with_differences(frame: pd.DataFrame) -> pd.DataFrame:
    changes = {}
    for metric in METRICS:
        a, b = frame[f"{metric}_a"].astype("Float64"), frame[f"{metric}_b"].astype("Float64")
        changes[f"{metric}_diff"] = b - a
        changes[f"{metric}_pct"] = ((b - a) / a.where(a > 0) * 100).mask((a == 0) & (b == 0), 0.0)
    return frame.assign(**changes)


def _present(a: Side, b: Side) -> list[str]:
    return [metric for metric in SHOWN if a.rows[metric].notna().any() or b.rows[metric].notna().any()]


def _column(frame: pd.DataFrame, name: str, what: str) -> pd.Series:
    if name not in frame:
        ends = "_a, _b, _diff, _pct"
        raise PlanError(
            f"{what}: no column {name}",
            remedy=f"object, program, verdict_a, verdict_b, stack_depths_a, stack_depths_b, or a metric with {ends}",
        )
    return frame[name]


def _holds(frame: pd.DataFrame, condition: str) -> pd.Series:
    match = _CONDITION.fullmatch(condition)
    if match is None:
        raise PlanError(
            f"--filter {condition!r} is no condition", remedy="such as processed_insns_b>1000 or program=xdp_*"
        )
    name, sign, value = match.groups()
    column = _column(frame, name, "--filter")
    if pd.api.types.is_numeric_dtype(column):
        held: pd.Series = _COMPARE[sign](column, _float(value, f"--filter {condition}"))
        return held.fillna(False).astype(bool)
    if sign not in ("=", "!="):
        raise PlanError(f"--filter {condition}: {name} is text", remedy=f"{name}=PATTERN or {name}!=PATTERN")
    fits = column.fillna("").astype(str).map(lambda word: fnmatchcase(word, value)).astype(bool)
    kept: pd.Series = fits if sign == "=" else ~fits
    return kept


def _sorted(frame: pd.DataFrame, sort: str | None, metrics: Sequence[str]) -> pd.DataFrame:
    """Sort as requested; by default changed verdicts first, then by the change of the first metric."""
    if sort is not None:
        name = sort.removeprefix("-")
        _column(frame, name, "--sort")
        chosen: pd.DataFrame = frame.sort_values(
            name, ascending=sort.startswith("-"), na_position="last", kind="stable"
        )
        return chosen
    change = frame[f"{metrics[0]}_pct"].abs() if metrics else pd.Series(0.0, index=frame.index)
    order = frame.assign(differs=_verdict_differs(frame), change=change)
    ranked = order.sort_values(["differs", "change"], ascending=False, na_position="last", kind="stable")
    return frame.reindex(ranked.index)


def _verdict_differs(frame: pd.DataFrame) -> pd.Series:
    """Whether the verdicts of both sides differ. A failure of veristat equals any verdict that is not accepted."""
    a, b = (frame[f"verdict_{side}"].fillna("") for side in "ab")
    both_refused = a.ne(ACCEPTED) & b.ne(ACCEPTED) & (a.eq(FAILURE) | b.eq(FAILURE))
    differs: pd.Series = a.ne("") & b.ne("") & a.ne(b) & ~both_refused
    return differs


def _judged(frame: pd.DataFrame, thresholds: Mapping[str, float]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the programs beyond a threshold or no longer accepted, and those that could not be judged."""
    beyond: list[str] = []
    unjudged: list[str] = []
    both = 0
    for row in records(frame):
        what = f"{row['object']}/{row['program']}"
        was, now = text(row, "verdict_a"), text(row, "verdict_b")
        if was is None:
            continue  # new in B
        if now is None:
            unjudged += [f"{what}: in A only"] if was == ACCEPTED else []
            continue
        both += 1
        if was == ACCEPTED != now:
            beyond.append(f"{what}: accepted → {now}")
            continue
        for metric, most in thresholds.items():
            a, b = number(row, f"{metric}_a"), number(row, f"{metric}_b")
            if a is None or b is None:
                unjudged += [f"{what}: {metric} is not known of both"] if was == ACCEPTED else []
            elif b > a * (1 + most / 100):
                beyond.append(f"{what}: {metric} {a:.0f} → {b:.0f}{_percent(a, b)}, at most +{most:g} %")
    return tuple(beyond), tuple(unjudged if both else [*unjudged, "no program is on both sides"])


def _threshold(setting: str) -> tuple[str, float]:
    metric, equals, value = setting.partition("=")
    if not equals:
        raise PlanError(f"--threshold {setting!r} is not METRIC=PERCENT", remedy="such as processed_insns=5")
    most = _float(value.removesuffix("%"), f"--threshold {setting}")
    if not 0 <= most < float("inf"):
        raise PlanError(f"--threshold {setting}: the most growth is 0 % or more")
    return metric.strip(), most


def _float(word: str, what: str) -> float:
    try:
        return float(word)
    except ValueError as error:
        raise PlanError(f"{what}: {word!r} is not a number") from error


def _percent(a: float, b: float) -> str:
    return f", {(b / a - 1) * 100:+.1f} %" if a else ""


def _arrow(row: Row, name: str) -> str:
    a, b = (row[f"{name}_{side}"] for side in "ab")
    values = [_word(value) for value in (a, b)]
    if values[0] == values[1]:
        return values[0]
    percent = number(row, f"{name}_pct") if name in METRICS else None
    return " → ".join(values) + ("" if percent is None else f" ({percent:+.1f} %)")


def _word(value: object) -> str:
    return "?" if is_null(value) else value if isinstance(value, str) else f"{value:.0f}"


def _order(run: Run[Any]) -> Callable[[str], tuple[int, str]]:
    """The kernels in the order of the request: the first is A."""
    kernels: tuple[str, ...] = run.plan.request.kernels
    return lambda kernel: (kernels.index(kernel) if kernel in kernels else len(kernels), kernel)
