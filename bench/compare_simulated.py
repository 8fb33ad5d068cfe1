"""How often `compare` is right: simulated runs whose truth is known. Prints the seed and a table; no lab, no root.

A run has an offset that all its points share (``run``), an offset per point (``point``), slow or fast repetitions that
all points share (``repetition``), and noise (``trial``), all normal in the logarithm. The aims: coverage of 93 to 97 %;
equal runs called different, and unequal runs called equivalent, in at most 5 % per family. A rate misses its bound only
if chance, with a true rate at the bound, gives such a rate in fewer than one of a thousand such tables.

A second table checks what `compare` promises for 80 % of cases. A pilot of two equal runs names the difference that it
would find (``detectable``) and the repetitions that would show equal runs as equivalent (``needed``). Then new runs are
drawn that differ by that much, or have that many repetitions. If whole runs spread so much that no number of
repetitions is enough, only pilots that underestimate the spread name one: at most one pilot in 200 may do so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import log

import numpy as np
import pandas as pd
from bounded import Aim, by_chance, run

from xdplab.analysis import MARGIN
from xdplab.analysis.decide.compare import ALPHA, POWER, Difference, EqualRuns, holm

RARE = 0.001 / 66
"""The probability that chance alone makes one aim miss; the tables have 66 aims."""
MOST_NEEDED = 400
"""The largest number of repetitions that is simulated for a pilot."""


@dataclass(frozen=True)
class Case:
    """``equal``: number of calibration runs, 0 for the assumed spread; ``ratio``: the truth; the rest: relative SDs."""

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
    """Return the logarithms of the values of one run, by point and repetition."""
    whole = rng.normal(0, case.run) + log(ratio)
    repetition = rng.normal(0, case.repetition, case.repetitions)
    return {
        f"p{i}": pd.Series(whole + rng.normal(0, case.point) + repetition + rng.normal(0, case.trial, case.repetitions))
        for i in range(case.points)
    }


def once(rng: np.random.Generator, case: Case) -> tuple[float, bool, bool, float]:
    """Return the share of intervals that hold, whether any point differs or is equivalent, and the detectable share."""
    spread = EqualRuns(tuple(simulated(rng, case) for _ in range(case.equal)))
    a, b = simulated(rng, case), simulated(rng, case, case.ratio)
    family = [spread.difference(a, b, [point]) for point in a]
    family += [spread.difference(a, b, list(a))] if case.points > 1 else []
    held = [low <= case.ratio <= high for low, high in (one.interval() for one in family)]
    differs = min(holm([one.p_differs() for one in family])) <= ALPHA
    same = min(holm([one.p_equivalent(MARGIN) for one in family])) <= ALPHA
    return float(np.mean(held)), differs, same, family[-1].detectable(len(family))


def simulate(case: Case, draws: int, seed: int) -> tuple[float, float, float, float]:
    """Return coverage, shares of families with a difference and with an equivalence, and the mean detectable share."""
    rng = np.random.default_rng(seed)
    found = np.array([once(rng, case) for _ in range(draws)], dtype=float)
    coverage, differs, same, detectable = found.mean(axis=0)
    return float(coverage), float(differs), float(same), float(detectable)


APART = (0.002, 0.003, 0.004, 0.005, 0.006, 0.007, 0.008, 0.009, 0.01, 0.012, 0.014)
PILOTS = (
    Case(1, 5, 10, 0.002, 0, 0, 0.01),
    *(Case(1, 10, 10, run, 0, 0, 0.01) for run in APART),
    *(Case(1, 10, 20, run, 0, 0, 0.01) for run in APART),
    Case(1, 10, 10, 0.014, 0, 0, 0.035),
)
SELDOM = 0.005
"""If at most this share of the pilots names a number, they underestimate the spread: the aim is that they are few."""


def promised(rng: np.random.Generator, case: Case) -> tuple[bool, bool | None]:
    """Return whether the detectable difference was found, and whether equal runs were called equivalent.

    The equal runs have the repetitions that the pilot named; None if it named no number.
    """
    spread = EqualRuns(tuple(simulated(rng, case) for _ in range(case.equal)))

    def drawn(ratio: float, repetitions: int) -> Difference:
        asked = replace(case, repetitions=repetitions)
        a, b = simulated(rng, asked), simulated(rng, asked, ratio)
        return spread.difference(a, b, list(a))

    pilot = drawn(1, case.repetitions)
    found = drawn(1 + pilot.detectable(1), case.repetitions).p_differs() <= ALPHA
    needed = pilot.needed(1, MARGIN)
    if needed is None or needed > MOST_NEEDED:
        return found, None
    return found, drawn(1, needed).p_equivalent(MARGIN) <= ALPHA


def promises(draws: int, seed: int) -> Iterator[Aim]:
    """Print the second table and yield its aims."""
    print(f"\nseed {seed}, {draws} pilots per line; promised: {POWER:.0%}")
    print("| n of the pilot | equal runs | run, trial | difference found | name a number | equivalent with it |")
    print("| --- | --- | --- | --- | --- | --- |")
    for case in PILOTS:
        rng = np.random.default_rng(seed)
        answers = [promised(rng, case) for _ in range(draws)]
        told = [same for _, same in answers if same is not None]
        found, same = float(np.mean([found for found, _ in answers])), float(np.mean(told)) if told else None
        words = "–" if same is None else f"{same:.1%}"
        print(
            f"| {case.repetitions} | {case.equal} | {100 * case.run:g}, {100 * case.trial:g} % | {found:.1%} "
            f"| {len(told) / draws:.1%} | {words} |",
            flush=True,
        )
        what = f"n = {case.repetitions}, runs {100 * case.run:g} %, trials {100 * case.trial:g} %"
        least = by_chance(draws, POWER, 1, rare=RARE)[0]
        yield Aim(f"power at the detectable difference, {what}", found, at_least=least)
        least = by_chance(max(1, len(told)), POWER, 1, rare=RARE)[0]
        named, most = len(told) / draws, by_chance(draws, 0, SELDOM, rare=RARE)[1]
        if named <= most and (same is None or same < POWER):
            yield Aim(f"pilots that name a number, {what}", named, at_most=most)
        else:
            yield Aim(f"power of the repetitions needed, {what}", same, at_least=least)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--draws", type=int, default=1000, help="per line (%(default)s)")
    parser.add_argument("--pilots", type=int, default=4000, help="per line of the second table (%(default)s)")
    parser.add_argument("--seed", type=int, default=20261122)


def measure(arguments: argparse.Namespace) -> Iterator[Aim]:
    draws, seed = arguments.draws, arguments.seed
    print(f"seed {seed}, {draws} draws per line, margin {MARGIN:.0%}")
    print("| points | n | equal runs | run, point, repetition, trial | true ratio | holds | differs | equivalent |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for case in CASES:
        coverage, differs, same, _ = simulate(case, draws, seed)
        spreads = ", ".join(f"{100 * s:g}" for s in (case.run, case.point, case.repetition, case.trial))
        print(
            f"| {case.points} | {case.repetitions} | {case.equal or 'assumed'} | {spreads} % | {case.ratio:g} "
            f"| {coverage:.1%} | {differs:.1%} | {same:.1%} |",
            flush=True,
        )
        what = f"{case.points} points, n = {case.repetitions}, {case.equal} equal runs, ratio {case.ratio:g}"
        least, most = by_chance(draws, 0.93, 0.97, rare=RARE)
        yield Aim(f"intervals that hold, {what}", coverage, at_least=least, at_most=most)
        wrong = differs if case.ratio == 1 else same
        yield Aim(f"false alarms, {what}", wrong, at_most=by_chance(draws, 0, 0.05, rare=RARE)[1])
    yield from promises(arguments.pilots, seed)


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=1800, options=options))
