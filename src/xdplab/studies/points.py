"""A study's request, and its points and trials: no table, no figure, no host."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, TypeVar

import yaml

from xdplab.errors import ResultsError
from xdplab.run.rundir import RunDirectory
from xdplab.yaml_file import read_yaml, yaml_words


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


def option(default: Any, help: str, name: str = "", **how: Any) -> Any:
    """Declare a field of a request that is an option of the command line, with the other fields of its `Option`."""
    return field(default=default, metadata={"option": Option(help, name, **how)})


@dataclass(frozen=True)
class StudyRequest:
    """The user's request; a study adds its own fields: scalars, and tuples of scalars. Stored as plan.yaml."""

    repetitions: int = 3
    seed: int = 1
    smallest: bool = False


@dataclass(frozen=True)
class StudyPoint:
    """One combination of a study's factors; a study adds its fields, all of them scalars. Give it a ``__str__``."""

    @property
    def point_id(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:12]

    @property
    def block(self) -> tuple[str, ...]:
        """The key of the set-up that points share, such as a booted kernel; the place, if it has one, is its end."""
        return ()

    @property
    def once(self) -> bool:
        """True if a repetition would give the same: it is measured only in the first repetition."""
        return False


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
    """The result of a request: its points, files to keep in the run, and what is left out with the reasons."""

    points: Sequence[P]
    files: Mapping[str, bytes] = field(default_factory=dict)
    notes: Sequence[str] = ()


def schedule(points: Sequence[P], repetitions: int, seed: int) -> list[StudyTrial[P]]:
    """Return every trial in the order it is measured: block after block, with its points shuffled again in each
    repetition."""
    groups: dict[tuple[str, ...], list[P]] = {}
    for point in points:
        groups.setdefault(point.block, []).append(point)
    trials = []
    for repetition in range(1, repetitions + 1):
        rng = random.Random(f"{seed}/{repetition}")
        for block, members in enumerate(groups.values()):
            chosen = [point for point in members if repetition == 1 or not point.once]
            trials += [StudyTrial(point, repetition, block) for point in rng.sample(chosen, len(chosen))]
    return trials


def study_of(directory: RunDirectory) -> str | None:
    """Return the study that a run's plan names; None for XDP traffic and searches."""
    try:
        plan = read_yaml(directory.plan_text)
    except yaml.YAMLError as error:
        raise ResultsError(f"{directory.path / 'plan.yaml'} is not YAML: {yaml_words(error)}") from None
    return plan.get("study") if isinstance(plan, dict) else None
