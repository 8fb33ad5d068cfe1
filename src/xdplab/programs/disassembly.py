"""BPF instructions as text, in the kernel verifier's notation: of an object, and of the kernel's rewritten image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdplab.programs.image import Image, Insn
from xdplab.programs.steps import ARITHMETIC, CALL, COMPARE, END, EXIT, JUMP, LD_IMM64, NEGATE, SIZES

_HELPERS = {1: "bpf_map_lookup_elem", 8: "bpf_get_smp_processor_id"}


def disassemble(image: Image) -> str:
    """Return the object's program and subprograms, with the names of maps and functions."""
    notes = {at: f"{r.symbol}[{r.offset}]" if r.offset else r.symbol for at, r in image.references.items()}
    calls = {
        at: image.functions.get(at + 1 + insn.imm, f"pc{insn.imm:+d}")
        for at, insn in enumerate(image.insns)
        if insn.code == 0x85 and insn.src == 1
    }
    return _listing(image.insns, {**notes, **calls}, image.functions)


def disassemble_xlated(insns: Sequence[Insn], names: Mapping[int, str]) -> str:
    """Return the kernel's image. ``names``: the kernel function behind a call's immediate, if known."""
    calls = {at: names[i.imm] for at, i in enumerate(insns) if i.code == 0x85 and not i.src and i.imm in names}
    return _listing(insns, calls, {})


def _listing(insns: Sequence[Insn], notes: Mapping[int, str], functions: Mapping[int, str]) -> str:
    lines = []
    second_half = False
    for at, insn in enumerate(insns):
        if at in functions:
            lines.append(f"{functions[at]}:")
        if not second_half:
            following = insns[at + 1].imm if at + 1 < len(insns) else 0
            lines.append(f"{at:6}: {text(insn, following, notes.get(at))}")
        second_half = insn.code == LD_IMM64 and not second_half
    return "\n".join(lines) + "\n"


def text(insn: Insn, following_imm: int = 0, note: str | None = None) -> str:
    """Return one instruction. ``following_imm``: the immediate after it, the upper half of a 64-bit one."""
    kind, mode = insn.code & 7, insn.code & 0xE0
    if insn.code == LD_IMM64:
        value = note or hex((following_imm & 0xFFFFFFFF) << 32 | insn.imm & 0xFFFFFFFF)
        return f"r{insn.dst} = {value} ll"
    if kind == 1 and mode == 0x60:
        return f"r{insn.dst} = {_memory(insn, insn.src)}"
    if kind in (2, 3) and mode == 0x60:
        return f"{_memory(insn, insn.dst)} = {f'r{insn.src}' if kind == 3 else insn.imm}"
    if kind in (4, 7):
        return _arithmetic(insn)
    if kind in (5, 6):
        return _branch(insn, note)
    return f".insn {insn.code:#04x} dst={insn.dst} src={insn.src} off={insn.off} imm={insn.imm}"


def _memory(insn: Insn, base: int) -> str:
    return f"*(u{8 * SIZES[insn.code & 0x18]} *)(r{base} {insn.off:+d})"


def _arithmetic(insn: Insn) -> str:
    operation, letter = insn.code & 0xF0, "r" if insn.code & 7 == 7 else "w"
    left = f"{letter}{insn.dst}"
    if operation == NEGATE:
        return f"{left} = -{left}"
    if operation == END:
        return f"r{insn.dst} = {'be' if insn.code & 8 else 'le'}{insn.imm} r{insn.dst}"
    sign = ARITHMETIC[operation][0] if operation in ARITHMETIC else f"op{operation:#x}"
    return (
        f"{left} {sign} {f'{letter}{insn.src}' if insn.code & 8 else insn.imm}{f' off={insn.off}' if insn.off else ''}"
    )


def _branch(insn: Insn, note: str | None) -> str:
    operation, letter = insn.code & 0xF0, "r" if insn.code & 7 == 5 else "w"
    if operation == EXIT:
        return "exit"
    if operation == CALL:
        return f"call {note or (insn.src == 0 and _HELPERS.get(insn.imm)) or _pc(insn)}"
    if operation == JUMP:
        return f"goto {insn.off if letter == 'r' else insn.imm:+d}"
    sign = COMPARE[operation][0] if operation in COMPARE else f"op{operation:#x}"
    right = f"{letter}{insn.src}" if insn.code & 8 else insn.imm
    return f"if {letter}{insn.dst} {sign} {right} goto {insn.off:+d}"


def _pc(insn: Insn) -> str:
    return f"pc{insn.imm:+d}" if insn.src == 1 else str(insn.imm)
