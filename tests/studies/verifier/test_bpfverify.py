"""The loader: its results for programs with known verdicts, in both map styles, and for real objects."""

import re
import shutil
import struct
import subprocess
import time
from pathlib import Path

import pytest
from tests.faults.real import objects
from tests.studies.verifier.objects import (
    BTF_MAP,
    CALLS,
    EXCEPTION,
    GLOBALS,
    HELPER,
    HUGE_HASH,
    LEGACY_MAP,
    MAP_IN_MAP,
    OF_THE_KERNEL,
    OUT_OF_BOUNDS,
    OVERRIDE,
    SLEEPS,
    STATIC_AND_PINNED,
    STORAGE,
    to_rela,
)

from xdplab.errors import PlanError
from xdplab.studies.verifier.corpora import collect
from xdplab.studies.verifier.points import PROGRAM_FLAGS

pytestmark = pytest.mark.root


def test_both_map_styles_and_loaders_agree(verify, compile_member):
    (btf,) = verify(compile_member("double_strcmp", 10))
    (legacy,) = verify(compile_member("double_strcmp", 10, maps="legacy"))
    assert (btf.loader, legacy.loader) == ("libbpf", "raw")
    assert btf.verdict == legacy.verdict == "accepted"
    assert btf.stats.processed_insns == legacy.stats.processed_insns > 1000
    assert btf.code.insns_hash == legacy.code.insns_hash
    assert (btf.code.xlated_bytes, btf.program_type) == (legacy.code.xlated_bytes, "xdp")


def test_counts_repeat_and_every_load_has_both_times(verify, compile_member):
    (program,) = verify(compile_member("double_strcmp", 10), "--loads", "7", "--budget-ms", "60000")
    (again,) = verify(compile_member("double_strcmp", 10))
    assert len(program.verify_us) == len(program.load_ns) == 7
    assert all(0 < us * 1000 <= ns for us, ns in zip(program.verify_us, program.load_ns, strict=True))
    assert program.stats.processed_insns == again.stats.processed_insns


def test_a_state_at_every_branch_makes_the_verifier_keep_more(verify, compile_member):
    path = compile_member("branches", 20)
    (usual,), (often,) = verify(path), verify(path, "--program-flags", str(PROGRAM_FLAGS["test_state_freq"]))
    assert often.verdict == usual.verdict == "accepted"
    assert often.stats.total_states > usual.stats.total_states


def test_budget_ends_the_repetition_of_a_slow_program(verify, compile_member):
    (program,) = verify(compile_member("double_strcmp", 30), "--loads", "500", "--budget-ms", "20")
    assert 1 <= len(program.load_ns) < 500
    assert sum(program.load_ns[:-1]) < 20_000_000


def _has_override() -> bool:
    """The kernel has this helper only with CONFIG_BPF_KPROBE_OVERRIDE."""
    return "bpf_override_return" in Path("/proc/kallsyms").read_text().split()


@pytest.mark.parametrize(
    ("text", "verdict", "cause"),
    [
        (OUT_OF_BOUNDS, "rejected", "verifier's own"),
        (HELPER, "rejected", "helper not available to this type"),
        (OVERRIDE, "environment", "CONFIG_BPF_KPROBE_OVERRIDE"),
        (OVERRIDE.replace('SEC("kprobe/schedule")', 'SEC("xdp")'), "rejected", "helper not available to this type"),
        (HELPER.replace('SEC("xdp")', 'SEC("2/1")'), "no_type", "type"),
    ],
)
def test_classes_of_verdicts(verify, compile_text, text, verdict, cause):
    if text == OVERRIDE and _has_override():
        pytest.skip("this kernel has CONFIG_BPF_KPROBE_OVERRIDE: kprobes may call the helper")
    (program,) = verify(compile_text(text))
    assert program.verdict == verdict
    assert cause in program.cause
    assert program.complaint


def test_what_is_newer_than_libbpf_is_no_finding_of_the_verifier(verify, compile_text):
    """libbpf 1.1 knows no such section: loaded as an older one of that beginning, a right program was "rejected"."""
    (program,) = verify(compile_text(SLEEPS))
    assert (program.program_type, program.verdict) == ("kprobe", "accepted"), program.log
    (unknown,) = verify(compile_text(SLEEPS.replace("uprobe.multi.s/", "uprobe.nothing")))
    assert (unknown.program_type, unknown.verdict) == (None, "no_type")
    assert re.search(r"in libbpf v\d+\.\d+: name it with --types", unknown.complaint)


@pytest.mark.parametrize(
    ("kind", "flags", "key"), [(19, 0, "struct bpf_cgroup_storage_key"), (21, 0, "__u64"), (32, 1, "int")]
)
def test_a_map_that_the_kernel_sizes_has_no_entries(verify, compile_text, kind, flags, key):
    """Storage of control groups, of one per CPU (21), and of 6.2 (32), whose number the headers here may lack."""
    (program,) = verify(compile_text(STORAGE % (kind, flags, key)))
    assert program.verdict == "accepted", (program.complaint, program.log)


def test_an_exception_callback_that_libbpf_drops_is_no_finding_of_the_verifier(verify, compile_text):
    (program,) = verify(compile_text(EXCEPTION))
    assert program.verdict in ("accepted", "loader"), program.log


def test_the_limit_of_a_million_is_its_own_verdict(verify, compile_member):
    (program,) = verify(compile_member("pruning", 60))
    assert program.verdict == "complexity"
    assert program.stats.processed_insns == program.stats.limit_insns + 1 == 1_000_001


def test_a_table_of_types_decides_for_unknown_sections(verify, compile_text, tmp_path):
    path = compile_text(OUT_OF_BOUNDS.replace('SEC("xdp")', 'SEC("2/1")').replace("data + 4", "data"))
    table = tmp_path / "types"
    folder = path.parent.name  # rules ignore an object's folder
    table.write_text(f"# comment\n*{folder}* 2/* kprobe\n*.o 3/* socket_filter\n*.o 2/* xdp\n")
    (program,) = verify(path, "--types", str(table))
    assert program.program_type == "xdp"


def refused(bpfverify: str, option: str, table: Path) -> str:
    done = subprocess.run([bpfverify, option, table, "x.o"], capture_output=True, text=True)
    assert done.returncode == 2
    return done.stderr


LONG = "x" * 128
BROKEN = ["one two", "one two three four", f"{LONG} a 1", f"* {LONG} 1", f"* a {'0' * 128}", f"* a 1 {' ' * 512}"]


@pytest.mark.parametrize(
    ("option", "line"),
    [
        *((option, line) for option in ("--types", "--globals") for line in BROKEN),
        ("--types", "* * no_such_type"),
        ("--globals", "* a b"),
        ("--globals", "* a 99999999999999999999"),
    ],
)
def test_a_broken_table_is_refused(bpfverify, tmp_path, option, line):
    (tmp_path / "table").write_text(f"# fine\n{line}\n")
    assert "line 2" in refused(bpfverify, option, tmp_path / "table")


@pytest.mark.parametrize("option", ["--types", "--globals"])
def test_a_directory_is_not_an_empty_table(bpfverify, tmp_path, option):
    assert "Is a directory" in refused(bpfverify, option, tmp_path)


def with_globals(verify, path: Path, folder: Path, text: str):
    (folder / "globals").write_text(text)
    return verify(path, "--globals", str(folder / "globals"))[0]


def test_global_variables_are_set_before_loading(verify, compile_text, tmp_path):
    """The verifier knows constants, so a loop of 50 rounds costs more than one of 2, and a dead branch nothing."""
    path = compile_text(GLOBALS)
    (usual,) = verify(path)
    more = with_globals(verify, path, tmp_path, "# rounds\n*.o rounds 50\n*other* nothing 1\n")
    assert more.verdict == "accepted"
    assert more.stats.processed_insns > 5 * usual.stats.processed_insns
    live = with_globals(verify, path, tmp_path, "* shift -3\n* base 0xffffffffffffffff\n")
    assert live.stats.processed_insns > usual.stats.processed_insns
    endless = with_globals(verify, path, tmp_path, "* rounds 4294967295\n")
    assert endless.verdict in ("complexity", "rejected")


@pytest.mark.parametrize(
    ("text", "rule", "why"),
    [
        (GLOBALS, "* nothing 1", "'nothing' of --globals: the object's BTF has no such variable"),
        (GLOBALS, "* table 1", "'table' of --globals: it is not an integer"),
        (GLOBALS, "* shift 256", "'shift' of --globals: the value does not fit"),
        (GLOBALS, "* shift -129", "'shift' of --globals: the value does not fit"),
        (CALLS, "* x 1", "only in objects that libbpf opens"),
    ],
)
def test_a_variable_that_cannot_be_set_is_told(verify, compile_text, tmp_path, text, rule, why):
    program = with_globals(verify, compile_text(text), tmp_path, rule + "\n")
    assert program.verdict == "loader"
    assert why in program.cause


def test_subprograms_are_appended_by_the_raw_loader(verify, compile_text):
    """Only those that a program calls, directly or indirectly: the kernel refuses unreachable ones."""
    first, second = verify(compile_text(CALLS))
    modern = CALLS.replace(LEGACY_MAP, BTF_MAP)
    as_libbpf_does = verify(compile_text(modern))
    assert [(p.loader, p.name, p.verdict) for p in (first, second)] == [
        ("raw", name, "accepted") for name in ("first", "second")
    ]
    assert [p.loader for p in as_libbpf_does] == ["libbpf", "libbpf"]
    assert [(p.code.insns, p.stats.processed_insns) for p in as_libbpf_does] == [
        (p.code.insns, p.stats.processed_insns) for p in (first, second)
    ]
    assert first.code.insns > second.code.insns


def test_relocations_with_addends_mean_the_same(verify, compile_member, tmp_path):
    path = compile_member("double_strcmp", 3, maps="legacy")
    changed = tmp_path / "rela.o"
    changed.write_bytes(to_rela(path.read_bytes()))
    (rel,), (rela,) = verify(path), verify(changed)
    assert rela.verdict == "accepted"
    assert (rel.code.insns_hash, rel.stats.processed_insns) == (rela.code.insns_hash, rela.stats.processed_insns)


def test_map_in_map_of_the_kernels_samples(verify, compile_text):
    (program,) = verify(compile_text(MAP_IN_MAP))
    assert (program.loader, program.verdict) == ("raw", "accepted")


def test_what_only_another_loader_takes_is_loaded_as_it_loads_it(verify, compile_text):
    """Cilium's objects have static programs and a pinning of their loader's own; libbpf refuses both."""
    found = {p.name: p for p in verify(compile_text(STATIC_AND_PINNED))}
    assert {name: (p.loader, p.verdict, p.program_type) for name, p in found.items()} == {
        "entry": ("libbpf", "accepted", "xdp"),
        "reached_by_a_tail_call": ("libbpf", "accepted", "xdp"),
    }
    plain = STATIC_AND_PINNED.replace("static __attribute__", "__attribute__").replace("LOADER 16", "LOADER 0")
    assert {p.name: (p.code.insns_hash, p.stats.processed_insns) for p in verify(compile_text(plain))} == {
        name: (p.code.insns_hash, p.stats.processed_insns) for name, p in found.items()
    }


@pytest.mark.parametrize("kind", ["HASH", "PERCPU_HASH", "LRU_HASH", "LRU_PERCPU_HASH"])
def test_a_hash_map_needs_no_room_for_all_its_entries(verify, compile_text, kind):
    """A terabyte cannot be allocated; the verifier's work is that of a map with four entries."""
    (large,), (small,) = (verify(compile_text(HUGE_HASH % (kind, entries))) for entries in (1 << 28, 4))
    assert large.verdict == small.verdict == "accepted"
    assert large.stats.processed_insns == small.stats.processed_insns
    assert (large.code.insns_hash, large.code.xlated_bytes) == (small.code.insns_hash, small.code.xlated_bytes)


def test_the_kernels_btf_is_read_once_for_all_objects(bpfverify, compile_text):
    """Counted by the kernel: bytes that reads returned, and pages that a process touched first."""

    def read_and_touched(path: Path, count: int) -> tuple[int, int]:
        script = '"$@" >&2 && cat /proc/$$/io && cut -d" " -f11 /proc/$$/stat'  # with the children that ended
        argv = ["sh", "-c", script, "sh", str(bpfverify), *[str(path)] * count]
        *io, touched = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
        return int(next(line for line in io if line.startswith("rchar")).split()[1]), int(touched)

    path, without = compile_text(OF_THE_KERNEL), compile_text(GLOBALS)
    btf = Path("/sys/kernel/btf/vmlinux").stat().st_size
    (read_1, touched_1), (read_9, touched_9) = read_and_touched(path, 1), read_and_touched(path, 9)
    read_0, touched_0 = read_and_touched(without, 1)
    mapped_at_once = 16 * 4096  # libbpf 1.7 reads nothing: it maps the file
    assert read_1 - read_0 + mapped_at_once * (touched_1 - touched_0) > btf
    assert (read_9 - read_1) / 8 < btf / 10
    assert (touched_9 - touched_1) / 8 < btf / 4096 / 4  # each object's own copy takes btf / 4096


def test_memory_grows_with_the_program_and_is_not_timed(verify, compile_member):
    small, large = (verify(compile_member("branches", n), "--watch")[0] for n in (10, 1000))
    assert small.load_ns == large.load_ns == ()
    for value, reason in (
        (large.watched.peak_bytes, large.watched.peak_reason),
        (large.watched.cgroup_peak_bytes, large.watched.cgroup_reason),
        (large.watched.branches, large.watched.branches_reason),
    ):
        assert (value is None) != (reason is None)
    if large.watched.peak_bytes is None:
        pytest.skip(large.watched.peak_reason)
    assert large.watched.peak_bytes > 4 * max(small.watched.peak_bytes, 1)
    # A state has at least one frame of eleven registers, 120 bytes each. clang 14 makes 15 MB of it, later ones 3 MB.
    assert large.watched.peak_bytes > large.stats.peak_states * 11 * 120
    assert large.watched.kmalloc_peak_bytes > 4 * small.watched.kmalloc_peak_bytes > 0
    if large.watched.cgroup_peak_bytes is not None:  # two ways to count; meanwhile interrupts free pages of others
        assert large.watched.kmalloc_peak_bytes == pytest.approx(large.watched.cgroup_peak_bytes, rel=0.25)
        assert large.watched.peak_bytes == pytest.approx(large.watched.cgroup_peak_bytes, rel=0.3)


def test_memory_of_a_rolled_loop_is_what_is_charged_where_pages_hide_it(verify, compile_member):
    """Its states are in slabs that are half empty when the load begins."""
    (program,) = verify(compile_member("double_strcmp", 100), "--watch")
    if program.watched.cgroup_peak_bytes is None:
        pytest.skip(program.watched.cgroup_reason)
    assert program.watched.kmalloc_peak_bytes == pytest.approx(program.watched.cgroup_peak_bytes, rel=0.25)


def test_branches_are_those_that_the_verifiers_log_goes_back_to(verify, compile_member, tmp_path):
    """An accepted program's verifier comes back to each pushed branch once, and its log says so: from 4 to 9."""
    for path in (compile_member("double_strcmp", 10), compile_member("branches", 40), compile_member("pruning", 4)):
        (watched,), (logged,) = verify(path, "--watch"), verify(path, "--logs", str(tmp_path))
        if watched.watched.branches is None:
            pytest.skip(watched.watched.branches_reason)
        log = (tmp_path / f"{logged.name}.log").read_text(errors="replace")
        assert watched.watched.branches == len(re.findall(r"^from \d+ to \d+", log, re.MULTILINE)) > 10
        assert watched.watched.branches_reason is None


def test_nothing_stays_loaded(verify, compile_member):
    verify([compile_member("double_strcmp", n) for n in (1, 2, 3)], "--loads", "3")
    if not shutil.which("bpftool"):
        pytest.skip("bpftool is not installed")

    def loaded() -> set[tuple[str, int]]:
        return {which for which, name in objects().items() if name.endswith(" double_strcmp")}

    # Other tests load programs of this name at the same time, and let them go.
    stayed, deadline = loaded(), time.monotonic() + 10
    while stayed and time.monotonic() < deadline:
        time.sleep(0.1)
        stayed &= loaded()
    assert not stayed


def test_every_object_gets_its_verdict_whatever_stands_before_it(verify, compile_member, tmp_path):
    one, other, x86 = compile_member("double_strcmp", 1), tmp_path / "other.o", tmp_path / "x86.o"
    other.write_bytes(b"no object")
    x86.write_bytes(one.read_bytes()[:18] + struct.pack("<H", 62) + one.read_bytes()[20:])
    rows = verify([other, tmp_path / "absent.o", x86, one, tmp_path])
    assert [r.verdict for r in rows] == ["loader", "loader", "loader", "accepted", "loader"]
    assert [bool(r.cause) for r in rows] == [True, True, True, False, True]
    assert "machine" in rows[2].cause


def test_objects_of_debian_packages(verify, tmp_path):
    """Real objects of other projects: xdp-tools, and objects embedded in executables."""
    try:
        subjects = collect(["system"])
    except PlanError as error:
        pytest.skip(str(error))
    for rank, subject in enumerate(subjects):
        (tmp_path / f"{rank}.o").write_bytes(subject.content)
    rows = verify(sorted(tmp_path.glob("*.o")))
    assert {r.object for r in rows} == {str(p) for p in tmp_path.glob("*.o")}
    assert not [r for r in rows if r.verdict in ("rejected", "complexity", "loader")]
    assert sum(r.verdict == "accepted" for r in rows) > len(rows) / 2


STORES = """
#include <linux/bpf.h>
#define SEC(name) __attribute__((section(name), used))
#define STACK(bytes, rest) asm volatile("r0 = 0; *(u64 *)(r10 - " #bytes ") = r0;" rest "exit;" ::: "r0")
static __attribute__((naked, used)) int leaf(void) { STACK(40, ""); }
static __attribute__((naked, used)) int middle(void) { STACK(104, "call leaf;"); }
SEC("xdp") __attribute__((naked)) int outer(void *context) { STACK(24, "call middle; r0 = 2;"); }
SEC("xdp") int alone(void *context) { return 2; }
char _license[] SEC("license") = "GPL";
"""


def test_the_log_tells_the_stack_that_each_subprogram_stores_to(verify, compile_text):
    """The source shows the depth at which each of them stores."""
    depths = {program.name: program.stats.stack_depths for program in verify(compile_text(STORES))}
    assert depths["alone"] == (0,)
    assert depths["outer"][0] == 24
    assert sorted(depths["outer"]) == [24, 40, 104]
