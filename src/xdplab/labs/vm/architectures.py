"""Architectures other than this machine's, of which Debian has kernels with a BPF JIT and QEMU has a machine."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from xdplab.errors import LabError, MissingToolError
from xdplab.labs.base import ARCHITECTURE_MARK
from xdplab.labs.tools import require_tools


@dataclass(frozen=True)
class Architecture:
    """``suites``: where its kernels are looked for, of ``shells`` where its busybox-static is.

    ``triplet`` begins the names of the compiler that builds for it here; ``flavour`` ends the names of its kernels;
    ``kbuild`` is what their Makefiles call it.
    """

    name: str
    triplet: str
    qemu: str
    packages: tuple[str, ...]
    machine: tuple[str, ...]
    console: str
    suites: tuple[str, ...]
    shells: tuple[str, ...]
    flavour: str = ""
    kbuild: str = ""

    @property
    def kernels_end(self) -> str:
        return self.flavour or self.name

    def compiler(self) -> str:
        """Return the name of the compiler for its programs. Raises MissingToolError naming the packages."""
        name, what = f"{self.triplet}-gcc", f"a program for a guest of {self.name}"
        packages = f"gcc-{self.triplet} libc6-dev-{self.name}-cross"
        require_tools(what, {name: packages})
        start = subprocess.run([name, "-print-file-name=crt1.o"], capture_output=True, text=True).stdout
        if not start.startswith("/"):  # gcc prints the bare name of a file that it does not find
            raise MissingToolError(f"{what} needs its C library", remedy=f"apt install {packages}")
        return name

    def tool(self) -> str:
        """Return the path of its QEMU. Raises MissingToolError naming the packages."""
        return require_tools(f"a guest of {self.name}", {self.qemu: " ".join(self.packages)})[self.qemu]


KNOWN: dict[str, Architecture] = {
    one.name: one
    for one in (
        Architecture(
            "arm64",
            "aarch64-linux-gnu",
            "qemu-system-aarch64",
            ("qemu-system-arm",),
            ("-M", "virt", "-cpu", "cortex-a72,cntfrq=1000000000"),
            "ttyAMA0",
            ("bookworm-security", "bookworm", "trixie-security", "trixie"),
            ("bookworm", "trixie"),
            kbuild="arm64",
        ),
        # Its first release is trixie, whose kernel is 6.12. `-cpu max` ends at once with OpenSBI 1.1.
        Architecture(
            "riscv64",
            "riscv64-linux-gnu",
            "qemu-system-riscv64",
            ("qemu-system-misc", "opensbi"),
            ("-M", "virt", "-cpu", "rv64"),
            "ttyS0",
            ("trixie-security", "trixie", "sid"),
            ("sid",),
            kbuild="riscv",
        ),
        # Its firmware of ten seconds is left out (x-vof); a processor without protections has to be asked for.
        Architecture(
            "ppc64el",
            "powerpc64le-linux-gnu",
            "qemu-system-ppc64",
            ("qemu-system-ppc",),
            (
                *("-M", "pseries,x-vof=on,cap-ccf-assist=off,cap-cfpc=broken,cap-sbbc=broken,cap-ibs=broken"),
                *("-cpu", "power9"),
            ),
            "hvc0",
            ("bookworm-security", "bookworm", "trixie-security", "trixie"),
            ("bookworm", "trixie"),
            "powerpc64le",
            "powerpc",
        ),
    )
}

COUNTED = ("arm64",)
"""Those whose instructions the plugin that counts can follow, beside this machine's."""

WITHOUT_JIT = {
    "s390x": "Debian builds its kernels for z10, and Linux has a BPF JIT for z196 and later only",
    "i386": "its JIT refuses 64-bit divisions and atomic operations, which then fail instead of being interpreted",
}
"""Architectures of which Debian has kernels, but none to compare the two modes in, with the reason."""


def parted(name: str) -> tuple[str, Architecture | None]:
    """Return a kernel's name without its architecture, and the architecture: None for this machine's.

    Raises LabError for one that no guest has.
    """
    plain, asks, architecture = name.partition(ARCHITECTURE_MARK)
    if not asks:
        return name, None
    if architecture in WITHOUT_JIT:
        raise LabError(f"kernel {name}: {WITHOUT_JIT[architecture]}", remedy=f"there are {', '.join(KNOWN)}")
    if architecture not in KNOWN:
        names = ", ".join(f"{plain}{ARCHITECTURE_MARK}{one}" for one in KNOWN)
        raise LabError(f"kernel {name}: no guest has the architecture {architecture!r}", remedy=f"write {names}")
    return plain, KNOWN[architecture]
