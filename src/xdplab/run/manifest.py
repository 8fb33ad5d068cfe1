"""What a run's sessions were measured with: each place is asked what it is, and its answers are lines of the journal.

``manifest.json`` has all of these lines; it is written again where a kill left it older than the journal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from xdplab.run.rundir import RunDirectory

MANIFEST = "manifest.json"
When = Literal["before", "after"]


class SessionRecord:
    """One session of a run: the time from the first trial that it measures until it ends."""

    def __init__(self, run: RunDirectory) -> None:
        before = [event["session"] for event in run.journal.events("hosts")]
        self._run, self._number = run, 1 + max(before, default=-1)

    def note(self, when: When, state: Mapping[str, Any], **place: Any) -> None:
        """Record what a place answered, before its first trial or after the last one; ``place`` may name it."""
        self._run.journal.append("hosts", when=when, session=self._number, **place, state=dict(state))

    def keep(self) -> None:
        keep(self._run)


def keep(run: RunDirectory) -> None:
    """Write the manifest. Raises ResultsError."""
    sessions, seed = list(run.journal.events("hosts")), run.plan_data.get("seed")
    run.write_json(MANIFEST, {"run_id": run.run_id, "sessions": sessions, "seed": seed})


def is_old(run: RunDirectory) -> bool:
    """True if the journal has answers that the manifest lacks."""
    try:
        held = len(json.loads((run.path / MANIFEST).read_bytes())["sessions"])
    except (OSError, ValueError, LookupError, TypeError):  # absent, or cut short by a power cut
        held = 0
    return held < run.journal.count("hosts")
