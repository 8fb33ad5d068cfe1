"""What a bisection found: the first bad revision, or those it is among, and what changed there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdplab.absent import Absent
from xdplab.bisect.search import Judged, Revision
from xdplab.text import many

if TYPE_CHECKING:
    from xdplab.studies.cost.gate import CostDifference

MOST_LINES = 8
"""Changed lines, and changed functions, that are printed; `--json` has them all."""


@dataclass(frozen=True)
class Culprit:
    """The suspects, of which the last is bad, and the good revision ``before`` them. ``total``: how many there were.

    ``ends``: the verdicts of the good and the bad end; bad begins ``at`` so much. ``difference``: from before to the
    last suspect.
    """

    folder: Path
    what: str
    suspects: Sequence[Revision]
    before: Revision
    total: int
    ends: tuple[Judged, Judged]
    at: float
    verdicts: Mapping[str, Judged]
    difference: CostDifference | Absent

    @property
    def is_one(self) -> bool:
        return len(self.suspects) == 1

    @property
    def text(self) -> str:
        good, bad = self.ends
        skipped = sum(verdict.answer == "skip" for verdict in self.verdicts.values())
        effort = f"{many(len(self.verdicts), self.what)} of {self.total - 1} between the ends judged"
        effort += f", {skipped} of them skipped" if skipped else ""
        ends = f"good: {good.words}; bad: {bad.words}, and from {self.at:.3f} on"
        if self.is_one:
            return f"The first bad {self.what} is {self.suspects[0].title}.\n{ends}. {effort}."
        listed = "\n".join(f"  {one.title}" for one in self.suspects)
        why = "all but the last cannot be judged"
        return f"The first bad {self.what} is one of {len(self.suspects)}; {why}:\n{listed}\n{ends}. {effort}."

    def to_json(self) -> dict[str, Any]:
        good, bad = self.ends
        return {
            "folder": str(self.folder),
            "suspects": [asdict(one) for one in self.suspects],
            "before": asdict(self.before),
            "good": good.value,
            "bad": bad.value,
            "bad_from": self.at,
            "judged": [{"key": key, **asdict(verdict)} for key, verdict in self.verdicts.items()],
            "difference": None if isinstance(self.difference, Absent) else self.difference.to_json(),
            "not_counted": str(self.difference) if isinstance(self.difference, Absent) else None,
        }
