"""The thesis' logs at full size: 6,921 logs (208 MB) to parquet, and all 110 figures, against their limits.

``python bench/thesis.py PATH-TO-THE-DATA [--figures]``; without data it says so. If PATH holds fewer logs, its folders
are repeated under other repetition numbers until there are as many, so the time is measured at full size, not
extrapolated. The last line is a JSON object, in which CPU seconds stand beside the wall time.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

from bounded import Aim, run

from xdplab.cli import FEW_COLLECTIONS
from xdplab.thesis.album import Edition, regenerate
from xdplab.thesis.imported import import_thesis, imported_trials
from xdplab.thesis.source import Found, RawLog, raw_logs

LOGS = 6921
LIMITS = {
    "import_cpu_s": 4.0,
    "import over read and split": 4.0,
    "peak_mb": 400.0,
    "as-published_cpu_s": 10.0,
    "corrected_cpu_s": 10.0,
}
"""In CPU seconds of all processes, and MB. CPU seconds grow on a busy machine; a ratio of one process hardly does."""
CPUS = 2


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", type=Path, nargs="*")
    parser.add_argument("--figures", action="store_true", help="also draw all 110 figures, as published and corrected")


def measure(arguments: argparse.Namespace) -> list[Aim]:
    result = measured(arguments) if arguments.data else {}
    reason = "it needs --figures" if arguments.data else "no folder with the thesis' logs is given"
    return [Aim(name, result.get(name), at_most=most, reason=reason) for name, most in LIMITS.items()]


def measured(arguments: argparse.Namespace) -> dict[str, float]:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CPUS])
    with tempfile.TemporaryDirectory() as scratch:
        tree = full_size(arguments.data, Path(scratch) / "data")
        result = measure_import(tree, Path(scratch))
        if arguments.figures:
            result |= measure_figures(arguments.data, Path(scratch) / "figures")
    print(json.dumps(result))
    return result


def full_size(data: list[Path], folder: Path) -> Path:
    """Write the logs of ``data`` to ``folder``, each once, and again as further repetitions, up to LOGS files."""
    logs = {log.name.path: log for log in raw_logs(data, Found())}
    kinds = Counter(log.name.kind for log in logs.values())
    print(f"{len(logs)} logs in the data ({kinds}), repeated up to {LOGS}", file=sys.stderr)
    copies = ((log, copy) for copy in range(0, 1000, 10) for log in logs.values())
    for log, copy in islice(copies, LOGS):
        write(log, folder, copy)
    return folder


def write(log: RawLog, folder: Path, copy: int) -> None:
    parent, _, rest = log.name.path.partition("/")
    repetition = log.name.measured.repetition
    path = folder / f"{parent.removesuffix(str(repetition))}{repetition + copy}" / rest
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(log.read())


def measure_import(tree: Path, scratch: Path) -> dict[str, float]:
    """Import once to warm the page cache, then three times, each in its own process: the median by wall time."""
    size = sum(path.stat().st_size for path in tree.rglob("*.txt"))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        rounds = [pool.submit(one_import, tree, scratch / f"run{number}").result() for number in range(4)]
    middle = sorted(rounds[1:], key=lambda found: found["import_s"])[1]
    return middle | {"mb": size / 1e6}


def one_import(tree: Path, out: Path) -> dict[str, float]:
    """Import as the command does, which looks for cycles of objects rarely."""
    gc.set_threshold(*FEW_COLLECTIONS)
    before, start = cpu_s(), time.perf_counter()
    made = import_thesis([tree], out)
    seconds = time.perf_counter() - start
    cpu, peak = cpu_s() - before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    files = list(tree.rglob("*.txt"))
    before = cpu_s()
    for file in files:
        file.read_bytes().split()
    ratio = cpu / (cpu_s() - before)
    return {
        "logs": made.found.logs,
        "import_s": seconds,
        "import_cpu_s": cpu,
        "import over read and split": ratio,
        "peak_mb": peak,
    }


def cpu_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def measure_figures(data: list[Path], out: Path) -> dict[str, float]:
    """Draw the figures of ``data`` (not repeated) in the default format, and write their marks as CSV."""
    trials = imported_trials(import_thesis(data, out).run)
    result: dict[str, float] = {}
    for which in ("as-published", "corrected"):
        before, start = cpu_s(), time.perf_counter()
        regenerate(trials, Edition(out), [which], processes=CPUS)
        result |= {f"{which}_s": time.perf_counter() - start, f"{which}_cpu_s": cpu_s() - before}
    return result


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=3600, options=options))
