"""Labs in a guest of this machine: `vm:6.1`, or with the way to run it, `vm:6.1:count`. No root, no image."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from functools import cached_property
from pathlib import Path
from typing import Any

from xdplab.errors import LabError
from xdplab.hosts import Host, SshAddress
from xdplab.labs import control
from xdplab.labs.base import Arrangement
from xdplab.labs.netns import NetnsLab
from xdplab.labs.vm import kernels, kvm, qemu

DEFAULT = "6.1"
PREFIX = "@xdplab-vm"
START_S = 120.0
"""Seconds a guest may take to bring its lab up; under TCG it takes five, on a busy machine a minute."""

LOOPBACK = "127.0.0.1"
_NOTE = re.compile(r"^xdplab: (the guest .*)$", re.MULTILINE)


class VmLab(NetnsLab):
    """A `Lab` of two namespaces in a guest. A third host, ``guest``, is the guest itself."""

    kind = "vm"
    another = "vm:KERNEL"

    def __init__(self, instance: str, uid: int, known: dict[str, Any]) -> None:
        super().__init__(instance, uid, known)
        self.name = full_name(instance)
        self.arrangement: Arrangement = "shared"
        self.native_dir = _native_dir()
        self.times = self.way == "kvm"

    @property
    def way(self) -> str:
        """``kvm``, ``count`` or ``functional``: what the guest's clock is worth."""
        return str(self._known["way"])

    @property
    def label(self) -> str:
        return f"virtual lab, vm {self._known['kernel']}, {self.way}: {qemu.WAYS[self.way].says}"

    @cached_property
    def guest(self) -> Host:
        return self._reach("guest")

    def host(self, name: str) -> Host:
        return self.guest if name == "guest" else super().host(name)

    def _keeper(self) -> control.Control:
        return _connected(self._uid, self._instance)

    def _address(self, name: str) -> SshAddress:
        known = self._known["hosts"][name]
        return SshAddress(LOOPBACK, port=known["port"], key=known["client_key"], host_key=known["host_key"])


def full_name(instance: str) -> str:
    """Return what a person calls the lab."""
    return f"vm:{instance}"


def arrangement(_instance: str) -> Arrangement:
    """Return the arrangement of a guest: its CPUs are threads of one process, whatever their number."""
    return "shared"


def open_lab(instance: str, uid: int) -> VmLab:
    """Return the lab that is up. Raises LabError with the remedy where it is not, and why if it was."""
    with contextlib.closing(_connected(uid, instance)) as connection:
        return VmLab(instance, uid, connection.ask("hello"))


def up(instance: str, uid: int, *, lease: bool = False) -> bool:
    """Boot a guest and bring its lab up. Returns whether it was made now; one that is up is left as it is.

    The kernel is fetched if it is not in the cache. Raises LabError naming what is missing, or with the console's
    last words.
    """
    if _wait_listening(uid, instance):
        return False
    name, _, asked = instance.partition(":")
    tools = qemu.require_tools()
    kernel = kernels.kernel(name)
    way, why = kvm.choose(asked, kernel, tools["busybox"])
    wanted = {
        "address": control.address(uid, instance, PREFIX),
        "uid": uid,
        "lease": lease,
        "argv": qemu.argv(way, kernel, _native_dir()),
        "ports": qemu.PORTS,
        "start_s": START_S,
        "ping_s": way.ping_s,
        "console": str(console(instance)),
        "known": {"kernel": name, "release": kernel.release, "version": kernel.version, "way": way.name, "why": why},
    }
    answer = _start(wanted, qemu.initrd(kernel, tools["busybox"]))
    if answer.get("taken") and _wait_listening(uid, instance):
        return False  # someone else was a moment faster
    if "error" in answer:
        raise LabError(f"lab {full_name(instance)}: {answer['error']}", remedy=answer.get("remedy"))
    return True


def down(instance: str, uid: int) -> bool:
    """End a guest. Returns whether one was up; when it returns, its processes are gone."""
    connection = _connect(uid, instance)
    if connection is None:
        return False
    with contextlib.closing(connection):
        connection.ask("down")
        connection.wait_gone()
    return True


def status(uid: int) -> list[dict[str, Any]]:
    """Return a row for each of a user's guests that are up."""
    rows = []
    for instance in control.instances(uid, PREFIX):
        if (connection := _connect(uid, instance)) is not None:
            with contextlib.closing(connection):
                rows.append(_row(instance, connection.ask("hello")))
    return rows


def console(instance: str) -> Path:
    """Return the file with all that the last guest of that name wrote on its console."""
    return kernels.cache_dir() / "vm" / f"{instance}.console"


def _native_dir() -> Path:
    folder = kernels.cache_dir() / "native"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"{folder} cannot be made: {error.strerror}", remedy="set XDG_CACHE_HOME") from error
    return folder


def _row(instance: str, known: dict[str, Any]) -> dict[str, Any]:
    secret = "client_key"
    hosts = {name: {k: v for k, v in host.items() if k != secret} for name, host in known["hosts"].items()}
    return {"lab": full_name(instance), "kind": "vm", **known, "hosts": hosts, "console": str(console(instance))}


def _connect(uid: int, instance: str) -> control.Control | None:
    where = f"lab {full_name(instance)}"
    return control.connect_to(control.address(uid, instance, PREFIX), where, keepers=(uid, 0))


def _connected(uid: int, instance: str) -> control.Control:
    connection = _connect(uid, instance)
    if connection is None:
        name = full_name(instance)
        raise LabError(f"lab {name} is not up{_last_end(instance)}", remedy=f"`xdplab lab up {name}`")
    return connection


def _last_end(instance: str) -> str:
    """Return how the last guest of that name ended, if not by our asking."""
    try:
        notes = _NOTE.findall(console(instance).read_text(errors="replace"))
    except OSError:
        return ""
    return f": last time {notes[-1]}; its console: {console(instance)}" if notes else ""


def _wait_listening(uid: int, instance: str) -> bool:
    """Tell whether the lab is up; one that someone else is just making is waited for."""
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if (connection := _connect(uid, instance)) is not None:
            connection.close()
            return True
        if instance not in control.instances(uid, PREFIX):
            return False
        time.sleep(0.1)
    raise LabError(f"lab {full_name(instance)}: it has been coming up for {START_S:g} s and still is not")


def _start(wanted: dict[str, Any], initrd: bytes) -> dict[str, Any]:
    """Run the keeper, with the guest's first root in a file that has no name, and return its one line."""
    with os.fdopen(os.memfd_create("xdplab-initrd"), "wb") as file:
        file.write(initrd)
        file.flush()
        done = subprocess.run(
            [sys.executable, "-I", "-B", str(Path(__file__).with_name("keeper.py"))],
            input=json.dumps(wanted | {"initrd": file.fileno()}),
            capture_output=True,
            text=True,
            check=False,
            pass_fds=(file.fileno(),),
        )
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        words = done.stderr.strip()[-300:] or f"it ended with exit code {done.returncode} and said nothing"
        raise LabError(f"the lab's keeper did not start: {words}") from None
    return answer
