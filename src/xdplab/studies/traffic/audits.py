"""`audit`: what is not to be believed, how that was found, what it changes in published figures, and the fits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any

import pandas as pd

from xdplab.analysis.finding_rules import RULES, find
from xdplab.analysis.findings import Finding
from xdplab.analysis.fit import fit_line, limited_by_dut
from xdplab.analysis.series import SERIES, key_of, plain, settled, with_baselines
from xdplab.run.rundir import RunDirectory
from xdplab.studies.traffic.audit_labs import LabsCompared, labs_compared
from xdplab.thesis.findings import RULES as IMPORT_RULES
from xdplab.thesis.findings import find_import
from xdplab.thesis.rules import corrected

FIT_GROUP = (*(name for name in SERIES if name != "frame_bytes"), "repetition")
MOST_LISTED = 6
_RAW = re.compile(r"raw/(?P<trial>[^/]+)/[0-9]+")


@dataclass(frozen=True)
class Fit:
    """t = t0 + c N of one mode, queue count and repetition, over all frame sizes that the DUT limits; times in ns."""

    mode: str
    queues: int
    repetition: int
    program: str
    t0_ns: float
    t0_se_ns: float | None
    c_ns: float
    c_se_ns: float | None
    r2: float | None
    trials: int
    accesses: int


@dataclass(frozen=True)
class Entry:
    """One finding: ``what``, ``how`` it was found, where (``points``, their ``places`` in words, ``files``), and
    in which figures it shows.

    ``changes`` is figure → how many trials that it was drawn from are concerned.
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


@dataclass(frozen=True)
class Audit:
    """Everything that ``audit`` says of one run."""

    run: str
    entries: tuple[Entry, ...]
    fits: tuple[Fit, ...]
    labs: LabsCompared

    def to_json(self) -> dict[str, Any]:
        found = {"findings": [asdict(e) for e in self.entries], "fits": [asdict(f) for f in self.fits]}
        return {"run": self.run, **found, "labs": self.labs.to_json()}

    def to_markdown(self) -> str:
        lines = [f"# Audit of {self.run}", "", "## Findings", ""]
        for entry in self.entries:
            lines += _entry_lines(entry)
        lines += [] if self.entries else ["No finding.", ""]
        return "\n".join([*lines, *_fit_lines(self.fits), *self.labs.lines()]) + "\n"


def findings(run: RunDirectory, trials: pd.DataFrame) -> list[Finding]:
    """Return what the judged trials (all attempts) of a run, measured here or imported, say together."""
    if not run.imported:
        return find(settled(trials))
    better = corrected(trials)
    return [*find_import(trials, better), *find(better)]


def audit(run: RunDirectory, trials: pd.DataFrame) -> Audit:
    """Return the findings of a run with what they change, and the fits of the model."""
    figures, files = (drawn_from(trials), files_by_trial(trials)) if run.imported else ({}, {})
    places = point_words(trials)
    entries = tuple(_entry(finding, figures, files, places) for finding in findings(run, trials))
    fits = fits_by_repetition(corrected(trials) if run.imported else trials)
    return Audit(run.name, entries, tuple(fits), labs_compared(trials, places))


def how_found(rule: str) -> str:
    """Return how a rule finds, in words."""
    for name in (rule, {"ring-bound latency": "ring depth", "other ring depth": "ring depth"}.get(rule, "")):
        if name in IMPORT_RULES:
            return IMPORT_RULES[name][1]
    own = RULES.get(rule) or RULES.get(
        {"no valid trial": "no valid trial", "fewer repetitions": "no valid trial"}.get(rule, "")
    )
    return " ".join((own.__doc__ or "").split()) if own else ""


def drawn_from(trials: pd.DataFrame) -> dict[str, set[str]]:
    """Return, by trial, the published figures that were drawn from it."""
    # matplotlib comes with it: a second that no run and no worker of one need wait for
    from xdplab.thesis.published import as_printed, printed_rows, published_figures

    rows, found = printed_rows(trials), dict[str, set[str]]()
    for spec in published_figures():
        for trial in as_printed(rows, spec)["trial_id"].unique():
            found.setdefault(str(trial), set()).add(spec.file)
    return found


def files_by_trial(trials: pd.DataFrame) -> dict[str, list[str]]:
    """Return, by trial, the logs it was read from."""
    names = ("generator_file", "sar_file", "perf_file")
    table = trials.drop_duplicates("trial_id", keep="last")
    columns = zip(table["trial_id"], *(table[name] for name in names), strict=True)
    return {str(trial): [str(file) for file in files if not pd.isna(file)] for trial, *files in columns}


def point_words(trials: pd.DataFrame) -> dict[str, str]:
    """Return each point in words: ``native, 8 queues, 64 B, N = 100``."""
    rows = trials.drop_duplicates("point_id")
    columns = zip(*(rows[name] for name in ("point_id", "mode", "queues", "frame_bytes", "accesses")), strict=True)
    return {
        str(point): f"{mode}, {q} queue{'' if q == 1 else 's'}, {size} B, N = {n}"
        for point, mode, q, size, n in columns
    }


def _entry(
    finding: Finding, figures: dict[str, set[str]], files: dict[str, list[str]], places: dict[str, str]
) -> Entry:
    trials = [match["trial"] for name in finding.files if (match := _RAW.fullmatch(name))]
    counts: dict[str, int] = {}
    for trial in trials:
        for figure in figures.get(trial, ()):
            counts[figure] = counts.get(figure, 0) + 1
    own = [file for trial in trials for file in files.get(trial, ())] if files else list(finding.files)
    numbers = {name: float(value) for name, value in finding.evidence.items()}
    return Entry(
        finding.rule, finding.severity, finding.what, how_found(finding.rule), finding.points,
        tuple(places.get(point, point) for point in finding.points), tuple(own), numbers,
        dict(sorted(counts.items())),
    )  # fmt: skip


def fits_by_repetition(trials: pd.DataFrame) -> list[Fit]:
    """Fit t0 + c N to the DUT-limited trials of each mode, queue count and repetition (and program, engine, load)."""
    names = tuple(dict.fromkeys((*FIT_GROUP, "run_id", "trial_id", "attempt", "verdict", "accesses", "ns_per_packet")))
    known = limited_by_dut(trials)
    known = with_baselines(known[known["accesses"].notna()]) if len(known) else known
    known = plain(known, [name for name in names if name in known])
    fits = []
    for _, rows in known.groupby(key_of(known, FIT_GROUP), sort=False):
        line = fit_line(rows["accesses"], rows["ns_per_packet"])
        if line is None:
            continue
        first = rows.iloc[0]
        values = [_or_none(value) for value in (line.t0_se, line.c_se, line.r2)]
        fits.append(
            Fit(
                str(first["mode"]), int(first["queues"]), int(first["repetition"]), str(first["program_name"]),
                line.t0, values[0], line.c, values[1], values[2], line.n, line.points,
            )
        )  # fmt: skip
    return sorted(fits, key=lambda fit: (fit.mode, fit.queues, fit.program, fit.repetition))


def _or_none(value: float) -> float | None:
    return None if isnan(value) else value


def _entry_lines(entry: Entry) -> list[str]:
    lines = [f"- **{entry.rule}** ({entry.severity}): {entry.what}"]
    lines += [f"  - found by: {entry.how}"] if entry.how else []
    numbers = ", ".join(f"{name} = {value:.4g}" for name, value in entry.numbers.items())
    lines += [f"  - numbers: {numbers}"] if numbers else []
    lines += (
        [f"  - changes in {len(entry.changes)} published figures: {_some(_counted(entry.changes))}"]
        if entry.changes
        else []
    )
    lines += [f"  - points: {_some(entry.places)}"] if entry.places else []
    lines += [f"  - files: {_some(entry.files)}"] if entry.files else []
    return [*lines, ""]


def _counted(changes: dict[str, int]) -> list[str]:
    ordered = sorted(changes.items(), key=lambda item: -item[1])
    return [f"{figure} ({count} trial{'s' if count > 1 else ''})" for figure, count in ordered]


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:MOST_LISTED])
    return shown + (f" and {len(names) - MOST_LISTED} more (audit.json has all)" if len(names) > MOST_LISTED else "")


def _fit_lines(fits: Sequence[Fit]) -> list[str]:
    if not fits:
        return ["## Model", "", "No series of DUT-limited trials has two N: there is no fit."]
    lines = [
        "## Model: t = t0 + c·N, DUT-limited trials, weighted by 1/t²",
        "",
        "| mode | queues | repetition | program | t0 (ns) | c (ns an access) | R² | trials | N |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for f in fits:
        t0, c = _with_error(f.t0_ns, f.t0_se_ns, 0), _with_error(f.c_ns, f.c_se_ns, 3)
        r2 = "" if f.r2 is None else f"{f.r2:.4f}"
        lines.append(
            f"| {f.mode} | {f.queues} | {f.repetition} | {f.program} | {t0} | {c} | {r2} | {f.trials} | {f.accesses} |"
        )
    return lines


def _with_error(value: float, error: float | None, digits: int) -> str:
    return f"{value:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")
