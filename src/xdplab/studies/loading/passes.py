"""The passes over one program in one place, each in a separate process: untraced, with the verifier's log, traced.

Only the untraced pass gives the cost of the whole; the others cost time themselves, and give the parts.

What the study's tools print: loadbench's JSON lines, and the traces of the kernel's function_graph tracer.

loadbench gives sizes, every repetition, and a last line; without it the output was truncated. Of the tracer, tracefs'
``trace`` file is read (Documentation/trace/ftrace.rst, "function graph tracer"): columns are an absolute time (where it
is on), CPU, task (where it is on), duration, and calls nested as C blocks; what was written to ``trace_marker`` stands
between them as a comment.
"""

from __future__ import annotations

import re
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xdplab.errors import UnsupportedError
from xdplab.formats.reading import lines_of, message_of, object_of, refuse, text_field
from xdplab.labs.base import HOST
from xdplab.studies.loading.points import BPF, LoadingRequest
from xdplab.studies.places import DEADLINE_S, Place, PlaceFacts

TOOL = "loadbench"
SIZES, CYCLE, ERROR, END = ("program", "module"), ("cycle", "start"), "error", "end"

Counts = Mapping[str, int | None]


@dataclass(frozen=True)
class LoadError:
    """Why it ended early: the step, the message of the tool or the kernel, and the verifier's last lines if there are
    any.

    ``step`` is ``open``, ``load``, ``attach``, ``init_module``, ``trace`` and the like.
    """

    step: str
    message: str


@dataclass(frozen=True)
class LoadBench:
    """``cycles``: each repetition's nanoseconds of its place's clock by name, in order; null if not measured.

    ``sizes`` are bytes and instructions by name. ``error`` is None if it went to its end.
    """

    cycles: tuple[Counts, ...]
    sizes: Counts = field(default_factory=dict)
    error: LoadError | None = None


def parse_loadbench(data: bytes | str) -> LoadBench:
    """Return the output of one run of loadbench. Raises FormatError naming the line."""
    cycles: list[Counts] = []
    sizes: Counts = {}
    lines = lines_of(data, TOOL)
    for number, text in enumerate(lines, start=1):
        fields = object_of(text, TOOL, line=number)
        kind = text_field(fields, "type", TOOL, line=number)
        if kind == ERROR:
            return LoadBench(tuple(cycles), sizes, _error(fields, number))
        if kind in SIZES:
            sizes = _counts(fields, number)
        elif kind in CYCLE:
            cycles.append(_counts(fields, number))
        elif kind != END:
            refuse(TOOL, "an unknown type", line=number, text=kind)
    if kind != END:
        refuse(TOOL, "no last line (cut?)", line=len(lines))
    return LoadBench(tuple(cycles), sizes)


def _counts(fields: dict[str, object], line: int) -> Counts:
    counts: dict[str, int | None] = {}
    for key, value in fields.items():
        if key in ("type", "name"):
            continue
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            refuse(TOOL, f"no count in field `{key}`", line=line, text=repr(value))
        counts[key] = value
    return counts


def _error(fields: dict[str, object], line: int) -> LoadError:
    text_field(fields, "message", TOOL, line=line)
    return LoadError(text_field(fields, "step", TOOL, line=line), message_of(fields))


TRACER = "function_graph"

# Spaces are taken whole and never given back (`*+`): tried in every split, 4 kB of them took 43 s.
_LINE = re.compile(r"(?: *+\d+\.\d+ \| ++)? *+(?P<cpu>\d+)\) (?: *+(?P<task>\S.*?-\d+) *+\|)?(?P<rest>.*)")
_REST = re.compile(r" *+(?:[$@*#!+] )? *+(?:(?P<us>\d+)(?:\.(?P<part>\d{1,3}))? us)? *+\|(?P<body>.*)")
_CALL = re.compile(r"(?P<name>[\w.$]+)(?: \[\w+\])?\(.*\)(?P<ending>;| \{)(?: /\*.*\*/)?")
_END = re.compile(r"\}(?: /\*.*\*/)?")
_MARK = re.compile(r"/\* (?P<text>.*?) ?\*/")
_BESIDE = re.compile(r"#.*| *-{20,}| *\d+\) .* => .*| *\d+\) +(?:=+>|<=+) \|.*|")


@dataclass(frozen=True)
class TracedCall:
    """One call that ended: nanoseconds of the trace's clock with all it called (three digits of a µs, or seven in all).

    ``inside`` are the traced functions around it, the outermost first; ``mark`` what was last written to
    ``trace_marker`` before it ended, or ''.
    """

    function: str
    duration_ns: int
    inside: tuple[str, ...]
    mark: str


@dataclass(frozen=True)
class _Line:
    task: str
    duration_ns: int | None
    body: str


def parse_function_graph(data: bytes | str) -> tuple[TracedCall, ...]:
    """Return the calls of a trace in the order they ended; what it does not hold whole is left out.

    Raises FormatError if a line is no trace's, and where the kernel lost events: sums over such a trace are wrong.
    """
    stacks: dict[str, list[str]] = {}
    calls: list[TracedCall] = []
    mark = ""
    for line, number in _lines(data):
        body, stack = line.body, stacks.setdefault(line.task, [])
        if match := _MARK.fullmatch(body):
            mark = match["text"]
        elif _END.fullmatch(body):
            if stack and line.duration_ns is not None:  # else it began before the trace
                calls.append(TracedCall(stack.pop(), line.duration_ns, tuple(stack), mark))
        elif (call := _CALL.fullmatch(body)) is None:
            refuse(TRACER, "no call", line=number, text=body)
        elif call["ending"] == " {":
            stack.append(call["name"])
        elif line.duration_ns is not None:
            calls.append(TracedCall(call["name"], line.duration_ns, tuple(stack), mark))
    return tuple(calls)


def _lines(data: bytes | str) -> Iterator[tuple[_Line, int]]:
    for number, text in enumerate(lines_of(data, TRACER), start=1):
        if "[LOST " in text:
            refuse(TRACER, "the kernel lost events", line=number, text=text)
        if _BESIDE.fullmatch(text):
            continue
        line = _LINE.fullmatch(text)
        rest = _REST.fullmatch(line["rest"]) if line else None
        if line is None or rest is None:
            refuse(TRACER, "no line of a trace", line=number, text=text)
        if rest["body"].strip():
            yield _Line(line["task"] or line["cpu"], _duration(rest), rest["body"].strip()), number


def _duration(rest: re.Match[str]) -> int | None:
    if rest["us"] is None:
        return None
    return int(rest["us"][:15]) * 1000 + int((rest["part"] or "").ljust(3, "0"))


PLAIN, LOGGED, TRACED = "plain.jsonl", "logged.jsonl", "traced.jsonl"
TRACE, STACKS = "trace.txt", "stacks.txt"
COMPILED, SECTIONS = "compiled.json", "sections.json"
SAMPLES_HZ = 3999
SAMPLED_S = 0.5
"""How long a profiler looks: some two thousand samples, so a share of 5 % is known to 0.5 %."""

_INSTRUCTIONS_SHARE = 0.2
"""A counting guest executes about a fifth of 10⁹ instructions per second, and each is a nanosecond of its clock."""

PERF_SCRIPT = "perf script"
_FRAME = re.compile(r"\s+(?P<address>[0-9a-f]{1,16}) (?P<symbol>\S.*)")
_KERNEL = re.compile(r"ffff[0-9a-f]{12}")

Watch = Callable[["LoadRunner", Path], str | None]


@dataclass
class LoadingFacts(PlaceFacts):
    """A trial's facts: the source of a load's parts, or why there is none, and the compiler of a program."""

    split_by: str | None = None
    split_reason: str | None = None
    compiler: str | None = None


@dataclass(frozen=True)
class LoadRunner:
    """loadbench at a place, with one object. ``mode`` is ``bpf``, ``module``, ``start``, or ``process`` with the
    commands in ``words``."""

    place: Place
    driver: str
    mode: str
    object: str
    request: LoadingRequest
    words: tuple[str, ...] = ()

    def run(self, raw: Path, name: str, *options: str) -> LoadBench:
        """Run one pass; its lines go to the raw file ``name``. Raises UnsupportedError if the kernel refuses."""
        budget_ms = self.request.budget_s * 1000 * (_INSTRUCTIONS_SHARE if self.place.clock == "instructions" else 1)
        options_given = ["--repetitions", str(self.request.loads), "--budget-ms", str(int(budget_ms)), *options]
        argv = [self.driver, *options_given, self.mode, *([self.object] if self.object else []), *self.words]
        done = self.place.work(argv)
        if not done.stdout:
            done.require()
        (raw / name).write_bytes(done.stdout)
        result = parse_loadbench(done.stdout)
        if result.error and result.error.step != "trace":
            raise UnsupportedError(f"{self.place.label}: {result.error.step}: {result.error.message}")
        return result


def measure(bench: LoadRunner, raw: Path) -> tuple[str | None, str | None]:
    """Measure one program; return the source of its parts, or None with the reason."""
    bench.run(raw, PLAIN)
    if bench.mode == BPF:
        bench.run(raw, LOGGED, "--watch", "log")
    reasons = []
    for name in _ways(bench):
        reason = WAYS[name](bench, raw)
        if reason is None:
            return name, None
        reasons.append(f"{name}: {reason}")
    return None, "; ".join(reasons)


def _ways(bench: LoadRunner) -> Sequence[str]:
    if bench.mode != BPF:
        return ("function_graph",)
    return ("fentry", "perf samples") if bench.place.name == HOST else ("function_graph", "fentry")


def _by_graph(bench: LoadRunner, raw: Path) -> str | None:
    """Only in guests: the tracer is the whole kernel's, and another user may be tracing this machine's."""
    path = "/tmp/xdplab-loading.trace"
    result = bench.run(raw, TRACED, "--watch", "graph", "--trace", path)
    if result.error:
        return result.error.message
    trace = bench.place.host.get(path)
    (raw / TRACE).write_bytes(trace)
    return None if parse_function_graph(trace) else "it traced no call"


def _by_fentry(bench: LoadRunner, raw: Path) -> str | None:
    result = bench.run(raw, TRACED, "--watch", "fentry")
    return result.error.message if result.error else None


def _by_samples(bench: LoadRunner, raw: Path) -> str | None:
    """Many loads in a row under a profiler; a share of samples is a share of time."""
    loads = [cycle["load_ns"] for cycle in parse_loadbench((raw / PLAIN).read_bytes()).cycles]
    typical = statistics.median(ns for ns in loads if ns is not None)
    again = str(min(20_000, max(10, int(SAMPLED_S * 1e9 / typical))))
    host = bench.place.host
    with tempfile.TemporaryDirectory(prefix="xdplab-perf-") as folder:
        data = f"{folder}/perf.data"
        record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(SAMPLES_HZ), "-g", "-o", data, "--"]
        loader = [bench.driver, BPF, bench.object, "--repetitions", "1", "--again", again]
        done = host.run([*record, *loader], deadline_s=DEADLINE_S, check=False)
        if not done.ok:
            return done.error_text.splitlines()[-1] if done.error_text else "perf cannot be run"
        stacks = host.run(["perf", "script", "-i", data, "-F", "ip,sym"], deadline_s=DEADLINE_S).stdout
    (raw / STACKS).write_bytes(stacks)
    return None if shares(stacks) else "no sample shows bpf_prog_load(): the kernel hides its symbols, or inlined it"


def parse_kernel_stacks(data: bytes | str) -> tuple[tuple[str, ...], ...]:
    """Return the kernel's functions of each sample, the innermost first; samples of user space alone are left out.

    ``data`` is what ``perf script -F ip,sym`` prints: a frame a line, the innermost first. Addresses
    from 0xffff000000000000 on are the kernel's. Raises FormatError naming the line.
    """
    stacks: list[tuple[str, ...]] = []
    frames: list[str] = []
    for number, line in enumerate([*lines_of(data, PERF_SCRIPT), ""], start=1):
        match = _FRAME.fullmatch(line)
        if match and _KERNEL.fullmatch(match["address"]):
            frames.append(match["symbol"].split("+")[0])
        elif not match and line.strip():
            refuse(PERF_SCRIPT, "no frame of a stack", line=number, text=line)
        if not line.strip() and frames:
            stacks.append(tuple(frames))
            frames = []
    return tuple(stacks)


@dataclass(frozen=True)
class Share:
    """How many samples of a whole's show a part, and the share they are of, with its 95 % interval (Wilson's)."""

    samples: int
    of: int

    @property
    def value(self) -> float:
        return self.samples / self.of

    @property
    def interval(self) -> tuple[float, float]:
        from scipy.stats import binomtest  # only here: it takes a second to load

        ci = binomtest(self.samples, self.of).proportion_ci(method="wilson")
        return float(ci.low), float(ci.high)


def shares(stacks: bytes) -> dict[str, Share]:
    """Return the shares of BPF_PROG_LOAD that are ``verify`` (the JIT left out) and ``jit``; empty where unknown."""
    loads = [stack for stack in parse_kernel_stacks(stacks) if "bpf_prog_load" in stack] if stacks.strip() else []
    if not loads:
        return {}
    jit = sum("bpf_int_jit_compile" in stack for stack in loads)
    check = sum("bpf_check" in stack and "bpf_int_jit_compile" not in stack for stack in loads)
    return {"verify": Share(check, len(loads)), "jit": Share(jit, len(loads))}


WAYS: dict[str, Watch] = {"function_graph": _by_graph, "fentry": _by_fentry, "perf samples": _by_samples}
"""A source of the parts of a load; tried in the order of `_ways`."""
