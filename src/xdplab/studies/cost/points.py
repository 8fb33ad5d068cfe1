"""The study's request, and its points: a program in a mode, with its frames, in a kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from xdplab.programs.spec import WORKLOADS
from xdplab.studies.points import StudyPoint, StudyRequest, StudyTrial, option

KERNEL = "6.12"
MODES = ("native", "generic", "af_xdp", "test_run")
AF_XDP = "af_xdp"
LIVE, PACKETS, TEST_RUN = "live", "packets", "test_run"
"""How frames reach a program: written by a program at the other end of the link, sent by a socket, or in a test run."""

LOADER = "loader.json"
TWIN, TWIN_STATE = "workload.so", "state.bin"
"""A generated workload's twin for user space, and what fills its state."""


@dataclass(frozen=True)
class CostRequest(StudyRequest):
    """What the user asked for: ``programs`` are C files, objects, workloads as ``array:100``, plans, or a run
    of traffic, whose times then stand beside the counts."""

    repetitions: int = 1
    programs: tuple[str, ...] = ()
    kernels: tuple[str, ...] = option(
        (KERNEL,),
        "Kernel of the guest, such as 5.10 or 6.12@arm64, or a bzImage of yours; several are compared.",
        "--kernel",
        metavar="VERSION|FILE[,MODULES]",
    )
    modes: tuple[str, ...] = option(("native",), "How the program runs.", "--mode", choices=MODES)
    frame_bytes: tuple[int, ...] = option((64,), "Sizes of frames, with FCS.", listed=True, metavar="N,…")
    flows: int = option(1, "Flows that take turns.", bounds=(1, 512))
    top: int = option(0, "The N lines that take most; 0: all, in order.", bounds=(0, 1000), metavar="N")
    settings: str = "{}"
    """JSON: the settings of the user's programs, as a plan's ``program:`` has them."""
    any_kernel: bool = False
    """Whether a kernel that is not to be had is one whose trials fail; else the request is refused."""

    def within(self, folder: Path) -> CostRequest:
        words = (word if word.partition(":")[0] in WORKLOADS else str(folder / word) for word in self.programs)
        return replace(self, programs=tuple(words))


@dataclass(frozen=True)
class CostPoint(StudyPoint):
    """A program that is counted. ``object`` and ``frames`` name its folder and its file of frames in the run;
    ``window`` is the number of frames that are counted together."""

    program: str
    object: str
    kernel: str
    mode: str
    way: str
    frames: str
    window: int
    frame_bytes: int | None
    flows: int
    compiler: str | None

    @property
    def place(self) -> str:
        return f"vm:{self.kernel}"

    @property
    def once(self) -> bool:
        """Each boot counts the same."""
        return True

    def __str__(self) -> str:
        size = "" if self.frame_bytes is None else f", {self.frame_bytes} B"
        return f"{self.program}, {self.mode.replace('_', ' ')}{size}, {self.kernel}"


CostTrial = StudyTrial[CostPoint]


def kernel_of(lab: str) -> str | None:
    """Return the kernel of a lab's guest, in which a packet can be counted too; None if the lab has no such guest."""
    from xdplab.labs.base import MITIGATED

    kind, _, instance = lab.partition(":")
    return (instance.partition(":")[0] or KERNEL).removesuffix(MITIGATED) if kind == "vm" else None


def smallest(request: CostRequest) -> CostRequest:
    """Return the request for one kernel and mode."""
    return replace(request, kernels=request.kernels[:1], modes=request.modes[:1])
