"""The proof that two wrappers of a benchmark measure the same work: clocks where they belong, equal work and results.

The object must be loaded as its file has it: a shared object may have functions that run as it is loaded, or that
choose another function; libbpf fills in what a program asks of the kernel's types and configuration; a kernel changes a
module's code at places that the module lists. Then the control flow of the wrapper's code is checked (`enclosure`), and
an emulator executes it (`executed`).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from xdplab.compiler import run_tool
from xdplab.errors import ProgramError
from xdplab.studies.execution.benchmarks import BPF, CHAIN_LINK, CLOCK_READS, CLOCKS, MODULE, USER, Benchmark
from xdplab.studies.execution.codelines import DIALECTS, CodeLine, entry_of, lines_of_bpf, parse_objdump
from xdplab.studies.execution.enclosure import Flow, complaints
from xdplab.studies.execution.executed import OTHER, Executed, execute
from xdplab.studies.execution.machines import clock_instructions, machine_of, share
from xdplab.studies.execution.microbench import TimedCall
from xdplab.studies.execution.objects import object_name

_AT_START = ("DT_INIT", "DT_INIT_ARRAY", "DT_PREINIT_ARRAY")
_CHANGES_TEXT = ("DT_TEXTREL",)
_LIBRARIES = frozenset({"libc.so.6"})
_CHANGED_SECTIONS = (".altinstructions", "__jump_table", ".static_call_sites", ".parainstructions")
_CORE_RELOCATIONS = slice(24, 32)  # of struct btf_ext_header: core_relo_off and core_relo_len


def unsealed(wrapper: str, content: bytes, function: str) -> list[str]:
    """Return what loading would change of ``function``, or run before it. Raises ProgramError if it is no object."""
    try:
        return list(_WAYS[wrapper](ELFFile(io.BytesIO(content)), function))
    except ELFError as error:
        raise ProgramError(f"it is not an object: {error}") from None


def _of_shared_object(elf: Any, function: str) -> Iterator[str]:
    dynamic = elf.get_section_by_name(".dynamic")
    tags = list(dynamic.iter_tags()) if dynamic else []
    names = {tag.entry.d_tag for tag in tags}
    if at_start := [tag for tag in _AT_START if tag in names]:
        yield f"it has code that runs as it is loaded ({', '.join(at_start)})"
    if names & set(_CHANGES_TEXT):
        yield "its code is changed as it is loaded (DT_TEXTREL)"
    if others := sorted({tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"} - _LIBRARIES):
        yield f"it is linked with {', '.join(others)}"
    places = {
        (symbol["st_value"], symbol["st_info"]["type"])
        for section in (".symtab", ".dynsym")
        if (table := elf.get_section_by_name(section))
        for symbol in table.iter_symbols()
        if symbol.name.split("@")[0] == function
    }
    if len(places) > 1 or any(kind != "STT_FUNC" for _, kind in places):
        yield f"{function} is more than one function, or chosen as it is loaded"


def _of_bpf(elf: Any, function: str) -> Iterator[str]:
    extra = elf.get_section_by_name(".BTF.ext")
    header = extra.data()[_CORE_RELOCATIONS] if extra else b""
    if any(header[4:]):
        yield "its code is changed as it is loaded (CO-RE relocations)"
    table = elf.get_section_by_name(".symtab")
    externs = sorted(s.name for s in table.iter_symbols() if s.name and s["st_shndx"] == "SHN_UNDEF") if table else []
    if externs:
        yield f"it has externs, which are filled in as it is loaded: {', '.join(externs)}"


def _of_module(elf: Any, function: str) -> Iterator[str]:
    """Code of the function that a kernel replaces: alternatives, jump labels, static calls."""
    sections = list(elf.iter_sections())
    table = elf.get_section_by_name(".symtab")
    symbol = next((s for s in table.iter_symbols() if s.name == function), None)
    if symbol is None:
        return
    inside = range(symbol["st_value"], symbol["st_value"] + symbol["st_size"])
    for name in _CHANGED_SECTIONS:
        relocations = elf.get_section_by_name(f".rela{name}")
        for one in relocations.iter_relocations() if relocations else ():
            target = sections[relocations["sh_link"]].get_symbol(one["r_info_sym"])
            if target["st_shndx"] == symbol["st_shndx"] and target["st_value"] + one["r_addend"] in inside:
                yield f"the kernel changes its code as it is loaded ({name})"
                break


_WAYS: Mapping[str, Callable[[Any, str], Iterator[str]]] = {
    USER: _of_shared_object,
    BPF: _of_bpf,
    MODULE: _of_module,
}


MOST_APART = 1.3
"""How many times the instructions of one wrapper another may execute, and of the algorithm either; gcc 12 and 16 and
clang 14 to 23 come to 1.25 between two wrappers."""

WITH_PARTNER = {
    "wide": "divisions of 64 bits",
    "digits": "bits of dividends",
    "loads": "loads",
    "stores": "stores",
    "lines": "lines of memory in accesses",
}
"""What partners have in common to the last one, and how it is told."""

_OF_MEMORY = ("loads", "stores", "lines")
"""What partners do not have in common in a chain, whose links are other memory in BPF."""

ELSEWHERE, STACK, DEEPEST_BYTES = 8, 16, 2048
"""How often a call may reach for other memory than that which it works on (a walk's state, the way to the C library),
and for its stack, and how deep, beside what its clocks, links and steps need. gcc 12 and clang 14 come to 3, 6 and
592. For each clock gcc 16 reaches ten times for the stack: it keeps there the zeros that it stores into the result."""
_PER_CLOCK, _PER_LINK = {"elsewhere": 1, "stack": 10}, {"elsewhere": 5, "stack": 6}

PARTNERS = {BPF: USER, MODULE: USER, USER: BPF}
"""Whose work each wrapper's is compared with."""


@dataclass(frozen=True)
class Examined:
    """What a wrapper became: ``text`` for people, what is wrong with it, and what a call does between its clocks.

    ``executed`` is null where something is wrong with its control flow.
    """

    text: str
    wrong: tuple[str, ...]
    executed: Executed | None = None


def examine(
    benchmark: Benchmark, wrapper: str, path: Path, objects: Path | None = None, users: Path | None = None
) -> Examined:
    """Check that the loaded object has its clock calls around its work, and that it does the required work.

    ``objects``: the folder with the benchmark's objects for BPF and user space, which it is compared with; the folder
    of ``path`` if not given. ``users``: that of user space, if it is of another architecture. Raises ProgramError if
    it cannot be disassembled, FormatError where the disassembly is not understood.
    """
    examined = _enclosed(benchmark, wrapper, path)
    if examined.wrong:
        return examined
    try:
        content = path.read_bytes()
        calls = execute(benchmark, wrapper, content)
        elsewhere = execute(benchmark, wrapper, content, OTHER)
        folder = objects or path.parent
        partner = _partner(benchmark, wrapper, {BPF: folder, USER: users or folder})
    except ProgramError as error:
        return replace(examined, wrong=(error.message,))
    wrong = [*_first_unequal(benchmark, calls, partner), *_by_its_world(benchmark, calls, elsewhere)]
    return replace(examined, executed=calls[0], wrong=tuple(wrong))


def _by_its_world(benchmark: Benchmark, calls: Sequence[Executed], elsewhere: Sequence[Executed]) -> Iterator[str]:
    """No work depends on the clock, on where memory lies, or on registers that nobody set."""
    of_clock = benchmark.clock_result
    if [call.in_any_world(of_clock) for call in calls] != [call.in_any_world(of_clock) for call in elsewhere]:
        yield "a call does other work where its clock, its addresses or unused registers are others"
    if any(call.recorded != call.looks for call in elsewhere):
        yield "a call tells another time than its clock where that says more"


def _first_unequal(
    benchmark: Benchmark, calls: Sequence[Executed], partner: Sequence[Executed] | None
) -> Iterable[str]:
    """Return what is unequal in the first call with a difference, and which call it is unless it is the first."""
    others: Sequence[Executed | None] = partner or [None] * len(calls)
    for number, (one, other) in enumerate(zip(calls, others, strict=True), 1):
        if differences := list(unequal(benchmark, one, other)):
            return differences if number == 1 else [f"in call {number}, {difference}" for difference in differences]
    return []


def _partner(benchmark: Benchmark, wrapper: str, objects: Mapping[str, Path]) -> tuple[Executed, ...] | None:
    """Return what the wrapper's partner does; null for a trap, which compares with nothing."""
    other = PARTNERS[wrapper]
    if benchmark.trap or other not in benchmark.wrappers:
        return None
    return execute(benchmark, other, (objects[other] / object_name(benchmark, other)).read_bytes())


def unequal(benchmark: Benchmark, executed: Executed, partner: Executed | None) -> Iterator[str]:
    """Yield each difference between a call's work and that of the algorithm, or that of its partner.

    Instructions of two machines are compared by what a step comes to on each.
    """
    task, mine = benchmark.task, executed.counts
    here = share(executed.machine, benchmark.family)
    if executed.recorded != executed.looks:
        yield f"a call says that it began and ended at {executed.recorded}, and its clock said {executed.looks}"
    steps = getattr(mine, task.kind)
    if task.count and steps != task.count:
        yield f"a call makes {steps:,} {task.kind} between its clocks, and the algorithm {task.count:,}"
    expected, clocks = here * task.per_step * task.count, clock_instructions(executed.machine) * (1 + mine.clocks)
    if not expected / MOST_APART <= mine.instructions <= expected * MOST_APART + task.around + clocks:
        of_algorithm = f"the algorithm about {expected:,.0f}"
        yield f"a call executes {mine.instructions:,} instructions between its clocks, and {of_algorithm}"
    products = task.products * task.count + mine.quotients + task.around
    if mine.products > products + 1 + mine.clocks:
        yield f"a call multiplies {mine.products:,} times between its clocks, and the algorithm {products:,.0f}"
    if executed.strange:
        yield f"a call stores {executed.strange:,} times into memory that is not the algorithm's to change"
    if executed.idle:
        yield f"a call executes {executed.idle:,} pauses, fences or the like, which do no work"
    yield from _beside_the_work(benchmark, executed)
    if partner is not None:
        yield from _unlike_its_partner(benchmark, executed, partner)


def _unlike_its_partner(benchmark: Benchmark, executed: Executed, partner: Executed) -> Iterator[str]:
    task, mine, other = benchmark.task, executed.counts, partner.counts
    for kind, noun in WITH_PARTNER.items():
        ours, theirs = getattr(mine, kind), getattr(other, kind)
        if task.count and ours != theirs and not (kind in _OF_MEMORY and task.kind == "links"):
            yield f"a call makes {ours:,} {noun} between its clocks, and its partner {theirs:,}"
    sides = (executed, partner)
    clocks = max(clock_instructions(side.machine) * (1 + side.counts.clocks) for side in sides)
    few, many = sorted(side.counts.instructions / share(side.machine, benchmark.family) for side in sides)
    if many > MOST_APART * few + clocks:
        its = f"its partner {other.instructions:,}"
        yield f"a call executes {mine.instructions:,} instructions between its clocks, and {its}"
    if not benchmark.clock_result and executed.result != partner.result:
        yield f"it gives {executed.result}, and its partner {partner.result}"


def _beside_the_work(benchmark: Benchmark, executed: Executed) -> Iterator[str]:
    """Yield what a call does with memory that the algorithm does not work on."""
    task, counts = benchmark.task, executed.counts
    links = task.count if task.kind == "links" else 0
    clocks = 1 + counts.clocks
    elsewhere = ELSEWHERE + _PER_CLOCK["elsewhere"] * clocks + _PER_LINK["elsewhere"] * links
    if counts.elsewhere > elsewhere:
        yield f"a call reaches {counts.elsewhere:,} times for memory that the algorithm does not work on"
    stack = STACK + _PER_CLOCK["stack"] * clocks + _PER_LINK["stack"] * links + task.spills * task.count
    if counts.stack > stack and not benchmark.trap:
        yield f"a call reaches {counts.stack:,} times for its stack between its clocks, and {stack:,.0f} are enough"
    if executed.deepest > DEEPEST_BYTES:
        yield f"a call needs {executed.deepest:,} bytes of stack"


def _enclosed(benchmark: Benchmark, wrapper: str, path: Path) -> Examined:
    function = f"microbench_{benchmark.kernel}" if wrapper == MODULE else "microbench"
    if changes := unsealed(wrapper, _content(path), function):
        return Examined("", tuple(changes))
    if wrapper == BPF:
        return _examine_bpf(benchmark, path.read_bytes())
    symbols = [function, *([CHAIN_LINK] if benchmark.work.needs_call == CHAIN_LINK else [])]
    machine = _machine(path)
    text = "".join(_objdump(DIALECTS[machine].objdump, path, symbol) for symbol in symbols)
    functions = parse_objdump(text, machine)
    for symbol in symbols:
        if not functions.get(symbol):
            return Examined(text, (f"there is no function {symbol}",))
    changes = complaints(Flow(functions[function]), 0, CLOCKS[wrapper], benchmark.work_of(wrapper))
    return Examined(text, (*changes, *_not_recursive(functions.get(CHAIN_LINK))))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ProgramError(f"{path}: {error.strerror}") from None


def _machine(path: Path) -> str:
    """Return the machine of an object. Raises ProgramError if it is none, or of an unknown machine."""
    try:
        return machine_of(ELFFile(io.BytesIO(_content(path)))["e_machine"]).name
    except ELFError as error:
        raise ProgramError(f"{path}: it is not an object: {error}") from None


def _examine_bpf(benchmark: Benchmark, content: bytes) -> Examined:
    steps, functions, text = lines_of_bpf(content)
    tail_calls = {"bpf_tail_call": functions[CHAIN_LINK]} if CHAIN_LINK in functions else {}
    flow = Flow(steps, tail_calls)
    entry = entry_of(steps, functions["microbench"])
    return Examined(text, tuple(complaints(flow, entry, CLOCKS[BPF], benchmark.work_of(BPF))))


def _not_recursive(steps: Sequence[CodeLine] | None) -> tuple[str, ...]:
    """A compiler may make a loop, or a jump, of a recursion."""
    if steps is None or any(step.kind == "call" and step.callee == CHAIN_LINK for step in steps):
        return ()
    return (f"{CHAIN_LINK} does not call itself: it is no longer a recursion",)


def _objdump(tool: str, path: Path, symbol: str) -> str:
    command = [tool, "-dr", "--no-show-raw-insn", f"--disassemble={symbol}", path.name]
    return run_tool(command, path.parent)


def require_results(benchmark: Benchmark, calls: Sequence[TimedCall], expected: Sequence[int], cold: bool) -> None:
    """Raise ProgramError unless each call gave the reference's result; each cold call starts from the beginning.

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
