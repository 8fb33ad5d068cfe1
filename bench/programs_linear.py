"""N = 12800 array read compiles within 1 s, loads within 30 ms, and costs are linear in N (needs root).

Cost is BPF_PROG_TEST_RUN, the best of several rounds over all N. The line is fitted by least squares of the relative
residuals (each point weighs the same), over N from 400 on; R² is of the unweighted residuals.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from xdplab.deploy.native import build_tool
from xdplab.hosts.local import LocalHost
from xdplab.programs.build import build
from xdplab.programs.onhost import load_report, testrun
from xdplab.programs.spec import ProgramSpec

ACCESSES = (0, 1, 100, 200, 400, 800, 1600, 3200, 6400, 12800)
FIT_FROM = 400


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", default="array")
    parser.add_argument("--op", default="read")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="xdplab-bench-") as name:
        measure(arguments.workload, arguments.op, arguments.rounds, Path(name))


def measure(workload: str, op: str, rounds: int, folder: Path) -> None:
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
    report(f"{workload} {op}", compile_s, load_ms, ns)


def report(title: str, compile_s: dict[int, float], load_ms: dict[int, float], ns: dict[int, float]) -> None:
    fitted = np.array([n for n in ACCESSES if n >= FIT_FROM], float)
    cost = np.array([ns[int(n)] for n in fitted])
    slope, intercept = np.polyfit(fitted, cost, 1, w=1 / cost)
    line = intercept + slope * fitted
    r_squared = 1 - ((cost - line) ** 2).sum() / ((cost - cost.mean()) ** 2).sum()
    print(f"{title}: compile {compile_s[12800]:.2f} s (≤ 1), load {load_ms[12800]:.1f} ms (≤ 30) at N = 12800")
    for n in ACCESSES:
        residual = (ns[n] - intercept - slope * n) / ns[n]
        note = f"residual {residual:+.1%}" if n >= FIT_FROM else ""
        print(f"  N {n:6}  {ns[n]:9.1f} ns  {note}")
    worst = np.abs((cost - line) / cost).max()
    print(
        f"  {intercept:.1f} ns + N × {slope:.4f} ns, worst residual {worst:.1%} (≤ 5 %), R² {r_squared:.5f} (≥ 0.999)"
    )


if __name__ == "__main__":
    main()
