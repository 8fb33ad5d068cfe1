"""How often a race is right, and after how many pairs: simulated pairs whose truth is known. No lab, no root.

A race looks at its interval after each pair. The aims, as far as so many draws can tell: at most 5 % of the races call
equal sides different, and at most 5 % call sides that differ by the margin equivalent. Races use an interval of the
median; the table also has the anytime-valid t interval of the mean, which holds at every look too. If some loads of a
program are slow for a reason outside it, the median must need fewer pairs.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, inf, log, nan, sqrt
from statistics import median

import numpy as np
from bounded import Aim, by_chance, run

from xdplab.analysis.decide.race import ALPHA, Known, Standing, median_interval
from xdplab.plan.model import Race

RATIOS = (1.0, 1.01, 1.02, 1.05)
LIMITS = Race()


@dataclass(frozen=True)
class Noise:
    """``spread``: relative SD of a pair's ratio; ``slow``: the share of slow trials, slower by 0 to 40 % (uniform)."""

    spread: float
    slow: float = 0.0

    def pairs(self, rng: np.random.Generator, ratio: float) -> list[float]:
        """Return the logarithms of the ratios of one race's pairs; each side has its own noise."""
        first, second = (
            rng.normal(0, self.spread / sqrt(2), LIMITS.at_most)
            + np.where(rng.random(LIMITS.at_most) < self.slow, np.log1p(-rng.uniform(0, 0.4, LIMITS.at_most)), 0)
            for _ in range(2)
        )
        logs: list[float] = (log(ratio) + second - first).tolist()
        return logs


NOISES = (
    *(Noise(spread) for spread in (0.01, 0.02, 0.035, 0.05)),
    *(Noise(spread, slow) for slow in (0.1, 0.2) for spread in (0.01, 0.02, 0.035)),
)
RARE = 0.001 / (2 * len(NOISES) + len(NOISES))
"""The probability that chance alone makes one aim miss."""


def mean_known(values: Sequence[float]) -> Known:
    """Return the mean (in place of the median) with its anytime-valid t interval.

    Lai 1976, On confidence sequences; Wang and Ramdas, Anytime-valid t-tests and confidence sequences for Gaussian
    means with unknown variance. With A the sum of squares about the mean and K = (sqrt(n + 1) / alpha) ** (2 / n), the
    half-width is the root of (K - 1) (n + 1) A / (n (n + 1 - K)).
    """
    n, mean = len(values), sum(values) / len(values)
    k = (sqrt(n + 1) / ALPHA) ** (2 / n)
    squares = sum((value - mean) ** 2 for value in values)
    half = sqrt((k - 1) * (n + 1) * squares / (n * (n + 1 - k))) if n + 1 > k else inf
    return Known(n, mean, mean - half, mean + half)


def raced(logs: Sequence[float], interval: Callable[[Sequence[float]], Known]) -> Standing:
    """Return how a race of these pairs ended."""
    for n in range(LIMITS.at_least, LIMITS.at_most + 1):
        found = Standing(interval(logs[:n]), LIMITS.margin)
        if found.answer != "undecided":
            break
    return found


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--draws", type=int, default=400, help="races per line (%(default)s)")
    parser.add_argument("--seed", type=int, default=20261122)


def measure(arguments: argparse.Namespace) -> Iterator[Aim]:
    draws, seed = arguments.draws, arguments.seed
    most = by_chance(draws, 0, 0.05, rare=RARE)[1]
    rng = np.random.default_rng(seed)
    print(f"Seed {seed}, {draws} races per line, margin {LIMITS.margin:.0%}, at most {LIMITS.at_most} pairs.\n")
    print("| slow trials | spread of a pair | true ratio | equivalent | differs | undecided | median pairs ", end="")
    print("| mean ratio found | by the mean: equivalent | differs | undecided | median pairs |")
    print("| --- " * 12 + "|")
    for noise in NOISES:
        for ratio in RATIOS:
            races = [noise.pairs(rng, ratio) for _ in range(draws)]
            ends, others = ([raced(one, interval) for one in races] for interval in (median_interval, mean_known))
            ratio_found = exp(float(np.mean([end.ratio.median for end in ends])))
            print(f"| {noise.slow:.0%} | {noise.spread:.1%} | {ratio:g} | {shares(ends)} | {ratio_found:.4f} ", end="")
            print(f"| {shares(others)} |", flush=True)
            what = f"{noise.slow:.0%} slow, spread {noise.spread:.1%}, ratio {ratio:g}"
            wrong = "differs" if ratio == 1 else "equivalent" if ratio == 1 + LIMITS.margin else None
            if wrong:
                share = sum(end.answer == wrong for end in ends) / draws
                yield Aim(f"{wrong}, {what}", share, at_most=most)
            if noise.slow and ratio == 1:
                yield Aim(f"pairs beside those of the mean, {what}", pairs(ends) / pairs(others), at_most=1)


def shares(ends: Sequence[Standing]) -> str:
    """Return how often each answer was given, and the median number of pairs."""
    answers = Counter[str](end.answer for end in ends)
    told = [f"{answers[word] / len(ends):.1%}" for word in ("equivalent", "differs", "undecided")]
    return " | ".join([*told, f"{pairs(ends):.0f}"])


def pairs(ends: Sequence[Standing]) -> float:
    return median(end.ratio.n for end in ends) if ends else nan


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=1800, options=options))
