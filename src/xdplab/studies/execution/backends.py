"""Backends that a place does not have: known for its kind, or for this machine found out before a run begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

from xdplab.errors import HiddenSettingError, UnsupportedError
from xdplab.labs.base import HOST
from xdplab.studies.guests import architecture_of, build_tree, compiler_of, module_refusal, place_of
from xdplab.studies.places import Place, require_rights

_UML = {
    "jit": "user-mode Linux has no JIT",
    "user": "a process of user-mode Linux is traced: its clock is a system call",
}

_NOT_ASKED = "a fault in it would take this machine down: --host-module inserts it here too"


_UNTRIED = "it was never measured there"
_NOT_TRIED = {"riscv64": ("module",), "ppc64el": ("user", "module")}
"""By architecture, the backends that were not."""


@cache
def absent(place: str, host_module: bool = False) -> Mapping[str, str]:
    """Return the backends that a place cannot have, each with the reason. What a guest lacks is found by trying.

    ``host_module``: whether this machine's own kernel may be given the module.
    """
    kind = place.partition(":")[0]
    if architecture := architecture_of(place):
        return _of_another(place) | dict.fromkeys(_NOT_TRIED.get(architecture.name, ()), _UNTRIED)
    if kind == HOST:
        return _of_this_machine() | ({} if host_module else {"module": _NOT_ASKED})
    return _UML if kind == "uml" else {}


def left_out(places: Sequence[str], backends: Sequence[str], host_module: bool = False) -> list[str]:
    """Return notes on which backends are not measured at which place."""
    pairs = ((place, backend, why) for place in places for backend, why in absent(place, host_module).items())
    return [f"{place}: {backend} is left out: {why}" for place, backend, why in pairs if backend in backends]


def _of_another(place: str) -> dict[str, str]:
    """Check whether a module can be built for a kernel of another architecture. Raises MissingToolError."""
    compiler_of(place)  # without one, not even the driver can be built
    why = module_refusal(place)
    return {"module": why} if why else {}


def _of_this_machine() -> dict[str, str]:
    """Check optional features of a kernel: its interpreter (switched on briefly), headers for a module."""
    reasons = {}
    with place_of(HOST) as place:
        for backend, attempt in _ATTEMPTS.items():
            try:
                attempt(place)
            except (UnsupportedError, HiddenSettingError) as error:
                reasons[backend] = str(error)
    return reasons


def _switch(compiled: bool, place: Place) -> None:
    require_rights((place.name,), "--place vm:6.1:count")
    with place.jit(compiled):
        pass


_ATTEMPTS: dict[str, Callable[[Place], object]] = {
    "interpreter": partial(_switch, False),
    "jit": partial(_switch, True),
    "module": lambda place: build_tree(place.name),
}
