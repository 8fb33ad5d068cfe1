"""A guest in which QEMU counts instructions: one instruction after the other, watched by a plugin (native/costplugin).

It is no lab: it belongs to the process that booted it, and ends with it. It needs neither root nor KVM. Inside is a
veth pair, ``dut`` and ``tg``, and nothing else runs: no daemon, no module but those of the link.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xdplab.errors import HostError, LabError
from xdplab.labs.base import ARCHITECTURE_MARK, OWN_KERNEL
from xdplab.labs.cache import cache_dir
from xdplab.labs.vm import architectures, console, initramfs, kernels, qemu
from xdplab.labs.vm.architectures import Architecture
from xdplab.labs.vm.console import ConsoleGuest, around
from xdplab.labs.vm.kernels import Kernel
from xdplab.lazy import lazily
from xdplab.run.disk import write_whole

with lazily():  # it loads elftools, and most commands boot no guest
    from xdplab.labs.vm import headers

MEMORY_MB = 512
DUT_MAC, TG_MAC = "02:00:00:00:00:02", "02:00:00:00:00:01"
COUNTED, SYMBOLS = "counted", "symbols"
"""Files of a guest's folder: what the plugin writes, and the port through which the kernel's symbols come."""

_WAY = "count"
MODULES = ("virtio_pci", "virtio_console", "veth")
_COMMAND_LINE = (
    f"console={{}} quiet loglevel=1 panic=-1 oops=panic {qemu.NO_MITIGATIONS} nokaslr random.trust_cpu=on "
    "cryptomgr.notests net.ifnames=0 randomize_kstack_offset=off {}"
)
_X86_WORDS = "no_timer_check tsc=reliable nohpet noreplace-smp noapictimer"
_ARM64_WORDS = "highres=off nohz=off"
"""A sleep ends with a tick, as on x86-64 without its APIC's timer: a window that begins then has none inside."""

_NEEDS = {
    "/sys/bus/pci/drivers/virtio-pci": "CONFIG_VIRTIO_PCI",
    "/sys/bus/virtio/drivers/virtio_console": "CONFIG_VIRTIO_CONSOLE",
    "/proc/kallsyms": "CONFIG_KALLSYMS",
    "/proc/sys/kernel/unprivileged_bpf_disabled": "CONFIG_BPF_SYSCALL",
    "/proc/sys/net/core/bpf_jit_enable": "CONFIG_BPF_JIT",
    "/sys/class/net/dut": "CONFIG_VETH",
}
"""What a kernel has if it can count, by where that shows."""

_DEVICES = """
for module in /modules/*; do [ -e "$module" ] && insmod "$module"; done
ip link add dut type veth
"""
_LINK = f"""
set -e
echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
echo 0 >/proc/sys/kernel/kptr_restrict
echo 0 >/proc/sys/net/core/bpf_jit_harden
echo 1 >/proc/sys/net/core/bpf_jit_enable
ip link set veth0 name tg
ip link set dut address {DUT_MAC}
ip link set tg address {TG_MAC}
ip link set dut up
ip link set tg up
mkdir -p /sys/fs/bpf
mount -t bpf bpf /sys/fs/bpf
"""


@dataclass(frozen=True)
class CountedGuest:
    """A guest that is up; ``folder`` has what the plugin writes, ``around`` what its numbers depend on."""

    host: ConsoleGuest
    content: GuestContent
    kernel: Kernel
    folder: Path
    around: Mapping[str, str]

    def counted(self) -> bytes:
        """Return what the plugin has written of the last measurement."""
        return self.measurements()[-1]

    def measurements(self) -> list[bytes]:
        """Return what the plugin has written of each measurement since the guest booted."""
        return (self.folder / COUNTED).read_bytes().split(b"counting\n")[1:]

    @functools.cached_property
    def symbols(self) -> list[tuple[int, str]]:
        """Return the address and name of every function of the kernel and its modules; the end of a module has "".

        They are the same in each boot (nokaslr), and kept: a guest takes seconds to print them. Raises HostError.
        """
        modules = self.host.run(["cat", "/proc/modules"]).text
        key = hashlib.sha256(f"{self.kernel.sha256['vmlinux']} {modules}".encode()).hexdigest()[:16]
        path = cache_dir() / "vm" / "symbols" / f"{self.kernel.release}-{key}.gz"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, gzip.compress(self._printed_symbols()))
        rows = (line.split()[:3] for line in gzip.decompress(path.read_bytes()).decode().splitlines())
        ends = ((int(line.split()[-2], 16) + int(line.split()[1]), "") for line in _lines_with_address(modules))
        return sorted([*((int(address, 16), name) for address, _, name in rows), *ends])

    def _printed_symbols(self) -> bytes:
        port = self.folder / SYMBOLS
        before = port.stat().st_size
        script = "grep -i ' [tw] [^$]' /proc/kallsyms | grep -v '\\[bpf' >/dev/vport0p1; echo end >/dev/vport0p1"
        self.host.run(["sh", "-c", script])
        text = port.read_bytes()[before:]
        if not text.endswith(b"\nend\n"):
            raise HostError(f"{self.host.name}: the kernel's symbols did not come whole")
        return text.removesuffix(b"end\n")


@dataclass(frozen=True)
class GuestContent:
    """What a guest boots with: the plugin that watches it, and inside ``programs`` of its architecture by their name
    in /bin, which come with their libraries, and ``files`` by path."""

    plugin: Path
    programs: Mapping[str, Path]
    files: Mapping[str, bytes]


@contextlib.contextmanager
def booted(name: str, content: GuestContent, folder: Path) -> Iterator[CountedGuest]:
    """Boot a guest of a kernel such as ``6.12`` or ``6.12@arm64``, with its link up.

    ``folder`` is for what the plugin writes. Raises MissingToolError without QEMU, LabError for a kernel that is not to
    be had or does not boot, or a QEMU without plugins.
    """
    kernel = kernels.kernel(name)
    machine = _machine(name, kernel)
    _require_plugins(machine.program)
    files = dict(content.files)
    for number, path in enumerate(initramfs.closure(kernel.file("lib/modules") / kernel.release, MODULES)):
        files[f"modules/{number:02}-{path.name}"] = initramfs.plain(path)
    inside = {f"bin/{file}": path.read_bytes() for file, path in content.programs.items()}
    for program in list(inside.values()):
        inside |= headers.needed(program, machine.libraries)
    (folder / SYMBOLS).touch()
    with os.fdopen(os.memfd_create("xdplab-initrd"), "wb") as file:
        file.write(initramfs.console(machine.busybox, console.INIT.read_bytes(), files, inside))
        file.flush()
        command = _argv(machine, kernel, content.plugin, folder, f"/proc/self/fd/{file.fileno()}")
        guest = ConsoleGuest(f"vm:{name}", command, (file.fileno(),))
        with contextlib.closing(guest):
            guest.await_up()
            _require_devices(guest, name)
            guest.run(["sh", "-c", _LINK])
            yield CountedGuest(guest, content, kernel, folder, around(machine.program, kernel, command))


@dataclass(frozen=True)
class _Machine:
    """What a guest's architecture decides: QEMU's ``program``, its ``options`` for machine and CPU, and the words of
    the kernel's command line; whose ``busybox`` is inside, and the folders of ``libraries``."""

    program: str
    options: tuple[str, ...]
    command_line: str
    busybox: Path
    libraries: Sequence[Path]


def _machine(name: str, kernel: Kernel) -> _Machine:
    _, architecture = architectures.parted(name)
    if architecture is None:
        tools = qemu.require_tools()
        options = ("-M", "q35", "-cpu", qemu.choose(_WAY, kernel, tools).cpu)
        line = _COMMAND_LINE.format("ttyS0", _X86_WORDS)
        return _Machine(tools[qemu.QEMU], options, line, Path(tools["busybox"]), headers.HERE)
    require_architecture(name, architecture)
    line = _COMMAND_LINE.format(architecture.console, _ARM64_WORDS)
    folders = [headers.folder(architecture) / "lib"]
    return _Machine(architecture.tool(), architecture.machine, line, kernel.file("busybox"), folders)


def require_architecture(name: str, architecture: Architecture) -> None:
    """Raise LabError for a kernel of an architecture whose instructions the plugin cannot follow."""
    if architecture.name not in architectures.COUNTED:
        names = ", ".join(f"KERNEL{ARCHITECTURE_MARK}{one}" for one in architectures.COUNTED)
        raise LabError(
            f"kernel {name}: nothing is counted in a guest of {architecture.name}", remedy=f"write KERNEL or {names}"
        )


def _require_devices(guest: ConsoleGuest, kernel: str) -> None:
    """Load the modules and make the link. Raises LabError naming what the kernel was built without."""
    tests = "".join(f"[ -e {path} ] || echo {option}\n" for path, option in _NEEDS.items())
    lacks = guest.run(["sh", "-c", f"{_DEVICES}{tests}true"]).text.split()
    if lacks:
        build = "build it with them; if they are modules, name these: --kernel FILE,MODULES"
        raise LabError(
            f"kernel {kernel}: nothing can be counted without {', '.join(lacks)}",
            remedy=build if kernel.startswith(OWN_KERNEL) else f"`xdplab lab kernels --again {kernel}`",
        )


def _argv(machine: _Machine, kernel: Kernel, plugin: Path, folder: Path, initrd: str) -> list[str]:
    """Return QEMU's argument vector."""
    way = qemu.WAYS[_WAY]
    return [
        *(machine.program, *machine.options, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
        *(*way.accelerator, *way.clock_options, "-rtc", "base=2026-01-01,clock=vm", "-smp", "1"),
        *("-m", str(MEMORY_MB), "-kernel", str(kernel.file("vmlinux")), "-initrd", initrd),
        *("-append", machine.command_line),
        *("-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console", "-device", "virtio-serial-pci"),
        *("-chardev", f"file,id=symbols,path={folder / SYMBOLS}", "-device", "virtserialport,chardev=symbols"),
        *("-plugin", f"{plugin},out={folder / COUNTED}"),
    ]


def _require_plugins(program: str) -> None:
    words = subprocess.run([program, "-plugin", "help"], capture_output=True, text=True, check=False).stderr
    if "invalid option" in words:
        raise LabError(
            f"{program} was built without plugins, which count", remedy="Debian's packages of QEMU have them"
        )


def _lines_with_address(modules: str) -> list[str]:
    """Return the lines of /proc/modules without their taint: name, size, users, …, address last but one."""
    return [line if line.endswith(")") else f"{line} ()" for line in modules.splitlines()]
