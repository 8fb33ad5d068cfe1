"""What the calls of a wrapper do, counted while a guest executes them: before, between and after their looks at the
clock.

The guest executes the objects themselves through the study's driver; QEMU's plugin sees each instruction, and cuts what
ran at each one that reads the clock.
"""

from __future__ import annotations

import bisect
import io
import json
import re
import shlex
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

from xdplab.errors import ProgramError, XdplabError
from xdplab.formats.reading import count_field, objects_of
from xdplab.studies.execution.benchmarks import (
    BPF,
    CHAIN_LINK,
    MODULE,
    NATIVE,
    TOOL,
    USER,
    Benchmark,
    TimedCall,
    parse_microbench,
)
from xdplab.studies.guests import counted_place
from xdplab.studies.plugin import INTERRUPTS, Plugin, Ran, accesses, disassembled

KERNEL = "6.1"
"""The guest's."""

CALLS = 15
"""Each is counted: a wrapper that keeps its result for later calls does its whole work in the first one only."""

_DEADLINE_S = 1800.0
_MARK, _CODE = "xdplab:wrapper", '"type":"code"'
_KERNEL_HALF = 1 << 63
_DIVISIONS = ("div", "idiv")
_STALLS = ("pause", "lfence", "mfence", "sfence", "cpuid", "clflush", "movnti", "pushf", "popf", "wrgsbase")
"""Instructions that take time and do no work."""

_ON_STACK = {BPF: re.compile(r"\(%r[bs]p"), MODULE: re.compile(r"\(%rsp"), USER: re.compile(r"\(%rsp")}
_STACK_ONLY = ("push", "pop", "call", "ret", "leave")


@dataclass(frozen=True)
class Counts:
    """One call. ``instructions`` of the wrapper's own between its first look at the clock and its last, of them
    ``divisions`` and ``stalls``; ``loads`` and ``stores`` beside the stack; ``most``: how often the instruction ran
    that ran most often.

    ``called``: instructions of what it calls there, its clock included. ``clocks``: looks at the clock between these
    two. ``before`` and ``behind``: its own and its callees' instructions outside of them. ``elapsed``: all that ran
    from look to look, and ``stated`` what the call itself says of it, as ``began`` is when it says that it began, and
    ``result`` what its work gave.
    """

    instructions: int
    divisions: int
    stalls: int
    loads: int
    stores: int
    most: int
    called: int
    clocks: int
    before: int
    behind: int
    elapsed: int
    stated: int
    began: int
    result: int


@dataclass(frozen=True)
class Wrapped:
    """A wrapper of a benchmark, and the object that has it."""

    benchmark: Benchmark
    wrapper: str
    object: Path


def counted(wrapped: Sequence[Wrapped]) -> list[tuple[Counts, ...] | ProgramError]:
    """Execute each wrapper in one guest; return what its calls do, or why the guest does not execute it.

    The states are in the folders of the objects. Raises MissingToolError without QEMU, LabError without a guest.
    """
    files: dict[str, bytes] = {}
    script = []
    for number, one in enumerate(wrapped):
        argv, content = _call(one, f"wrappers/{number}")
        files |= content
        script.append(f"echo {_MARK}; {shlex.join(argv)} 2>&1")
    with tempfile.TemporaryDirectory(prefix="xdplab-execution-") as name:
        folder = Path(name)
        with counted_place(f"vm:{KERNEL}", (NATIVE,), files, folder) as (_, guest):
            symbols = Symbols(guest.symbols)
            printed = guest.host.run(["sh", "-c", "\n".join(script)], deadline_s=_DEADLINE_S, check=False).text
            measurements = guest.measurements()
    texts = printed.split(f"{_MARK}\n")[1:]
    ended = ['"type":"end"' in text for text in texts]
    if sum(ended) != len(measurements) or len(texts) != len(wrapped):
        raise ProgramError(f"the guest executed {sum(ended)} of {len(wrapped)} wrappers; the last: {texts[-1][-200:]}")
    measured = iter(measurements)
    return [
        _judged(one, text, next(measured), symbols) if has_ended else ProgramError(_words(text))
        for one, text, has_ended in zip(wrapped, texts, ended, strict=True)
    ]


def _words(text: str) -> str:
    """Return why the driver ended early."""
    last = text.strip().rpartition("\n")[2]
    return str(json.loads(last).get("message", last)) if last.startswith("{") else last


def _call(one: Wrapped, folder: str) -> tuple[list[str], dict[str, bytes]]:
    benchmark, path = one.benchmark, f"{folder}/{one.object.name}"
    argv = [NATIVE, "--counted", "--backend", one.wrapper, "--benchmark", benchmark.kernel, "--object", f"/{path}"]
    argv += ["--input", str(benchmark.input), "--calls", str(CALLS)]
    files = {path: one.object.read_bytes()}
    if benchmark.state:
        files[f"{folder}/state"] = benchmark.state
        argv += ["--state", f"/{folder}/state"]
    return argv, files


class Symbols:
    """The kernel's functions by address."""

    def __init__(self, functions: Sequence[tuple[int, str]]) -> None:
        self._starts = [start for start, _ in functions]
        self._names = [name for _, name in functions]

    def answers_interrupts(self, address: int) -> bool:
        index = bisect.bisect_right(self._starts, address) - 1
        return index >= 0 and self._names[index].startswith(INTERRUPTS)


def _judged(one: Wrapped, text: str, measured: bytes, symbols: Symbols) -> tuple[Counts, ...] | ProgramError:
    """Return what the calls do, or why that cannot be told: a call that ends before it begins, or has no clock."""
    try:
        return _counts(one, text, Plugin(measured), symbols)
    except XdplabError as error:
        return ProgramError(error.message)


def _counts(one: Wrapped, text: str, plugin: Plugin, symbols: Symbols) -> tuple[Counts, ...]:
    calls = parse_microbench("".join(line for line in text.splitlines(True) if _CODE not in line)).calls
    code = [fields for fields in objects_of(text, TOOL) if fields["type"] == "code"]
    starts, sizes = ([count_field(fields, key, TOOL) for fields in code] for key in ("start", "bytes"))
    spans = [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    if one.wrapper == MODULE:
        spans = list(_functions(one, starts[0]))
    executed = Executed(plugin, one.wrapper, spans, symbols)
    return tuple(executed.counts(number, call) for number, call in enumerate(calls))


def _functions(one: Wrapped, text: int) -> Iterator[range]:
    """Yield where the benchmark's functions of a module lie whose code begins at ``text``."""
    elf: Any = ELFFile(io.BytesIO(one.object.read_bytes()))
    section, names = elf.get_section_index(".text"), (f"microbench_{one.benchmark.kernel}", CHAIN_LINK)
    for symbol in elf.get_section_by_name(".symtab").iter_symbols():
        if symbol["st_shndx"] == section and symbol.name.partition(".")[0] in names:
            yield range(text + symbol["st_value"], text + symbol["st_value"] + symbol["st_size"])


_OWN, _CALLED, _BESIDE = range(3)


class Executed:
    """The calls of one wrapper, whose code lies in ``spans``."""

    def __init__(self, plugin: Plugin, wrapper: str, spans: Sequence[range], symbols: Symbols) -> None:
        self._plugin, self._wrapper, self._spans, self._symbols = plugin, wrapper, spans, symbols
        self._kinds: dict[int, tuple[bool, bool]] = {}

    def counts(self, number: int, call: TimedCall) -> Counts:
        """Return what a call did. Raises ProgramError if it did not look at the clock twice."""
        parts = [*self._plugin.looks[number]]
        at = [index for index, part in enumerate(parts) if self._is_own_look(part.path)]
        if len(at) < 2:
            raise ProgramError(f"a call looks at its clock {len(at)} times")
        between = parts[at[0] + 1 : at[-1] + 1]
        behind = [*parts[at[-1] + 1 :], self._plugin.windows[number]]
        blocks, called = self._sorted(between)
        details = self._details(blocks)
        outside = [self._instructions(ran) for ran in (parts[: at[0] + 1], behind)]
        return Counts(
            **details,
            called=called,
            clocks=len(at) - 2,
            before=outside[0],
            behind=outside[1],
            elapsed=sum(part.instructions for part in between),
            stated=call.elapsed_ns,
            began=call.begin_ns,
            result=call.result,
        )

    def _in_wrapper(self, address: int) -> bool:
        return any(address in span for span in self._spans)

    def _kind(self, path: int) -> tuple[bool, bool]:
        """Return whether a call path leads through the wrapper, and whether it is no interrupt's there."""
        if path not in self._kinds:
            addresses = self._plugin.path(path)
            self._kinds[path] = (
                any(self._in_wrapper(address) for address in addresses),
                not any(self._is_beside(address) for address in addresses),
            )
        return self._kinds[path]

    def _is_beside(self, address: int) -> bool:
        """What a kernel does while user space works is not user space's work, and an interrupt's is nobody's."""
        if self._wrapper == USER:
            return address >= _KERNEL_HALF
        return self._symbols.answers_interrupts(address)

    def _is_own_look(self, path: int) -> bool:
        return all(self._kind(path))

    def _belongs(self, path: int, block: int) -> int:
        address = self._plugin.blocks[block].addresses[0]
        if self._in_wrapper(address):
            return _OWN
        through, undisturbed = self._kind(path)
        return _CALLED if through and undisturbed and not self._is_beside(address) else _BESIDE

    def _sorted(self, ran: Iterable[Ran]) -> tuple[Counter[int], int]:
        """Return how often each of the wrapper's own blocks ran, and instructions of what it called."""
        blocks: Counter[int] = Counter()
        called = 0
        for path, block, times in (row for piece in ran for row in piece.blocks.tolist()):
            belongs = self._belongs(path, block)
            if belongs == _OWN:
                blocks[block] += times
            elif belongs == _CALLED:
                called += times * len(self._plugin.blocks[block].addresses)
        return blocks, called

    def _instructions(self, ran: Iterable[Ran]) -> int:
        blocks, called = self._sorted(ran)
        return called + sum(len(self._plugin.blocks[block].addresses) * times for block, times in blocks.items())

    @cached_property
    def _lines(self) -> Mapping[int, list[tuple[str, str]]]:
        """The instructions of each of the wrapper's own blocks: name and operands."""
        chosen = [n for n, block in enumerate(self._plugin.blocks) if self._in_wrapper(block.addresses[0])]
        pieces = [self._plugin.blocks[number].code for number in chosen]
        owners = [number for number, piece in zip(chosen, pieces, strict=True) for _ in piece]
        lines: dict[int, list[tuple[str, str]]] = {number: [] for number in chosen}
        for line in disassembled(b"".join(pieces)):
            lines[owners[line.address]].append((line.name, line.operands))
        return lines

    def _details(self, blocks: Counter[int]) -> dict[str, int]:
        details = dict.fromkeys(("instructions", "divisions", "stalls", "loads", "stores"), 0)
        ran: Counter[int] = Counter()
        for block, times in blocks.items():
            for address in self._plugin.blocks[block].addresses:
                ran[address] += times
            for name, operands in self._lines[block]:
                details["instructions"] += times
                details["divisions"] += times * name.startswith(_DIVISIONS)
                details["stalls"] += times * name.startswith(_STALLS)
                if not name.startswith(_STACK_ONLY) and not _ON_STACK[self._wrapper].search(operands):
                    loads, stores = accesses(name, operands)
                    details["loads"] += times * loads
                    details["stores"] += times * stores
        return details | {"most": max(ran.values(), default=0)}
