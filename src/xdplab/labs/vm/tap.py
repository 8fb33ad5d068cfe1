"""Labs whose DUT is a guest and whose TG is a namespace of this machine: `vm:6.1:tap`, `vm:6.12:igb`.

A tap in the TG's namespace is the other end of a card in the guest: `tap` is a multi-queue virtio-net, with native XDP
on all its queues; the others are QEMU's models of real cards, driven by the kernel's own drivers. These have rings,
unlike the veth of other virtual labs. Needs root: the namespace and the tap are this machine's.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from xdplab.errors import LabError, MissingToolError
from xdplab.labs.base import Arrangement, Cpus, GeneratorPlace
from xdplab.labs.keepers import KeeperLab
from xdplab.labs.receiving import place_interrupts
from xdplab.labs.vm import kernels, lab, qemu, tap_link
from xdplab.lazy import lazily

with lazily():  # paramiko takes longer to load than most commands
    from xdplab.hosts import ssh

QUEUES = 4
"""Queue pairs of virtio-net for a plan; each CPU of the guest has one more, for XDP_TX."""

_TAP = "{tap}"


@dataclass(frozen=True)
class LinkCard:
    """A network card at the guest's end of the link.

    ``driver``: the kernel's module; ``devices``: QEMU's arguments for a tap with a number of queues; ``queues``: how
    many a plan can use; ``cpus``: the guest's CPUs, if the card has a queue for each; ``qemu``: the QEMU versions that
    have it, if not all do.
    """

    driver: str
    devices: Callable[[int], list[str]]
    queues: int
    cpus: int | None = None
    qemu: str = ""

    def taps(self, cpus: int) -> int:
        """Return the number of queues of the tap for a guest with this number of CPUs."""
        return self.queues + cpus if self.driver == "virtio_net" else self.queues


def _virtio(pairs: int) -> list[str]:
    """Return QEMU's arguments for the link: no offload that native XDP would refuse, one interrupt per queue."""
    off = ("csum", "gso", "guest_csum", "guest_tso4", "guest_tso6", "guest_ecn", "guest_ufo")
    options = ",".join(f"{name}=off" for name in off)
    return [
        *("-netdev", f"tap,id=link,fds={_TAP},vhost=off"),
        "-device",
        f"virtio-net-pci,netdev=link,mac={tap_link.MAC},mq=on,vectors={2 * pairs + 2},romfile=,{options}",
    ]


def _model(name: str) -> Callable[[int], list[str]]:
    return lambda _: [
        *("-netdev", f"tap,id=link,fds={_TAP},vhost=off"),
        *("-device", "pcie-root-port,id=socket,chassis=1,slot=1"),
        *("-device", f"{name},bus=socket,netdev=link,mac={tap_link.MAC},romfile="),
    ]


CARDS = {
    "tap": LinkCard("virtio_net", _virtio, QUEUES),
    "igb": LinkCard("igb", _model("igb"), queues=2, cpus=2, qemu="8.0 and later"),
    "vmxnet3": LinkCard(
        "vmxnet3", _model("vmxnet3"), queues=1, cpus=1
    ),  # QEMU's model receives only on its first queue
    "e1000e": LinkCard("e1000e", _model("e1000e"), queues=1, cpus=1),
}
"""Keyed by the last part of the lab's name."""


class TapLab(lab.VmLab):
    """A `Lab` of a guest and a namespace beside it. The host ``guest`` is the DUT."""

    another = "vm:KERNEL:tap"
    generator = GeneratorPlace(follows=True)

    def cpus(self, arrangement: Arrangement | None = None) -> Cpus:
        """Return the guest's own CPUs, and half of this machine's for the TG.

        A sender has the highest priority on its CPU. If it had all CPUs, the guest would stop during a burst.
        """
        here = tuple(self._facts["tg_cpus"])
        return Cpus(dut=tuple(self._facts["cpus"]), tg=here[: max(1, len(here) // 2)])

    def place(self, arrangement: Arrangement, queues: int) -> dict[str, Any]:
        """Two kernels each have their own softirq work; the guest's card gets a CPU per queue.

        Raises LabError for ``split``.
        """
        if arrangement == "split":
            raise LabError(f"lab {self.name}: its guest's CPUs are threads of this machine", remedy="write auto")
        placed = place_interrupts(self.dut, self.dut_interface, self.cpus().dut)
        return {"softirq": "in the guest, and on this machine", "dut_interrupts": placed}

    def _address(self, name: str) -> ssh.SshAddress:
        return KeeperLab._address(self, name) if name == "tg" else super()._address(name)


def require_root(name: str) -> None:
    """Raise LabError if this is not root."""
    if os.geteuid() != 0:
        raise LabError(
            f"lab {name}: its namespace and its tap need root",
            remedy=f"ask root to run `xdplab --lab {name} lab up --for-user {os.getuid()}`",
        )


def with_card(guest: lab.Guest, called: str) -> tuple[lab.Guest, lab.GuestSpec]:
    """Return a guest with the driver of a card of `CARDS`, and what a lab with it wants. Raises MissingToolError."""
    card = CARDS[called]
    _require_model(card, guest.tools)
    guest = replace(guest, kernel=kernels.with_driver(guest.kernel, card.driver))
    cpus = card.cpus or qemu.cpus(guest.choice.way)
    taps = card.taps(cpus)
    return guest, lab.GuestSpec(
        scripts=("tap_keeper.py", "tap_link.py"),
        cpus=cpus,
        queues=card.queues,
        card=called,
        taps=taps,
        ports={"guest": qemu.PORTS["guest"], tap_link.DUT: qemu.PORTS["guest"]},
        devices=card.devices(taps),
    )


def _require_model(card: LinkCard, tools: dict[str, str]) -> None:
    """Raise MissingToolError if this machine's QEMU has no model of the card."""
    if not card.qemu:
        return
    path = tools[qemu.QEMU]
    argv = [path, "-M", "none", "-device", f"{card.driver},help"]
    output = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout
    if f"{card.driver} options" not in output:  # 7.2 exits with 0 for a device that it lacks
        version = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout.split("\n")[0]
        raise MissingToolError(
            f"this machine's QEMU has no {card.driver}: {version}",
            remedy=f"QEMU {card.qemu} has it (bookworm-backports, Debian 13); vmxnet3 has native XDP with any",
        )
