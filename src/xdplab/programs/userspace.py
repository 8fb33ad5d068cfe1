"""Proof of the user-space twin: its machine code is executed by an emulator that reports every access.

The disassembly is kept beside it, and a counting build, run natively, must say the same.
"""

from __future__ import annotations

import ctypes
import io
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import unicorn
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from unicorn import arm64_const, x86_const

from xdplab.compiler import run_tool
from xdplab.errors import ProgramError
from xdplab.programs.counting import (
    ETHERNET_BYTES,
    FRAME_LENGTHS,
    Access,
    AccessCounts,
    frame_lengths,
    in_state,
    require,
    require_cycle,
    require_reflected,
    require_width,
    sample_frame,
    seen,
)
from xdplab.programs.source import HEADER_BYTES, USER_FLAGS, user_source, user_state
from xdplab.programs.spec import WORD_BYTES, ProgramSpec
from xdplab.programs.work import AccessWork, chain_of, work_of

_PAGE = 4096
_FRAME_ROOM = 3 * _PAGE
_LIBRARY, _STATE, _FRAME, _STACK, _RETURN = 0x1000_0000, 0x10_0000_0000, 0x20_0000_0000, 0x30_0000_0000, 0x40_0000_0000
_STACK_BYTES = 1 << 20
_WHERE = "user space"
_M64 = (1 << 64) - 1


@dataclass(frozen=True)
class _Cpu:
    """How the emulator runs one architecture: registers of arguments and result, place of the return address."""

    arch: int
    mode: int
    arguments: tuple[int, int, int]
    result: int
    stack: int
    link: int | None  # x86_64 returns through the stack
    relative: int  # relocation types: base plus addend; symbol's address
    absolute: tuple[int, ...]


_CPUS = {
    "EM_X86_64": _Cpu(
        unicorn.UC_ARCH_X86,
        unicorn.UC_MODE_64,
        (x86_const.UC_X86_REG_RDI, x86_const.UC_X86_REG_RSI, x86_const.UC_X86_REG_RDX),
        x86_const.UC_X86_REG_RAX,
        x86_const.UC_X86_REG_RSP,
        None,
        8,
        (1, 6),
    ),
    "EM_AARCH64": _Cpu(
        unicorn.UC_ARCH_ARM64,
        unicorn.UC_MODE_ARM,
        (arm64_const.UC_ARM64_REG_X0, arm64_const.UC_ARM64_REG_X1, arm64_const.UC_ARM64_REG_X2),
        arm64_const.UC_ARM64_REG_X0,
        arm64_const.UC_ARM64_REG_SP,
        arm64_const.UC_ARM64_REG_X30,
        1027,
        (257, 1025),
    ),
}


def compile_user(spec: ProgramSpec, directory: Path, *flags: str, cc: str = "cc") -> Path:
    """Compile the twin on this machine and return its ``workload.so``. Raises ProgramError."""
    (directory / "workload_user.c").write_text(user_source(spec))
    run_tool([cc, *USER_FLAGS, *flags, "workload_user.c", "-o", "workload.so"], directory)
    return directory / "workload.so"


def count_user(library: bytes, spec: ProgramSpec) -> list[AccessCounts]:
    """Execute a compiled twin (of any architecture known here), one packet per length, and return what each did.

    Raises ProgramError unless each makes exactly the promised accesses and swaps the MACs.
    """
    emulator = _Emulator(library, user_state(spec))
    results, walked = [], []
    for length in frame_lengths(spec):
        frame = sample_frame(length)
        trace, after = emulator.packet(frame)
        accesses = _working_set(spec, trace)
        counts = seen(accesses, None)
        require(spec, counts, _WHERE)
        require_width(spec, accesses, _WHERE)
        require_reflected(spec, frame, after, _WHERE)
        walked += [offset for offset, _, is_store in accesses if not is_store]
        results.append(counts)
    if spec.workload == "chase":
        require_cycle(spec, walked, _WHERE)
    return results


def frame_accesses(library: bytes, frame: bytes) -> list[Access]:
    """Execute ``xdplab_workload`` of any library on one frame; return every access to the frame, its headers too.

    Raises ProgramError.
    """
    trace, _ = _Emulator(library, b"\0", frame_begin=0).packet(frame)
    return [access for base, access in trace if base == _FRAME]


def user_work(library: bytes, spec: ProgramSpec) -> AccessWork:
    """Return the machine work of one access of a compiled twin, from one emulated packet."""
    emulator = _Emulator(library, user_state(spec))
    accesses = emulator.every_access(sample_frame(FRAME_LENGTHS[0]))
    is_x86 = emulator.cpu.arch == unicorn.UC_ARCH_X86
    chain = chain_of(_listing(library)) if spec.workload == "chase" and is_x86 else None
    return work_of(spec, accesses, chain)


def _listing(library: bytes) -> str:
    with tempfile.TemporaryDirectory(prefix="xdplab-user-") as name:
        (Path(name) / "workload.so").write_bytes(library)
        return disassemble_user(Path(name) / "workload.so")


def count_natively(spec: ProgramSpec, packets: int = 3) -> int:
    """Run a counting build of the twin on this machine and return the accesses it counted in ``packets`` packets."""
    with tempfile.TemporaryDirectory(prefix="xdplab-count-") as name:
        library = ctypes.CDLL(str(compile_user(spec, Path(name), "-DXDPLAB_COUNT")))
    function = library.xdplab_workload
    function.restype = ctypes.c_ulong
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint)
    state = ctypes.create_string_buffer(user_state(spec) or b"\0")
    for _ in range(packets):
        frame = ctypes.create_string_buffer(sample_frame(60), 60)
        function(state, frame, 60)
    return ctypes.c_ulonglong.in_dll(library, "xdplab_count").value


def disassemble_user(library: Path) -> str:
    """Return ``objdump -d`` of ``xdplab_workload``. Raises ProgramError if objdump is missing."""
    return run_tool(
        ["objdump", "-d", "--no-show-raw-insn", "--disassemble=xdplab_workload", library.name], library.parent
    )


def _working_set(spec: ProgramSpec, trace: list[tuple[int, Access]]) -> list[Access]:
    """Keep the accesses to the working set: bytes of the frame, words of the state, values of the table."""
    if spec.workload == "packet" or not spec.accesses:
        return [access for base, access in trace if base == _FRAME]
    accesses = [access for base, access in trace if base == _STATE]
    if spec.workload != "lookup":
        return in_state(spec, accesses)
    table = [access for access in accesses if access[0] >= HEADER_BYTES]
    if spec.map_type == "hash":  # a place is key, flag, value: 4, 4 and 8 bytes
        return [access for access in table if (access[0] - HEADER_BYTES) % 16 == WORD_BYTES]
    return table


def _unicorn(cpu: _Cpu) -> Any:
    return unicorn.Uc(cpu.arch, cpu.mode)  # type: ignore[attr-defined, no-untyped-call]


class _Emulator:
    """One library, one state, and a call of ``xdplab_workload`` for every packet."""

    def __init__(self, library: bytes, state: bytes, frame_begin: int = ETHERNET_BYTES) -> None:
        elf = ELFFile(io.BytesIO(library))
        if elf["e_machine"] not in _CPUS:
            raise ProgramError(f"{_WHERE}: the proof does not know machine {elf['e_machine']}")
        self.cpu = _CPUS[elf["e_machine"]]
        self.uc = _unicorn(self.cpu)
        self.entry = self._load(elf)
        self._map(_STATE, len(state))
        self.uc.mem_write(_STATE, state)
        self._map(_FRAME, _FRAME_ROOM)
        self._map(_STACK, _STACK_BYTES)
        self._map(_RETURN, _PAGE)
        self.trace: list[tuple[int, Access]] = []
        kinds = unicorn.UC_HOOK_MEM_READ | unicorn.UC_HOOK_MEM_WRITE
        for base, begin, size in ((_STATE, HEADER_BYTES, len(state)), (_FRAME, frame_begin, _FRAME_ROOM)):
            if begin < size:
                self.uc.hook_add(kinds, self._note, base, base + begin, base + size - 1)

    def packet(self, frame: bytes) -> tuple[list[tuple[int, Access]], bytes]:
        """Run one packet; return its accesses behind the headers of state and frame, and the frame afterwards."""
        self.trace.clear()
        self.uc.mem_write(_FRAME, frame)
        for register, value in zip(self.cpu.arguments, (_STATE, _FRAME, len(frame)), strict=True):
            self.uc.reg_write(register, value)
        stack = _STACK + _STACK_BYTES - 64
        if self.cpu.link is None:
            stack -= 8
            self.uc.mem_write(stack, _RETURN.to_bytes(8, "little"))
        else:
            self.uc.reg_write(self.cpu.link, _RETURN)
        self.uc.reg_write(self.cpu.stack, stack)
        try:
            self.uc.emu_start(self.entry, _RETURN, timeout=60 * unicorn.UC_SECOND_SCALE)
        except unicorn.unicorn.UcError as error:
            raise ProgramError(f"{_WHERE}: the emulated workload fails: {error}") from None
        return list(self.trace), bytes(self.uc.mem_read(_FRAME, len(frame)))

    def every_access(self, frame: bytes) -> list[Access]:
        """Run one packet; return every access of its machine code, but those of the frame's header."""
        accesses: list[Access] = []

        def note(uc: object, kind: int, address: int, size: int, value: int, data: object) -> None:
            if not _FRAME <= address < _FRAME + ETHERNET_BYTES:
                accesses.append((address, size, kind == unicorn.UC_MEM_WRITE))

        hook = self.uc.hook_add(unicorn.UC_HOOK_MEM_READ | unicorn.UC_HOOK_MEM_WRITE, note)
        self.packet(frame)
        self.uc.hook_del(hook)
        return accesses

    def _note(self, uc: object, kind: int, address: int, size: int, value: int, base: int) -> None:
        self.trace.append((base, (address - base, size, kind == unicorn.UC_MEM_WRITE)))

    def _map(self, address: int, size: int) -> None:
        self.uc.mem_map(address, max(_PAGE, (size + _PAGE - 1) // _PAGE * _PAGE))

    def _load(self, elf: ELFFile) -> int:
        """Map the library as the dynamic linker would; return the address of ``xdplab_workload``."""
        segments = [part for part in elf.iter_segments() if part["p_type"] == "PT_LOAD"]
        self._map(_LIBRARY, max(part["p_vaddr"] + part["p_memsz"] for part in segments))
        for segment in segments:
            self.uc.mem_write(_LIBRARY + segment["p_vaddr"], segment.data())
        symbols: Any = elf.get_section_by_name(".dynsym")
        for part in elf.iter_sections():
            if isinstance(part, RelocationSection):
                self._relocate(part, symbols)
        symbol = symbols.get_symbol_by_name("xdplab_workload")
        if not symbol:
            raise ProgramError(f"{_WHERE}: the library exports no xdplab_workload")
        return int(_LIBRARY + symbol[0]["st_value"])

    def _relocate(self, relocations: RelocationSection, symbols: Any) -> None:
        for one in relocations.iter_relocations():
            addend = one["r_addend"] if one.is_RELA() else 0
            symbol = symbols.get_symbol(one["r_info_sym"])
            if one["r_info_type"] == self.cpu.relative:
                value = _LIBRARY + addend
            elif one["r_info_type"] in self.cpu.absolute and symbol["st_shndx"] != "SHN_UNDEF":
                value = _LIBRARY + symbol["st_value"] + addend
            else:
                continue  # of the C library's start-up code, which is not run
            self.uc.mem_write(_LIBRARY + one["r_offset"], (value & _M64).to_bytes(8, "little"))
