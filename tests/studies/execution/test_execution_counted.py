"""A real guest executes the wrappers: those of the study do the algorithm's work, and doctored ones are found."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.available import guest_kernel, or_skip
from tests.studies.execution.doctored import Edit, doctored

from xdplab.errors import ProgramError
from xdplab.labs.guests.modules import BuildTree
from xdplab.labs.vm import headers
from xdplab.studies.execution.benchmarks import BPF, MODULE, USER, all_benchmarks, build, build_module, object_name
from xdplab.studies.execution.counted import KERNEL, Counts, Wrapped
from xdplab.studies.execution.proof import differences, executed, steps

pytestmark = [pytest.mark.thorough, pytest.mark.guest]

MEASURE, PRIMES, MATRIX = (f"kernels/{name}.h" for name in ("measure", "primes", "matrix"))
WRAPPER, BPF_WRAPPER = "user/bench.c", "bpf/bench.bpf.c"
BEGIN, END = "    begin = CLOCK();", "    record->end = CLOCK();"
KERNEL_CALL = "    result = kernel(set, data, data_end, input);\n"
RIGHT = f"{BEGIN}\n    AFTER(begin, input);\n{KERNEL_CALL}    BEFORE(result);\n{END}\n"
AGAIN = KERNEL_CALL + "    BEFORE(result);\n" + KERNEL_CALL
SPIN = "    NO_UNROLL\n    for (__u64 i = 0; i < 1000; i++)\n        KEEP(i);\n"
KEPT = (
    "    static __u64 kept;\n    if (!kept)\n        kept = kernel(set, data, data_end, input);\n    result = kept;\n"
)
CORE = """struct task_struct {
    int pid;
} __attribute__((preserve_access_index));
#define MORE (__builtin_preserve_field_info(((struct task_struct *)0)->pid, 0) / 4)
#include KERNEL"""
COUNTED_CALLS = '    __u64 n;\n    __asm__ volatile("movq %%xmm15, %0" : "=r"(n));\n    n++;\n'

Case = tuple[str, Sequence[str], Sequence[Edit]]
"""What the refusal says, the benchmarks, and the edits."""


BOTH: Mapping[str, Case] = {
    "both clocks first": (
        " 0 ", ("primes", "array 100"), [(MEASURE, RIGHT, f"{BEGIN}\n{END}\n{KERNEL_CALL}")]
    ),
    "one clock": ("clock 1 times", ("primes",), [(MEASURE, BEGIN, "    begin = 0;")]),
    "work before": (
        "before its first", ("array 100", "primes"),
        [(MEASURE, BEGIN, f"    input += kernel(set, data, data_end, 3);\n{BEGIN}")],
    ),
    "work behind": (
        "behind its last", ("array 100", "primes"),
        [(MEASURE, RIGHT, f"{RIGHT}    record->input = kernel(set, data, data_end, result);\n")],
    ),
    "twice": (
        "and the algorithm", ("primes", "packet 100", "chase 100", "lookup 100"), [(MEASURE, KERNEL_CALL, AGAIN)]
    ),
    "a constant": (" 0 ", ("primes", "matrix", "packet 100"), [(MEASURE, KERNEL_CALL, "    result = 25;\n")]),
    "a spin": ("instructions", ("empty", "primes", "packet 100"), [(MEASURE, KERNEL_CALL, SPIN + KERNEL_CALL)]),
    "ends when it began": ("took 0 ", ("primes",), [(MEASURE, END, "    record->end = begin + 0 * CLOCK();")]),
    "never began": (" from 0 on", ("primes",), [(MEASURE, "    record->begin = begin;\n", "")]),
    "a kept result": ("in call 2", ("primes",), [(MEASURE, KERNEL_CALL, KEPT)]),
}  # fmt: skip

IN_USER_SPACE: Mapping[str, Case] = {
    "a coarse clock": ("clock 0 times", ("primes",), [(WRAPPER, "now_ns()", "clock_ns(CLOCK_MONOTONIC_COARSE)")]),
    "a clock that is set": ("from 1,", ("primes",), [(WRAPPER, "now_ns()", "clock_ns(CLOCK_REALTIME)")]),
    "a register counts the calls": (
        "in call 5", ("primes",),
        [(MEASURE, BEGIN, f'{COUNTED_CALLS}    __asm__ volatile("movq %0, %%xmm15" : : "r"(n));\n{BEGIN}'),
         (MEASURE, "    result = kernel(set", "    result = n > 4 ? 25 : kernel(set")],
    ),
}  # fmt: skip

IN_BPF: Mapping[str, Case] = {
    "another helper": ("calls other functions", ("matrix",), [(MATRIX, "xorshift(state)", "bpf_get_prandom_u32()")]),
    "a map counts the calls": (
        "in call 6", ("primes",),
        [(MEASURE, BEGIN, f"    __u64 n = set->unused++;\n{BEGIN}"),
         (MEASURE, "    result = kernel(set", "    result = n > 4 ? 25 : kernel(set")],
    ),
    "libbpf fills in how often": (
        "instructions between", ("primes",),
        [(BPF_WRAPPER, "#include KERNEL", CORE),
         (MEASURE, END, f"    for (__u64 more = MORE; more; more--)\n        KEEP(more);\n{END}")],
    ),
}  # fmt: skip

IN_THE_MODULE: Mapping[str, Case] = {
    "twice": ("and the algorithm", ("primes", "packet 100"), [(MEASURE, KERNEL_CALL, AGAIN)]),
    "a constant": (" 0 ", ("primes", "packet 100"), [(MEASURE, KERNEL_CALL, "    result = 25;\n")]),
    "work before": (
        "before its first",
        ("primes",),
        [(MEASURE, BEGIN, f"    input += kernel(set, data, data_end, 3);\n{BEGIN}")],
    ),
    "a pause": ("1,000 pauses", ("matrix",), [(MATRIX, "*cell += random;", "*cell += random; cpu_relax();")]),
}


@pytest.fixture(scope="module")
def tree() -> BuildTree:
    guest_kernel(KERNEL)
    with or_skip("module"):
        return headers.tree(KERNEL)


@pytest.fixture(scope="module")
def as_they_are(tree: BuildTree, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Sequence[Counts]]:
    """What the calls of every wrapper of the study do, by benchmark and wrapper."""
    folder = tmp_path_factory.mktemp("objects")
    for name, content in build(all_benchmarks().values()).items():
        (folder / name).write_bytes(content)
    module = build_module(tree, all_benchmarks().values())
    wrapped = [
        Wrapped(benchmark, wrapper, module if wrapper == MODULE else folder / object_name(benchmark, wrapper))
        for benchmark in all_benchmarks().values()
        for wrapper in benchmark.wrappers
    ]
    found = {}
    for one, calls in zip(wrapped, executed(wrapped), strict=True):
        assert not isinstance(calls, ProgramError), (one, calls)
        found[one.benchmark.name, one.wrapper] = calls
    return found


def test_every_wrapper_does_the_algorithms_work(as_they_are: Mapping[tuple[str, str], Sequence[Counts]]) -> None:
    known = all_benchmarks()
    for (name, wrapper), calls in as_they_are.items():
        assert differences(known[name], wrapper, calls) == [], (name, wrapper)
        if known[name].task.count:
            assert {steps(known[name], wrapper, call) for call in calls} == {known[name].task.count}


def test_the_guests_clock_tells_the_instructions_that_are_counted(
    as_they_are: Mapping[tuple[str, str], Sequence[Counts]],
) -> None:
    """Two ways to count: the plugin, and the clock of a guest in which an instruction takes a nanosecond."""
    traps = [name for name, benchmark in all_benchmarks().items() if benchmark.trap]
    undisturbed = [
        call
        for (name, _), calls in as_they_are.items()
        for call in calls
        if name not in traps and call.elapsed == call.instructions + call.called
    ]
    apart = [call.stated - call.elapsed for call in undisturbed]
    assert len(apart) > 600
    assert set(apart) <= {-1, 0, 1}


@pytest.mark.parametrize(("wrapper", "of_a_link"), [(BPF, 31), (USER, 17), (MODULE, 16)])
def test_each_link_of_a_chain_costs_the_same(
    as_they_are: Mapping[tuple[str, str], Sequence[Counts]], wrapper: str, of_a_link: int
) -> None:
    instructions = {links: as_they_are[f"chain {links}", wrapper][0].instructions for links in (4, 8, 16, 32, 33)}
    slopes = {(count - instructions[4]) / (links - 4) for links, count in instructions.items() if links > 4}
    assert slopes == {of_a_link}


@pytest.fixture(scope="module")
def refusals(tree: BuildTree, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is said of each doctored wrapper, all of them executed in one guest."""
    wrapped: dict[str, Wrapped] = {}
    for wrapper, cases in CASES.items():
        for name, (_, benchmarks, edits) in cases.items():
            chosen = [all_benchmarks()[benchmark] for benchmark in benchmarks]
            folder = tmp_path_factory.mktemp("doctored") / "m"
            targets = [] if wrapper == MODULE else [object_name(benchmark, wrapper) for benchmark in chosen]
            doctored(folder, edits, *targets)
            module = _module(tree, folder, benchmarks) if wrapper == MODULE else None
            for benchmark in chosen:
                path = module or folder / object_name(benchmark, wrapper)
                wrapped[f"{wrapper}, {name}, {benchmark.name}"] = Wrapped(benchmark, wrapper, path)
    found = {}
    for (name, one), calls in zip(wrapped.items(), executed(list(wrapped.values())), strict=True):
        refused = [calls.message] if isinstance(calls, ProgramError) else differences(one.benchmark, one.wrapper, calls)
        found[name] = "; ".join(refused)
    return found


CASES = {USER: {**BOTH, **IN_USER_SPACE}, BPF: {**BOTH, **IN_BPF}, MODULE: IN_THE_MODULE}


def _module(tree: BuildTree, folder: Path, benchmarks: Sequence[str]) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("xdplab.studies.execution.benchmarks.shipped", lambda _: folder)
        built = build_module(tree, [all_benchmarks()[benchmark] for benchmark in benchmarks])
    path = folder / built.name
    path.write_bytes(built.read_bytes())
    return path


@pytest.mark.parametrize(
    ("wrapper", "name", "benchmark"),
    [
        (wrapper, name, benchmark)
        for wrapper, cases in CASES.items()
        for name, (_, benchmarks, _) in cases.items()
        for benchmark in benchmarks
    ],
)
def test_a_wrapper_that_does_other_work_is_refused(
    refusals: Mapping[str, str], wrapper: str, name: str, benchmark: str
) -> None:
    assert CASES[wrapper][name][0] in refusals[f"{wrapper}, {name}, {benchmark}"]
