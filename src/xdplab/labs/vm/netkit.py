"""Labs in a guest whose link is a netkit: `vm:6.12:netkit`. For plans with ``mode: netkit``."""

from __future__ import annotations

from xdplab.labs.vm import lab

LINK = "netkit"
_LAST = f":{LINK}"


def is_netkit(instance: str) -> bool:
    return instance.endswith(_LAST)


def without_link(instance: str) -> str:
    """Return the part of the name that describes only the guest."""
    return instance.removesuffix(_LAST)


def up(instance: str, uid: int, *, lease: bool = False) -> bool:
    """Bring the lab up as `lab.up` does. Its link is made on first use: an older kernel refuses it then."""
    if lab.KEEPERS.is_up(uid, instance):
        return False
    guest = lab.Guest.chosen(*lab.parted(without_link(instance)))
    spec = lab.GuestSpec(scripts=("keeper.py", "netkit_link.py"), queues=1, card=LINK)
    return lab.boot(uid, instance, guest, lease=lease, spec=spec)
