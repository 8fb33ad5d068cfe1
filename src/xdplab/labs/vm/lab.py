"""Labs in a guest of this machine: `vm:6.1`, or with the way to run it, `vm:6.1:count`. No root, no image."""

from __future__ import annotations

import base64
import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from xdplab.errors import LabError
from xdplab.hosts import Host
from xdplab.labs.base import MITIGATED, Arrangement, Clock, LinkEnds
from xdplab.labs.cache import native_dir
from xdplab.labs.guests.keepers import GuestKeepers, KeeperScript
from xdplab.labs.netns.keeper import QUEUES
from xdplab.labs.netns.lab import NetnsLab
from xdplab.labs.vm import kernels, qemu
from xdplab.labs.vm.qemu import key_pair
from xdplab.lazy import lazily

with lazily():  # paramiko takes longer to load than most commands
    from xdplab.hosts import ssh

DEFAULT = "6.1"
START_S = 120.0
"""Seconds a guest may take to bring its lab up; under TCG it takes five, on a busy machine a minute."""

LOOPBACK = "127.0.0.1"
_OWN_NAME = re.compile(r"[A-Za-z0-9._-]{1,40}")


def label(facts: dict[str, Any]) -> str:
    """Return the label of a guest in figures: its kernel, and the meaning of its clock."""
    card = f", {facts['card']}" if facts.get("card") else ""
    return f"virtual lab, vm {facts['kernel']}, {facts['way']}: {qemu.WAYS[facts['way']].says}{card}"


KEEPERS = GuestKeepers("vm", label, START_S)


class VmLab(NetnsLab):
    """A `Lab` of two namespaces in a guest. A third host, ``guest``, is the guest itself."""

    kind = "vm"
    another = "vm:KERNEL"
    keepers = KEEPERS

    def __init__(self, instance: str, uid: int, facts: dict[str, Any]) -> None:
        super().__init__(instance, uid, facts)
        self.arrangement: Arrangement = "shared"
        self.clock: Clock | None = qemu.WAYS[self.way].clock

    def second_link(self, *, make: bool = True) -> LinkEnds | None:
        return None

    @property
    def way(self) -> str:
        """``kvm``, ``count`` or ``functional``: the meaning of the guest's clock."""
        return str(self._facts["way"])

    @property
    def _ends(self) -> dict[str, Any]:
        """The facts about the two hosts with the link, which are made on first use."""
        if "dut" not in self._facts["hosts"]:
            with contextlib.closing(self._keeper()) as connection:
                connection.ask("link", within_s=START_S)
            self._facts = KEEPERS.hello(self._uid, self._instance)
        return super()._ends

    @cached_property
    def guest(self) -> Host:
        return self._reach("guest")

    def host(self, name: str) -> Host:
        return self.guest if name == "guest" else super().host(name)

    def _address(self, name: str) -> ssh.SshAddress:
        facts = self._facts["hosts"][name] if name == "guest" else self._ends[name]
        return ssh.SshAddress(LOOPBACK, port=facts["port"], key=facts["client_key"], host_key=facts["host_key"])


def parted(instance: str) -> tuple[str, str]:
    """Return kernel and way of ``6.1``, ``6.1:count`` and ``6.1:count:NAME``; the way is empty if none is given.

    Guests of different names are different guests. Raises LabError for a name that cannot be used.
    """
    kernel, _, rest = instance.partition(":")
    way, colon, name = rest.partition(":")
    if colon and not _OWN_NAME.fullmatch(name):
        raise LabError(f"vm:{instance}: {name!r} cannot name a guest", remedy="letters, digits, . _ - and at most 40")
    return kernel, way


@dataclass(frozen=True)
class Guest:
    """A planned guest: its kernel, how it will run, and the tools that run it."""

    name: str
    kernel: kernels.Kernel
    choice: qemu.Choice
    tools: dict[str, str]

    @classmethod
    def chosen(cls, name: str, way: str) -> Guest:
        """Return a guest of that kernel, run the way asked for. Raises LabError naming what is missing."""
        tools = qemu.require_tools()
        kernel = kernels.kernel(name)
        return cls(name, kernel, qemu.choose(way, kernel, tools), tools)


@dataclass(frozen=True)
class GuestSpec:
    """What a kind of lab wants of its guest, and of its keeper.

    ``scripts``: the keeper's own and the one that makes the link inside. ``cpus``: None for those of the guest's way.
    ``card``: the guest's card at its end of a tap with ``taps`` queues, if the keeper makes one.
    """

    scripts: tuple[str, str] = ("keeper.py", "link.py")
    cpus: int | None = None
    queues: int = QUEUES
    card: str | None = None
    taps: int = 0
    ports: Mapping[str, int] = field(default_factory=lambda: qemu.PORTS)
    devices: Sequence[str] = ()


def boot(uid: int, instance: str, guest: Guest, *, lease: bool, spec: GuestSpec = GuestSpec()) -> bool:
    """Start a guest's keeper. Returns whether the lab was made now."""
    kernel, way = guest.kernel, guest.choice.way
    cpus = spec.cpus or qemu.cpus(way)
    host_key, client = key_pair(), key_pair()
    machine = qemu.GuestMachine(guest.choice.cpu, cpus, mitigated=guest.name.endswith(MITIGATED))
    argv = [*qemu.argv(way, kernel, guest.tools, machine, native_dir()), *spec.devices]
    first_root = qemu.first_root(kernel, guest.tools)
    state = qemu.state(way, kernel, argv, first_root)
    host = {"host_key": host_key.public, "client_key": client.private}  # the keeper gives it only to the owner
    with os.fdopen(os.memfd_create("xdplab-initrd"), "wb") as file:
        file.write(first_root)
        file.flush()
        configuration = {
            "guest": {
                **{"cpus": list(range(cpus)), "queues": spec.queues, "taps": spec.taps, "card": spec.card},
                "hosts": {"guest": host},
            },
            "argv": argv,
            "initrd": file.fileno(),
            "state": str(state) if state else None,
            "files": base64.b64encode(qemu.files(kernel, guest.tools, host_key, client, spec.scripts[1])).decode(),
            "ports": dict(spec.ports),
            "ping_s": way.ping_s,
        }
        script = KeeperScript(Path(__file__).with_name(spec.scripts[0]), configuration, (file.fileno(),))
        facts = {
            **{"kernel": guest.name, "release": kernel.release, "version": kernel.version},
            **{"way": way.name, "why": guest.choice.why, "cpu": guest.choice.cpu},
        }
        return KEEPERS.start(script, uid, instance, lease=lease, facts=facts)
