"""Measures a recorded run again without a lab: one fork per fault, whose result is compared with the record.

The measurements of the controller's child processes are copied from the record; everything else is the real program:
plan, journal, raw files, programs, manifest, tables, `resume`. Start it with the shim preloaded (`campaign.py`).
"""

import ctypes
import errno
import importlib
import json
import os
import re
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.run.sessions import Session
from xdplab.errors import XdplabError
from xdplab.plan import Plan, Trial
from xdplab.run.derived import is_owed
from xdplab.run.disk import disk_errors
from xdplab.run.progress import silent
from xdplab.run.rundir import RunDirectory, discarded_if_nothing_began
from xdplab.run.state import attempts_of, read_state
from xdplab.studies.provenance import MANIFEST
from xdplab.studies.traffic import runs
from xdplab.studies.traffic.kind import TRAFFIC
from xdplab.studies.traffic.run_files import create_run, run_plan, run_trials_of
from xdplab.studies.traffic.trials import RECIPE

ONLY = {"mode": "native", "load": "20kpps"}
ERRNO = {"kill": 0, "torn write": 0, "ENOSPC": errno.ENOSPC, "EIO": errno.EIO}
FOR_EVER = 1 << 40
PATIENCE_S = 300.0
UNNAMED = re.compile(r"\.[0-9a-f]{16}\.new")


@dataclass(frozen=True)
class Call:
    """One call that changes a file below the results' folder: the ``number``-th, and its path there."""

    number: int
    name: str
    path: str


@dataclass(frozen=True)
class Outcome:
    """The outcome of one fault. ``lost`` and ``left`` are texts; ``words`` is a wrong message of the program."""

    fault: str
    call: str
    path: str
    lost: list[str]
    left: list[str]
    words: list[str]
    recover_s: float | None


class Record:
    """The recorded run to replay."""

    def __init__(self, path: Path) -> None:
        self.run = RunDirectory.open(path)
        self.plan = run_plan(self.run)
        self.attempts = {attempt.trial_id: attempt for attempt in attempts_of(self.run)}
        self.state = next(self.run.journal.events("hosts"))["state"]

    def raw(self, trial_id: str) -> Path:
        return self.run.raw_dir(trial_id, self.attempts[trial_id].attempt)

    @cached_property
    def files(self) -> dict[str, dict[str, bytes]]:
        """Return the raw files of each trial, by their paths."""
        return {trial_id: contents(self.raw(trial_id)) for trial_id in self.attempts}


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


class Replayed(Session):
    """A session that repeats the measurements of the recorded run."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def measure(self, trial: Trial, raw: Path, facts: dict[str, Any]) -> None:
        for name, content in self._record.files[trial.trial_id].items():
            (raw / name).parent.mkdir(parents=True, exist_ok=True)
            (raw / name).write_bytes(content)
        facts |= self._record.attempts[trial.trial_id].facts


class Replay:
    """Runs and resumes below one folder, as the command line does, in a lab that exists only by name."""

    def __init__(self, record: Record, folder: Path) -> None:
        self.record, self.folder = record, folder
        self._lab: Any = SimpleNamespace(
            name="netns",
            arrangement="shared",
            generator=SimpleNamespace(by_dpdk=False),
            lock=lambda who=None, steal=False: nullcontext(),
        )
        self._way = runs.TrafficMethod(self._session, searches=True)
        runs.host_states = lambda lab, when: record.state  # type: ignore[attr-defined]

    @contextmanager
    def _session(self, lab: Any, run: RunDirectory, plan: Plan, trials: Sequence[Trial]) -> Iterator[Replayed]:
        source = self.record.run.path / "programs"
        for program in sorted({self.record.attempts[t.trial_id].facts["program_hash"] for t in trials}):
            if not run.program_dir(program).exists():
                scratch = run.program_dir(program).with_name(f".{program}.partial")
                with disk_errors(scratch):
                    shutil.copytree(source / program, scratch, dirs_exist_ok=True)
                    scratch.rename(run.program_dir(program))
        yield Replayed(self.record)

    def whole(self) -> None:
        """Begin a run and measure it."""
        run = create_run(self.record.plan, self.folder, lab="netns", arrangement="shared", only=ONLY)
        with discarded_if_nothing_began(run):
            self._measure(run)

    def _measure(self, run: RunDirectory) -> None:
        TRAFFIC.run(run).measure_at(runs.InLab(self._lab, self._way), silent())

    def resume(self) -> None:
        """Resume the existing run, or begin one if there is none."""
        if not (found := self.runs()):
            self.whole()
            return
        run = RunDirectory.open(found[0])
        if read_state(run).owed:
            self._measure(run)
        else:
            TRAFFIC.run(run).complete()

    def runs(self) -> list[Path]:
        return [path for path in sorted(self.folder.glob("*")) if not UNNAMED.fullmatch(path.name)]


def ended(folder: Path, act: Callable[[], None], arm: Callable[[], None] | None = None) -> tuple[int, str]:
    """Run ``act`` in a process of its own. Return its exit code (or minus the signal's number) and its last output."""
    words = folder.with_suffix(".words")
    words.write_text("")
    if not (child := os.fork()):
        code = 0
        signal.alarm(int(PATIENCE_S))
        said = words.open("w")
        try:
            if arm is not None:
                arm()
            act()
        except XdplabError as error:
            code = 1
            said.write(str(error))
        except BaseException:  # noqa: BLE001  a traceback is what must be seen
            code = 2
            said.write(traceback.format_exc()[-2000:])
        finally:
            said.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), words.read_text()


class Campaign:
    """Faults at calls of one replayed run."""

    def __init__(self, shim: str, record: Path, folder: Path) -> None:
        self._shim = ctypes.CDLL(shim)
        text, long, integer = ctypes.c_char_p, ctypes.c_long, ctypes.c_int
        self._shim.fault_arm.argtypes = [text, long, long, integer, integer, text]
        self.replay = Replay(Record(record), folder / "results")
        self.folder = folder
        self._clean()

    def _clean(self) -> None:
        shutil.rmtree(self.replay.folder, ignore_errors=True)
        self.replay.folder.mkdir()

    def _arm(self, number: int, times: int, error: int, torn: bool, names: str = "") -> None:
        below = f"{self.replay.folder}/".encode()
        self._shim.fault_arm(below, number, times, error, torn, names.encode())

    def calls(self) -> list[Call]:
        """Return every call of an undisturbed run, which must itself succeed."""
        names, imported = self.folder / "calls", self.folder / "imported"

        def whole() -> None:
            self.replay.whole()
            imported.write_text("\n".join(sys.modules))

        code, words = ended(self.folder / "r", whole, lambda: self._arm(0, 0, 0, False, str(names)))
        for module in imported.read_text().splitlines() if not code else ():
            with suppress(ImportError):  # import here what every fork would import
                importlib.import_module(module)
        if code or (wrong := self._missing()) or (wrong := self._hidden()):
            raise SystemExit(f"the undisturbed run ended {code}: {words or wrong}")
        fields = [line.split("\t") for line in names.read_text().splitlines()]
        self._clean()
        return [Call(int(number), name, path) for number, name, path in fields]

    def point(self, fault: str, call: Call) -> Outcome:
        """Inject ``fault`` at ``call``, resume, and return the outcome."""
        torn, error = fault == "torn write", ERRNO[fault]
        times = FOR_EVER if fault == "ENOSPC" else 1
        code, said = ended(self.folder / "r", self.replay.whole, lambda: self._arm(call.number, times, error, torn))
        words = wrong_words(fault, code, said)
        before, kept = self._finished()
        began = time.monotonic()
        code, said = ended(self.folder / "r", self.replay.resume)
        took = time.monotonic() - began
        if code:
            words.append(f"resume ended {code}: {said[-300:]}")
        after, files = self._finished()
        lost = [f"journal line {n}" for n, line in enumerate(before) if after[n : n + 1] != [line]]
        lost += [f"{name} changed" for name, content in kept.items() if files.get(name) != content]
        outcome = Outcome(fault, call.name, call.path, lost + self._missing(), self._hidden(), words, took)
        self._clean()
        return outcome

    def _finished(self) -> tuple[list[bytes], dict[str, bytes]]:
        """Return the whole lines of the journal, and the raw files of the trials that it calls finished."""
        if not (found := self.replay.runs()):
            return [], {}
        journal = found[0] / "journal.jsonl"
        lines = [line for line in journal.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
        ends = [event for event in map(json.loads, lines) if event["event"] == "finished"]
        folders = [found[0] / "raw" / e["trial_id"] / str(e["attempt"]) for e in ends if e["status"] == "measured"]
        return lines, {f"{folder}/{name}": text for folder in folders for name, text in contents(folder).items()}

    def _missing(self) -> list[str]:
        """Return what this run lacks of a complete run."""
        found = self.replay.runs()
        if len(found) != 1:
            return [f"{len(found)} runs"]
        run, record = RunDirectory.open(found[0]), self.replay.record
        state = read_state(run)
        wrong = [f"{len(state.owed)} trials owed"] * bool(state.owed) + ["not complete"] * (state.ended != "complete")
        for trial in run_trials_of(run):
            last = state.last.get(trial.trial_id)
            if last is None or contents(run.raw_dir(trial.trial_id, last.attempt)) != record.files[trial.trial_id]:
                wrong.append(f"raw files of {trial.trial_id}")
        if not all((run.path / name).is_file() for name in (*RECIPE.files, MANIFEST)):
            wrong.append("tables or manifest")
        elif is_owed(run, RECIPE):
            wrong.append("tables are of fewer attempts")
        for program in {record.attempts[t.trial_id].facts["program_hash"] for t in run_trials_of(run)}:
            if contents(run.program_dir(program)) != contents(record.run.program_dir(program)):
                wrong.append(f"program {program}")
        return wrong

    def _hidden(self) -> list[str]:
        """Return what no complete run has: half-written files and folders."""
        return [str(path.relative_to(self.replay.folder)) for path in self.replay.folder.rglob(".*")]


SAID = {errno.ENOSPC: "No space left on device", errno.EIO: "Input/output error"}


def wrong_words(fault: str, code: int, said: str) -> list[str]:
    """Return what is wrong with the end of a run under ``fault``: it must be killed, or name the cause in one line."""
    if not ERRNO[fault]:
        return [] if code in (-signal.SIGKILL, 0) else [f"ended {code}: {said[-300:]}"]
    if code == 0:  # such as a lock file of a cache, which the run did not need
        return []
    reason = SAID[ERRNO[fault]]
    return [] if code == 1 and reason in said and "\n" not in said else [f"ended {code}: {said[-600:]}"]


def answer(campaign: Campaign, asked: Mapping[str, Any]) -> None:
    outcome = campaign.point(asked["fault"], Call(asked["number"], asked["call"], asked["path"]))
    print(json.dumps(asdict(outcome)), flush=True)  # noqa: T201


def main(shim: str, record: str, folder: str) -> None:
    """Print the calls of a whole run as one line, then one outcome per input line."""
    campaign = Campaign(shim, Path(record), Path(folder))
    print(json.dumps([asdict(call) for call in campaign.calls()]), flush=True)  # noqa: T201
    for line in sys.stdin:
        answer(campaign, json.loads(line))


if __name__ == "__main__":
    main(*sys.argv[1:])
