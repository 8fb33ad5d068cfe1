"""Which way a guest runs: KVM only where a guest has just proved that it works here."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from xdplab.errors import LabError
from xdplab.labs.cache import cache_dir
from xdplab.labs.vm import initramfs, qemu
from xdplab.labs.vm.kernels import Kernel
from xdplab.labs.vm.qemu import WAYS, Way

DEVICE = Path("/dev/kvm")
PROBE_S = 6.0
"""Seconds a guest may take to its first process and to its end; where KVM works it takes one."""

_MARK = b"xdplab: a process runs"
_INIT = b"#!/bin/busybox sh\necho '" + _MARK + b"'\nexec /bin/busybox reboot -f\n"


def choose(asked: str, kernel: Kernel, busybox: str) -> tuple[Way, str]:
    """Return the way asked for, or KVM where it works and else functional; and why it is this one.

    Raises LabError for a way that does not exist, or KVM where it does not work.
    """
    if asked and asked not in WAYS:
        raise LabError(f"a guest cannot be run {asked!r}", remedy=f"the ways are {', '.join(WAYS)}")
    if asked in ("count", "functional"):
        return WAYS[asked], "asked for"
    refused = probe(kernel, busybox)
    if refused is None:
        return WAYS["kvm"], "asked for" if asked else "KVM works here"
    if asked:
        raise LabError(
            f"KVM does not work here: {refused}", remedy="leave the way away, or ask for functional or count"
        )
    return WAYS["functional"], f"KVM does not work here: {refused}"


def probe(kernel: Kernel, busybox: str) -> str | None:
    """Return None if a guest of that kernel boots under KVM, else why not. Asked once a boot of this machine."""
    if not DEVICE.exists():
        return f"there is no {DEVICE}"
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return f"{DEVICE} is not yours to use (group kvm)"
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    memory = cache_dir() / "vm" / f"kvm-{kernel.release}.json"
    try:
        known = json.loads(memory.read_text())
    except (OSError, ValueError):
        known = {}
    if known.get("boot_id") != boot_id:
        known = {"boot_id": boot_id, "refused": _boot(kernel, busybox)}
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text(json.dumps(known) + "\n")
    refused: str | None = known["refused"]
    return refused


def _boot(kernel: Kernel, busybox: str) -> str | None:
    """Boot to a first process that says so and ends the guest; return what went wrong."""
    first_root = initramfs.shell(Path(busybox), _INIT)
    with os.fdopen(os.memfd_create("xdplab-probe"), "wb") as file:
        file.write(first_root)
        file.flush()
        argv = [
            *(qemu.QEMU, "-M", "q35", *WAYS["kvm"].options, "-m", "256", "-nodefaults", "-no-user-config"),
            *("-no-reboot", "-display", "none", "-serial", "stdio", "-kernel", str(kernel.file("vmlinux"))),
            *("-initrd", f"/proc/self/fd/{file.fileno()}", "-append", qemu.COMMAND_LINE),
        ]
        try:
            done = subprocess.run(
                ["setpriv", "--pdeathsig", "KILL", *argv],
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=PROBE_S,
                check=False,
                pass_fds=(file.fileno(),),
            )
        except subprocess.TimeoutExpired:
            return f"a guest had not started after {PROBE_S:g} s"
    if _MARK in done.stdout:
        return None
    words = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
    return words[-1][:200] if words else "a guest ended without a word"
