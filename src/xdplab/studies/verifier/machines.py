"""Where a kernel's verifier runs: this machine, or a guest of the VM lab; and what its clock is worth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from xdplab.deploy.native import build_tool
from xdplab.errors import HostError
from xdplab.hosts.local import LocalHost
from xdplab.studies.places import HOST, Place, place_of
from xdplab.studies.verifier.families import PROGRAMS

NATIVE = "bpfverify"


@dataclass(frozen=True)
class LoaderPlace:
    """A place with the study's loader on it: ``command`` and its table of ``types``, as the place finds them."""

    place: Place
    command: str
    types: str

    def verify(self, path: str, *options: str, deadline_s: float) -> bytes:
        """Return bpfverify's lines on one object. Raises HostError if it did not end well."""
        argv = [self.command, "--types", self.types, "--deadline", str(int(deadline_s)), *options, path]
        done = self.place.host.run(argv, deadline_s=deadline_s * self.place.patience + 10)
        if not done.stdout:
            raise HostError(f"{self.place.label}: bpfverify said nothing of {path}")
        return done.stdout


@contextmanager
def machine_of(kernel: str, cache_dir: Path, types: Path) -> Iterator[LoaderPlace]:
    """Give the machine that runs a kernel; a guest boots for it, and ends with the block."""
    command = build_tool(LocalHost(), NATIVE, str(cache_dir))
    with place_of(kernel if kernel == HOST else f"vm:{kernel}:count") as place:
        if kernel != HOST:
            # If it cannot be mounted, the charged peak is null with that reason.
            place.host.run(["mount", "-t", "cgroup2", "none", "/sys/fs/cgroup"], check=False)
        yield LoaderPlace(place, place.put(Path(command), mode=0o755), place.put(types))


def known_types() -> str:
    """Return the table of types that comes with the study."""
    return (PROGRAMS / "known.types").read_text()
