"""What was counted in a trial: each window's instructions, and where each of them belongs by its call path.

Interrupts, other tasks, and what a system call costs once are left out by their place in the call path.
"""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xdplab.studies.plugin import (
    INTERRUPTS,
    X86_64,
    CodeBlock,
    Disassembled,
    Numbers,
    Plugin,
    Ran,
    accesses_of,
    disassembled,
)

WHOLE, PROGRAM, CALLED, PATH, ENDS = "whole", "program", "called", "path", "ends"
"""Where an instruction belongs: to all of a packet; of that to the program, to what it calls, to the rest of the
kernel's path; to the sender's own programs at the other end."""

APPLICATION, ALLOCATOR = "application", "allocator"
"""And to the process that takes frames in user space, if there is one, with its libraries; to the kernel's allocator of
small objects on the path."""

SCOPES = (PROGRAM, CALLED, APPLICATION, PATH, ALLOCATOR)
OTHER = "other"
ALL_SCOPES = (*SCOPES, ENDS, OTHER)
_TASKS = ("schedule", "__schedule", "rcu_core", "run_timer_softirq", "run_rebalance_domains", "sched_balance_softirq")
LEFT_OUT = INTERRUPTS + _TASKS
"""Functions below which a CPU does what no frame asked for: interrupts, other tasks while the sender waits, and the
softirqs of the kernel's own housekeeping."""

UNNAMED = "bpf_dispatcher"
"""Code in the modules' space that belongs to no module: the trampoline that chooses between programs. It is left out:
it compares addresses, so its cost depends on where other programs lie."""

_ALLOCATES = re.compile(r"kmem_cache_(alloc|free)|__kmalloc|kmalloc_|k(v|z)?free$|_+slab_(alloc|free)|__pcs_")
_SLOW_PATH = ("__slab_free", "___slab_alloc", "__pcs_")
"""How the allocator's functions begin, and of them those that run if an object does not lie in the CPU's slab. Which
objects do depends on all that the kernel has allocated since its boot, so that two boots differ."""

LINE_BYTES = 64
"""Of a cache line."""
CHANGING = {"bpf_xdp_adjust_tail", "bpf_xdp_adjust_meta"}
"""What changes a frame without moving its data: from Linux 6.3 on, a live frame's page keeps that."""

IP_LAYER = ("ip_rcv_core", "ip6_rcv_core")
"""What the kernel runs once for each IP packet that it takes."""

MODULES_FROM = 0xFFFFFFFFC0000000
"""Of x86-64; arm64's modules lie before the kernel, and no trampoline chooses between its programs."""
SENDERS = ("sender", "sink")
_JUMP = re.compile(r"j|call|bl?$|b\.|[ct]bn?z$")
"""How the names of instructions begin that jump or call, of both machines."""


class SourceLine(NamedTuple):
    """A line of the program's source; ``number`` is 0 for code that the compiler made up."""

    file: str
    number: int
    text: str


class Instruction(NamedTuple):
    """An instruction of a program whose source line is not known: its place in its function, in bytes."""

    function: str
    offset: int
    text: str


Place = SourceLine | Instruction


@dataclass(frozen=True)
class Function:
    """A function of a loaded program: ``role`` is that of its program."""

    name: str
    role: str
    start: int
    code: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.code)

    @property
    def is_senders(self) -> bool:
        return self.role in SENDERS


@dataclass(frozen=True)
class Window:
    """What ran while so many frames passed."""

    frames: int
    ran: Ran


@dataclass
class Tally:
    """Instructions, loads, stores and conditional branches: of a window whole numbers, of a packet fractions."""

    instructions: Fraction | int = 0
    loads: Fraction | int = 0
    stores: Fraction | int = 0
    branches: Fraction | int = 0


def _keys(ran: Ran) -> Numbers:
    return ran.blocks[:, 0] << 32 | ran.blocks[:, 1]


class Measurement:
    """One trial: windows, the loaded programs, and the names of the kernel's functions. ``entries``: where the program
    of each role begins."""

    def __init__(
        self, plugin: Plugin, printed: Iterable[Mapping[str, Any]], symbols: Sequence[tuple[int, str]]
    ) -> None:
        messages = list(printed)
        of_windows = [message for message in messages if message["type"] in ("window", "touched")]
        windows = [(m["type"], Window(m["frames"], ran)) for m, ran in zip(of_windows, plugin.windows, strict=True)]
        self._plugin = plugin
        self.machine = plugin.machine
        self.windows = [window for kind, window in windows if kind == "window"]
        self.touching = [window for kind, window in windows if kind == "touched"]
        programs = [message for message in messages if message["type"] == "program"]
        self.functions = sorted((f for p in programs for f in _functions_of(p)), key=lambda one: one.start)
        self._function_starts = [one.start for one in self.functions]
        lines = sorted((line["address"], _line_of(line)) for program in programs for line in program["lines"])
        self._lines, self._line_starts = [line for _, line in lines], [address for address, _ in lines]
        self._symbols, self._symbol_starts = [name for _, name in symbols], [address for address, _ in symbols]
        self.entries = {p["role"]: p["functions"][0]["address"] for p in programs}
        self.describes_anew = any(message["type"] == "anew" for message in messages)
        self._returned = next((message for message in messages if message["type"] == "returned"), None)
        if self._returned is None and "sink" not in self.entries:
            raise ValueError("nothing tells what became of the frames")
        self._names: dict[int, str] = {}
        self._stacks: dict[int, tuple[str, ...]] = {}
        self._origins: dict[tuple[int, int], Origin] = {}
        self._listings: dict[Function, list[Disassembled]] = {}

    def function(self, address: int) -> Function | None:
        """Return the program's function at an address; None in the kernel."""
        index = bisect.bisect_right(self._function_starts, address) - 1
        one = self.functions[index] if index >= 0 else None
        return one if one is not None and address < one.end else None

    def name(self, address: int) -> str:
        """Return the function at an address; a program's is ``bpf:NAME``, code outside the kernel is user space."""
        if address not in self._names:
            self._names[address] = self._name(address)
        return self._names[address]

    def _name(self, address: int) -> str:
        if (one := self.function(address)) is not None:
            return f"{one.role if one.is_senders else 'bpf'}:{one.name}"
        index = bisect.bisect_right(self._symbol_starts, address) - 1
        name = self._symbols[index] if index >= 0 else ""
        if is_user(address):
            return name or "user space"
        is_among_modules = self.machine == X86_64 and address >= MODULES_FROM
        is_kernel = not is_among_modules or self._symbol_starts[index] >= MODULES_FROM
        return name if name and is_kernel else UNNAMED

    def place(self, address: int) -> Place:
        """Return the source line of a program's code at an address, or the instruction if no line is known of it."""
        one = self.function(address)
        assert one is not None  # only the code of programs has places
        index = bisect.bisect_right(self._line_starts, address) - 1
        if index >= 0 and self._line_starts[index] >= one.start:
            return self._lines[index]
        if one not in self._listings:
            self._listings[one] = disassembled(one.code, one.start, self.machine)
        instruction = [row for row in self._listings[one] if row.address <= address][-1]
        return Instruction(one.name, instruction.address - one.start, self._shown(instruction, one))

    def _shown(self, one: Disassembled, inside: Function) -> str:
        """Return an instruction with the place that it jumps to, or the name of what it calls, for an address."""
        tested, comma, operand = one.operands.rpartition(", ")
        if not _JUMP.match(one.name) or not operand.startswith("0x"):
            return str(one)
        target = int(operand, 16)
        is_inside = inside.start < target < inside.end
        return f"{one.name} {tested}{comma}{f'+{target - inside.start:#x}' if is_inside else self.name(target)}"

    def stack(self, path: int) -> tuple[str, ...]:
        """Return the functions of a call path. A jump into another one shows as the next call's being in that one."""
        if path not in self._stacks:
            names: list[str] = []
            for index, address in enumerate(self._plugin.path(path)):
                if index % 2 or not names or names[-1] != self.name(address):
                    names.append(self.name(address))
            self._stacks[path] = tuple(names)
        return self._stacks[path]

    def origin(self, path: int, block: int) -> Origin:
        """Return where a block that runs on a path belongs."""
        key = path, block
        if key not in self._origins:
            self._origins[key] = self._origin(path, self._plugin.blocks[block])
        return self._origins[key]

    def _origin(self, path: int, block: CodeBlock) -> Origin:
        leaf = self.name(block.addresses[0])
        stack = self.stack(path)
        full = stack if stack and stack[-1] == leaf else (*stack, leaf)
        if leaf == UNNAMED or any(name.startswith(LEFT_OUT) for name in full):
            return Origin(full, OTHER, 0)
        inside = self.function(block.addresses[0])
        if inside is not None:
            return Origin(full, ENDS if inside.is_senders else PROGRAM, 0)
        if is_user(block.addresses[0]):
            return Origin(full, APPLICATION, 0)
        callers = ((address, self.function(address)) for address in reversed(self._plugin.path(path)[::2]))
        caller = next(((address, one) for address, one in callers if one is not None), None)
        if caller is None:
            return Origin(full, ALLOCATOR if any(map(_ALLOCATES.match, full)) else PATH, 0)
        return Origin(full, ENDS if caller[1].is_senders else CALLED, caller[0])

    def tallies(self, window: Window) -> dict[str, Tally]:
        """Return what a window took, by where it belongs."""
        scopes, times = self._scopes(window.ran), window.ran.blocks[:, 2]
        once = self._once[window.ran.blocks[:, 1]]
        sums = [np.bincount(scopes, times * once[:, column], len(ALL_SCOPES)) for column in range(once.shape[1])]
        return {scope: Tally(*(int(column[i]) for column in sums)) for i, scope in enumerate(ALL_SCOPES)}

    def _scopes(self, ran: Ran) -> Numbers:
        """Return the index in `ALL_SCOPES` of each row."""
        keys, scopes = self._scope_of_key
        return scopes[np.searchsorted(keys, _keys(ran))]

    @cached_property
    def _scope_of_key(self) -> tuple[Numbers, Numbers]:
        """Every path with a block that ran on it in any window, sorted, and its scope."""
        keys = np.unique(np.concatenate([_keys(window.ran) for window in self.windows]))
        pairs = zip((keys >> 32).tolist(), (keys & 0xFFFFFFFF).tolist(), strict=True)
        return keys, np.array([ALL_SCOPES.index(self.origin(*pair).scope) for pair in pairs], dtype=np.int64)

    def runs(self, window: Window) -> dict[str, int]:
        """Return how often the program of each role ran in a window."""
        blocks = window.ran.blocks
        starts = self._starts[blocks[:, 1]]
        return {role: int(blocks[starts == entry, 2].sum()) for role, entry in self.entries.items()}

    def came_back(self, window: Window) -> Fraction:
        """Return the share of a window's frames that the program sent back; in a test run, that it would send back."""
        if self._returned is not None:
            return Fraction(self._returned["tx"], self._returned["frames"])
        return Fraction(self.runs(window)["sink"], window.frames)

    def passed_on(self, window: Window) -> Fraction:
        """Return the share of a window's frames that reached the kernel's IP layer; in a test run, that would."""
        if self._returned is not None:
            return Fraction(self._returned["pass"], self._returned["frames"])
        symbols = zip(self._symbols, self._symbol_starts, strict=True)
        entries = [address for name, address in symbols if name.partition(".")[0] in IP_LAYER]
        blocks = window.ran.blocks
        runs = blocks[np.isin(self._starts[blocks[:, 1]], np.array(entries, dtype=np.uint64)), 2]
        return Fraction(int(runs.sum()), window.frames)

    @property
    def changes_frames(self) -> bool:
        """Tell whether the program changes the frames' length or metadata in place."""
        stacks = (item for window in self.windows for item in self.scopes_of_stacks(window).items())
        return any(scope == CALLED and stack[-1] in CHANGING for stack, scope in stacks)

    @property
    def has_sender(self) -> bool:
        """Tell whether a program writes the frames at the link's other end."""
        return "sender" in self.entries

    @property
    def has_packet_socket(self) -> bool:
        """Tell whether a packet socket sends the frames."""
        return self._returned is None and not self.has_sender

    @cached_property
    def _starts(self) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """The address of each block."""
        return np.array([block.addresses[0] for block in self._plugin.blocks], dtype=np.uint64)

    @cached_property
    def _once(self) -> Numbers:
        """What each block takes once through, in the order of `Tally`. Shape (blocks, 4)."""
        blocks = self._plugin.blocks
        accesses = accesses_of([block.code for block in blocks], self.machine)
        rows = [
            (len(block.addresses), loads, stores, block.ending == "branch")
            for block, (loads, stores) in zip(blocks, accesses, strict=True)
        ]
        return np.array(rows, dtype=np.int64)

    @cached_property
    def whole(self) -> list[tuple[Window, dict[str, Tally]]]:
        """The windows in which every program ran exactly once per frame: a tick may leave some frames for later.

        At the sink arrives what the program sends back: of each number of frames as many as in most windows.
        """
        runs = [(window, self.runs(window)) for window in self.windows]
        arrived: dict[int, Counter[int]] = {}
        for window, ran in runs:
            arrived.setdefault(window.frames, Counter())[ran.get("sink", 0)] += 1
        return [
            (window, self.tallies(window))
            for window, ran in runs
            if ran["program"] == ran.get("sender", window.frames) == window.frames
            and ran.get("sink", 0) == arrived[window.frames].most_common(1)[0][0]
        ]

    def cache_lines(self, window: Window) -> dict[str, tuple[set[int], set[int]]]:
        """Return the addresses of the cache lines that were read or written, and of those of code, by scope."""
        lines: dict[str, tuple[set[int], set[int]]] = {scope: (set(), set()) for scope in ALL_SCOPES}
        for path, number, address in window.ran.touched:
            lines[self.origin(path, number).scope][0].add(address)
        for path, number, _ in window.ran.blocks.tolist():
            start, end = (block := self._plugin.blocks[number]).addresses[0], block.addresses[0] + len(block.code)
            code = range(start - start % LINE_BYTES, end, LINE_BYTES)
            lines[self.origin(path, number).scope][1].update(code)
        return lines

    def by_address(self, window: Window) -> tuple[Counter[int], Counter[int], Counter[tuple[str, ...]]]:
        """Return instructions by address in programs, by the call out of one, and by stack."""
        inside, called, stacks = Counter[int](), Counter[int](), Counter[tuple[str, ...]]()
        for path, number, times in window.ran.blocks.tolist():
            origin, block = self.origin(path, number), self._plugin.blocks[number]
            if origin.scope not in SCOPES:
                continue
            stacks[origin.stack] += len(block.addresses) * times
            if origin.scope == PROGRAM:
                inside.update(dict.fromkeys(block.addresses, times))
            elif origin.scope == CALLED:
                called[origin.caller] += len(block.addresses) * times
        return inside, called, stacks

    def scopes_of_stacks(self, window: Window) -> dict[tuple[str, ...], str]:
        """Return the scope of each stack of a window."""
        origins = (self.origin(path, number) for path, number, _ in window.ran.blocks.tolist())
        return {origin.stack: origin.scope for origin in origins}


class Origin(NamedTuple):
    """Where a block belongs: its functions from the outermost, its scope, and the program's call that led to it."""

    stack: tuple[str, ...]
    scope: str
    caller: int


def is_user(address: int) -> bool:
    """Tell whether an address is in user space."""
    return not address >> 63


def _functions_of(program: Mapping[str, Any]) -> Iterator[Function]:
    for one in program["functions"]:
        yield Function(one["name"] or "subprogram", program["role"], one["address"], bytes.fromhex(one["code"]))


def _line_of(line: Mapping[str, Any]) -> SourceLine:
    return SourceLine(Path(line["file"]).name, line["line"], line["text"].strip())


def is_slow_allocation(stack: Sequence[str]) -> bool:
    """Tell whether the kernel's allocator works on the path because an object does not lie in the CPU's slab."""
    in_program = any(name.startswith("bpf:") for name in stack)
    return not in_program and any(name.startswith(_SLOW_PATH) for name in stack)
