"""How often a race is right: simulated pairs whose truth is known. Prints the seed and a table; no lab, no root.

    .venv/bin/python bench/race_simulated.py [DRAWS [SEED]]

The interval is looked at after each pair. Equal sides are to be called different, and sides that are the margin apart
equivalent, in at most 5 % of the races.
"""

from __future__ import annotations

import sys
from collections import Counter
from math import exp, log
from statistics import median

import numpy as np

from xdplab.analysis.race import Standing
from xdplab.analysis.sequential import known
from xdplab.plan.model import Race

SPREADS = (0.01, 0.02, 0.035, 0.05)
RATIOS = (1.0, 1.01, 1.02, 1.05)
LIMITS = Race()


def raced(rng: np.random.Generator, spread: float, ratio: float) -> Standing:
    """Return how a race ended; ``spread``: relative SD of a pair's ratio."""
    logs = rng.normal(log(ratio), spread, LIMITS.at_most).tolist()
    for n in range(LIMITS.at_least, LIMITS.at_most + 1):
        found = Standing(known(logs[:n]), LIMITS.margin)
        if found.answer != "undecided":
            break
    return found


def main(draws: int = 1000, seed: int = 20261122) -> None:
    rng = np.random.default_rng(seed)
    print(f"Seed {seed}, {draws} races per line, margin {LIMITS.margin:.0%}, at most {LIMITS.at_most} pairs.\n")
    print("| spread of a pair | true ratio | equivalent | differs | undecided | median pairs | mean ratio found |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for spread in SPREADS:
        for ratio in RATIOS:
            ends = [raced(rng, spread, ratio) for _ in range(draws)]
            answers = Counter(end.answer for end in ends)
            shares = " | ".join(f"{answers[word] / draws:.1%}" for word in ("equivalent", "differs", "undecided"))
            pairs = median(end.ratio.n for end in ends)
            mean = exp(float(np.mean([end.ratio.mean for end in ends])))
            print(f"| {spread:.1%} | {ratio:g} | {shares} | {pairs:.0f} | {mean:.4f} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
