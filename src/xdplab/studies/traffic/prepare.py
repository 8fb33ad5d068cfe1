"""Before the first trial: programs built, proved, loaded once and shipped; tools built on the hosts that run them.

What the trials of one session share: its lab, tools, programs, probes, and what was read of its machines.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from xdplab.counters.probe import CounterProbe
from xdplab.deploy.native import build_tools as build_native
from xdplab.deploy.native import build_workload
from xdplab.deploy.queues import of_each
from xdplab.errors import HostError, HostLostError, ProgramError, UnsupportedError
from xdplab.generators import XDPGEN, Adapter, Installed, Staying, installed
from xdplab.hosts import Host, run_together
from xdplab.hosts.local import LocalHost
from xdplab.labs import Lab
from xdplab.lazy import lazy
from xdplab.plan import Plan, Point, ProgramFactors
from xdplab.plan.points import content_sha256, file_sha256
from xdplab.programs.build import BuiltProgram, build
from xdplab.programs.onhost import COUNTING, LoadReport, load_report, verified_to_count
from xdplab.programs.program import cache_directory
from xdplab.programs.proof import prove, prove_user
from xdplab.programs.source import USER_FLAGS
from xdplab.programs.spec import ProgramSpec, UserProgram, program_of
from xdplab.programs.work import AccessWork, kernel_work
from xdplab.run.disk import disk_errors
from xdplab.run.rundir import RunDirectory
from xdplab.studies.traffic.dut import OnDut
from xdplab.studies.traffic.limits import FrameKey
from xdplab.studies.traffic.two_ports import SecondPort
from xdplab.studies.trial_facts import Limit, MachineFacts

pcap = lazy("xdplab.formats.pcap")  # few plans have one
userspace = lazy("xdplab.programs.userspace")  # an emulator, for af_xdp alone

T = TypeVar("T")


@dataclass(frozen=True)
class Tools:
    """Paths of the C tools, each on its host; ``afxdp_user`` only if a point needs it.

    ``generator`` is the program that the ``adapter`` starts, ``port`` its name of the TG's end of the link.
    """

    xdpload: str
    cpuclock: str
    sampler: str
    reader: str
    reader_on_tg: str
    generator: str
    afxdp_user: str | None
    adapter: Adapter
    port: str


@dataclass(frozen=True)
class Prepared:
    """One program, proved, loaded once, and stored on the DUT; ``work``: the machine's work per access, by side.

    It is not loaded if the DUT's driver takes no program for its device alone.
    """

    built: BuiltProgram
    load: LoadReport | None
    on_dut: OnDut
    work: Mapping[str, AccessWork]
    frames_on_tg: str | None = None


def build_tools(lab: Lab, points: Iterable[Point]) -> Tools:
    """Ship the C tools and build them where they run. Raises HostError naming a missing compiler or header."""
    with_sockets = any(point.mode == "af_xdp" for point in points)
    on_dut = ["xdpload", "cpuclock", "sampler", "reader", *["afxdp_user"] * with_sockets]
    generator = generator_of(lab) if lab.generator.path else None
    on_tg = ["reader", *["xdpgen"] * (generator is None)]
    dut, tg = _built_on(lab, (lab.dut, on_dut), (lab.tg, on_tg))
    if generator is None:
        generator = Installed(XDPGEN, tg["xdpgen"], lab.tg_interface)
    return Tools(
        xdpload=dut["xdpload"],
        cpuclock=dut["cpuclock"],
        sampler=dut["sampler"],
        reader=dut["reader"],
        reader_on_tg=tg["reader"],
        generator=generator.program,
        afxdp_user=dut.get("afxdp_user"),
        adapter=generator.adapter,
        port=generator.port,
    )


def generator_of(lab: Lab) -> Installed:
    """Put the lab's generator on the TG, ready to start."""
    place = lab.generator
    if place.path is None:
        (tg,) = _built_on(lab, (lab.tg, ["xdpgen"]))
        return Installed(XDPGEN, tg["xdpgen"], lab.tg_interface)
    return installed(place.kind, lab.tg, f"{lab.work_dir(lab.tg)}/{place.kind}", place, lab.cpus().tg)


def _built_on(lab: Lab, *wanted: tuple[Host, Sequence[str]]) -> list[dict[str, str]]:
    """Build tools for each host, and return their paths there by name."""
    cache = lab.native_dir
    if cache is None:
        paths = of_each(wanted, lambda row: build_native(row[0], row[1], native_dir(lab)))
    else:
        # Compiled once here and copied there: a new lab would take 6 s to compile its tools, a guest minutes.
        names = list(dict.fromkeys(name for _, of_host in wanted for name in of_host))
        here = dict(zip(names, build_native(LocalHost(), names, str(cache)), strict=True))
        paths = of_each(wanted, lambda row: _put_there(lab, row[0], cache, [here[name] for name in row[1]]))
    return [dict(zip(names, of_host, strict=True)) for (_, names), of_host in zip(wanted, paths, strict=True)]


def _put_there(lab: Lab, host: Host, cache: Path, products: Sequence[str]) -> list[str]:
    """Copy what was compiled in this machine's ``cache`` to the host, unless it is already there; return the paths."""
    paths = [f"{native_dir(lab)}/{Path(product).relative_to(cache)}" for product in products]
    looks = run_together(host, [["test", "-f", path] for path in paths])
    for product, path, present in zip(products, paths, looks, strict=True):
        if not present.ok:
            host.put(Path(product), path, mode=0o755)
    return paths


def native_dir(lab: Lab) -> str:
    """The DUT's folder of compiled programs."""
    return f"{lab.work_dir(lab.dut)}/native"


def prepare_programs(
    lab: Lab, run: RunDirectory, tools: Callable[[], Tools], points: Iterable[Point], *, retries: int = 0
) -> dict[ProgramFactors, Prepared]:
    """Build, prove and load every program of ``points`` before any is measured. Only what is built needs ``tools``.

    A tool that dies on its host is started again, up to ``retries`` times per program. Raises ProgramError with
    the compiler's or the verifier's message, or because a proof found another N.
    """
    users: dict[ProgramFactors, list[Point]] = {}
    for point in points:
        users.setdefault(point.program, []).append(point)
    return {
        factors: tried_again(retries, partial(_prepare, lab, run, tools, factors, used))
        for factors, used in users.items()
    }


def tried_again(retries: int, work: Callable[[], T]) -> T:
    """Return what ``work`` returns; a host's failure, unless the host is gone, costs one of ``retries``."""
    for _ in range(retries):
        try:
            return work()
        except HostLostError:
            raise
        except HostError:
            continue
    return work()


VERIFIED_AT_MOST = 1_000_000
"""Instructions that the kernel's verifier processes of one program (BPF_COMPLEXITY_LIMIT_INSNS in linux/bpf.h)."""
PROBES = (1024, 2048)


def _load_and_prove(lab: Lab, tools: Tools, built: BuiltProgram, folder: str) -> LoadReport:
    """Load on the DUT and prove N there. If the verifier does not finish with a program, name the largest possible
    N."""
    try:
        load = load_report(lab.dut, tools.xdpload, built, folder, lab.dut_interface)
        if isinstance(built.program, ProgramSpec):
            prove(built, lab.dut, xdpload=tools.xdpload, folder=folder)
        return load
    except ProgramError as error:
        spec = built.program
        if not isinstance(spec, ProgramSpec) or spec.accesses <= max(PROBES) or "too large" not in error.message:
            raise
        smaller = [build(replace(spec, accesses=n), cache_directory()) for n in PROBES]
        on = f"{folder}-probe", lab.dut_interface
        first, second = (verified_to_count(lab.dut, tools.xdpload, one, *on) for one in smaller)
        if first is None or second is None:
            raise
        an_access = (second - first) / (PROBES[1] - PROBES[0])
        most = PROBES[0] + (VERIFIED_AT_MOST - first) / an_access
        raise ProgramError(
            f"accesses: {spec.accesses} of {spec.name} are too many: {error.message}",
            remedy=f"the proof of an access takes this verifier {an_access:.3g} of {VERIFIED_AT_MOST:,} instructions: "
            f"N up to about {int(most) // 1000 * 1000:,} in this form",
        ) from None


def _prepare(
    lab: Lab, run: RunDirectory, tools: Callable[[], Tools], factors: ProgramFactors, points: Sequence[Point]
) -> Prepared:
    require_content(factors)
    try:
        built = build(program_of(factors), cache_directory())
        with tempfile.TemporaryDirectory(prefix="xdplab-program-") as scratch:
            alone = built.alone(Path(scratch))
            load, on_dut, work = _prepare_alone(lab, run, tools(), alone, points)
            if (counting := alone.directory / COUNTING).is_file():
                built.add(COUNTING, counting.read_bytes())
    except ProgramError as error:
        if factors.file is None:
            raise
        raise ProgramError(f"{factors.name}: {error.message}", remedy=error.remedy) from None
    return Prepared(
        built, load, on_dut, work, _ship_frames(lab, factors, any(point.timing != "load" for point in points))
    )


def _prepare_alone(
    lab: Lab, run: RunDirectory, tools: Tools, built: BuiltProgram, points: Sequence[Point]
) -> tuple[LoadReport | None, OnDut, Mapping[str, AccessWork]]:
    folder = f"{lab.work_dir(lab.dut)}/programs/{built.hash}"
    load, work = None, {}
    with suppress(UnsupportedError):  # its trials say so
        load = _load_and_prove(lab, tools, built, folder)
    if load and isinstance(built.program, ProgramSpec):
        work["kernel"] = kernel_work(built, jit=load.jit, machine=lab.dut.run(["uname", "-m"]).text.strip())
    on_dut = _ship(lab, built, folder)
    if isinstance(built.program, ProgramSpec) and any(point.mode == "af_xdp" for point in points):
        on_dut, work["user"] = _ship_twin(lab, built, built.program, folder, on_dut)
    built.add("work.json", json.dumps({side: asdict(one) for side, one in work.items()}, indent=1) + "\n")
    with disk_errors(run.program_dir(built.hash)):
        built.copy_to(run.program_dir(built.hash))
    return load, on_dut, work


def require_content(factors: ProgramFactors) -> None:
    """Raise ProgramError if a user's files are not those of the plan: a worker elsewhere may have others there."""
    if factors.file is None:
        return
    frames = file_sha256(factors.frames, "program.frames") if factors.frames else None
    for path, wanted, content in (
        (factors.file, factors.file_sha256, content_sha256(factors)),
        (factors.frames, factors.frames_sha256, frames),
    ):
        if content != wanted:
            raise ProgramError(
                f"{path} is not the file that this plan was made with",
                remedy="each machine that measures needs the run's own copy at this path",
            )


def _ship(lab: Lab, built: BuiltProgram, folder: str) -> OnDut:
    """Put what loading has not put there already beside the object and its tables."""
    init = {name: f"{folder}/{path.name}" for name, path in built.init_files.items()}
    setup = None
    if isinstance(built.program, UserProgram) and built.program.setup_files:
        setup = f"{folder}/setup"
        for name, script in built.program.setup_files.items():
            lab.dut.put(Path(script), f"{setup}/{name}", mode=0o755)
    entries = {name: _ship_entries(lab, built, folder, name, content) for name, content in built.filling.data.items()}
    return OnDut(f"{folder}/{built.object.name}", tuple(built.load_options), init, built.max_entries, entries, setup)


def _ship_entries(lab: Lab, built: BuiltProgram, folder: str, name: str, content: bytes) -> str:
    """Equal objects of a plan may be filled with other entries: the file's name has their hash."""
    path = built.add(f"entries-{name}-{hashlib.sha256(content).hexdigest()[:12]}.bin", content)
    lab.dut.put(path, f"{folder}/{path.name}")
    return f"{folder}/{path.name}"


def _ship_frames(lab: Lab, factors: ProgramFactors, timed: bool) -> str | None:
    if factors.frames is None:
        return None
    path = f"{lab.work_dir(lab.tg)}/frames/{factors.frames_sha256}{'-timed' * timed}.pcap"
    if pcap.is_plain(Path(factors.frames)):
        lab.tg.put(Path(factors.frames), path)
        return path
    with tempfile.TemporaryDirectory() as folder:
        pcap.write_plain(factors.frames, plain := Path(folder) / "frames.pcap", timed=timed)
        lab.tg.put(plain, path)
    return path


def _ship_twin(
    lab: Lab, built: BuiltProgram, spec: ProgramSpec, folder: str, on_dut: OnDut
) -> tuple[OnDut, AccessWork]:
    """Compile the same workload for the DUT's user space, and prove its machine code."""
    source = built.user_source.read_text()
    if lab.native_dir is None:
        workload = build_workload(lab.dut, source, native_dir(lab), flags=USER_FLAGS)
    else:
        twin = build_workload(LocalHost(), source, str(lab.native_dir), flags=USER_FLAGS)
        (workload,) = _put_there(lab, lab.dut, lab.native_dir, [twin])
    library = lab.dut.get(workload)
    counts = prove_user(library, spec)
    built.add("proof_user.json", json.dumps([asdict(count) for count in counts], indent=1) + "\n")
    state = None
    if built.user_state is not None:
        state = f"{folder}/{built.user_state.name}"
        lab.dut.put(built.user_state, state)
    return replace(on_dut, workload=workload, workload_init=state), userspace.user_work(library, spec)


@dataclass
class TrialContext:
    """What the trials of one session share."""

    lab: Lab
    plan: Plan
    tools: Tools
    programs: Mapping[ProgramFactors, Prepared]
    dut_probe: CounterProbe
    tg_probe: CounterProbe
    run_id: str
    machine: MachineFacts
    link: Limit
    pdr: Mapping[str, float] = field(default_factory=dict)
    rivals: Mapping[str, Point] = field(default_factory=dict)
    alone: dict[FrameKey, Limit] = field(default_factory=dict)
    staying: Staying = field(default_factory=Staying)
    second: SecondPort | None = None

    def close_probes(self) -> None:
        """End what reads the counters; the next reading starts it again."""
        self.dut_probe.close()
        self.tg_probe.close()
