"""A guest behind a serial console: it has a shell and no more. So are the guests of another architecture.

It is no lab: it has no network and no keeper, belongs to the process that booted it, and ends with it. One of another
architecture runs nothing of this machine's file tree; it counts instructions as the guests of this architecture do.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import os
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, cast

from xdplab.errors import HostError, LabError
from xdplab.hosts import Process, Result
from xdplab.labs.base import OWN_QEMU
from xdplab.labs.vm import architectures, initramfs, kernels, qemu
from xdplab.labs.vm.architectures import Architecture
from xdplab.labs.vm.kernels import Kernel

ANSWER_S = 300.0
"""Seconds a guest may take to its shell, or for a command: ten are usual, but beside traffic that fills each CPU an
emulated guest of low priority gets a hundredth of one."""

NUDGE_S = 10.0
"""Seconds without output after which a guest gets its last line again.

An idle riscv64 guest sometimes waits for a timer that its QEMU (7.2, counting) never lets expire; any interrupt wakes
it. And a line may not have come whole: its first script takes each once.
"""
INIT = Path(__file__).with_name("console_init.sh")
_LINE = 512


class ConsoleGuest:
    """A `Host` behind a serial console. It runs one command at a time, and is lost with the first that hangs."""

    def __init__(self, name: str, argv: Sequence[str], descriptors: Sequence[int]) -> None:
        self.name = name
        self._unread, self._last, self._sent = b"", "", "\n"
        self._child = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=tuple(descriptors),
            bufsize=0,
            start_new_session=True,  # Ctrl-C is the study's to answer
        )
        self._in, self._out = (cast("IO[bytes]", end) for end in (self._child.stdin, self._child.stdout))

    def await_up(self) -> None:
        """Wait for its shell. Raises LabError with the last words of its console."""
        try:
            self._lines_to("xdplab:up", time.monotonic() + ANSWER_S)
        except HostError as error:
            raise LabError(error.message) from error

    def run(
        self, argv: Sequence[str], *, deadline_s: float = ANSWER_S, stdin: bytes = b"", check: bool = True
    ) -> Result:
        began = time.monotonic()
        end = began + deadline_s
        command = shlex.join(argv)
        if stdin:
            packed = base64.encodebytes(gzip.compress(stdin, mtime=0)).decode()
            command = f"base64 -d <<'xdplab' | gunzip | {command}\n{packed}xdplab\n"
        script = base64.b64encode(command.encode()).decode()
        for number, at in enumerate(range(0, len(script), _LINE)):
            piece = script[at : at + _LINE]
            self._send(f"+{number} {len(piece)} {piece}\n")
            self._lines_to(f"xdplab:more {number + 1}", end)
        self._send("!\n")
        status = self._lines_to("xdplab:exit ", end)[-1]
        stdout, stderr = (self._unpacked(self._lines_to(mark, end)) for mark in ("xdplab:err", "xdplab:end"))
        code = int(status.removeprefix("xdplab:exit "))
        result = Result(self.name, tuple(argv), code, stdout, stderr, time.monotonic() - began)
        return result.require() if check else result

    def start(self, argv: Sequence[str], *, deadline_s: float) -> Process:
        raise HostError(f"{self.name}: `{argv[0]}` cannot run beside others: the guest has one console")

    def put(self, data: bytes | Path, remote: str, *, mode: int = 0o644) -> None:
        content = data.read_bytes() if isinstance(data, Path) else data
        self.run(["mkdir", "-p", str(Path(remote).parent)])
        self.run(["tee", remote], stdin=content)
        self.run(["chmod", f"{mode:o}", remote])

    def get(self, remote: str) -> bytes:
        return self.run(["cat", remote]).stdout

    def await_return(self) -> None:
        """It never comes back: what it had measured is told, and what it had not is another guest's."""

    def close(self) -> None:
        self._kill()
        self._child.wait()
        for end in (self._in, self._out):
            end.close()

    def _send(self, line: str) -> None:
        self._sent = line
        try:
            self._in.write(line.encode())
        except OSError as error:
            raise self._lost("has ended") from error

    def _lines_to(self, mark: str, end: float) -> list[str]:
        """Return the console's lines up to the one that begins with ``mark``, which is the last."""
        lines: list[str] = []
        while True:
            line, newline, rest = self._unread.partition(b"\n")
            if not newline:
                self._unread += self._more(end)
                continue
            self._unread = rest
            lines.append(line.decode(errors="replace").strip())
            self._last = lines[-1] or self._last
            if lines[-1].startswith(mark):
                return lines

    def _more(self, end: float) -> bytes:
        while not (ready := self._says_within(min(NUDGE_S, end - time.monotonic()))) and time.monotonic() < end:
            self._send(self._sent)
        if not ready:
            lost = self._lost("has not answered in time")
            self._kill()
            raise lost
        if data := os.read(self._out.fileno(), 1 << 16):
            return data
        raise self._lost("has ended")

    def _kill(self) -> None:
        if self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)

    def _says_within(self, seconds: float) -> bool:
        return bool(select.select([self._out], [], [], max(0.0, seconds))[0])

    def _lost(self, how: str) -> HostError:
        last = self._unread.decode(errors="replace").strip() or self._last
        console = f"; its console's last line: {last[-200:]}" if last else ""
        return HostError(f"{self.name}: the guest {how}{console}", remedy="--resume boots another one")

    def _unpacked(self, lines: Sequence[str]) -> bytes:
        try:
            return gzip.decompress(base64.b64decode("".join(lines[:-1])))
        except (ValueError, OSError, EOFError) as error:
            raise HostError(f"{self.name}: what came over the console is damaged: {error}") from error


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
        file.write(initramfs.console(kernel.file("busybox"), INIT.read_bytes(), files, programs or {}))
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
