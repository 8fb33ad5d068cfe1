"""How a request becomes points: programs compiled, frames made, and both kept in the run."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import lcm
from pathlib import Path
from typing import Any

from xdplab.compiler import compiler_version, find_clang, flags_of, place_of
from xdplab.errors import PlanError
from xdplab.plan import Point
from xdplab.plan.copies import copied_into
from xdplab.plan.model import Plan, is_plan_file, load_plan, parse_plan, relative_to
from xdplab.plan.points import ETHERNET_MTU, L2_BYTES, block_points
from xdplab.programs.build import BuiltProgram, build
from xdplab.programs.program import cache_directory
from xdplab.programs.spec import WORKLOADS, ProgramSpec, UserProgram, program_of
from xdplab.studies.cost.points import (
    AF_XDP,
    LIVE,
    LOADER,
    MODES,
    PACKETS,
    TEST_RUN,
    TWIN,
    TWIN_STATE,
    CostPoint,
    CostRequest,
)
from xdplab.studies.cost.rows import TIMES, times_file
from xdplab.studies.guests import DUT_MAC, TG_MAC, built_workload, counting_kernel, kernel_release
from xdplab.studies.places import is_foreign
from xdplab.studies.points import Gathered
from xdplab.studies.test_frames import frame_maker
from xdplab.text import many

LIVE_SINCE = (5, 18)
MOST_FRAMES = {LIVE: 512, PACKETS: 256, TEST_RUN: 512}
"""Most frames of the smaller window: the guest's clock ticks every four million instructions."""
BATCHES = (256, 128, 64, 16)
"""The kernel works in batches of 16, 64 and 256: a window of a multiple costs the same each time."""


def gather(request: CostRequest) -> Gathered[CostPoint]:
    """Compile the programs, and make their frames. Raises PlanError, ProgramError, LabError."""
    if not request.programs:
        raise PlanError("cost: no program is named", remedy="`xdplab cost mine.bpf.c`")
    names = [counting_kernel(kernel, to_be_had=not request.any_kernel) for kernel in request.kernels]
    kernels = {kernel: kernel_release(kernel) for kernel in names}
    runs = [Path(word) for word in request.programs if Path(word).is_dir()]
    if len(runs) > 1:
        raise PlanError("cost: the times of one run can stand beside counts, not those of several")
    plans = [(word, _plan_of(request, word)) for word in request.programs]
    again, files = _kept(request, plans)
    files |= {TIMES: times_file(runs[0])} if runs else {}
    points: dict[CostPoint, None] = {}
    planned, notes = countable(point for word, plan in plans for point in _points_of(plan, _accesses(word)))
    for point in planned:
        if point.program.setup:
            raise PlanError(
                f"{point.program.name}: setup is not run in a counted guest", remedy="fill its maps by maps"
            )
        built = build(program_of(point.program), cache_directory())
        if built.image.reads_metadata and TEST_RUN in _modes(request, point):
            raise PlanError(
                f"{point.program.name}: mode {TEST_RUN} has no frames of a driver, whose kfuncs it calls",
                remedy="take native",
            )
        folder, content = _stored(built, in_user_space=AF_XDP in _modes(request, point))
        is_compiled = not (isinstance(built.program, UserProgram) and built.program.is_object)
        compiler = compiler_version(find_clang()) if is_compiled else None
        files |= content
        text, different = _frames(point)
        frames = f"frames/{hashlib.sha256(text).hexdigest()[:16]}.txt"
        files[frames] = text
        for mode, kernel in ((mode, kernel) for mode in _modes(request, point) for kernel in kernels):
            if mode == AF_XDP and is_foreign(kernel):
                raise PlanError(
                    f"mode {AF_XDP} is not counted in a guest of another architecture: {kernel}",
                    remedy="leave it out there; native, generic and test_run are counted",
                )
            way = way_of(mode, kernels[kernel])
            window = window_of(way, different)
            size, flows = point.frame_bytes, point.flows
            counted = CostPoint(_name_of(point), folder, kernel, mode, way, frames, window, size, flows, compiler)
            points[counted] = None
    return Gathered(tuple(points), files, notes, again)


def settings_at(given: str, top: Path, then: Path) -> str:
    """Return a request's settings of a user's program for the files that a repository's ``top`` has at a commit, which
    lie in ``then``. Raises PlanError."""
    settings = json.loads(given)
    if "cflags" in settings:
        settings["cflags"] = _flags_at(settings["cflags"], top, then)
    return json.dumps(settings)


def _flags_at(given: str, top: Path, then: Path) -> list[str]:
    """Return flags that look for headers in the commit first: today's are for what it lacks, as made and fetched ones.

    Raises PlanError.
    """
    try:
        flags = flags_of(given)
    except ValueError as error:
        raise PlanError(f"--cflags: {error}") from None
    placed: list[str] = []
    for flag in flags:
        option, path = place_of(flag) or ("", "")
        here = Path(path).resolve()
        at = then / here.relative_to(top) if path and here.is_relative_to(top) else None
        if at and at.exists():
            placed.append(f"{option}{at}")
        if not (at and at.is_file()):
            placed.append(flag)
    return placed


def countable(points: Iterable[Point]) -> tuple[list[Point], list[str]]:
    """Return the points that a guest can count, and in words which it cannot."""
    reasons = [(point, _why_not(point)) for point in points]
    left_out = Counter(why for _, why in reasons if why is not None)
    notes = [f"not counted: {many(count, 'point')} with {why}" for why, count in left_out.items()]
    return [point for point, why in reasons if why is None], notes


def _why_not(point: Point) -> str | None:
    if point.mode not in MODES:
        return f"mode {point.mode}"
    if point.queues != 1:
        return f"{point.queues} queues"
    if point.mtu > ETHERNET_MTU and point.program.frames is None:
        return f"frames above {ETHERNET_MTU + L2_BYTES} B: a guest's link has Ethernet's MTU"
    if point.mode == AF_XDP and (point.xsk_attach, point.xsk_bind) != ("native", "copy"):
        return f"AF_XDP attached {point.xsk_attach} and bound {point.xsk_bind}: a guest's is native, with copies"
    return None


def way_of(mode: str, kernel: str) -> str:
    """Return how frames reach a program: kernels before 5.18 have no live frames."""
    if mode == TEST_RUN:
        return TEST_RUN
    version = re.match(r"(\d+)\.(\d+)", kernel)
    return PACKETS if version and tuple(map(int, version.groups())) < LIVE_SINCE else LIVE


def window_of(way: str, frames: int) -> int:
    """Return the frames of the smaller window: each of the different ``frames`` is sent equally often.

    Raises PlanError if there is none.
    """
    fitting = (lcm(frames, batch) for batch in BATCHES if batch <= MOST_FRAMES[way] // 2)
    window = next((window for window in fitting if window <= MOST_FRAMES[way]), None)
    if window is None:
        raise PlanError(
            f"{frames} different frames: they cannot be sent equally often in {MOST_FRAMES[way]}",
            remedy="16, 32, … or up to 32 others can",
        )
    return window


def _name_of(point: Point) -> str:
    program = point.program
    if program.accesses is None:
        return str(program.name)
    words = [f"{program.workload}:{program.accesses}"]
    if program.workload == "lookup":
        words += [program.map_type] * (program.map_type != "percpu_array")
        words += [f"{program.entries} entries"] * bool(program.entries) + [f"{program.hit} % hits"] * (
            program.hit != 100
        )
    return ", ".join(words)


def _modes(request: CostRequest, point: Point) -> tuple[str, ...]:
    """A plan has its own modes; a test run is none of them."""
    return request.modes if point.mode == "native" else (point.mode,)


def _kept(request: CostRequest, plans: Iterable[tuple[str, Plan]]) -> tuple[CostRequest, dict[str, bytes]]:
    """Return the request that counts the same from the run's folder alone, and the files that it names."""
    words: list[str] = []
    with tempfile.TemporaryDirectory(prefix="xdplab-cost-") as name:
        folder = Path(name)
        for number, (word, plan) in enumerate(plans, 1):
            if _accesses(word) is None:
                kept = copied_into(folder, plan).to_yaml()
                word = f"plan-{number}-{Path(word).resolve().stem}.yaml"
                (folder / word).write_text(kept)
            words.append(word)
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return replace(request, programs=tuple(words), settings=CostRequest.settings), files


def _points_of(plan: Plan, accesses: int | None) -> Iterator[Point]:
    """Yield the points of a plan; of a workload only those with so many accesses."""
    for block in plan.blocks:
        yield from (point for point in block_points(block, "shared") if accesses in (None, point.program.accesses))


def _plan_of(request: CostRequest, word: str) -> Plan:
    if Path(word).is_dir():
        return load_plan(Path(word) / "plan.yaml", to_measure=False)
    if is_plan_file(word):
        return load_plan(Path(word))
    points = {"mode": ["native"], **_program(request, word)}
    if not points.get("program", {}).get("frames"):
        points["frame_bytes"] = list(request.frame_bytes)
    block = {"points": points, "traffic": {"flows": request.flows}}
    return relative_to(parse_plan({"name": "cost", "blocks": [block]}), Path())


def _accesses(word: str) -> int | None:
    return int(word.partition(":")[2] or 0) if word.partition(":")[0] in WORKLOADS else None


def _program(request: CostRequest, word: str) -> dict[str, Any]:
    workload, _, accesses = word.partition(":")
    if workload in WORKLOADS:
        if accesses and not accesses.isdigit():
            raise PlanError(f"{word}: {accesses} is no number of accesses", remedy=f"write {workload}:100")
        return {"workload": [workload], "accesses": [int(accesses or 0)]}
    if not Path(word).is_file():
        names = ", ".join(f"{name}:100" for name in WORKLOADS)
        raise PlanError(f"{word} is neither a file nor a workload", remedy=f"workloads with N accesses are {names}")
    return {"program": {"file": str(Path(word).resolve()), **json.loads(request.settings)}}


def _stored(built: BuiltProgram, *, in_user_space: bool) -> tuple[str, Mapping[str, bytes]]:
    """Return a program's folder in the run, and its files there: what xdpload needs, and the source.

    Equal objects may be filled with other entries: the folder's name has their hash.
    """
    entries = {f"entries-{number}.bin": content for number, content in enumerate(built.filling.data.values())}
    loader = {
        "options": built.load_options,
        "init": {name: path.name for name, path in built.init_files.items()},
        "max_entries": built.max_entries,
        "entries": dict(zip(built.filling.data, entries, strict=True)),
        "fills": bool(entries or built.filling.named),
    }
    content = {LOADER: json.dumps(loader, indent=1).encode(), built.object.name: built.object.read_bytes()} | entries
    content |= {path.name: path.read_bytes() for path in built.init_files.values()}
    if (source := built.directory / "program.c").is_file():
        content[source.name] = source.read_bytes()
    if in_user_space:
        content |= _twin(built)
    digest = hashlib.sha256("".join(f"{name} {content[name]!r}" for name in sorted(content)).encode()).hexdigest()
    folder = f"programs/{built.hash}-{digest[:8]}"
    return folder, {f"{folder}/{name}": data for name, data in content.items()}


def _twin(built: BuiltProgram) -> dict[str, bytes]:
    """Return the workload as the AF_XDP application runs it. Raises PlanError for a user's own program."""
    if not isinstance(built.program, ProgramSpec):
        raise PlanError(
            f"{built.program.name}: mode {AF_XDP} runs a generated workload in user space, no program of yours",
            remedy="such as array:100",
        )
    twin = built_workload(built.user_source.read_text())
    return {TWIN: twin.read_bytes()} | ({TWIN_STATE: built.user_state.read_bytes()} if built.user_state else {})


def _frames(point: Point) -> tuple[bytes, int]:
    """Return a line for each different frame, in hexadecimal."""
    frame, different = frame_maker(point, src_mac=TG_MAC, dst_mac=DUT_MAC)
    return b"".join(f"{frame(number).hex()}\n".encode() for number in range(different)), different
