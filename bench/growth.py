"""How the cost of data grows with the number of trials: verdicts, derived columns, the audit's rules, one figure.

The rows are those of results/sample, repeated as further repetitions with rates a little apart: what has been measured
there, many times over. Each step runs alone in a process of its own, which says its CPU time and its peak memory. The
exponent of growth is the slope of both logarithms between the two largest numbers. The last figure and an audit, of a
million trials, are made from a file, as `xdplab figures` and `audit` do: reading it is part of the cost.

The commands are those of a user, from a run directory of ten thousand trials whose raw files are the sample's, over and
over: `status` and `show` when only the tables are there, and when their answers are kept. Needs no lab and no root.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
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
NUMBERS = (100, 1_000, 10_000)
FIGURE_TRIALS = 1_000_000
PIECE = 10_000
COMMANDS_TRIALS = 10_000
COMMANDS = {"status": 1.0, "status again": 1.0, "show": 10.0, "show again": 1.0, "audit": 8.0, "report": 12.0}
"""Commands, and the CPU seconds that each may take for that many trials."""
MOST_EXPONENT = 1.1
MOST_LARGE_S, MOST_LARGE_MB = 10.0, 1_500.0


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


def audit(rows: pd.DataFrame) -> None:
    from xdplab.studies.traffic import audits

    made = audits.audit("", rows)
    made.to_markdown(), json.dumps(made.to_json(), indent=1, sort_keys=True)


def large_cost(step: str, path: Path) -> dict[str, float]:
    """Return the cost of a figure or an audit of the trials in a file: reading, making it, the process' peak memory."""
    from xdplab.figures.catalogue import read_narrowed
    from xdplab.studies.traffic.results import read

    make, read_file = (figure, read_narrowed) if step == "figure" else (audit, read)
    make(trials(100))
    cpu, wall = time.process_time(), time.perf_counter()
    make(read_file(path))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall, "peak_mb": peak_mb}


def large_run(number: int, parent: Path) -> Path:
    """Make a run of at least so many trials: the sample's attempts over and over, as repetitions and a second port."""
    from xdplab.plan import Trial, parse_plan
    from xdplab.run.rundir import RunDirectory
    from xdplab.run.state import attempts_of
    from xdplab.studies.traffic.run_files import create_run, run_trials_of

    def factors(trial: Trial) -> tuple[object, ...]:
        return trial.point.mode, trial.point.load, trial.point.program.accesses

    sample = RunDirectory.open(SAMPLE)
    places = {trial.trial_id: factors(trial) for trial in run_trials_of(sample)}
    attempts: dict[tuple[object, ...], list[str]] = {}
    for attempt in attempts_of(sample):
        attempts.setdefault(places[attempt.trial_id], []).append(attempt.trial_id)
    events = {kind: list(sample.journal.events(kind)) for kind in ("planned", "hosts", "finished")}
    finished = {event["trial_id"]: event for event in events["finished"]}
    wanted = sample.plan_data | {"repetitions": math.ceil(number / len(attempts) / 2)}
    for block in wanted["blocks"]:
        block["traffic"]["dst_port"] = [50220, 50221]
    lab, arrangement = (events["planned"][0][name] for name in ("lab", "arrangement"))
    run = create_run(parse_plan(wanted), parent, lab=lab, arrangement=arrangement)
    raw = shutil.copytree(SAMPLE / "raw", parent / "raw")  # hard links need one file system
    lines, now = [events["hosts"][0]], time.time()
    for trial in run_trials_of(run):
        like = attempts[factors(trial)]
        name = like[trial.repetition % len(like)]
        shutil.copytree(raw / name / "1", run.raw_dir(trial.trial_id, 1), copy_function=os.link)
        now += 1.0
        lines += [finished[name] | {"time": now, "trial_id": trial.trial_id, "attempt": 1}]
    lines += [events["hosts"][-1], {"event": "ended", "time": now, "how": "complete"}]
    with run.journal.path.open("a") as file:
        file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    shutil.copytree(SAMPLE / "programs", run.path / "programs")
    return run.path


def command_costs(number: int, folder: Path) -> list[dict[str, Any]]:
    """Return the CPU seconds of deriving the tables of a run of so many trials, and of each command on it."""
    run = large_run(number, folder)
    environment = os.environ | {"XDPLAB_CACHE": str(folder / "cache")}
    costs = []
    for name in ("tables", *COMMANDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        argv = [sys.executable, "-m", "xdplab", name.split()[0], str(run)]
        subprocess.run(argv, capture_output=True, env=environment, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        costs.append({"command": name, "trials": number, "cpu_s": cpu, "most": COMMANDS.get(name)})
    return costs


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--numbers", type=int, nargs="+", default=NUMBERS, help="trials")
    parser.add_argument("--commands", type=int, default=COMMANDS_TRIALS, help="trials of a run (%(default)s)")
    parser.add_argument("--figure", type=int, default=FIGURE_TRIALS, help="trials made from a file (%(default)s)")


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
        large = {step: pool.submit(large_cost, step, path).result() for step in ("figure", "audit")}
        commands = command_costs(arguments.commands, Path(folder))
    table = pd.DataFrame(found)
    last = [{"step": f"{step}, from its file", "trials": arguments.figure} | large[step] for step in large]
    show("Growth of the cost of data with the number of trials", [*found, *last])
    show("What commands take, of a run directory", commands)
    aims = [
        Aim(f"exponent of growth, {step}", exponent(table[table["step"] == step]), at_most=MOST_EXPONENT)
        for step in STEPS
    ]
    aims += [
        Aim(f"{one['command']} of {arguments.commands} trials, CPU s", one["cpu_s"], at_most=one["most"])
        for one in commands
        if one["most"] is not None
    ]
    for step, costs in large.items():
        what = f"{'an' if step == 'audit' else 'a'} {step} of {arguments.figure} trials"
        aims += [
            Aim(f"{what}, CPU s", costs["cpu_s"], at_most=MOST_LARGE_S),
            Aim(f"{what}, peak MB", costs["peak_mb"], at_most=MOST_LARGE_MB),
        ]
    return aims


def exponent(rows: pd.DataFrame) -> float:
    (_, before), (_, after) = rows.nlargest(2, "trials").iloc[::-1].iterrows()
    return math.log(after["cpu_s"] / before["cpu_s"]) / math.log(after["trials"] / before["trials"])


if __name__ == "__main__":
    sys.exit(run(__doc__, measure, most_s=1_800, options=options))
