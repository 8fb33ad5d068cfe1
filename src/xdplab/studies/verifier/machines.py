"""Where a kernel's verifier runs: this machine, or a guest of the VM lab; and what its clock is worth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from xdplab.deploy.native import build_room
from xdplab.errors import HostError
from xdplab.hosts import Host
from xdplab.hosts.local import LocalHost
from xdplab.labs import use_lab
from xdplab.resources import room
from xdplab.studies.verifier.points import HOST

ROOM = "bpfverify"
GUEST_DIR = "/tmp/bpfverify"
PATIENCE = {"time": 1, "instructions": 20}
"""How long a second of a busy machine's clock may take here: a guest that counts instructions is emulated."""

Clock = Literal["time", "instructions"]


@dataclass(frozen=True)
class Machine:
    """``clock``: what a nanosecond of this machine is: time, or one instruction (a guest under ``-icount``)."""

    host: Host
    command: str
    types: str
    clock: Clock
    release: str

    def place(self, path: Path) -> str:
        """Return where the machine finds a file of ours."""
        if isinstance(self.host, LocalHost):
            return str(path)
        target = f"{GUEST_DIR}/{path.name}"
        self.host.put(path, target)
        return target

    def verify(self, path: str, *options: str, deadline_s: float) -> bytes:
        """Return bpfverify's lines on one object. Raises HostError where it did not end well."""
        argv = [self.command, "--types", self.types, "--deadline", str(int(deadline_s)), *options, path]
        done = self.host.run(argv, deadline_s=deadline_s * PATIENCE[self.clock] + 10)
        if not done.stdout:
            raise HostError(f"{self.host.name}: bpfverify said nothing of {path}")
        return done.stdout


@contextmanager
def machine_of(kernel: str, cache_dir: Path, types: Path) -> Iterator[Machine]:
    """Give the machine that runs a kernel; a guest boots for it, and ends with the block."""
    local = LocalHost()
    command = build_room(local, ROOM, str(cache_dir))
    if kernel == HOST:
        yield Machine(local, command, str(types), "time", _release(local))
        return
    with use_lab(f"vm:{kernel}:count") as lab:
        guest = lab.host("guest")
        # Where it cannot be mounted, the charged peak stays unknown, and says so.
        guest.run(["mount", "-t", "cgroup2", "none", "/sys/fs/cgroup"], check=False)
        guest.put(Path(command), f"{GUEST_DIR}/{ROOM}", mode=0o755)
        guest.put(types, f"{GUEST_DIR}/types")
        yield Machine(guest, f"{GUEST_DIR}/{ROOM}", f"{GUEST_DIR}/types", "instructions", _release(guest))


def known_types() -> str:
    """Return the table of types that comes with the study."""
    return (room("verifier_progs") / "known.types").read_text()


def _release(host: Host) -> str:
    return host.run(["uname", "-r"]).text.strip()
