"""When an open-ended run has measured enough: the rate is known, or the race has an answer.

A released trial stays in the plan. The journal says why it was not measured; `resume` decides as the run did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log

from xdplab.analysis.decide.race import standing
from xdplab.analysis.decide.sequential import known
from xdplab.plan import Plan, Trial
from xdplab.plan.model import Race, Until
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import Attempt, last_attempts
from xdplab.studies.traffic.rows import attempt_rows
from xdplab.studies.traffic.run_files import deciding_pairs


class OpenEnded:
    """Sees each attempt of a run as it ends; ``rates`` are those of valid trials, in frames per second."""

    def __init__(self, run: RunDirectory, plan: Plan, trials: Sequence[Trial]) -> None:
        self._run, self._plan, self._trials = run, plan, trials
        self._arrangement = next(run.journal.events("planned"))["arrangement"]
        self._tried: dict[str, set[int]] = {trial.point.point_id: set() for trial in trials}
        self.rates: dict[tuple[str, int], float] = {}
        self._slices: dict[tuple[str, int], float] = {}
        before = last_attempts(run)
        for trial in trials:
            if trial.trial_id in before:
                self.ended(trial, before[trial.trial_id])

    def ended(self, trial: Trial, attempt: Attempt) -> None:
        key = (trial.point.point_id, trial.repetition)
        self._tried[key[0]].add(key[1])
        self.rates.pop(key, None)
        self._slices.pop(key, None)
        if attempt.status == "measured":
            row = attempt_rows(self._run, trial, attempt, window_s=self._plan.trial.window_s).row
            if row["verdict"] == "valid" and row.get("forwarded_pps"):
                self.rates[key] = row["forwarded_pps"]
                if ratio := row.get("slices_ratio"):
                    self._slices[key] = ratio

    def released(self) -> Mapping[str, Sequence[str]]:
        """Return the ids of trials that need not be measured, by the reason."""
        if self._plan.race is not None:
            return self._race(self._plan.race)
        until = self._plan.repetitions
        return {} if isinstance(until, int) else self._points(until)

    def _race(self, race: Race) -> Mapping[str, Sequence[str]]:
        pairs = deciding_pairs(self._plan, self._arrangement)
        ids = [(a.point_id, b.point_id) for a, b in pairs]
        standing_now = standing(self.rates, self._slices, ids, race.margin)
        tried = min(len(repetitions) for repetitions in self._tried.values())
        if tried >= race.at_least and (standing_now.settled or not standing_now.ratio.n):
            return {standing_now.text: [trial.trial_id for trial in self._trials]}
        return {}

    def _points(self, until: Until) -> Mapping[str, Sequence[str]]:
        """N = 0 is repeated as long as any other point: each repetition's costs are relative to its own baseline."""
        texts = {point: self._why_settled(point, until) for point in self._tried}
        zeros = {t.point.point_id for t in self._trials if t.point.program.accesses == 0}
        others = {point for point in texts if point not in zeros}
        if any(texts[point] is None for point in others):
            texts |= dict.fromkeys(zeros)
        by_text: dict[str, list[str]] = {}
        for trial in self._trials:
            if text := texts[trial.point.point_id]:
                by_text.setdefault(text, []).append(trial.trial_id)
        return by_text

    def _why_settled(self, point: str, until: Until) -> str | None:
        if len(self._tried[point]) < until.at_least:
            return None
        logs = [log(rate) for (name, _), rate in sorted(self.rates.items()) if name == point]
        if not logs:
            return f"none of {len(self._tried[point])} trials of the point was valid"
        spread = known(logs)
        half = max(spread.high - spread.median, spread.median - spread.low)
        if len(logs) < until.at_least or half > log(1 + until.until):
            return None
        return f"the rate is known to {until.until:.1%}"
