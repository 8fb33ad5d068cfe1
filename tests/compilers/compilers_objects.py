"""Compiles every BPF object of the project with the current clang (`find_clang`)."""

import io
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from elftools.elf.elffile import ELFFile

from xdplab.compiler import find_clang, run_tool
from xdplab.programs.build import BuiltProgram, build, compile_command
from xdplab.programs.spec import ACCESSING, FORMS, MAP_TYPES, OPS, ProgramSpec, UserProgram
from xdplab.resources import shipped
from xdplab.studies.execution import benchmarks as microbench
from xdplab.studies.execution.benchmarks import all_benchmarks
from xdplab.studies.offload.bench import PROBE
from xdplab.studies.verifier.generated import Member, compile_object, compiler_of, source

ROOT = Path(__file__).parents[2]
NOT_OURS = {".venv", "results", ".git"}
BY_THEIR_STUDY = ("microbench", "offload")
"""Folders from whose definitions a study makes objects: `benchmarks` and `probes`."""

KINDS = tuple((work, kind) for work in ACCESSING for kind in (MAP_TYPES if work == "lookup" else (None,)))
SAMPLE = (33,)
EVERY_N = (1, 31, 32, 33, 100, 400, 1600)

# A loader writes these into .rodata before loading, and the verifier follows only the code that they enable.
PLAIN, TAGGED, SIX = (0xFFFF, 4, 14, 34, 0, 6), (5, 4, 18, 38, 0, 7), (0xFFFF, 6, 14, 54, 60, 9)  # `frame_layout`
TAGGED_SIX = (5, 6, 18, 58, 64, 9)


def sizes(*cycle: int) -> tuple[int, ...]:
    """Return struct frame_sizes: how many frames a cycle has, the largest, and 64 halves of the sizes without FCS."""
    return len(cycle), max(cycle), *struct.unpack("<32I", struct.pack("<64H", *cycle, *[0] * (64 - len(cycle))))


ONE, MIX, MOST = sizes(60), sizes(60, 590, 60, 1514), sizes(*[60, 1514] * 32)


def flows(streams: int, count: int, drawn: int, churn: int) -> tuple[int, ...]:
    """Return struct flows, and zeros before it to where 8 bytes may begin; ``churn``: 2^-20 ns."""
    return 0, count, streams, count % streams, drawn, 1, drawn or churn > 0 or count > 1 << 15, churn, 0


def sending(paced: int, stamped: int, looked: int, streams: int, count: int, *shape: tuple[int, ...],
            alone: int = 0, burst: int = 1, drawn: int = 0, churn: int = 0) -> tuple[int, ...]:  # fmt: skip
    """Return struct send_settings; ``shape``: layout and sizes."""
    layout, cycle = shape
    steps = (0x0A000001, 0x0A010001, 1024, 1, 0, 1, count)
    return (paced, stamped, looked, burst, alone, *flows(streams, count, drawn, churn), *steps, *layout, *cycle,
            0, *[0] * 18)  # fmt: skip


def receiving(streams: int, count: int, *shape: tuple[int, ...],
              burst: int = 1, drawn: int = 0, churn: int = 0) -> tuple[int, ...]:  # fmt: skip
    """Return struct receive_settings."""
    layout, cycle = shape
    return 0x58445000, burst, 9, 0, 0, *flows(streams, count, drawn, churn), *layout, *cycle


SETTINGS = {
    "send.bpf.o": {
        "max": sending(0, 0, 0, 1, 1, PLAIN, ONE),
        "stamped": sending(0, 1, 16, 4, 64, PLAIN, ONE),
        "paced": sending(1, 7, 16, 4, 64, PLAIN, ONE),
        "in bursts": sending(1, 7, 16, 4, 64, PLAIN, ONE, burst=32),
        "drawn": sending(0, 1, 16, 4, 1_000_000, PLAIN, ONE, drawn=1),
        "replaced": sending(1, 1, 16, 4, 64, PLAIN, ONE, churn=1 << 30),
        "sender alone": sending(0, 0, 0, 1, 1, PLAIN, ONE, alone=1),
        "receiver alone": sending(0, 1, 16, 4, 64, PLAIN, ONE, alone=2),
        "tagged": sending(0, 1, 16, 4, 64, TAGGED, sizes(64)),
        "IPv6": sending(1, 7, 16, 4, 64, SIX, sizes(84)),
        "tagged IPv6": sending(0, 0, 0, 4, 64, TAGGED_SIX, sizes(88)),
        "IMIX": sending(0, 1, 16, 4, 64, PLAIN, MIX),
        "IMIX of 64": sending(1, 7, 16, 4, 64, PLAIN, MOST),
    },
    "receive.bpf.o": {
        "one stream": receiving(1, 64, PLAIN, ONE),
        "streams": receiving(4, 64, PLAIN, sizes(1514)),
        "many flows": receiving(4, 100_000, PLAIN, ONE),
        "in bursts": receiving(4, 64, PLAIN, ONE, burst=32),
        "drawn": receiving(4, 1_000_000, PLAIN, ONE, drawn=1),
        "replaced": receiving(4, 64, PLAIN, ONE, churn=1 << 30),
        "tagged": receiving(4, 64, TAGGED, sizes(68)),
        "IPv6": receiving(1, 64, SIX, sizes(1513)),
        "tagged IPv6": receiving(4, 64, TAGGED_SIX, sizes(84)),
        "IMIX": receiving(4, 64, PLAIN, MIX),
        "IMIX of 64": receiving(1, 64, PLAIN, MOST),
    },
    "receive_device.bpf.o": {},  # compiled only: the kernel takes it bound to a device, as xdpgen's own tests load it
}
PROBES = (
    {},
    {"CONSTANT": 1},
    {"VARIABLE": 1},
    {"INSTRUCTIONS": 1000},
    {"FILTER": 1},
    *(
        {"MAP_TYPE": f"BPF_MAP_TYPE_{kind}", "MAP_ENTRIES": 1, "MAP_FLAGS": 0, "KEY_BYTES": 4, "VALUE_BYTES": 8}
        | {"LOOKUP": 1, "SECOND": 1}
        for kind in ("ARRAY", "HASH")
    ),
)
MEMBERS = (
    Member("double_strcmp", 20),
    Member("double_strcmp", 20, (("form", "unrolled"),)),
    Member("double_strcmp", 20, (("exit", "!="),)),
    Member("double_strcmp", 20, (("maps", "legacy"),)),
    Member("branches", 16),
    Member("pruning", 16),
)


def specs(accesses: tuple[int, ...] = SAMPLE) -> list[ProgramSpec]:
    """Return every workload, op and form with these numbers of accesses, and the baseline."""
    found = [
        ProgramSpec(work, n, op, form, map_type=kind)
        for work, kind in KINDS
        for op in OPS
        for form in FORMS
        for n in accesses
        if not (work == "lookup" and form == "unrolled" and n > 100)  # clang takes a minute for all
    ]
    return [ProgramSpec(), *found]


def every(folder: Path, accesses: tuple[int, ...] = SAMPLE) -> list[Path]:
    """Compile every object into ``folder``. Raises ProgramError or CalledProcessError with the compiler's message."""
    parts = (tools, benchmarks, probes, members)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [path for part in pool.map(lambda part: list(part(folder)), parts) for path in part]
    return found + [built.object for built in generated(folder, accesses)]


def generated(folder: Path, accesses: tuple[int, ...] = SAMPLE) -> list[BuiltProgram]:
    """Compile the generated programs, one per CPU at a time."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda spec: build(spec, folder / "programs"), specs(accesses)))


def tools(folder: Path) -> Iterator[Path]:
    """Compile each ``*.bpf.c`` of the checkout, with the Makefile beside it if there is one."""
    for file in sorted(ROOT.rglob("*.bpf.c")):
        inside = file.relative_to(ROOT).parts
        if NOT_OURS.isdisjoint(inside) and not any(study in inside for study in BY_THEIR_STUDY):
            compile_ = _by_make if (file.parent / "Makefile").exists() else _alone
            yield from _with_settings(compile_(file, folder))


def _by_make(file: Path, folder: Path) -> Path:
    work = folder / f"make-{file.parent.name}"
    if not work.exists():
        shutil.copytree(file.parent, work, ignore=shutil.ignore_patterns("*.o"))
        shutil.copytree(shipped("common"), work / "common")
    name = file.name.replace(".c", ".o")
    subprocess.run(["make", "-s", "STRICT=1", "-C", work, f"CLANG={find_clang()}", name], check=True, timeout=120)
    return shutil.move(work / name, folder / name)


def _alone(file: Path, folder: Path) -> Path:
    command = compile_command(find_clang(), UserProgram(str(file)))
    target = folder / file.name.replace(".c", ".o")
    run_tool([*command[: command.index("-c")], "-c", str(file), "-o", str(target)], folder)
    return target


def _with_settings(file: Path) -> Iterator[Path]:
    """Yield an object as it is, or with each setting that its loader may write."""
    for name, values in SETTINGS.get(file.name, {}).items():
        content = bytearray(file.read_bytes())
        section = ELFFile(io.BytesIO(content)).get_section_by_name(".rodata")
        settings = struct.pack(f"<{len(values)}I", *values)
        assert section["sh_size"] == len(settings), f"{file.name}: other settings than this test knows"
        content[section["sh_offset"] : section["sh_offset"] + len(settings)] = settings
        written = file.with_name(f"{file.name.removesuffix('.bpf.o')}, {name}.bpf.o")
        written.write_bytes(content)
        yield written
    if file.name not in SETTINGS:
        yield file


def benchmarks(folder: Path) -> Iterator[Path]:
    """Compile the execution study's objects, with its functions for user space beside them."""
    work = folder / "microbench"
    work.mkdir()
    for name, content in microbench.build(all_benchmarks().values()).items():
        (work / name).write_bytes(content)
    yield from sorted(work.glob("*.bpf.o"))


def probes(folder: Path) -> Iterator[Path]:
    """Compile the offload study's probes."""
    for rank, defines in enumerate(PROBES):
        file = folder / f"probe-{rank}.bpf.c"
        file.write_text("".join(f"#define {name} {value}\n" for name, value in defines.items()) + PROBE.read_text())
        yield _alone(file, folder)


def members(folder: Path) -> Iterator[Path]:
    """Compile the verifier study's families for the instruction sets that every tested kernel supports."""
    compiler = compiler_of([find_clang()])
    assert compiler is not None
    for member in MEMBERS:
        for mcpu in ("v2", "v3"):
            name = f"{member.label} {mcpu}".replace(" ", "-").replace("<", "lt").replace("!=", "ne")
            target = folder / f"{name}.bpf.o"
            shutil.copy(compile_object(source(member), compiler, mcpu, folder / "families"), target)
            yield target
