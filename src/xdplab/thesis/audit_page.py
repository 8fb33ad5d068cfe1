"""The audit of an imported run as a referee reads it: one page of what the findings change, the details behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdplab.analysis.findings import Finding
from xdplab.text import many

# --- what a finding changes in the published figures, as a table that needs nothing to draw with ---


@dataclass(frozen=True)
class Changes:
    """By figure: how many of its marks change, and by how much at most, as a share of the axis' range."""

    marks: dict[str, int] = field(default_factory=dict)
    most: dict[str, float] = field(default_factory=dict)


def trials_of(finding: Finding) -> list[str]:
    """Return the trial_ids that a finding's raw folders name."""
    return [parts[1] for name in finding.files if (parts := name.split("/"))[0] == "raw" and len(parts) > 1]


LINES = 10
SUPERSEDED = frozenset({"latency is a ring's fill", "repetitions form classes", "no valid trial", "fewer repetitions"})
"""Rules of every run that an import's own rules say better: ring depth, other program, deaf generator, no traffic."""
IN_SHORT = {
    "deaf generator": "drawn as no throughput while the DUT forwarded",
    "deaf generator by signature": "drawn as no throughput; what the DUT forwarded is not known",
    "no traffic": "no counter saw a frame: no measurement",
    "counts differ": "the generator missed frames that the DUT sent",
    "counts disagree": "the generator missed frames that the DUT sent",
    "generator-limited plateau": "the generator's own ceiling, drawn as the DUT's rate",
    "appended runs": "two runs in a file; the other one would have been drawn so",
    "negative latency": "left out of the figures; some can be had",
    "frames of others in the mean": "latencies that hold frames of others",
    "two latencies in a run": "one number for two states",
    "rate steps in mid-run": "one number for two states",
    "ring-bound latency": "the latency is the fill of a ring",
    "other ring depth": "the latency is the fill of a ring, and not of the same one in every repetition",
    "other program": "repetitions that measured other code",
    "perf of the wrong target": "counts that say nothing of XDP",
    "one AF_XDP socket": "the queue count changes the steering, not the work",
    "last sample for a run": "two seconds stand for a minute",
    "clocks": "every rate that the generator counted",
    "sent more than the link carries": "no loss can be had",
    "missing points": "cells without a measurement",
    "accesses not as labelled": "N + 1 lookups whose value is never read",
    "other program, by its source": "AF_XDP ran other code than XDP",
    "axis in another unit": "seconds, labelled nanoseconds",
    "rate labels swapped": "two columns of the CSV files have each other's names",
}


def kept(ours: Sequence[Finding], common: Sequence[Finding]) -> list[Finding]:
    """Return the import's findings and those of every run, each statement once."""
    findings: dict[tuple[str, str], Finding] = {}
    for finding in (*ours, *(f for f in common if f.rule not in SUPERSEDED)):
        findings.setdefault((finding.rule, finding.what), finding)
    return list(findings.values())


def ordered(findings: Sequence[Finding], changes: Mapping[str, Changes]) -> list[str]:
    """Return the rules: those that change most marks first, then by severity and number of trials."""
    rules: dict[str, list[Finding]] = {}
    for finding in findings:
        rules.setdefault(finding.rule, []).append(finding)

    def weight(rule: str) -> tuple[int, bool, bool, int]:
        marks = sum(changes[rule].marks.values()) if rule in changes else 0
        warned = any(finding.severity == "warning" for finding in rules[rule])
        return (-marks, rule not in IN_SHORT, not warned, -_trials(rules[rule]))

    return sorted(rules, key=weight)


def _trials(findings: Sequence[Finding]) -> int:
    return len({trial for finding in findings for trial in trials_of(finding)})


def first_page(findings: Sequence[Finding], changes: Mapping[str, Changes], figures: int) -> list[str]:
    """Return the page in Markdown: ten lines at the most, each a kind of finding with what it truly changes."""
    rules = ordered(findings, changes)
    lines = [
        f"{len(findings)} findings of {len(rules)} kinds. A finding changes a figure where the figure, made again",
        f"without the fault, has other marks ({figures} figures; a change below 10⁻⁴ of the axis is none).",
        "",
        "| finding | trials | changes | what it means |",
        "| --- | --- | --- | --- |",
    ]
    for rule in rules[:LINES]:
        of_rule = [finding for finding in findings if finding.rule == rule]
        short = IN_SHORT.get(rule) or of_rule[0].what
        lines.append(f"| {rule} | {_trials(of_rule)} | {_changed(changes.get(rule))} | {short} |")
    if len(rules) > LINES:
        lines += ["", f"Further kinds: {', '.join(rules[LINES:])}."]
    return [*lines, ""]


def _changed(changes: Changes | None) -> str:
    if changes is None or not changes.marks:
        return "no mark: what marks mean"
    marks = sum(changes.marks.values())
    figures, most = many(len(changes.marks), "figure"), max(changes.most.values())
    if not most:
        return f"{many(marks, 'mark')} at 0 left out, in {figures}"
    return f"{many(marks, 'mark')} in {figures}, by up to {_percent(most)} of the axis"


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{100 * share:.2g} %"
