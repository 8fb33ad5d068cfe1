"""`make soak`: many short trials, with a fault every few, and a check that files, BPF objects and memory do not grow.

Faults strike the generator, the loader and an SSH server of the run in turn (`real.py`); the controller and the keeper
survive all of them. The table has one line per tenth of the run.
"""

import argparse
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.faults import page
from tests.faults.real import ROLES, XDPLAB, adopt, below, held_by, lab_of_its_own, left_over, objects, reap, state
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import read_state

PLAN = """
name: soak
seed: 1
repetitions: {repetitions}
trial: {{warmup_s: 0.02, window_s: 0.05, pause_s: 0.0}}
blocks:
  - points: {{mode: native, workload: array, accesses: [0, 10, 50, 100], working_set_bytes: 4096}}
    traffic: {{engine: afxdp, load: 5kpps}}
"""
POINTS = 4
FAULTS = ("generator", "loader", "SSH server")
MOST_BYTES, MOST_FILES, MOST_OBJECTS = 10 << 20, 8, 8
HEAD = "| trials | faults | s | controller MB | files | keeper MB | files | BPF objects |"
SLOWEST_TRIAL_S = 10.0
BEGIN = "<!-- make soak -->"


@dataclass(frozen=True)
class Look:
    """The resources held at one moment. Bytes are resident memory."""

    trials: int
    faults: int
    at_s: float
    controller_bytes: int
    controller_files: int
    keeper_bytes: int
    keeper_files: int
    objects: int

    def row(self) -> str:
        mb = [f"{held / 2**20:.1f}" for held in (self.controller_bytes, self.keeper_bytes)]
        files = (self.controller_files, self.keeper_files)
        cells = [self.trials, self.faults, f"{self.at_s:.0f}", mb[0], files[0], mb[1], files[1], self.objects]
        return "| " + " | ".join(map(str, cells)) + " |"


def held(pid: int) -> tuple[int, int]:
    """Return the resident bytes and the open files of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208


def ended(out: Path) -> int:
    return sum(path.read_bytes().count(b'{"event":"finished"') for path in out.glob("[0-9]*/journal.jsonl"))


def strike(role: str) -> bool:
    """Kill a process of this role; return false if there was none."""
    victims = [seen.pid for seen in below(os.getpid()) if ROLES[role](seen)]
    for pid in victims[-1:]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(victims)


def looks(run: subprocess.Popen[bytes], out: Path, trials: int, every: int) -> Iterator[Look]:
    """Yield the resources at each tenth of the run, and strike every few trials."""
    began, faults, next_look = time.monotonic(), 0, 0
    keeper = next(seen.pid for seen in below(os.getpid()) if ROLES["keeper"](seen))
    roles = itertools.cycle(FAULTS)
    limit = began + 120 + trials * SLOWEST_TRIAL_S
    while run.poll() is None and time.monotonic() < limit:
        done = ended(out)
        if done // every > faults and strike(next(roles)):
            faults += 1
        if done >= next_look and done:
            next_look = done + trials // 10
            found = (*held(run.pid), *held(keeper), len(held_by(ours=True)))
            yield Look(done, faults, time.monotonic() - began, *found)
        reap_but(run)
        time.sleep(0.05)
    if run.poll() is None:
        run.kill()


def reap_but(run: subprocess.Popen[bytes]) -> None:
    """Reap the orphans that were left to this process, but not the run itself, for which the caller waits."""
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ChildProcessError):
            state_, parent = (entry / "stat").read_text().rpartition(") ")[2].split()[:2]
            if state_ == "Z" and int(parent) == os.getpid() and int(entry.name) != run.pid:
                os.waitpid(int(entry.name), os.WNOHANG)


def grown(found: Sequence[Look]) -> list[str]:
    """Return what grew from the second look on: before it, the first block warms up."""
    first, last = found[1], found[-1]
    bad = []
    for name in ("controller", "keeper"):
        more = getattr(last, f"{name}_bytes") - getattr(first, f"{name}_bytes")
        files = getattr(last, f"{name}_files") - getattr(first, f"{name}_files")
        bad += [f"the {name} grew by {more / 2**20:.1f} MB"] * (more > MOST_BYTES)
        bad += [f"the {name} has {files} more open files"] * (files > MOST_FILES)
    half = len(found) // 2
    most = [max(look.objects for look in part) for part in (found[:half], found[half:])]
    return bad + [f"at most {most[1]} BPF objects, {most[0]} in the first half"] * (most[1] > most[0] + MOST_OBJECTS)


def soak(trials: int, every: int) -> tuple[list[Look], str, list[str]]:
    """Return the looks at a run of this many trials, its result as a text, and the broken promises."""
    adopt()
    with tempfile.TemporaryDirectory(prefix="xdplab-soak-") as name, lab_of_its_own() as lab_name:
        out = Path(name)
        (out / "plan.yaml").write_text(PLAN.format(repetitions=-(-trials // POINTS)))
        before, had = state(lab_name), objects()
        argv = [*XDPLAB, "--lab", lab_name, "run", "plan.yaml", "--no-figures", "--out", "."]
        with (out / "said.txt").open("wb") as said:
            run = subprocess.Popen(argv, cwd=out, stdout=said, stderr=said)
            found = []
            for look in looks(run, out, trials, every):
                found.append(look)
                print(look.row(), flush=True)  # noqa: T201
            code = run.wait()
        bad = grown(found) if len(found) > 2 else ["the run ended before it could be looked at"]
        text = (out / "said.txt").read_text()
        bad += [f"the run ended {code}: {text[-600:]}"] * bool(code) + ["a traceback"] * ("Traceback" in text)
        words, missing = _counted(out, trials)
        reap()
        return found, words, bad + missing + left_over(before, had, lab_name)


def _counted(out: Path, trials: int) -> tuple[str, list[str]]:
    runs = [path.parent for path in out.glob("[0-9]*/journal.jsonl")]
    attempts = [attempt for run in runs for attempt in read_state(RunDirectory(run)).attempts]
    measured = [attempt.trial_id for attempt in attempts if attempt.status == "measured"]
    words = f"{len(attempts):,} attempts, {len(set(measured)):,} trials measured"
    bad = [f"{trials - len(set(measured))} trials were not measured"] * (len(set(measured)) < trials)
    return words, bad + ["a trial was counted twice"] * (len(measured) != len(set(measured)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--every", type=int, default=20, help="trials between two faults")
    parser.add_argument("--page", action="store_true", help="write the table into docs/results/reliability.md")
    asked = parser.parse_args()
    head = [HEAD, "|" + " --- |" * HEAD.count(" |")]
    print("\n".join(head), flush=True)  # noqa: T201
    found, words, bad = soak(asked.trials, asked.every)
    words = f"{page.today()}: {words}; {'; '.join(bad) or 'as promised'}."
    print(words)  # noqa: T201
    if asked.page:
        page.put(BEGIN, [words, "", *head, *(look.row() for look in found)])
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
