"""How the cost of data grows with the number of trials: verdicts, derived columns, the audit's rules, one figure.

The rows are those of results/sample, repeated as further repetitions with rates a little apart: what has been measured
there, many times over. Each step runs alone in a process of its own, which says its CPU time and its peak memory. The
exponent of growth is the slope of both logarithms between the two largest numbers. The last figure, of a million
trials, is drawn from a file, as `xdplab figures` does: reading it is part of the cost. Needs no lab and no root.
"""

from __future__ import annotations

import argparse
import math
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from bounded import Aim, run, show

SAMPLE = Path(__file__).parents[1] / "results" / "sample"
NUMBERS = (100, 1_000, 10_000)
FIGURE_TRIALS = 1_000_000
PIECE = 10_000
MOST_EXPONENT = 1.1
MOST_FIGURE_S, MOST_FIGURE_MB = 10.0, 2_500.0


def trials(number: int) -> pd.DataFrame:
    """Return so many rows: the sample's, as repetition 1, 2, 3, … with rates that lie up to 5 % apart."""
    from xdplab.studies.kinds import open_run
    from xdplab.studies.traffic import trials

    sample = trials.settled_trials(open_run(SAMPLE).directory)  # as of today: the file may lack newer columns
    times = math.ceil(number / len(sample))
    rows = pd.concat([sample] * times, ignore_index=True).head(number)
    rows["repetition"] = np.arange(number) // len(sample) * 10 + rows["repetition"].to_numpy()
    rows["trial_id"] = rows["point_id"] + "-r" + rows["repetition"].astype("string")
    apart = np.random.default_rng(1).uniform(0.95, 1.05, number)
    for column in ("forwarded_pps", "testrun_ns", "ns_per_packet"):
        rows[column] = rows[column] * apart
    return rows


def verdicts(rows: pd.DataFrame) -> None:
    from xdplab.analysis.verdicts import judge

    for row in rows.astype(object).where(rows.notna(), None).to_dict("records"):
        judge({str(name): value for name, value in row.items()})


def derived(rows: pd.DataFrame) -> None:
    from xdplab.analysis.derived import derive

    derive(rows)


def findings(rows: pd.DataFrame) -> None:
    from xdplab.analysis.finding_rules import find

    find(rows)


def figure(rows: pd.DataFrame) -> None:
    from xdplab.figures.album import draw_all
    from xdplab.figures.factors import FigureFiles

    with tempfile.TemporaryDirectory() as folder:
        drawn = draw_all(rows, FigureFiles(Path(folder)), names=["throughput"])
    assert all(one.files for one in drawn), drawn


STEPS: dict[str, Callable[[pd.DataFrame], None]] = {
    "verdicts": verdicts,
    "derived": derived,
    "findings": findings,
    "figure": figure,
}


def cost(step: str, number: int) -> dict[str, float]:
    """Return the CPU seconds of a step, its wall time (both without loading modules) and the peak memory in MB."""
    STEPS[step](trials(100))
    rows = trials(number)
    cpu, wall = time.process_time(), time.perf_counter()
    STEPS[step](rows)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall, "peak_mb": peak_mb}


def written(number: int, path: Path) -> None:
    """Write a table of so many trials: one piece over and over, as further repetitions with names of their own."""
    rows = trials(PIECE)
    piece = pa.Table.from_pandas(rows, preserve_index=False)
    with pq.ParquetWriter(path, piece.schema, compression="zstd") as writer:
        for before in range(0, number, PIECE):
            repetition = rows["repetition"] + 10 * before
            named = rows["point_id"] + "-r" + repetition.astype("string")
            for column, values in (("repetition", repetition), ("trial_id", named)):
                place = piece.column_names.index(column)
                piece = piece.set_column(place, piece.schema.field(place), pa.array(values, piece.schema.types[place]))
            writer.write_table(piece.slice(0, number - before))


def large_cost(path: Path) -> dict[str, float]:
    """Return the cost of a figure of the trials in a file: reading, drawing and the process' peak memory."""
    from xdplab.figures.catalogue import read_narrowed

    figure(trials(100))
    cpu, wall = time.process_time(), time.perf_counter()
    figure(read_narrowed(path))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall, "peak_mb": peak_mb}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--numbers", type=int, nargs="+", default=NUMBERS, help="trials")
    parser.add_argument("--figure", type=int, default=FIGURE_TRIALS, help="trials in the last figure (%(default)s)")


def measure(arguments: argparse.Namespace) -> list[Aim]:
    pools = ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1)
    with pools as pool, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trials.parquet"
        found = [
            {"step": step, "trials": number} | pool.submit(cost, step, number).result()
            for step in STEPS
            for number in arguments.numbers
        ]
        pool.submit(written, arguments.figure, path).result()
        large = pool.submit(large_cost, path).result()
    table = pd.DataFrame(found)
    last = {"step": "figure, from its file", "trials": arguments.figure} | large
    show("Growth of the cost of data with the number of trials", [*found, last])
    aims = [
        Aim(f"exponent of growth, {step}", exponent(table[table["step"] == step]), at_most=MOST_EXPONENT)
        for step in STEPS
    ]
    return [
        *aims,
        Aim(f"a figure of {arguments.figure} trials, CPU s", large["cpu_s"], at_most=MOST_FIGURE_S),
        Aim(f"a figure of {arguments.figure} trials, peak MB", large["peak_mb"], at_most=MOST_FIGURE_MB),
    ]


def exponent(rows: pd.DataFrame) -> float:
    (_, before), (_, after) = rows.nlargest(2, "trials").iloc[::-1].iterrows()
    return math.log(after["cpu_s"] / before["cpu_s"]) / math.log(after["trials"] / before["trials"])


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=900, options=options))
