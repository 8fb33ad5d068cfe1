"""Labs: a DUT, a TG and the link between them, by name: brought up, opened, taken down."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast

from xdplab.errors import LabError
from xdplab.labs import keeper_socket
from xdplab.labs.base import Arrangement as Arrangement
from xdplab.labs.base import Lab as Lab
from xdplab.labs.control import owner, user_name


class Labs(Protocol):
    """The functions of a kind's module; ``instance`` is the part of a name after the colon, or `DEFAULT`."""

    DEFAULT: str

    def require_name(self, instance: str, /) -> None:
        """Raise LabError for a name that is invalid for this kind of lab."""

    def open_lab(self, instance: str, uid: int, /) -> Lab: ...
    def up(self, instance: str, uid: int, /, *, lease: bool = False) -> bool: ...
    def down(self, instance: str, uid: int, /) -> bool: ...
    def status(self, uid: int, /) -> list[dict[str, Any]]:
        """Only of kinds that are ``listed``."""

    def arrangement(self, instance: str, /) -> Arrangement: ...


@dataclass(frozen=True)
class LabKind:
    """One kind of lab. Its module is loaded only for a lab of this kind, because loading that of inventories is slow.

    ``listed``: this machine knows which labs of this kind are up; inventories exist only as files. ``counts`` tells of
    an instance whether its clock shows instructions.
    """

    names: str
    module: str
    listed: bool = True
    counts: Callable[[str], bool] = lambda _: False

    @property
    def labs(self) -> Labs:
        return cast("Labs", importlib.import_module(self.module))


KINDS: dict[str, LabKind] = {
    "netns": LabKind("netns, netns:NAME", "xdplab.labs.netns.lab"),
    "vm": LabKind(
        "vm:KERNEL, vm:KERNEL:kvm|count|functional, vm:KERNEL:WAY:NAME, each with :netkit, :tap, "
        ":igb, :vmxnet3 or :e1000e",
        "xdplab.labs.vm.kind",
        counts=lambda instance: instance.split(":")[1:2] == ["count"],
    ),
    "uml": LabKind("uml, uml:NAME", "xdplab.labs.uml.lab"),
    "inventory": LabKind("an inventory FILE.yaml", "xdplab.labs.servers.lab", listed=False),
    "net.config": LabKind("a net.config of the kernel's tests", "xdplab.labs.servers.netconfig", listed=False),
}
"""Add a line here for a new kind of lab."""


def _parted(name: str) -> tuple[LabKind, str]:
    if name.endswith((".yaml", ".yml")):
        return KINDS["inventory"], name
    if name.rpartition("/")[2] == "net.config":
        return KINDS["net.config"], name
    kind, _, instance = name.partition(":")
    if kind not in KINDS or not KINDS[kind].listed:
        supported = ", ".join(kind.names for kind in KINDS.values())
        raise LabError(f"lab {name!r}: no such kind of lab", remedy=f"supported are: {supported}")
    return KINDS[kind], instance or KINDS[kind].labs.DEFAULT


def _find(name: str) -> tuple[LabKind, str]:
    """Return kind and instance of a valid lab name. Every function with a name calls this one."""
    kind, instance = _parted(name)
    kind.labs.require_name(instance)
    return kind, instance


def require_name(name: str) -> None:
    """Raise LabError for an invalid lab name: by its kind, its form or its kernel."""
    _find(name)


def open_lab(name: str, *, for_user: str | None = None) -> Lab:
    """Return the lab of that name, which is up. Raises LabError with the remedy if it is not."""
    kind, instance = _find(name)
    return kind.labs.open_lab(instance, owner(for_user))


def up(name: str, *, for_user: str | None = None) -> bool:
    """Bring a lab up for its owner. Returns whether it was made now; a lab that is already up stays unchanged."""
    kind, instance = _find(name)
    return kind.labs.up(instance, owner(for_user))


def down(name: str, *, for_user: str | None = None) -> bool:
    """Take a lab down, even if another process made it. Returns whether it was up."""
    kind, instance = _find(name)
    return kind.labs.down(instance, owner(for_user))


def used_by(name: str, *, for_user: str | None = None) -> str | None:
    """Return who measures in a lab: a run, or a process; None if it is free, or not up."""
    place = kind, _ = _find(name)
    rows = kind.labs.status(owner(for_user)) if kind.listed else []
    return next((row["locked_by"] for row in rows if _parted(row["lab"]) == place), None)


def status(*, for_user: str | None = None) -> list[dict[str, Any]]:
    """Return a row for every lab of the owner that is up."""
    return _rows(owner(for_user))


def of_others(*, for_user: str | None = None) -> dict[str, list[dict[str, Any]]]:
    """Return the other users who have labs up, each with rows as of `status`: without rows where this process may not
    look into their folders, as only root may."""
    rows = {other: _rows(other) for other in keeper_socket.other_owners(owner(for_user))}
    return {user_name(other): labs for other, labs in rows.items() if labs or os.geteuid() != 0}


def _rows(uid: int) -> list[dict[str, Any]]:
    return [row for kind in KINDS.values() if kind.listed for row in kind.labs.status(uid)]


def default_arrangement(name: str) -> Arrangement:
    """Return the meaning of ``arrangement: auto`` in the lab of that name, whether it is up or not."""
    kind, instance = _find(name)
    return kind.labs.arrangement(instance)


def counts(name: str) -> bool:
    """Tell whether the clock in the lab of that name shows instructions and no time, whether it is up or not."""
    kind, instance = _find(name)
    return kind.counts(instance)


@contextlib.contextmanager
def use_lab(name: str) -> Iterator[Lab]:
    """Give the lab of that name. If it is not up, it is made, and it ends with the last process that uses it."""
    kind, instance = _find(name)
    uid = owner()
    with contextlib.ExitStack() as stack:
        came_up = kind.labs.up(instance, uid, lease=True)
        lab = kind.labs.open_lab(instance, uid)
        if came_up or lab.leased:
            stack.enter_context(lab.hold())
        stack.callback(lab.close)
        yield lab
