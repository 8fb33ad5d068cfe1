"""Keeps a user-mode Linux from a state of the CPU that does not fit its buffer. Standard library only.

A UML of 6.1 reads and writes the FPU's state of its processes by ptrace, as one XSAVE area of 2,696 bytes. With AMX
that area has 11,008; the host's kernel refuses to take less than the whole, and PID 1 dies at its first page fault.
If UML cannot read the area at all, it uses the older FXSAVE (x87 and SSE). So a seccomp filter refuses that request
here. The upper halves of the AVX registers are then lost at every page fault. The C library and OpenSSL inside are the
only ones that would use them unasked, and their environment tells them that there is no AVX.
Sources: arch/x86/um/os-Linux/registers.c (arch_init_registers) of 6.1, arch/x86/kernel/fpu/regset.c (xstateregs_set) of
the host; struct seccomp_data of linux/seccomp.h.
"""

import ctypes
import errno
import os
import struct
from pathlib import Path

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
SYS_PTRACE, PTRACE_GETREGSET, NT_X86_XSTATE = 101, 0x4204, 0x202
NUMBER, REQUEST, ADDRESS = 0, 16, 32
"""Where seccomp_data holds the system call, and the low halves of its first and third argument."""
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06

FILTER = (
    *((LOAD, 0, 0, NUMBER), (JUMP_IF_EQUAL, 0, 5, SYS_PTRACE)),
    *((LOAD, 0, 0, REQUEST), (JUMP_IF_EQUAL, 0, 3, PTRACE_GETREGSET)),
    *((LOAD, 0, 0, ADDRESS), (JUMP_IF_EQUAL, 0, 1, NT_X86_XSTATE)),
    (RETURN, 0, 0, ERRNO | errno.ENODEV),
    (RETURN, 0, 0, ALLOW),
)
"""Refuses PTRACE_GETREGSET of NT_X86_XSTATE as a CPU without XSAVE would."""


ENVIRONMENT = {
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-AVX512VL,-AVX512BW,-AVX_Fast_Unaligned_Load",
    "OPENSSL_ia32cap": "~0x1800000000000000:0",
}
"""The environment of every process inside: no AVX (and no XSAVE, by which OpenSSL detects AVX)."""


def is_too_long() -> bool:
    """Tell whether this CPU's state does not fit into UML's buffer."""
    return "amx_tile" in Path("/proc/cpuinfo").read_text().partition("\n\n")[0].split()


def hide() -> None:
    """Hide the state from this process and its children. Raises OSError."""
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in FILTER)
    held = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("HP", len(FILTER), ctypes.addressof(held)))
    libc = ctypes.CDLL(None, use_errno=True)
    for option, *arguments in ((PR_SET_NO_NEW_PRIVS, 1), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program)):
        zeros = [ctypes.c_ulong(0)] * (4 - len(arguments))
        values = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments]
        if libc.prctl(option, *values, *zeros):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
