"""The same steps of a BPF object: what `enclosure` decides on, whatever the machine."""

from __future__ import annotations

from collections.abc import Sequence

from xdplab.programs.disassembly import disassemble
from xdplab.programs.image import Image, Insn, read_image
from xdplab.studies.execution.objdump import CodeLine, Kind

HELPERS = {
    1: "bpf_map_lookup_elem",
    5: "bpf_ktime_get_ns",
    7: "bpf_get_prandom_u32",
    8: "bpf_get_smp_processor_id",
    12: "bpf_tail_call",
    195: "bpf_map_lookup_percpu_elem",
}
_LD_IMM64, _JUMPS, _WIDE = 0x18, (5, 6), 7
_ARITHMETIC = (4, _WIDE)
_GOTO, _CALL, _EXIT, _DIVIDE, _REMAINDER, _MULTIPLIES = 0x00, 0x80, 0x90, 0x30, 0x90, 0x20


def steps_of(content: bytes) -> tuple[list[CodeLine], dict[str, int], str]:
    """Return the steps of an object's XDP programs and subprograms, where each function begins, and all as text."""
    image = read_image(content, several=True)  # the chain has two, and is loaded by name
    return _steps(image), {name: at for at, name in image.functions.items()}, disassemble(image)


def _steps(image: Image) -> list[CodeLine]:
    steps, skip = [], False
    for at, insn in enumerate(image.insns):
        if not skip:
            steps.append(_step(image, at, insn))
        skip = insn.code == _LD_IMM64 and not skip
    return steps


def _step(image: Image, at: int, insn: Insn) -> CodeLine:
    kind = insn.code & 7
    if kind in _JUMPS:
        return _branch(image, at, insn)
    memory = insn.code & 0xE0 == 0x60
    return CodeLine(at, "divide" if divides(insn) else "other", "", loads=kind == 1 and memory, stores=kind in (2, 3))


def divides(insn: Insn) -> bool:
    """Tell whether an instruction is a division or takes a remainder."""
    return insn.code & 7 in _ARITHMETIC and insn.code & 0xF0 in (_DIVIDE, _REMAINDER)


def gives_quotient(insn: Insn) -> bool:
    """Tell whether an instruction divides and gives no remainder: a program that wants it has to multiply."""
    return insn.code & 7 in _ARITHMETIC and insn.code & 0xF0 == _DIVIDE


def multiplies(insn: Insn) -> bool:
    return insn.code & 7 in _ARITHMETIC and insn.code & 0xF0 == _MULTIPLIES


def widely(insn: Insn) -> bool:
    """Tell whether an instruction of arithmetic works on 64 bits."""
    return insn.code & 7 == _WIDE


def _branch(image: Image, at: int, insn: Insn) -> CodeLine:
    operation = insn.code & 0xF0
    if operation == _EXIT:
        return CodeLine(at, "return", "")
    if operation == _CALL:
        inside = image.functions.get(at + 1 + insn.imm, "?")
        return CodeLine(at, "call", "", callee=inside if insn.src == 1 else HELPERS.get(insn.imm, f"helper {insn.imm}"))
    offset = insn.imm if insn.code == 0x06 else insn.off  # the long jump of -mcpu=v4
    kind: Kind = "jump" if operation == _GOTO else "branch"
    return CodeLine(at, kind, "", target=at + 1 + offset)


def entry_of(steps: Sequence[CodeLine], at: int) -> int:
    """Return the index of the step at an instruction's place."""
    return next(i for i, step in enumerate(steps) if step.at == at)
