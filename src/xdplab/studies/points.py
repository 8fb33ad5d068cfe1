"""A study's request, and its points and trials: no table, no figure, no host."""

from __future__ import annotations

import hashlib
import json
import os
import random
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import yaml

from xdplab.absent import Absent
from xdplab.errors import PlanError, ResultsError
from xdplab.run.rundir import RunDirectory, read_json
from xdplab.run.state import Attempt, facts_of, last_attempts, record_planned


@dataclass(frozen=True)
class Option:
    """How the command line gives a field of a request; ``name`` is ``--`` and the field's name unless it is set.

    ``choices``: its only values; ``bounds``: the least and the most of a number; ``file``: it names a file that exists;
    ``listed``: the option gives all values of a tuple, between commas. Without it, it is repeated for each.
    """

    help: str
    name: str = ""
    choices: tuple[str, ...] = ()
    bounds: tuple[Any, Any] | None = None
    metavar: str | None = None
    file: bool = False
    listed: bool = False

    def of(self, field_name: str) -> str:
        return self.name or f"--{field_name.replace('_', '-')}"

    def fits(self, value: Any) -> bool:
        """Return whether the option can have this value, one of those if it has several."""
        if self.bounds is None:
            return not self.choices or value in self.choices
        return isinstance(value, int | float) and self.bounds[0] <= value <= self.bounds[1]


def option(default: Any, help: str, name: str = "", **how: Any) -> Any:
    """Declare a field of a request that is an option of the command line, with the other fields of its `Option`."""
    return field(default=default, metadata={"option": Option(help, name, **how)})


@dataclass(frozen=True)
class StudyRequest:
    """The user's request; a study adds its own fields: scalars, and tuples of scalars. Stored as plan.yaml."""

    repetitions: int = 3
    seed: int = 1
    smallest: bool = False

    @classmethod
    def options(cls) -> dict[str, Option]:
        """Return what the command line gives, by field."""
        return {one.name: one.metadata["option"] for one in fields(cls) if "option" in one.metadata}

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it names where it was made: a run has what they gave, not the files themselves."""
        named = [getattr(self, name) for name, option in self.options().items() if option.file]
        return tuple(str(file) for file in named if file is not None)

    def require_options(self) -> None:
        """Raise PlanError for a value that the command line refuses: a plan's or a notebook's."""
        for name, option in self.options().items():
            given = getattr(self, name)
            several = isinstance(given, tuple | list)
            if isinstance(getattr(type(self), name, None), tuple) and not several:
                raise PlanError(f"{option.of(name)}: {given!r} is no list")
            for value in given if several else (given,):
                if not option.fits(value):
                    bounds = f"not from {' to '.join(map(str, option.bounds or ()))}"
                    why = f"none of {', '.join(option.choices)}" if option.choices else bounds
                    raise PlanError(f"{option.of(name)}: {value!r} is {why}")

    def within(self, folder: Path) -> StudyRequest:
        """Return the request of a plan in ``folder``, where the files lie that it names."""
        return self


@dataclass(frozen=True)
class StudyPoint:
    """One combination of a study's factors; a study adds its fields, all of them scalars. Give it a ``__str__``."""

    IF_SET: ClassVar[tuple[str, ...]] = ()
    """Factors that are no part of the id of a point where they are None."""

    @property
    def point_id(self) -> str:
        factors = {name: value for name, value in asdict(self).items() if value is not None or name not in self.IF_SET}
        return hashlib.sha256(json.dumps(factors, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def block(self) -> tuple[str, ...]:
        """The key of the set-up that points share, such as a booted kernel: the place, if it has one, or what ends with
        it."""
        place: str = getattr(self, "place", "")
        return (place,) if place else ()

    @property
    def cost_s(self) -> float:
        """How long a trial takes on a quiet machine, in seconds."""
        return 2.0 if self.block and self.block[-1].startswith("vm") else 0.3

    @property
    def setting(self) -> str:
        """What a place is switched to for the point, if its order among others changes no result: points of one setting
        follow each other, for a guest that counts instructions takes seconds to switch. Empty: any order."""
        return ""

    @property
    def once(self) -> bool:
        """True if a repetition would give the same: it is measured only in the first repetition."""
        return False


BOOT_S = {"vm": 12.0, "uml": 5.0}
"""How long a kind of place takes to boot, with what is built for it, on a quiet machine."""

Row = dict[str, Any]
F = TypeVar("F")
R = TypeVar("R", bound=StudyRequest)
P = TypeVar("P", bound=StudyPoint)


@dataclass(frozen=True)
class StudyTrial(Generic[P]):
    """One measurement of one point."""

    point: P
    repetition: int
    block: int

    @property
    def trial_id(self) -> str:
        return f"{self.point.point_id}-r{self.repetition}"


def place_in(trial: StudyTrial[Any]) -> str:
    """Return the place that a trial is measured at; empty if it needs none."""
    return trial.point.block[-1] if trial.point.block else ""


@dataclass(frozen=True)
class Gathered(Generic[P]):
    """The result of a request: its points, files to keep in the run, and what is left out with the reasons.

    ``again``: the request that names those files instead of the user's, from the run's folder.
    """

    points: Sequence[P]
    files: Mapping[str, bytes] = field(default_factory=dict)
    notes: Sequence[str] = ()
    again: StudyRequest | None = None


def schedule(points: Sequence[P], repetitions: int, seed: int) -> list[StudyTrial[P]]:
    """Return every trial in the order it is measured: block after block, with its points shuffled again in each
    repetition, those of one setting together."""
    groups: dict[tuple[str, ...], list[P]] = {}
    for point in points:
        groups.setdefault(point.block, []).append(point)
    trials = []
    for repetition in range(1, repetitions + 1):
        rng = random.Random(f"{seed}/{repetition}")
        for block, members in enumerate(groups.values()):
            chosen = [point for point in members if repetition == 1 or not point.once]
            shuffled = sorted(rng.sample(chosen, len(chosen)), key=lambda point: point.setting)
            trials += [StudyTrial(point, repetition, block) for point in shuffled]
    return trials


def costs_s(trials: Sequence[StudyTrial[Any]]) -> list[float]:
    """Return how long each trial takes, in seconds, with what else this machine does now; a block's first waits for its
    place to boot."""
    slower = 1 + max(0.0, os.getloadavg()[0] - 1) / (2 * (os.cpu_count() or 1))
    before = [None, *(trial.block for trial in trials)]
    begins = [trial.block != block for trial, block in zip(trials, before, strict=False)]
    starts = [BOOT_S.get(place_in(trial).partition(":")[0], 0.0) if first else 0.0
              for trial, first in zip(trials, begins, strict=True)]  # fmt: skip
    return [slower * (trial.point.cost_s + start_s) for trial, start_s in zip(trials, starts, strict=True)]


@dataclass(frozen=True)
class StudyPlan(Generic[R, P]):
    """What a run of a study was asked to measure; ``notes`` say what is left out, with the reasons."""

    directory: RunDirectory
    request: R
    points: tuple[P, ...]
    notes: tuple[str, ...]

    @property
    def trials(self) -> list[StudyTrial[P]]:
        return schedule(self.points, self.request.repetitions, self.request.seed)

    def attempts(self) -> Iterator[tuple[StudyTrial[P], Attempt, Path]]:
        """Give each tried trial with its last attempt and the folder of that attempt's raw files."""
        by_id = {trial.trial_id: trial for trial in self.trials}
        for attempt in last_attempts(self.directory).values():
            yield by_id[attempt.trial_id], attempt, self.directory.raw_dir(attempt.trial_id, attempt.attempt)

    def rows(self, kind: type[F], of: Callable[[P, F, Path], Iterable[Row]], lacking: Sequence[str] = ()) -> list[Row]:
        """Return the rows that ``of`` reads of each measured trial, with its identity, its point's factors, its facts.

        A trial that was not measured has one row if there are columns ``lacking``, which then say why.
        """
        rows: list[Row] = []
        for trial, attempt, raw in self.attempts():
            facts = facts_of(kind, attempt)
            head = {"run_id": self.directory.run_id, "trial_id": trial.trial_id, "repetition": trial.repetition}
            head |= asdict(trial.point) | vars(facts)
            if attempt.status == "measured":
                rows += [head | row for row in of(trial.point, facts, raw)]
            elif lacking:
                rows.append(head | dict.fromkeys(lacking, Absent(attempt.reason)))
        return name_places(rows)


def name_places(rows: Iterable[Row]) -> list[Row]:
    """Return the rows, their ``label`` with the place where several places have one: tables, sentences and figures
    tell places by it."""
    rows = list(rows)
    places: dict[Any, set[Any]] = {}
    for row in rows:
        places.setdefault(row.get("label"), set()).add(row.get("place"))
    several = {label for label, of_label in places.items() if label is not None and len(of_label) > 1}
    return [row | {"label": f"{row['label']}, {row['place']}"} if row.get("label") in several else row for row in rows]


ONE_MACHINE = "Repetitions of one run on one machine: the intervals say nothing of another machine or another day."


@dataclass(frozen=True)
class StudyPlanning(Generic[R, P]):
    """How the request of study ``study`` becomes the points of a run, and is read from the run again.

    ``gather`` may raise PlanError; ``smallest`` makes a request as small as still shows everything: a minute or two.
    """

    study: str
    question: str
    """What the study answers, as a person asks it."""
    request: type[R]
    point: type[P]
    gather: Callable[[R], Gathered[P]]
    smallest: Callable[[R], R] = lambda request: request
    not_shown: str = ONE_MACHINE
    """What its runs do not show."""

    def start(self, request: R, parent: Path, name: str | None = None) -> RunDirectory:
        """Gather the points and make a run directory in ``parent``; nothing is measured yet.

        Raises PlanError for unusable options.
        """
        request.require_options()
        gathered = self.gather(request)
        plan = {"study": self.study} | json.loads(json.dumps(asdict(gathered.again or request)))
        points, notes = tuple(gathered.points), tuple(gathered.notes)

        def fill(directory: RunDirectory) -> None:
            for relative, content in gathered.files.items():
                directory.write_bytes(relative, content)
            directory.write_json("points.json", {"points": [asdict(p) for p in points], "notes": notes})
            trials = schedule(points, request.repetitions, request.seed)
            record_planned(directory, trials, costs_s=costs_s(trials))

        text, run_id = yaml.safe_dump(plan, sort_keys=False), secrets.token_hex(4)
        return RunDirectory.create(parent, name or self.study, run_id=run_id, plan_yaml=text, fill=fill)

    def read(self, directory: RunDirectory) -> StudyPlan[R, P]:
        """Return the plan of a run of this study. Raises ResultsError if it is not one."""
        plan = directory.plan_data
        if plan.pop("study", None) != self.study:
            path = directory.path
            raise ResultsError(f"{path} is not a run of study {self.study}", remedy="its plan.yaml names its study")

        def plan_of(stored: Any) -> StudyPlan[R, P]:
            points = tuple(self.point(**fields) for fields in stored["points"])
            return StudyPlan(directory, self.request_of(plan), points, tuple(stored["notes"]))

        return read_json(directory.path / "points.json", plan_of)

    def request_of(self, values: Mapping[str, Any], where: str = "") -> R:
        """Return the request with these fields; lists become tuples. Raises PlanError for a name that is none."""
        names = {field.name for field in fields(self.request)}
        for name in values:
            if name not in names:
                raise PlanError(
                    f"{where}{name}: no field of study {self.study}", remedy=f"there are {', '.join(sorted(names))}"
                )
        tuples: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        return self.request(**tuples)
