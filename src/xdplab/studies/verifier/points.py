"""Points and trials of the verifier study: one object, one verifier, one kernel."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from xdplab.labs.base import HOST
from xdplab.studies.points import StudyPlan, StudyPoint, StudyRequest, StudyTrial, option
from xdplab.studies.verifier.generated import FAMILIES, INSTRUCTION_SETS, MOST_N

if TYPE_CHECKING:
    from xdplab.studies.verifier.corpora import CorpusObject

PROGRAM_FLAGS = {"strict_alignment": 1, "test_rnd_hi32": 4, "test_state_freq": 8, "test_reg_invariants": 128}
"""Flags of a program (BPF_F_…) that change how the kernel's verifier works."""

Task = Literal["verify", "largest"]
LINUX = "linux"


@dataclass(frozen=True)
class Programs:
    """What is verified. Empty ``compilers`` mean all installed ones; empty ``sizes`` each family's own.

    ``families`` are names, or files of templates. ``apart``: each of ``objects`` is a separate corpus, to be compared
    with the other.
    """

    objects: tuple[str, ...] = ()
    apart: bool = False
    compilers: tuple[str, ...] = option((), 'Such as "clang 14"; all that are here.', "--compiler", metavar="NAME")
    mcpus: tuple[str, ...] = option(("v2", "v3", "v4"), "v2, v3 and v4.", "--mcpu", choices=INSTRUCTION_SETS)
    families: tuple[str, ...] = option(
        tuple(name for name, family in FAMILIES.items() if family.usual),
        f"{', '.join(FAMILIES)}, none, or a template of yours; all but strcmp_return by default.",
        "--family",
        metavar="NAME|FILE",
    )
    sizes: tuple[int, ...] = option(
        (), "Size N of the generated programs (default: each family's own sizes).", "--size", bounds=(1, MOST_N)
    )
    testbed: bool = option(True, "The XDP lab's own programs.")
    largest: bool = option(True, "Search the largest N that is accepted.")


@dataclass(frozen=True)
class Verifiers:
    """Who verifies, and how often. Empty ``prevails`` mean those on PATH; ``limit_s`` is of one run of them.

    ``guest_loads``: the most loads per program in a guest, where a timer tick within a load adds thousands of
    instructions, and the median of three excludes it.
    """

    kernels: tuple[str, ...] = option(
        (HOST,), "host (the default), 5.10, …, or a bzImage of yours.", "--kernel", metavar="host|VERSION|FILE"
    )
    loads: int = option(20, "Most loads per program.", bounds=(1, 1000))
    guest_loads: int = option(3, "Most loads of them in guests.", bounds=(1, 1000))
    budget_ms: int = 500
    prevails: tuple[str, ...] = option((), "PREVAIL commands; else PATH's own.", "--prevail", metavar="[NAME=]PATH")
    limit_s: float = option(60.0, "Limit of a PREVAIL run.", bounds=(1, 3600))


@dataclass(frozen=True)
class Given:
    """What a project's own loader and machine give its programs; the tables are files.

    ``variables``: global variables to set; ``attached``: the programs that programs attach to; ``loaded``: kernel
    modules that guests load first, for their BTF; ``flags``: of `PROGRAM_FLAGS`.
    """

    flags: tuple[str, ...] = option(
        (),
        "Load every program with BPF_F_NAME, such as test_state_freq.",
        "--flag",
        choices=tuple(PROGRAM_FLAGS),
        metavar="NAME",
    )
    types: str | None = option(None, "OBJECT SECTION TYPE lines (see the docs).", file=True)
    variables: str | None = option(
        None,
        "Global variables to set before loading: OBJECT VARIABLE INTEGER lines (see the docs).",
        "--globals",
        file=True,
    )
    attached: str | None = option(
        None,
        "OBJECT SECTION TARGET-OBJECT PROGRAM FUNCTION lines: the BPF programs that programs attach to.",
        "--targets",
        file=True,
    )
    loaded: tuple[str, ...] = option(
        (),
        "Guests load this kernel module first, so that its functions can be attached to.",
        "--load-module",
        metavar="NAME",
    )


@dataclass(frozen=True)
class VerifierRequest(Given, Verifiers, Programs, StudyRequest):
    """The request: a study's fields, then programs, verifiers, and what the programs are given."""

    repetitions: int = option(3, "", bounds=(1, 1000))
    smallest: bool = option(False, "Few sizes, one repetition: a minute, and every figure has points.")


def smallest(request: VerifierRequest) -> VerifierRequest:
    """Return the smallest request that still shows everything: one repetition, few sizes, two compilers."""
    mcpus = ("v3",) if request.mcpus == VerifierRequest.mcpus else request.mcpus
    return replace(
        request, mcpus=mcpus, repetitions=1, loads=5, budget_ms=100, testbed=False, limit_s=10.0, smallest=True
    )


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

    IF_SET = ("given",)

    @property
    def cost_s(self) -> float:
        """A search hands over ever larger programs; a guest takes 15 s for each of these."""
        here = self.kernel in (HOST, "")
        if self.task == "largest":
            return 2.5 if here else 150.0
        return 0.06 if here else 2.0

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
        name = re.sub(r"[^A-Za-z0-9_.]+", "-", path.removesuffix(".o"))
        return f"{name[-100:]}-{self.sha256[:12]}.o"

    def __str__(self) -> str:
        where = f"Linux {self.kernel}" if self.verifier == LINUX else self.verifier
        where += f" ({self.given})" if self.given else ""
        what = f"largest N of {self.object}" if self.task == "largest" else f"{self.corpus}: {self.object}"
        return f"{what}, {where}"


VerifierTrial = StudyTrial[VerifierPoint]
VerifierPlan = StudyPlan[VerifierRequest, VerifierPoint]


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
