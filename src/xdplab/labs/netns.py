"""Labs of two network namespaces on this machine: `netns` (the default one) and `netns:NAME`, side by side."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from xdplab.errors import LabError
from xdplab.hosts import Host, SshAddress, SshHost
from xdplab.labs import control
from xdplab.labs.base import Arrangement, Cpus, GeneratorPlace, arrangement_for, share_out
from xdplab.labs.netns_host import WORK_DIR

DEFAULT = "default"
TOOLS = ("unshare", "setpriv", "ip", "ethtool", "sshd", "ssh-keygen", "mount")
COMING_UP_S = 10.0
DUT_FIFO, TG_FIFO = 4, 6
"""Priorities of softirq threads in arrangement ``split``; the TG's are above its sender's, which would starve them."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_ROOT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PROMPT = "xdplab makes the lab's namespaces as root. [sudo] password for %p: "


class NetnsLab:
    """A `Lab` of two namespaces, known by what its keeper says."""

    kind = "netns"
    virtual = True
    times = True
    native_dir: Path | None = None
    generator = GeneratorPlace()
    another = "netns:NAME"

    def __init__(self, instance: str, uid: int, known: dict[str, Any]) -> None:
        self._instance, self._uid, self._known = instance, uid, known
        self._made: list[SshHost] = []
        self._threaded: bool | None = None
        dut, tg = known["hosts"]["dut"], known["hosts"]["tg"]
        self.name = full_name(instance)
        self.dut_interface: str = dut["interface"]
        self.tg_interface: str = tg["interface"]
        self.dut_mac: str = dut["mac"]
        self.tg_mac: str = tg["mac"]
        self.queues: int = known["queues"]
        self.arrangement: Arrangement = arrangement_for(len(known["cpus"]))

    @property
    def label(self) -> str:
        return f"virtual lab, netns, {len(self._known['cpus'])} CPUs, {self.arrangement}"

    @cached_property
    def dut(self) -> Host:
        return self._reach("dut")

    @cached_property
    def tg(self) -> Host:
        return self._reach("tg")

    def host(self, name: str) -> Host:
        if name not in self._known["hosts"]:
            raise LabError(f"lab {self.name} has no host {name!r}", remedy="it has dut and tg")
        return self.dut if name == "dut" else self.tg

    def cpus(self, arrangement: Arrangement | None = None) -> Cpus:
        return share_out(self._known["cpus"], arrangement or self.arrangement)

    def work_dir(self, host: Host) -> str:
        return WORK_DIR

    def place(self, arrangement: Arrangement, queues: int) -> dict[str, Any]:
        """A veth's softirq runs on the CPU that sent the frame; on a CPU of its own it must be a thread."""
        threaded = arrangement == "split"
        if self._threaded is not threaded:
            for host, interface in ((self.dut, self.dut_interface), (self.tg, self.tg_interface)):
                host.run(["tee", f"/sys/class/net/{interface}/threaded"], stdin=b"1\n" if threaded else b"0\n")
            self._threaded = threaded
        if not threaded:
            return {"softirq": "on the sender's CPU"}
        cpus = self.cpus(arrangement)
        return {
            "dut_threads": self._pin(self.dut_interface, cpus.dut, DUT_FIFO, queues),
            "tg_threads": self._pin(self.tg_interface, cpus.tg, TG_FIFO, 1),
            "dut_cpus": cpus.dut,
            "tg_cpus": cpus.tg,
        }

    def _pin(self, interface: str, cpus: tuple[int, ...], fifo: int, least: int) -> int:
        with contextlib.closing(self._keeper()) as connection:
            pinned = int(connection.ask("pin", interface=interface, cpus=cpus, fifo=fifo)["pinned"])
        if pinned < least:
            raise LabError(f"lab {self.name}: {interface} has {pinned} softirq threads where {least} are needed")
        return pinned

    @contextlib.contextmanager
    def lock(self, who: str | None = None) -> Iterator[None]:
        holding = self._keeper()
        try:
            if other := holding.ask("lock", who=who or f"process {os.getpid()}").get("locked_by"):
                raise LabError(
                    f"lab {self.name}: a run is going on in this lab: {other}",
                    remedy=f"wait for it (`xdplab status`), or use another lab: --lab {self.another}",
                )
            yield
        finally:
            holding.close()

    @property
    def leased(self) -> bool:
        return bool(self._known["leases"])

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        with contextlib.closing(self._keeper()) as lease:
            lease.ask("lease")
            try:
                yield
            finally:
                with contextlib.suppress(LabError):  # it is down already
                    if not lease.ask("release").get("kept"):
                        lease.wait_gone()

    def close(self) -> None:
        for host in self._made:
            host.close()

    def _keeper(self) -> control.Control:
        return _connected(self._uid, self._instance)

    def _reach(self, name: str) -> SshHost:
        self._made.append(SshHost(name, self._address(name)))
        return self._made[-1]

    def _address(self, name: str) -> SshAddress:
        known = self._known["hosts"][name]

        def connect() -> socket.socket:
            connection = self._keeper()
            connection.ask("ssh", host=name)
            return connection.detach()

        return SshAddress(name, key=known["client_key"], host_key=known["host_key"], connect=connect)


def full_name(instance: str) -> str:
    """Return what a person calls the lab."""
    return "netns" if instance == DEFAULT else f"netns:{instance}"


def arrangement(_instance: str) -> Arrangement:
    """Return the arrangement a lab on this machine has."""
    return arrangement_for(len(os.sched_getaffinity(0)))


def open_lab(instance: str, uid: int) -> NetnsLab:
    """Return the lab that is up. Raises LabError with the remedy where it is not."""
    connection = _connected(uid, instance)
    try:
        return NetnsLab(instance, uid, connection.ask("hello"))
    finally:
        connection.close()


def up(instance: str, uid: int, *, lease: bool = False) -> bool:
    """Bring a lab up, with sudo where needed. Returns whether it was made now; one that is up is left as it is."""
    if not _NAME.fullmatch(instance):
        raise LabError(f"lab name {instance!r} cannot be used", remedy="letters, digits, . _ - and at most 40")
    if _wait_listening(uid, instance):
        return False
    _require_tools()
    script = Path(__file__).with_name("netns_keeper.py")
    keeper = [sys.executable, "-I", "-B", str(script), "--address", control.address(uid, instance), f"--uid={uid}"]
    answer = _start(keeper + ["--lease"] * lease)
    if answer.get("taken") and _wait_listening(uid, instance):
        return False  # someone else was a moment faster
    if "error" in answer:
        raise LabError(f"lab {full_name(instance)}: {answer['error']}", remedy=answer.get("remedy"))
    return True


def down(instance: str, uid: int) -> bool:
    """Take a lab down. Returns whether one was up; when it returns, its processes are gone."""
    connection = control.connect(uid, instance)
    if connection is None:
        return False
    try:
        connection.ask("down")
        connection.wait_gone()
    finally:
        connection.close()
    return True


def status(uid: int) -> list[dict[str, Any]]:
    """Return a row for each of a user's labs that are up."""
    rows = []
    for instance in control.instances(uid):
        if (connection := control.connect(uid, instance)) is not None:
            with contextlib.closing(connection):
                rows.append(_row(instance, connection.ask("hello")))
    return rows


def _row(instance: str, known: dict[str, Any]) -> dict[str, Any]:
    secret = "client_key"
    hosts = {name: {k: v for k, v in host.items() if k != secret} for name, host in known["hosts"].items()}
    return {"lab": full_name(instance), "kind": "netns", **known, "hosts": hosts}


def _connected(uid: int, instance: str) -> control.Control:
    connection = control.connect(uid, instance)
    if connection is None:
        name = full_name(instance)
        raise LabError(f"lab {name} is not up", remedy=f"`xdplab lab up {name}`")
    return connection


def _wait_listening(uid: int, instance: str) -> bool:
    """Tell whether the lab is up; one that someone else is just making is waited for."""
    until = time.monotonic() + COMING_UP_S
    while time.monotonic() < until:
        if (connection := control.connect(uid, instance)) is not None:
            connection.close()
            return True
        if instance not in control.instances(uid):
            return False
        time.sleep(0.05)
    raise LabError(f"lab {full_name(instance)}: it has been coming up for {COMING_UP_S:g} s and still is not")


def _require_tools() -> None:
    missing = [tool for tool in TOOLS if shutil.which(tool, path=_ROOT_PATH) is None]
    if missing:
        raise LabError(
            f"no lab without {', '.join(missing)}",
            remedy="install what is missing: `shell/setup.sh`, or see `xdplab doctor`",
        )


def _start(keeper: list[str]) -> dict[str, Any]:
    """Run the keeper as root and return its one line."""
    done = _run(keeper) if os.geteuid() == 0 else _run_by_sudo(keeper)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        words = done.stderr.strip()[-300:] or f"it ended with exit code {done.returncode} and said nothing"
        raise LabError(f"the lab's keeper did not start: {words}") from None
    return answer


def _run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def _run_by_sudo(keeper: list[str]) -> subprocess.CompletedProcess[str]:
    ask_root = f"ask root to run `xdplab lab up --for-user {os.getuid()}`"
    if shutil.which("sudo") is None:
        raise LabError("making a lab needs root, and there is no sudo here", remedy=ask_root)
    if _run(["sudo", "-n", "true"]).returncode == 0:
        return _run(["sudo", "-n", "--", *keeper])
    if not sys.stdin.isatty():
        raise LabError("making a lab needs root, and sudo wants a password", remedy=f"`sudo -v` first, or {ask_root}")
    return subprocess.run(["sudo", "-p", _PROMPT, "--", *keeper], stdout=subprocess.PIPE, text=True, check=False)
