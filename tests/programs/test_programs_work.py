"""The machine's work per access, in the kernel and in user space: chain, loads, stores and bytes."""

import platform

import pytest

from xdplab.programs.build import build
from xdplab.programs.onhost import load_report
from xdplab.programs.spec import ProgramSpec
from xdplab.programs.userspace import compile_user, user_work
from xdplab.programs.work import chain_of, kernel_work
from xdplab.studies.places import Place

CHAIN = "and shl add load"
needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the chain is read from x86-64 machine code")

KERNEL = """
   9e:	mov    %rdi,%rcx
   a1:	add    %rdx,%rcx
   a4:	mov    0x0(%rcx),%rdx
   a8:	and    $0x1ff,%edx
   af:	shl    $0x6,%rdx
   b3:	mov    %rdi,%rcx
   b6:	add    %rdx,%rcx
   b9:	mov    0x0(%rcx),%rdx
"""


def test_the_chain_is_what_stands_between_two_dependent_loads() -> None:
    assert chain_of(KERNEL) == CHAIN
    longer = KERNEL.replace("   af:", "   ac:	add    $0x1,%rdx\n   af:")
    assert chain_of(longer) == "and add shl add load"
    assert chain_of("  1:	mov    0x8(%rdi),%rax\n  2:	mov    0x10(%rdi),%rbx\n") is None
    by_index = (
        "  1:	mov (%rdi),%ecx\n  2:	xor %cl,%sil\n  3:	mov (%rdi),%rdx\n  4:	mov (%rbx,%rsi,8),%rax\n"
    )
    assert chain_of(by_index) == "xor load", "through an index, and a register's narrow name"


@needs_x86
@pytest.mark.parametrize("op", ["read", "write"])
@pytest.mark.parametrize(("accesses", "form"), [(100, "bounded"), (64, "unrolled"), (50, "loop")])
def test_the_twins_chase_has_the_jits_chain(accesses, form, op, tmp_path):
    spec = ProgramSpec("chase", accesses, op, form)
    work = user_work(compile_user(spec, tmp_path).read_bytes(), spec)
    assert work.chain == CHAIN
    assert round((work.loads - 1) * accesses) in range(3), "the walk's own, and nothing of the frame's header"
    assert round((work.stores - (op == "write")) * accesses) in range(2)
    assert work.bytes == pytest.approx(8 * (work.loads + work.stores))


@needs_x86
@pytest.mark.root
@pytest.mark.parametrize("op", ["read", "write"])
def test_chase_is_the_same_work_on_both_sides(op, cache, dut, tmp_path):
    spec = ProgramSpec("chase", 1600, op)
    built = build(spec, cache)
    report = load_report(dut.host, dut.xdpload, built, dut.folder)
    kernel = kernel_work(built, jit=report.jit, machine=platform.machine())
    user = user_work(compile_user(spec, tmp_path).read_bytes(), spec)
    assert kernel.chain == user.chain == CHAIN
    stores = 1 if op == "write" else 0
    for side in (kernel, user):
        assert side.loads == pytest.approx(1, abs=0.02)
        assert side.stores == pytest.approx(stores, abs=0.02)
        assert side.bytes == pytest.approx(8 * (1 + stores), abs=0.1)


@pytest.mark.root
def test_a_lookup_is_more_in_the_kernel_than_in_user_space(cache, dut, tmp_path):
    spec = ProgramSpec("lookup", 1600)
    built = build(spec, cache)
    report = load_report(dut.host, dut.xdpload, built, dut.folder)
    kernel = kernel_work(built, jit=report.jit, machine=platform.machine())
    if not report.lookup_inlined:
        assert "calls a function of the kernel" in kernel.missing
        return
    key, pointer, value, cpus_offset = 4, 8, 8, 8 * (platform.machine() == "x86_64")
    assert kernel.loads == pytest.approx(3 + bool(cpus_offset), abs=0.2)
    assert kernel.stores == pytest.approx(1, abs=0.1)
    assert kernel.bytes == pytest.approx(2 * key + pointer + value + cpus_offset, abs=1.5)
    assert user_work(compile_user(spec, tmp_path).read_bytes(), spec).loads == pytest.approx(1, abs=0.05)


@pytest.mark.root
def test_a_lookup_that_calls_the_kernel_has_no_count(cache, dut):
    built = build(ProgramSpec("lookup", 100, map_type="hash"), cache)
    report = load_report(dut.host, dut.xdpload, built, dut.folder)
    work = kernel_work(built, jit=report.jit, machine=platform.machine())
    assert work.loads is None
    assert "calls a function of the kernel" in work.missing


@pytest.mark.root
@pytest.mark.machine
@pytest.mark.parametrize("workload", ["array", "packet", "lookup"])
def test_a_hardened_jit_makes_its_constants_in_a_register_of_its_own(workload, cache, dut):
    """With net.core.bpf_jit_harden=2 the kernel's image has more instructions and the same accesses."""
    built = build(ProgramSpec(workload, 100), cache)
    made = {}
    for level in (0, 2):
        with Place("here", dut.host, "time", "6", "this machine").hardened(level):
            report = load_report(dut.host, dut.xdpload, built, dut.folder)
        made[level] = (report.jited_bytes, kernel_work(built, jit=report.jit, machine=platform.machine()))
    assert made[2][0] > made[0][0]
    assert made[2][1] == made[0][1]
    assert made[2][1].loads is not None
