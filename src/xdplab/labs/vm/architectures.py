"""Architectures other than this machine's, of which Debian has kernels with a BPF JIT and QEMU has a machine."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from xdplab.errors import LabError, MissingToolError

MARK = "@"
"""Between a kernel's name and its architecture: ``6.1@arm64``."""


@dataclass(frozen=True)
class Architecture:
    """``suites``: where its kernels are looked for, of ``shells`` where its busybox-static is."""

    name: str
    qemu: str
    packages: tuple[str, ...]
    machine: tuple[str, ...]
    console: str
    suites: tuple[str, ...]
    shells: tuple[str, ...]

    def tool(self) -> str:
        """Return the path of its QEMU. Raises MissingToolError naming the packages."""
        path = shutil.which(self.qemu)
        if path is None:
            raise MissingToolError(
                f"a guest of {self.name} needs {self.qemu}", remedy=f"apt install {' '.join(self.packages)}"
            )
        return path


KNOWN: dict[str, Architecture] = {
    one.name: one
    for one in (
        Architecture(
            "arm64",
            "qemu-system-aarch64",
            ("qemu-system-arm",),
            ("-M", "virt", "-cpu", "cortex-a72"),
            "ttyAMA0",
            ("bookworm-security", "bookworm", "trixie-security", "trixie"),
            ("bookworm", "trixie"),
        ),
        # Its first release is trixie, whose kernel is 6.12. `-cpu max` ends at once with OpenSBI 1.1.
        Architecture(
            "riscv64",
            "qemu-system-riscv64",
            ("qemu-system-misc", "opensbi"),
            ("-M", "virt", "-cpu", "rv64"),
            "ttyS0",
            ("trixie-security", "trixie", "sid"),
            ("sid",),
        ),
    )
}


def parted(name: str) -> tuple[str, Architecture | None]:
    """Return a kernel's name without its architecture, and the architecture: None for this machine's.

    Raises LabError for one that no guest has.
    """
    plain, asks, architecture = name.partition(MARK)
    if not asks:
        return name, None
    if architecture not in KNOWN:
        there = ", ".join(f"{plain}{MARK}{one}" for one in KNOWN)
        raise LabError(f"kernel {name}: no guest has the architecture {architecture!r}", remedy=f"write {there}")
    return plain, KNOWN[architecture]
