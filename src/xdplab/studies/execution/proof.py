"""The proof that two wrappers of a benchmark measure the same work: clocks where they belong, results that agree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from xdplab.errors import ProgramError
from xdplab.programs.build import run_tool
from xdplab.studies.execution.benchmarks import BPF, CHAIN_LINK, CLOCKS, MODULE, Benchmark
from xdplab.studies.execution.bytecode import entry_of, steps_of
from xdplab.studies.execution.enclosure import Flow, complaints
from xdplab.studies.execution.microbench import TimedCall
from xdplab.studies.execution.objdump import CodeLine, parse_objdump

CLOCK_READS = 100
"""READS of kernels/clock_sum.h."""


@dataclass(frozen=True)
class Disassembly:
    """What a wrapper became: ``text`` for people, and what is wrong with it (nothing: the clocks enclose the work)."""

    text: str
    wrong: tuple[str, ...]


def examine(benchmark: Benchmark, wrapper: str, path: Path) -> Disassembly:
    """Disassemble what is loaded and decide whether its clocks enclose the work.

    Raises ProgramError where it cannot be disassembled, FormatError where the disassembly is not understood.
    """
    if wrapper == BPF:
        return _examine_bpf(benchmark, path.read_bytes())
    function = f"microbench_{benchmark.kernel}" if wrapper == MODULE else "microbench"
    symbols = [function, *([CHAIN_LINK] if benchmark.work.needs_call == CHAIN_LINK else [])]
    text = "".join(_objdump(path, symbol) for symbol in symbols)
    functions = parse_objdump(text)
    for symbol in symbols:
        if not functions.get(symbol):
            return Disassembly(text, (f"there is no function {symbol}",))
    found = complaints(Flow(functions[function]), 0, CLOCKS[wrapper], benchmark.work_of(wrapper))
    return Disassembly(text, (*found, *_not_recursive(functions.get(CHAIN_LINK))))


def _examine_bpf(benchmark: Benchmark, content: bytes) -> Disassembly:
    steps, functions, text = steps_of(content)
    tail_calls = {"bpf_tail_call": functions[CHAIN_LINK]} if CHAIN_LINK in functions else {}
    flow = Flow(steps, tail_calls)
    entry = entry_of(steps, functions["microbench"])
    return Disassembly(text, tuple(complaints(flow, entry, CLOCKS[BPF], benchmark.work_of(BPF))))


def _not_recursive(steps: Sequence[CodeLine] | None) -> tuple[str, ...]:
    """A compiler may make a loop, or a jump, of a recursion."""
    if steps is None or any(step.kind == "call" and step.callee == CHAIN_LINK for step in steps):
        return ()
    return (f"{CHAIN_LINK} does not call itself: it is no recursion any more",)


def _objdump(path: Path, symbol: str) -> str:
    command = ["objdump", "-dr", "--no-show-raw-insn", f"--disassemble={symbol}", path.name]
    return run_tool(command, path.parent)


def require_results(benchmark: Benchmark, calls: Sequence[TimedCall], expected: Sequence[int], cold: bool) -> None:
    """Raise ProgramError unless each call gave what the reference gave; a cold call begins anew each time.

    ``expected``: the results of as many warm calls of the user-space function on this machine.
    """
    if benchmark.trap:
        return
    if benchmark.clock_result:
        _require_sums(calls)
        return
    wanted = [expected[0]] * len(calls) if cold else list(expected[: len(calls)])
    for call, value in zip(calls, wanted, strict=True):
        if call.result != value:
            raise ProgramError(
                f"{benchmark.name}: call {call.index} gives {call.result}, user space gives {value} for the same input"
            )


def _require_sums(calls: Iterable[TimedCall]) -> None:
    """The sum of N looks at a clock lies between N times the first look and N times the last."""
    for call in calls:
        if not CLOCK_READS * call.begin_ns <= call.result <= CLOCK_READS * call.end_ns:
            raise ProgramError(f"clock sum: call {call.index} gives {call.result}, which no {CLOCK_READS} clocks make")
