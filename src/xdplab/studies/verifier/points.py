"""Points and trials of the verifier study: one object, one verifier, one kernel."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import Any, Literal

from xdplab.studies.places import HOST
from xdplab.studies.points import StudyPoint, StudyTrial
from xdplab.studies.verifier.corpora import CorpusObject

Task = Literal["verify", "largest"]
LINUX = "linux"


@dataclass(frozen=True)
class VerifierPoint(StudyPoint):
    """``verifier``: ``linux`` or the name of a PREVAIL; ``kernel``: ``host``, or a guest's such as ``6.1``, or ''.

    ``task`` ``verify`` hands one object over; ``largest`` looks for the largest N of a family that is accepted, and
    has no object (``sha256`` is ''). ``given``: what the user gave the programs that changes what the verifier does
    (flags, tables of types, global variables and attach targets, modules), in words; null for nothing, and for PREVAIL.
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
    given: str | None = None

    @property
    def point_id(self) -> str:
        """Hash of the factors; a point whose programs are given nothing is called as it was before there was that."""
        factors = {name: value for name, value in asdict(self).items() if (name, value) != ("given", None)}
        return hashlib.sha256(json.dumps(factors, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def block(self) -> tuple[str, ...]:
        return (self.verifier, self.kernel)

    @property
    def once(self) -> bool:
        """A guest counts instructions instead of time, and two boots agree; a search needs no repetition either."""
        return self.kernel not in (HOST, "") or self.task == "largest"

    @property
    def file_name(self) -> str:
        """The name of its object in a run: corpus and path, with ``-`` for other characters, and part of its hash.

        The table of types knows objects by their corpus, the project's folder (``cilium``).
        """
        path = self.object if self.family else f"{self.corpus}/{self.object}"
        words = re.sub(r"[^A-Za-z0-9_.]+", "-", path.removesuffix(".o"))
        return f"{words[-100:]}-{self.sha256[:12]}.o"

    def __str__(self) -> str:
        where = f"Linux {self.kernel}" if self.verifier == LINUX else self.verifier
        where += f" ({self.given})" if self.given else ""
        what = f"largest N of {self.object}" if self.task == "largest" else f"{self.corpus}: {self.object}"
        return f"{what}, {where}"


VerifierTrial = StudyTrial[VerifierPoint]


def point_of(subject: CorpusObject, verifier: str, kernel: str) -> VerifierPoint:
    """Return the point that hands ``subject`` to a verifier."""
    return VerifierPoint(
        verifier, kernel, "verify", subject.corpus, subject.name, subject.sha256, **member_columns(subject)
    )


def member_columns(subject: CorpusObject) -> dict[str, Any]:
    """Return the columns of a generated program; none for any other program."""
    member = subject.member
    if member is None:
        return {}
    compiled = {"compiler": subject.compiler, "mcpu": subject.mcpu}
    return {"family": member.family, "n": member.n, **member.chosen, **compiled}
