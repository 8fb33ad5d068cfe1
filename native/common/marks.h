// SPDX-License-Identifier: Apache-2.0
// No-ops that a driver runs in a guest and costplugin sees; no compiler writes them. An address comes in
// parts of 16 bits, each in an instruction of its own, and then a mark says whose it is.
#pragma once

// MARK_CALL begins a window as MARK_BEGIN does, in which all is counted; each look at the clock cuts it.
enum mark {
    MARK_SWITCH = 1,
    MARK_BEGIN,
    MARK_END,
    MARK_CALL,
    MARK_TOUCH,
    MARK_ROOT,
    MARK_PROGRAM,
    MARK_APPLICATION,
    MARK_APPLICATION_END,
    MARK_PART = 0x70 // of an address, the lowest; the next ones follow
};

enum { SWITCH_US = 1000 }; // to sleep after a switch: QEMU begins anew when the CPU is at rest

// x86-64: nopl with a displacement whose first byte says which; for a part with an index that says which.
#define X86_MARK(which) 0x0f, 0x1f, 0x80, which, 'p', 'd', 'x'
#define X86_PART(which) 0x0f, 0x1f, 0x84, which
// arm64: a hint that has no meaning; for a part movz to the register that is always zero.
#define ARM64_MARK(which) (0xd503201fU | (0x70U + (which)) << 5)
#define ARM64_PART(which, value) (0xd280001fU | (unsigned)((which)-MARK_PART) << 21 | (value) << 5)

#define BYTES_OF(...) #__VA_ARGS__
#define NUMBERS(...) BYTES_OF(__VA_ARGS__)

// The assembler wants the numbers of enum mark. Elsewhere nothing counts.
#if defined(__x86_64__)
#define MARK(which) asm volatile(".byte " NUMBERS(X86_MARK(which))::: "memory")
#elif defined(__aarch64__)
#define MARK(which) asm volatile("hint 0x70 + " #which::: "memory")
#else
#define MARK(which)
#endif
#define SWITCH MARK(1)
#define BEGIN MARK(2)
#define END MARK(3)
#define BEGIN_CALL MARK(4)
#define TOUCH MARK(5)
