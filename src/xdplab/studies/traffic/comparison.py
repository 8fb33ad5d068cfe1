"""Two runs side by side: differences of environment, warnings, then the comparison of their values.

How far equal runs lie apart is known from equal runs that are given, or from a calibration of this machine. A baseline
file replaces the first run: the part of it that a comparison needs, small enough for a repository.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pandas as pd

from xdplab.analysis import MARGIN
from xdplab.analysis.decide.calibration import LEAST_REPETITIONS, LEAST_RUNS, Calibration, calibration
from xdplab.analysis.decide.compare import POINT, Drift, decide, drift, same_points
from xdplab.analysis.settings_rules import settings_around
from xdplab.errors import PlanError, ResultsError
from xdplab.plan import Plan
from xdplab.resources import state_root
from xdplab.run.disk import disk_errors, write_whole
from xdplab.run.progress import Observer
from xdplab.run.rundir import RunDirectory
from xdplab.studies.comparing import ComparedRuns, Unlike, check_metric, check_runs, differences, names_of
from xdplab.studies.environment import flat
from xdplab.studies.kind import Run
from xdplab.studies.provenance import MOMENT
from xdplab.studies.traffic import kind, turns
from xdplab.studies.traffic.columns import trials_frame
from xdplab.studies.traffic.run_files import run_plan
from xdplab.studies.traffic.trials import settled_trials
from xdplab.text import many

RATE = "forwarded_pps"


def compared(
    first: Run[Any], second: Run[Any], metric: str = RATE, equal: Sequence[Run[Any]] = (), margin: float = MARGIN
) -> ComparedRuns:
    """Compare ``second`` to ``first``; ``equal`` are two or more runs that measured the same as each other.

    A calibration of this machine stands in for them where there are none.

    Raises ResultsError if one of them is also compared, or is alone: a run has no spread by itself.
    """
    directories = first.directory, second.directory
    check_runs(*directories, [run.directory for run in equal])
    tables = [run.attempts() for run in (first, second)]
    settled = same_points(*(table.drop_duplicates("trial_id", keep="last", ignore_index=True) for table in tables))
    for directory, table in zip(directories, settled, strict=True):
        check_metric(table, metric, directory)
    names = names_of(*directories)
    doubts = {
        name: _doubts(run, table, metric) for name, run, table in zip(names, (first, second), tables, strict=True)
    }
    spread = [run.rows() for run in equal] or calibrated(metric, first.around(), second.around()) or ()
    decision = decide(settled[0], settled[1], metric, equal=spread, margin=margin)
    return ComparedRuns(metric, names, tuple(_unlike(first, second, *settled)), doubts, decision)


def _warnings(run: Run[Any]) -> tuple[str, ...]:
    return tuple(f"{one.rule}: {one.what}" for one in run.findings() if one.severity == "warning")


def _doubts(run: Run[Any], table: pd.DataFrame, metric: str) -> tuple[str, ...]:
    moved: Drift | None = drift(table, metric)
    if moved is None or not moved.significant or metric == RATE:  # of the rate it is a finding
        return _warnings(run)
    change = f"drift: {metric} changed by {moved.share:+.1%} from the first to the last trial (p = {moved.p:.1g})"
    return (*_warnings(run), change)


def _unlike(first: Run[Any], second: Run[Any], a: pd.DataFrame, b: pd.DataFrame) -> list[Unlike]:
    before, after = (run.around() for run in (first, second))
    unlike = differences(before, after)
    points = frozenset(a["point_id"]) & frozenset(b["point_id"])
    here, in_second = (settings_around(table, points) for table in (a, b))
    unlike += _of_machines(differences(here, in_second)) if here and in_second else []
    edited = changed_files(a, b, first.directory, second.directory)
    both = a.drop_duplicates("point_id").merge(b.drop_duplicates("point_id"), on="point_id")
    others = both["program_hash_x"].ne(both["program_hash_y"]) & ~both["program_name_x"].isin([e.what for e in edited])
    if changed := int(others.fillna(False).sum()):
        unlike.append(Unlike("program bytes", None, f"others at {changed} of {len(both)} points"))
    return [*edited, *unlike]


_CONTENTS = {"program_sha256": "program_name", "frames_sha256": "frames"}
"""Columns with the SHA-256 of files, and the columns with the files' names."""


def changed_files(a: pd.DataFrame, b: pd.DataFrame, first: RunDirectory | None, second: RunDirectory) -> list[Unlike]:
    """Return the users' files of one name that have other contents in the second run; ``first``: null for a baseline.

    The tables have the ids of `same_points`.
    """
    both = a.drop_duplicates("point_id").merge(b.drop_duplicates("point_id"), on="point_id")
    changed = []
    for content, name in _CONTENTS.items():
        other = both[both[f"{content}_x"].ne(both[f"{content}_y"]).fillna(False).astype(bool)]
        for row in other.drop_duplicates(f"{name}_x").to_dict("records"):
            lines = None
            if first is not None and content == "program_sha256":
                lines = _changed_lines(first, row["program_hash_x"], second, row["program_hash_y"])
            text = f"{row[f'{name}_x']} changed" + (f": {lines}" if lines else "")
            changed.append(Unlike(str(row[f"{name}_x"]), str(row[f"{content}_x"]), str(row[f"{content}_y"]), text))
    return changed


def _changed_lines(first: RunDirectory, old: object, second: RunDirectory, new: object) -> str | None:
    """Return how many lines of a program differ, or of the headers that it includes; None of a compiled object."""
    for name, of_what in (("program.c", ""), ("preprocessed.c", " of its headers")):
        paths = [run.program_dir(str(digest)) / name for run, digest in ((first, old), (second, new))]
        if not all(path.is_file() for path in paths):
            return None
        if changed := _differing(*(path.read_text(errors="replace").splitlines() for path in paths)):
            return many(changed, "line") + of_what
    return "comments of its headers, or files that its setup names"


def _differing(a: list[str], b: list[str]) -> int:
    """Return how many lines differ. The ends in common are left out first: a kernel's headers have 100,000 lines."""
    shorter = min(len(a), len(b))
    head = next((at for at in range(shorter) if a[at] != b[at]), shorter)
    tail = next((at for at in range(shorter - head) if a[-1 - at] != b[-1 - at]), shorter - head)
    steps = SequenceMatcher(a=a[head : len(a) - tail], b=b[head : len(b) - tail], autojunk=False).get_opcodes()
    return sum(max(i2 - i1, j2 - j1) for step, i1, i2, j1, j2 in steps if step != "equal")


def _of_machines(unlike: Sequence[Unlike]) -> list[Unlike]:
    """Return the differences, those of a machine that is both hosts once."""
    named = {(one.what, one.first, one.second) for one in unlike}
    return [one for one in unlike if (f"dut {one.what.partition('tg ')[2]}", one.first, one.second) not in named]


def around(run: RunDirectory) -> dict[str, str]:
    """Return the hosts' state before the last session, line by line, and the plan's times.

    Where that session had several labs, each line of a lab's hosts is under the lab's name.
    """
    facts = {f"trial.{k}": str(v) for k, v in run_plan(run).trial.model_dump().items()}
    before = [event for event in run.journal.events("hosts") if event["when"] == "before" and "place" not in event]
    states = [event["state"] for event in before if event["session"] == before[-1]["session"]]
    if not states:
        return facts
    facts["lab"] = ", ".join(str(state["lab"]) for state in states)
    facts |= {f"xdplab.{name}": str(value) for name, value in states[0]["xdplab"].items()}
    for state in states:
        under = f"{state['lab']}: " if len(states) > 1 else ""
        for host in ("dut", "tg"):
            for name, answer in state[host].items():
                if name not in _COUNTERS:
                    text = str(answer.get("value", f"absent: {answer.get('absent')}"))
                    facts |= flat(f"{under}{host} {name}", text)
    return facts


_COUNTERS = ("link", "memory", *MOMENT)
"""What differs between any two runs: interface numbers, counters, free memory."""


# --- how far equal runs of this machine lie apart ---

MACHINE = ("dut cpus Model name", "dut cpus CPU(s)", "dut driver driver", "tg cpus Model name")
"""The facts that must be equal for a calibration to be valid for a run. Kernels may differ: they are compared."""

FILE = "calibration.json"


def calibrate(plan: Plan, lab_name: str, count: int, observer: Observer) -> Calibration:
    """Measure ``plan`` ``count`` times and keep the results. Raises PlanError, ResultsError."""
    if count < LEAST_RUNS:
        raise PlanError(f"--runs: {count} equal runs have no spread", remedy=f"{LEAST_RUNS} at least")
    if isinstance(plan.repetitions, int) and plan.repetitions < LEAST_REPETITIONS:
        raise PlanError(
            f"repetitions: {plan.repetitions} repetition has no spread, and a calibration needs it",
            remedy=f"{LEAST_REPETITIONS} at least; 5 are usual",
        )
    now = datetime.now(UTC)
    folder = state_root() / "calibration" / now.strftime("%Y-%m-%dT%H%M%S")
    directories = []
    for _ in range(count):
        with turns.lab_for(lab_name) as lab:
            directories.append(kind.measured(plan, lab, folder, observer).directory)
    facts = {name: value for name, value in around(directories[0]).items() if name in (*MACHINE, "dut kernel")}
    tables = {directory.name: settled_trials(directory) for directory in directories}
    try:
        calibrated_lab = calibration(tables, date=now.isoformat(timespec="seconds"), lab=lab_name, around=facts)
    except ResultsError as error:
        worst = min(tables, key=lambda name: int(tables[name]["verdict"].eq("valid").sum()))
        remedy = (error.remedy or "").replace("`xdplab audit`", f"`xdplab audit {folder / worst}`")
        raise ResultsError(f"{folder}: {error.message}", remedy=remedy) from error
    with disk_errors(folder):
        (folder / FILE).write_text(json.dumps(calibrated_lab.to_json(), indent=1) + "\n")
    return calibrated_lab


def calibrated(metric: str, *facts: Mapping[str, str]) -> Calibration | None:
    """Return the last calibration that is valid for runs with these facts, which is one of their rates; None if there
    is none."""
    if metric != RATE:
        return None
    for path in sorted((state_root() / "calibration").glob(f"*/{FILE}"), reverse=True):
        kept = _read(path)
        if kept and all(kept.around.get(name) == machine.get(name) for machine in facts for name in MACHINE):
            return kept
    return None


def _read(path: Path) -> Calibration | None:
    """A file of another version is ignored."""
    try:
        return Calibration.of_json(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


# --- a baseline file ---

VERSION = 1
_NEEDED = (
    "run_id",
    "point_id",
    "trial_id",
    "attempt",
    "repetition",
    "verdict",
    "program_hash",
    "limited_by",
    "offered_pps",
)


def save_baseline(run: Run[Any], metric: str, path: Path, *, equal: Sequence[Run[Any]] = ()) -> None:
    """Write the baseline of ``run`` for ``metric``; two or more ``equal`` runs say how equal runs spread."""
    if len(equal) == 1:
        raise ResultsError("one equal run has no spread", remedy="give --equal twice or more, or leave it out")
    tables = [one.rows() for one in (run, *equal)]
    for one, table in zip((run, *equal), tables, strict=True):
        check_metric(table, metric, one.directory)
    kept = [_kept(table, metric) for table in tables]
    data = {
        "xdplab_baseline": VERSION, "run": run.directory.name, "metric": metric, "around": run.around(),
        "trials": kept[0], "equal": kept[1:],
    }  # fmt: skip
    write_whole(path, (json.dumps(data, indent=1) + "\n").encode(), wait=True)


def _kept(table: pd.DataFrame, metric: str) -> list[dict[str, Any]]:
    names = list(dict.fromkeys([*_NEEDED, *POINT, metric]))
    rows: list[dict[str, Any]] = json.loads(table[names].to_json(orient="records", double_precision=15))
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def against_baseline(path: Path, run: Run[Any], *, margin: float = MARGIN) -> ComparedRuns:
    """Compare ``run`` to the baseline in ``path``, by the metric that it was saved for. Raises ResultsError."""
    try:
        data = json.loads(path.read_text())
        version = data["xdplab_baseline"]
        first, equal = trials_frame(data["trials"]), [trials_frame(rows) for rows in data["equal"]]
        name, metric, before = str(data["run"]), str(data["metric"]), dict(data["around"])
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}", remedy="`compare RUN --save-baseline FILE` makes one") from None
    except (ValueError, KeyError, TypeError):
        raise ResultsError(f"{path} is not a baseline", remedy="`compare RUN --save-baseline FILE` makes one") from None
    if version != VERSION:
        raise ResultsError(f"{path} is a baseline of version {version}", remedy=f"save it again, as version {VERSION}")
    second = run.rows()
    check_metric(second, metric, run.directory)
    now = run.around()
    first, second = same_points(first, second)
    decision = decide(first, second, metric, equal=equal or calibrated(metric, before, now) or (), margin=margin)
    names = (f"{name} (baseline)", run.directory.name)
    doubts = {names[0]: (), names[1]: _warnings(run)}
    unlike = (*changed_files(first, second, None, run.directory), *differences(before, now))
    return ComparedRuns(metric, names, unlike, doubts, decision)
