"""What the plugin wrote of one measurement (native/costplugin/plugin.c has the format)."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

Numbers = np.ndarray[Any, np.dtype[np.int64]]

INTERRUPTS = (
    *("asm_sysvec_", "asm_common_interrupt", "irq_entries_start", "common_interrupt_return", "restore_regs"),
    *("early_xen_iret_patch", "error_return", "native_irq_return_iret"),
    *("vectors", "el1h_64_irq", "el0t_64_irq", "ret_to_kernel", "ret_to_user"),  # arm64's
)
"""How the kernel's functions begin below which a CPU answers an interrupt."""

X86_64, AARCH64 = "x86_64", "aarch64"
"""The machines of guests that are counted."""


class CodeBlock(NamedTuple):
    """Code that runs as one piece: the addresses of its instructions, what it ends with, and its bytes."""

    addresses: tuple[int, ...]
    ending: str
    code: bytes


_ALIKE = re.compile(
    rb"(?:ran [^\n]*\n)+|(?:block [^\n]*\n)+|(?:path [^\n]*\n)+|(?:took [^\n]*\n)+|(?:touched [^\n]*\n)+|"
    rb"window\n|look [^\n]*\n|shorter [^\n]*\n|machine [^\n]*\n"
)
"""Lines of one kind that follow each other."""


@dataclass
class Ran:
    """What ran between two marks. ``blocks``: how often each block on each call path, shape (n, 3): numbers of paths
    and blocks, and times. ``took``: runs of the program, by their instructions with those of what they called.
    ``touched``: path, block and address of a cache line that it read or wrote, if this was noted."""

    blocks: Numbers = field(default_factory=lambda: np.empty((0, 3), dtype=np.int64))
    took: dict[int, int] = field(default_factory=dict)
    touched: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass
class ClockLook(Ran):
    """What ran up to a look at the clock, which was on a call ``path``: so many ``instructions``."""

    path: int = 0
    instructions: int = 0


class Plugin:
    """What the plugin wrote of one measurement. ``looks``: of each window, those at the clock; the window itself has
    what ran after the last."""

    def __init__(self, text: bytes) -> None:
        self.blocks: list[CodeBlock] = []
        self.paths: list[tuple[int, int]] = [(-1, 0)]
        self.windows: list[Ran] = []
        self.looks: list[list[ClockLook]] = []
        self.machine = X86_64
        self._window: list[ClockLook] = []
        self._filled = Ran()
        for lines in _ALIKE.findall(text):
            self._read(lines)

    def _read(self, lines: bytes) -> None:
        """Read lines of one kind that follow each other."""
        kind = lines[: lines.index(b" ")] if b" " in lines[:10] else lines
        if kind == b"ran":
            numbers = np.array(lines.replace(b"ran ", b"").split(), dtype=np.int64)
            self._filled.blocks = numbers.reshape(-1, 3)
        elif kind == b"took":
            took = (map(int, line.split()[1:]) for line in lines.splitlines())
            self.windows[-1].took.update((instructions, times) for instructions, times in took)
        elif kind == b"touched":
            rows = (line.split() for line in lines.splitlines())
            self.windows[-1].touched += [(int(path), int(block), int(line, 16)) for _, path, block, line in rows]
        elif lines == b"window\n":
            self._filled = Ran()
            self.windows.append(self._filled)
            self.looks.append(self._window)
            self._window = []
        elif kind == b"look":
            _, path, instructions = map(int, lines.replace(b"look", b"0").split())
            self._filled = look = ClockLook(path=path, instructions=instructions)
            self._window.append(look)
        elif kind == b"block":
            for line in lines.decode().splitlines():
                _, start, ending, sizes, code = line.split()
                addresses = tuple(_addresses(int(start, 16), sizes))
                self.blocks.append(CodeBlock(addresses, ending, bytes.fromhex(code)))
        elif kind == b"shorter":
            block = self.blocks[number := int(lines.split()[1])]
            size = block.addresses[-1] - block.addresses[0]
            self.blocks[number] = CodeBlock(block.addresses[:-1], "on", block.code[:size])
        elif kind == b"machine":
            self.machine = lines.split()[1].decode()
        elif kind == b"path":
            for line in lines.decode().splitlines():
                _, parent, address = line.split()
                self.paths.append((int(parent), int(address, 16)))

    def path(self, number: int) -> list[int]:
        """Return the addresses of a call path, outermost first: a call's, what it calls, a call's again."""
        addresses = []
        while number > 0:
            number, address = self.paths[number]
            addresses.append(address)
        return addresses[::-1]


def _addresses(start: int, sizes: str) -> Iterator[int]:
    for size in sizes.split(","):
        yield start
        start += int(size)


def functions_used(plugin: Plugin, symbols: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return of a kernel's functions (address and name, in order) those that were met: their starts and names."""
    starts = [address for address, _ in symbols]
    used = {bisect.bisect_right(starts, block.addresses[0]) - 1 for block in plugin.blocks}
    used |= {bisect.bisect_right(starts, address) - 1 for _, address in plugin.paths}
    return [symbols[index] for index in sorted(used) if index >= 0]
