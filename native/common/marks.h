// SPDX-License-Identifier: Apache-2.0
// No-ops that a driver runs in a guest and costplugin sees. MARK: nopl with a displacement whose first byte
// says which. MARK_ADDRESS: nopl with an index that says which, and half of an address: the high half comes
// first, by MARK_HIGH.
#pragma once

// MARK_CALL begins a window as MARK_BEGIN does, in which all is counted; each look at the clock cuts it.
enum mark {
    MARK_SWITCH = 1,
    MARK_BEGIN,
    MARK_END,
    MARK_CALL,
    MARK_TOUCH,
    MARK_HIGH = 0x70,
    MARK_ROOT,
    MARK_PROGRAM,
    MARK_APPLICATION,
    MARK_APPLICATION_END
};

enum { SWITCH_US = 1000 }; // to sleep after a switch: QEMU begins anew when the CPU is at rest

#define MARK_BYTES(which) 0x0f, 0x1f, 0x80, which, 'p', 'd', 'x'
#define MARK_ADDRESS_BYTES(which) 0x0f, 0x1f, 0x84, which
#define BYTES_OF(...) #__VA_ARGS__
#define NUMBERS(...) BYTES_OF(__VA_ARGS__)

// The assembler wants the numbers of enum mark. Elsewhere nothing counts.
#ifdef __x86_64__
#define MARK(which) asm volatile(".byte " NUMBERS(MARK_BYTES(which))::: "memory")
#else
#define MARK(which)
#endif
#define SWITCH MARK(1)
#define BEGIN MARK(2)
#define END MARK(3)
#define BEGIN_CALL MARK(4)
#define TOUCH MARK(5)
