#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The CPU time of the start of commands that measure nothing: the median of ten starts, beside `import click, yaml`.

Fails if a help text takes more than twice as long as the import, or another command more than three times.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from bounded import Aim, run

from xdplab.cli import VERBS
from xdplab.completion import ASKED, LINE
from xdplab.run.rundir import RunDirectory

ROUNDS, MOST_OF_HELP, MOST = 10, 2.0, 3.0
PEER = [sys.executable, "-c", "import click, yaml"]
PYCACHE = {"PYTHONDONTWRITEBYTECODE": "", "COLUMNS": "100"}


def commands(made: Path) -> dict[str, list[str]]:
    """Return the argument vector of each command by its name; ``made`` is a run directory."""
    words = [
        ["--help"], *([verb, "--help"] for verb in VERBS), ["run", "--no-such-option"], ["run", "absent.yaml"],
        ["figures", "absent"], ["plan", "quick"], ["status", str(made)], ["lab", "status"],
    ]  # fmt: skip
    named = {" ".join(w).replace(str(made), "RUN"): [sys.executable, "-m", "xdplab", *w] for w in words}
    return named | {"the Tab key": ["env", f"{ASKED}=fish_complete", f"{LINE}=xdplab show ", *named["--help"][:3]]}


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds(argv: list[str]) -> float:
    before = cpu_s()
    subprocess.run(argv, capture_output=True, env=os.environ | PYCACHE, check=False)
    return cpu_s() - before


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="number of starts of each command (%(default)s)")


def measure(arguments: argparse.Namespace) -> list[Aim]:
    with tempfile.TemporaryDirectory() as folder:
        made = RunDirectory.create(Path(folder), "startup", run_id="0" * 8, plan_yaml="name: startup\n").path
        asked = {"import click, yaml": PEER} | commands(made)
        for argv in asked.values():
            seconds(argv)  # afterwards every module is compiled and in the page cache
        rounds = [{name: seconds(argv) for name, argv in asked.items()} for _ in range(arguments.rounds)]
    took = {name: median(one[name] for one in rounds) for name in asked}
    peer = took["import click, yaml"]
    slow = [name for name, t in took.items() if t > peer * (MOST_OF_HELP if name.endswith("--help") else MOST)]
    print(f"{'command':28} median of {arguments.rounds}, CPU ms   x import")
    for name, t in took.items():
        print(f"{name:28} {1000 * t:20.0f} {t / peer:10.1f}{'  too slow' if name in slow else ''}")
    return [Aim("commands that start too slowly", len(slow), at_most=0)]


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=900, options=options))
