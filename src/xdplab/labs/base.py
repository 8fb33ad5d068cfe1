"""The interface of a lab for all that measures in it: two hosts, the link's two ends, and the CPUs of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from xdplab.hosts import Host

Arrangement = Literal["shared", "split", "hosts"]
HOST = "host"
"""The place of a study that is this machine, and no lab."""
MITIGATED = "+mitigations"
"""The suffix of a guest's kernel name that enables the kernel's default mitigations of CPU faults."""
ARCHITECTURE_MARK = "@"
"""Between a guest's kernel and its architecture, if that is not this machine's: ``6.1@arm64``."""
OWN_KERNEL = "own-"
"""Prefix of the name of a user's own kernel; the rest comes from the SHA-256 of its files."""
OWN_QEMU = "guest_qemu"
"""A manifest's name for the version of a guest's own QEMU, which differs from that of this machine's other guests."""
Clock = Literal["time", "instructions"]

SPLIT_FROM = 4
"""The number of CPUs from which on TG and DUT of one machine get separate ones."""

DUT_FIFO, TG_FIFO = 4, 6
"""Priorities of softirq threads in arrangement ``split``; the TG's are above its sender's, which would starve them."""


@dataclass(frozen=True)
class Cpus:
    """The CPU numbers each host may use; the same ones in arrangement ``shared``."""

    dut: tuple[int, ...]
    tg: tuple[int, ...]


@dataclass(frozen=True)
class LinkEnds:
    """The two ends of a further link: their interfaces and MAC addresses."""

    dut_interface: str
    tg_interface: str
    dut_mac: str
    tg_mac: str


@dataclass(frozen=True)
class GeneratorPlace:
    """The generator on the TG. ``path`` is where its user has installed it; xdpgen is built there instead. ``port`` is
    DPDK's number of the TG's end, ``dpdk`` are arguments for DPDK. While it sends, the port is bound to ``driver`` with
    this number of ``hugepages`` of 2 MiB; ``pci`` is null without a PCI address (veth). ``follows``: the TG's end is a
    tap of the DUT, a guest: its queues need no setting, and the two have separate kernels.
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
        """True if DPDK takes the TG's end from the kernel while it sends."""
        return self.kind != "xdpgen" and self.pci is not None

    @property
    def card(self) -> str | None:
        """The PCI address of the card that DPDK opens; None if it opens none."""
        return self.pci if self.by_dpdk else None


class Lab(Protocol):
    """A lab that is up. Hosts are connected on first use."""

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

    def second_link(self, *, make: bool = True) -> LinkEnds | None:
        """Return the ends of a second link between the two hosts; None if the lab has one link.

        ``make``: a lab that can have two makes the second one if need be.
        """

    @property
    def generator(self) -> GeneratorPlace:
        """The generator on the TG."""

    @property
    def arrangement(self) -> Arrangement:
        """What ``arrangement: auto`` means here."""

    @property
    def virtual(self) -> bool:
        """True if the link is not physical: it has no line rate."""

    @property
    def clock(self) -> Clock | None:
        """What a nanosecond means here: time, or an instruction. None: that of an emulator, which means nothing."""

    @property
    def native_dir(self) -> Path | None:
        """This machine's folder of compiled tools for both hosts, if they use this machine's compilers.

        A guest sees it as ``native`` in its work directory; the guest's own files stay in the guest.
        """

    @property
    def label(self) -> str:
        """One line for figures: "virtual lab, netns, 2 CPUs, shared"."""

    def cpus(self, arrangement: Arrangement | None = None) -> Cpus:
        """Return the CPUs of each host in ``arrangement`` (by default the lab's own)."""

    def place(self, arrangement: Arrangement, queues: int) -> dict[str, Any]:
        """Place the link's softirq work on the CPUs of the arrangement, once programs are attached to both ends.

        Returns the obtained placement. Raises LabError if that is not possible.
        """

    def host(self, name: str) -> Host:
        """Return the host called ``dut`` or ``tg``. Raises LabError for any other name."""

    def work_dir(self, host: Host) -> str:
        """Return a directory on ``host`` that only this lab uses and that is removed with it."""

    def state_dir(self, host: Host) -> str:
        """Return the directory on ``host`` for the original state of its device until it is restored.

        All labs that have this device have the same directory: another one's dead run is restored, too.
        """

    def lock(self, who: str | None = None, *, steal: bool = False) -> AbstractContextManager[None]:
        """Hold the lab for one run; ``who`` is the holder's name for others (by default the process).

        Raises LabError naming the present holder. ``steal`` takes it from a silent holder.
        """

    def turn(self, tell: Callable[[str | None], None]) -> AbstractContextManager[None]:
        """Measure alone: labs of one machine that use the same CPUs take turns, trial by trial.

        ``tell`` is called with the reason of a wait, and with None at its end. Raises HostError if another lab keeps
        the CPUs too long.
        """

    def regain(self) -> None:
        """Take the lock of a run again after a lost connection. Raises LabError if another process holds it now."""

    @property
    def leased(self) -> bool:
        """True if the lab ends with the last process that holds it."""

    def hold(self) -> AbstractContextManager[None]:
        """Keep a leased lab up in this block; the last user takes it down, even if that user is killed."""

    def close(self) -> None:
        """Disconnect; the lab stays up."""


def arrangement_for(cpus: int) -> Arrangement:
    """Return the arrangement of a lab on one machine with this number of CPUs."""
    return "shared" if cpus < SPLIT_FROM else "split"


def share_out(cpus: Sequence[int], arrangement: Arrangement, sysfs: Path = Path("/sys")) -> Cpus:
    """Return each host's CPUs: if shared, all for both; else whole cores for each, the DUT's first."""
    if arrangement == "shared" or len(cpus) < 2:
        return Cpus(dut=tuple(cpus), tg=tuple(cpus))
    cores: dict[Any, list[int]] = {}
    for cpu in cpus:
        cores.setdefault(_core(cpu, sysfs), []).append(cpu)
    groups = [tuple(cores[core]) for core in sorted(cores)] if len(cores) > 1 else [(cpu,) for cpu in cpus]
    middle = (len(groups) + 1) // 2
    return Cpus(dut=sum(groups[:middle], ()), tg=sum(groups[middle:], ()))


def turned(cpus: tuple[int, ...], places: int) -> tuple[int, ...]:
    """Return the CPUs from another place on, the earlier ones last."""
    at = places % len(cpus)
    return cpus[at:] + cpus[:at]


def _core(cpu: int, sysfs: Path) -> tuple[int, ...]:
    """Return (package, core) of a CPU: hyper-threads of one core share it."""
    topology = sysfs / "devices/system/cpu" / f"cpu{cpu}" / "topology"
    try:
        return tuple(int((topology / name).read_text()) for name in ("physical_package_id", "core_id"))
    except (OSError, ValueError):
        return (0, cpu)  # if the kernel does not say, each CPU counts as a core
