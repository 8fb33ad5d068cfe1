"""Equal runs of this machine, measured one after the other, each in a lab of its own; kept in the state folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from xdplab.analysis.decide.calibration import LEAST_REPETITIONS, LEAST_RUNS, Calibration, calibration
from xdplab.errors import PlanError, ResultsError
from xdplab.plan import Plan
from xdplab.resources import state_root
from xdplab.run.disk import disk_errors
from xdplab.run.progress import Observer
from xdplab.studies.traffic import kind, runs
from xdplab.studies.traffic.comparison import around

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
        with runs.lab_for(lab_name) as lab:
            directories.append(kind.measured(plan, lab, folder, observer).directory)
    facts = {name: value for name, value in around(directories[0]).items() if name in (*MACHINE, "dut kernel")}
    tables = {directory.name: runs.settled_trials(directory) for directory in directories}
    try:
        calibrated_lab = calibration(tables, date=now.isoformat(timespec="seconds"), lab=lab_name, around=facts)
    except ResultsError as error:
        worst = min(tables, key=lambda name: int(tables[name]["verdict"].eq("valid").sum()))
        remedy = (error.remedy or "").replace("`xdplab audit`", f"`xdplab audit {folder / worst}`")
        raise ResultsError(f"{folder}: {error.message}", remedy=remedy) from error
    with disk_errors(folder):
        (folder / FILE).write_text(json.dumps(calibrated_lab.to_json(), indent=1) + "\n")
    return calibrated_lab


def calibrated(*facts: Mapping[str, str]) -> Calibration | None:
    """Return the last calibration that is valid for runs with these facts; None if there is none."""
    for path in sorted((state_root() / "calibration").glob(f"*/{FILE}"), reverse=True):
        kept = _read(path)
        if kept and all(kept.around.get(name) == known.get(name) for known in facts for name in MACHINE):
            return kept
    return None


def _read(path: Path) -> Calibration | None:
    """A file of another version is ignored."""
    try:
        return Calibration.of_json(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def usable(metric: str, equal: Sequence[object]) -> bool:
    """Runs are calibrated by their rates; where equal runs are given, these say more."""
    return metric == "forwarded_pps" and not equal
