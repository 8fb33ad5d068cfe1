"""Which finding matters for the conclusion of a run: the first of a table of rules, one line for all alike."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from xdplab.analysis.findings import Finding
from xdplab.analysis.load_rules import DISTURBANCES
from xdplab.text import many

CHANGING = {
    "no valid trial": "these points are in no answer",
    "nothing forwarded": "",
    "repetition apart": "it is in the mean: `xdplab run PLAN --extend RUN` with more repetitions shows which is usual",
    "programs differ": "measure them in one session, with one compiler",
    "settings differ": "measure them with one setting",
    "unequal work": "their costs are of two programs",
    "test run contradicted": "one of the two times is of other work",
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
