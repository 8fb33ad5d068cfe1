"""The lab `uml`: a user-mode Linux, which runs at the machine's own speed, without root. One host, no link."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from xdplab.errors import LabError, UnsupportedError
from xdplab.hosts import Host
from xdplab.labs.base import Arrangement, Clock, Cpus, GeneratorPlace
from xdplab.labs.cache import cache_dir, native_dir
from xdplab.labs.guests.keepers import GuestKeepers, KeeperScript, evicted_bytes
from xdplab.labs.guests.keepers import arrangement as arrangement
from xdplab.labs.keepers import DEFAULT as DEFAULT
from xdplab.labs.keepers import KeeperLab
from xdplab.labs.keepers import require_name as require_name
from xdplab.labs.netns.host import WORK_DIR
from xdplab.labs.tools import require_tools
from xdplab.labs.uml import xstate
from xdplab.labs.uml.package import Package, package

START_S = 60.0
"""Seconds it may take to come up; it takes two, on a busy machine eight."""

OWN_SPEED = "runs at this machine's own speed"
WITHOUT_AVX = f"{OWN_SPEED}, without AVX inside: its kernel cannot store the registers of a CPU with AMX"
MEMORY_MB = 1024  # allocated on demand, in addition to the memory that evicts this machine's caches
LINE = "{line}"  # filled in by the keeper, which makes it
_NEEDED = {
    "busybox": "busybox-static",
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "insmod": "kmod",
    "sshd": "openssh-server",
}
_HERE = Path(__file__).parent


def label(facts: dict[str, Any]) -> str:
    """Return the lab's label in figures."""
    return f"virtual lab, uml {facts['kernel']}, user-mode Linux: times of its interpreter and modules"


KEEPERS = GuestKeepers("uml", label, START_S)

down, status = KEEPERS.down, KEEPERS.status


class UmlLab(KeeperLab):
    """A `Lab` of one host, ``guest``. A request for a link gets an error."""

    kind = "uml"
    keepers = KEEPERS
    another = "uml:NAME"
    virtual = True
    clock: Clock | None = "time"
    arrangement: Arrangement = "shared"
    generator = GeneratorPlace()

    @property
    def native_dir(self) -> Path | None:
        return native_dir()

    @cached_property
    def guest(self) -> Host:
        return self._reach("guest")

    def host(self, name: str) -> Host:
        return self.guest if name == "guest" else self._no_link(f"no host {name!r}")

    @property
    def dut(self) -> Host:
        return self.host("dut")

    @property
    def tg(self) -> Host:
        return self.host("tg")

    @property
    def dut_interface(self) -> str:
        return self._no_link("no link")

    @property
    def tg_interface(self) -> str:
        return self._no_link("no link")

    @property
    def dut_mac(self) -> str:
        return self._no_link("no link")

    @property
    def tg_mac(self) -> str:
        return self._no_link("no link")

    def cpus(self, arrangement: Arrangement | None = None) -> Cpus:
        return Cpus(dut=(0,), tg=(0,))

    def place(self, arrangement: Arrangement, queues: int) -> dict[str, Any]:
        return self._no_link("no link")

    def work_dir(self, host: Host) -> str:
        return WORK_DIR

    def state_dir(self, host: Host) -> str:
        return f"{WORK_DIR}/state"

    def _no_link(self, what: str) -> NoReturn:
        raise LabError(f"lab {self.name} has {what}: it has one host, guest", remedy="for XDP use netns or vm:KERNEL")


def open_lab(instance: str, uid: int) -> UmlLab:
    """Return the lab that is up. Raises LabError with the remedy if it is not, and why if it was."""
    return UmlLab(instance, uid, KEEPERS.hello(uid, instance))


def up(instance: str, uid: int, *, lease: bool = False) -> bool:
    """Bring a user-mode Linux up. Returns whether it was made now; one that is already up stays unchanged.

    It is fetched if it is not in the cache. Raises LabError naming what is missing, or with the console's last line.
    """
    if KEEPERS.is_up(uid, instance):
        return False
    require_tools("a uml lab", _NEEDED)
    require_namespaces()
    kernel = package()
    folder = _own_dir(instance)
    script = KeeperScript(_HERE / "keeper.py", {"argv": _argv(kernel, folder), "own_dir": str(folder)})
    facts = {
        **{"kernel": kernel.series, "release": kernel.release, "version": kernel.version, "way": "uml"},
        "why": WITHOUT_AVX if xstate.is_too_long() else OWN_SPEED,
    }
    return KEEPERS.start(script, uid, instance, lease=lease, facts=facts)


def _argv(kernel: Package, folder: Path) -> list[str]:
    return [
        *(str(kernel.kernel), f"mem={memory_mb()}M", f"uml_dir={folder}/", "umid=guest"),
        *("rootfstype=hostfs", "rootflags=/", "ro", "quiet", "panic=-1"),
        *("con=null", "con0=null,fd:1", "ssl=null", f"ssl0=fd:{LINE}"),
        *(f"{name}={value}" for name, value in xstate.ENVIRONMENT.items() if xstate.is_too_long()),
        *("init=/bin/sh", "--", str(_HERE / "init.sh"), str(kernel.modules), str(native_dir())),
        *(sys.executable, "-I", "-S", "-B", str(_HERE / "guest.py")),
    ]


def memory_mb() -> int:
    """Return the guest's memory: what it needs, plus the size of this machine's caches, which cold calls evict."""
    try:
        return MEMORY_MB + (evicted_bytes() >> 20)
    except UnsupportedError:  # no cache is known, so none will be evicted
        return MEMORY_MB


def _own_dir(instance: str) -> Path:
    """Return an empty folder for the kernel's own files: leftovers in the default, ~/.uml, stop it from starting."""
    folder = cache_dir() / "uml" / instance
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def require_namespaces() -> None:
    """Raise LabError where an ordinary user may not make a PID namespace: without one helpers would be left behind."""
    if os.geteuid() == 0:
        return
    argv = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "true"]
    if subprocess.run(argv, capture_output=True, check=False).returncode:
        raise LabError(
            "no lab uml: this machine lets no ordinary user make a user namespace",
            remedy="`sysctl kernel.unprivileged_userns_clone=1` (Debian), or `sysctl "
            "kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu)",
        )
