"""The machine work of one access: loads, stores and bytes of the whole walk, and the dependent operations of a chase.

The proof counts accesses; this says what each of them is in machine instructions, in the kernel and in user space.
Where the two differ, figures and findings say so.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from xdplab.compiler import run_tool
from xdplab.errors import ProgramError
from xdplab.programs.build import BuiltProgram
from xdplab.programs.counting import ETHERNET_BYTES, XDP_TX, Access, sample_frame
from xdplab.programs.image import Image, Insn, decode
from xdplab.programs.machine import SMP_PROCESSOR_ID, Interpreter, Region
from xdplab.programs.spec import ProgramSpec, UserProgram
from xdplab.programs.steps import LD_IMM64, M32, M64, Registers, Step

_FRAME_BYTES = 60
_DATA, _DATA_END = 0, 8  # struct xdp_buff, which the verifier puts in place of struct xdp_md
_MAP_FD, _MAP_VALUE = 1, 2  # BPF_PSEUDO_*, the source register of a 64-bit immediate
_PER_CPU_MOVE, _NO_SPECULATION = (0xBF, -1), 0xC2  # BPF_ADDR_PERCPU; BPF_ST | BPF_NOSPEC
_PER_CPU = 1 << 56
_CALL = 0x85


@dataclass(frozen=True)
class AccessWork:
    """Per access: machine loads, stores and the bytes they move, including the walk's own, without the MAC swap.

    ``chain``: the operations between a load of the chase and the load that depends on it, null for another machine than
    x86-64. Where nothing is known, ``missing`` says why.
    """

    loads: float | None = None
    stores: float | None = None
    bytes: float | None = None
    chain: str | None = None
    missing: str | None = None


def work_of(spec: ProgramSpec, accesses: Iterable[Access], chain: str | None = None) -> AccessWork:
    """Return the work of one access, from every machine access (offset, bytes, is store) of one packet."""
    listed = list(accesses)
    if not spec.accesses:
        return AccessWork(missing="the program makes no counted access")
    stores = sum(is_store for *_, is_store in listed)
    moved = sum(size for _, size, _ in listed)
    n = spec.accesses
    return AccessWork((len(listed) - stores) / n, stores / n, moved / n, chain)


def kernel_work(built: BuiltProgram, *, jit: bool, machine: str) -> AccessWork:
    """Return the work of the kernel's images that `load_report` left; ``machine`` is the DUT's, as uname -m says it.

    A JIT makes one machine load or store of each in the rewritten image, which is executed over memory that reads as
    zero.
    """
    spec = built.program
    if isinstance(spec, UserProgram) or not spec.accesses:
        return AccessWork(missing="the program makes no counted access")
    if spec.hook == "tc":
        return AccessWork(missing="what one access does is read from XDP programs, whose context has two fields")
    if spec.action == "redirect":
        return AccessWork(missing="what one access does is read from programs that send frames back (directions: back)")
    if not jit:
        return AccessWork(missing="the kernel interprets the program: its accesses are the interpreter's")
    insns = decode((built.directory / "xlated.bin").read_bytes())
    kernel = _Rewritten(insns, machine)
    try:
        run = kernel.run(sample_frame(_FRAME_BYTES))
    except ProgramError as error:
        return AccessWork(missing=f"the kernel's image could not be executed: {error.message}")
    if kernel.helpers or kernel.kfuncs:
        return AccessWork(missing="each access calls a function of the kernel, whose own loads are not the program's")
    if run.verdict != XDP_TX:
        return AccessWork(missing=f"the kernel's image returned {run.verdict}: not every access was made")
    chain = None
    if spec.workload == "chase" and machine == "x86_64":
        chain = chain_of(_disassembled((built.directory / "jited.bin").read_bytes()))
    return work_of(spec, kernel.touched(), chain)


def kernel_calls(built: BuiltProgram) -> int:
    """Return the calls of kfuncs that the kernel's image, which `load_report` left, makes for a packet."""
    kernel = _Rewritten(decode((built.directory / "xlated.bin").read_bytes()), "")
    kernel.run(sample_frame(_FRAME_BYTES))
    return kernel.kfuncs.total()


class _Rewritten(Interpreter):
    """The kernel's image, executed over memory of any address that reads as zero until it is written."""

    def __init__(self, insns: Sequence[Insn], machine: str) -> None:
        self.helpers = 0
        self._stacks: list[Region] = []
        self._accesses: list[Access] = []
        self._bytes: dict[int, int] = {}
        super().__init__(Image("xdp", "xdp", tuple(_distinct(insns)), {}, {}, {}), {})
        for at, insn in enumerate(insns):
            if (insn.code, insn.off) == _PER_CPU_MOVE:
                self._steps[at] = self._per_cpu(at, insn, in_memory=machine == "x86_64")
            elif insn.code == _NO_SPECULATION:
                self._steps[at] = _go_on(at)

    def touched(self) -> list[Access]:
        """Return every access but those of the context and of the frame's header, where the MACs are swapped."""
        stack = [access for region in self._stacks for access in region.trace]
        return [*self._accesses, *stack, *(a for a in self.frame_trace if a[0] >= ETHERNET_BYTES)]

    def _add(self, region: Region) -> int:
        if region.name == "stack":
            self._stacks.append(region)
        return super()._add(region)

    def _per_cpu(self, at: int, insn: Insn, *, in_memory: bool) -> Step:
        def run(r: Registers) -> int:
            if in_memory:  # x86: the CPU's own offset is a variable of its own
                self._accesses.append((0, 8, False))
            r[insn.dst] = (r[insn.src] + _PER_CPU) & M64
            return at + 1

        return run

    def load(self, address: int, size: int) -> int:
        if address >> 32 in self._regions:
            return super().load(address, size)
        self._accesses.append((address, size, False))
        return int.from_bytes(bytes(self._bytes.get(address + i, 0) for i in range(size)), "little")

    def store(self, address: int, size: int, value: int) -> None:
        if address >> 32 in self._regions:
            super().store(address, size, value)
            return
        self._accesses.append((address, size, True))
        for i, byte in enumerate((value & ((1 << 8 * size) - 1)).to_bytes(size, "little")):
            self._bytes[address + i] = byte

    def _context_field(self, offset: int) -> int:
        return super()._context_field({_DATA: 0, _DATA_END: 4}.get(offset, -1))

    def call_helper(self, number: int, registers: Registers) -> None:
        if number == SMP_PROCESSOR_ID:
            registers[0] = 0
        else:  # a distance from __bpf_call_base: the called function's work is not visible
            self.helpers += 1
            registers[0] = _PER_CPU
        registers[1:6] = [0xDEAD << 48] * 5


def _go_on(at: int) -> Step:
    return lambda r: at + 1


def _distinct(insns: Sequence[Insn]) -> list[Insn]:
    """Give each map an address range of its own; make a call's distance what an object's call has."""
    bases: dict[tuple[int, int], int] = {}
    result = list(insns)
    for at, insn in enumerate(insns):
        if insn.code == LD_IMM64 and insn.src in (_MAP_FD, _MAP_VALUE):
            base = bases.setdefault((insn.src, insn.imm), len(bases) + 1) << 48
            address = base + (insns[at + 1].imm if insn.src == _MAP_VALUE else 0)
            result[at] = replace(insn, src=0, imm=address & M32)
            result[at + 1] = replace(insns[at + 1], imm=address >> 32)
        elif insn.code == _CALL and insn.src == 1:
            result[at] = replace(insn, imm=insn.off)
    return result


def _disassembled(code: bytes) -> str:
    with tempfile.TemporaryDirectory(prefix="xdplab-jited-") as name:
        (Path(name) / "jited.bin").write_bytes(code)
        return run_tool(
            ["objdump", "-D", "-b", "binary", "-mi386:x86-64", "--no-show-raw-insn", "jited.bin"], Path(name)
        )


_LINE = re.compile(r"^\s*[0-9a-f]+:\s+(\w+)\s+(\S.*)$", re.MULTILINE)
_OPERAND = re.compile(r"[^,(]*\([^)]*\)|[^,]+")
_NARROW = re.compile(r"%(?:r(\d+)[dwb]|e?([abcd])[xl]|[er]?([sd])il?|[er]?([sb])pl?)$")

Chain = tuple[int, tuple[str, ...]]
"""The load that a value was made from, by number, and the operations since."""


def chain_of(listing: str) -> str | None:
    """Return the operations from one load to the next that needs it, as most loads of a listing have them.

    ``listing``: x86-64 in objdump's AT&T notation. A value made from several loads counts for the last. Copies between
    registers cost nothing and are left out. Null where no load depends on another.
    """
    values: dict[str, Chain | None] = {}
    chains: Counter[tuple[str, ...]] = Counter()
    for number, (name, text) in enumerate(_LINE.findall(listing)):
        operands = [_wide(part.strip()) for part in _OPERAND.findall(text.split("<")[0].split("#")[0])]
        if len(operands) < 2 or not operands[-1].startswith("%") or name in ("cmp", "test"):
            continue  # a store, a jump, a call, or nothing that a register keeps
        made_from = [values.get(register) for operand in operands for register in _registers(operand)]
        *sources, target = operands
        if not name.startswith("mov"):
            last = _last(made_from)
            values[target] = None if last is None else (last[0], (*last[1], name))
        elif "(" in sources[0]:
            address = _last([values.get(register) for register in _registers(sources[0])])
            chains.update([] if address is None else [address[1]])
            values[target] = (number, ())
        else:
            values[target] = values.get(sources[0])
    return " ".join((*chains.most_common(1)[0][0], "load")) if chains else None


def _last(chains: Sequence[Chain | None]) -> Chain | None:
    return max((chain for chain in chains if chain is not None), default=None)


def _registers(operand: str) -> list[str]:
    return [_wide(name) for name in re.findall(r"%\w+", operand)]


def _wide(operand: str) -> str:
    """Return the 64-bit name of a register: ``%edx`` and ``%rdx`` are one."""
    match = _NARROW.match(operand)
    if match is None:
        return operand
    number, letter, index, pointer = match.groups()
    return f"%r{number or (letter and letter + 'x') or (index and index + 'i') or pointer + 'p'}"
