"""A second way to count: unicorn executes the machine code that a kernel's JIT has made of a program."""

from __future__ import annotations

from typing import Any

import unicorn
from unicorn import x86_const

from xdplab.studies.cost.counts import Measurement

_CONTEXT, _FRAME, _STACK, _END, _CODE = 0x10000, 0x20000, 0x80000, 0x90000, 0x400000
_PAGE, _MOST = 1 << 12, 1_000_000


def interpreted(measurement: Measurement, frame: bytes) -> int:
    """Return how many instructions a program without calls executes for a frame.

    struct xdp_buff begins with data and data_end; a map is zeroes, at whatever address the code has.
    """
    (function,) = [one for one in measurement.functions if one.role == "program"]
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
    for address, content in ((_CODE, function.code), (_FRAME, frame), (_END, b"\x90"), (_STACK, b"")):
        for page in range(address - _PAGE, address + len(content) + _PAGE, _PAGE):
            give(page)
        machine.mem_write(address, content)
    give(_CONTEXT)
    machine.mem_write(_CONTEXT, _FRAME.to_bytes(8, "little") + (_FRAME + len(frame)).to_bytes(8, "little"))
    machine.mem_write(_STACK, _END.to_bytes(8, "little"))
    machine.reg_write(x86_const.UC_X86_REG_RSP, _STACK)
    machine.reg_write(x86_const.UC_X86_REG_RDI, _CONTEXT)
    count = 0

    def executed(*_: Any) -> None:
        nonlocal count
        count += 1

    machine.hook_add(unicorn.UC_HOOK_CODE, executed, begin=_CODE, end=_CODE + len(function.code) - 1)
    machine.emu_start(_CODE, _END, count=_MOST)
    return count
