"""What a trial costs beyond its bursts: wall time of an attempt less warm-up and window, medians over the smoke plan.

The aim: a median of 0.12 s in the netns lab. Needs root.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import pandas as pd
from bounded import Aim, run

from xdplab.plan import load_plan
from xdplab.resources import shipped
from xdplab.run.state import read_state
from xdplab.studies.traffic import runs

MOST_S = 0.12


def attempts() -> list[float]:
    """Seconds of each attempt of one smoke run beyond its bursts as asked."""
    plan = load_plan(shipped("plans") / "smoke.yaml")
    with tempfile.TemporaryDirectory() as folder, runs.lab_for("netns:bench") as lab:
        started = runs.start(plan, lab, Path(folder))
        runs.execute(started, lab, runs.quiet())
        asked = plan.trial.warmup_s + plan.trial.window_s
        return [a.duration_s - asked for a in read_state(started).attempts]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=3, help="of the smoke plan (%(default)s)")


def measure(arguments: argparse.Namespace) -> list[Aim]:
    medians = [statistics.median(attempts()) for _ in range(arguments.runs)]
    print(pd.DataFrame({"run": range(1, arguments.runs + 1), "median_s": medians}).to_string(index=False))
    return [Aim("a trial beyond its bursts, s", statistics.median(medians), at_most=MOST_S)]


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=600, options=options))
