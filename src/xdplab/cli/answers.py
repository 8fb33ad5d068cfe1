"""What ``--json`` prints, by verb. docs/reference/schemas is made from these types; tests check the output.

``python -m xdplab.cli.answers docs/reference/schemas`` writes the JSON Schema of each anew.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter

from xdplab.analysis.change import ChangeOverTime
from xdplab.analysis.findings import Finding
from xdplab.doctor.checks import Row
from xdplab.run.listing import KnownRun
from xdplab.studies.comparing import Unlike
from xdplab.studies.probe.answers import ProbedPort
from xdplab.studies.traffic.audits import AuditEntry, Fit
from xdplab.studies.traffic.selftest_cases import NegativeControl

Cell = str | float | int | bool | None
Cells = dict[str, Cell]


class JsonAnswer(BaseModel, extra="forbid"):
    """What is printed has these keys and no others."""


@dataclass(frozen=True)
class RunStatus(KnownRun):
    """A row of `runs`, and what the run was measured with; null if that was not kept."""

    measured_with: str | None = None


class PlannedTrial(JsonAnswer):
    """A trial, in the order in which it is measured."""

    order: int
    block: int
    repetition: int
    trial_id: str
    point_id: str


class Planned(JsonAnswer):
    """What a plan measures. ``points`` have the factors of trials.parquet. ``estimate_s``: from Enter to the end."""

    plan: str
    lab: str
    points: list[Cells]
    trials: list[PlannedTrial]
    estimate_s: float


class Compared(JsonAnswer):
    """The answer of `compare`. ``points`` have what is compared (factors, or a program) and the result at each.

    ``beyond``: what grew beyond a threshold, or changed of exact counts; ``open``: what could not be judged.
    ``margin``, ``spread`` and ``joint`` are null where no interval is estimated: of programs and of counts.
    """

    runs: list[str]
    metrics: list[str]
    verdict: Literal["equivalent", "differs", "undecided"]
    environment: list[Unlike]
    doubts: dict[str, list[str]]
    beyond: list[str]
    open: list[str]
    margin: float | None
    spread: str | None
    joint: Cells | None
    points: list[Cells]


class Audited(JsonAnswer):
    """What in a run is not trustworthy. ``fits`` and ``labs`` exist only for XDP traffic."""

    run: str
    findings: list[AuditEntry] | list[Finding]
    fits: list[Fit] = []
    labs: dict[str, list[Cells]] = {}


class Shown(JsonAnswer):
    """The answer of `status`, the tables by name, and the lines below them. Points of XDP traffic have columns for the
    ends of intervals."""

    status: RunStatus
    tables: dict[str, list[Cells]]
    summary: list[str]


class DrawnFigure(JsonAnswer):
    """A figure's files; if there are none, the reason."""

    figure: str
    files: list[str]
    reason: str | None


class Figures(JsonAnswer):
    """What `figures` drew, and what it did not."""

    run: str
    figures: list[DrawnFigure]


class MeasuredRun(Shown):
    """The answer of `show` for the run that was measured, and its figures."""

    figures: list[DrawnFigure]


class CountChange(JsonAnswer):
    """What a line, a function or a total takes per packet, in instructions."""

    name: str
    old: float
    new: float
    difference: float


class CostChange(JsonAnswer):
    """What changed of one packet. ``made_otherwise``: what differs besides the program; ``inexact``: not judged."""

    program: str
    against: str
    traffic: dict[str, str]
    made_otherwise: list[str]
    inexact: list[str]
    totals: list[CountChange]
    lines: list[CountChange]
    functions: list[CountChange]


class CostsAgainst(JsonAnswer):
    """What the gate says: a packet takes more than ``tolerance`` instructions more, or not, or nothing compares."""

    baseline: str
    tolerance: float
    verdict: Literal["no more", "more", "not comparable"]
    differences: list[CostChange]


class CountedRun(MeasuredRun):
    """The run that was counted, and what `--against` found; null without it, or if a program has no cost."""

    against: CostsAgainst | None


class SearchedRevision(JsonAnswer):
    """A commit or a kernel: ``key`` is the hash or the kernel's name."""

    key: str
    title: str


class JudgedRevision(JsonAnswer):
    """``value``: instructions per packet, or the ratio of the rate to the good end's; null where it was skipped."""

    key: str
    answer: Literal["good", "bad", "skip"]
    words: str
    value: float | None


class FirstBad(JsonAnswer):
    """The suspects, of which the last is bad: one, or several where the others could not be judged.

    ``good``, ``bad``: the values of the ends; bad begins at ``bad_from``. ``difference``: from ``before`` to the last
    suspect; null where it was not counted, for the reason ``not_counted``.
    """

    folder: str
    suspects: list[SearchedRevision]
    before: SearchedRevision
    good: float
    bad: float
    bad_from: float
    judged: list[JudgedRevision]
    difference: CostChange | None
    not_counted: str | None


class KernelOfReport(JsonAnswer):
    """A kernel: ``label`` is its name in the report, ``build`` its ``uname -v``, ``packages`` have hashes."""

    label: str
    release: str
    architecture: str
    build: str
    packages: str


class PartOfPacket(JsonAnswer):
    """Instructions per packet; another boot may count half of the range more or fewer, 0 where it is exact."""

    instructions: float
    half_of_range: float


class PacketOfReport(JsonAnswer):
    """A program in one kernel, as one run counted it; ``reason``: why it has no count. ``object``: a hash of its code,
    options and maps' contents. ``frames``: a file of the run. ``name``: its name in the report."""

    name: str
    kernel: str
    run: str
    program: str
    object: str
    mode: str
    frames: str
    frame_bytes: int | None
    flows: int
    way: str
    parts: dict[str, PartOfPacket]
    reason: str | None


class KernelStep(JsonAnswer):
    """What changed of a packet from one kernel to the next, in instructions; of functions without what they call."""

    program: str
    mode: str
    old: str
    new: str
    parts: dict[str, float]
    functions: dict[str, float]


class KernelsCompared(JsonAnswer):
    """The report on kernels. ``disagreements``: where runs have other exact counts of one object in one kernel."""

    runs: list[str]
    disagreements: list[str]
    kernels: list[KernelOfReport]
    packets: list[PacketOfReport]
    steps: list[KernelStep]
    files: list[str]


class RaceOutcome(JsonAnswer):
    """A race: the ratio of the rates B/A with its 95 % interval, and ``more``, what B takes more of per packet.

    ``cost``: what `--cost` counted, and in which kernel; null without it.
    """

    status: RunStatus
    a: str
    b: str
    verdict: Literal["equivalent", "differs", "undecided"]
    ratio: float | None
    low: float | None
    high: float | None
    pairs: int
    pairs_lost: int
    margin: float
    by: str
    windows: dict[str, float | None] | None
    more_ns: float | None
    more: dict[str, dict[str, Any] | None]
    text: str
    cost: CostChange | None


class HistoryRow(JsonAnswer):
    """A metric of a point in a run. ``low`` and ``high``: its 95 % interval, of an inexact count its range; ``exact``:
    a count as a fraction. ``null_reasons``: why a cell is null. ``begun``: ISO 8601 with the zone."""

    metric: str
    point: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    exact: str | None
    begun: str
    run: str
    path: str
    run_id: str
    kind: str
    program: str | None
    program_hash: str | None
    place: str | None
    kernel: str | None
    cpu: str | None
    microcode: str | None
    nic: str | None
    driver: str | None
    firmware: str | None
    commit: str | None
    window: str | None
    factors: Cells
    null_reasons: dict[str, str]


class HistoryOfRuns(JsonAnswer):
    """The table of `history`, and what changes, the largest share first. ``machines``: where a new series begins.

    ``remarks``: what below the folders is odd or not shown, a line each.
    """

    rows: list[HistoryRow]
    changes: list[ChangeOverTime]
    machines: list[str]
    remarks: list[str]


class ClaimOfRun(JsonAnswer):
    """A claim, and what the run says of it: the estimate of the part that decides, with its 95 % interval (null: none).

    ``promise``: the bound in words; ``at``: the points of that part, one of so many ``parts``; ``n``: its repetitions.
    ``needed``: the repetitions that would tell with 80 %; null if it is told, or if 1,000 would not. ``why`` it cannot
    be told; ``trials``: those behind it; ``printed``: what was published.
    """

    claim: str
    verdict: Literal["holds", "is refuted", "cannot be told here"]
    form: str
    metric: str
    promise: str
    value: float | None
    low: float | None
    high: float | None
    at: str
    parts: int
    n: int
    needed: int | None
    why: str
    trials: list[str]
    printed: str


class ClaimsOfRun(JsonAnswer):
    """The claims of a run, each judged."""

    run: str
    claims: list[ClaimOfRun]


class Written(JsonAnswer):
    """The file that was made of runs."""

    runs: list[str]
    file: str
    bytes: int


class Kept(JsonAnswer):
    """A file or folder of the cache: its path in it. ``last_used``: ISO 8601 with the zone."""

    kept: str
    bytes: int
    last_used: str


class Calibrated(BaseModel):
    """How much equal runs differ; ``unfit`` has the reasons why the machine is not fit to compare runs."""

    unfit: list[str]


class Proved(BaseModel):
    """What counted a program's accesses, and what the kernel said on loading it."""

    program: str
    proof: dict[str, Any] | None = None
    load: dict[str, Any] | None = None


class LabUp(BaseModel):
    """A lab that is up, since a time in ISO 8601 with the zone. Some kinds of lab have more keys."""

    lab: str
    kind: str
    label: str
    since: str
    queues: int
    hosts: dict[str, dict[str, Any]]
    locked_by: str | None
    why: str | None


class Tested(JsonAnswer):
    """What `selftest` injected and found."""

    date: str
    rules: str
    lab: str
    machine: dict[str, str]
    controls: list[NegativeControl]
    runs: list[str]
    holds: bool


ANSWERS: dict[str, Any] = {
    "status": RunStatus,
    "plan": Planned,
    **dict.fromkeys(("run", "resume", "search", "study"), MeasuredRun),
    "cost": CountedRun,
    "race": RaceOutcome,
    "bisect": FirstBad,
    "show": Shown,
    "history": HistoryOfRuns,
    "claims": ClaimsOfRun,
    "figures": Figures,
    "report": Written,
    "export": Written,
    "compare": Compared,
    "audit": Audited,
    "doctor": list[Row],
    "probe": ProbedPort,
    "lab-status": list[LabUp],
    "runs": list[KnownRun],
    "selftest": Tested,
    "calibrate": Calibrated,
    "kernels-report": KernelsCompared,
    "kernels-list": list[Kept],
    "kernels-clean": list[Kept],
    "lab-kernels": list[dict[str, Any]],
    "programs-prove": Proved,
    "study-lines": list[Cells],
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
