"""The machine of a kernel's verifier: this machine, or a guest of the VM lab; and the meaning of its clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from xdplab.deploy.native import build_tool
from xdplab.errors import HostError, LabError, UnsupportedError
from xdplab.hosts.local import LocalHost
from xdplab.labs.base import HOST, MITIGATED
from xdplab.studies import guests
from xdplab.studies.guests import place_of
from xdplab.studies.places import Place, require_rights
from xdplab.studies.verifier.generated import PROGRAMS
from xdplab.studies.verifier.given import PROGRAM_FLAGS, put_targets
from xdplab.studies.verifier.points import Given

NATIVE = "bpfverify"
_BPF_SETTING = "/proc/sys/kernel/unprivileged_bpf_disabled"
"""There with every kernel from 4.4 on that has bpf(2), which CONFIG_BPF_SYSCALL builds."""


@dataclass(frozen=True)
class LoaderPlace:
    """A place with the study's loader: ``command`` and its table of ``types`` are paths there.

    ``options``: those of bpfverify for all objects.
    """

    place: Place
    command: str
    types: str
    options: tuple[str, ...] = ()

    def verify(self, paths: Sequence[str], *options: str, deadline_s: float) -> bytes:
        """Return bpfverify's lines on objects, each with that deadline. Raises HostError if it did not end well."""
        fixed = [self.command, *self.options, "--types", self.types, "--deadline", str(int(deadline_s))]
        most_s = deadline_s * self.place.patience * len(paths) + 10
        done = self.place.host.run([*fixed, *options, *paths], deadline_s=most_s)
        if not done.stdout:
            raise HostError(f"{self.place.label}: bpfverify printed nothing about {', '.join(paths)}")
        return done.stdout


@contextmanager
def machine_of(kernel: str, cache_dir: Path, types: Path, given: Given) -> Iterator[LoaderPlace]:
    """Give the machine that runs a kernel; a guest boots for it, and ends with the block. ``types``: its table of
    types, instead of the one ``given``.

    Raises UnsupportedError if a guest does not have a module that is to be loaded, or if this user may not load
    programs into this machine's kernel.
    """
    require_rights((kernel,), "--kernel 6.1")
    command = build_tool(LocalHost(), NATIVE, str(cache_dir))
    with place_of(kernel if kernel == HOST else f"vm:{kernel}:count") as place:
        if kernel != HOST:
            # If it cannot be mounted, the charged peak is null with that reason.
            place.host.run(["mount", "-t", "cgroup2", "none", "/sys/fs/cgroup"], check=False)
            _load_modules(place, given.loaded)
        options = ["--program-flags", str(sum({PROGRAM_FLAGS[flag] for flag in given.flags}))] if given.flags else []
        options += ["--globals", place.put(Path(given.variables))] if given.variables else []
        options += ["--targets", put_targets(Path(given.attached), place)] if given.attached else []
        yield LoaderPlace(place, place.put(Path(command), mode=0o755), place.put(types), tuple(options))


def _load_modules(place: Place, names: Iterable[str]) -> None:
    for name in names:
        done = place.host.run(["modprobe", name], check=False)
        if not done.ok:
            raise UnsupportedError(f"{place.label}: module {name} cannot be loaded: {done.error_text.strip()}")


def require_kernels(names: Iterable[str]) -> None:
    """Raise LabError for an invalid or unavailable kernel, before anything runs."""
    for name in names:
        if name == HOST:
            continue
        try:
            guests.require_kernel(name)
        except LabError as error:
            why = error.message.removeprefix(f"kernel {name.removesuffix(MITIGATED)}: ")
            raise LabError(f"--kernel {name}: {why}", remedy=error.remedy) from error


def own_kernel(path: Path, modules: Path | None) -> str:
    """Return the name of a kernel that the user built, taken into the cache; a guest of it has shown bpf(2).

    Raises LabError for one that does not boot, UnsupportedError for one without bpf(2).
    """
    name = guests.adopt_kernel(path, modules)
    with place_of(f"vm:{name}:count") as place:
        if not place.host.run(["test", "-e", _BPF_SETTING], check=False).ok:
            raise UnsupportedError(f"{path}: this kernel has no bpf(2)", remedy="build it with CONFIG_BPF_SYSCALL=y")
    return name


def own_kernels(names: Iterable[str]) -> dict[str, str]:
    """Return version string and SHA-256 of each user's own kernel among ``names``."""
    return {f"kernel {name}": version for name in names if (version := guests.own_kernel_version(name))}


def known_types() -> str:
    """Return the table of types that comes with the study."""
    return (PROGRAMS / "known.types").read_text()
