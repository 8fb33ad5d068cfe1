"""The benchmarks, each a C kernel of `microbench`: what it does, what that comes to when it is executed, and the JSON
lines that `microbench` prints (what was loaded, every call, and a last line; without it the output was truncated).

From the benchmarks' C to loadable objects: BPF objects, user-space functions, and the module of all benchmarks.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from math import isqrt
from pathlib import Path
from typing import Literal

from xdplab.compiler import find_clang
from xdplab.errors import ProgramError
from xdplab.formats.reading import count_field, objects_of, refuse, text_field
from xdplab.labs.guests import modules
from xdplab.labs.guests.modules import BuildTree
from xdplab.programs.source import kernel_source, user_state
from xdplab.programs.spec import ProgramSpec
from xdplab.resources import shipped

NATIVE = "microbench"
BPF, MODULE, USER = "bpf", "module", "user"
WRAPPERS = (BPF, MODULE, USER)
CHAIN_LINK = "chain_link"
TESTBED = ("array", "packet", "chase", "lookup")
CHAINS = (1, 2, 4, 8, 16, 32, 33)
"""33 is the kernel's limit."""
MATRIX_SEED = 20_210_518


@dataclass(frozen=True)
class Task:
    """What one call must do according to the algorithm: an exact number of steps of one kind, for every compiler.

    ``per_step``: instructions that one step comes to, in the middle of what gcc and clang make for x86-64 and the JIT
    of BPF; ``jited``: those of the JIT, where it makes many more. ``around``: those of its blocks and of where a walk
    goes on, at the most; ``called``: those of what a step calls, at the most.
    """

    kind: Literal["divisions", "loads", "stores", "clocks", "links", "instructions"]
    count: int
    per_step: float = 0
    around: int = 0
    jited: float = 0
    called: int = 0

    def __str__(self) -> str:
        kind = self.kind if self.count > 1 else self.kind.removesuffix("s")
        return f"{self.count:,} {kind}" if self.count else "nothing"


@dataclass(frozen=True)
class Benchmark:
    """``kernel`` names its C text, ``input`` is handed to each call.

    ``task`` is what a call must do. A ``trap`` says why a benchmark compares with nothing; ``wrappers`` are those that
    it exists in. ``executions``: how often the kernel is executed between the clocks. ``source``: the kernel whose
    text it has, if that is another one's, after the lines ``prelude``.
    """

    name: str
    title: str
    kernel: str
    task: Task
    input: int = 1
    spec: ProgramSpec | None = None
    trap: str | None = None
    wrappers: tuple[str, ...] = WRAPPERS
    clock_result: bool = False
    executions: int = 1
    prelude: str = ""
    source: str = ""

    @property
    def header(self) -> bytes:
        """The text of the kernel."""
        return self.prelude.encode() + self._text

    @property
    def _text(self) -> bytes:
        if self.spec is not None:
            return kernel_source(self.spec).encode()
        return (shipped(NATIVE) / "kernels" / f"{self.source or self.kernel}.h").read_bytes()

    @property
    def state(self) -> bytes:
        """The first contents of the working set; empty if it begins with zeros."""
        return user_state(self.spec) if self.spec else b""


PRIMES_UP_TO, MATRIX_STEPS, CLOCK_READS = 100, 1000, 100
"""HIGHEST of primes.h, STEPS of matrix.h, READS of clock_sum.h."""


def trial_divisions(highest: int) -> int:
    """Return how often the prime counter divides: each number by 2, 3, … up to its root, or its first divisor."""
    return sum(_divisions_of(number) for number in range(2, highest + 1))


def _divisions_of(number: int) -> int:
    tried = range(2, isqrt(number) + 1)
    return next((at for at, divisor in enumerate(tried, 1) if number % divisor == 0), len(tried))


_CELLS, _TRAP_CELLS = (Task("stores", MATRIX_STEPS, each) for each in (23, 16))
_TRAPS = (
    Benchmark(
        "matrix, kernel's random", "1000 random cells of a 64×64 matrix", "matrix_random", _TRAP_CELLS, MATRIX_SEED,
        trap="bpf_get_prandom_u32() is a shift register, get_random_u32() a cipher: not the same work",
        wrappers=(BPF, MODULE),
    ),
    Benchmark(
        "matrix, get_random_bytes", "1000 random cells of a 64×64 matrix", "matrix_random_bytes",
        _TRAP_CELLS, MATRIX_SEED,
        trap="get_random_bytes() runs the cipher anew for each number: BPF has nothing of the kind",
        wrappers=(MODULE,),
    ),
)  # fmt: skip

_WALKS = {
    "array": (2.6, 20),
    "packet": (2.65, 20),
    "chase": (4.6, 20),
    "lookup": (23, 20),
}
"""Instructions of an access, and around the accesses."""


def chain(links: int) -> Benchmark:
    """Return the chain of so many links, 1 to 33: tail calls in BPF, recursion elsewhere."""
    return Benchmark(
        f"chain {links}",
        f"chain of {links} links",
        "chain",
        Task("links", links, 18, around=10, jited=31),
        links,
    )


def accesses(workload: str, count: int) -> Benchmark:
    """Return the testbed's own workload with ``count`` accesses per call. Raises PlanError if it is unknown."""
    looks_up = workload == "lookup"
    # Blocks of lookups are subprograms that take a pointer, which kernels before 5.13 refuse.
    spec = ProgramSpec(workload=workload, accesses=count, form="loop" if looks_up else "bounded")
    return Benchmark(
        f"{workload} {count}",
        f"{workload}: {count} accesses",
        f"{workload}_{count}",
        Task("loads", count, *_WALKS[workload], called=10 * looks_up),
        spec=spec,
    )


_DIVISIONS = Task("divisions", trial_divisions(PRIMES_UP_TO), 14, jited=27)
_ANY_WORK = Task("instructions", 0, around=100_000)
_NARROW = "#define NUMBER __u32\n"
_AS_PUBLISHED = "#define FIRST_DIVISOR(divisor)\n"
_FREE = "compilers make 139 or 236 divisions of it: not the same work"
_BY_CLANG = "clang"
_WIDTH_TEST = 2.5
"""clang tests whether both numbers of a 64-bit division have 32 bits, and then makes a 32-bit one: 5 instructions more;
of the narrow form it makes 1.6 more than gcc."""


def _primes(name: str, end: str, task: Task, prelude: str, trap: str | None = None) -> list[Benchmark]:
    """Return a form of the prime counter, and its user-space function made by clang, as the published one was."""
    title = f"primes up to 100, {name}" if name else "primes up to 100"
    called = f"primes, {name}" if name else "primes"
    all_worlds = Benchmark(called, title, f"primes{end}", task, prelude=prelude, source="primes", trap=trap)
    by_clang = replace(
        all_worlds,
        name=f"{called}, {_BY_CLANG}",
        title=f"{title}, by clang",
        kernel=f"primes{end}_{_BY_CLANG}",
        wrappers=(USER,),
        task=replace(task, per_step=task.per_step + _WIDTH_TEST),
    )
    return [all_worlds, by_clang]


def repeated(benchmark: Benchmark, executions: int) -> Benchmark:
    """Return the benchmark with so many executions of its kernel between two looks at the clock."""
    task = benchmark.task
    return replace(
        benchmark,
        name=f"{benchmark.name} x{executions}",
        title=f"{benchmark.title}, {executions} times",
        kernel=f"{benchmark.kernel}_x{executions}",
        source=benchmark.source or benchmark.kernel,
        prelude=f"#define EXECUTIONS {executions}\n{benchmark.prelude}",
        executions=executions,
        task=replace(task, count=task.count * executions, around=(task.around + 10) * executions),
    )


def can_repeat(benchmark: Benchmark) -> bool:
    """Tell whether a benchmark can be executed several times between two clocks: a chain of BPF does not return."""
    return benchmark.trap is None and benchmark.kernel != "chain" and BPF in benchmark.wrappers


@cache
def all_benchmarks(
    counts: tuple[int, ...] = (100,), chains: tuple[int, ...] = CHAINS, executions: tuple[int, ...] = (1,)
) -> dict[str, Benchmark]:
    """Return every benchmark by name, the testbed's workloads with each of ``counts`` accesses.

    ``executions``: how often each is executed between two looks at the clock.
    """
    benchmarks = [
        Benchmark("empty", "nothing: the clock", "empty", Task("instructions", 0)),
        Benchmark(
            "clock sum", "sum of 100 clock reads", "clock_sum", Task("clocks", CLOCK_READS, 5), clock_result=True,
        ),
        Benchmark("matrix", "1000 random cells of a 64×64 matrix", "matrix", _CELLS, MATRIX_SEED),
        *_primes("", "", _DIVISIONS, ""),
        *_primes("32 bits", "_narrow", _DIVISIONS, _NARROW),
        *_primes("as published", "_published", _ANY_WORK, _AS_PUBLISHED, _FREE),
        *(chain(links) for links in chains),
        *(accesses(workload, count) for workload in TESTBED for count in counts),
        *_TRAPS,
    ]  # fmt: skip
    more = [repeated(one, n) for n in executions if n > 1 for one in benchmarks if can_repeat(one)]
    kept = benchmarks if 1 in executions else [one for one in benchmarks if not can_repeat(one)]
    return {benchmark.name: benchmark for benchmark in (*kept, *more)}


TOOL = "microbench"


@dataclass(frozen=True)
class TimedCall:
    """One call: nanoseconds of its place's clock. Of a user's own program only ``elapsed_ns`` is known."""

    index: int
    elapsed_ns: int
    begin_ns: int = 0
    end_ns: int = 0
    result: int = 0


@dataclass(frozen=True)
class Microbench:
    """``jited_bytes`` is 0 for interpreted programs; both sizes are null without BPF."""

    backend: str
    jited_bytes: int | None
    xlated_bytes: int | None
    calls: tuple[TimedCall, ...]


def parse_microbench(data: bytes | str) -> Microbench:
    """Return the output of one run of microbench. Raises FormatError naming the line."""
    lines = objects_of(data, TOOL)
    kinds = [text_field(fields, "type", TOOL, line=n) for n, fields in enumerate(lines, 1)]
    if kinds[0] != "loaded" or kinds[-1] != "end" or set(kinds[1:-1]) - {"call"}:
        refuse(TOOL, "not one `loaded`, calls, and one `end`", line=len(lines))
    calls = tuple(_call(fields, n) for n, fields in enumerate(lines[1:-1], 2))
    if len(calls) != count_field(lines[-1], "calls", TOOL, line=len(lines)):
        refuse(TOOL, f"{len(calls)} calls, and its end tells of others", line=len(lines))
    loaded = lines[0]
    jited, xlated = (_size(loaded, key) for key in ("jited_bytes", "xlated_bytes"))
    return Microbench(text_field(loaded, "backend", TOOL, line=1), jited, xlated, calls)


def _size(loaded: dict[str, object], key: str) -> int | None:
    return None if loaded.get(key, 0) is None else count_field(loaded, key, TOOL, line=1)


def _call(fields: dict[str, object], line: int) -> TimedCall:
    index = count_field(fields, "index", TOOL, line=line)
    if "elapsed_ns" in fields:
        return TimedCall(index, count_field(fields, "elapsed_ns", TOOL, line=line))
    begin, end, result = (count_field(fields, key, TOOL, line=line) for key in ("begin_ns", "end_ns", "result"))
    if end < begin:
        refuse(TOOL, "a call that ends before it begins", line=line)
    return TimedCall(index, end - begin, begin, end, result)


MODULE_NAME = "xdplab_microbench"
MAKE_S = 300.0
_KBUILD_FLAGS = "-std=gnu11 -Wno-declaration-after-statement $(call cc-option,-fno-fuse-ops-with-volatile-access)"
"""Kernels before 5.18 are built as C89; the benchmarks have the same text for all. The last one: see the Makefile."""


def object_name(benchmark: Benchmark, wrapper: str) -> str:
    """Return the file that a wrapper loads."""
    return {BPF: f"{benchmark.kernel}.bpf.o", USER: f"{benchmark.kernel}.so", MODULE: f"{MODULE_NAME}.ko"}[wrapper]


def build(benchmarks: Iterable[Benchmark]) -> dict[str, bytes]:
    """Compile the BPF objects and user-space functions; return them, with the kernels' texts and states, by name.

    Raises ProgramError with the compiler's first error.
    """
    chosen = list(benchmarks)
    files = _compiled(chosen, sorted({object_name(b, w) for b in chosen for w in b.wrappers if w != MODULE}))
    files |= {f"{b.kernel}.h": b.header for b in chosen}
    return files | {f"{b.kernel}.state": b.state for b in chosen if b.state}


def _compiled(chosen: Iterable[Benchmark], wanted: Iterable[str], *variables: str) -> dict[str, bytes]:
    """Return the products by name; ``variables`` are make's."""
    with tempfile.TemporaryDirectory(prefix="xdplab-microbench-") as name:
        folder = Path(name)
        for relative, content in (_sources(chosen) | _common()).items():
            (folder / relative).parent.mkdir(parents=True, exist_ok=True)
            (folder / relative).write_bytes(content)
        _make(folder, [*variables, *wanted])
        return {file: (folder / file).read_bytes() for file in wanted}


def build_for(compiler: str, benchmarks: Iterable[Benchmark]) -> dict[str, bytes]:
    """Compile the user-space functions by the compiler of another architecture; return them by name.

    Raises ProgramError with the compiler's first error.
    """
    chosen = list(benchmarks)
    return _compiled(chosen, sorted({object_name(b, USER) for b in chosen if USER in b.wrappers}), f"CC={compiler}")


def build_module(tree: BuildTree, benchmarks: Iterable[Benchmark]) -> Path:
    """Build the module of all benchmarks against a kernel's tree. Raises ProgramError, LabError."""
    kernels = sorted({b.kernel for b in benchmarks if MODULE in b.wrappers})
    chosen = {b.kernel: b for b in benchmarks}
    sources = {path: text for path, text in _sources(chosen.values()).items() if path.endswith(".h")}
    sources["module/main.c"] = (shipped(NATIVE) / "module/main.c").read_bytes()
    sources["module/list.h"] = "".join(f"BENCHMARK({kernel})\n" for kernel in kernels).encode()
    for kernel in kernels:
        source = f'#define NAME {kernel}\n#define KERNEL "../kernels/{kernel}.h"\n#include "module/bench.h"\n'
        sources[f"bench_{kernel}.c"] = source.encode()
    parts = " ".join(f"bench_{kernel}.o" for kernel in kernels)
    kbuild = f"ccflags-y := {_KBUILD_FLAGS}\nobj-m := {MODULE_NAME}.o\n{MODULE_NAME}-y := module/main.o {parts}\n"
    return modules.build(tree, MODULE_NAME, sources | {"Kbuild": kbuild.encode()})


def _sources(benchmarks: Iterable[Benchmark]) -> dict[str, bytes]:
    """Return the C of the benchmarks by relative path, generated kernels included."""
    folder = shipped(NATIVE)
    parts = ("kernels/*.h", "bpf/*", "user/*.c", "module/*.h", "record.h", "Makefile")
    files = {p.relative_to(folder).as_posix(): p.read_bytes() for part in parts for p in sorted(folder.glob(part))}
    return files | {f"kernels/{b.kernel}.h": b.header for b in benchmarks}


def _common() -> dict[str, bytes]:
    """Return what a build uses of `native/common`, by relative path."""
    return {f"common/{name}": (shipped("common") / name).read_bytes() for name in ("rules.mk", "clock.h")}


def _make(folder: Path, wanted: Iterable[str]) -> None:
    """Run make; ``wanted`` are what to make, and variables."""
    try:
        done = subprocess.run(
            ["make", "-s", f"CLANG={find_clang()}", *wanted],
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=MAKE_S,
        )
    except FileNotFoundError:
        raise ProgramError("there is no make on this machine", remedy="apt install make") from None
    except subprocess.TimeoutExpired:
        raise ProgramError(f"the benchmarks have not been compiled in {MAKE_S:.0f} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()[-1:]
        raise ProgramError(f"a benchmark does not compile: {lines[0] if lines else 'make said nothing'}")
