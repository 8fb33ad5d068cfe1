"""What a finding changes in the published figures, as a table that needs nothing to draw with."""

from __future__ import annotations

from dataclasses import dataclass, field

from xdplab.analysis.findings import Finding


@dataclass(frozen=True)
class Changes:
    """By figure: how many of its marks change, and by how much at most, as a share of the axis' range."""

    marks: dict[str, int] = field(default_factory=dict)
    most: dict[str, float] = field(default_factory=dict)


def trials_of(finding: Finding) -> list[str]:
    """Return the trial_ids that a finding's raw folders name."""
    return [parts[1] for name in finding.files if (parts := name.split("/"))[0] == "raw" and len(parts) > 1]
