"""A second way to count: unicorn executes the machine code that a kernel's JIT, or a C compiler, made of a program."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import unicorn
from elftools.elf.elffile import ELFFile
from unicorn import x86_const

from xdplab.studies.cost.counts import Measurement

_CONTEXT, _FRAME, _STACK, _END, _CODE, _STATE = 0x10000, 0x20000, 0x80000, 0x90000, 0x400000, 0x10000000
_PAGE, _MOST = 1 << 12, 1_000_000


def interpreted(measurement: Measurement, frame: bytes) -> list[int]:
    """Return the addresses of the instructions that a program without calls executes for a frame, in their order.

    struct xdp_buff begins with data and data_end; a map is zeroes, at whatever address the code has.
    """
    (function,) = [one for one in measurement.functions if one.role == "program"]
    context = _FRAME.to_bytes(8, "little") + (_FRAME + len(frame)).to_bytes(8, "little")
    registers = {x86_const.UC_X86_REG_RDI: _CONTEXT}
    executed = _executed(function.code, {_FRAME: frame, _CONTEXT: context}, registers)
    return [function.start + offset for offset in executed]


def interpreted_workload(library: bytes, frame: bytes) -> int:
    """Return how many instructions a workload's function executes for a frame in user space; its state is zeroes."""
    elf = ELFFile(io.BytesIO(library))
    (symbol,) = elf.get_section_by_name(".dynsym").get_symbol_by_name("xdplab_workload")  # type: ignore[attr-defined]
    section = elf.get_section(symbol["st_shndx"])
    at = symbol["st_value"] - section["sh_addr"]
    code = section.data()[at : at + symbol["st_size"]]
    arguments = {x86_const.UC_X86_REG_RDI: _STATE, x86_const.UC_X86_REG_RSI: _FRAME}
    return len(_executed(code, {_FRAME: frame}, arguments | {x86_const.UC_X86_REG_RDX: len(frame)}))


def _executed(code: bytes, memory: Mapping[int, bytes], registers: Mapping[int, int]) -> list[int]:
    """Return the offsets of the instructions that are executed, in their order."""
    machine: Any = unicorn.Uc(unicorn.UC_ARCH_X86, unicorn.UC_MODE_64)
    mapped = set[int]()

    def give(address: int) -> None:
        if (page := address & ~(_PAGE - 1)) not in mapped:
            mapped.add(page)
            machine.mem_map(page, _PAGE)

    def missing(_: Any, access: int, address: int, size: int, value: int, data: Any) -> bool:
        give(address)
        give(address + size - 1)
        return True

    machine.hook_add(unicorn.UC_HOOK_MEM_UNMAPPED, missing)
    for address, content in ((_CODE, code), (_END, b"\x90"), (_STACK, b""), *memory.items()):
        for page in range(address - _PAGE, address + len(content) + _PAGE, _PAGE):
            give(page)
        machine.mem_write(address, content)
    machine.mem_write(_STACK, _END.to_bytes(8, "little"))
    machine.reg_write(x86_const.UC_X86_REG_RSP, _STACK)
    for register, value in registers.items():
        machine.reg_write(register, value)
    offsets: list[int] = []

    def executed(_: Any, address: int, *others: Any) -> None:
        offsets.append(address - _CODE)

    machine.hook_add(unicorn.UC_HOOK_CODE, executed, begin=_CODE, end=_CODE + len(code) - 1)
    machine.emu_start(_CODE, _END, count=_MOST)
    return offsets
