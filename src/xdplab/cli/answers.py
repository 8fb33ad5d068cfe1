"""What ``--json`` prints, by verb. docs/reference/schemas is made from these types; tests check the output.

``python -m xdplab.cli.answers docs/reference/schemas`` writes the JSON Schema of each anew.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from xdplab.analysis.findings import Finding
from xdplab.doctor.checks import Row
from xdplab.run.listing import KnownRun
from xdplab.studies.comparing import Unlike
from xdplab.studies.traffic.audits import AuditEntry, Fit
from xdplab.studies.traffic.selftest_cases import NegativeControl

Cell = str | float | int | bool | None
Cells = dict[str, Cell]
EXACT = ConfigDict(extra="forbid")


class RunStatus(BaseModel):
    """The progress of a run. ``eta_s`` is null while the remaining time is unknown, ``measured_with`` if it was not
    kept."""

    model_config = EXACT
    run: str
    trials: int
    measured: int
    unsupported: int
    failed: int
    not_needed: int
    owed: int
    state: str
    eta_s: int | None
    measured_with: str | None


class PlannedBlock(BaseModel):
    """Trials of one mode and queue count."""

    model_config = EXACT
    mode: str
    queues: int
    trials: int


class PlannedTrial(BaseModel):
    """A trial of ``plan --dry-run``, in the order in which it is measured."""

    model_config = EXACT
    order: int
    block: int
    repetition: int
    point: str
    trial: str


class Compared(BaseModel):
    """The answer of `compare`. ``points`` have the factors that vary and the result at each."""

    model_config = EXACT
    metric: str
    runs: list[str]
    environment: list[Unlike]
    doubts: dict[str, list[str]]
    verdict: Literal["equivalent", "differs", "undecided"]
    margin: float
    spread: str
    joint: Cells | None
    points: list[Cells]


class ProgramsCompared(BaseModel):
    """The answer of `compare --programs`. ``programs`` have the verdict and each metric of both sides."""

    model_config = EXACT
    sides: list[str]
    compared: int
    beyond: list[str]
    open: list[str]
    notes: list[str]
    programs: list[Cells]


class Audited(BaseModel):
    """What in a run is not trustworthy. ``fits`` and ``labs`` exist only for XDP traffic."""

    model_config = EXACT
    run: str
    findings: list[AuditEntry] | list[Finding]
    fits: list[Fit] = []
    labs: dict[str, list[Cells]] = {}


class Shown(BaseModel):
    """The tables of `show`, by name, and its lines. Points of XDP traffic have columns for the ends of intervals."""

    model_config = EXACT
    tables: dict[str, list[Cells]]
    summary: list[str]


class LabUp(BaseModel):
    """A lab that is up. Some kinds of lab have more keys."""

    lab: str
    kind: str
    label: str
    since: float
    queues: int
    hosts: dict[str, dict[str, Any]]
    locked_by: str | None
    why: str | None


class Tested(BaseModel):
    """What `selftest` injected and found."""

    model_config = EXACT
    date: str
    rules: str
    lab: str
    machine: dict[str, str]
    controls: list[NegativeControl]
    runs: list[str]
    holds: bool


ANSWERS: dict[str, Any] = {
    "status": list[RunStatus],
    "plan": list[PlannedBlock] | list[PlannedTrial],
    "compare": Compared | ProgramsCompared,
    "audit": Audited,
    "doctor": list[Row],
    "lab-status": list[LabUp],
    "runs": list[KnownRun],
    "show": Shown,
    "selftest": Tested,
}
"""The type of each verb's answer."""


def schema(verb: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of what ``verb --json`` prints."""
    fields = TypeAdapter(ANSWERS[verb]).json_schema()
    title = f"What `xdplab {verb.replace('-', ' ')} --json` prints."
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **fields}


def write(folder: Path) -> None:
    """Write the schema of each verb into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for verb in ANSWERS:
        (folder / f"{verb}.schema.json").write_text(json.dumps(schema(verb), indent=1) + "\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
