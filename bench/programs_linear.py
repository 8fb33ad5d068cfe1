"""A program of 12,800 array reads compiles within 1 s and loads within 30 ms; costs are linear in N (needs root).

The cost is the time of BPF_PROG_TEST_RUN, the best of several rounds over all N. The line is fitted to N ≥ 400 by least
squares of the relative residuals, so that each point weighs the same; R² uses the unweighted residuals.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from bounded import Aim, run

from xdplab.deploy.native import build_tool
from xdplab.hosts.local import LocalHost
from xdplab.programs.build import build
from xdplab.programs.onhost import load_report, testrun
from xdplab.programs.spec import ProgramSpec

ACCESSES = (0, 1, 100, 200, 400, 800, 1600, 3200, 6400, 12800)
FIT_FROM = 400


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workload", default="array")
    parser.add_argument("--op", default="read")
    parser.add_argument("--rounds", type=int, default=3)


def measure(arguments: argparse.Namespace) -> list[Aim]:
    with tempfile.TemporaryDirectory(prefix="xdplab-bench-") as name:
        return costs(arguments.workload, arguments.op, arguments.rounds, Path(name))


def costs(workload: str, op: str, rounds: int, folder: Path) -> list[Aim]:
    host = LocalHost()
    xdpload = build_tool(host, "xdpload", str(folder / "native"))
    built, compile_s = {}, {}
    for n in ACCESSES:
        start = time.perf_counter()
        built[n] = build(ProgramSpec(workload, n, op), folder / "cache")
        compile_s[n] = time.perf_counter() - start
    load_ms = {n: min(load_report(host, xdpload, built[n], str(folder)).load_ms for _ in range(5)) for n in ACCESSES}
    ns = {n: float("inf") for n in ACCESSES}
    for _ in range(rounds):
        for n in ACCESSES:
            ns[n] = min(ns[n], testrun(host, xdpload, built[n], str(folder), 64).testrun_ns)
    return report(f"{workload} {op}", compile_s, load_ms, ns)


def report(title: str, compile_s: dict[int, float], load_ms: dict[int, float], ns: dict[int, float]) -> list[Aim]:
    fitted = np.array([n for n in ACCESSES if n >= FIT_FROM], float)
    cost = np.array([ns[int(n)] for n in fitted])
    slope, intercept = np.polyfit(fitted, cost, 1, w=1 / cost)
    line = intercept + slope * fitted
    r_squared = 1 - ((cost - line) ** 2).sum() / ((cost - cost.mean()) ** 2).sum()
    print(f"{title}: {intercept:.1f} ns + N × {slope:.4f} ns")
    for n in ACCESSES:
        residual = (ns[n] - intercept - slope * n) / ns[n]
        note = f"residual {residual:+.1%}" if n >= FIT_FROM else ""
        print(f"  N {n:6}  {ns[n]:9.1f} ns  {note}")
    worst = np.abs((cost - line) / cost).max()
    return [
        Aim("compiling N = 12800, s", compile_s[12800], at_most=1),
        Aim("loading N = 12800, ms", load_ms[12800], at_most=30),
        Aim("worst residual", float(worst), at_most=0.05),
        Aim("R²", float(r_squared), at_least=0.999),
    ]


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=600, options=options))
