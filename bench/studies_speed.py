"""How long a guest takes to its shell, and each study's `--smallest` to its end: wall time and CPU seconds.

CPU seconds are those of the command and of everything that it started, the emulator included. Limits are wall times of
two quiet CPUs: if more than one process was ready on average when a command began, its wall time says nothing and is
not judged; its CPU seconds must still be below the limit, because one CPU does most of the work.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bounded import Aim, run, show

SHELL_S, COUNTING_S, SMALLEST_S = 3.0, 10.0, 90.0
KERNELS = ("5.10", "6.1", "6.12", "7.2")
STUDIES = ("execution", "loading", "jit", "offload", "verifier")
QUIET = 1.0
"""The most processes ready to run, on average of the last minute, of a machine whose wall times are judged."""
_PR_SET_CHILD_SUBREAPER = 36
_SHELL = """
import sys
from xdplab.labs import use_lab
with use_lab(sys.argv[1]) as lab:
    print(lab.host("guest").run(["uname", "-r"]).text, end="", flush=True)
"""


def spent(argv: list[str], folder: Path, most_s: float) -> tuple[float, float]:
    """Return wall and CPU seconds of a command, and of what it left running until that has ended too."""
    before, began = _used(), time.monotonic()
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=most_s, check=False)
    wall = time.monotonic() - began
    if done.returncode:
        raise SystemExit(f"`{' '.join(argv)}`: {(done.stderr or done.stdout).strip()[-400:]}")
    with contextlib.suppress(ChildProcessError):  # the keeper of a guest, which becomes a child of this process
        while True:
            os.wait()
    return wall, _used() - before


def _used() -> float:
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def guests(kernels: list[str], ways: list[str]) -> list[tuple[str, list[str], float]]:
    """Return name, command and limit of each guest's start."""
    limits = {"functional": SHELL_S, "count": COUNTING_S}
    return [
        (f"vm:{kernel}:{way}, shell", [sys.executable, "-c", _SHELL, f"vm:{kernel}:{way}:speed"], limits[way])
        for way in ways
        for kernel in kernels
    ]


def smallest(names: list[str], folder: Path) -> list[tuple[str, list[str], float]]:
    """Return name, command and limit of each study's smallest run."""
    command = [sys.executable, "-m", "xdplab", "study"]
    return [
        (f"{name} --smallest", [*command, name, "--smallest", "--out", str(folder / name)], SMALLEST_S)
        for name in names
    ]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kernel", nargs="*", default=list(KERNELS))
    parser.add_argument("--way", nargs="*", default=["functional", "count"])
    parser.add_argument("--study", nargs="*", default=list(STUDIES))


def measure(options: argparse.Namespace) -> list[Aim]:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    rows: list[dict[str, Any]] = []
    aims = []
    with tempfile.TemporaryDirectory(prefix="xdplab-speed-") as work:
        for name, argv, limit in [*guests(options.kernel, options.way), *smallest(options.study, Path(work))]:
            if ":functional" in name:
                spent(argv, Path(work), 600)  # the first one saves the state that others start from
            load = os.getloadavg()[0]
            wall, cpu = spent(argv, Path(work), 1200)
            rows.append({"what": name, "wall, s": wall, "CPU s": cpu, "limit, s": limit, "load before": load})
            print(f"{name}: {wall:.1f} s, CPU {cpu:.1f} s, load {load:.1f}", flush=True)
            busy = f"load {load:.1f}: the machine was not quiet"
            quiet = load <= QUIET
            aims.append(Aim(f"{name}, wall s", wall if quiet else None, at_most=limit, reason="" if quiet else busy))
            aims.append(Aim(f"{name}, CPU s", cpu, at_most=limit))
    show("Guests and smallest studies", rows)
    return aims


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=3600, options=options))
