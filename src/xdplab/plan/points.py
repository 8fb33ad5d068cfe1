"""Factors → points: the full crossing of a block, with a baseline for every combination that has accesses.

Points → trials: blocks that share expensive settings, visited again by each repetition, in a seeded order.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, make_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from xdplab.compiler import placed, sources_of
from xdplab.errors import PlanError
from xdplab.plan import factors
from xdplab.plan.factors import FACTORS, Arrangement, Factor, of_program
from xdplab.plan.imix import cycle_of, mean_bytes
from xdplab.plan.maps import files_of
from xdplab.plan.model import Block, Plan, UserProgramFile, files_named
from xdplab.plan.offered import parse_line_share, parse_load, parse_share
from xdplab.text import duration, many

ETHERNET_MTU, L2_BYTES = 1500, 18
ONE_BUFFER_BYTES = 3524
"""The largest frame, with its FCS, that a veth hands to XDP in one buffer: a page, less the kernel's room around it."""

_PROGRAM = [factor for factor in FACTORS if factor.identity and of_program(factor)]
_SETTING = [factor for factor in FACTORS if factor.identity and not of_program(factor)]


def _record(name: str, *rows: tuple[str, Any, Any]) -> Any:
    return make_dataclass(name, rows, namespace={"__doc__": name}, frozen=True, kw_only=True)


def _values(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


class ProgramFactors(
    _record(  # type: ignore[misc]
        "ProgramFactors",
        ("called", str | None, None),
        ("sources", tuple[str, ...], ()),
        ("setup_files", tuple[tuple[str, str], ...], ()),
        ("hook", str, "xdp"),
        *((f.name, Any, f.form.absent) for f in _PROGRAM),
    )
):
    """What a DUT does with each frame: a workload with N accesses, or a user's own file (then N is null).

    Its fields are the program's factors of the table; a field that is not given has its value for "does not apply".
    ``called`` is a name that the plan gives it, ``sources`` and ``setup_files`` are the files that it consists of,
    ``hook`` is where the point's mode attaches it.
    """

    @property
    def name(self) -> str:
        if self.called is not None:
            return str(self.called)
        if self.file is not None:
            return Path(self.file).name
        return f"{self.workload}-{self.op}" + (
            f"-{self.map_type}" if self.map_type not in (None, "percpu_array") else ""
        )

    @property
    def values(self) -> dict[str, Any]:
        """The factors' canonical values by name."""
        return {factor.name: getattr(self, factor.name) for factor in _PROGRAM}

    @property
    def identity(self) -> dict[str, Any]:
        """What a point's id has of it: its name, too, if it is not that of its file."""
        renamed = self.called is not None and self.called != Path(self.file).name
        return factors.identity(self.values) | ({"name": self.called} if renamed else {})


class Point(
    _record(  # type: ignore[misc]
        "Point",
        ("program", ProgramFactors, ProgramFactors()),
        ("passes", tuple[str, ...], ("rate",)),
        *((f.name, Any, f.form.canonical(f.default)) for f in _SETTING),
    )
):
    """One combination of factors in canonical form: a factor that does not apply is null, so equal points compare
    equal.

    Its fields are the program, the passes, and all other factors of the table.
    """

    @property
    def rate_pps(self) -> float | None:
        """The paced rate in frames per second; None at ``max``, and for a share while its whole is unknown."""
        return parse_load(self.load, self.mean_frame_bytes)

    @property
    def frame_sizes(self) -> tuple[int, ...]:
        """The sizes of the frames in the order in which they are sent over and over, in bytes with FCS."""
        return (self.frame_bytes,) if self.imix == "none" else cycle_of(self.imix)

    @property
    def mean_frame_bytes(self) -> float:
        """The mean size of the frames that are sent, in bytes with FCS."""
        return float(self.frame_bytes) if self.imix == "none" else mean_bytes(self.imix)

    @property
    def mtu(self) -> int:
        """The MTU that both ends of the link need for the frames: Ethernet's, or a larger one."""
        return max(ETHERNET_MTU, max(self.frame_sizes) - L2_BYTES)

    @property
    def ways(self) -> int:
        """In how many directions frames are sent at the same time."""
        return 2 if self.directions == "both" else 1

    @property
    def two_ports(self) -> bool:
        """Whether the DUT forwards from one port to another."""
        return bool(self.directions != "back")

    @property
    def load_share(self) -> float | None:
        """The share of the PDR that is offered; None for other loads."""
        return parse_share(self.load)

    @property
    def line_share(self) -> float | None:
        """The share of the line rate that is offered; None for other loads."""
        return parse_line_share(self.load)

    @property
    def pdr_key(self) -> str:
        """Hash of the point that a PDR belongs to: the factors without the load, its bursts and the stamps."""
        return replace(self, load="max", burst=1, stamp="").point_id

    @property
    def values(self) -> dict[str, Any]:
        """The canonical values of all factors, the program's among them, by name."""
        values = {name: value for name, value in _values(self).items() if name not in ("program", "passes")}
        return {**self.program.values, **values}

    @cached_property
    def point_id(self) -> str:
        """Hash of the factors, without the plan's lab, the passes, and the folder of a user's file."""
        program = self.program.values
        values = {name: value for name, value in self.values.items() if name not in program}
        hashed = {"program": self.program.identity, **factors.identity(values)}
        return hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()[:12]

    def factors(self) -> dict[str, Any]:
        """The point's columns of the trials table."""
        derived = {"program_name": self.program.name, "rate_requested_pps": self.rate_pps}
        return {"point_id": self.point_id, **derived, **factors.cells(self.values)}

    def __str__(self) -> str:
        n = "" if self.program.accesses is None else f" N={self.program.accesses}"
        size = (
            many(self.queues, "queue")
            if self.frame_bytes is None
            else f"{self.frame_bytes} B, {many(self.queues, 'queue')}"
        )
        row = {name: value for name, value in self.factors().items() if value is not None}
        place = [] if self.lab == "auto" else [f"in {self.lab}"]
        more = factors.changed(row, "mode", "program_name", "queues", "frame_bytes", "accesses", "load")
        return ", ".join(
            [f"{self.program.name}{n}", self.mode, size, f"{self.engine} {self.load}", self.arrangement, *place, *more]
        )


def points_of(plan: Plan, arrangement: Arrangement) -> list[Point]:
    """All points of a plan, each once, in the plan's order; ``arrangement`` replaces ``auto``.

    A point that several blocks ask for is one point with all their passes. Raises PlanError if a user's file cannot
    be read.
    """
    points: dict[str, Point] = {}
    for block in plan.blocks:
        for point in block_points(block, arrangement):
            if before := points.get(point.point_id):
                point = replace(point, passes=tuple(dict.fromkeys((*before.passes, *point.passes))))
            points[point.point_id] = point
    return list(points.values())


def block_points(block: Block, arrangement: Arrangement) -> Iterator[Point]:
    """Yield the points of one block, in its order; ``arrangement`` replaces ``auto``. Raises PlanError."""
    where = arrangement if block.arrangement == "auto" else block.arrangement
    crossed = _crossed({**dict(block.points), **dict(block.traffic)}, _SETTING)
    given = {f.name: f.form.canonical(getattr(block, f.name)) for f in factors.in_plan("block")}
    given["arrangement"] = where
    for program, setting in itertools.product(_programs(block), crossed):
        point = Point(program=program, passes=tuple(block.passes), **given, **setting)
        hooked = replace(program, hook="tc" if point.mode in factors.TC_MODES else "xdp")
        yield replace(point, program=hooked if program.file is not None else _generated_for(point, hooked))


def _generated_for(point: Point, program: ProgramFactors) -> ProgramFactors:
    """Return the point's generated program: between two ports it redirects its frames, and by default it takes several
    buffers if the frames need them."""
    usual = {"auto": "on"} if max(point.frame_sizes) > ONE_BUFFER_BYTES else {"off": "auto"}
    frags = usual.get(program.frags, program.frags)
    return replace(program, action="redirect" if point.two_ports else program.action, frags=frags)


def _crossed(given: Mapping[str, Any], among: Iterable[Factor]) -> list[dict[str, Any]]:
    """Return every combination of the lists in ``given``, each once, without factors that do not apply.

    The loops nest in the order of the table, outermost first.
    """
    loops = [factor for factor in among if factor.where in ("points", "traffic")]
    levels = [[factor.form.canonical(value) for value in given[factor.name]] for factor in loops]
    crossed: dict[tuple[Any, ...], dict[str, Any]] = {}
    for combination in itertools.product(*levels):
        values = dict(zip((factor.name for factor in loops), combination, strict=True))
        applied = {f.name: values[f.name] if f.form.applies(values) else f.form.absent for f in loops}
        crossed.setdefault(tuple(applied.values()), applied)
    return list(crossed.values())


def _programs(block: Block) -> Iterator[ProgramFactors]:
    points = block.points
    if points.program:
        yield from map(user_program, points.program)
        return
    # A point needs its baseline for the access cost: N = 0 is measured with every N.
    given = {**dict(points), "accesses": sorted({0, *points.accesses})}
    for values in _crossed(given, _PROGRAM):
        yield ProgramFactors(**values)


def user_program(given: UserProgramFile) -> ProgramFactors:
    """Return a user's program with the files that it consists of. Raises PlanError, ProgramError."""
    values = {f.name: f.form.canonical(getattr(given, f.name)) for f in factors.in_plan("program")}
    values["cflags"] = tuple(placed(values["cflags"], (Path(), Path(given.file).parent)))
    hashes = {f"{name}_sha256": file_sha256(values[name], f"program.{name}") for name in factors.PATHS if values[name]}
    read = given.sources
    if read is None:
        read = [str(path) for path in sources_of(Path(given.file), values["cflags"])[1:]]
    scripts = given.setup_files
    if scripts is None:
        scripts = {name: name for name in files_named(given.setup, Path())}
    program = ProgramFactors(
        **values | hashes,
        called=given.name,
        sources=tuple(read),
        setup_files=tuple(sorted(scripts.items())),
    )
    return replace(program, file_sha256=content_sha256(program))


def content_sha256(program: ProgramFactors) -> str:
    """Return the SHA-256 of a user's file, if it is alone, else of this and of the other files that the program has.

    The others count by their places beside the file, which a copy of them all keeps. Raises PlanError.
    """
    folder = Path(program.file).resolve().parent
    beside = [(os.path.relpath(path, folder), path) for path in program.sources]
    program_sha256 = file_sha256(program.file, "program.file")
    filling = [(f"maps.{name}", path) for name, path in files_of(program.maps).items()]
    others = [f"{name} {file_sha256(path, 'program.file')}" for name, path in sorted([*beside, *program.setup_files])]
    others += [f"{name} {file_sha256(path, f'program.{name}')}" for name, path in filling]
    return hashlib.sha256("\n".join([program_sha256, *others]).encode()).hexdigest() if others else program_sha256


def file_sha256(path: str, field: str) -> str:
    """Return the SHA-256 of a file that ``field`` of a plan names. Raises PlanError."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise PlanError(f"{field}: {path}: {error.strerror}", remedy="paths are relative to the plan's file") from None


def select(points: list[Point], only: dict[str, str]) -> list[Point]:
    """Keep the points whose columns equal ``only`` (``{"mode": "native", "queues": "1"}``).

    A selected point keeps its baseline. Raises PlanError for an unknown factor or if nothing is left.
    """
    factors = points[0].factors() if points else {}
    for name in only:
        if name not in factors:
            raise PlanError(f"--only: {name} is not a factor", remedy=f"factors are {', '.join(factors)}")
    kept = [p for p in points if all(str(p.factors()[k]) == v for k, v in only.items())]
    if not kept:
        conditions = ",".join(f"{k}={v}" for k, v in only.items())
        raise PlanError(f"--only {conditions} leaves no point of the plan")
    baselines = {replace(p, program=replace(p.program, accesses=0)).point_id for p in kept if p.program.accesses}
    wanted = {p.point_id for p in kept} | baselines  # by id: a baseline of several blocks has the passes of them all
    return [p for p in points if p.point_id in wanted]


@dataclass(frozen=True)
class Trial:
    """One measurement of one point, with its place in the run."""

    point: Point
    repetition: int
    block: int
    order: int

    @property
    def trial_id(self) -> str:
        return f"{self.point.point_id}-r{self.repetition}"


def schedule(plan: Plan, points: Sequence[Point]) -> list[Trial]:
    """Return every trial of the run in the order it is measured.

    A block is one queue count in one mode, arrangement and lab, with one set of device settings and one MTU: changing
    one means ethtool and a new attachment. Each repetition visits every block once; blocks and their trials are
    shuffled again from the plan's seed (randomised complete blocks). This spreads slow drift of the machine over all
    points, and keeps each baseline close to its points.
    """
    groups: dict[tuple[object, ...], list[Point]] = {}
    for point in points:
        groups.setdefault(_block_key(point), []).append(point)
    numbered = dict(enumerate(groups.values()))
    trials: list[Trial] = []
    for repetition in range(1, plan.most_repetitions + 1):
        # Seeded by repetition: an extended run keeps the order of its older repetitions.
        rng = random.Random(f"{plan.seed}/{repetition}")
        for block in rng.sample(sorted(numbered), len(numbered)):
            for point in rng.sample(numbered[block], len(numbered[block])):
                trials.append(Trial(point, repetition, block, len(trials)))
    return trials


def _block_key(point: Point) -> tuple[object, ...]:
    return (point.queues, point.mode, point.arrangement, point.lab, point.device, point.mtu)


# Measured in the netns lab: a trial's cost besides its bursts and its pause (bench/trial_overhead.py).
OVERHEAD_S = 0.2
START_S = 4.0
"""From the command to the first trial, and the first figure's libraries. With it and `SHOWN_S` smoke and quick end
within a tenth of their estimates."""
SHOWN_S = 0.08
"""What a trial adds to tables and figures."""
SLICES = "slices"
"""The pass in which a race exchanges its two programs under one sender."""
SLICES_S = 1.6
"""How long it sends."""


def trial_s(plan: Plan, trial: Trial) -> float:
    """Seconds one trial will take: bursts, settling, its pause and the measured overhead."""
    times, passes = plan.trial, len(trial.point.passes) + ("harness" in trial.point.passes)
    sliced_s = SLICES_S - times.window_s if SLICES in trial.point.passes else 0.0
    return times.warmup_s + times.pause_s + OVERHEAD_S + passes * (times.window_s + times.settle_s) + sliced_s


def extent(plan: Plan, trials: Sequence[Trial]) -> str:
    """Return the size of these trials of ``plan`` as text: points, trials, time."""
    points = many(len({trial.point.point_id for trial in trials}), "point")
    count, time = many(len(trials), "trial"), duration(estimate_s(plan, trials))
    least = [trial for trial in trials if trial.repetition <= plan.at_least]
    if len(least) == len(trials):
        return f"{points}, {count}, about {time}"
    return f"{points}, {len(least)} to {count}, {duration(estimate_s(plan, least))} to {time}: results decide"


def estimate_s(plan: Plan, trials: Sequence[Trial]) -> float:
    """Seconds from the command to its last line: the start, the trials, tables and figures of them."""
    return START_S + sum(trial_s(plan, trial) + SHOWN_S for trial in trials) if trials else 0.0
