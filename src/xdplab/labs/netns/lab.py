"""Labs of two network namespaces on this machine: `netns` (the default one) and `netns:NAME`, side by side."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdplab.errors import LabError
from xdplab.labs.base import (
    DUT_FIFO,
    TG_FIFO,
    Arrangement,
    Clock,
    Cpus,
    GeneratorPlace,
    LinkEnds,
    arrangement_for,
    share_out,
    turned,
)
from xdplab.labs.cache import native_dir
from xdplab.labs.keepers import DEFAULT as DEFAULT
from xdplab.labs.keepers import KeeperLab, Keepers
from xdplab.labs.keepers import require_name as require_name
from xdplab.labs.netns.host import WORK_DIR
from xdplab.lazy import lazily

with lazily():  # only a run needs it, and its host
    from xdplab.labs import receiving

if TYPE_CHECKING:
    from xdplab.hosts import Host

TOOLS = ("unshare", "setpriv", "ip", "ethtool", "sshd", "ssh-keygen", "mount")
COMING_UP_S = 10.0

_ROOT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PROMPT = "xdplab makes the lab's namespaces as root. [sudo] password for %p: "


def label(facts: dict[str, Any]) -> str:
    """Return the lab's label in figures."""
    cpus = len(facts["cpus"])
    return f"virtual lab, netns, {cpus} CPUs, {arrangement_for(cpus)}"


KEEPERS = Keepers("netns", label, COMING_UP_S, users=(0,))  # only root can make such a lab


down, status = KEEPERS.down, KEEPERS.status


class NetnsLab(KeeperLab):
    """A `Lab` of two namespaces, as its keeper describes it."""

    kind = "netns"
    virtual = True
    clock: Clock | None = "time"
    generator = GeneratorPlace()
    another = "netns:NAME"
    keepers = KEEPERS

    def __init__(self, instance: str, uid: int, facts: dict[str, Any]) -> None:
        super().__init__(instance, uid, facts)
        self._threaded: bool | None = None
        self._second: LinkEnds | None = None
        self.arrangement: Arrangement = arrangement_for(len(facts["cpus"]))

    @property
    def native_dir(self) -> Path:
        return native_dir()

    @property
    def _ends(self) -> dict[str, Any]:
        """The facts about the two hosts, by name."""
        hosts: dict[str, Any] = self._facts["hosts"]
        return hosts

    @property
    def dut_interface(self) -> str:
        return str(self._ends["dut"]["interface"])

    @property
    def tg_interface(self) -> str:
        return str(self._ends["tg"]["interface"])

    @property
    def dut_mac(self) -> str:
        return str(self._ends["dut"]["mac"])

    @property
    def tg_mac(self) -> str:
        return str(self._ends["tg"]["mac"])

    def second_link(self, *, make: bool = True) -> LinkEnds | None:
        if self._second is None:
            with contextlib.closing(self._keeper()) as connection:
                link = connection.ask("second_link", make=make)
            if not link:
                return None
            dut, tg = link["dut"], link["tg"]
            self._second = LinkEnds(dut["interface"], tg["interface"], dut["mac"], tg["mac"])
            self._threaded = None
        return self._second

    @cached_property
    def dut(self) -> Host:
        return self._reach("dut")

    @cached_property
    def tg(self) -> Host:
        return self._reach("tg")

    def host(self, name: str) -> Host:
        if name not in ("dut", "tg"):
            raise LabError(f"lab {self.name} has no host {name!r}", remedy="it has dut and tg")
        return self.dut if name == "dut" else self.tg

    def cpus(self, arrangement: Arrangement | None = None) -> Cpus:
        return share_out(self._facts["cpus"], arrangement or self.arrangement)

    def work_dir(self, host: Host) -> str:
        return WORK_DIR

    def state_dir(self, host: Host) -> str:
        return f"{WORK_DIR}/state"

    def place(self, arrangement: Arrangement, queues: int) -> dict[str, Any]:
        """A veth's softirq runs on the CPU that sent the frame; to run on its own CPU it must be a thread."""
        threaded = arrangement == "split"
        second = self._second
        if self._threaded is not threaded:
            ends = [(self.dut, self.dut_interface), (self.tg, self.tg_interface)]
            ends += [(self.dut, second.dut_interface), (self.tg, second.tg_interface)] if second else []
            receiving.receive_in_threads(ends, threaded)
            self._threaded = threaded
        if not threaded:
            return {"softirq": "on the sender's CPU"}
        cpus = self.cpus(arrangement)
        if second:  # its direction gets the CPUs after those of the first one's queues
            self._pin(second.dut_interface, turned(cpus.dut, queues), DUT_FIFO, queues)
            self._pin(second.tg_interface, turned(cpus.tg, queues), TG_FIFO, 1)
        return {
            "dut_threads": self._pin(self.dut_interface, cpus.dut, DUT_FIFO, queues),
            "tg_threads": self._pin(self.tg_interface, cpus.tg, TG_FIFO, 1),
            "dut_cpus": cpus.dut,
            "tg_cpus": cpus.tg,
        }

    def regain(self) -> None:
        self._threaded = None  # a watchdog has restored the devices

    def _pin(self, interface: str, cpus: tuple[int, ...], fifo: int, least: int) -> int:
        with contextlib.closing(self._keeper()) as connection:
            pinned = int(connection.ask("pin", interface=interface, cpus=cpus, fifo=fifo)["pinned"])
        if pinned < least:
            raise LabError(f"lab {self.name}: {interface} has {pinned} softirq threads where {least} are needed")
        return pinned


def arrangement(_instance: str) -> Arrangement:
    """Return the arrangement a lab on this machine has."""
    return arrangement_for(len(os.sched_getaffinity(0)))


def open_lab(instance: str, uid: int) -> NetnsLab:
    """Return the lab that is up. Raises LabError with the remedy if it is not."""
    return NetnsLab(instance, uid, KEEPERS.hello(uid, instance))


def up(instance: str, uid: int, *, lease: bool = False) -> bool:
    """Bring a lab up, with sudo if needed. Returns whether it was made now; a lab that is already up stays
    unchanged."""
    if KEEPERS.is_up(uid, instance):
        return False
    _require_tools()
    script = Path(__file__).with_name("keeper.py")
    keeper = [sys.executable, "-I", "-B", str(script), "--socket", str(KEEPERS.address(uid, instance)), f"--uid={uid}"]
    return KEEPERS.came_up(uid, instance, _start(keeper + ["--lease"] * lease, KEEPERS.title(instance)))


def _require_tools() -> None:
    missing = [tool for tool in TOOLS if shutil.which(tool, path=_ROOT_PATH) is None]
    if missing:
        raise LabError(
            f"a lab needs {', '.join(missing)}",
            remedy="install what is missing: `shell/setup.sh`, or see `xdplab doctor`",
        )


def _start(keeper: list[str], lab: str) -> subprocess.CompletedProcess[str]:
    """Run the keeper of ``lab`` as root until it has printed its one line."""
    return _run(keeper) if os.geteuid() == 0 else _run_by_sudo(keeper, lab)


def _run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def _run_by_sudo(keeper: list[str], lab: str) -> subprocess.CompletedProcess[str]:
    ask_root = f"ask root to run `xdplab lab up {lab} --for-user {os.getuid()}`"
    if shutil.which("sudo") is None:
        raise LabError("making a lab needs root, and there is no sudo here", remedy=ask_root)
    if _run(["sudo", "-n", "true"]).returncode == 0:
        return _run(["sudo", "-n", "--", *keeper])
    if not sys.stdin.isatty():
        raise LabError(
            "making a lab needs root, and sudo asks for a password", remedy=f"`sudo -v` first, or {ask_root}"
        )
    done = subprocess.run(["sudo", "-p", _PROMPT, "--", *keeper], stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:  # it has said why itself, on the terminal
        raise LabError("making a lab needs root, and sudo did not give it", remedy=ask_root)
    return done
