"""A tool that dies on its host while programs are prepared is started again; other failures are reported."""

import json
import re
import struct
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.doubles.calls import Calls, shown

from xdplab.errors import CutOffError, HostError, HostLostError, ProgramError, XdplabError
from xdplab.generators import Installed
from xdplab.labs.base import Cpus, GeneratorPlace
from xdplab.plan import load_plan, parse_plan, points_of
from xdplab.programs.build import BuiltProgram, build
from xdplab.programs.counting import AccessCounts
from xdplab.programs.spec import ProgramSpec
from xdplab.programs.work import AccessWork
from xdplab.run.rundir import RunDirectory
from xdplab.studies.traffic import prepare, runs
from xdplab.studies.traffic.dut import OnDut
from xdplab.studies.traffic.prepare import require_content, tried_again

KILLED = HostError("dut: xdpload ended without an answer: Killed")


class Dying:
    def __init__(self, *errors: XdplabError) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "prepared"


@pytest.mark.parametrize(
    ("errors", "retries", "calls", "shown"),
    [
        ([KILLED], 1, 2, None),
        ([KILLED] * 3, 1, 2, HostError),  # as often as the plan says and no more
        ([HostLostError("dut is gone")], 3, 1, HostLostError),
        ([ProgramError("too complex")], 3, 1, ProgramError),
    ],
)
def test_only_a_loader_that_is_killed_is_tried_again(
    errors: list[XdplabError], retries: int, calls: int, shown: type[XdplabError] | None
) -> None:
    work = Dying(*errors)
    with pytest.raises(shown) if shown else nullcontext():
        assert tried_again(retries, work) == "prepared"
    assert work.calls == calls


def test_a_connection_that_is_lost_after_the_last_trial_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose trials were all measured ended with an error, because its hosts' state was asked only once."""
    states, noted = Dying(CutOffError("dut: the connection is lost")), []
    monkeypatch.setattr(runs, "host_states", lambda *_: states())
    record = SimpleNamespace(note=lambda when, state: noted.append((when, state)), keep=lambda: None)
    runs._ask(record, "after", {"auto": SimpleNamespace(name="netns:auto")})
    assert noted == [("after", "prepared")]


def test_a_file_that_is_not_the_plans_is_not_measured(tmp_path: Path) -> None:
    """A worker on another machine reads its own file at the path that the run has its copy at."""
    file = tmp_path / "mine.bpf.c"
    file.write_text(f"{' ' * 9000}int x;")
    plan = {"name": "u", "blocks": [{"points": {"program": {"file": str(file)}}}]}
    (point,) = points_of(parse_plan(plan), "shared")
    require_content(point.program)
    file.write_text(f"{' ' * 9000}int y;")
    with pytest.raises(ProgramError, match="is not the file that this plan was made with"):
        require_content(point.program)


def test_labs_that_prepare_a_program_at_once_do_not_read_each_others_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs, or two labs of one, share the cache: the work of an access was read from the other kernel's image, and
    a kernel without a JIT had the machine code of another one in its run."""
    monkeypatch.setattr(prepare, "cache_directory", lambda: tmp_path / "cache")
    host = SimpleNamespace(run=lambda argv: SimpleNamespace(text="x86_64\n"), put=lambda *_: None)
    lab: Any = SimpleNamespace(dut=host, dut_interface="dut0", tg=host, work_dir=lambda _: "/w")
    cache = build(ProgramSpec(accesses=1), tmp_path / "cache").directory
    (cache / "jited.bin").write_bytes(b"of another kernel")

    def loaded(host: object, xdpload: str, built: BuiltProgram, folder: str, interface: str) -> SimpleNamespace:
        built.add("xlated.bin", b"mine")
        (cache / "xlated.bin").write_bytes(b"of another kernel")
        return SimpleNamespace(jit=True)

    def work(built: BuiltProgram, **_: object) -> AccessWork:
        return AccessWork(missing=(built.directory / "xlated.bin").read_text())

    monkeypatch.setattr(prepare, "load_report", loaded)
    monkeypatch.setattr(prepare, "prove", lambda *_, **__: None)
    monkeypatch.setattr(prepare, "kernel_work", work)
    run = RunDirectory.create(tmp_path, "t", run_id="ab12", plan_yaml="")
    point = next(p for p in points_of(parse_plan({"name": "t", "blocks": [{"points": {"accesses": 1}}]}), "shared")
                 if p.program.accesses)  # fmt: skip
    tools: Any = SimpleNamespace(xdpload="xdpload")
    (found,) = prepare.prepare_programs(lab, run, lambda: tools, [point]).values()
    assert found.work["kernel"].missing == "mine"
    kept = run.program_dir(found.built.hash)
    assert (kept / "xlated.bin").read_bytes() == b"mine"
    assert not (kept / "jited.bin").exists()
    assert (kept / "program.bpf.o").read_bytes() == (cache / "program.bpf.o").read_bytes()


class Place:
    """A lab of two hosts that write down which files they get and give."""

    dut_interface, tg_interface, name = "vd0", "vg0", "lab"

    def __init__(self, calls: Calls, native_dir: Path | None = None, kind: str = "xdpgen") -> None:
        self.native_dir, self.calls = native_dir, calls
        self.dut, self.tg = self.host("dut"), self.host("tg")
        self.generator = GeneratorPlace(kind, path=None if kind == "xdpgen" else "/opt/it")

    def host(self, name: str) -> Any:
        answers = {"gets": None, "gives": "library", "runs": SimpleNamespace(text=" aarch64 \n")}
        put, get, run = (self.calls.of(f"{name} {what}", answer) for what, answer in answers.items())
        return SimpleNamespace(name=name, put=put, get=get, run=run)

    def work_dir(self, host: Any) -> str:
        return "/work"

    def cpus(self) -> Cpus:
        return Cpus((0,), (1,))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls = Calls()

    def built(host: Any, names: list[str], folder: str) -> list[str]:
        return [f"{folder}/1a2b/{name}" for name in names]

    monkeypatch.setattr(prepare, "build_native", calls.of("build", built))
    monkeypatch.setattr(prepare, "LocalHost", lambda: SimpleNamespace(name="this machine"))
    monkeypatch.setattr(prepare, "of_each", lambda ends, ask: [ask(end) for end in ends])
    monkeypatch.setattr(prepare, "installed", calls.of("install", lambda kind, *_: Installed(kind, "/opt/it/bin", "0")))
    return calls


SOCKETS, KERNEL = SimpleNamespace(mode="af_xdp"), SimpleNamespace(mode="native")
TOOLS = {"xdpload": "xdpload", "cpuclock": "cpuclock", "sampler": "sampler", "reader": "reader"}


@pytest.mark.parametrize(
    ("kind", "points", "on_dut", "on_tg", "generator"),
    [
        ("xdpgen", [KERNEL], [*TOOLS], ["reader", "xdpgen"], "/work/native/1a2b/xdpgen vg0"),
        ("xdpgen", [KERNEL, SOCKETS], [*TOOLS, "afxdp_user"], ["reader", "xdpgen"], "/work/native/1a2b/xdpgen vg0"),
        ("moongen", [KERNEL], [*TOOLS], ["reader"], "/opt/it/bin 0"),
    ],
)
@pytest.mark.parametrize("cached", [False, True])
def test_each_tool_is_built_where_it_runs_or_once_here_and_put_there(
    cached: bool, kind: str, points: list[Any], on_dut: list[str], on_tg: list[str], generator: str, calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    place = Place(calls, native_dir=Path("/cache") if cached else None, kind=kind)

    def looks(host: Any, asked: list[list[str]]) -> list[Any]:
        calls.append(f"{host.name} has {shown([path.rpartition('/')[2] for *_, path in asked])}")
        return [SimpleNamespace(ok=path.endswith("/reader")) for _, _, path in asked]

    monkeypatch.setattr(prepare, "run_together", looks)
    tools = prepare.build_tools(place, points)  # type: ignore[arg-type]
    made = {name: f"/work/native/1a2b/{name}" for name in TOOLS}
    sockets = f"/work/native/1a2b/{on_dut[4]}" if on_dut[4:] else None
    assert f"{tools.generator} {tools.port}" == generator
    assert (made["xdpload"], made["cpuclock"], made["sampler"], made["reader"], made["reader"], sockets) == (
        tools.xdpload, tools.cpuclock, tools.sampler, tools.reader, tools.reader_on_tg, tools.afxdp_user,
    )  # fmt: skip
    expected = [f"build dut {shown(on_dut)} /work/native", f"build tg {shown(on_tg)} /work/native"]
    if cached:
        expected = [f"build this machine {shown(list(dict.fromkeys(on_dut + on_tg)))} /cache"]
        for host, names in (("dut", on_dut), ("tg", on_tg)):
            expected.append(f"{host} has {shown(names)}")
            for name in names:
                if name != "reader":
                    expected.append(f"{host} gets /cache/1a2b/{name} /work/native/1a2b/{name} mode=493")
    again = prepare.generator_of(place)  # type: ignore[arg-type]
    assert f"{again.program} {again.port}" == generator
    del calls[len(calls) - (1 if kind == "moongen" or not cached else 3) :]
    if kind == "moongen":
        expected.insert(0, f"install moongen tg /work/moongen {place.generator} [1]")
    assert calls == expected


def test_what_a_program_needs_is_proved_and_put_on_the_hosts(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A generated program and its twin in user space; a user's program with its entries, scripts and frames."""
    monkeypatch.setattr(prepare, "cache_directory", lambda: tmp_path / "cache")
    (tmp_path / "p.bpf.c").write_text(USERS)
    (tmp_path / "fill.sh").write_text("true")
    header, record = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1), struct.pack("<IIII", 0, 0, 60, 60)
    (tmp_path / "f.pcap").write_bytes(header + record + bytes(60))
    maps = {"seen": [{"key": 0, "value": 7}]}
    mine = {"file": "p.bpf.c", "setup": [["sh", "fill.sh"]], "frames": "f.pcap", "maps": maps}
    blocks = [{"points": {"accesses": 1, "mode": ["native", "af_xdp"]}}, {"points": {"program": mine}}]
    blocks[1]["traffic"] = {"timing": ["load", "recorded"], "engine": "afxdp", "stamp": "none"}
    (tmp_path / "plan.yaml").write_text(json.dumps({"name": "t", "blocks": blocks}))
    points = [p for p in points_of(load_plan(tmp_path / "plan.yaml"), "shared") if p.program.accesses != 0]
    monkeypatch.setattr(prepare, "load_report", calls.of("load", SimpleNamespace(jit="jit")))
    for name in ("prove", "prove_user"):
        monkeypatch.setattr(prepare, name, calls.of(name, (COUNTS,)))
    monkeypatch.setattr(prepare, "kernel_work", calls.of("work", AccessWork(missing="kernel")))
    monkeypatch.setattr(prepare, "userspace", SimpleNamespace(user_work=calls.of("user", AccessWork(missing="user"))))
    twins = calls.of("twin", "/w.so")
    monkeypatch.setattr(prepare, "build_workload", lambda host, _, *to, **flags: twins(host, *to, **flags))
    run = RunDirectory.create(tmp_path, "t", run_id="ab12", plan_yaml="")
    tools: Any = SimpleNamespace(xdpload="/xdpload")
    twin, users = prepare.prepare_programs(Place(calls), run, lambda: tools, points).values()  # type: ignore[arg-type]
    there, frames = (f"/work/programs/{one.built.hash}" for one in (twin, users)), users.frames_on_tg
    of_twin, of_users = there
    (entries,) = users.on_dut.entries.values()
    assert [re.sub(rf"{tmp_path}/|/\S+/xdplab-program-\w+/", "", line) for line in calls] == [
        f"load dut /xdpload array-read-1 {of_twin} vd0",
        f"prove array-read-1 dut xdpload=/xdpload folder={of_twin}",
        "dut runs [uname -m]",
        "work array-read-1 jit=jit machine=aarch64",
        "twin dut /work/native flags=[-O2 -fPIC -shared]",
        "dut gives /w.so",
        "prove_user library array-read-1",
        f"dut gets state.bin {of_twin}/state.bin",
        "user library array-read-1",
        f"load dut /xdpload p {of_users} vd0",
        f"dut gets fill.sh {of_users}/setup/fill.sh mode=493",
        f"dut gets {Path(entries).name} {entries}",
        f"tg gets f.pcap {frames}",
    ]
    kept = run.program_dir(twin.built.hash)
    work = {side: AccessWork(missing=side) for side in ("kernel", "user")}
    assert json.loads((kept / "work.json").read_text()) == {side: asdict(one) for side, one in work.items()}
    assert json.loads((kept / "proof_user.json").read_text()) == [asdict(COUNTS)]
    assert twin.work == work
    assert twin.on_dut == OnDut(
        object=f"{of_twin}/program.bpf.o",
        options=tuple(twin.built.load_options),
        init={"working_set": f"{of_twin}/init.bin"},
        max_entries=twin.built.max_entries,
        workload="/w.so",
        workload_init=f"{of_twin}/state.bin",
    )
    assert (users.on_dut.setup, users.on_dut.workload, dict(users.work)) == (f"{of_users}/setup", None, {})
    assert entries.startswith(f"{of_users}/entries-seen-")
    assert (twin.frames_on_tg, str(frames).endswith("-timed.pcap")) == (None, True)


COUNTS = AccessCounts(1, 2, 3)
USERS = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, __u64); }
    seen SEC(".maps");
SEC("xdp") int mine(struct xdp_md *ctx)
{
    __u32 key = 0;
    return bpf_map_lookup_elem(&seen, &key) ? XDP_DROP : XDP_PASS;
}
char LICENSE[] SEC("license") = "GPL";
"""
