"""Sizes of the programs that test_bpf compiles, read by a probe when the kernel frees each program after its test.

The module only says that a program was compiled. The program's structure, which `bpf_prog_free` gets, has its numbers
of BPF instructions and of bytes of machine code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from xdplab.formats.reading import count_of, lines_of, refuse
from xdplab.hosts import Host

TOOL = "the trace of bpf_prog_free"
ABSENT = "# absent: "
"""The beginning of a file without sizes; the reason follows."""

# From 6.6 on, the kernel finds the fields of a function's arguments by name. Before, they are at these offsets.
_WATCH = """
top=/sys/kernel/tracing
[ -e "$top/trace" ] || mount -t tracefs tracefs "$top" || exit
here=$top/instances/xdplab-jit
define() { echo "p:xdplab/freed bpf_prog_free $1" 2>/dev/null >>"$top/kprobe_events"; }
known() { grep -q xdplab/freed "$top/kprobe_events"; }
[ -e "$top/kprobe_events" ] || { echo 'the kernel has no probes' >&2; exit 1; }
known || define 'insns=fp->len:u32 bytes=fp->jited_len:u32' || {
    case $(uname -r) in
    5.* | 6.[0-5].*) define 'insns=+12($arg1):u32 bytes=+16($arg1):u32' ;;
    *) false ;;
    esac
} || { echo 'the kernel takes no probe of bpf_prog_free' >&2; exit 1; }
[ -d "$here" ] || mkdir "$here" || exit
echo 1 >"$here/events/xdplab/freed/enable"
"""
_READ = """
cat /sys/kernel/tracing/instances/xdplab-jit/trace && echo >/sys/kernel/tracing/instances/xdplab-jit/trace
"""
_END = """
top=/sys/kernel/tracing
echo 0 >"$top/instances/xdplab-jit/events/xdplab/freed/enable"
rmdir "$top/instances/xdplab-jit"
echo '-:xdplab/freed' >>"$top/kprobe_events"
"""
_WRITTEN = re.compile(r"# entries-in-buffer/entries-written: (\d+)/(\d+) .*", re.ASCII)
_FREED = re.compile(r" *(\S.*)-\d+ +\[\d+\] .*: freed: \(.*\) insns=(\d+) bytes=(\d+)", re.ASCII)
_LOADER = "modprobe"


@dataclass(frozen=True)
class Size:
    """The size of a compiled program: BPF instructions that the JIT got, and bytes of machine code."""

    insns: int
    machine_bytes: int


@dataclass
class Sizes:
    """The probe at a place; if there is none, ``reason`` says why."""

    host: Host
    reason: str = ""

    def taken(self) -> str:
        """Return the trace since the last call, and empty it; without a probe, return the reason."""
        if self.reason:
            return f"{ABSENT}{self.reason}\n"
        return self.host.run(["sh", "-c", _READ]).text


@contextmanager
def watched(host: Host) -> Iterator[Sizes]:
    """Watch freed programs within this block. If the kernel does not allow it, the result has the reason."""
    started = host.run(["sh", "-c", _WATCH], check=False)
    if not started.ok:
        yield Sizes(host, started.error_text.strip().splitlines()[-1] if started.error_text.strip() else "no tracefs")
        return
    try:
        yield Sizes(host)
    finally:
        host.run(["sh", "-c", _END], check=False)


def parse_sizes(data: bytes | str) -> tuple[Size, ...] | str:
    """Return the size of each compiled program that the module freed, in order; or the reason why there is none.

    Raises FormatError if the text is not such a trace, or if the kernel lost events.
    """
    sizes: list[Size] = []
    written = None
    for number, line in enumerate(lines_of(data, TOOL), 1):
        if line.startswith(ABSENT):
            return line.removeprefix(ABSENT)
        if header := _WRITTEN.fullmatch(line):
            written = header[1]
            if header[1] != header[2]:
                refuse(TOOL, f"the kernel kept {header[1]} of {header[2]} events", line=number)
        if line.startswith("#") or not line.strip():
            continue
        event = _FREED.fullmatch(line)
        if event is None:
            refuse(TOOL, "not an event of the probe", line=number, text=line)
        insns, size = (count_of(event[at], TOOL, line=number) for at in (2, 3))
        if event[1].strip() == _LOADER and size:
            sizes.append(Size(insns, size))
    if written is None:
        refuse(TOOL, "it has no number of events")
    return tuple(sizes)
