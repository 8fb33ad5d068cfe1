"""How a guest runs, and with which CPU model: found by a test boot with the installed QEMU.

The test is a guest that boots to its first process. It is done once per boot of this machine, version of QEMU and
kernel, and stored: KVM may exist and not work, and a CPU model that works in one QEMU may hang a kernel in the next.
That no model boots is stored for `RETRY_S` only: the machine may have been too busy.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from xdplab.errors import LabError, MissingToolError
from xdplab.labs.cache import cache_dir
from xdplab.labs.vm import initramfs, qemu
from xdplab.labs.vm.kernels import Kernel
from xdplab.labs.vm.qemu import WAYS, Acceleration

DEVICE = Path("/dev/kvm")
RETRY_S = 600.0

_MARK = b"xdplab: a process runs"
_INIT = b"#!/bin/busybox sh\necho '" + _MARK + b"'\nexec /bin/busybox reboot -f\n"


@dataclass(frozen=True)
class Choice:
    """How a guest will run: the way, QEMU's name of its CPU model, and the reason for the way."""

    way: Acceleration
    cpu: str
    why: str


def choose(way: str, kernel: Kernel, tools: dict[str, str]) -> Choice:
    """Return the requested way (default: KVM if it works, else functional) and the CPU model with which a guest boots.

    Raises MissingToolError if KVM is requested but does not work, LabError for an unknown way, or a kernel that boots
    with no CPU model.
    """
    if way and way not in WAYS:
        raise LabError(f"a guest cannot be run {way!r}", remedy=f"the ways are {', '.join(WAYS)}")
    if way in ("count", "functional"):
        return _emulated(WAYS[way], "asked for", kernel, tools)
    cpu, refused = kvm(kernel, tools)
    if cpu is not None:
        return Choice(WAYS["kvm"], cpu, "asked for" if way else "KVM works here")
    if way:
        raise MissingToolError(
            f"KVM does not work here: {refused}", remedy="leave kvm out of the lab's name, or write functional or count"
        )
    return _emulated(WAYS["functional"], f"KVM does not work here: {refused}", kernel, tools)


def kvm(kernel: Kernel, tools: dict[str, str]) -> tuple[str | None, str]:
    """Return the CPU with which a guest of that kernel boots under KVM; None, and why, if it does not."""
    if not DEVICE.exists():
        return None, f"there is no {DEVICE}"
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return None, f"{DEVICE} is not accessible to you (group kvm)"
    return _remembered(WAYS["kvm"], kernel, tools)[:2]


def _emulated(way: Acceleration, why: str, kernel: Kernel, tools: dict[str, str]) -> Choice:
    cpu, refused, memory = _remembered(way, kernel, tools)
    if cpu is None:
        raise LabError(
            f"no guest of kernel {kernel.name} boots with {_version(tools)}: {refused}",
            remedy=f"another kernel or QEMU may do; remove {memory} to try this one again",
        )
    return Choice(way, cpu, why)


def _remembered(way: Acceleration, kernel: Kernel, tools: dict[str, str]) -> tuple[str | None, str, Path]:
    """Return the CPU model that boots (None: none does), why each one before it does not, and the file that stores
    both."""
    memory = cache_dir() / "vm" / "tried" / f"{kernel.release}-{way.name}.json"
    current = {
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "qemu": _version(tools),
        "kernel": kernel.sha256["vmlinux"],
        "models": list(way.models),
    }
    try:
        remembered = json.loads(memory.read_text())
    except (OSError, ValueError):
        remembered = {}
    failed_long_ago = remembered.get("cpu") is None and not 0 <= time.time() - remembered.get("tried_at", 0) < RETRY_S
    if {name: remembered.get(name) for name in current} != current or failed_long_ago:
        cpu, refused = _first_that_boots(way, kernel, tools)
        remembered = current | {"cpu": cpu, "refused": refused, "tried_at": time.time()}
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text(json.dumps(remembered) + "\n")
    return remembered["cpu"], remembered["refused"], memory


def _first_that_boots(way: Acceleration, kernel: Kernel, tools: dict[str, str]) -> tuple[str | None, str]:
    refusals: list[str] = []
    for model in way.models:
        refused = _boot(way, model, kernel, tools)
        if refused is None:
            return model, "; ".join(refusals)
        refusals.append(f"-cpu {model}: {refused}")
    return None, "; ".join(refusals)


def _boot(way: Acceleration, model: str, kernel: Kernel, tools: dict[str, str]) -> str | None:
    """Boot to a first process that reports success and ends the guest; return what went wrong."""
    first_root = initramfs.shell(Path(tools["busybox"]), _INIT)
    with os.fdopen(os.memfd_create("xdplab-probe"), "wb") as file:
        file.write(first_root)
        file.flush()
        argv = [
            *(tools[qemu.QEMU], "-M", "q35", *way.accelerator, "-cpu", model, "-m", "256", "-nodefaults"),
            *("-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio"),
            *("-kernel", str(kernel.file("vmlinux")), "-initrd", f"/proc/self/fd/{file.fileno()}"),
            *("-append", qemu.COMMAND_LINE.replace("quiet ", "")),  # a kernel that hangs should show where
        ]
        try:
            done = subprocess.run(
                ["setpriv", "--pdeathsig", "KILL", *argv],
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=way.first_process_s,
                check=False,
                pass_fds=(file.fileno(),),
            )
        except subprocess.TimeoutExpired as error:
            last = _last_line(error.stdout)
            console = f"; its console's last line: {last}" if last else ", and its console said nothing"
            return f"a guest had not started after {way.first_process_s:g} s{console}"
    if _MARK in done.stdout:
        return None
    return _last_line(done.stderr) or _last_line(done.stdout) or "a guest ended without a word"


def _last_line(output: bytes | None) -> str:
    lines = (output or b"").decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else ""


def _version(tools: dict[str, str]) -> str:
    """Return the first line of QEMU's version, which includes its package's version."""
    done = subprocess.run([tools[qemu.QEMU], "--version"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"`{tools[qemu.QEMU]} --version`: {done.stderr.strip()[-300:]}", remedy="install it again")
    return done.stdout.splitlines()[0]
