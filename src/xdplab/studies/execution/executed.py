"""What one call of a benchmark does between its two clock calls: an emulator executes the loaded object.

BPF bytecode runs in `programs.machine`, the machine code of user space and of the module in unicorn. Both count every
instruction, and the steps that make up the benchmark: its divisions, its accesses, its links.
"""

from __future__ import annotations

import io
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import unicorn
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection

from xdplab.errors import ProgramError
from xdplab.programs.image import Image, read_image
from xdplab.programs.machine import Interpreter, Map
from xdplab.programs.steps import Registers
from xdplab.studies.execution.benchmarks import BPF, CHAIN_LINK, CLOCKS, MODULE, Benchmark
from xdplab.studies.execution.codelines import HELPERS, divides, gives_quotient, multiplies, widely
from xdplab.studies.execution.machines import PAGE, machine_of

FRAME_BYTES = 256
"""FRAME_BYTES of record.h."""


@dataclass(frozen=True)
class World:
    """What a call finds and no work depends on: what the clock says at first, and how far it goes on with each look,
    where its memory lies, on which CPU it runs, and what registers hold that nobody handed over.

    With an ``origin`` of 0, unicorn executes some instructions twice: its table of pages then has code and data in the
    same places.
    """

    begin_ns: int = 7
    step_ns: int = 7
    far: int = 0
    origin: int = 0x4_0000
    cpu: int = 0
    left: int = 0


FIRST = World()
OTHER = World(86_400_000_000_011, 1_013, 0x7F12_3400_0000, 0x9_7650, 1, 0x5A5A_1234_7FF0)
"""As on a machine that has been up for a day: memory at the end of the address space, registers that others used."""

CALLS = 3
"""A wrapper that keeps its result for later calls does its whole work in the first one only."""

_WHOLE = ("strange", "idle", "deepest")
"""Counts of the whole call: what it does before its first look at the clock may slow down what it does behind it."""
LINE_BYTES = 64
_BITS_32, _BITS_64 = (1 << 32) - 1, (1 << 64) - 1
_INPUT, _RECORD_BYTES = 0, 32  # of struct bench_record
_MOST = 5_000_000
_SET_BYTES = 1 << 20
_STATE_BYTES = 64  # of the state of a walk, behind which a working set has its table


@dataclass(frozen=True)
class Counts:
    """Counts between the first look at the clock and the last: ``instructions`` of its own (callees' are not).

    ``divisions``, of them ``wide`` ones of 64 bits and ``quotients`` without a remainder (of BPF only), and the
    ``digits``, in bits, of all that was divided;
    ``products``: multiplications; ``loads`` and ``stores`` in what the benchmark works on, in how many ``lines`` of a
    cache; accesses to the ``stack``, and those ``elsewhere``; ``clocks``: looks at the clock between the two; ``links``
    of a chain that were entered.
    """

    instructions: int = 0
    divisions: int = 0
    quotients: int = 0
    wide: int = 0
    digits: int = 0
    products: int = 0
    loads: int = 0
    stores: int = 0
    lines: int = 0
    elsewhere: int = 0
    stack: int = 0
    clocks: int = 0
    links: int = 0


@dataclass(frozen=True)
class Executed:
    """What one call did: ``counts`` between its looks at the clock, and what it gave, its ``result``.

    ``looks``: what the clock said first and last, ``recorded``: what the call says that it said. ``machine``: whose
    code it is; '' for BPF.
    Of the whole call are ``strange``, stores into what is neither its record, stack or frame nor that part of the
    working set which the benchmark may change, ``idle``, instructions that take time and do no work (pauses, fences,
    atomic ones, those that ask the machine), and ``deepest``, how many bytes of stack it reached.
    """

    counts: Counts
    result: int
    looks: tuple[int, int]
    recorded: tuple[int, int]
    strange: int = 0
    idle: int = 0
    deepest: int = 0
    machine: str = ""

    def facts(self) -> dict[str, object]:
        """Return all of it by name, in one level."""
        whole = {name: value for name, value in asdict(self).items() if name != "counts"}
        return asdict(self.counts) | whole

    def in_any_world(self, of_clock: bool) -> Executed:
        """Return what is the same in each world; ``of_clock``: its result is of the clock, which is another one."""
        return replace(self, looks=(0, 0), recorded=(0, 0), result=0 if of_clock else self.result)


class _Looks:
    """Running counts, and their values at each clock call."""

    def __init__(self, world: World) -> None:
        self.now: dict[str, int] = asdict(Counts())
        self.whole = dict.fromkeys(_WHOLE, 0)
        self._lines: set[int] = set()
        self._then: list[dict[str, int]] = []
        self._world = world

    def _time(self, look: int) -> int:
        return self._world.begin_ns + self._world.step_ns * look

    def access(self, offset: int, size: int, is_store: bool) -> None:
        """Count an access to what the benchmark works on, which begins at an offset of 0."""
        self.now["stores" if is_store else "loads"] += 1
        self._lines.update((offset // LINE_BYTES, (offset + size - 1) // LINE_BYTES))

    def divide(self, dividend: int, is_wide: bool) -> None:
        self.now["divisions"] += 1
        self.now["wide"] += is_wide
        self.now["digits"] += (dividend & (_BITS_64 if is_wide else _BITS_32)).bit_length()

    def look(self) -> int:
        """Record the counts; return the clock's value."""
        if not self._then:
            self._lines.clear()
        self._then.append(dict(self.now))
        return self._time(len(self._then) - 1)

    def between(self, record: bytes) -> Executed:
        """Return the counts, and what the call's record says. Raises ProgramError for fewer than two looks."""
        if len(self._then) < 2:
            raise ProgramError(f"the emulated call looked at its clock {len(self._then)} times")
        first, last = self._then[0], self._then[-1]
        _, begin, end, result = struct.unpack("<4Q", record)
        looks = (self._time(0), self._time(len(self._then) - 1))
        counts = {name: last[name] - first[name] for name in first}
        counts |= {"lines": len(self._lines), "clocks": len(self._then) - 2}
        return Executed(Counts(**counts), result, looks, (begin, end), **self.whole)  # type: ignore[arg-type]


@lru_cache(maxsize=256)
def execute(benchmark: Benchmark, wrapper: str, content: bytes, world: World = FIRST) -> tuple[Executed, ...]:
    """Execute the first `CALLS` calls of a wrapper's object, each with the memory that the one before it left.

    Raises ProgramError for code that the emulator does not support.
    """
    code: _Bytecode | _MachineCode
    if wrapper == BPF:
        code = _Bytecode(read_image(content, several=True), benchmark, world)
    else:
        function = f"microbench_{benchmark.kernel}" if wrapper == MODULE else "microbench"
        code = _MachineCode(content, function, CLOCKS[wrapper], benchmark, world)
    return tuple(code.call() for _ in range(CALLS))


class _Bytecode(Interpreter):
    """A benchmark's BPF object with its maps filled, as the driver fills them."""

    def __init__(self, image: Image, benchmark: Benchmark, world: World) -> None:
        self._world, self._looks = world, _Looks(world)
        self._input, self._offset = benchmark.input, benchmark.task.least_offset
        state_at = _STATE_BYTES * world.cpu if benchmark.spec else 0  # in .bss, each CPU has a state of its own
        changes = benchmark.task.changes
        self._may_change = {
            ".data.record": range(_RECORD_BYTES),
            "value of memory": range(changes),
            ".bss": range(state_at, state_at + changes),
        }
        state = benchmark.state
        sizes = {"table": (state[_STATE_BYTES:], 8), "links": (bytes(8), 8)}
        whole = (state.ljust(_SET_BYTES, b"\0"), _SET_BYTES)
        filled = {name: sizes.get(name, whole) for name in image.maps}
        maps = {name: Map(bytearray(data), size) for name, (data, size) in filled.items()}
        super().__init__(image, maps, cpu=world.cpu, origin=world.origin)
        entries = {name: at for at, name in image.functions.items()}
        self._entry, self._link = entries["microbench"], entries.get(CHAIN_LINK)
        self._divisions = {at: (insn.dst, widely(insn)) for at, insn in enumerate(image.insns) if divides(insn)}
        self._quotients = {at for at, insn in enumerate(image.insns) if gives_quotient(insn)}
        self._products = {at for at, insn in enumerate(image.insns) if multiplies(insn)}
        self._atomic = {at for at, insn in enumerate(image.insns) if insn.code in _ATOMIC}
        self._worked_on = (
            "frame" if benchmark.works_on_frame else f"value of {'table' if 'table' in filled else 'memory'}"
        )
        if "table" in filled:
            self._offset = 0
        for at, insn in enumerate(image.insns):
            if (
                insn.code == _CALL
                and insn.src == 0
                and HELPERS.get(insn.imm) == "bpf_tail_call"
                and self._link is not None
            ):
                self._steps[at] = self._tail_call

    def call(self) -> Executed:
        self._looks, self._counted = _Looks(self._world), dict[int, int]()
        for region in self._regions.values():
            region.trace.clear()
        record = self.region(".data.record").data
        record[_INPUT : _INPUT + 8] = self._input.to_bytes(8, "little")
        self.run(bytes(range(FRAME_BYTES)))
        for region in self._regions.values():
            may = self._may_change.get(region.name, range(0))
            self._looks.whole["strange"] += sum(is_store and offset not in may for offset, _, is_store in region.trace)
        return self._looks.between(bytes(record[:_RECORD_BYTES]))

    def _execute(self, registers: Registers) -> int:
        self._frames = []
        at: int | None = self._entry
        now, code = self._looks.now, self._steps
        while at is not None:
            if now["instructions"] >= _MOST:
                raise ProgramError(f"the program did not end within {_MOST} instructions")
            now["instructions"] += 1
            if at in self._divisions:
                register, is_wide = self._divisions[at]
                self._looks.divide(registers[register], is_wide)
            now["quotients"] += at in self._quotients
            now["products"] += at in self._products
            self._looks.whole["idle"] += at in self._atomic
            now["links"] += at == self._link
            at = code[at](registers)
        return now["instructions"]

    def _tail_call(self, registers: Registers) -> int | None:
        registers[1], registers[10] = self._context, self._new_stack()
        return self._link

    def call_helper(self, number: int, registers: Registers) -> None:
        name = HELPERS.get(number)
        if name == "bpf_ktime_get_ns":
            self._count_accesses()
            registers[0] = self._looks.look()
        elif name == "bpf_get_prandom_u32":
            registers[0] = _RANDOM
        else:
            super().call_helper(number, registers)
            return
        registers[1:6] = [0xDEAD << 48] * 5

    def _count_accesses(self) -> None:
        """Count what was accessed since the clock was looked at last."""
        for number, region in self._regions.items():
            fresh = region.trace[self._counted.get(number, 0) :]
            self._counted[number] = len(region.trace)
            for offset, size, is_store in fresh:
                if region.name == self._worked_on and offset >= self._offset:
                    self._looks.access(offset - self._offset, size, is_store)
                else:
                    self._looks.now["stack" if region.name == "stack" else "elsewhere"] += 1


_CALL, _ATOMIC = 0x85, (0xC3, 0xDB)
_RANDOM = 0x5DEECE66
_BASE, _STUBS, _END = 0x100_0000, 0x500_0000, 0x600_0000
_RECORD, _SET, _FRAME, _STACK = 0x1000_0000, 0x2000_0000, 0x3000_0000, 0x4000_0000
_CODE_BYTES, _DATA_BYTES, _STUB_BYTES = 1 << 24, 8 << 20, 16


class _MachineCode:
    """A shared object, or a module before it is linked to a kernel, of a machine that is known.

    What it calls elsewhere are stubs that return at once; the clock's says the time.
    """

    def __init__(self, content: bytes, function: str, clock: str, benchmark: Benchmark, world: World) -> None:
        self._elf = ELFFile(io.BytesIO(content))
        self._machine = machine_of(self._elf["e_machine"])
        self._registers = self._machine.registers
        self._is_module = self._elf["e_type"] == "ET_REL"
        self._clock, self._benchmark, self._world, self._looks = clock, benchmark, world, _Looks(world)
        code = 0 if self._is_module else world.far  # a kernel's code lies where 32 bits reach
        self._base, self._stub, self._end = (code + at for at in (_BASE, _STUBS, _END))
        self._record, self._set, self._frame = (world.far + world.origin + at for at in (_RECORD, _SET, _FRAME))
        # As after a call on a machine that keeps the way back there: eight bytes off a multiple of 16.
        off = 8 if self._registers.link is None else 0
        self._stack = world.far + _STACK + _DATA_BYTES - 64 - world.origin % PAGE - off
        self._stubs: dict[str, int] = {}
        self._sections = list(self._elf.iter_sections())
        self.uc = self._machine.start()
        self.uc.mem_map(self._end, PAGE)
        for address in {0, world.left & -PAGE}:  # a stack's canary lies at FS or GS, which user space may use itself
            self.uc.mem_map(address, 2 * PAGE)
        for address in (self._base, self._stub):
            self.uc.mem_map(address, _CODE_BYTES)
        for address in (_RECORD, _SET, _FRAME, _STACK):
            self.uc.mem_map(world.far + address, _DATA_BYTES)
        for register in self._registers.others:
            self.uc.reg_write(register, world.left)
        self.uc.mem_write(self._stub, self._machine.code * (_CODE_BYTES // len(self._machine.code)))
        self._placed = self._place()
        for section in self._sections:
            if isinstance(section, RelocationSection):
                self._relocate(section)
        self._entry = self._address_of(function)
        self._links = {
            self._at(symbol)
            for symbol in self._symbols()
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol.name.split(".")[0] == CHAIN_LINK
        }
        self._watch()

    def _watch(self) -> None:
        """Fill the memory that the calls share, and have every instruction and access noted."""
        self.uc.mem_write(self._set, self._benchmark.state)
        self.uc.hook_add(unicorn.UC_HOOK_CODE, self._on_instruction())
        kinds = unicorn.UC_HOOK_MEM_READ | unicorn.UC_HOOK_MEM_WRITE
        self.uc.hook_add(kinds, self._on_access())

    def call(self) -> Executed:
        self._looks = _Looks(self._world)
        self._prepare()
        try:
            self.uc.emu_start(self._entry, self._end, count=_MOST)
        except unicorn.unicorn.UcError as error:
            raise ProgramError(f"{self._benchmark.name}: the emulated call fails: {error}") from None
        executed = self._looks.between(bytes(self.uc.mem_read(self._record, _RECORD_BYTES)))
        return replace(executed, machine=self._machine.name)

    def _prepare(self) -> None:
        self.uc.mem_write(self._frame, bytes(range(FRAME_BYTES)))
        self.uc.mem_write(self._record, self._benchmark.input.to_bytes(8, "little"))
        if self._registers.link is None:
            self.uc.mem_write(self._stack, self._end.to_bytes(8, "little"))
        else:
            self.uc.reg_write(self._registers.link, self._end)
        self.uc.reg_write(self._registers.stack, self._stack)
        for register, value in zip(self._registers.arguments, (self._record, self._set, self._frame), strict=True):
            self.uc.reg_write(register, value)

    def _on_instruction(self) -> Callable[[Any, int, int, object], None]:
        names = {address: name for name, address in self._stubs.items()}

        def note(uc: Any, address: int, size: int, data: object) -> None:
            if self._stub <= address < self._stub + _CODE_BYTES:
                self._answer(names.get(address, ""), self._looks)
                return
            now, code = self._looks.now, bytes(uc.mem_read(address, size))
            now["instructions"] += 1
            now["links"] += address in self._links
            if self._machine.divides(code):
                self._looks.divide(uc.reg_read(self._machine.dividend(code)), self._machine.is_wide(code))
            now["products"] += self._machine.multiplies(code)
            self._looks.whole["idle"] += self._machine.idles(code)

        return note

    def _on_access(self) -> Callable[[Any, int, int, int, int, object], None]:
        task, whole = self._benchmark.task, range(self._set, self._set + 4 * _SET_BYTES)
        frame = range(self._frame, self._frame + FRAME_BYTES)
        worked_on = (frame if self._benchmark.works_on_frame else whole)[task.least_offset :]
        stack = range(self._world.far + _STACK, self._stack + PAGE)
        kept = (whole[task.changes :], frame, range(self._base, self._base + _CODE_BYTES))

        def note(uc: Any, kind: int, address: int, size: int, value: int, data: object) -> None:
            is_store, looks = kind == unicorn.UC_MEM_WRITE, self._looks
            if address in worked_on:
                looks.access(address - worked_on.start, size, is_store)
            elif address in stack:
                looks.now["stack"] += 1
                looks.whole["deepest"] = max(looks.whole["deepest"], self._stack - address)
            else:
                looks.now["elsewhere"] += 1
            if is_store:
                looks.whole["strange"] += any(address in memory for memory in kept)

        return note

    def _answer(self, name: str, looks: _Looks) -> None:
        """Do what a function of elsewhere does; what is neither clock nor random (`__fentry__`) only returns."""
        if name == "get_random_u32":
            self.uc.reg_write(self._registers.result, _RANDOM)
        if name != self._clock:
            return
        clock_id = self.uc.reg_read(self._registers.arguments[0])
        if name == "clock_gettime" and clock_id != time.CLOCK_MONOTONIC:
            raise ProgramError(f"it looks at clock {clock_id}, not at CLOCK_MONOTONIC")
        now_ns = looks.look()
        if name == "clock_gettime":
            self.uc.mem_write(self.uc.reg_read(self._registers.second), struct.pack("<2Q", *divmod(now_ns, 10**9)))
        self.uc.reg_write(self._registers.result, 0 if name == "clock_gettime" else now_ns)

    def _place(self) -> Mapping[int, int]:
        """Put the code and data into memory; return where each section begins (of a shared object: its address)."""
        if not self._is_module:
            for segment in self._elf.iter_segments():
                if segment["p_type"] == "PT_LOAD":
                    self.uc.mem_write(self._base + segment["p_vaddr"], segment.data())
            return dict.fromkeys(range(len(self._sections)), self._base)
        placed, at = {}, self._base
        for number, section in enumerate(self._sections):
            if section["sh_flags"] & _SHF_ALLOC:
                placed[number] = at = -(-at // 64) * 64
                if section["sh_type"] != "SHT_NOBITS":
                    self.uc.mem_write(at, section.data())
                at += section["sh_size"]
        return placed

    def _relocate(self, relocations: RelocationSection) -> None:
        base = self._placed.get(relocations["sh_info"]) if self._is_module else self._base
        if base is None:  # of debugging information
            return
        symbols: Any = self._sections[relocations["sh_link"]]
        for one in relocations.iter_relocations():
            kind = self._machine.relocations.get(one["r_info_type"])
            if kind is None:
                continue  # thread-local storage and the like: a call that needs it goes astray and is found
            target = self._at(symbols.get_symbol(one["r_info_sym"])) if kind.symbol else self._base
            at, value = base + one["r_offset"], target + (one["r_addend"] if kind.addend else 0)
            if kind.page:
                value &= ~(PAGE - 1)
            if kind.relative:
                value -= at & ~(PAGE - 1) if kind.page else at
            old = int.from_bytes(self.uc.mem_read(at, kind.size), "little")
            new = kind.put(old, value) & ((1 << 8 * kind.size) - 1)
            self.uc.mem_write(at, new.to_bytes(kind.size, "little"))

    def _at(self, symbol: Any) -> int:
        where = symbol["st_shndx"]
        if where == "SHN_UNDEF":
            return self._stubs.setdefault(symbol.name, self._stub + _STUB_BYTES * len(self._stubs))
        return int(self._placed.get(where, 0) + symbol["st_value"])

    def _symbols(self) -> list[Any]:
        table: Any = self._elf.get_section_by_name(".symtab") or self._elf.get_section_by_name(".dynsym")
        return list(table.iter_symbols())

    def _address_of(self, function: str) -> int:
        symbol = next((s for s in self._symbols() if s.name == function and s["st_shndx"] != "SHN_UNDEF"), None)
        if symbol is None:
            raise ProgramError(f"there is no function {function}")
        return self._at(symbol)


_SHF_ALLOC = 2
