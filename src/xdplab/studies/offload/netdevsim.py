"""netdevsim in a guest: the kernel's own counterpart of a card that offloads XDP, built here and loaded there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from xdplab.errors import HostError, UnsupportedError
from xdplab.hosts import Host
from xdplab.labs.guests import modules
from xdplab.studies.guests import build_tree, kernel_source

NAME = "netdevsim"
_FOLDER = "drivers/net/netdevsim"
_BUS = "/sys/bus/netdevsim"
_KBUILD = b"CONFIG_NETDEVSIM := m\nccflags-y += -g0\n"


@dataclass(frozen=True)
class Card:
    """A simulated card: its number, its ports' interfaces, and where debugfs has its switches."""

    number: int
    ports: tuple[str, ...]

    @property
    def switches(self) -> str:
        return f"/sys/kernel/debug/{NAME}/{NAME}{self.number}"


def build(kernel: str) -> Path:
    """Return netdevsim's module for a guest's kernel, built from Debian's source of exactly that version.

    Raises UnsupportedError if this machine cannot build modules for it, LabError if the archive lacks something,
    ProgramError with the compiler's message.
    """
    try:
        tree = build_tree(f"vm:{kernel}")
    except UnsupportedError as error:
        raise UnsupportedError(f"{NAME}: {error.message}", remedy=error.remedy) from error
    files = kernel_source(kernel, _FOLDER)
    makefile = files.pop("Makefile")
    return modules.build(tree, NAME, files | {"Kbuild": _KBUILD + makefile})


@contextmanager
def loaded(host: Host, module: Path) -> Iterator[None]:
    """Load the module into the guest's kernel for this block. Raises HostError with the kernel's message."""
    target = f"/tmp/{module.name}"
    host.put(module, target)
    needed = host.run(["modinfo", "-F", "depends", target]).text.strip().split(",")
    for name in filter(None, needed):
        host.run(["modprobe", name])
    host.run(["insmod", target])
    try:
        yield
    finally:
        host.run(["rmmod", NAME], check=False)


@contextmanager
def card(host: Host, number: int, ports: int) -> Iterator[Card]:
    """Create a card with this number of ports for this block, with its interfaces up."""
    host.run(["tee", f"{_BUS}/new_device"], stdin=f"{number} {ports}".encode())
    try:
        names = host.run(["ls", f"{_BUS}/devices/{NAME}{number}/net"]).text.split()
        if len(names) != ports:
            raise HostError(f"{host.name}: {NAME}{number} has ports {', '.join(names) or 'none'} where {ports} are due")
        for name in names:
            host.run(["ip", "link", "set", name, "up"])
        yield Card(number, tuple(sorted(names)))
    finally:
        remove(host, number)


def remove(host: Host, number: int) -> None:
    """Remove a card; harmless if it is gone."""
    host.run(["tee", f"{_BUS}/del_device"], stdin=str(number).encode(), check=False)


@contextmanager
def in_guest(host: Host, module: Path, cards: dict[int, int]) -> Iterator[dict[int, Card]]:
    """Load the module and make cards for this block: number and ports of each."""
    with ExitStack() as stack:
        stack.enter_context(loaded(host, module))
        yield {number: stack.enter_context(card(host, number, ports)) for number, ports in cards.items()}
