"""What a trial costs beyond its bursts: wall time of an attempt less warm-up and window, medians over the smoke plan.

The limit it is held against: a median of 0.3 s in the netns lab.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import pandas as pd

from xdplab.plan import load_plan
from xdplab.resources import shipped
from xdplab.run.state import read_state
from xdplab.studies.traffic import runs

LIMIT_S = 0.3
RUNS = 3


def attempts() -> list[float]:
    """Seconds of each attempt of one smoke run beyond its bursts as asked."""
    plan = load_plan(shipped("plans") / "smoke.yaml")
    with tempfile.TemporaryDirectory() as folder, runs.lab_for("netns:bench") as lab:
        run = runs.start(plan, lab, Path(folder))
        runs.execute(run, lab, runs.quiet())
        asked = plan.trial.warmup_s + plan.trial.window_s
        return [a.duration_s - asked for a in read_state(run).attempts]


def main() -> None:
    medians = [statistics.median(attempts()) for _ in range(RUNS)]
    overall = statistics.median(medians)
    print(pd.DataFrame({"run": range(1, RUNS + 1), "median_s": medians}).to_string(index=False))
    print(f"median {overall:.3f} s, {overall / LIMIT_S:.2f} of the limit of {LIMIT_S} s")


if __name__ == "__main__":
    main()
