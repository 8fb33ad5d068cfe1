"""Call stacks that a profiler sampled: ``perf script -F ip,sym``, a frame a line, the innermost first."""

from __future__ import annotations

import re

from xdplab.formats.reading import lines_of, refuse

TOOL = "perf script"
_FRAME = re.compile(r"\s+(?P<address>[0-9a-f]{1,16}) (?P<symbol>\S.*)")
_KERNEL = re.compile(r"ffff[0-9a-f]{12}")


def parse_kernel_stacks(data: bytes | str) -> tuple[tuple[str, ...], ...]:
    """Return the kernel's functions of each sample, the innermost first; samples of user space alone are left out.

    Addresses from 0xffff000000000000 on are the kernel's. Raises FormatError naming the line.
    """
    stacks: list[tuple[str, ...]] = []
    frames: list[str] = []
    for number, line in enumerate([*lines_of(data, TOOL), ""], start=1):
        match = _FRAME.fullmatch(line)
        if match and _KERNEL.fullmatch(match["address"]):
            frames.append(match["symbol"].split("+")[0])
        elif not match and line.strip():
            refuse(TOOL, "no frame of a stack", line=number, text=line)
        if not line.strip() and frames:
            stacks.append(tuple(frames))
            frames = []
    return tuple(stacks)
