"""How often a race is right: simulated pairs whose truth is known. Prints the seed and a table; no lab, no root.

The interval is looked at after each pair. Equal sides are to be called different, and sides that are the margin apart
equivalent, in at most 5 % of the races, as far as so many draws can tell.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from math import exp, log
from statistics import median

import numpy as np
from bounded import Aim, by_chance, run

from xdplab.analysis.race import Standing
from xdplab.analysis.sequential import known
from xdplab.plan.model import Race

SPREADS = (0.01, 0.02, 0.035, 0.05)
RATIOS = (1.0, 1.01, 1.02, 1.05)
LIMITS = Race()
RARE = 0.001 / 12
"""Of one aim, with 12 in the table."""


def raced(rng: np.random.Generator, spread: float, ratio: float) -> Standing:
    """Return how a race ended; ``spread``: relative SD of a pair's ratio."""
    logs = rng.normal(log(ratio), spread, LIMITS.at_most).tolist()
    for n in range(LIMITS.at_least, LIMITS.at_most + 1):
        found = Standing(known(logs[:n]), LIMITS.margin)
        if found.answer != "undecided":
            break
    return found


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--draws", type=int, default=1000, help="races per line (%(default)s)")
    parser.add_argument("--seed", type=int, default=20261122)


def measure(arguments: argparse.Namespace) -> list[Aim]:
    draws, seed = arguments.draws, arguments.seed
    most, aims = by_chance(draws, 0, 0.05, rare=RARE)[1], []
    rng = np.random.default_rng(seed)
    print(f"Seed {seed}, {draws} races per line, margin {LIMITS.margin:.0%}, at most {LIMITS.at_most} pairs.\n")
    print("| spread of a pair | true ratio | equivalent | differs | undecided | median pairs | mean ratio found |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for spread in SPREADS:
        for ratio in RATIOS:
            ends = [raced(rng, spread, ratio) for _ in range(draws)]
            answers: Counter[str] = Counter(end.answer for end in ends)
            shares = " | ".join(f"{answers[word] / draws:.1%}" for word in ("equivalent", "differs", "undecided"))
            pairs = median(end.ratio.n for end in ends)
            mean = exp(float(np.mean([end.ratio.mean for end in ends])))
            print(f"| {spread:.1%} | {ratio:g} | {shares} | {pairs:.0f} | {mean:.4f} |", flush=True)
            wrong = "differs" if ratio == 1 else "equivalent" if ratio >= 1 + LIMITS.margin else None
            if wrong:
                aims.append(Aim(f"{wrong}, spread {spread:.1%}, ratio {ratio:g}", answers[wrong] / draws, at_most=most))
    return aims


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=1800, options=options))
