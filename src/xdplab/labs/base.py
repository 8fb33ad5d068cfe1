"""What a lab is to everything that measures in it: two hosts, the link's two ends, and who may use which CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from xdplab.hosts import Host

Arrangement = Literal["shared", "split", "hosts"]
MITIGATED = "+mitigations"
"""Ends the name of a guest's kernel that is to guard against faults of the CPU, as it does by default."""
Clock = Literal["time", "instructions"]

SPLIT_FROM = 4
"""CPUs from which on TG and DUT of one machine get different ones."""


@dataclass(frozen=True)
class Cpus:
    """The CPU numbers each host may use; the same ones in arrangement ``shared``."""

    dut: tuple[int, ...]
    tg: tuple[int, ...]


@dataclass(frozen=True)
class GeneratorPlace:
    """What sends on the TG. ``path`` is where its user has installed it; xdpgen is built there instead.

    ``port`` is DPDK's number of the TG's end, ``dpdk`` are arguments for DPDK. ``driver`` is what the port is bound to
    while it sends, with so many ``hugepages`` of 2 MiB; ``pci`` is null for what has no PCI address (veth).
    ``follows``: the TG's end is a tap of the DUT's, a guest: it needs no queues set, and the two have a kernel each.
    """

    kind: str = "xdpgen"
    path: str | None = None
    port: int = 0
    dpdk: tuple[str, ...] = ()
    driver: str = "vfio-pci"
    hugepages: int = 0
    pci: str | None = None
    follows: bool = False

    @property
    def by_dpdk(self) -> bool:
        """True where DPDK takes the TG's end from the kernel while it sends."""
        return self.kind == "moongen" and self.pci is not None


class Lab(Protocol):
    """A lab that is up. Hosts are connected to when first used."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def dut(self) -> Host: ...

    @property
    def tg(self) -> Host: ...

    @property
    def dut_interface(self) -> str: ...

    @property
    def tg_interface(self) -> str: ...

    @property
    def dut_mac(self) -> str: ...

    @property
    def tg_mac(self) -> str: ...

    @property
    def generator(self) -> GeneratorPlace:
        """What sends on the TG."""

    @property
    def queues(self) -> int:
        """The most queues the link can have."""

    @property
    def arrangement(self) -> Arrangement:
        """What ``arrangement: auto`` means here."""

    @property
    def virtual(self) -> bool:
        """True if the link is no physical one: it has no line rate."""

    @property
    def clock(self) -> Clock | None:
        """What a nanosecond here is: time, or an instruction. None: an emulator's, which is worth nothing."""

    @property
    def native_dir(self) -> Path | None:
        """The folder of this machine for what is compiled for both hosts, where their compilers are this machine's.

        A guest sees it as ``native`` in its work directory; what it writes there stays with it.
        """

    @property
    def label(self) -> str:
        """One line for figures: "virtual lab, netns, 2 CPUs, shared"."""

    def cpus(self, arrangement: Arrangement | None = None) -> Cpus:
        """Return who may use which CPUs in ``arrangement`` (by default the lab's own)."""

    def place(self, arrangement: Arrangement, queues: int) -> dict[str, Any]:
        """Bring the link's softirq work onto the CPUs of the arrangement, once programs are attached to both ends.

        Returns what was obtained. Raises LabError if that is not possible.
        """

    def host(self, name: str) -> Host:
        """Return the host called ``dut`` or ``tg``. Raises LabError for any other name."""

    def work_dir(self, host: Host) -> str:
        """Return a directory on ``host`` that is the lab's alone and goes away with it."""

    def lock(self, who: str | None = None, *, steal: bool = False) -> AbstractContextManager[None]:
        """Hold the lab for one run; ``who`` is what others are told (by default the process).

        Raises LabError that names who holds it already. ``steal`` takes it from one that is silent.
        """

    def turn(self, told: Callable[[str | None], None]) -> AbstractContextManager[None]:
        """Measure alone: labs of one machine that use the same CPUs take turns, trial by trial.

        ``told`` hears why this waits, and None once it goes on. Raises HostError if another keeps the CPUs too long.
        """

    def regain(self) -> None:
        """Hold again what a lost connection let go (the lock of a run). Raises LabError if another holds it now."""

    @property
    def leased(self) -> bool:
        """True if the lab ends with the last process that holds it."""

    def hold(self) -> AbstractContextManager[None]:
        """Keep a leased lab up through this block; the last to leave takes it down, also when it is killed."""

    def close(self) -> None:
        """Disconnect; the lab stays up."""


def arrangement_for(cpus: int) -> Arrangement:
    """Return the arrangement of a lab on one machine that may use so many CPUs."""
    return "shared" if cpus < SPLIT_FROM else "split"


def share_out(cpus: Sequence[int], arrangement: Arrangement, sysfs: Path = Path("/sys")) -> Cpus:
    """Return each host's CPUs: all for both where shared, else whole cores for each, the DUT's first."""
    if arrangement == "shared" or len(cpus) < 2:
        return Cpus(dut=tuple(cpus), tg=tuple(cpus))
    cores: dict[Any, list[int]] = {}
    for cpu in cpus:
        cores.setdefault(_core(cpu, sysfs), []).append(cpu)
    groups = [tuple(cores[core]) for core in sorted(cores)] if len(cores) > 1 else [(cpu,) for cpu in cpus]
    middle = (len(groups) + 1) // 2
    return Cpus(dut=sum(groups[:middle], ()), tg=sum(groups[middle:], ()))


def _core(cpu: int, sysfs: Path) -> tuple[int, ...]:
    """Return (package, core) of a CPU: hyper-threads of one core share it."""
    topology = sysfs / "devices/system/cpu" / f"cpu{cpu}" / "topology"
    try:
        return tuple(int((topology / name).read_text()) for name in ("physical_package_id", "core_id"))
    except (OSError, ValueError):
        return (0, cpu)  # a kernel that does not say: each CPU is a core
