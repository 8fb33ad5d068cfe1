"""What is proved of a wrapper's calls: counts that are the algorithm's pass, and each kind of other work is refused."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from xdplab.errors import ProgramError
from xdplab.studies.execution.benchmarks import BPF, USER, TimedCall, all_benchmarks
from xdplab.studies.execution.counted import Counts, Executed, Symbols, Wrapped
from xdplab.studies.execution.points import ExecutionRequest
from xdplab.studies.execution.proof import Proofs, differences, executed, require_results, steps, unlike
from xdplab.studies.execution.runs import STUDY
from xdplab.studies.kind import Run
from xdplab.studies.plugin import Plugin
from xdplab.studies.study_kind import failures

PRIMES = Counts(
    instructions=3121, divisions=236, stalls=0, loads=1, stores=0, most=236, called=69, clocks=0, before=47, behind=50,
    elapsed=3190, stated=3190, began=950_000_000, result=25,
)  # fmt: skip
"""As gcc 12 makes it of user space's function."""


def undisturbed(counts: Counts) -> Counts:
    """Return them with nothing beside the wrapper and its callees from look to look."""
    elapsed = counts.instructions + counts.called
    return replace(counts, elapsed=elapsed, stated=elapsed)


COUNTED = {
    "primes": PRIMES,
    "matrix": replace(PRIMES, instructions=21_014, divisions=0, loads=1001, stores=1000, most=1000),
    "array 100": replace(PRIMES, instructions=273, divisions=0, loads=102, stores=1, most=3),
    "chain 32": replace(PRIMES, instructions=556, divisions=0, loads=65, stores=65, most=32),
    "empty": replace(PRIMES, instructions=8, divisions=0, most=1),
    "clock sum": replace(PRIMES, instructions=1211, divisions=0, loads=101, clocks=100, called=6969, most=101),
}

COUNTED = {name: undisturbed(one) for name, one in COUNTED.items()}


@pytest.mark.parametrize("name", COUNTED)
def test_the_algorithms_work_passes(name: str) -> None:
    benchmark = all_benchmarks()[name]
    assert differences(benchmark, USER, [COUNTED[name]] * 3) == []
    assert steps(benchmark, USER, COUNTED[name]) == (benchmark.task.count or 8)


OTHER_WORK: dict[str, tuple[str, dict[str, int], str]] = {
    "a step too few": ("primes", {"divisions": 235}, "235 divisions"),
    "twice": ("array 100", {"loads": 202}, "200 loads"),
    "a cell left out": ("matrix", {"stores": 999}, "999 stores"),
    "a link too many": ("chain 32", {"most": 33}, "33 links"),
    "a look too few": ("clock sum", {"clocks": 99}, "99 clocks"),
    "another look": ("primes", {"clocks": 1, "loads": 2}, "clock 3 times"),
    "a constant": ("primes", {"divisions": 0, "instructions": 8}, "0 divisions"),
    "a spin": ("primes", {"instructions": 6121}, "6,121 instructions between"),
    "a short spin": ("empty", {"instructions": 30}, "30 instructions between"),
    "no work in half of the steps": ("primes", {"instructions": 2000}, "2,000 instructions between"),
    "work before": ("primes", {"before": 360}, "360 instructions before"),
    "work behind": ("primes", {"behind": 360}, "360 instructions behind"),
    "other functions": ("primes", {"called": 169}, "169 instructions"),
    "other memory": ("primes", {"loads": 102}, "loads 102 times"),
    "stores beside the work": ("primes", {"stores": 101}, "stores 101 times"),
    "fences": ("primes", {"stalls": 1}, "1 pauses"),
    "another time": ("primes", {"stated": 3180}, "took 3,180"),
    "never began": ("primes", {"began": 0}, "from 0 on"),
    "a clock that is set": ("primes", {"began": 1_700_000_000_000_000_000}, "from 1,700"),
}


@pytest.mark.parametrize("name", OTHER_WORK)
def test_other_work_is_refused(name: str) -> None:
    benchmark, changes, words = OTHER_WORK[name]
    doctored = replace(COUNTED[benchmark], **changes)
    assert words in "; ".join(differences(all_benchmarks()[benchmark], USER, [doctored]))


def test_a_later_calls_work_is_refused_by_its_number() -> None:
    kept = replace(PRIMES, divisions=0)
    assert differences(all_benchmarks()["primes"], USER, [PRIMES, kept])[0].startswith("in call 2, ")


def test_an_interrupt_between_the_clocks_is_nobodys_work() -> None:
    interrupted = replace(PRIMES, elapsed=8747, stated=8779)
    assert differences(all_benchmarks()["primes"], USER, [interrupted]) == []


def test_wrappers_of_one_benchmark_give_the_same() -> None:
    known, other = all_benchmarks(), replace(PRIMES, result=24)
    assert unlike(known["primes"], [PRIMES, other], [PRIMES, PRIMES]) == ["call 2 gives 24, and its partner 25"]
    assert unlike(known["primes"], [PRIMES], [PRIMES]) == []
    assert unlike(known["clock sum"], [other], [PRIMES]) == []


def test_the_jits_machine_code_has_more_instructions_a_step() -> None:
    jited = undisturbed(replace(PRIMES, instructions=6489, loads=0, called=45))
    assert differences(all_benchmarks()["primes"], BPF, [jited]) == []
    assert differences(all_benchmarks()["primes"], USER, [jited])


WRAPPER, CLOCK, DRIVER, TICK = 0x1000, 0x2000, 0x3000, 0xFFFFFFFF81000000
INTERRUPTED = [
    "block 3000 call 1 90",
    "block 1000 call 1,1 9090",
    "block 2000 on 1,2 900f31",
    "block 2003 return 1 c3",
    "block 1002 on 3 48f7f1",
    "block ffffffff81000000 call 1,1 9090",
    "block ffffffff81000100 on 1,2 900f31",
    "path 0 3000", "path 1 1000",  # 2: the wrapper
    "path 2 1001", "path 3 2000",  # 4: its clock
    "path 2 ffffffff81000001", "path 5 ffffffff81000100",  # 6: below the interrupt
    "look 4 5", "ran 0 0 1", "ran 2 1 1", "ran 4 2 1",
    "look 6 7", "ran 4 3 1", "ran 2 4 2", "ran 2 5 1", "ran 6 6 1",
    "look 4 3", "ran 2 4 1", "ran 4 2 1",
    "window", "ran 4 3 1",
]  # fmt: skip
"""A call looks at its clock twice; in between, an interrupt of the kernel looks at it too."""


def test_a_call_is_cut_at_its_own_looks_at_the_clock() -> None:
    plugin = Plugin("".join(f"{line}\n" for line in INTERRUPTED).encode())
    symbols = Symbols([(TICK, "asm_sysvec_apic_timer_interrupt"), (TICK + 0x100, "ktime_get")])
    executed = Executed(plugin, BPF, [range(WRAPPER, WRAPPER + 16)], symbols)
    counts = executed.counts(0, TimedCall(0, 10, 1, 11, 25))
    assert (counts.instructions, counts.divisions, counts.called) == (3, 3, 3)
    assert (counts.before, counts.behind, counts.clocks) == (4, 1, 0)
    assert (counts.elapsed, counts.stated) == (10, 10)


def test_a_call_that_looks_once_has_no_counts() -> None:
    plugin = Plugin("".join(f"{line}\n" for line in [*INTERRUPTED[:15], "window"]).encode())
    with pytest.raises(ProgramError, match="1 times"):
        Executed(plugin, USER, [range(WRAPPER, WRAPPER + 16)], Symbols([])).counts(0, TimedCall(0, 1))


def test_the_divisions_of_the_primes_are_counted_by_hand() -> None:
    """Written a second time."""
    divisions = 0
    for number in range(2, 101):
        for divisor in range(2, number):
            if divisor * divisor > number:
                break
            divisions += 1
            if number % divisor == 0:
                break
    assert all_benchmarks()["primes"].task.count == divisions == 236


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
def wrong() -> dict[str, Counts | ProgramError]:
    """What the guest counts of a benchmark instead of the algorithm's work."""
    return {}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Counts | ProgramError]) -> Run[Any]:
    """Two benchmarks in user space of this machine, with what a guest would count: no root, no guest."""

    def counted(wrapped: Sequence[Wrapped]) -> list[tuple[Counts, ...] | ProgramError]:
        found = [wrong.get(one.benchmark.name, COUNTED[one.benchmark.name]) for one in wrapped]  # of BPF too
        return [one if isinstance(one, ProgramError) else (one,) for one in found]

    monkeypatch.setattr("xdplab.studies.execution.proof.counted", counted)
    asked = ExecutionRequest(
        places=("host",), backends=("user",), benchmarks=("primes", "matrix"), repetitions=1, calls=15
    )
    return STUDY.start(replace(asked, cold=False), tmp_path)


def test_what_differs_once_is_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick of the guest's clock in a call is no work of the wrapper."""
    benchmark = all_benchmarks()["primes"]
    wrapped = [Wrapped(benchmark, USER, Path("primes.o"))]
    answers = iter([[(replace(PRIMES, divisions=PRIMES.divisions + 1),)], [(PRIMES,)]])
    monkeypatch.setattr("xdplab.studies.execution.proof.counted", lambda wrapped: next(answers))
    assert executed(wrapped) == [(PRIMES,)]


@pytest.mark.thorough
@pytest.mark.parametrize("refused", [replace(PRIMES, divisions=0), ProgramError("a call looks at its clock 1 times")])
def test_a_trial_whose_proof_fails_has_a_reason_and_no_numbers(
    run: Run[Any], wrong: dict[str, Counts | ProgramError], refused: Counts | ProgramError
) -> None:
    wrong["primes"] = refused
    assert len(run.measure().failed) == 1
    (failure,) = failures(run.plan)
    assert "primes" in failure
    assert "its proof fails" in failure
    assert set(run.rows()["benchmark"]) == {"matrix"}
    assert "primes" not in run.tables()


@pytest.mark.thorough
def test_an_object_that_was_not_counted_is_not_measured(run: Run[Any]) -> None:
    objects = run.directory.path / "objects"
    run.measure()
    (objects / "primes.so").write_bytes((objects / "matrix.so").read_bytes())
    primes = all_benchmarks()["primes"]
    with pytest.raises(ProgramError, match="another one"):
        Proofs(run.directory, [(primes, USER)], lambda _: objects).counts(primes, USER)


@pytest.mark.thorough
def test_a_trial_with_another_result_has_a_reason_and_no_numbers(run: Run[Any]) -> None:
    reference = run.directory.path / "objects/reference.json"
    known = json.loads(reference.read_text())
    known["matrix"][7] += 1
    reference.write_text(json.dumps(known))
    run.measure()
    (failure,) = failures(run.plan)
    assert "matrix: call 7 gives" in failure
    assert set(run.rows()["benchmark"]) == {"primes"}


@pytest.mark.thorough
def test_a_run_is_opened_as_it_was_asked_for(run: Run[Any]) -> None:
    (run.directory.path / "objects/matrix.so").rename(run.directory.path / "objects/elsewhere.so")
    run.measure()
    assert failures(run.plan)
    again = STUDY.run(run.directory)
    assert again.plan.request == run.plan.request
    assert again.plan.points == run.plan.points
    assert set(again.rows()["benchmark"]) == {"primes"}
    assert again.metric == "elapsed_ns"  # integers: compare had no column to compare
