"""Requests and points of the jit study: one thing that BPF does, in one mode, in one place."""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdplab.studies.jit.classes import CLASSES
from xdplab.studies.jit.filters import PACKET_FILTERS, SECCOMP_FILTERS
from xdplab.studies.places import counts, harden_words, is_foreign
from xdplab.studies.points import StudyPoint, StudyRequest, option

INTERPRETER, JIT = "interpreter", "jit"
MODES = (INTERPRETER, JIT)
MODES_OF = {"uml": (INTERPRETER,), "host": (JIT,)}
"""The modes of places that do not have both: user-mode Linux has no JIT, distributions' kernels no interpreter."""

SUITES = ("test_bpf", "test_tail_calls", "test_skb_segment")
TEST_BPF, INSN_CLASSES, FILTERS, TRAFFIC = "test_bpf", "classes", "filters", "traffic"
AMPLIFIED, TCP = "amplified", "tcp"
PARTS = (TEST_BPF, INSN_CLASSES, FILTERS, TRAFFIC, AMPLIFIED, TCP)
"""What is measured. ``test_bpf`` is a kernel module."""

PARTS_OF = {"host": PARTS[1:]}
"""On this machine the module is loaded only if requested by name."""

SECCOMP = "seccomp"
"""The filter of system calls, by whose numbers on x86-64 it is written: it is not of other architectures."""

TESTS, LOG, BENCH, ASKED = "tests.json", "test_bpf-{:02}.log", "jitbench{}.jsonl", "asked{}.jsonl"
SIZES_FILE = "sizes-{:02}.txt"
"""Raw files of a trial."""

DEFAULT_PLACE = "vm:6.1:count"


@dataclass(frozen=True)
class JitRequest(StudyRequest):
    """The request. Empty tuples mean all; ``tests`` is a range of suite test_bpf such as ``0-33``.

    ``expressions`` are tcpdump's; ``modes`` are by default those of the place; ``hardenings`` are values of
    net.core.bpf_jit_harden (if empty, it is left as it is).
    """

    repetitions: int = option(3, "", bounds=(1, 1000))
    smallest: bool = option(False, "Few tests, six classes, two filters: a minute.")
    places: tuple[str, ...] = option(
        (DEFAULT_PLACE,), f"{DEFAULT_PLACE} (the default), uml, host, vm:6.1@arm64 …", "--place"
    )
    parts: tuple[str, ...] = option((), "All the place has; on host not test_bpf.", "--part", choices=PARTS)
    modes: tuple[str, ...] = option((), "What the place has.", "--mode", choices=MODES)
    suites: tuple[str, ...] = option((), "Of module test_bpf; all.", "--suite", choices=SUITES)
    tests: str = option("", "Only these tests of suite test_bpf.", metavar="FIRST-LAST")
    classes: tuple[str, ...] = option((), "All.", "--class", choices=tuple(CLASSES), metavar="NAME")
    filters: tuple[str, ...] = option((), "All.", "--filter", choices=(*PACKET_FILTERS, *SECCOMP_FILTERS))
    expressions: tuple[str, ...] = option((), 'A filter in tcpdump\'s syntax: "tcp port 80".', "--expression")
    hardenings: tuple[int, ...] = option((), "net.core.bpf_jit_harden; as it is.", "--harden", bounds=(0, 2))


@dataclass(frozen=True)
class JitPoint(StudyPoint):
    """``subject`` is a suite, an instruction class or a filter, after its part; ``tests`` limits a suite.

    ``harden``: net.core.bpf_jit_harden; None leaves it as it is, and the point's id as it was before there was any.
    """

    place: str
    part: str
    subject: str
    mode: str
    tests: str = ""
    harden: int | None = None

    IF_SET = ("harden",)

    @property
    def cost_s(self) -> float:
        return {TEST_BPF: 6.0, TCP: 3.0}.get(self.part, 1.0)

    @property
    def setting(self) -> str:
        return self.mode if counts(self.place) else ""

    @property
    def once(self) -> bool:
        """A guest gives the same count again, unless a timer tick falls into a test of test_bpf, which runs only
        once."""
        return counts(self.place) and self.part != TEST_BPF

    def __str__(self) -> str:
        hardened = "" if self.harden is None else f", {harden_words(self.harden)}"
        return f"{self.part}: {self.subject}, {self.mode}, {self.place}{hardened}"


SMALLEST_CLASSES = ("add64 reg", "div64 reg", "packet load 32", "jump taken", "call helper", "map lookup")


def smallest(request: JitRequest) -> JitRequest:
    """Return the smallest request that still shows everything: few tests, twice; six classes, two filters.

    The lesser of two counts has a timer tick only if one fell into the same test twice.
    """
    return replace(
        request,
        suites=request.suites or ("test_bpf",),
        tests=request.tests or "0-12",
        classes=request.classes or SMALLEST_CLASSES,
        filters=request.filters or ("ip", "seccomp"),
        repetitions=2,
        smallest=True,
    )


def modes_of(place: str, request: JitRequest) -> tuple[str, ...]:
    return request.modes or MODES_OF.get(place, MODES)


def hardenings_of(mode: str, request: JitRequest) -> tuple[int | None, ...]:
    """Return the values of the setting; it concerns only what is compiled."""
    return request.hardenings or (None,) if mode == JIT else (None,)


def parts_of(place: str, request: JitRequest) -> tuple[str, ...]:
    return request.parts or PARTS_OF.get(place, PARTS)


def subjects_of(part: str, place: str, request: JitRequest, filters: tuple[str, ...]) -> tuple[str, ...]:
    """Return what a part consists of; ``filters`` are all filters of the run, of packets and of system calls."""
    packets = tuple(name for name in filters if name != SECCOMP)
    return {
        TEST_BPF: request.suites or SUITES,
        INSN_CLASSES: request.classes or tuple(CLASSES),
        FILTERS: packets if is_foreign(place) else filters,
        TRAFFIC: packets,
        AMPLIFIED: packets,
        TCP: packets,
    }[part]
