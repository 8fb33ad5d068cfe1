"""All figures of a run, each as SVG with its marks: CPU seconds per figure, and the growth with the number of trials.

The trials are those of results/sample, repeated as `growth.py` does, in the numbers of the default plan's run (144) and
of 25 such runs. Each number is drawn in a process of its own, after a first drawing that loads all modules. Beside it,
without an aim: the same figures as SVG, PDF and PNG. Needs no lab and no root.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from argparse import Namespace
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from bounded import Aim, run, show
from growth import MOST_EXPONENT, trials

FEW, MANY = 144, 3600
FORMATS = ("svg", "pdf", "png")
MOST_CPU_S = 0.27


def drawn(number: int, formats: tuple[str, ...] = FORMATS[:1]) -> int:
    """Draw all figures of so many trials and return how many there are."""
    from xdplab.figures.album import draw_all
    from xdplab.figures.factors import FigureFiles

    with tempfile.TemporaryDirectory() as folder:
        found = draw_all(trials(number), FigureFiles(Path(folder), formats=formats))
        files = sum(len(one.files) for one in found)
    assert files
    return sum(bool(one.files) for one in found)


def cost(number: int, formats: tuple[str, ...] = FORMATS[:1]) -> tuple[float, int]:
    """Return the CPU seconds without loading modules, and the number of figures."""
    drawn(FEW, formats)
    began = used_s()
    figures = drawn(number, formats)
    return used_s() - began, figures


def used_s() -> float:
    """Return the CPU seconds of this process and of those that it has waited for, which draw."""
    return sum(os.times()[:4])


def measure(_: Namespace) -> list[Aim]:
    context = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        found = {number: pool.submit(cost, number).result() for number in (FEW, MANY)}
        in_all = pool.submit(cost, FEW, FORMATS).result()[0]
    seconds = {number: cpu_s for number, (cpu_s, _) in found.items()}
    figures = found[FEW][1]
    rows = [
        {"trials": number, "formats": "svg", "figures": figures, "cpu_s": cpu_s} for number, cpu_s in seconds.items()
    ]
    show(
        "All figures of a run",
        [*rows, {"trials": FEW, "formats": ",".join(FORMATS), "figures": figures, "cpu_s": in_all}],
    )
    growth = math.log(seconds[MANY] / seconds[FEW]) / math.log(MANY / FEW)
    return [
        Aim(f"a figure of {FEW} trials, CPU s", seconds[FEW] / figures, at_most=MOST_CPU_S),
        Aim("exponent of growth", growth, at_most=MOST_EXPONENT),
    ]


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=600))
