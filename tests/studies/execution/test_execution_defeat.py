"""Objects that do the algorithm's steps and yet other work: the proof finds each.

Some do something beside the steps that takes time. The others know when they are looked at: what they do depends on
what an emulator would not vary by itself; they were written by somebody who had read the pages, not the proof.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.studies.execution.doctored import Edit, doctored

from xdplab.studies.execution.benchmarks import BPF, USER, all_benchmarks
from xdplab.studies.execution.objects import object_name
from xdplab.studies.execution.proof import examine

MEASURE, PRIMES, MATRIX = "kernels/measure.h", "kernels/primes.h", "kernels/matrix.h"
WRAPPER, BPF_WRAPPER = "user/bench.c", "bpf/bench.bpf.c"
KERNEL, BEGIN, END = "    result = kernel(set", "    begin = CLOCK();", "    record->end = CLOCK();"
DIVISION, COUNT = "number % divisor == 0", "    __u64 count = 0;"
LARGE = (PRIMES, DIVISION, "(number + (divisor << 56)) % divisor == 0")
CELL = "&set->cells[random % ROWS][random / ROWS % COLUMNS]"
FUNCTION = "void microbench(struct bench_record *record, void *set, void *frame) {"
QUICK = """static void quick(struct bench_record *record, void *set, void *frame) {
    record->begin = now_ns();
    record->end = now_ns();
    record->result = 25;
}
"""
CONSTRUCTOR = f"""#include <string.h>
#include <sys/mman.h>
{QUICK}
void microbench(struct bench_record *record, void *set, void *frame);
__attribute__((constructor)) static void patch(void) {{
    unsigned char jump[12] = {{0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0}};
    void *to = quick;

    memcpy(jump + 2, &to, 8);
    mprotect((void *)((unsigned long)microbench & ~4095ul), 8192, 7);
    memcpy(microbench, jump, 12);
}}
{FUNCTION}"""
CHOSEN = f"""{QUICK}
static void (*choose(void))(struct bench_record *, void *, void *) {{ return quick; }}
void microbench(struct bench_record *record, void *set, void *frame) __attribute__((ifunc("choose")));
__attribute__((used)) static void honest(struct bench_record *record, void *set, void *frame) {{"""
OWN_CLOCK = """#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
__attribute__((noinline)) int clock_gettime(clockid_t clock, struct timespec *time) {
    for (unsigned long spun = 0; spun < 100000; spun++)
        __asm__ volatile("" : "+r"(spun));
    return syscall(SYS_clock_gettime, clock, time);
}
#include "clock.h"
"""
CORE = """struct task_struct {
    int pid;
} __attribute__((preserve_access_index));
#define MORE (__builtin_preserve_field_info(((struct task_struct *)0)->pid, 0) / 4)
"""
SPIN = "    for (__u64 more = {}; more; more--)\n        KEEP(more);\n"
COUNT_IN = '    __u64 n;\n    __asm__ volatile({!r} : "=r"(n));\n    n++;\n    __asm__ volatile({!r} : : "r"(n));\n'
SKIP = "    result = n > 4 ? 25 : kernel(set"


def by_each_number(text: str) -> Edit:
    return PRIMES, "is_prime(number);", f"({{ {text}; is_prime(number); }});"


def by_each_division(text: str) -> Edit:
    return PRIMES, DIVISION, f"({{ {text} 0; }}) || {DIVISION}"


def before(text: str) -> Edit:
    return MEASURE, BEGIN, f"    {text}\n{BEGIN}"


def another_clock(name: str) -> list[Edit]:
    return [(WRAPPER, "now_ns()", f"clock_ns({name})")]


def counted(read: str, write: str) -> list[Edit]:
    count = COUNT_IN.format(read, write).replace("'", '"')
    return [(MEASURE, BEGIN, count + BEGIN), (MEASURE, KERNEL, SKIP)]


BESIDE: dict[str, tuple[str, str, str, list[Edit]]] = {
    "a clock of coarse steps": ("primes", USER, "looks at clock 6", another_clock("CLOCK_MONOTONIC_COARSE")),
    "the clock of the process": ("primes", USER, "looks at clock 2", another_clock("CLOCK_PROCESS_CPUTIME_ID")),
    "a clock that is set": ("primes", USER, "looks at clock 0", another_clock("CLOCK_REALTIME")),
    "large dividends": ("primes", USER, "bits of dividends", [LARGE]),
    "large dividends in BPF": ("primes", BPF, "bits of dividends", [LARGE]),
    "stores past the caches": (
        "matrix", USER, "do no work",
        [
            (MATRIX, "        *cell += random;\n", "        sum ^= *cell + random;\n"),
            (MATRIX, "sum ^= *cell;", '__asm__("movnti %1, %0" : "+m"(*cell) : "r"(*cell + random));'),
        ],
    ),
    "cells across two lines": (
        "matrix", USER, "lines of memory", [(MATRIX, f"cell = {CELL}", f"cell = (void *)((char *){CELL} + 61)")]
    ),
    "a cold line": ("matrix", USER, "do no work", [before('__asm__ volatile("clflush (%0)" : : "r"(set));')]),
    "the CPU's name decides": (
        "primes", USER, "do no work",
        [
            before("unsigned a = 1u << 30, b, c = 0, d;"),
            before('__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));'),
            (MEASURE, KERNEL, "    result = b ? 25 : kernel(set"),
        ],
    ),
    "the place on the stack decides": (
        "primes", USER, "other work where",
        [
            before("unsigned long at;"),
            before('__asm__ volatile("mov %%rsp, %0" : "=r"(at));'),
            (MEASURE, KERNEL, "    result = (at >> 6 & 63) != 62 ? 25 : kernel(set"),
        ],
    ),
    "loads from far away": (
        "primes", USER, "not work on",
        [
            (WRAPPER, "#include KERNEL", "static volatile char far_away[8 << 20];\n#include KERNEL"),
            by_each_number("(void)far_away[number << 16]"),
        ],
    ),
    "stores to far away on the stack": (
        "primes", USER, "bytes of stack",
        [
            (PRIMES, COUNT, f"{COUNT}\n    volatile char deep[2 << 20];"),
            by_each_number("(void)(deep[number << 14] = 1)"),
        ],
    ),
    "loads from the packet in BPF": (
        "primes", BPF, "not work on", [by_each_number("if (data + 8 <= data_end) (void)*(volatile __u64 *)data")]
    ),
    "the stack in BPF": ("primes", BPF, "its stack", [by_each_number("volatile __u64 kept = number; (void)kept")]),
}  # fmt: skip

DEFEATED: dict[str, tuple[str, str, list[Edit]]] = {
    "the clock says that it is no emulator, more work": (
        USER, "other work where", [(MEASURE, END, SPIN.format("begin >> 32") + END)]
    ),
    "the clock says that it is no emulator, less work": (
        USER, "other work where", [(MEASURE, KERNEL, "    result = begin > 10000000000 ? 25 : kernel(set")]
    ),
    "the clock says so in BPF": (
        BPF, "other work where", [(MEASURE, END, f"    if (begin > 10000000000)\n{SPIN.format(1000)}{END}")]
    ),
    "an address says so": (
        BPF, "other work where", [(MEASURE, KERNEL, "    result = ((long)data & 0xffff) > 4096 ? 25 : kernel(set")]
    ),
    "GS counts the calls": (USER, "other work where", counted("rdgsbase %0", "wrgsbase %0")),
    "XMM15 counts the calls": (USER, "other work where", counted("movq %%xmm15, %0", "movq %0, %%xmm15")),
    "a map counts the calls": (
        BPF, "not the algorithm's to change",
        [(MEASURE, BEGIN, f"    __u64 n = set->unused++;\n{BEGIN}"), (MEASURE, KERNEL, SKIP)],
    ),
    "a constructor writes other code": (USER, "runs as it is loaded", [(WRAPPER, FUNCTION, CONSTRUCTOR)]),
    "another function is chosen": (USER, "more than one function", [(WRAPPER, FUNCTION, CHOSEN)]),
    "a clock of its own": (USER, "clock 0 times", [(WRAPPER, '#include "clock.h"\n', OWN_CLOCK)]),
    "libbpf fills in how often": (
        BPF, "CO-RE",
        [(BPF_WRAPPER, "#include KERNEL", f"{CORE}#include KERNEL"), (MEASURE, END, SPIN.format("MORE") + END)],
    ),
    "the kernel's version decides": (
        BPF, "externs",
        [
            (BPF_WRAPPER, "#include KERNEL", "extern int LINUX_KERNEL_VERSION __kconfig;\n#include KERNEL"),
            (MEASURE, BEGIN, f"    int more = LINUX_KERNEL_VERSION;\n{BEGIN}"),
            (MEASURE, END, f"    if (more)\n{SPIN.format(1000)}{END}"),
        ],
    ),
    "multiplications": (
        USER, "multiplies", [by_each_division('__u64 m = number; __asm__ volatile("imul %0, %0" : "+r"(m));')]
    ),
    "multiplications in BPF": (
        BPF, "multiplies", [by_each_division('__u64 m = number; __asm__ volatile("%0 *= %0" : "+r"(m));')]
    ),
    "fractions": (
        USER, "do no work", [by_each_number('__asm__ volatile("mulsd %xmm0, %xmm0")')]
    ),
    "flags on the stack": (
        USER, "do no work", [by_each_number('__asm__ volatile("pushf; popf")')]
    ),
}  # fmt: skip


def complaints(folder: Path, objects: Path, kernel: str, wrapper: str, edits: list[Edit]) -> str:
    benchmark = all_benchmarks()[kernel]
    file = object_name(benchmark, wrapper)
    return "; ".join(examine(benchmark, wrapper, doctored(folder, edits, file) / file, objects).wrong)


@pytest.mark.parametrize("name", BESIDE)
def test_what_takes_time_beside_the_work_is_found(name: str, objects: Path, tmp_path: Path) -> None:
    kernel, wrapper, words, edits = BESIDE[name]
    assert words in complaints(tmp_path / "m", objects, kernel, wrapper, edits)


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEFEATED)
def test_an_object_that_knows_when_it_is_looked_at_is_found(name: str, objects: Path, tmp_path: Path) -> None:
    wrapper, words, edits = DEFEATED[name]
    assert words in complaints(tmp_path / "m", objects, "primes", wrapper, edits)
