"""A program loaded into a host's kernel but not attached: the kernel's image of it, counts, and its cost.

xdpload does it; this module puts the files there, asks, and gives the answers types.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from xdplab.compiler import find_clang, run_tool
from xdplab.errors import ProgramError
from xdplab.hosts import Host
from xdplab.hosts.tool import PROGRAM_REFUSALS, Message, ToolSession
from xdplab.plan.offered import FCS_BYTES
from xdplab.programs.build import BuiltProgram, compile_command
from xdplab.programs.counting import SEVERAL_BUFFERS, VERDICTS
from xdplab.programs.image import KFUNC_CALL, Insn, decode
from xdplab.programs.spec import ProgramSpec, UserProgram
from xdplab.programs.steps import disassemble_xlated

COUNTING = "counting.bpf.o"
"""A program's counting build, beside its object."""
_HELPER_CALL = 0x85
TESTRUN_S = 0.02
TESTRUN_RUNS = 5
_PROBE_REPEAT = 2000
_LEAST_NS = 20.0  # no packet takes less; keeps a disturbed probe from asking for too much


@dataclass(frozen=True)
class LoadReport:
    """The kernel's image of a program; ``load_ms`` is BPF_PROG_LOAD alone.

    ``lookup_inlined``: whether no call for a map lookup is left in the kernel's image; null for other workloads, and
    where the kernel does not show what its calls are. ``calls`` are the kernel functions that the image calls.
    """

    load_ms: float
    open_ms: float
    xlated_insns: int
    xlated_bytes: int
    jited_bytes: int
    verified_insns: int | None
    tag: str
    jit: bool
    lookup_inlined: bool | None
    calls: tuple[str, ...] | None


@dataclass(frozen=True)
class TestRun:
    """BPF_PROG_TEST_RUN of a program: ns per run in each of several runs of ``repeat`` packets."""

    frame_bytes: int
    repeat: int
    runs_ns: tuple[float, ...]

    __test__ = False  # not a test class, in spite of its name

    @property
    def testrun_ns(self) -> float:
        """The least disturbed run."""
        return min(self.runs_ns)


def load_report(host: Host, xdpload: str, built: BuiltProgram, folder: str, interface: str | None = None) -> LoadReport:
    """Load on ``host`` (files go to ``folder`` there), read the kernel's image back, and keep both beside the object.

    A program with a driver's kfuncs is loaded for ``interface``.

    Raises ProgramError with the verifier's own message.
    """
    with loaded(host, xdpload, built, folder, interface=interface) as (report, session):
        images = {}
        for image in ("xlated", "jited"):
            path = f"{folder}/{image}.bin"
            if image == "jited" and not report["jit"]:
                continue
            session.ask(f"dump {image} {path}", "dump")
            images[image] = host.get(path)
    insns = decode(images["xlated"])
    names = _kernel_functions(host, insns)
    result = _report(built, report, insns, names)
    for image, content in images.items():
        built.add(f"{image}.bin", content)
    built.add("xlated.txt", disassemble_xlated(insns, names or {}))
    built.add("load.json", json.dumps(asdict(result), indent=1) + "\n")
    return result


def testrun(host: Host, xdpload: str, built: BuiltProgram, folder: str, frame_bytes: int) -> TestRun:
    """Measure a program by BPF_PROG_TEST_RUN: 5 runs of at most 20 ms of CPU time each. Raises ProgramError."""
    with loaded(host, xdpload, built, folder) as (_, session):

        def run(*numbers: int) -> list[float]:
            answer = session.ask(f"testrun {' '.join(map(str, numbers))}", "testrun")
            spec = built.program
            if isinstance(spec, ProgramSpec):
                promised, code = VERDICTS[spec.hook, spec.action]
                if answer["retval"] != code:
                    raise ProgramError(f"{host.name}: {spec.name} returns {answer['retval']} instead of {promised}")
            return list(answer["ns"])

        return calibrated_testrun(run, frame_bytes)


Frame = TypeVar("Frame", bound=int | bytes)


def calibrated_testrun(
    run: Callable[[Frame, int, int], Sequence[float]],
    frame: Frame,
    *,
    runs: int = TESTRUN_RUNS,
    seconds: float = TESTRUN_S,
) -> TestRun:
    """Measure ``runs`` times with ``run(frame, repeat, runs)``, which returns ns per packet.

    ``frame`` is a size with FCS, or the bytes of a frame without it. The number of packets is chosen so that each of
    the runs takes ``seconds`` of CPU time.
    """
    probe = min(run(frame, _PROBE_REPEAT, 1))
    repeat = max(1, int(seconds * 1e9 / max(probe, _LEAST_NS)))
    size = len(frame) + FCS_BYTES if isinstance(frame, bytes) else frame
    return TestRun(size, repeat, tuple(run(frame, repeat, runs)))


def count_in_kernel(host: Host, xdpload: str, built: BuiltProgram, folder: str) -> list[int]:
    """Return the accesses that a program's counting build makes in the kernel, for one packet per size counted."""
    _add_counting_build(built)
    counts = []
    with loaded(host, xdpload, built, folder, name=COUNTING) as (_, session):
        for size in _counted_bytes(built.program):
            session.ask("reset", "reset")
            session.ask(f"testrun {size} 1 1", "testrun")
            counts.append(int(session.ask("count", "count")["values"][0]))
    return counts


def _counted_bytes(program: ProgramSpec | UserProgram) -> tuple[int, ...]:
    several = isinstance(program, ProgramSpec) and program.frags
    return (64, 64, 1518, SEVERAL_BUFFERS + FCS_BYTES) if several else (64, 64, 1518)


def verified_to_count(host: Host, xdpload: str, built: BuiltProgram, folder: str, interface: str) -> int | None:
    """Return how many instructions the verifier processes of the counting build, the largest of a program's builds."""
    _add_counting_build(built)
    with loaded(host, xdpload, built, folder, name=COUNTING, interface=interface) as (report, _):
        verified: int | None = report["verified_insns"]
        return verified


def _add_counting_build(built: BuiltProgram) -> None:
    """Compile elsewhere, because a compiler makes temporary files beside its output, and other runs read this
    directory."""
    if (built.directory / COUNTING).is_file():  # of the same source and compiler, by the directory's name
        return
    command = compile_command(find_clang(), built.program, "-DXDPLAB_COUNT")
    with tempfile.TemporaryDirectory(prefix="xdplab-counting-") as name:
        compiled = Path(name) / COUNTING
        run_tool([*command[:-1], str(compiled)], built.directory)
        built.add(COUNTING, compiled.read_bytes())


@contextmanager
def loaded(
    host: Host,
    xdpload: str,
    built: BuiltProgram,
    folder: str,
    *,
    name: str = "program.bpf.o",
    interface: str | None = None,
) -> Iterator[tuple[Message, ToolSession]]:
    """Hold the program in the host's kernel; yields xdpload's report and its session.

    Raises ProgramError if the program is refused, UnsupportedError if a device's driver takes none for itself.
    """
    argv = [*_arguments(host, xdpload, built, folder, name), *(["--interface", interface] if interface else [])]
    with ToolSession(host, argv, deadline_s=600.0, refusals=PROGRAM_REFUSALS) as session:
        session.open()
        yield session.read("loaded"), session
        session.finish(["detached"])


def _arguments(host: Host, xdpload: str, built: BuiltProgram, folder: str, name: str) -> list[str]:
    host.put(built.directory / name, f"{folder}/{name}")
    argv = [xdpload, "--object", f"{folder}/{name}", "--mode", "none", *built.load_options]
    for table, path in built.init_files.items():
        host.put(path, f"{folder}/{path.name}")
        argv += ["--init", f"{table}={folder}/{path.name}"]
    for table, entries in built.max_entries.items():
        argv += ["--max-entries", f"{table}={entries}"]
    return argv


def _report(
    built: BuiltProgram, message: Message, insns: Sequence[Insn], names: Mapping[int, str] | None
) -> LoadReport:
    calls = (
        None if names is None else tuple(sorted({names[i.imm] for i in insns if _is_helper_call(i) and i.imm in names}))
    )
    is_lookup = isinstance(built.program, ProgramSpec) and built.program.kernel == "lookup"
    inlined = not any("lookup_elem" in name for name in calls) if is_lookup and calls is not None else None
    return LoadReport(
        load_ms=message["load_ns"] / 1e6,
        open_ms=message["open_ns"] / 1e6,
        xlated_insns=message["xlated_insns"],
        xlated_bytes=message["xlated_bytes"],
        jited_bytes=message["jited_bytes"],
        verified_insns=message["verified_insns"],
        tag=message["tag"],
        jit=message["jit"],
        lookup_inlined=inlined,
        calls=calls,
    )


def _is_helper_call(insn: Insn) -> bool:
    return insn.code == _HELPER_CALL and insn.src in (0, KFUNC_CALL)


def _kernel_functions(host: Host, insns: Sequence[Insn]) -> dict[int, str] | None:
    """Name the image's calls: an immediate is a function's distance from __bpf_call_base.

    None if the kernel hides its addresses.
    """
    wanted = {insn.imm for insn in insns if _is_helper_call(insn)}
    if not wanted:
        return {}
    pattern = " (__bpf_call_base|bpf_[a-z0-9_]+|[a-z0-9_]*lookup_elem|[a-z0-9_]*_xdp_rx_[a-z_]+)$"
    lines = host.run(["grep", "-E", pattern, "/proc/kallsyms"], check=False).text.splitlines()
    addresses = {name: int(address, 16) for address, _, name in (line.split()[:3] for line in lines)}
    base = addresses.get("__bpf_call_base", 0)
    if not base:
        return None
    by_offset = {address - base: name for name, address in addresses.items()}
    return {imm: by_offset.get(imm, f"unknown function at __bpf_call_base{imm:+d}") for imm in wanted}
