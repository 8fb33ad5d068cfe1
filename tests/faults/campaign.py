"""`make faults`: attacks every promise of docs/results/reliability.md; one table says how often it held.

Three parts: faults at the calls of a replayed run and power cuts, faults in processes of real runs, and the tests that
the promises name. Each can be run alone, and so can single rows.

Points are drawn by class: the call, the role of its file, and whether the trial is the first, a middle or the last one.
Each class gives its first, last and middle calls before any class gives more; otherwise the 700 writes of one table
would be two thirds of all.
"""

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from tests.faults import page
from tests.faults.page import CAMPAIGN, Row, today
from tests.run import power_cut

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RECORD = ROOT / "results" / "sample"
_RUN = r"^[0-9-]+-sample(-\d+)?/|^\.[0-9a-f]{16}\.new/?"
_NAMES = ((_RUN, ""), (r"[0-9a-f]{8}\.partial", "X"), (r"\d+\.partial", "N"))

FIRST, SEED = 600, 20261122

Point = dict[str, Any]


def role(path: str) -> str:
    """Return a file's role in a run: its path without random parts; of a raw file, only the first folder."""
    for pattern, to in _NAMES:
        path = re.sub(pattern, to, path)
    parts = path.split("/")
    if parts[0] == "raw":
        return "/".join(["raw", *(["*"] * (len(parts) > 1)), *parts[2:4]])
    return "/".join(["programs", "*", *parts[2:]]) if parts[0] == "programs" and len(parts) > 1 else path


def classes(calls: Sequence[Point]) -> list[list[Point]]:
    """Return the calls by class; each class begins with its first, last and middle calls."""
    order = list(dict.fromkeys(trial for call in calls if (trial := _trial(call["path"]))))
    found: dict[tuple[str, str, str], list[Point]] = defaultdict(list)
    for call in calls:
        trial = _trial(call["path"])
        which = "" if trial is None else {order[0]: "first", order[-1]: "last"}.get(trial, "middle")
        found[call["name"], role(call["path"]), which].append(call)
    return [_telling(group) for group in found.values()]


def _trial(path: str) -> str | None:
    found = re.search(r"raw/([^/]+)/", path)
    return found[1] if found else None


def _telling(group: list[Point]) -> list[Point]:
    first = list(dict.fromkeys((0, len(group) - 1, len(group) // 2)))
    return [group[n] for n in first] + [call for n, call in enumerate(group) if n not in first]


def chosen(calls: Sequence[Point], points: int) -> list[Point]:
    """Return this many faults at calls: every class in turn, with every fault that its call can have."""
    rounds = zip_longest(*classes(calls))
    every = [call for calls_ in rounds for call in calls_ if call is not None]
    wanted = [point for call in every for point in _faults(call)]
    if points >= FIRST:
        return wanted[:points]
    return random.Random(SEED).sample(wanted[:FIRST], points)  # fewer than one round: spread over all classes


def _faults(call: Point) -> Iterator[Point]:
    fills = call["name"] not in ("unlink", "rmdir", "chmod", "fchmod", "ftruncate")
    for fault in ("kill", *(["torn write"] * (call["name"] == "write")), *(["ENOSPC", "EIO"] * fills)):
        yield {"fault": fault, "number": call["number"], "call": call["name"], "path": call["path"]}


class Worker:
    """A process that replays runs: one answer per point."""

    def __init__(self, shim: Path, folder: Path) -> None:
        folder.mkdir()
        argv = [sys.executable, "-m", "tests.faults.replay", str(shim), str(RECORD), str(folder)]
        environment = {**os.environ, "LD_PRELOAD": str(shim), "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
        environment |= {"XDPLAB_CACHE": str(folder / "cache")}
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
        )
        self.calls: list[Point] = self._answer()

    def _answer(self) -> Any:
        line = _of(self._process.stdout).readline()
        if not line:
            raise SystemExit("a replaying process ended")
        return json.loads(line)

    def point(self, point: Point) -> Point:
        stream = _of(self._process.stdin)
        stream.write(json.dumps(point) + "\n")
        stream.flush()
        return dict(self._answer())

    def close(self) -> None:
        _of(self._process.stdin).close()
        self._process.wait(60)


def _of(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def replayed(points: int, workers: int) -> list[Point]:
    """Return the outcomes of this many points, each in a replayed run of three trials."""
    with tempfile.TemporaryDirectory(prefix="xdplab-faults-", dir=_memory()) as name:
        shim = Path(name) / "shim.so"
        subprocess.run(
            ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", shim, HERE / "shim.c"], check=True
        )
        idle: SimpleQueue[Worker] = SimpleQueue()
        every = [Worker(shim, Path(name) / f"{number}") for number in range(workers)]
        for worker in every:
            idle.put(worker)

        def one(point: Point) -> Point:
            worker = idle.get()
            outcome = worker.point(point)
            idle.put(worker)
            if bad := outcome["lost"] + outcome["left"] + outcome["words"]:
                print(f"{outcome['fault']} at {outcome['call']} {outcome['path']}: {bad}", flush=True)  # noqa: T201
            return outcome

        with ThreadPoolExecutor(workers) as pool:
            outcomes = list(pool.map(one, chosen(every[0].calls, points)))
        for worker in every:
            worker.close()
        return outcomes


def _memory() -> str | None:
    """A file system in memory if there is one: the test is of the order of calls, not of the disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def power_cuts(repetitions: int) -> list[Point]:
    """Return the state after each power cut: two cuts per trial, six trials per two repetitions. None without root."""
    if os.geteuid() or shutil.which("mkfs.ext4") is None:
        return []
    with tempfile.TemporaryDirectory(prefix="xdplab-cuts-") as name:
        try:
            cuts = power_cut.cuts(Path(name), repetitions)
        except RuntimeError as error:
            print(f"no power cuts: {error}")  # noqa: T201
            return []
    return [
        {"fault": "power cut", "call": "", "path": "", "left": [], "recover_s": cut.get("took_s")}
        | {"lost": cut.get("lost", ["the run"]) + ["owed"] * bool(cut.get("owed", 1))}
        | {"words": [cut["error"]] if "error" in cut else []}
        for cut in cuts
    ]


LOSES = "loses no finished trial and leaves no half-written file; the error names the cause, `resume` completes the run"
LEAVES = "changes no finished trial and leaves nothing in the lab; `resume` completes the run"
PROMISES = {
    "kill": f"A kill at any call that changes a file of a run {LOSES}",
    "torn write": f"A kill in the middle of a write {LOSES}",
    "ENOSPC": f"A disk that is full from any call on {LOSES}",
    "EIO": f"A disk that fails one call {LOSES}",
    "power cut": "A power cut leaves each attempt whole or absent, and what the journal calls finished is on the disk",
    "kill (real run)": f"A kill of any process of a run {LEAVES}",
    "SIGSTOP (real run)": f"A process of a run that hangs for a while {LEAVES}",
    "link deleted (real run)": f"A link that is deleted under a run {LEAVES}",
    "clock jump (real run)": f"A clock that jumps {LEAVES}",
}


def rows_of(outcomes: Iterable[Point]) -> list[Row]:
    """Return the rows of the table: one per fault."""
    by_fault: dict[str, list[Point]] = defaultdict(list)
    for outcome in outcomes:
        by_fault[outcome["fault"]].append(outcome)
    return [_row(fault, found) for fault, found in by_fault.items()]


def _row(fault: str, found: Sequence[Point]) -> Row:
    times = [outcome["recover_s"] for outcome in found if outcome["recover_s"] is not None]
    kinds = len({(outcome["call"], role(outcome["path"])) for outcome in found})
    bad = [sum(bool(outcome[name]) for outcome in found) for name in ("lost", "left", "words")]
    held = sum(not (outcome["lost"] or outcome["left"] or outcome["words"]) for outcome in found)
    took = f"{statistics.median(times):.2f} ({max(times):.2f})" if times else ""
    promise = f"{PROMISES[fault]}{f' ({kinds} kinds of call or process)' if kinds > 1 else ''}"
    return Row(promise, f"{CAMPAIGN}{fault}", str(len(found)), str(held), *map(str, bad), took, today())


def real_runs(wanted: re.Pattern[str]) -> list[Point]:
    """Return the outcomes of `real.py`, or none and the reason if this machine cannot produce them."""
    missing = [tool for tool in ("strace", "bpftool", "nsenter") if shutil.which(tool) is None]
    if os.geteuid() or missing:
        print(f"no real runs: {', '.join(missing) or 'they need root'}")  # noqa: T201
        return []
    from tests.faults import real

    points = real.kills() + real.stops() + real.others()
    return real.struck([point for point in points if wanted.search(f"{CAMPAIGN}{point.fault} {point.detail}")])


PARTS = ("replay", "real", "tests")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=1000, help="faults at calls of a replayed run")
    parser.add_argument("--cuts", type=int, default=4, help="repetitions of the run whose power is cut: 6 cuts each")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--page", action="store_true", help="write the rows into docs/results/reliability.md")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part (again for another); other rows stay")
    parser.add_argument("--rows", type=re.compile, default=re.compile(""), help="of `real` and `tests`: rows of this")
    parser.add_argument("--show", action="store_true", help="run nothing: print the last result of each row")
    asked = parser.parse_args()
    rows = [] if asked.show else list(_tried(asked))
    if asked.page:
        page.write_page(rows)
    print("\n".join(page.lines_of(page.merged(page.read_rows(), rows))))  # noqa: T201
    return int(not all(row.kept for row in rows))


def _tried(asked: argparse.Namespace) -> Iterator[Row]:
    parts = asked.only or PARTS
    if "replay" in parts:
        yield from rows_of(replayed(asked.points, asked.workers) + power_cuts(asked.cuts))
    if "real" in parts:
        yield from rows_of(real_runs(asked.rows))
    if "tests" in parts:
        yield from (page.tested(row) for row in page.read_rows() if row.files and asked.rows.search(row.key))


if __name__ == "__main__":
    sys.exit(main())
