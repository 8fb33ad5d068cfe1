"""Labs: a DUT, a TG and the link between them, by name: brought up, opened, taken down."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from xdplab.errors import LabError
from xdplab.labs import inventory_lab, netns, uml, vm
from xdplab.labs.base import Arrangement, Cpus, Lab
from xdplab.labs.control import owner

__all__ = ["Arrangement", "Cpus", "Lab", "default_arrangement", "down", "open_lab", "status", "up", "use_lab"]


@dataclass(frozen=True)
class Kind:
    """What can be done with labs of one kind; ``instance`` is what follows the colon of a name."""

    names: str
    default: str
    open: Callable[[str, int], Lab]
    up: Callable[..., bool]
    down: Callable[[str, int], bool]
    status: Callable[[int], list[dict[str, Any]]]
    arrangement: Callable[[str], Arrangement]


KINDS: dict[str, Kind] = {
    "netns": Kind(
        names="netns, netns:NAME",
        default=netns.DEFAULT,
        open=netns.open_lab,
        up=netns.up,
        down=netns.KEEPERS.down,
        status=netns.KEEPERS.status,
        arrangement=netns.arrangement,
    ),
    "vm": Kind(
        names="vm:KERNEL, vm:KERNEL:kvm|count|functional, each with :tap",
        default=vm.DEFAULT,
        open=vm.open_lab,
        up=vm.up,
        down=vm.KEEPERS.down,
        status=vm.KEEPERS.status,
        arrangement=vm.arrangement,
    ),
    "uml": Kind(
        names="uml, uml:NAME",
        default=uml.DEFAULT,
        open=uml.open_lab,
        up=uml.up,
        down=uml.KEEPERS.down,
        status=uml.KEEPERS.status,
        arrangement=uml.arrangement,
    ),
    "inventory": Kind(
        names="an inventory FILE.yaml",
        default="",
        open=inventory_lab.open_lab,
        up=inventory_lab.up,
        down=inventory_lab.down,
        status=inventory_lab.status,
        arrangement=inventory_lab.arrangement,
    ),
}
"""A new kind of lab is a line here."""


def _find(name: str) -> tuple[Kind, str]:
    if name.endswith((".yaml", ".yml")):
        return KINDS["inventory"], name
    kind, _, instance = name.partition(":")
    if kind not in KINDS or kind == "inventory":
        supported = ", ".join(kind.names for kind in KINDS.values())
        raise LabError(f"lab {name!r}: no such kind of lab", remedy=f"supported are: {supported}")
    return KINDS[kind], instance or KINDS[kind].default


def open_lab(name: str, *, for_user: str | None = None) -> Lab:
    """Return the lab of that name, which is up. Raises LabError with the remedy where it is not."""
    kind, instance = _find(name)
    return kind.open(instance, owner(for_user))


def up(name: str, *, for_user: str | None = None) -> bool:
    """Bring a lab up for its owner. Returns whether it was made now: one that is up stays as it is."""
    kind, instance = _find(name)
    return kind.up(instance, owner(for_user))


def down(name: str, *, for_user: str | None = None) -> bool:
    """Take a lab down, whoever made it. Returns whether it was up."""
    kind, instance = _find(name)
    return kind.down(instance, owner(for_user))


def status(*, for_user: str | None = None) -> list[dict[str, Any]]:
    """Return a row for every lab of the owner that is up."""
    return [row for kind in KINDS.values() for row in kind.status(owner(for_user))]


def default_arrangement(name: str) -> Arrangement:
    """Return what ``arrangement: auto`` means in the lab of that name, whether it is up or not."""
    kind, instance = _find(name)
    return kind.arrangement(instance)


@contextlib.contextmanager
def use_lab(name: str) -> Iterator[Lab]:
    """Give the lab of that name. One that is not up is made, and ends with the last process that uses it so."""
    kind, instance = _find(name)
    uid = owner()
    with contextlib.ExitStack() as stack:
        made = kind.up(instance, uid, lease=True)
        lab = kind.open(instance, uid)
        if made or lab.leased:
            stack.enter_context(lab.hold())
        stack.callback(lab.close)
        yield lab
