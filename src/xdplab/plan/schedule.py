"""Points → trials: blocks that share expensive settings, visited again by each repetition, in a seeded order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from xdplab.plan.model import Plan
from xdplab.plan.points import Point
from xdplab.text import duration, many


@dataclass(frozen=True)
class Trial:
    """One measurement of one point, with its place in the run."""

    point: Point
    repetition: int
    block: int
    order: int

    @property
    def trial_id(self) -> str:
        return f"{self.point.point_id}-r{self.repetition}"


def schedule(plan: Plan, points: Sequence[Point]) -> list[Trial]:
    """Return every trial of the run in the order it is measured.

    A block is one queue count in one mode, arrangement and lab, with one set of device settings: changing one means
    ethtool and a new attachment. Each repetition visits every block once; blocks and their trials are shuffled again
    from the plan's seed (randomised complete blocks). This spreads slow drift of the machine over all points, and keeps
    each baseline close to its points.
    """
    groups: dict[tuple[object, ...], list[Point]] = {}
    for point in points:
        groups.setdefault(_block_key(point), []).append(point)
    numbered = dict(enumerate(groups.values()))
    trials: list[Trial] = []
    for repetition in range(1, plan.most_repetitions + 1):
        # Seeded by repetition: an extended run keeps the order of its older repetitions.
        rng = random.Random(f"{plan.seed}/{repetition}")
        for block in rng.sample(sorted(numbered), len(numbered)):
            for point in rng.sample(numbered[block], len(numbered[block])):
                trials.append(Trial(point, repetition, block, len(trials)))
    return trials


def _block_key(point: Point) -> tuple[object, ...]:
    return (point.queues, point.mode, point.arrangement, point.lab, point.device)


# Measured in the netns lab: a trial's cost besides its bursts and its pause (bench/trial_overhead.py).
OVERHEAD_S = 0.2
START_S = 4.0
"""From the command to the first trial, and the first figure's libraries. With it and `SHOWN_S` smoke and quick end
within a tenth of their estimates."""
SHOWN_S = 0.08
"""What a trial adds to tables and figures."""
SLICES = "slices"
"""The pass in which a race exchanges its two programs under one sender."""
SLICES_S = 1.6
"""How long it sends."""


def trial_s(plan: Plan, trial: Trial) -> float:
    """Seconds one trial will take: bursts, settling, its pause and the measured overhead."""
    times, passes = plan.trial, len(trial.point.passes) + ("harness" in trial.point.passes)
    sliced_s = SLICES_S - times.window_s if SLICES in trial.point.passes else 0.0
    return times.warmup_s + times.pause_s + OVERHEAD_S + passes * (times.window_s + times.settle_s) + sliced_s


def extent(plan: Plan, trials: Sequence[Trial]) -> str:
    """Return the size of these trials of ``plan`` as text: points, trials, time."""
    points = len({trial.point.point_id for trial in trials})
    most = "at most " if plan.open_ended else ""
    time = duration(estimate_s(plan, trials))
    return f"{many(points, 'point')}, {most}{many(len(trials), 'trial')}, {most or 'about '}{time}"


def estimate_s(plan: Plan, trials: Sequence[Trial]) -> float:
    """Seconds from the command to its last line: the start, the trials, tables and figures of them."""
    return START_S + sum(trial_s(plan, trial) + SHOWN_S for trial in trials) if trials else 0.0
