"""How long `history` takes over a thousand runs: the first call reads them all, the second has their index.

Each run has 144 trials of 49 points: those of results/sample, at further frame sizes. Rates differ
by 2 % from run to run; from the middle on every other point is 5 % slower. A process of its own makes each call and
searches for changes; it says its CPU time and its peak memory. Needs no lab and no root.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from bounded import Aim, run, show

SAMPLE = Path(__file__).parents[1] / "results" / "sample"
SIZES = (64, 128, 256, 512, 1024, 1280, 1500)
TRIALS, BEGUN, DAY_S = 144, 1.6e9, 86_400.0
SPREAD, SLOWER = 0.02, 0.95
RATES = ["forwarded_pps", "testrun_raw_ns", "latency_p50_ns", "latency_p99_ns"]
MOST_FIRST_S, MOST_MB, MOST_SECOND_S = 60.0, 1_000.0, 3.0


def make_runs(folder: Path, number: int, seed: int) -> None:
    """Write so many runs, with tables that are current."""
    from xdplab.studies.kinds import open_run

    with tempfile.TemporaryDirectory() as scratch:
        sample = open_run(shutil.copytree(SAMPLE, Path(scratch) / "sample")).keep_tables()
        head, rest = _journal(sample)
        trials, samples = pq.read_table(sample / "trials.parquet"), pq.read_table(sample / "samples.parquet")
        metadata = trials.schema.metadata
        _, _, rules = metadata[b"xdplab"].partition(b" ")
        metadata |= {b"xdplab": b"%d %s" % (TRIALS, rules)}
        rows, rng = _at_each_size(trials.to_pandas()), np.random.default_rng(seed)
        for place in range(number):
            path = folder / f"r{place:04}"
            path.mkdir(parents=True)
            for name in ("plan.yaml", "manifest.json"):
                shutil.copy(sample / name, path)
            created = json.dumps(head | {"run_id": f"id-{place}", "time": BEGUN + place * DAY_S}, separators=(",", ":"))
            (path / "journal.jsonl").write_text(f"{created}\n{rest}")
            measured = pa.Table.from_pandas(_measured(rows, rng, place >= number // 2), preserve_index=False)
            pq.write_table(measured.replace_schema_metadata(metadata), path / "trials.parquet", compression="zstd")
            held = samples.replace_schema_metadata(samples.schema.metadata | {b"xdplab": metadata[b"xdplab"]})
            pq.write_table(held, path / "samples.parquet", compression="zstd")


def _named(trial: str, size: int) -> str:
    """Return a trial's or point's id for the point at another frame size."""
    point, dash, repetition = trial.partition("-")
    return f"{int(point, 16) ^ SIZES.index(size):012x}{dash}{repetition}"


def _at_each_size(rows: pd.DataFrame) -> pd.DataFrame:
    tables = [
        rows.assign(
            frame_bytes=rows["frame_bytes"].mask(rows["frame_bytes"].notna(), size),
            **{name: rows[name].map(lambda text, size=size: _named(text, size)) for name in ("point_id", "trial_id")},
        )
        for size in SIZES
    ]
    return pd.concat(tables, ignore_index=True).head(TRIALS)


def _measured(rows: pd.DataFrame, rng: np.random.Generator, late: bool) -> pd.DataFrame:
    points, place = np.unique(rows["point_id"].astype(str), return_inverse=True)
    apart = np.exp(rng.normal(0, SPREAD, len(points)))
    if late:
        apart[::2] *= SLOWER
    return rows.assign(**{name: rows[name] * apart[place] for name in RATES})


def _journal(run: Path) -> tuple[dict[str, Any], str]:
    """Return the first event of a run's journal, and the lines of `TRIALS` trials."""
    first, *lines = (run / "journal.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    trials = [event for event in events if "trial_id" in event]
    at_each_size = [one | {"trial_id": _named(one["trial_id"], size)} for size in SIZES for one in trials]
    planned = next(event for event in events if event["event"] == "planned")
    planned["trials"] = [one["trial_id"] for one in at_each_size if one["event"] == "finished"][:TRIALS]
    planned |= {name: (planned[name] * len(SIZES))[:TRIALS] for name in ("blocks", "costs_s")}
    (before, after) = (event for event in events if event["event"] == "hosts")
    ended = {"event": "ended", "time": after["time"], "how": "complete"}
    written = [planned, before, *at_each_size[: 2 * TRIALS], ended, after]
    return json.loads(first), "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in written)


def call(folder: Path, cache: Path) -> dict[str, Any]:
    """Return what one call costs, and how much it shows."""
    os.environ["XDPLAB_CACHE"] = str(cache)
    from xdplab.history.changes import changes
    from xdplab.history.table import history

    cpu, wall = time.process_time(), time.perf_counter()
    rows = history(folder).rows
    table_s = time.process_time() - cpu
    changed = changes(rows).changed
    return {
        "rows": len(rows), "changes": len(changed), "table, CPU s": table_s,
        "CPU s": time.process_time() - cpu, "wall s": time.perf_counter() - wall,
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }  # fmt: skip


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make the runs here, once, and keep them")


def measure(arguments: argparse.Namespace) -> Iterator[Aim]:
    pools = ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1)
    with pools as pool, tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or Path(scratch) / "runs"
        if not folder.exists():
            pool.submit(make_runs, folder, arguments.runs, arguments.seed).result()
        first, second = (pool.submit(call, folder, Path(scratch) / "cache").result() for _ in range(2))
    show(
        f"The history of {arguments.runs} runs of {TRIALS} trials",
        [{"call": "first"} | first, {"call": "second"} | second],
    )
    yield Aim("first call, CPU s", first["CPU s"], at_most=MOST_FIRST_S)
    yield Aim("first call, peak MB", first["peak MB"], at_most=MOST_MB)
    yield Aim("second call with the search for changes, CPU s", second["CPU s"], at_most=MOST_SECOND_S)


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=900, options=options))
