"""Labs in QEMU guests: real kernels of a distribution, the netns lab inside, or a guest as the DUT behind a tap."""

from xdplab.errors import LabError
from xdplab.labs.guests.keepers import arrangement
from xdplab.labs.vm import kernels, qemu, tap
from xdplab.labs.vm.lab import DEFAULT, KEEPERS, Guest, GuestSpec, VmLab, boot, parted

__all__ = ["DEFAULT", "arrangement", "down", "open_lab", "require_name", "status", "up"]

down, status = KEEPERS.down, KEEPERS.status

NETKIT = "netkit"
"""The last part of the name of a lab whose link is one, for plans with ``mode: netkit``: `vm:6.12:netkit`."""


def with_link(instance: str) -> tuple[str, str]:
    """Return the part of a lab's name that describes only the guest, and its card or `NETKIT`; empty for neither."""
    guest, _, last = instance.rpartition(":")
    return (guest, last) if guest and last in (*tap.CARDS, NETKIT) else (instance, "")


def require_name(instance: str) -> None:
    """Raise LabError for an invalid guest name: its form, its way to run, or a kernel that is not available."""
    kernel, way = parted(with_link(instance)[0])
    kernels.require_name(kernel)
    if way and way not in qemu.WAYS:
        raise LabError(f"vm:{instance}: no guest runs {way!r}", remedy=f"write {', '.join(qemu.WAYS)}, or leave it out")
    kernels.require_available(kernel)


def open_lab(instance: str, uid: int) -> VmLab:
    """Return the lab that is up. Raises LabError with the remedy if it is not, and why if it was."""
    lab = tap.TapLab if with_link(instance)[1] in tap.CARDS else VmLab
    return lab(instance, uid, KEEPERS.hello(uid, instance))


def up(instance: str, uid: int, *, lease: bool = False) -> bool:
    """Boot a guest and bring its lab up. Returns whether it was made now; a lab that is already up stays unchanged.

    The kernel is fetched if it is not in the cache. A netkit is made on first use: an older kernel refuses it then.
    Raises LabError naming what is missing, or with the console's last line; for a tap also if this is not root.
    """
    if KEEPERS.is_up(uid, instance):
        return False
    plain, link = with_link(instance)
    if link in tap.CARDS:
        tap.require_root(KEEPERS.title(instance))
        guest, spec = tap.with_card(Guest.chosen(*parted(plain)), link)
    else:
        netkit = GuestSpec(scripts=("keeper.py", "netkit_link.py"), queues=1, card=NETKIT)
        guest, spec = Guest.chosen(*parted(plain)), netkit if link else GuestSpec()
    return boot(uid, instance, guest, lease=lease, spec=spec)
