"""The proof of equal work on arm64 and riscv64: the functions of user space as cross compilers make them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from test_execution_proof import DOCTORED, IN_THE_MODULE, module_of
from tests.studies.execution.doctored import doctored

from xdplab.compiler import find_clang
from xdplab.errors import LabError
from xdplab.labs.guests.modules import BuildTree
from xdplab.labs.vm import headers
from xdplab.labs.vm.architectures import KNOWN
from xdplab.studies.execution.benchmarks import BPF, MODULE, USER, all_benchmarks
from xdplab.studies.execution.codelines import parse_objdump
from xdplab.studies.execution.machines import MACHINES
from xdplab.studies.execution.objects import build_for, build_module, object_name
from xdplab.studies.execution.proof import examine

ARCHITECTURES = ("arm64", "riscv64")
BENCHMARKS = all_benchmarks()


def compiler(architecture: str) -> str:
    try:
        return KNOWN[architecture].compiler()
    except LabError as error:
        pytest.skip(f"nothing can be compiled for {architecture} here: {error}")


def users(architecture: str, objects: Path) -> Path:
    folder = objects / architecture
    if not folder.exists():
        made = build_for(compiler(architecture), BENCHMARKS.values())
        folder.mkdir()
        for name, content in made.items():
            (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_functions_as_they_are_pass_and_so_do_the_programs_beside_them(architecture: str, objects: Path) -> None:
    theirs = users(architecture, objects)
    for benchmark in BENCHMARKS.values():
        for wrapper, folder in ((USER, theirs), (BPF, objects)):
            if wrapper in benchmark.wrappers:
                found = examine(benchmark, wrapper, folder / object_name(benchmark, wrapper), objects, theirs)
                assert not found.wrong, f"{benchmark.name}, {wrapper}: {found.wrong}"
                assert found.executed
                assert found.executed.machine == ("" if wrapper == BPF else architecture)


SEEN = {name: edit for name, edit in DOCTORED.items() if not name.endswith("in BPF")}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", SEEN)
def test_a_function_that_does_other_work_is_found(name: str, architecture: str, tmp_path: Path, objects: Path) -> None:
    """Compared with BPF as it should be: of one that is doctored alike only the algorithm would tell."""
    *edit, names = SEEN[name]
    files = {benchmark: object_name(BENCHMARKS[benchmark], USER) for benchmark in names}
    folder = doctored(tmp_path / "m", [edit], f"CC={compiler(architecture)}", *files.values())
    for benchmark, file in files.items():
        assert examine(BENCHMARKS[benchmark], USER, folder / file, objects).wrong, f"{benchmark}: {name} was not seen"


@pytest.fixture(scope="module")
def tree() -> BuildTree:
    compiler("arm64")
    try:
        return headers.tree("6.1@arm64")
    except LabError as error:
        pytest.skip(f"no module of arm64 can be built here: {error}")


def test_the_module_of_another_architecture_does_the_work(objects: Path, tree: BuildTree) -> None:
    module = build_module(tree, BENCHMARKS.values())
    theirs = users("arm64", objects)
    for benchmark in (one for one in BENCHMARKS.values() if MODULE in one.wrappers):
        assert not examine(benchmark, MODULE, module, objects, theirs).wrong, benchmark.name


@pytest.mark.parametrize("name", IN_THE_MODULE)
def test_a_module_of_another_architecture_that_does_other_work_is_found(
    name: str, objects: Path, tree: BuildTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = users("arm64", objects)
    module = module_of(tree, name, tmp_path, monkeypatch)
    for benchmark in IN_THE_MODULE[name][-1]:
        examined = examine(BENCHMARKS[benchmark], MODULE, module, objects, theirs)
        assert examined.wrong, f"{benchmark}: {name} was not seen"


TOLD = {
    ("EM_X86_64", "divides"): ("div %rcx; idivl (%rdi); divw %cx", "imul %rcx; mul %rcx; neg %rcx; add %rax, %rcx"),
    ("EM_X86_64", "is_wide"): ("div %rcx; idivq (%rdi); div %r9", "div %ecx; idivl (%rdi); div %r9d; divw %cx"),
    ("EM_X86_64", "idles"): (
        "pause; mfence; lfence; sfence; lock incl (%rdi); xchg %eax, (%rdi); cpuid; rdtsc; rep movsb; clflush (%rdi); "
        "prefetcht0 (%rdi); hlt; in %dx, %al; fld %st(1); divsd %xmm0, %xmm1; rdrand %eax; syscall; "
        "movnti %rcx, (%rax); movntdq %xmm1, (%rax); prefetchw (%rax); str %eax; lar %ax, %rax; lfs (%rax), %eax; "
        "mov %cr3, %rax; mov %cs, %eax; stmxcsr -4(%rsp); bts %rcx, (%rax); cmpxchg %rcx, (%rax); xadd %rcx, (%rax); "
        "cvtsi2sd %rax, %xmm1; pmuludq %xmm1, %xmm1; fsin; pdep %rax, %rax, %rax; rcl $7, %rax; xlat; std; cli; lret; "
        "rep stosb",
        "nop; xchg %rax, %rcx; movl $1, (%rdi); movzbl (%rdi), %eax; endbr64; nopw (%rax); movsbl %al, %eax; "
        "cmovne %eax, %ecx; movdqa %xmm0, %xmm1; bswap %rax; jmp *%rax; div %rcx; push %r12; mov %gs:0x28, %rax; "
        "lea (%rdi,%rax), %rdx; imul %rcx, %rax; shl $7, %rax; shrd $7, %rax, %rdx; sete %al; bt %rcx, %rax; "
        "movdqu (%rdi), %xmm0; paddq %xmm1, %xmm0; call 0; call *%rax; ret",
    ),
    ("EM_AARCH64", "divides"): (
        "udiv x0, x1, x2; sdiv w3, w4, w5",
        "madd x0, x1, x2, x3; lslv x0, x1, x2; add x0, x1, x2",
    ),
    ("EM_AARCH64", "is_wide"): ("udiv x0, x1, x2; sdiv x3, x4, x5", "udiv w0, w1, w2; sdiv w3, w4, w5"),
    ("EM_AARCH64", "idles"): (
        "yield; wfe; wfi; isb; dsb sy; dmb ish; ldxr x0, [x1]; stxr w2, x0, [x1]; ldaxr w0, [x1]",
        "nop; ldr x0, [x1]; stp x0, x1, [sp]; ldrb w0, [x1]; madd x0, x1, x2, x3; ret; str w0, [x1]",
    ),
    ("EM_RISCV", "divides"): (
        "div a0, a1, a2; divu a0, a1, a2; rem a0, a1, a2; remu a0, a1, a2; divw a0, a1, a2; remuw a0, a1, a2",
        "mul a0, a1, a2; mulh a0, a1, a2; mulw a0, a1, a2; add a0, a1, a2; xor a0, a1, a2; srl a0, a1, a2",
    ),
    ("EM_RISCV", "is_wide"): ("divu a0, a1, a2; remu a0, a1, a2", "divuw a0, a1, a2; remw a0, a1, a2"),
    ("EM_RISCV", "idles"): (
        "fence rw, rw; ecall; amoadd.d a0, a1, (a2); lr.w a0, (a1); csrr a0, time",
        "ld a0, 8(a1); sd a0, 8(a1); addi a0, a1, 3; remu a0, a1, a2; lui a0, 5; ret; mulw a0, a1, a2",
    ),
}
"""By machine and class: instructions that are of it, and others."""


@pytest.mark.parametrize(("machine", "kind"), TOLD)
def test_the_assembler_writes_what_the_classes_of_instructions_say(machine: str, kind: str, tmp_path: Path) -> None:
    known = MACHINES[machine]
    cross = "gcc" if known.name == "x86-64" else compiler(known.name)
    for texts, expected in zip(TOLD[machine, kind], (True, False), strict=True):
        for text in texts.split("; "):
            (tmp_path / "code.s").write_text(f".option norvc\n{text}\n" if known.name == "riscv64" else f"{text}\n")
            subprocess.run([cross, "-c", "code.s", "-o", "code.o"], cwd=tmp_path, check=True)
            copy = cross.replace("gcc", "objcopy")
            subprocess.run([copy, "-O", "binary", "-j", ".text", "code.o", "code.bin"], cwd=tmp_path, check=True)
            assert getattr(known, kind)((tmp_path / "code.bin").read_bytes()) is expected, text


ARM64 = """
0000000000000010 <microbench>:
  10:\tstp\tx29, x30, [sp, #-16]!
  14:\tldr\tx1, [x0]
  18:\tmov\tx2, #0x64                  \t// #100
  1c:\tcbz\tx1, 30 <microbench+0x20>
  20:\tudiv\tx3, x2, x1
  24:\tb.hi\t1c <microbench+0xc>  // b.pmore
  28:\tbl\t0 <clock_gettime@plt>
  2c:\tb\t40 <chain_link>
  30:\tstr\tx3, [x0, #8]
  34:\tret
"""
RISCV = """
0000000000000010 <microbench>:
  10:\tsd\tra,8(sp)
  12:\tld\ta5,0(a0)
  16:\tbeqz\ta5,24 <microbench+0x14>
  1a:\tremu\ta4,a3,a5
  1e:\tjal\tra,0 <clock_gettime@plt>
  22:\tj\t12 <microbench+0x2>
  24:\tsw\ta4,4(a0) # 100 <x>
  28:\tret
"""


def test_listings_of_other_machines_are_understood_line_by_line() -> None:
    found = parse_objdump(ARM64, "arm64")["microbench"]
    kinds = ["other", "other", "other", "branch", "divide", "branch", "call", "return", "other", "return"]
    assert [line.kind for line in found] == kinds
    assert [line.target for line in found if line.kind == "branch"] == [0x30, 0x1C]
    assert [line.callee for line in found if line.callee] == ["clock_gettime", "chain_link"]
    assert [(line.loads, line.stores) for line in found[:2]] == [(False, False), (True, False)]
    assert found[-2].stores
    found = parse_objdump(RISCV, "riscv64")["microbench"]
    assert [line.kind for line in found] == ["other", "other", "branch", "divide", "call", "jump", "other", "return"]
    assert [line.target for line in found if line.target] == [0x24, 0x12]
    assert [(line.loads, line.stores) for line in (found[0], found[1], found[6])] == [
        (False, False),
        (True, False),
        (False, True),
    ]


def test_clang_is_told_the_machine(objects: Path) -> None:
    """`primes, clang` was this machine's code in the folder of another."""
    assert find_clang()
    for architecture in ARCHITECTURES:
        theirs = users(architecture, objects)
        machines = {
            (theirs / object_name(b, USER)).read_bytes()[18:20] for b in BENCHMARKS.values() if USER in b.wrappers
        }
        assert len(machines) == 1
