"""The proof of a benchmark finds misplaced clock reads: wrappers broken on purpose, and control flows made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.studies.execution.doctored import doctored

from xdplab.errors import FormatError, LabError, ProgramError
from xdplab.labs.guests import modules
from xdplab.labs.vm import headers
from xdplab.studies.execution.benchmarks import BPF, MODULE, USER, all_benchmarks
from xdplab.studies.execution.codelines import CodeLine, parse_objdump
from xdplab.studies.execution.enclosure import Flow, TimedWork, complaints
from xdplab.studies.execution.microbench import TimedCall
from xdplab.studies.execution.objects import build_module, object_name
from xdplab.studies.execution.points import ExecutionRequest
from xdplab.studies.execution.proof import examine, require_results
from xdplab.studies.execution.runs import STUDY
from xdplab.studies.kind import Run
from xdplab.studies.study_kind import failures

pytestmark = pytest.mark.thorough

MEASURE, EMPTY, PRIMES, MATRIX = (f"kernels/{name}.h" for name in ("measure", "empty", "primes", "matrix"))
RIGHT = (
    "begin = CLOCK();\n    AFTER(begin, input);\n    result = kernel(set, data, data_end, input);\n"
    "    BEFORE(result);\n    record->end = CLOCK();\n"
)
BROKEN = {
    # As a compiler once did: both clock reads in a row, the work after them.
    "both first": "begin = CLOCK();\n record->end = CLOCK();\n result = kernel(set, data, data_end, input);\n",
    "both last": "result = kernel(set, data, data_end, input);\n begin = CLOCK();\n record->end = CLOCK();\n",
    "one only": "begin = 0; result = kernel(set, data, data_end, input);\n record->end = CLOCK();\n",
    "more work before": RIGHT.replace("begin =", "input += kernel(set, data, data_end, 3);\n begin =", 1),
    "more work behind": RIGHT + "    record->input = kernel(set, data, data_end, result);\n",
    "no work": RIGHT.replace("kernel(set, data, data_end, input)", "input"),
}
BENCHMARKS = ("primes", "matrix", "array 100")


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_wrapper_fails_its_proof(broken: str, tmp_path: Path) -> None:
    pairs = [(all_benchmarks()[name], wrapper) for name in BENCHMARKS for wrapper in (BPF, USER)]
    folder = doctored(tmp_path / "m", [(MEASURE, RIGHT, BROKEN[broken])], *(object_name(*pair) for pair in pairs))
    for benchmark, wrapper in pairs:
        examined = examine(benchmark, wrapper, folder / object_name(benchmark, wrapper))
        assert examined.wrong, f"{benchmark.name}, {wrapper}: {broken} was not seen"
        assert examined.text


def test_the_wrappers_as_they_are_pass(objects: Path) -> None:
    for benchmark in all_benchmarks().values():
        for wrapper in (BPF, USER):
            if wrapper in benchmark.wrappers:
                found = examine(benchmark, wrapper, objects / object_name(benchmark, wrapper))
                assert not found.wrong, f"{benchmark.name}, {wrapper}"


def test_a_recursion_made_a_loop_is_none(tmp_path: Path) -> None:
    folder = doctored(tmp_path / "m", [("kernels/chain.h", "KEEP(value);", "")], "chain.so")
    (complaint,) = examine(all_benchmarks()["chain 32"], USER, folder / "chain.so").wrong
    assert "no longer a recursion" in complaint


def test_another_helper_is_other_work(tmp_path: Path) -> None:
    folder = doctored(tmp_path / "m", [(MATRIX, "xorshift(state)", "bpf_get_prandom_u32()")], "matrix.bpf.o")
    (complaint,) = examine(all_benchmarks()["matrix"], BPF, folder / "matrix.bpf.o").wrong
    assert "bpf_get_prandom_u32" in complaint


KERNEL = "    result = kernel(set, data, data_end, input);\n"
AGAIN = KERNEL + "    BEFORE(result);\n" + KERNEL
SPIN = "    NO_UNROLL\n    for (__u64 i = 0; i < 1000; i++)\n        KEEP(i);\n"
STRAIGHT = "".join(f"    input ^= input << {shift % 9 + 1};\n    KEEP(input);\n" for shift in range(40))
SLOW_RANDOM = "for (int i = 0; i < 8; i++) { KEEP(random); random = ~random; }\n" + " " * 8


def only(world: str, text: str, otherwise: str) -> str:
    return f"#ifdef {world}\n{text}#else\n{otherwise}#endif\n"


KEPT = """    static __u64 kept;
    if (!kept)
        kept = kernel(set, data, data_end, input);
    result = kept;
"""
IN_BPF = "#define CLOCK() bpf_ktime_get_ns()\n"
READ_ONCE_MORE = "        KEEP(*(volatile __u64 *)cell);\n"
STEP = "        *cell += random;\n"
UP_TO_THE_ROOT = "divisor * divisor <= number"
FASTER_IN_USER_SPACE = only("__bpf__", "divisor < number\n", f"{UP_TO_THE_ROOT}\n")
Doctored = tuple[str, str, str, tuple[str, ...]]
DOCTORED: dict[str, Doctored] = {
    # The kernel runs twice, and its first result is thrown away.
    "twice": (MEASURE, KERNEL, AGAIN, ("primes", "packet 100", "chase 100", "lookup 100")),
    "twice in BPF": (MEASURE, KERNEL, only("__bpf__", AGAIN, KERNEL), ("primes", "packet 100")),
    "twice in user space": (MEASURE, KERNEL, only("__bpf__", KERNEL, AGAIN), ("primes", "packet 100")),
    # It does not run, or does only a part of its work.
    "skipped in BPF": (MEASURE, KERNEL, only("__bpf__", "    result = 25;\n", KERNEL), ("primes", "packet 100")),
    "no even number": (PRIMES, "number <= highest; number++", "number <= highest; number += 2", ("primes",)),
    # Other work is between the clock reads.
    "a spin": (MEASURE, KERNEL, SPIN + KERNEL, ("empty", "primes", "packet 100")),
    "a spin in BPF": (MEASURE, KERNEL, only("__bpf__", SPIN + KERNEL, KERNEL), ("primes", "packet 100")),
    "a straight line": (MEASURE, KERNEL, STRAIGHT + KERNEL, ("empty",)),
    "empty divides": (EMPTY, "return input;", "set->unused = xorshift(input) / 3;\n    return input;", ("empty",)),
    "empty spins": (EMPTY, "return input;", SPIN + "    return input;", ("empty",)),
    # The work is right, and the call tells another time than its clock.
    "ends when it began": (MEASURE, "record->end = CLOCK();", "record->end = begin + 0 * CLOCK();", ("primes",)),
    "never began": (MEASURE, "    record->begin = begin;\n", "", ("primes", "packet 100")),
    # Only the first call does the work.
    "a kept result": (MEASURE, KERNEL, KEPT, ("primes",)),
    # Each step takes another time, and there are as many of them.
    "32 bits in BPF": ("bpf/world.h", IN_BPF, IN_BPF + "#define NUMBER __u32\n", ("primes",)),
    "reads once more in user space": (MATRIX, STEP, STEP + only("__bpf__", "", READ_ONCE_MORE), ("matrix",)),
    # The same result is computed in a slower way.
    "divides up to the number": (PRIMES, UP_TO_THE_ROOT, "divisor < number", ("primes",)),
    "divides up to the number in BPF": (PRIMES, UP_TO_THE_ROOT, "\n" + FASTER_IN_USER_SPACE, ("primes",)),
    "a slow random source": (MATRIX, "random = NEXT", SLOW_RANDOM + "random = NEXT", ("matrix",)),
}  # fmt: skip


@pytest.mark.parametrize("name", DOCTORED)
def test_a_wrapper_that_does_other_work_is_found(name: str, tmp_path: Path) -> None:
    """The loaded code is executed: between the clock reads are the algorithm's steps, and nothing else."""
    *edit, benchmarks = DOCTORED[name]
    pairs = [(all_benchmarks()[benchmark], wrapper) for benchmark in benchmarks for wrapper in (BPF, USER)]
    folder = doctored(tmp_path / "m", [edit], *(object_name(*pair) for pair in pairs))
    for benchmark, wrapper in pairs:
        found = examine(benchmark, wrapper, folder / object_name(benchmark, wrapper))
        assert found.wrong, f"{benchmark.name}, {wrapper}: {name} was not seen"


@pytest.fixture(scope="module")
def tree() -> modules.BuildTree:
    try:
        return headers.tree("6.1")
    except LabError as error:
        pytest.skip(f"no module can be built here: {error}")


IN_THE_MODULE = {
    "twice": (MEASURE, KERNEL, only("__KERNEL__", AGAIN, KERNEL), ("primes", "packet 100")),
    "skipped": (MEASURE, KERNEL, only("__KERNEL__", "    result = 25;\n", KERNEL), ("primes", "packet 100")),
    "a spin": (MEASURE, KERNEL, only("__KERNEL__", SPIN + KERNEL, KERNEL), ("primes", "packet 100", "empty")),
    "a pause": (MATRIX, STEP, STEP + only("__KERNEL__", "        cpu_relax();\n", ""), ("matrix",)),
    "a fence": (MEASURE, KERNEL, only("__KERNEL__", "    mb();\n", "") + KERNEL, ("primes", "empty")),
}


def module_of(tree: modules.BuildTree, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Build the benchmarks of a row of `IN_THE_MODULE` from doctored sources."""
    *edit, benchmarks = IN_THE_MODULE[name]
    folder = doctored(tmp_path / "m", [edit])
    for module in ("objects", "benchmarks"):
        monkeypatch.setattr(f"xdplab.studies.execution.{module}.shipped", lambda _: folder)
    return build_module(tree, [all_benchmarks()[benchmark] for benchmark in benchmarks])


@pytest.mark.parametrize("name", IN_THE_MODULE)
def test_a_module_that_does_other_work_is_found(
    name: str, objects: Path, tree: modules.BuildTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = module_of(tree, name, tmp_path, monkeypatch)
    for benchmark in IN_THE_MODULE[name][-1]:
        assert examine(all_benchmarks()[benchmark], MODULE, module, objects).wrong, f"{benchmark}: {name} was not seen"


def test_the_module_as_it_is_does_the_work_of_user_space(objects: Path, tree: modules.BuildTree) -> None:
    """Every step of the algorithm, and equally many instructions, except for the clock's and an aligned stack's."""
    module = build_module(tree, all_benchmarks().values())
    for benchmark in (one for one in all_benchmarks().values() if MODULE in one.wrappers):
        found = examine(benchmark, MODULE, module, objects)
        assert not found.wrong, benchmark.name
        assert found.executed
        if USER in benchmark.wrappers and not benchmark.clock_result:
            user = examine(benchmark, USER, objects / object_name(benchmark, USER)).executed
            assert user
            counts = found.executed.counts.instructions, user.counts.instructions
            assert counts[1] == pytest.approx(counts[0], rel=0.1, abs=10), benchmark.name


def test_the_steps_of_the_algorithms_are_counted_by_hand() -> None:
    """The divisions for the primes, written a second time; for all others, the statement in the benchmark's source."""
    divisions = 0
    for number in range(2, 101):
        for divisor in range(2, number):
            if divisor * divisor > number:
                break
            divisions += 1
            if number % divisor == 0:
                break
    known = all_benchmarks()
    assert known["primes"].task.count == divisions == 236
    assert {name: known[name].task.count for name in ("matrix", "clock sum", "chain 32", "lookup 100", "empty")} == {
        **{"matrix": 1000, "clock sum": 100, "chain 32": 32, "lookup 100": 100, "empty": 0}
    }


def steps(*words: str) -> Flow:
    """``clock``, ``work`` (a load), ``divide``, ``return``, ``->N`` (jump), ``?N`` (branch), other calls by name."""
    return Flow([step(at, word) for at, word in enumerate(words)])


def step(at: int, word: str) -> CodeLine:
    if word.startswith(("->", "?")):
        return CodeLine(at, "jump" if word[0] == "-" else "branch", word, target=int(word.lstrip("->?")))
    simple = {
        "clock": CodeLine(at, "call", word, callee="clock"),
        "work": CodeLine(at, "other", word, loads=True),
    }
    simple |= {
        "divide": CodeLine(at, "divide", word),
        "return": CodeLine(at, "return", word),
        "move": CodeLine(at, "other", word),
    }
    return simple.get(word, CodeLine(at, "call", word, callee=word))


WORK = TimedWork(loads=1)
LOOP = TimedWork(loop=True)


@pytest.mark.parametrize(
    ("flow", "work"),
    [
        (steps("clock", "work", "clock", "return"), WORK),
        (steps("?4", "clock", "work", "clock", "return"), WORK),  # gives up before the clock
        (steps("clock", "move", "?1", "clock", "return"), LOOP),
        (steps("clock", "->4", "clock", "return", "move", "?4", "->2"), LOOP),  # the loop is laid out after the end
        (steps("clock", "clock", "?1", "clock", "return"), TimedWork(loop=True, clocks=1)),
    ],
)
def test_clocks_that_enclose_the_work(flow: Flow, work: TimedWork) -> None:
    assert complaints(flow, 0, "clock", work) == []


@pytest.mark.parametrize(
    ("flow", "work", "words"),
    [
        (steps("clock", "clock", "work", "return"), WORK, "0 loads"),
        (steps("work", "clock", "clock", "return"), WORK, "0 loads"),
        (steps("clock", "work", "return"), WORK, "1 places"),
        (steps("clock", "work", "clock", "work", "clock", "return"), WORK, "3 places"),
        (steps("clock", "work", "?4", "clock", "return"), WORK, "without the last"),
        (steps("clock", "work", "clock", "move", "?3", "return"), WORK, "loop outside"),
        (steps("move", "clock", "work", "?0", "clock", "return"), WORK, "clock"),
        (steps("divide", "clock", "work", "clock", "return"), WORK, "division outside"),
        (steps("clock", "work", "strange", "clock", "return"), WORK, "strange"),
        (steps("strange", "clock", "work", "clock", "return"), WORK, "strange"),
        (steps("clock", "move", "clock", "return"), LOOP, "no loop"),
        (steps(*["work"] * 9, "clock", "work", "clock", "return"), WORK, "9 loads outside"),
    ],
)
def test_clocks_that_do_not(flow: Flow, work: TimedWork, words: str) -> None:
    assert words in "; ".join(complaints(flow, 0, "clock", work))


LISTING = """
0000000000000390 <microbench_primes>:
 390:\tcall   395 <microbench_primes+0x5>
\t\t\t391: R_X86_64_PLT32\t__fentry__-0x4
 395:\tmov    (%rdi),%rbx
 398:\tmov    %rax,0x8(%rbp)
 39c:\tadd    %rax,0x8(%rbp)
 3a0:\tdiv    %rcx
 3a3:\tlea    0x8(%rax),%rdx
 3a7:\tjae    395 <microbench_primes+0x5>
 3a9:\tcall   1030 <clock_gettime@plt>
 3ae:\tjmp    3b3 <microbench_primes+0x23>
\t\t\t3af: R_X86_64_PLT32\t__x86_return_thunk-0x4
 3b3:\tjmp    410 <chain_link.part.0>
"""


THROUGH_REGISTERS = """
0000000000000352 <chain_link>:
 352:\tmov    (%rdi),%rax
\t\t\t23: R_X86_64_64\tof_another_function
 355:\tmovabs $0x0,%rax
\t\t\t357: R_X86_64_64\t.text+0x352
 35f:\tcall   *%rax
 361:\tmovabs $0x0,%r14
\t\t\t363: R_X86_64_64\tktime_get_mono_fast_ns
 36b:\tcall   *%r14
 36e:\tmov    %rbx,%r14
 371:\tcall   *%r14
 374:\tcall   379 <chain_link+0x27>
\t\t\t375: R_X86_64_PLT32\t.text+0x34e
"""


def test_calls_through_registers_are_followed_to_what_was_put_in() -> None:
    called = [s.callee for s in parse_objdump(THROUGH_REGISTERS)["chain_link"] if s.kind == "call"]
    assert called == ["chain_link", "ktime_get_mono_fast_ns", "?", "chain_link"]


def test_a_listing_is_understood_line_by_line() -> None:
    found = parse_objdump(LISTING)["microbench_primes"]
    assert [s.kind for s in found] == [
        *("call", "other", "other", "other", "divide", "other", "branch", "call", "return", "return")
    ]
    assert [(s.loads, s.stores) for s in found[1:4]] == [(True, False), (False, True), (True, True)]
    assert not found[5].loads
    assert [found[i].callee for i in (0, 7, 8, 9)] == ["__fentry__", "clock_gettime", None, "chain_link"]
    assert found[6].target == 0x395


@pytest.mark.parametrize("text", ["no function at all\n", " 390:\tcall 395\n"])
def test_a_listing_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="objdump"):
        parse_objdump(text)


def test_a_result_that_differs_is_refused() -> None:
    primes = all_benchmarks()["primes"]
    calls = [TimedCall(0, 4, 1, 5, 25), TimedCall(1, 4, 6, 10, 24)]
    require_results(primes, calls[:1], [25, 25], cold=False)
    with pytest.raises(ProgramError, match="call 1 gives 24, user space gives 25"):
        require_results(primes, calls, [25, 25], cold=False)


def test_a_sum_of_clocks_lies_between_its_first_and_last() -> None:
    sums = all_benchmarks()["clock sum"]
    require_results(sums, [TimedCall(0, 100, 1000, 1100, 105_000)], [], cold=False)
    with pytest.raises(ProgramError, match="which no 100 clocks make"):
        require_results(sums, [TimedCall(0, 100, 1000, 1100, 99_999)], [], cold=False)


@pytest.fixture
def run(tmp_path: Path) -> Run[Any]:
    """Two benchmarks in user space of this machine: no root, no guest."""
    asked = ExecutionRequest(
        places=("host",), backends=("user",), benchmarks=("primes", "matrix"), repetitions=1, calls=15
    )
    return STUDY.start(replace(asked, cold=False), tmp_path)


def test_a_trial_whose_proof_fails_has_a_reason_and_no_numbers(run: Run[Any], tmp_path: Path) -> None:
    broken = doctored(tmp_path / "m", [(MEASURE, RIGHT, BROKEN["both first"])], "primes.so") / "primes.so"
    (run.directory.path / "objects/primes.so").write_bytes(broken.read_bytes())
    assert len(run.measure().failed) == 1
    (failure,) = failures(run.plan)
    assert "primes" in failure
    assert "its proof fails" in failure
    assert set(run.rows()["benchmark"]) == {"matrix"}
    assert "primes" not in run.tables()


def test_a_trial_with_another_result_has_a_reason_and_no_numbers(run: Run[Any]) -> None:
    reference = run.directory.path / "objects/reference.json"
    known = json.loads(reference.read_text())
    known["matrix"][7] += 1
    reference.write_text(json.dumps(known))
    run.measure()
    (failure,) = failures(run.plan)
    assert "matrix: call 7 gives" in failure
    assert set(run.rows()["benchmark"]) == {"primes"}


def test_a_run_is_opened_as_it_was_asked_for(run: Run[Any]) -> None:
    (run.directory.path / "objects/matrix.so").rename(run.directory.path / "objects/elsewhere.so")
    run.measure()
    assert failures(run.plan)
    again = STUDY.run(run.directory)
    assert again.plan.request == run.plan.request
    assert again.plan.points == run.plan.points
    assert set(again.rows()["benchmark"]) == {"primes"}
    assert again.metric == "elapsed_ns"  # integers: compare had no column to compare
