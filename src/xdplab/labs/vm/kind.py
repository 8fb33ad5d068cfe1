"""Labs in QEMU guests: real kernels of a distribution, the netns lab inside, or a guest as the DUT behind a tap."""

from xdplab.errors import LabError
from xdplab.labs.guests.keepers import arrangement
from xdplab.labs.vm import kernels, lab, netkit, qemu, tap
from xdplab.labs.vm.lab import DEFAULT, KEEPERS, VmLab

__all__ = ["DEFAULT", "arrangement", "down", "open_lab", "require_name", "status", "up"]

down, status = KEEPERS.down, KEEPERS.status


def require_name(instance: str) -> None:
    """Raise LabError for an invalid guest name: its form, its way to run, or a kernel that is not available."""
    kernel, way = lab.parted(netkit.without_link(tap.without_card(instance)))
    kernels.require_name(kernel)
    if way and way not in qemu.WAYS:
        raise LabError(f"vm:{instance}: no guest runs {way!r}", remedy=f"write {', '.join(qemu.WAYS)}, or leave it out")
    kernels.require_available(kernel)


def open_lab(instance: str, uid: int) -> VmLab:
    """Return the lab that is up. Raises LabError with the remedy if it is not, and why if it was."""
    return tap.open_lab(instance, uid) if tap.card_of(instance) else lab.open_lab(instance, uid)


def up(instance: str, uid: int, *, lease: bool = False) -> bool:
    """Boot a guest and bring its lab up. Returns whether it was made now. Raises LabError saying what is missing."""
    make = tap.up if tap.card_of(instance) else netkit.up if netkit.is_netkit(instance) else lab.up
    return make(instance, uid, lease=lease)
