"""The kind of instruction that each test of module test_bpf tests, by the test's name."""

from __future__ import annotations

import re

CLASSIC, LONG, OTHER = "classic", "long programs", "other eBPF"
_KINDS: tuple[tuple[str, str], ...] = (
    (LONG, r"BPF_MAXINSNS"),
    ("atomic", r"BPF_ATOMIC|Atomic_|ATOMIC_|STX_XADD"),
    ("byte swap", r"ALU_END|BSWAP"),
    ("multiply, divide", r"ALU(32|64)?_(IMM_|REG_)?S?(MUL|DIV|MOD)"),
    ("shift", r"ALU(32|64)?_(IMM_|REG_)?A?(LSH|RSH)|ALU(32|64)?_(IMM_|REG_)?ARSH"),
    ("alu64", r"ALU64_"),
    ("alu32", r"ALU(32)?_"),
    ("load imm64", r"LD_IMM64|LD IMM64|load 64-bit immediate"),
    ("memory", r"(BPF_)?(LDX|STX|ST)_MEM"),
    ("jump32", r"JMP32_"),
    ("jump", r"JMP_|Short relative jump|Long conditional jump|Staggered jumps"),
)
_FOUND = tuple((kind, re.compile(pattern)) for kind, pattern in _KINDS)
KINDS = (CLASSIC, "alu64", "alu32", "shift", "multiply, divide", "byte swap", "load imm64", "memory", "atomic", "jump",
         "jump32", LONG, OTHER)  # fmt: skip
"""Every kind, in the order of tables and figures."""


def kind_of(name: str, classic: bool) -> str:
    """Return the kind of a test of suite test_bpf: each has exactly one.

    A classic program has several kinds of instructions and becomes eBPF with a prologue, so all of them are one kind.
    """
    if classic:
        return CLASSIC
    return next((kind for kind, pattern in _FOUND if pattern.match(name)), OTHER)
