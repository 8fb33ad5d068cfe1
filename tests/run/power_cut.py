"""Measures into a file system on a loop device, and checks what a power cut would leave.

`power_cut.py FOLDER [REPETITIONS]`: three trials per repetition, two cuts per trial.

The loop device's backing file is the disk: a copy of it, made without a sync, holds the data that had reached the disk.
Prints one JSON line per cut. Runs in its own mount namespace, so nothing stays mounted.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.run.sessions import Session, gone_through

from xdplab.errors import XdplabError
from xdplab.plan import Trial, parse_plan
from xdplab.run.progress import PlainObserver
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import read_state
from xdplab.studies.traffic.run_files import create_run, run_trials_of

POINTS = {"name": "cut", "blocks": [{"points": {"accesses": [0, 1, 2]}}]}
FILES, BYTES = 21, 3000
ROOT = Path(__file__).parents[2]


class Writing(Session):
    """Its trials write as many raw files as those of the testbed."""

    def measure(self, trial: Trial, raw: Path, facts: dict[str, Any]) -> None:
        (raw / "counters").mkdir()
        for number in range(FILES):
            (raw / ("counters" if number % 2 else "") / f"{number}.txt").write_text(trial.trial_id[0] * BYTES)


class Cutting(PlainObserver):
    """Copies the disk when a trial begins and after its journal line is written."""

    def __init__(self, disk: Path, cuts: list[Path]) -> None:
        super().__init__(lambda _: None)
        self._disk, self._cuts = disk, cuts

    def _cut(self) -> None:
        copy = self._disk.with_name(f"cut-{len(self._cuts)}")
        shutil.copyfile(self._disk, copy)
        self._cuts.append(copy)

    def started(self, *_: Any) -> None:
        self._cut()

    def finished(self, *_: Any) -> None:
        self._cut()


def mounted(image: Path, there: Path) -> None:
    there.mkdir()
    subprocess.run(["mount", "-o", "loop", str(image), str(there)], check=True)


def look(image: Path, there: Path) -> dict[str, Any]:
    """Return the state of a disk: trials in the journal whose raw files are incomplete, and whether the run resumes."""
    mounted(image, there)
    began = time.monotonic()
    try:
        (path,) = (p for p in there.iterdir() if (p / "journal.jsonl").exists())
        run = RunDirectory.open(path)
        trials, state = run_trials_of(run), read_state(run)
        folders = {attempt.trial_id: run.raw_dir(attempt.trial_id, attempt.attempt) for attempt in state.attempts}
        lost = [
            trial_id
            for trial_id, folder in folders.items()
            if sum(path.stat().st_size == BYTES for path in folder.rglob("*.txt")) != FILES
        ]
        with run.writer():
            again = gone_through(run, trials, Writing())
        return {
            "finished": len(folders),
            "lost": lost,
            "owed": len(again.owed),
            "planned": len(again.planned),
            "took_s": time.monotonic() - began,
        }
    except XdplabError as error:
        return {"error": str(error)}
    finally:
        subprocess.run(["umount", str(there)], check=True)


def cuts(folder: Path, repetitions: int = 2) -> list[dict[str, Any]]:
    """Measure in a mount namespace of its own; return what each cut left. Raises RuntimeError with the last words."""
    paths = f"{ROOT}:{ROOT / 'src'}"
    argv = ["unshare", "--mount", sys.executable, __file__, str(folder), str(repetitions)]
    done = subprocess.run(argv, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return [json.loads(line) for line in done.stdout.splitlines()]


def main(folder: Path, repetitions: int = 2) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=500m", "xdplab-cut", str(folder)], check=True)
    disk, there, copies = folder / "disk", folder / "there", []
    subprocess.run(["truncate", "-s", "16m", str(disk)], check=True)
    subprocess.run(["mkfs.ext4", "-q", str(disk)], check=True)
    mounted(disk, there)
    run = create_run(parse_plan({**POINTS, "repetitions": repetitions}), there, lab="netns", arrangement="shared")
    with run.writer():
        gone_through(run, run_trials_of(run), Writing(), watch=Cutting(disk, copies))
    for number, cut in enumerate(copies):
        print(json.dumps(look(cut, folder / f"there-{number}")))  # noqa: T201
        cut.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
