"""Wrappers that do the algorithm's steps, and something else beside them that takes time: the proof finds each.

Each of these wrappers passed before: the steps, and nearly as many instructions, were right.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.studies.execution.doctored import doctored

from xdplab.studies.execution.benchmarks import BPF, USER, all_benchmarks
from xdplab.studies.execution.machines import MACHINES
from xdplab.studies.execution.objects import build, object_name
from xdplab.studies.execution.proof import examine

MEASURE, PRIMES, MATRIX, WRAPPER = "kernels/measure.h", "kernels/primes.h", "kernels/matrix.h", "user/bench.c"
BEGIN, KERNEL = "    begin = CLOCK();", "    result = kernel(set"
DIVISION, COUNT = "number % divisor == 0", "    __u64 count = 0;"
LARGE = (PRIMES, DIVISION, "(number + (divisor << 56)) % divisor == 0")
CELL = "&set->cells[random % ROWS][random / ROWS % COLUMNS]"


def by_each_number(text: str) -> tuple[str, str, str]:
    return PRIMES, "is_prime(number);", f"({{ {text}; is_prime(number); }});"


def before(text: str) -> tuple[str, str, str]:
    return MEASURE, BEGIN, f"    {text}\n{BEGIN}"


def another_clock(name: str) -> list[tuple[str, str, str]]:
    return [(WRAPPER, "now_ns()", f"clock_ns({name})")]


Edits = list[tuple[str, str, str]]
BESIDE: dict[str, tuple[str, str, str, Edits]] = {
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


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pristine")
    for name, content in build([all_benchmarks()["primes"], all_benchmarks()["matrix"]]).items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("name", BESIDE)
def test_what_takes_time_beside_the_work_is_found(name: str, pristine: Path, tmp_path: Path) -> None:
    kernel, wrapper, words, edits = BESIDE[name]
    benchmark = all_benchmarks()[kernel]
    made = doctored(tmp_path / "microbench", object_name(benchmark, wrapper), edits)
    assert words in "; ".join(examine(benchmark, wrapper, made, pristine).wrong)


SLOW = {
    "cpuid": "0fa2",
    "movnti": "480fc308",
    "movntdq": "660fe708",
    "clflush": "0fae3f",
    "prefetchw": "0f0d08",
    "str": "0f00c8",
    "lar": "480f02c0",
    "lfs": "0fb400",
    "mov cr3": "0f20d8",
    "mov cs": "8cc8",
    "stmxcsr": "0fae5cfc",
    "bts in memory": "480fab08",
    "cmpxchg": "480fb108",
    "xadd": "480fc108",
    "cvtsi2sd": "f2480f2ac8",
    "pmuludq": "660ff4c9",
    "fsin": "d9fe",
    "pdep": "c4e2fbf5c0",
    "rcl": "48c1d007",
    "xlat": "d7",
    "std": "fd",
    "cli": "fa",
    "lret": "cb",
    "pause": "f390",
    "rep stosb": "f3aa",
    "lock add": "f0480108",
}
QUICK = {
    "endbr64": "f30f1efa",
    "nop": "0f1f4000",
    "mov": "488b07",
    "lea": "488d0437",
    "div": "48f7f1",
    "imul": "480fafc1",
    "shl": "48c1e007",
    "shrd": "480facc207",
    "cmov": "480f44c1",
    "setcc": "0f94c0",
    "bt": "480fa3c8",
    "bswap": "480fc8",
    "movdqu": "f30f6f07",
    "paddq": "660fd4c1",
    "canary": "64488b042528000000",
    "call": "e800000000",
    "call through a register": "ffd0",
    "ret": "c3",
    "xchg of registers": "4887c8",
}


@pytest.mark.parametrize("name", SLOW)
def test_an_instruction_that_compilers_make_of_no_kernel_is_found(name: str) -> None:
    assert MACHINES["EM_X86_64"].idles(bytes.fromhex(SLOW[name]))


@pytest.mark.parametrize("name", QUICK)
def test_an_instruction_that_compilers_make_of_kernels_passes(name: str) -> None:
    assert not MACHINES["EM_X86_64"].idles(bytes.fromhex(QUICK[name]))
