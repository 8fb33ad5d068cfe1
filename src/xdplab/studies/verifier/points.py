"""Points and trials of the verifier study: one object, one verifier, one kernel."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from xdplab.studies.verifier.corpora import Subject

Task = Literal["verify", "largest"]
HOST = "host"
LINUX = "linux"


@dataclass(frozen=True)
class VerifierPoint:
    """``verifier``: ``linux`` or the name of a PREVAIL; ``kernel``: ``host``, or a guest's such as ``6.1``, or ''.

    ``task`` ``verify`` hands one object over; ``largest`` looks for the largest N of a family that is accepted, and
    has no object (``sha256`` is '').
    """

    verifier: str
    kernel: str
    task: Task
    corpus: str
    object: str
    sha256: str
    family: str | None = None
    n: int | None = None
    form: str | None = None
    exit: str | None = None
    maps: str | None = None
    compiler: str | None = None
    mcpu: str | None = None

    @property
    def point_id(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:12]

    def __str__(self) -> str:
        where = f"Linux {self.kernel}" if self.verifier == LINUX else self.verifier
        what = f"largest N of {self.object}" if self.task == "largest" else f"{self.corpus}: {self.object}"
        return f"{what}, {where}"


@dataclass(frozen=True)
class VerifierTrial:
    """One measurement of one point; a block is a verifier on a kernel."""

    point: VerifierPoint
    repetition: int
    block: int

    @property
    def trial_id(self) -> str:
        return f"{self.point.point_id}-r{self.repetition}"


def point_of(subject: Subject, verifier: str, kernel: str) -> VerifierPoint:
    """Return the point that hands ``subject`` to a verifier."""
    return VerifierPoint(
        verifier, kernel, "verify", subject.corpus, subject.name, subject.sha256, **member_columns(subject)
    )


def member_columns(subject: Subject) -> dict[str, Any]:
    """Return the columns of a generated program; none for one that nobody here wrote."""
    member = subject.member
    if member is None:
        return {}
    compiled = {"compiler": subject.compiler, "mcpu": subject.mcpu}
    return {"family": member.family, "n": member.n, **member.chosen, **compiled}


def point_from(fields: Mapping[str, Any]) -> VerifierPoint:
    """Return a point as `asdict` wrote it."""
    return VerifierPoint(**fields)


def schedule(points: Sequence[VerifierPoint], repetitions: int, seed: int) -> list[VerifierTrial]:
    """Return every trial in the order it is measured: a block a machine, its points shuffled anew each repetition.

    A guest counts instructions instead of time, and two boots agree: it is measured once.
    """
    groups: dict[tuple[str, str], list[VerifierPoint]] = {}
    for point in points:
        groups.setdefault((point.verifier, point.kernel), []).append(point)
    trials = []
    for repetition in range(1, repetitions + 1):
        rng = random.Random(f"{seed}/{repetition}")
        for block, ((_, kernel), members) in enumerate(groups.items()):
            if repetition == 1 or kernel in (HOST, ""):
                chosen = [p for p in members if repetition == 1 or p.task == "verify"]
                trials += [VerifierTrial(point, repetition, block) for point in rng.sample(chosen, len(chosen))]
    return trials
