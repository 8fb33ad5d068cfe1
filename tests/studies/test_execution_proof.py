"""The proof of a benchmark finds clocks that moved: deliberately broken wrappers, and control flows made by hand."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from xdplab.errors import FormatError, ProgramError
from xdplab.programs.build import find_clang
from xdplab.resources import shipped
from xdplab.studies.execution import STUDY, ExecutionRun, Request
from xdplab.studies.execution.benchmarks import BPF, USER, all_benchmarks
from xdplab.studies.execution.enclosure import Flow, Work, complaints
from xdplab.studies.execution.microbench import Call
from xdplab.studies.execution.objdump import Step, parse_objdump
from xdplab.studies.execution.objects import build, object_name
from xdplab.studies.execution.proof import examine, require_results

RIGHT = (
    "begin = CLOCK();\n    AFTER(begin, input);\n    result = kernel(set, data, data_end, input);\n"
    "    BEFORE(result);\n    record->end = CLOCK();\n"
)
BROKEN = {
    # As a compiler was once seen to do it: both looks in a row, the work behind them.
    "both first": "begin = CLOCK();\n record->end = CLOCK();\n result = kernel(set, data, data_end, input);\n",
    "both last": "result = kernel(set, data, data_end, input);\n begin = CLOCK();\n record->end = CLOCK();\n",
    "one only": "begin = 0; result = kernel(set, data, data_end, input);\n record->end = CLOCK();\n",
    "more work before": RIGHT.replace("begin =", "input += kernel(set, data, data_end, 3);\n begin =", 1),
    "more work behind": RIGHT + "    record->input = kernel(set, data, data_end, result);\n",
    "no work": RIGHT.replace("kernel(set, data, data_end, input)", "input"),
}
BENCHMARKS = ("primes", "matrix", "array 100")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("broken") / "microbench"
    shutil.copytree(shipped("microbench"), folder, ignore=shutil.ignore_patterns("*.o", "*.so", "microbench"))
    shutil.copytree(shipped("common"), folder / "common")
    for name in BENCHMARKS:
        benchmark = all_benchmarks()[name]
        (folder / f"kernels/{benchmark.kernel}.h").write_bytes(benchmark.header)
    return folder


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("objects")
    for name, content in build(all_benchmarks().values()).items():
        (folder / name).write_bytes(content)
    return folder


def made(sources: Path, broken: str) -> Path:
    """Build the benchmarks with a measure.h whose middle is another one."""
    folder = sources.with_name(broken.replace(" ", "-"))
    shutil.copytree(sources, folder, dirs_exist_ok=True)
    header = folder / "kernels/measure.h"
    text = header.read_text()
    assert RIGHT in text
    header.write_text(text.replace(RIGHT, BROKEN.get(broken, RIGHT)))
    wanted = [object_name(all_benchmarks()[name], wrapper) for name in BENCHMARKS for wrapper in (BPF, USER)]
    subprocess.run(["make", "-s", f"CLANG={find_clang()}", *wanted], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_wrapper_fails_its_proof(broken: str, sources: Path) -> None:
    folder = made(sources, broken)
    for name in BENCHMARKS:
        for wrapper in (BPF, USER):
            benchmark = all_benchmarks()[name]
            found = examine(benchmark, wrapper, folder / object_name(benchmark, wrapper))
            assert found.wrong, f"{name}, {wrapper}: {broken} was not seen"
            assert found.text


def test_the_wrappers_as_they_are_pass(objects: Path) -> None:
    for benchmark in all_benchmarks().values():
        for wrapper in (BPF, USER):
            if wrapper in benchmark.wrappers:
                found = examine(benchmark, wrapper, objects / object_name(benchmark, wrapper))
                assert not found.wrong, f"{benchmark.name}, {wrapper}"


def test_a_recursion_made_a_loop_is_none(sources: Path) -> None:
    folder = sources.with_name("looped")
    shutil.copytree(sources, folder)
    header = folder / "kernels/chain.h"
    header.write_text(header.read_text().replace("KEEP(value);", ""))
    subprocess.run(["make", "-s", "chain.so"], cwd=folder, check=True, capture_output=True)
    (complaint,) = examine(all_benchmarks()["chain 32"], USER, folder / "chain.so").wrong
    assert "no recursion" in complaint


def test_another_helper_is_other_work(sources: Path) -> None:
    folder = sources.with_name("helper")
    shutil.copytree(sources, folder)
    header = folder / "kernels/matrix.h"
    header.write_text(header.read_text().replace("xorshift(state)", "bpf_get_prandom_u32()"))
    subprocess.run(["make", "-s", f"CLANG={find_clang()}", "matrix.bpf.o"], cwd=folder, check=True, capture_output=True)
    (complaint,) = examine(all_benchmarks()["matrix"], BPF, folder / "matrix.bpf.o").wrong
    assert "bpf_get_prandom_u32" in complaint


def steps(*words: str) -> Flow:
    """``clock``, ``work`` (a load), ``divide``, ``return``, ``->N`` (jump), ``?N`` (branch), other calls by name."""
    return Flow([step(at, word) for at, word in enumerate(words)])


def step(at: int, word: str) -> Step:
    if word.startswith(("->", "?")):
        return Step(at, "jump" if word[0] == "-" else "branch", word, target=int(word.lstrip("->?")))
    simple = {"clock": Step(at, "call", word, callee="clock"), "work": Step(at, "other", word, loads=True)}
    simple |= {"divide": Step(at, "divide", word), "return": Step(at, "return", word), "move": Step(at, "other", word)}
    return simple.get(word, Step(at, "call", word, callee=word))


WORK = Work(loads=1)
LOOP = Work(loop=True)


@pytest.mark.parametrize(
    ("flow", "work"),
    [
        (steps("clock", "work", "clock", "return"), WORK),
        (steps("?4", "clock", "work", "clock", "return"), WORK),  # gives up before the clock
        (steps("clock", "move", "?1", "clock", "return"), LOOP),
        (steps("clock", "->4", "clock", "return", "move", "?4", "->2"), LOOP),  # the loop laid out behind the end
        (steps("clock", "clock", "?1", "clock", "return"), Work(loop=True, clocks=1)),
    ],
)
def test_clocks_that_enclose_the_work(flow: Flow, work: Work) -> None:
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
def test_clocks_that_do_not(flow: Flow, work: Work, words: str) -> None:
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
    calls = [Call(0, 4, 1, 5, 25), Call(1, 4, 6, 10, 24)]
    require_results(primes, calls[:1], [25, 25], cold=False)
    with pytest.raises(ProgramError, match="call 1 gives 24, user space gives 25"):
        require_results(primes, calls, [25, 25], cold=False)


def test_a_sum_of_clocks_lies_between_its_first_and_last() -> None:
    sums = all_benchmarks()["clock sum"]
    require_results(sums, [Call(0, 100, 1000, 1100, 105_000)], [], cold=False)
    with pytest.raises(ProgramError, match="which no 100 clocks make"):
        require_results(sums, [Call(0, 100, 1000, 1100, 99_999)], [], cold=False)


@pytest.fixture
def run(tmp_path: Path) -> ExecutionRun:
    """Two benchmarks in user space of this machine: no root, no guest."""
    asked = Request(places=("host",), backends=("user",), benchmarks=("primes", "matrix"), repetitions=1, calls=15)
    return STUDY.start(replace(asked, cold=False), tmp_path)


def test_a_trial_whose_proof_fails_has_a_reason_and_no_numbers(run: ExecutionRun, sources: Path) -> None:
    broken = made(sources, "both first") / "primes.so"
    (run.directory.path / "objects/primes.so").write_bytes(broken.read_bytes())
    assert len(run.execute().failed) == 1
    (failure,) = run.failures()
    assert "primes" in failure
    assert "its proof fails" in failure
    assert set(run.table()["benchmark"]) == {"matrix"}
    assert "primes" not in run.tables()


def test_a_trial_with_another_result_has_a_reason_and_no_numbers(run: ExecutionRun) -> None:
    reference = run.directory.path / "objects/reference.json"
    known = json.loads(reference.read_text())
    known["matrix"][7] += 1
    reference.write_text(json.dumps(known))
    run.execute()
    (failure,) = run.failures()
    assert "matrix: call 7 gives" in failure
    assert set(run.table()["benchmark"]) == {"primes"}


def test_a_run_is_opened_as_it_was_asked_for(run: ExecutionRun) -> None:
    (run.directory.path / "objects/matrix.so").rename(run.directory.path / "objects/elsewhere.so")
    run.execute()
    assert run.failures()
    again = STUDY.open(run.directory.path)
    assert again.request == run.request
    assert again.points == run.points
    assert set(again.table()["benchmark"]) == {"primes"}
