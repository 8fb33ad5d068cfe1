"""`audit`: what is not trustworthy, how that was found, what it changes in published figures, and the fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import floor, isnan, log10
from typing import Any

import pandas as pd

from xdplab.analysis.finding_rules import RULES, find, for_rules
from xdplab.analysis.findings import Finding
from xdplab.analysis.fit import STAGE, fit_lines, limited_by_dut
from xdplab.analysis.labs import LabRatio, by_lab, lab_ratios
from xdplab.analysis.load_rules import DISTURBANCES
from xdplab.analysis.series import (
    BELIEVED,
    PROGRAM_KEY,
    SERIES,
    SETTING_KEY,
    key_of,
    only_text,
    plain,
    rows_where,
    settled,
    valid,
    with_baselines,
    with_integers,
    with_keys,
)
from xdplab.analysis.summary import varying
from xdplab.analysis.values import is_null
from xdplab.plan.factors import BY_COLUMN
from xdplab.run.frames import records
from xdplab.text import many

FIT_GROUP = tuple(name for name in SERIES if name != "frame_bytes")
MOST_LISTED = 3
MOST_FITS = 10_000
"""Fits that the page lists: a run of a million trials has hundreds of thousands."""


@dataclass(frozen=True)
class Fit:
    """t = t0 + c N of one mode, queue count and repetition, over all frame sizes that the DUT limits; times in ns.

    ``setting`` names what else tells the run's fits apart, such as the working set or the lab.
    """

    mode: str
    queues: int
    repetition: int
    program: str
    setting: str
    t0_ns: float
    t0_se_ns: float | None
    c_ns: float
    c_se_ns: float | None
    r2: float | None
    trials: int
    accesses: int


@dataclass(frozen=True)
class AuditEntry:
    """One finding: ``what``, ``how`` it was found, where (``points``, their ``places`` in words, ``files``), and
    which published figures it changes.

    ``changes`` is figure → how many of its marks change if it is drawn again without the fault, ``most`` the largest
    of these changes as a share of the axis' range.
    """

    rule: str
    severity: str
    what: str
    how: str
    points: tuple[str, ...]
    places: tuple[str, ...]
    files: tuple[str, ...]
    numbers: dict[str, float]
    changes: dict[str, int]
    most: dict[str, float]


@dataclass(frozen=True)
class Audit:
    """The whole result of ``audit`` for one run; ``summary`` is the first page for an imported run, in Markdown."""

    run: str
    entries: tuple[AuditEntry, ...]
    fits: tuple[Fit, ...]
    labs: LabsCompared
    summary: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        content = {"findings": [*map(vars, self.entries)], "fits": [*map(vars, self.fits)]}
        return {"run": self.run, **content, "labs": self.labs.to_json()}

    def to_markdown(self) -> str:
        lines = [f"# Audit of {self.run}", "", *self.summary, "## Findings", ""]
        rule = None
        for entry in self.entries:
            lines += _entry_lines(entry, named=entry.rule == rule)
            rule = entry.rule
        lines += [] if self.entries else ["No finding.", ""]
        return "\n".join([*lines, *_fit_lines(self.fits), *self.labs.lines()]) + "\n"


def findings(trials: pd.DataFrame) -> list[Finding]:
    """Return the findings over the judged trials (all attempts) of a run."""
    return find(settled(trials))


def audit(name: str, trials: pd.DataFrame) -> Audit:
    """Return the findings of the run of that name, and the fits of the model."""
    places = point_label(trials)
    trials = with_keys(for_rules(settled(trials)))
    entries = tuple(entry(finding, places) for finding in find(trials))
    believed = valid(trials).assign(**{BELIEVED: True})
    return Audit(name, entries, tuple(fits_by_repetition(believed)), labs_compared(believed, places))


def how_found(rule: str) -> str:
    """Return a description of a rule's method."""
    function = DISTURBANCES.get(rule) or RULES.get("no valid trial" if rule == "fewer repetitions" else rule)
    return " ".join((function.__doc__ or "").split()) if function else ""


_IN_PLACE = ("mode", "queues", "frame_bytes", "accesses")


def point_label(trials: pd.DataFrame) -> dict[str, str]:
    """Return each point in words: ``native, 8 queues, 64 B, N = 100``; of a program without an N, its name.

    Other factors follow if points of the run would share their words without them: ``…, chase read, load 20kpps``.
    """
    rows = with_integers(trials[~trials["point_id"].duplicated()])
    # In place of an N that a program has not, its name is told.
    what = rows["accesses"].astype("string").radd("N = ").fillna(rows["program_name"].astype("string"))
    more = [BY_COLUMN[name] for name in varying(rows.assign(accesses=what), _IN_PLACE)]
    parts = [rows["mode"], rows["queues"].map(lambda q: many(q, "queue"), na_action="ignore")]
    parts += [rows["frame_bytes"].astype("string") + " B", what]  # frames of a file or of several sizes have none
    for factor in more:
        levels = rows[factor.column]
        parts.append(levels.map(factor.label, na_action="ignore").mask(levels.astype("string").eq(what).fillna(False)))
    rows_of_parts = zip(*parts, strict=True)
    return {
        str(point): ", ".join(str(part) for part in cells if not is_null(part))
        for point, cells in zip(rows["point_id"], rows_of_parts, strict=True)
    }


def entry(finding: Finding, places: Mapping[str, str]) -> AuditEntry:
    """Return the entry of a finding; ``places`` are the run's points in words."""
    numbers = {name: float(value) for name, value in finding.evidence.items()}
    where = tuple(places.get(point, point) for point in finding.points)
    how = how_found(finding.rule)
    return AuditEntry(
        finding.rule, finding.severity, finding.what, how, finding.points, where, finding.files, numbers, {}, {}
    )


_OF_FITS = (
    *("run_id", "trial_id", "attempt", "verdict", "repetition", "accesses", "ns_per_packet", STAGE),
    *("mode", "queues", "program_name", SETTING_KEY, PROGRAM_KEY, BELIEVED),
)
"""Beside the columns of a series that vary."""


def fits_by_repetition(trials: pd.DataFrame) -> list[Fit]:
    """Fit t0 + c N to the DUT-limited trials of each mode, queue count and repetition (and program, engine, load)."""
    if SETTING_KEY not in trials:
        trials = with_keys(plain(trials, [name for name in dict.fromkeys((*_OF_FITS, *SERIES)) if name in trials]))
    several = (name for name in SERIES if only_text(trials[name]) is None)
    limited = limited_by_dut(trials[[name for name in dict.fromkeys((*_OF_FITS, *several)) if name in trials]])
    limited = with_baselines(rows_where(limited, limited["accesses"].notna())) if len(limited) else limited
    group = tuple(name for name in FIT_GROUP if name in limited)
    series, repetition = (pd.factorize(of)[0] for of in (key_of(limited, group), limited["repetition"]))
    groups = pd.factorize(series * 2**32 + repetition)[0]
    lines = fit_lines(limited["accesses"], limited["ns_per_packet"], groups)
    firsts = limited.iloc[lines.place]
    numbers = ([None if isnan(value) else value for value in of.tolist()] for of in (lines.t0_se, lines.c_se, lines.r2))
    fits = [
        Fit(str(mode), int(queues), int(repetition), str(program), setting, t0, t0_se, c, c_se, r2, n, points)
        for mode, queues, repetition, program, setting, t0, c, n, points, t0_se, c_se, r2 in zip(
            *(firsts[name].tolist() for name in ("mode", "queues", "repetition", "program_name")), _settings(firsts),
            *(of.tolist() for of in (lines.t0, lines.c, lines.n, lines.points)), *numbers, strict=True,
        )
    ]  # fmt: skip
    return sorted(fits, key=lambda fit: (fit.mode, fit.queues, fit.program, fit.setting, fit.repetition))


def _settings(firsts: pd.DataFrame) -> list[str]:
    """Return what tells each fit apart beside its mode, queues and program."""
    if firsts.empty:
        return []
    columns = ("mode", "queues", "program_name")
    names = varying(firsts[[name for name in FIT_GROUP if name in firsts]], columns)
    keys = key_of(firsts, tuple(names))
    alone = ~keys.duplicated()
    texts = [
        ", ".join(BY_COLUMN[name].label(_level(row[name])) for name in names if not pd.isna(row[name]))
        for row in firsts.loc[alone, names].to_dict("records")
    ]
    return keys.map(dict(zip(keys[alone], texts, strict=True))).tolist()


def _level(value: object) -> str:
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def _entry_lines(entry: AuditEntry, *, named: bool) -> list[str]:
    """``named``: the entry before has the same rule, which need not be explained again."""
    lines = [] if named else [f"### {entry.rule} ({entry.severity})", ""]
    lines += [f"found by: {entry.how}", ""] if entry.how and not named else []
    lines += [f"- {entry.what}"]
    numbers = ", ".join(f"{name} = {value:.4g}" for name, value in entry.numbers.items())
    lines += [f"  - numbers: {numbers}"] if numbers else []
    lines += [f"  - changes in {_figures(entry)}"] if entry.changes else []
    lines += [f"  - points: {_some(entry.places)}"] if entry.places else []
    lines += [f"  - files: {_some(entry.files)}"] if entry.files else []
    return [*lines, ""]


def _figures(entry: AuditEntry) -> str:
    ordered = sorted(entry.changes.items(), key=lambda item: -item[1])
    marks = sum(entry.changes.values())
    named = [f"{figure} ({count} by up to {entry.most[figure]:.2%} of the axis)" for figure, count in ordered]
    one = "figure" if len(ordered) == 1 else "figures"
    return f"{len(ordered)} published {one}, {many(marks, 'mark')}: {_some(named)}"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:MOST_LISTED])
    return shown + (f" and {len(names) - MOST_LISTED} more (audit.json has all)" if len(names) > MOST_LISTED else "")


def _fit_lines(fits: Sequence[Fit]) -> list[str]:
    if not fits:
        return ["## Model", "", "No series of DUT-limited trials has two N: there is no fit."]
    lines = [
        "## Model: t = t0 + c·N, DUT-limited trials of all frame sizes, weighted by 1/t²",
        "",
        "| mode | queues | repetition | program | t0 (ns) | c (ns per access) | R² | trials | N |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for f in fits[:MOST_FITS]:
        t0, c = _with_error(f.t0_ns, f.t0_se_ns, 0), _with_error(f.c_ns, f.c_se_ns, 3)
        r2 = "" if f.r2 is None else f"{f.r2:.4f}"
        program = ", ".join(filter(None, (f.program, f.setting)))
        lines.append(
            f"| {f.mode} | {f.queues} | {f.repetition} | {program} | {t0} | {c} | {r2} | {f.trials} | {f.accesses} |"
        )
    return lines + ([f"\n{len(fits) - MOST_FITS} more fits in audit.json."] if len(fits) > MOST_FITS else [])


def _with_error(value: float, error: float | None, digits: int) -> str:
    """Return a value with its error, with more digits where the error would be 0 and is not."""
    if error:
        digits = max(digits, -floor(log10(error)))
    return f"{value:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


MOST_SHOWN = 20


@dataclass(frozen=True, eq=False)
class LabsCompared:
    """``rates`` has one row per point (in words) and lab: n, median, low, high in frames per second."""

    rates: pd.DataFrame
    ratios: tuple[LabRatio, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "rates": records(self.rates),
            "ratios": [asdict(ratio) for ratio in self.ratios],
        }

    def lines(self) -> list[str]:
        if self.rates.empty:
            return []
        shown = self.rates.head(MOST_SHOWN).to_dict("records")
        return [
            *("", "## Labs: the points that several have measured, at maximum load", ""),
            *("| labs | ratio of rates | 95 % | points | trials |", "| --- | --- | --- | --- | --- |"),
            *(f"| {r.b} / {r.a} | {r.ratio:.3f} | {r.low:.3f} – {r.high:.3f} | {r.points} | {r.trials} |"
              for r in self.ratios),
            *("", "| point | lab | median (kpps) | 95 % of the mean | n |", "| --- | --- | --- | --- | --- |"),
            *(f"| {r['point']} | {r['lab']} | {r['median'] / 1e3:.4g} | {_interval(r)} | {r['n']} |" for r in shown),
            *([f"\n{len(self.rates) - len(shown)} more rows in audit.json."] if len(self.rates) > len(shown) else []),
        ]  # fmt: skip


def labs_compared(trials: pd.DataFrame, places: Mapping[str, str]) -> LabsCompared:
    """Compare the labs of a run; ``places`` names its points in words. Empty where one lab measured each point."""
    rates = by_lab(trials)[["point_id", "lab", "n", "median", "low", "high"]]
    texts = rates["point_id"].map(lambda point: places.get(point, point))
    return LabsCompared(rates.assign(point=texts).sort_values(["point", "lab"]), tuple(lab_ratios(trials)))


def _interval(row: Mapping[Any, Any]) -> str:
    return "one trial" if row["n"] == 1 else f"{row['low'] / 1e3:.4g} – {row['high'] / 1e3:.4g}"
