"""A plan becomes a run directory, and a run directory becomes its trials again: resume needs only this."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdplab.errors import FormatError, PlanError, ResultsError
from xdplab.lazy import lazily, lazy
from xdplab.plan import Arrangement, Plan, Point, Trial, load_plan, points_of, schedule, trial_s
from xdplab.plan.copies import copied_into
from xdplab.plan.points import SLICES, block_points, select
from xdplab.run.disk import disk_errors, reason
from xdplab.text import many

with lazily():
    from xdplab.programs import build, spec
    from xdplab.programs import program as programs
    from xdplab.run import rundir, state
    from xdplab.studies.traffic import pdr

if TYPE_CHECKING:
    from xdplab.run.rundir import RunDirectory

pcap = lazy("xdplab.formats.pcap")  # few plans have one

Files = Mapping[str, Mapping[str, Any]]
"""Files of a run by name, each written as JSON."""


def plan_trials(plan: Plan, arrangement: Arrangement, only: Mapping[str, str] | None = None) -> list[Trial]:
    """Return the trials of a plan in order; ``only`` keeps the points that equal it. Raises PlanError."""
    points = points_of(plan, arrangement)
    if plan.race is not None:
        racing = {point.point_id for pair in race_pairs(plan, arrangement) for point in pair}
        sliced = rivals(plan, arrangement)
        points = [_with_slices(p, p.point_id in sliced) for p in points if p.point_id in racing]
    return schedule(plan, select(points, dict(only)) if only else points)


def race_pairs(plan: Plan, arrangement: Arrangement) -> list[tuple[Point, Point]]:
    """Return the points of a race's two blocks, paired in their order. Raises PlanError if they cannot be.

    Baselines are left out if there are other points: N = 0 of both sides would say nothing about the difference.
    """
    sides = [list(block_points(block, arrangement)) for block in plan.blocks]
    without_baselines = any(point.program.accesses for side in sides for point in side)
    if without_baselines:
        sides = [[point for point in side if point.program.accesses != 0] for side in sides]
    first, second = sides
    if len(first) != len(second):
        counted = f"{many(len(first), 'point')}{' beside N = 0' if without_baselines else ''}, the other {len(second)}"
        raise PlanError(f"race: one block has {counted}: they cannot be paired")
    ids = {point.point_id for point in second}
    if same := [point for point in first if point.point_id in ids]:
        raise PlanError(
            f"race: both sides measure {same[0]}",
            remedy="to race a program against itself, give a copy of its file, or one of them another `name`",
        )
    return list(zip(first, second, strict=True))


def require_files(trials: Sequence[Trial]) -> None:
    """Raise PlanError for a pcap whose frames, or gaps, cannot be sent, for entries that a program's maps cannot have,
    and for constants that it does not have.

    The first has the frame's number, the second the entry's key. Raises ProgramError if the program does not compile.
    """
    for program in dict.fromkeys(trial.point.program for trial in trials):
        if program.maps or program.rodata:
            _ = build.build(spec.program_of(program), programs.cache_directory()).load_options
    for path, timed in dict.fromkeys((t.point.program.frames, t.point.timing != "load") for t in trials):
        try:
            (pcap.times_in if timed else pcap.frames_in)(path) if path else ()
        except (FormatError, OSError) as error:
            remedy = "cut or convert it, as with `editcap`, `reordercap` or `tcpdump -r`; then name the new file"
            raise PlanError(f"program.frames: {path}: {reason(error)}", remedy=remedy) from None


def rivals(plan: Plan, arrangement: Arrangement) -> dict[str, Point]:
    """Return the points of a race's side b that are measured in slices, by id, each with its point of side a."""
    if plan.race is None or plan.race.by == "windows":
        return {}
    pairs = race_pairs(plan, arrangement)
    return {b.point_id: a for a, b in pairs if why_not_sliced(a, b) is None}


def why_not_sliced(a: Point, b: Point) -> str | None:
    """Return why the programs of two points cannot be swapped under one sender; None if they can."""
    first, second = a.values | {"lab": a.lab}, b.values | {"lab": b.lab}
    names = a.program.values.keys() - {"frames"}
    differ = [name for name in first if name not in names and first[name] != second[name]]
    if differ:
        return f"the sides differ in {', '.join(differ)}"
    if a.two_ports:
        return "with two ports the program would be exchanged on one of them only"
    if a.mode not in _EXCHANGED:
        return f"a program is not exchanged in mode {a.mode}"
    if a.load != "max":
        return "at a paced load the sender decides the rate"
    if a.program.setup or b.program.setup:
        return "a setup command would find the maps of both programs, where `maps:` fills each side's"
    return None


_EXCHANGED = ("native", "generic")


def _with_slices(point: Point, sliced: bool) -> Point:
    return replace(point, passes=(*point.passes, SLICES)) if sliced else point


def create_run(
    plan: Plan,
    parent: Path,
    *,
    lab: str,
    arrangement: Arrangement,
    only: Mapping[str, str] | None = None,
    files: Files | None = None,
) -> RunDirectory:
    """Make the run directory of ``plan`` and record its trials; ``files`` are stored in it too, as JSON.

    Raises PlanError before anything is made.
    """
    trials = plan_trials(plan, arrangement, only)
    require_files(trials)

    def fill(run: RunDirectory) -> None:
        _keep(run, files)
        _add(run, "plan.yaml", plan, trials, lab=lab, arrangement=arrangement, only=only)

    return rundir.RunDirectory.create(parent, plan.name, run_id=secrets.token_hex(4), plan_yaml="", fill=fill)


def extend_run(
    run: RunDirectory, plan: Plan, *, only: Mapping[str, str] | None = None, files: Files | None = None
) -> None:
    """Add the points of ``plan`` to an old run; points that it already has are measured once.

    Raises PlanError where the run would measure them otherwise than ``plan`` says.
    """
    first = next(run.journal.events("planned"))
    number = 1 + run.journal.count("planned")
    trials = plan_trials(plan, first["arrangement"], only)
    require_files(trials)
    _require_alike(run, plan, trials)
    _keep(run, files)
    _add(run, f"plan-{number}.yaml", plan, trials, lab=first["lab"], arrangement=first["arrangement"], only=only)


def _require_alike(run: RunDirectory, plan: Plan, trials: list[Trial]) -> None:
    """Raise PlanError if ``plan`` asks for what an old run cannot add: its first plan says how it measures."""
    old = run_plan(run)
    if plan.race or old.race:
        raise PlanError("--extend: a race has two sides, and ends by itself", remedy="make a run of its own")
    named = ["trial.retries", "lab", "name", "seed", "blocks", "race"]  # these change no measurement of a trial
    if not any("perf" in block.passes for block in plan.blocks):
        named.append("perf_events")
    before, after = (
        {name: value for name, value in _settings(one).items() if name not in named} for one in (old, plan)
    )
    if isinstance(old.repetitions, int) and isinstance(plan.repetitions, int):
        before["repetitions"] = after["repetitions"]
    if differ := [name for name in after if after[name] != before[name]]:
        name = differ[0]
        raise PlanError(
            f"--extend: {name} is {after[name]} in this plan and {before[name]} in {run.path}, whose trials are alike",
            remedy="write the run's own value, or make another run and compare the two",
        )
    passes = {trial.point.point_id: trial.point.passes for trial in run_trials_of(run)}
    for point in (trial.point for trial in trials):
        lacks = set(point.passes) - set(passes[point.point_id]) if point.point_id in passes else ()
        if lacks and point.program.accesses != 0:
            raise PlanError(
                f"--extend: {run.path} has {point} without pass {', '.join(sorted(lacks))}; no trial is measured twice",
                remedy="make another run of these points",
            )


def _settings(plan: Plan) -> dict[str, Any]:
    """Return the values of a plan by their names in it; those of `trial` one by one."""
    data = plan.model_dump(mode="json")
    return {f"trial.{name}": value for name, value in data.pop("trial").items()} | data


def _keep(run: RunDirectory, files: Files | None) -> None:
    for name, data in (files or {}).items():
        run.write_json(name, pdr.joined(run, data) if name == pdr.FILE else data)


def run_plan(run: RunDirectory) -> Plan:
    """The plan the run was made with."""
    return load_plan(run.path / "plan.yaml", to_measure=False)


def run_trials_of(run: RunDirectory) -> list[Trial]:
    """Return every trial the run has planned, in order.

    Raises PlanError if a plan in it was edited, ResultsError for a run that has none of the testbed's trials.
    """
    trials: dict[str, Trial] = {}
    for event in run.journal.events("planned"):
        if "plan" not in event:
            raise ResultsError(
                f"{run.path} is a study's run, with no XDP trials", remedy=f"`xdplab figures {run.path}` shows it"
            )
        path = run.path / event["plan"]
        if not path.is_file() or _sha256(path) != event["sha256"]:
            raise PlanError(
                f"{path} is not the plan this run was made with",
                remedy=f"put it back, or measure the new one: `xdplab run {path} --extend {run.path}`",
            )
        again = plan_trials(load_plan(path, to_measure=False), event["arrangement"], event["only"])
        if [t.trial_id for t in again] != event["trials"]:
            raise PlanError(f"{path}: its trials are not those in the journal", remedy="a file it names was changed")
        for trial in again:
            trials.setdefault(trial.trial_id, replace(trial, order=len(trials)))
    if not trials:
        raise ResultsError(f"{run.path} has planned nothing", remedy="start again with `xdplab run`")
    return list(trials.values())


def _add(run: RunDirectory, name: str, plan: Plan, trials: list[Trial], **facts: Any) -> None:
    with disk_errors(run.path):
        run.write_bytes(name, copied_into(run.path, plan).to_yaml().encode())
    searched = (run.path / rundir.SEARCHED).exists()  # how long a search takes, no plan tells
    costs = [] if searched else [trial_s(plan, trial) for trial in trials]
    if plan.open_ended:
        facts["open_ended"] = True
    state.record_planned(run, trials, costs_s=costs, plan=name, sha256=_sha256(run.path / name), **facts)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
