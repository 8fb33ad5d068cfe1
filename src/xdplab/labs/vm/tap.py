"""Labs whose DUT is a guest and whose TG is a namespace of this machine: `vm:6.1:tap`, `vm:6.1:functional:tap`.

A multi-queue tap in the TG's namespace is a multi-queue virtio-net in the guest, with native XDP on all its queues: a
driver with rings, where the veth of other virtual labs has none. Needs root: the namespace and the tap are this
machine's.
"""

from __future__ import annotations

import os
from typing import Any

from xdplab import hosts
from xdplab.errors import LabError
from xdplab.labs.base import Arrangement, Cpus, GeneratorPlace
from xdplab.labs.kept import KeptLab
from xdplab.labs.vm import lab, qemu, tap_link

SUFFIX = ":tap"
QUEUES = 4
"""Queue pairs a plan can have; each CPU of the guest has one more, for what XDP sends."""

_TAP = "{tap}"


class TapLab(lab.VmLab):
    """A `Lab` of a guest and a namespace beside it. The host ``guest`` is the DUT."""

    another = "vm:KERNEL:tap"
    generator = GeneratorPlace(follows=True)

    def __init__(self, instance: str, uid: int, known: dict[str, Any]) -> None:
        super().__init__(instance, uid, known)
        self.queues = QUEUES

    def cpus(self, arrangement: Arrangement | None = None) -> Cpus:
        """Return the guest's own CPUs and those of this machine."""
        return Cpus(dut=tuple(self._known["cpus"]), tg=tuple(self._known["tg_cpus"]))

    def place(self, arrangement: Arrangement, queues: int) -> dict[str, Any]:
        """Two kernels, each with its own softirq work: there is nothing to place. Raises LabError for ``split``."""
        if arrangement == "split":
            raise LabError(f"lab {self.name}: its guest's CPUs are threads of this machine", remedy="write auto")
        return {"softirq": "in the guest, and on this machine"}

    def _address(self, name: str) -> hosts.SshAddress:
        return KeptLab._address(self, name) if name == "tg" else super()._address(name)


def asked(instance: str) -> bool:
    """Tell whether a lab's name asks for a tap."""
    return instance.endswith(SUFFIX)


def open_lab(instance: str, uid: int) -> TapLab:
    """Return the lab that is up. Raises LabError as `lab.open_lab` does."""
    return TapLab(instance, uid, lab.KEEPERS.hello(uid, instance))


def up(instance: str, uid: int, *, lease: bool = False) -> bool:
    """Bring the lab up as `lab.up` does. Raises LabError if this is not root."""
    if lab.KEEPERS.is_up(uid, instance):
        return False
    if os.geteuid() != 0:
        raise LabError(
            f"lab {lab.full_name(instance)}: its namespace and its tap need root",
            remedy=f"ask root to run `xdplab --lab {lab.full_name(instance)} lab up --for-user {os.getuid()}`",
        )
    name, way_asked = lab.parted(instance.removesuffix(SUFFIX))
    guest = lab.Guest.chosen(name, way_asked)
    pairs = QUEUES + qemu.cpus(guest.choice.way)
    return lab.boot(
        uid,
        instance,
        guest,
        lease=lease,
        scripts=("tap_keeper.py", "tap_link.py"),
        queues=pairs,
        ports={"guest": qemu.PORTS["guest"], tap_link.DUT: qemu.PORTS["guest"]},
        devices=_link(pairs),
    )


def _link(pairs: int) -> list[str]:
    """Return QEMU's arguments for the link: no offload that native XDP would refuse, an interrupt a queue."""
    off = ("csum", "gso", "guest_csum", "guest_tso4", "guest_tso6", "guest_ecn", "guest_ufo")
    options = ",".join(f"{name}=off" for name in off)
    return [
        *("-netdev", f"tap,id=link,fds={_TAP},vhost=off"),
        "-device",
        f"virtio-net-pci,netdev=link,mac={tap_link.MAC},mq=on,vectors={2 * pairs + 2},romfile=,{options}",
    ]
