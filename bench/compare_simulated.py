"""How often `compare` is right: simulated runs whose truth is known. Prints the seed and a table; no lab, no root.

    .venv/bin/python bench/compare_simulated.py [DRAWS [SEED]]

A run is its own offset on all points (``run``), on each point (``point``), a slow or fast repetition on all points
(``repetition``) and noise (``trial``), all normal in the logarithm. Coverage is to be 93 to 97 %, false alarms of equal
runs and of the equivalence of unequal ones at most 5 % per family.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import log

import numpy as np
import pandas as pd

from xdplab.analysis.compare import ALPHA, MARGIN, Spread, holm


@dataclass(frozen=True)
class Case:
    """``equal``: calibration runs, 0 for the assumed spread; ``ratio``: the truth; the rest are relative SDs."""

    points: int
    repetitions: int
    equal: int
    run: float
    point: float
    repetition: float
    trial: float
    ratio: float = 1.0


CASES = (
    Case(1, 3, 0, 0.04, 0, 0, 0.035),
    Case(8, 3, 0, 0.04, 0, 0.01, 0.035),
    Case(1, 3, 4, 0.014, 0, 0, 0.035),
    Case(8, 3, 4, 0.014, 0.007, 0.02, 0.035),
    Case(8, 10, 4, 0.014, 0.007, 0.02, 0.035),
    Case(1, 10, 10, 0.03, 0, 0, 0.065),
    Case(8, 10, 10, 0.002, 0, 0, 0.01),
    Case(8, 10, 10, 0.002, 0, 0, 0.01, 1 + MARGIN),
    Case(8, 10, 10, 0.002, 0, 0, 0.01, 1.04),
)


def simulated(rng: np.random.Generator, case: Case, ratio: float = 1.0) -> dict[str, pd.Series]:
    """Return the logarithms of one run, by point and repetition."""
    whole = rng.normal(0, case.run) + log(ratio)
    repetition = rng.normal(0, case.repetition, case.repetitions)
    return {
        f"p{i}": pd.Series(whole + rng.normal(0, case.point) + repetition + rng.normal(0, case.trial, case.repetitions))
        for i in range(case.points)
    }


def once(rng: np.random.Generator, case: Case) -> tuple[float, bool, bool, float]:
    """Return the share of intervals that hold, whether any differs, any is equivalent, and the detectable share."""
    spread = Spread(tuple(simulated(rng, case) for _ in range(case.equal)))
    a, b = simulated(rng, case), simulated(rng, case, case.ratio)
    family = [spread.difference(a, b, [point]) for point in a]
    family += [spread.difference(a, b, list(a))] if case.points > 1 else []
    held = [low <= case.ratio <= high for low, high in (one.interval() for one in family)]
    differs = min(holm([one.p_differs() for one in family])) <= ALPHA
    same = min(holm([one.p_equivalent(MARGIN) for one in family])) <= ALPHA
    return float(np.mean(held)), differs, same, family[-1].detectable(len(family))


def simulate(case: Case, draws: int, seed: int) -> tuple[float, float, float, float]:
    """Return coverage, share of families with a difference, with an equivalence, and the mean detectable share."""
    rng = np.random.default_rng(seed)
    found = np.array([once(rng, case) for _ in range(draws)], dtype=float)
    coverage, differs, same, detectable = found.mean(axis=0)
    return float(coverage), float(differs), float(same), float(detectable)


def main() -> None:
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 20261122
    print(f"seed {seed}, {draws} draws per line, margin {MARGIN:.0%}")
    print("| points | n | equal runs | run, point, repetition, trial | true ratio | holds | differs | equivalent |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for case in CASES:
        coverage, differs, same, _ = simulate(case, draws, seed)
        spreads = ", ".join(f"{100 * s:g}" for s in (case.run, case.point, case.repetition, case.trial))
        print(
            f"| {case.points} | {case.repetitions} | {case.equal or 'assumed'} | {spreads} % | {case.ratio:g} "
            f"| {coverage:.1%} | {differs:.1%} | {same:.1%} |"
        )


if __name__ == "__main__":
    main()
