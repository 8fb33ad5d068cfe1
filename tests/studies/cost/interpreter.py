"""A second way to count: unicorn executes the machine code that a kernel's JIT, or a C compiler, made of a program."""

import io
from collections.abc import Mapping
from typing import Any, NamedTuple

import unicorn
from elftools.elf.elffile import ELFFile
from unicorn import arm64_const, x86_const

from xdplab.studies.cost.measurement import Measurement
from xdplab.studies.plugin import AARCH64, X86_64

_CONTEXT, _FRAME, _STACK, _END, _STATE, _CODE = 0x10000, 0x20000, 0x80000, 0x90000, 0x10000000, 0x100000000000
_OF_CPU, _OF_CPU_BYTES, _VALUE = 0x1000000, 1 << 20, 0x4000000
_PAGE, _MOST = 1 << 12, 1_000_000


class _Machine(NamedTuple):
    """Unicorn's numbers of an architecture and of its registers, and its return; ``link`` is None where a call leaves
    the address to return to on the stack. ``cpu_data``: what leads to a CPU's own data, the register and its value."""

    architecture: tuple[int, int]
    context: int
    result: int
    stack: int
    at: int
    link: int | None
    returns: bytes
    cpu_data: tuple[int, int]


_MACHINES = {
    X86_64: _Machine(
        (unicorn.UC_ARCH_X86, unicorn.UC_MODE_64),
        *(x86_const.UC_X86_REG_RDI, x86_const.UC_X86_REG_RAX, x86_const.UC_X86_REG_RSP, x86_const.UC_X86_REG_RIP),
        *(None, b"\xc3", (x86_const.UC_X86_REG_GS_BASE, _OF_CPU)),
    ),
    AARCH64: _Machine(
        (unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM),
        *(arm64_const.UC_ARM64_REG_X0, arm64_const.UC_ARM64_REG_X0, arm64_const.UC_ARM64_REG_SP),
        *(arm64_const.UC_ARM64_REG_PC, arm64_const.UC_ARM64_REG_LR, b"\xc0\x03\x5f\xd6"),
        (arm64_const.UC_ARM64_REG_TPIDR_EL1, _VALUE),
    ),
}


def interpreted(measurement: Measurement, frame: bytes) -> list[int]:
    """Return the addresses of a program's instructions that are executed for a frame, in their order.

    struct xdp_buff begins with data and data_end; a map is zeroes, at whatever address the code has. What the program
    calls finds a value, which is zeroes too; so does the offset of a CPU's own data lead to one.
    """
    functions = [one for one in measurement.functions if one.role == "program"]
    start = functions[0].start
    code = bytearray(functions[-1].end - start)
    for one in functions:
        code[one.start - start : one.end - start] = one.code
    context = _FRAME.to_bytes(8, "little") + (_FRAME + len(frame)).to_bytes(8, "little")
    of_cpu = _VALUE.to_bytes(8, "little") * (_OF_CPU_BYTES // 8)
    machine = _MACHINES[measurement.machine]
    entry = _CODE + measurement.entries["program"] - start
    registers = {machine.context: _CONTEXT, machine.at: entry, machine.cpu_data[0]: machine.cpu_data[1]}
    executed = _executed(bytes(code), {_FRAME: frame, _CONTEXT: context, _OF_CPU: of_cpu}, registers, machine)
    return [start + offset for offset in executed]


def interpreted_workload(library: bytes, frame: bytes) -> int:
    """Return how many instructions a workload's function executes for a frame in user space; its state is zeroes."""
    elf = ELFFile(io.BytesIO(library))
    (symbol,) = elf.get_section_by_name(".dynsym").get_symbol_by_name("xdplab_workload")  # type: ignore[attr-defined]
    section = elf.get_section(symbol["st_shndx"])
    at = symbol["st_value"] - section["sh_addr"]
    code = section.data()[at : at + symbol["st_size"]]
    arguments = {x86_const.UC_X86_REG_RDI: _STATE, x86_const.UC_X86_REG_RSI: _FRAME}
    return len(_executed(code, {_FRAME: frame}, arguments | {x86_const.UC_X86_REG_RDX: len(frame)}))


def _executed(
    code: bytes, memory: Mapping[int, bytes], registers: Mapping[int, int], of: _Machine = _MACHINES[X86_64]
) -> list[int]:
    """Return the offsets of the instructions that are executed, in their order."""
    machine: Any = unicorn.Uc(*of.architecture)
    mapped = set[int]()

    def give(address: int) -> None:
        if (page := address & ~(_PAGE - 1)) not in mapped:
            mapped.add(page)
            machine.mem_map(page, _PAGE)

    def missing(_: Any, access: int, address: int, size: int, value: int, data: Any) -> bool:
        give(address)
        give(address + size - 1)
        if access == unicorn.UC_MEM_FETCH_UNMAPPED:
            machine.mem_write(address & ~(_PAGE - 1), of.returns * (_PAGE // len(of.returns)))
        return True

    machine.hook_add(unicorn.UC_HOOK_MEM_UNMAPPED, missing)
    for address, content in ((_CODE, code), (_END, b"\x90"), (_STACK, b""), *memory.items()):
        for page in range(address - _PAGE, address + len(content) + _PAGE, _PAGE):
            give(page)
        machine.mem_write(address, content)
    machine.mem_write(_STACK, _END.to_bytes(8, "little"))
    registers = {of.stack: _STACK, of.at: _CODE, **registers} | ({of.link: _END} if of.link else {})
    for register, value in registers.items():
        machine.reg_write(register, value)
    offsets: list[int] = []

    def executed(_: Any, address: int, *others: Any) -> None:
        if _CODE <= address < _CODE + len(code):
            offsets.append(address - _CODE)
        else:
            machine.reg_write(of.result, _VALUE)

    machine.hook_add(unicorn.UC_HOOK_CODE, executed)
    machine.emu_start(registers[of.at], _END, count=_MOST)
    return offsets
