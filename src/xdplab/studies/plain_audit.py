"""The audit of runs whose table says what was measured: what was not, and why."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xdplab.analysis.findings import Finding
from xdplab.run.disk import replacing
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import Attempt, RunState, last_attempts
from xdplab.studies.kind import Run, RunAudit
from xdplab.text import many, visible


@dataclass(frozen=True)
class PlainAudit:
    """Findings alone."""

    run: str
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        return {"run": self.run, "findings": [asdict(finding) for finding in self.findings]}

    def to_markdown(self) -> str:
        """Return the findings as a Markdown list, each with its numbers and their sources."""
        lines = [f"# Audit of {self.run}", "", "## Findings", ""]
        for finding in self.findings:
            lines.append(f"- **{finding.rule}** ({finding.severity}): {finding.what}")
            numbers = ", ".join(f"{name} = {value:.4g}" for name, value in finding.evidence.items())
            lines += [f"  - numbers: {numbers}"] if numbers else []
            lines += [f"  - points: {_some(finding.points)}"] if finding.points else []
            lines += [f"  - files: {_some(finding.files)}"] if finding.files else []
        return "\n".join(lines if self.findings else [*lines, "No finding."]) + "\n"


def _some(names: tuple[str, ...], most: int = 6) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def findings(run: Run[Any]) -> list[Finding]:
    """Return what was not measured, and why."""
    return not_measured(last_attempts(run.directory).values(), run.state)


def audit(run: Run[Any]) -> PlainAudit:
    return PlainAudit(run.directory.name, tuple(findings(run)))


def write_audit(run: RunDirectory, audit: RunAudit) -> list[Path]:
    """Write audit.md and audit.json where the outputs of the run go; return their paths."""
    paths = [run.outputs / name for name in ("audit.md", "audit.json")]
    with replacing(paths[0]) as scratch:
        scratch.write_text(visible(audit.to_markdown()))
    with replacing(paths[1]) as scratch, scratch.open("w") as file:
        json.dump(audit.to_json(), file, indent=1, sort_keys=True)  # a text of all fits would take a gigabyte to make
        file.write("\n")
    return paths


def not_measured(attempts: Iterable[Attempt], state: RunState) -> list[Finding]:
    """Return a finding for each reason why trials were not measured, and one for missing trials."""
    by_reason: dict[tuple[str, str], list[Attempt]] = {}
    for attempt in attempts:
        if attempt.status != "measured":
            by_reason.setdefault((attempt.status, str(attempt.reason)), []).append(attempt)
    listed = [
        Finding(
            status,
            "warning" if status == "failed" else "info",
            f"{many(len(of), 'trial')}: {reason}",
            tuple(dict.fromkeys(a.trial_id.rpartition("-r")[0] for a in of)),
            {"trials": float(len(of))},
            tuple(f"raw/{a.trial_id}/{a.attempt}" for a in of),
        )
        for (status, reason), of in by_reason.items()
    ]
    if owed := [trial for trial in state.owed if trial not in state.last]:
        points = tuple(dict.fromkeys(trial.rpartition("-r")[0] for trial in owed))
        listed.append(Finding("owed", "warning", f"{len(owed)} trials were not tried yet", points))
    return listed
