"""A guest of another architecture: nothing of this machine's file tree runs in it, so it has a shell and no more.

It is no lab: it has no network and no keeper, belongs to the process that booted it, and ends with it. It counts
instructions as the guests of this machine's architecture do, and is asked over its serial console.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from xdplab.errors import LabError
from xdplab.labs.base import OWN_QEMU
from xdplab.labs.vm import architectures, console, initramfs, kernels, qemu
from xdplab.labs.vm.architectures import Architecture
from xdplab.labs.vm.console import ConsoleGuest
from xdplab.labs.vm.kernels import Kernel

WAY = "count"
MEMORY_MB = 1024
_COMMAND_LINE = (
    f"console={{}} quiet loglevel=1 panic=-1 {qemu.NO_MITIGATIONS} random.trust_cpu=on rcupdate.rcu_expedited=1 "
    "cryptomgr.notests log_buf_len=8M"
)
"""Without ``notests``, the kernel's tests of its cryptography would run for seconds after the boot, and be counted."""


def module(kernel: Kernel, name: str) -> bytes:
    """Return a module of the kernel, unpacked. Raises LabError if it has none."""
    tree = kernel.file("lib/modules") / kernel.release
    path = next(iter(sorted(tree.rglob(f"{name}.ko*"))), None)
    if path is None:
        raise LabError(f"kernel {kernel.name} has no module {name}")
    return initramfs.plain(path)


def argv(architecture: Architecture, tool: str, kernel: Kernel, initrd: str) -> list[str]:
    """Return QEMU's argument vector."""
    way = qemu.WAYS[WAY]
    return [
        *(tool, *architecture.machine, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
        *(*way.accelerator, *way.clock_options, "-smp", "1", "-m", str(MEMORY_MB)),
        *("-kernel", str(kernel.file("vmlinux")), "-initrd", initrd),
        *("-append", _COMMAND_LINE.format(architecture.console)),
        *("-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"),
    ]


@contextlib.contextmanager
def booted(
    name: str, modules: Sequence[str], programs: Mapping[str, bytes] | None = None
) -> Iterator[tuple[ConsoleGuest, Kernel, dict[str, str]]]:
    """Boot a guest of ``6.1@arm64`` with these modules to load, and give it, its kernel, and what it is run by.

    ``programs`` are executable files by their path in the guest: a console takes minutes for what a boot has at once.

    Raises MissingToolError without its QEMU, LabError for a kernel that is not to be had or does not boot.
    """
    _, architecture = architectures.parted(name)
    if architecture is None:
        raise LabError(f"kernel {name} is of this machine's architecture")
    tool = architecture.tool()
    kernel = kernels.kernel(name)
    tree = f"lib/modules/{kernel.release}"
    files = {f"{tree}/{one}.ko": module(kernel, one) for one in modules}
    files[f"{tree}/modules.dep"] = "".join(f"{one}.ko:\n" for one in modules).encode()
    with os.fdopen(os.memfd_create("xdplab-initrd"), "wb") as file:
        file.write(initramfs.console(kernel.file("busybox"), console.INIT.read_bytes(), files, programs or {}))
        file.flush()
        command = argv(architecture, tool, kernel, f"/proc/self/fd/{file.fileno()}")
        guest = ConsoleGuest(f"vm:{name}", command, (file.fileno(),))
        with contextlib.closing(guest):
            guest.await_up()
            yield guest, kernel, {"architecture": architecture.name} | around(tool, kernel, command)


def around(tool: str, kernel: Kernel, command: Sequence[str]) -> dict[str, str]:
    """Return what a number of a guest depends on, in words."""
    version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False).stdout
    return {
        OWN_QEMU: (version.splitlines() or ["not known"])[0],
        "guest_options": shlex.join(command[1:]),
        "kernel_packages": "; ".join(kernel.packages),
    }
