"""Imported runs as a kind of run: their tables are read as they are, and judged and audited by the current rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pandas as pd

from xdplab.analysis.finding_rules import find
from xdplab.analysis.findings import Finding
from xdplab.lazy import lazy
from xdplab.run.derived import Recipe
from xdplab.studies.kind import Kind
from xdplab.studies.traffic import audits
from xdplab.studies.traffic.audits import Audit, AuditEntry
from xdplab.studies.traffic.kind import TRAFFIC
from xdplab.thesis.effects import Album, Changes, by_rule, first_page, kept, ordered, trials_of
from xdplab.thesis.findings import RULES, find_import
from xdplab.thesis.imported import SAMPLES, TRIALS, imported_trials
from xdplab.thesis.rules import corrected

_RULE_OF = {"ring-bound latency": "ring depth", "other ring depth": "ring depth"}
"""Findings whose rule has another name."""


IMPORT: Kind[Any] = replace(
    cast("Kind[Any]", TRAFFIC),
    read=lambda _: None,
    recipe=lambda _: Recipe((TRIALS, SAMPLES), "", None, needs_raw=False),
    attempts=lambda run, _read: imported_trials(run.directory),
    of_results=None,
    pictures=lazy("xdplab.thesis.pictures"),
    around=lambda _: {},
    findings=lambda run: findings(run.attempts()),
    audit=lambda run: audit(run.directory.name, run.attempts()),
)
"""A run of XDP traffic that was measured elsewhere. It has neither a plan nor raw files of its own."""


def findings(trials: pd.DataFrame) -> list[Finding]:
    """Return the findings over an import's judged trials (all attempts)."""
    better = corrected(trials)
    return kept(find_import(trials, better), find(better))


def audit(name: str, trials: pd.DataFrame) -> Audit:
    """Return the findings of an import with what each changes in the published figures, and the fits of the model."""
    common, ours = audits.audit(name, trials), findings(trials)
    album, files, places = Album(trials), files_by_trial(trials), audits.point_label(trials)
    changes = by_rule(album, ours)
    rank = {rule: at for at, rule in enumerate(ordered(ours, changes))}
    ours.sort(key=lambda finding: rank[finding.rule])
    entries = tuple(_entry(f, audits.entry(f, places), album.changes(f.rule, trials_of(f)), files) for f in ours)
    summary = tuple(first_page(ours, changes, len(album.figures)))
    fits = tuple(audits.fits_by_repetition(corrected(trials)))
    return replace(common, entries=entries, fits=fits, summary=summary)


def _entry(finding: Finding, entry: AuditEntry, changes: Changes, files: dict[str, list[str]]) -> AuditEntry:
    logs = tuple(file for trial in trials_of(finding) for file in files.get(trial, ()))
    marks, most = dict(sorted(changes.marks.items())), dict(sorted(changes.most.items()))
    return replace(entry, how=how_found(finding.rule), files=logs, changes=marks, most=most)


def how_found(rule: str) -> str:
    """Return a description of a rule's method."""
    name = _RULE_OF.get(rule, rule)
    return RULES[name][1] if name in RULES else audits.how_found(rule)


def files_by_trial(trials: pd.DataFrame) -> dict[str, list[str]]:
    """Return, by trial, the logs it was read from."""
    names = ("generator_file", "sar_file", "perf_file")
    table = trials.drop_duplicates("trial_id", keep="last")
    columns = zip(table["trial_id"], *(table[name] for name in names), strict=True)
    return {str(trial): [str(file) for file in files if not pd.isna(file)] for trial, *files in columns}
