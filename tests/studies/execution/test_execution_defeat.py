"""Objects that know when they are looked at: what they do depends on what an emulator would not vary by itself.

They were written by somebody who had read the pages, not the proof; ten of them passed at first.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.studies.execution.doctored import doctored

from xdplab.studies.execution.benchmarks import BPF, USER, all_benchmarks
from xdplab.studies.execution.objects import build, object_name
from xdplab.studies.execution.proof import examine

pytestmark = pytest.mark.thorough

MEASURE, PRIMES, WRAPPER, BPF_WRAPPER = "kernels/measure.h", "kernels/primes.h", "user/bench.c", "bpf/bench.bpf.c"
KERNEL, BEGIN, END = "    result = kernel(set", "    begin = CLOCK();", "    record->end = CLOCK();"
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


def by_each_division(text: str) -> tuple[str, str, str]:
    return PRIMES, "number % divisor == 0", f"({{ {text} 0; }}) || number % divisor == 0"


def by_each_number(text: str) -> tuple[str, str, str]:
    return PRIMES, "is_prime(number);", f'({{ __asm__ volatile("{text}"); is_prime(number); }});'


def counted(read: str, write: str) -> list[tuple[str, str, str]]:
    count = COUNT_IN.format(read, write).replace("'", '"')
    return [(MEASURE, BEGIN, count + BEGIN), (MEASURE, KERNEL, SKIP)]


Edits = list[tuple[str, str, str]]
DEFEATED: dict[str, tuple[str, str, Edits]] = {
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
        USER, "do no work", [by_each_number("mulsd %xmm0, %xmm0")]
    ),
    "flags on the stack": (
        USER, "do no work", [by_each_number("pushf; popf")]
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pristine")
    for name, content in build([all_benchmarks()["primes"]]).items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("name", DEFEATED)
def test_an_object_that_knows_when_it_is_looked_at_is_found(name: str, pristine: Path, tmp_path: Path) -> None:
    wrapper, words, edits = DEFEATED[name]
    primes = all_benchmarks()["primes"]
    made = doctored(tmp_path / "microbench", object_name(primes, wrapper), edits)
    assert words in "; ".join(examine(primes, wrapper, made, pristine).wrong)
