"""One run shared by several labs: 1, 2 and 4 netns labs through Dask, and 100 simulated labs of which some die.

The netns labs measure the same plan, in rounds of 1, 2 and 4 labs, whose rates are compared within a round. They share
this machine's CPUs and wait for each other's bursts, which keep a CPU busy: N labs would be N times as fast as one only
if each had CPUs of its own, and must not be slower than one, but for a fifth, where they have none. Other labs of this
machine take turns too: then more labs have more turns.

The simulated labs take a random time per block on a clock of their own; a third of them is lost within a block, which
goes to another lab. Ideal is then that no living lab ever waits. Each trial must be measured exactly once. The netns
part needs root.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bounded import Aim, run, show

from xdplab.plan import Trial, parse_plan, points_of, schedule
from xdplab.run.engine import Policy, run_trials
from xdplab.run.fleet import NOTHING, BlockResult, OnFleet, pack
from xdplab.run.progress import silent
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import Attempt, attempts_of, record_planned
from xdplab.studies.traffic.fleet import joined
from xdplab.studies.traffic.kind import TRAFFIC

LABS = (1, 2, 4)
LEAST_OF_ONE = 0.8
PLAN: dict[str, Any] = {
    "name": "scale-out",
    "repetitions": 8,
    "trial": {"warmup_s": 0.05, "window_s": 0.2, "pause_s": 0.0},
    "blocks": [{"points": {"mode": "native", "accesses": [0, 100]}}],
}
SIMULATED, LOST_SHARE, SEED = 100, 1 / 3, 1
SIMULATED_PLAN = PLAN | {"repetitions": 1000, "blocks": [{"points": {"queues": queues}} for queues in (1, 2, 4)]}
BLOCKS = 3000
LEAST_SIMULATED = 0.95
BLOCK_S = (20.0, 40.0)
QUIET = silent()


def blocks_per_minute(labs: int) -> float:
    """Measure the plan in so many labs; blocks per minute from the first lab's start until the last trial."""
    names = [f"netns:scale{os.getpid()}-{number}" for number in range(labs)]
    plan = parse_plan(PLAN | {"lab": names[0]})
    with tempfile.TemporaryDirectory() as folder, joined(names) as fleet:
        made = fleet.start(plan, Path(folder))
        began = time.time()
        TRAFFIC.run(made).measure_at(fleet, QUIET)
        ended = [event["time"] for event in made.journal.events("finished")]
        attempts = list(attempts_of(made))  # read while the folder is there
        planned = next(made.journal.events("planned"))["trials"]
    often = Counter(attempt.trial_id for attempt in attempts if attempt.status == "measured")
    again = Counter(attempt.reason for attempt in attempts if attempt.status != "measured")
    assert often == Counter(planned), again
    if again:  # a busy machine is late now and then: the trial was measured again, which took its time
        print(f"{labs} labs: {again.total()} of {len(attempts)} attempts failed", flush=True)
    return float(60 * PLAN["repetitions"] / (max(ended) - began))


class SimulatedLabs:
    """A fleet on a clock of its own; ``doomed`` labs are lost within the block that they have at that time."""

    def __init__(self, count: int, tmp: Path) -> None:
        self.labs = tuple(f"lab{number}" for number in range(count))
        self.now_s = self.worked_s = 0.0
        self._random = random.Random(SEED)
        self._raw = pack(tmp)
        self._under_way: list[tuple[float, str, Sequence[Trial], int]] = []
        most_s = BLOCKS * statistics.fmean(BLOCK_S) / count
        doomed = self._random.sample(self.labs, round(count * LOST_SHARE))
        self.lost_at_s = {lab: self._random.uniform(0, most_s) for lab in doomed}

    def give(self, lab: str, block: Sequence[Trial]) -> None:
        took = self._random.uniform(*BLOCK_S)
        end, whole = self.now_s + took, len(block)
        at = self.lost_at_s.get(lab, float("inf"))
        if at < end:
            at = max(at, self.now_s)
            done = int(whole * (at - self.now_s) / took)
            end = at
        else:
            done = whole
        self.worked_s += took * done / whole
        heapq.heappush(self._under_way, (end, lab, block, done))

    def take(self) -> tuple[str, BlockResult]:
        self.now_s, lab, block, done = heapq.heappop(self._under_way)
        ended = tuple(
            (Attempt(trial.trial_id, 1, "measured", None, 0.1, 0.1, {"lab": lab}, {}), self._raw)
            for trial in block[:done]
        )
        return lab, BlockResult(ended, NOTHING, None if done == len(block) else "it was lost")

    @property
    def alive_s(self) -> float:
        """The time that all labs together were there until the run's end."""
        return sum(min(self.lost_at_s.get(lab, self.now_s), self.now_s) for lab in self.labs)


def simulated() -> tuple[list[Aim], dict[str, Any]]:
    plan = parse_plan(SIMULATED_PLAN)
    trials = schedule(plan, points_of(plan, "shared"))
    with tempfile.TemporaryDirectory() as folder:
        made = RunDirectory.create(Path(folder), "simulated", run_id="0001", plan_yaml="")
        record_planned(made, trials)
        (empty := Path(folder) / "empty").mkdir()
        fleet = SimulatedLabs(SIMULATED, empty)
        cpu = time.process_time()
        run_trials(made, trials, OnFleet(fleet), QUIET, Policy(retries=1))
        cpu = time.process_time() - cpu
        often = Counter(attempt.trial_id for attempt in attempts_of(made))
        lost = sum(1 for _ in made.journal.events("lab_lost"))
    wrong = sum(often[trial.trial_id] != 1 for trial in trials)
    share = fleet.worked_s / fleet.alive_s
    row = {
        "labs": f"{SIMULATED} simulated, {lost} of them lost",
        "blocks per minute": 60 * BLOCKS / fleet.now_s,
        "of ideal": share,
        "times one lab": None,
        "lowest": None,
        "highest": None,
        "controller's CPU, ms per block": 1e3 * cpu / BLOCKS,
    }
    return [
        Aim(f"{SIMULATED} simulated labs, {lost} lost: share of ideal", share, at_least=LEAST_SIMULATED),
        Aim(f"{SIMULATED} simulated labs: trials not measured exactly once", wrong, at_most=0),
    ], row


def netns(labs: Sequence[int], rounds: int) -> tuple[list[Aim], list[dict[str, Any]]]:
    """Return the aims and rows of so many netns labs at once; shares are those within a round."""
    rates: dict[int, list[float]] = {count: [] for count in labs}
    for _ in range(rounds):
        for count in labs:
            rates[count].append(blocks_per_minute(count))
        print(", ".join(f"{count} labs {values[-1]:.1f} blocks/min" for count, values in rates.items()), flush=True)
    aims, rows = [], []
    for count, values in rates.items():
        shares = [rate / one for rate, one in zip(values, rates[labs[0]], strict=True)]
        share = statistics.median(shares)
        rows.append(
            {
                "labs": f"{count} netns on {len(os.sched_getaffinity(0))} CPUs, {rounds} rounds",
                "blocks per minute": statistics.median(values),
                "of ideal": None,
                "times one lab": share,
                "lowest": min(shares),
                "highest": max(shares),
                "controller's CPU, ms per block": None,
            }
        )
        if count != labs[0]:
            aims.append(Aim(f"{count} netns labs, times the rate of one", share, at_least=LEAST_OF_ONE))
    return aims, rows


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--labs", type=int, nargs="*", default=LABS, help="netns labs at once (%(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="rounds of netns labs (%(default)s)")


def measure(arguments: argparse.Namespace) -> list[Aim]:
    aims, row = simulated()
    if os.geteuid() == 0:
        found, rows = netns(arguments.labs, arguments.runs)
    else:
        reason = "needs root: makes netns labs"
        found, rows = [Aim("netns labs, times the rate of one", None, at_least=LEAST_OF_ONE, reason=reason)], []
    show("One run shared by labs", [row, *rows])
    return [*aims, *found]


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=900, options=options))
