"""A trial whose program, generator and probes write down what is asked of them: its phases, files and facts whole."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.doubles.calls import AtOnce, Calls, shown

from xdplab.deploy.device import Applied
from xdplab.deploy.xdp import Decided, RecordCounts, RunStats
from xdplab.errors import HostError, ProgramError, UnsupportedError
from xdplab.formats.generator import GeneratorReady
from xdplab.generators import Capabilities, GeneratorSettings, xdpgen_argv
from xdplab.hosts import Result
from xdplab.labs.base import Cpus, GeneratorPlace, LinkEnds
from xdplab.plan import Point, Trial, parse_plan, points_of
from xdplab.plan.points import SLICES
from xdplab.studies.traffic import passes, sending
from xdplab.studies.traffic import trial as module
from xdplab.studies.traffic.dut import KernelSide, OnDut
from xdplab.studies.traffic.limits import frame_key
from xdplab.studies.traffic.prepare import TrialContext
from xdplab.studies.traffic.sending import NOBODY, generator_alone, pieces_alone, send, sender
from xdplab.studies.traffic.two_ports import SecondPort, second_port
from xdplab.studies.trial_facts import (
    HarnessPieces,
    HintCounts,
    Limit,
    MachineFacts,
    Missing,
    TestRuns,
    TimingLimits,
    TrialFacts,
    WarmedUp,
)  # fmt: skip

WHOLE, SENT = (Path(__file__).with_name(name) for name in ("trial.txt", "sending.txt"))
SECOND = SecondPort(LinkEnds("vd1", "vg1", "02:00:00:00:00:03", "02:00:00:00:00:04"), (10, 20))
MINE = "/dut/mine"


class Side(KernelSide):
    """A program on the DUT, which writes down what is asked of it."""

    calls = Calls()
    answers: Mapping[str, Any] = {}

    def __init__(self, host: Any, reader: Any, binary: str, request: Any, *, queues: int) -> None:
        self.calls.of("attach")(host, reader, binary, request, queues=queues)
        self.deployment: Any = f"of {queues} queues"
        numbers = iter(range(1, 99))

        def decided(binary: str, request: Any, sends: Any) -> tuple[Decided, bytes]:
            sends()
            return Decided({"drop": next(numbers)}, None, "none"), b"counted"

        answers = {
            "counts": lambda: f"counts {next(numbers)}",
            "records": lambda: RecordCounts(next(numbers), 0, 0, 0, False, 5, (0,)),
            "runstats": lambda: RunStats(next(numbers), next(numbers)), "stats_cost": 4.5, "bpf_stats": None,
            "testrun": lambda frames: TestRuns((8.0,), len(frames.frames), seed=frames.seed), "require": None,
            "slices": lambda binary, rival, sends, seed: sends(), "decided": decided, "hints": HintCounts(7, 6, 5, 9),
            "raw_files": {"xdpload.jsonl": b"loaded"}, "stop": None, "close": None, "fill": None,
        } | self.answers  # fmt: skip
        for name, answer in answers.items():
            setattr(self, name, self.calls.of(f"program {name}", answer))


class Recording(SimpleNamespace):
    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, *error: object) -> None: ...


@dataclass(frozen=True)
class Probe:
    """What reads a port's counters: a reading's file is named after its host, port and time."""

    calls: Calls
    host: str
    device: str

    @property
    def reader(self) -> str:
        return f"{self.host} reader"

    def snapshot(self, when: str, metrics: Any = (), *, clock: Any = ()) -> dict[str, bytes]:
        self.calls.append(
            f"counters {self.host}.{self.device} {when} {shown([m.name for m in metrics])} {shown(clock)}"
        )
        return {f"{self.host}.{self.device}.{when}": b""}

    def make_ready(self, names: Any, *, deadline_s: float, events: Any = ()) -> Any:
        what = f"recorder of {'+'.join(names)}"
        self.calls.append(f"{what} begins {shown(events)} {deadline_s:g}")
        return Recording(
            await_started=self.calls.of(f"{what} awaited"), abandon=self.calls.of(f"{what} abandoned"),
            stop=self.calls.of(f"{what} stops", {f"{self.host}.{'+'.join(names)}": b""}),
        )  # fmt: skip

    start = make_ready


class Generator:
    """A generator of these settings that sends at once."""

    def __init__(self, calls: Calls, settings: GeneratorSettings, **counted: Any) -> None:
        self.calls, self.name, self.settings = calls, settings.engine, settings
        self.outputs, self.counted = {"generator.jsonl": "sent"}, counted
        for name in ("stop", "close", "release", "go_on"):
            setattr(self, name, calls.of(f"generator {name}"))

    def start(self) -> GeneratorReady:
        self.calls.append("generator start")
        return GeneratorReady(self.name, 2, (4, 5), "fifo", 64, {"batch": 7})

    def burst(self, name: str, seconds: float) -> Any:
        self.calls.append(f"generator sends {name} for {seconds:g}")
        counted = {"duration_s": seconds, "tx_packets": 1000, "rx_packets": 1000, "tx_errors": 100}
        return SimpleNamespace(summary=SimpleNamespace(**counted | self.counted), intervals=(), ways=())


def points_from(folder: Path) -> dict[str, Point]:
    (folder / "p.bpf.c").write_text("int x;")
    mine = {"file": str(folder / "p.bpf.c"), "setup": [["ip", "link"], ["sh", "x.sh"]], "action": "drop"}
    block = {"points": {"program": mine, "mode": "generic", "queues": 2}, "passes": ["rate", "bpf_stats", "perf"]}
    traffic = {
        "engine": "afxdp", "load": "30kpps", "flows": 3, "skew": "zipf 1.5", "churn": 5, "src_ip": "10.0.0.1",
        "dst_ip": "10.0.0.2", "src_ip_stride": "0.0.0.3", "dst_ip_stride": "0.0.0.4", "src_port": 7, "dst_port": 8,
        "imix": "simple", "vlan": 9, "ip_version": 6, "stamp": 11, "rx_stamp": "device",
        "tx_stamp": "device", "batch": 13, "tx_bind": "zerocopy", "tx_wakeup": "needed", "tx_busy_poll_us": 15,
        "burst": 2,
    }  # fmt: skip
    blocks = {
        "mine": block,
        "sockets": {"points": {"accesses": 1, "mode": "af_xdp", "xsk_attach": "generic", "queues": 3},
                    "traffic": traffic},
        "ways": {"points": {"accesses": 0, "queues": 2}, "traffic": {"directions": "both", "load": "80kpps"}},
    }  # fmt: skip
    made = {}
    for name, one in blocks.items():
        *_, made[name] = points_of(parse_plan({"name": "t", "blocks": [one]}), "split")
    return made


PLAN = {
    "name": "t", "blocks": [{"points": {"accesses": 0}}], "seed": 17, "perf_events": ["cycles"],
    "trial": {"window_s": 2.5, "warmup_s": 0.3, "settle_s": 0.07},
    "metrics": [{"name": "forks", "argv": ["true"]}],
}  # fmt: skip


def prepared(name: str, **other: Any) -> Any:
    on_dut = OnDut(f"/dut/{name}.o", ("--section", "xdp"), {"a": "1"}, {"b": "2"}, {"c": "3"}, **other)
    built, work = SimpleNamespace(hash=f"hash of {name}"), {"kernel": f"{name} in the kernel", "user": f"{name} there"}
    return SimpleNamespace(built=built, load=f"{name} loaded", work=work, on_dut=on_dut, frames_on_tg=None)


def context_of(calls: Calls, points: dict[str, Point], **other: Any) -> TrialContext:
    def run(argv: list[str], check: bool = True) -> Result:
        return Result("dut", tuple(argv), 0, b"", b"", 0.1)

    lab = SimpleNamespace(
        name="rack", label="two servers", dut=SimpleNamespace(name="dut", run=calls.of("dut runs", run)),
        tg=SimpleNamespace(name="tg"), dut_interface="vd0", tg_interface="vg0", virtual=True, clock="time",
        dut_mac="02:00:00:00:00:01", tg_mac="02:00:00:00:00:02", generator=GeneratorPlace(), arrangement="split",
        cpus=lambda _: Cpus((0, 1, 2, 3), (4, 5, 6, 7)), place=calls.of("place", {"placed": "so"}),
    )  # fmt: skip
    engines = {name: Capabilities("g", name, (64, 1518), 4, 9, (32, 60), name == "live") for name in ("live", "afxdp")}
    adapter = SimpleNamespace(stays=True, capability=engines.__getitem__)
    tools = SimpleNamespace(xdpload="/xdpload", cpuclock="/cpuclock", afxdp_user="/afxdp", generator="/xdpgen",
                            port="port of the TG", adapter=adapter)  # fmt: skip
    staying = SimpleNamespace(
        take=calls.of("staying take", lambda one: one), give=calls.of("staying give"),
        has=lambda one: f"staying give {shown(one)}" in calls,
        leave=calls.of("staying leave"), await_left=calls.of("staying await_left"),
    )  # fmt: skip
    device = Applied("dut", "vd0", {"rings.rx": 1000}, {}, {"rings.rx": 1024})
    given: Any = {
        "lab": lab, "plan": parse_plan(PLAN), "tools": tools, "dut_probe": Probe(calls, "dut", "vd0"),
        "programs": {point.program: prepared(name, workload=f"/dut/{name}.so", workload_init=f"/dut/{name}.init",
                                             setup=MINE if name == "mine" else None)
                     for name, point in points.items()},
        "tg_probe": Probe(calls, "tg", "vg0"), "run_id": "ab12cd34", "link": Limit(25e9), "second": SECOND,
        "staying": staying,
        "machine": MachineFacts(kernel="6.1", rx_ring_entries=512, device=device, xps={"0": "1"},
                                tg_machine=TimingLimits("tsc", 950_000)),
        "alone": {frame_key(point): Limit(float(at)) for at, point in enumerate(points.values(), 5)},
    }  # fmt: skip
    return TrialContext(**given | other)


@pytest.fixture
def points(tmp_path: Path) -> dict[str, Point]:
    return points_from(tmp_path)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls = Calls()
    for name, answer in {
        "prove": lambda *_: {"sent": 300, "back": 299}, "warm_up": WarmedUp(2, 0.6, True),
        "AfxdpSide": None,
        "TwoPortSide": lambda *given, **of: Side(*given, **of),
        "reread": lambda host, applied: replace(applied, obtained={"rings.rx": 2048}), "require_way_back": None,
        "DutCount": SimpleNamespace(gained=lambda: ({}, {"gained": b""})),
        "sender": lambda context, point, deadline_s: Generator(calls, GeneratorSettings(point.engine, "vg0")),
    }.items():  # fmt: skip
        monkeypatch.setattr(module, name, calls.of(name, answer))
    monkeypatch.setattr(Side, "calls", calls)
    monkeypatch.setattr("xdplab.studies.maker.await_loaded", calls.of("the maker is loaded"))
    monkeypatch.setattr(module, "KernelSide", Side)
    monkeypatch.setattr(module, "ThreadPoolExecutor", AtOnce)
    monkeypatch.setattr("xdplab.studies.traffic.passes.ThreadPoolExecutor", AtOnce)
    return calls


def test_a_trial_goes_through_its_phases_and_records_all_that_it_learnt(
    points: dict[str, Point], calls: Calls, tmp_path: Path
) -> None:
    mine = points["mine"]
    mine = replace(mine, passes=(*mine.passes, SLICES))
    trial, facts, raw = Trial(mine, 3, 2, 1), TrialFacts(), tmp_path / "raw"
    raw.mkdir()
    context = context_of(calls, points, rivals={mine.point_id: mine})
    module.measure(context, trial, raw, facts)
    learnt = json.loads((raw / "applied.json").read_text())
    calls.append("\nwith two ports")
    module.measure(context, Trial(replace(points["ways"], passes=("rate", "perf")), 1, 0, 0), raw, TrialFacts())
    calls += ["", *sorted(str(path.relative_to(raw)) for path in raw.rglob("*") if path.is_file()), ""]
    assert learnt.pop("point") == json.loads(json.dumps(mine.factors()))
    calls += [f"{name}: {json.dumps(value)}" for name, value in learnt.items()]
    assert calls.lines == WHOLE.read_text().splitlines()


def test_what_a_trial_began_is_ended_though_a_phase_fails(
    points: dict[str, Point], calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loader that refuses the counter, or the slices, costs only these; a program that is gone ends the trial."""

    def refuses(*_: object) -> None:
        raise ProgramError("no room on the stack")

    def gone() -> None:
        raise HostError("the program is gone")

    mine = replace(points["mine"], passes=(SLICES,))
    facts, context = TrialFacts(), context_of(calls, points, rivals={mine.point_id: mine})
    monkeypatch.setattr(Side, "answers", {"decided": refuses, "slices": refuses, "require": gone})
    with pytest.raises(HostError, match="the program is gone"):
        module.measure(context, Trial(mine, 1, 0, 0), tmp_path, facts)
    why = Missing("the program cannot be loaded with a counter before it: no room on the stack")
    assert (facts.decided_before, facts.decided, facts.sliced) == (why, why, Missing("no room on the stack"))
    assert calls[-4:] == [
        "recorder of samples abandoned", "program close", "program raw_files", "generator close",
    ]  # fmt: skip
    assert (tmp_path / "generator.jsonl").exists()


@pytest.mark.parametrize(
    ("factors", "counted", "ended"),
    [
        ({"mode": "native"}, ["decided"], []),
        ({"passes": ("rate", "harness")}, ["decided_before", "decided"], ["generator stop", "generator close"]),
    ],
)
def test_a_generator_stays_unless_its_pieces_need_the_device_and_a_driver_counts_in_the_window(
    factors: Any, counted: list[str], ended: list[str], points: dict[str, Point], calls: Calls, tmp_path: Path
) -> None:
    one = replace(points["mine"], **factors)
    context = context_of(calls, {"mine": one})
    module.measure(context, Trial(one, 1, 0, 0), tmp_path, facts := TrialFacts())
    assert [name for name in ("decided_before", "decided") if getattr(facts, name) is not None] == counted
    assert [line for line in calls if line in ("generator stop", "generator close")] == ended


def test_a_driver_that_is_asked_tells_what_it_answered_and_a_machine_without_masks_says_so(
    points: dict[str, Point], calls: Calls, tmp_path: Path
) -> None:
    asks = replace(points["ways"], directions="back", program=replace(points["ways"].program, workload="rx_hash",
                                                                      accesses=1))  # fmt: skip
    idle = replace(asks, program=replace(asks.program, accesses=0))
    for one, hints in ((asks, HintCounts(7, 6, 5, 9)), (idle, None)):
        context = context_of(calls, {"hints": one}, machine=MachineFacts(), second=None)
        vars(context.lab)["clock"] = None  # that of an emulator means nothing, and is not measured
        module.measure(context, Trial(one, 1, 0, 0), tmp_path, facts := TrialFacts())
        assert (facts.hints, facts.decided, facts.device) == (hints, None, None)
        assert facts.xps_missing == "the DUT's driver has no choice of CPUs for transmit queues"
        assert (facts.times, any("cpuclock" in line for line in calls)) == (False, False)


def test_a_switch_that_attaching_changed_ends_the_trial(
    points: dict[str, Point], calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = context_of(calls, points, machine=MachineFacts(device=Applied("dut", "vd0", {"gro": True}, {}, {})))
    monkeypatch.setattr(module, "reread", lambda _, device: replace(device, obtained={"gro": False}))
    with pytest.raises(UnsupportedError, match="gro is False"):
        module.read_device(context, TrialFacts())


@pytest.mark.parametrize(("name", "kept"), [("a_name_of_16_let", "a_name_of_16_le"), ("of_15_characters", None)])
def test_a_command_that_fails_is_shown_as_the_plan_has_it(
    name: str, kept: str | None, points: dict[str, Point], calls: Calls
) -> None:
    def run(argv: list[str], check: bool) -> Result:
        return Result("dut", tuple(argv), 1, b"", b"no such map", 0.1)

    argv = ("bpftool", "map", "name", name if kept else name[:15])
    mine = replace(points["mine"], program=replace(points["mine"].program, setup=(argv,)))
    context = context_of(calls, {"mine": mine})
    context.lab.dut.run = run
    with pytest.raises(HostError, match=f"`{' '.join(argv)}`") as caught:
        module.set_up(context, mine, Side(None, None, "", None, queues=1))
    assert (kept is None) == (caught.value.remedy is None or "15 characters" not in caught.value.remedy)
    assert kept is None or str(caught.value.remedy).endswith(f": {kept}")


def test_each_mode_attaches_what_its_point_asks_for(points: dict[str, Point], calls: Calls) -> None:
    sockets, ways = points["sockets"], points["ways"]
    context = context_of(calls, points)
    module.attach(context, sockets, context.programs[sockets.program])
    module.attach(context, ways, context.programs[ways.program])
    asked = "--object /dut/ways.o --interface {} --mode native --section xdp --rodata out_port={} --init a=1"
    both = [f"({asked.format(*way)} --max-entries b=2 --entries c=3)" for way in (("vd0", 20), ("vd1", 10))]
    assert calls[:2] == [
        "AfxdpSide dut dut reader /afxdp (--interface vd0 --queues 3 --attach generic --bind copy --workload "
        "/dut/sockets.so --init /dut/sockets.init --cpus 0,1,2 --fifo 6 --run-id ab12 --frame-bytes 64,594,1518 "
        "--vlan 9 --ip-version 6)",
        f"TwoPortSide dut dut reader /xdpload [{' '.join(both)}] queues=2",
    ]
    for prepared_, one in (
        (replace_on_dut(context.programs[sockets.program], workload=None), sockets),
        (context.programs[sockets.program], replace(sockets, program=replace(sockets.program, frags="off"))),
    ):
        with pytest.raises(UnsupportedError):
            module.attach(context, one, prepared_)


def replace_on_dut(program: Any, **values: Any) -> Any:
    return SimpleNamespace(**vars(program) | {"on_dut": replace(program.on_dut, **values)})


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The sessions of the generator that are made."""
    calls = Calls()

    def session(host: Any, settings: GeneratorSettings, binary: str, *, deadline_s: float, adapter: Any) -> Generator:
        calls.append(f"{host.name} {deadline_s:g} {' '.join(xdpgen_argv(settings, binary))}")
        return Generator(calls, settings)

    monkeypatch.setattr(sending, "Generator", session)
    return calls


def test_what_a_point_says_of_its_traffic_reaches_the_generator(
    points: dict[str, Point], calls: Calls, sessions: Calls
) -> None:
    context = context_of(calls, points)
    sender(context, points["sockets"], deadline_s=60)
    sender(context, points["ways"], deadline_s=61)
    sender(context, points["ways"], deadline_s=62, dst_mac=NOBODY, rate_pps=None)
    race = {"name": "r", "race": {}, "blocks": PLAN["blocks"] * 2}
    plain, card = replace(points["ways"], directions="back", load="max"), GeneratorPlace(follows=True)
    sender(context_of(calls, points, plan=parse_plan(race)), replace(plain, frame_bytes=512), deadline_s=63)
    context.programs[plain.program].frames_on_tg = "/f.pcap"
    for place, virtual, load in ((card, True, "50%"), (GeneratorPlace(), False, "50% of line")):
        vars(context.lab).update(generator=place, virtual=virtual, cpus=lambda _: Cpus((0, 1), (4,)))
        asked = [replace(plain, load=load, engine=engine, timing="recorded x2") for engine in ("live", "afxdp")]
        asked = [*asked, replace(asked[1], timing="load", load="max"), replace(asked[1], timing="load")]
        context.pdr = {point.pdr_key: 1000.0 for point in asked}
        for point in asked:
            sender(context, point, deadline_s=64)
    assert sessions.lines == SENT.read_text().splitlines()


def test_a_burst_alone_is_sent_after_a_warm_up_and_its_session_is_ended(
    points: dict[str, Point], calls: Calls, sessions: Calls
) -> None:
    context = context_of(calls, points)
    burst, output = send(context, replace(points["ways"], directions="back"), 5e3, 0.7)
    assert (burst.summary.duration_s, output) == (0.7, "sent")
    assert sessions[0].startswith("tg 900.7 ")
    assert sessions[1:] == [
        "generator start", "generator sends warmup for 0.05", "generator sends offer for 0.7", "generator stop",
        "generator close",
    ]  # fmt: skip
    assert calls == ["place split 2", "the maker is loaded"]


@pytest.mark.parametrize(
    ("counted", "expected"),
    [
        ({}, HarnessPieces(5e6, 5e6)),
        ({"rx_packets": 999}, Missing("the receiver took 999 of 1000 frames that it was handed")),
    ],
)
def test_the_generators_pieces_cost_the_time_of_all_cpus_that_send(
    counted: dict[str, Any], expected: object, points: dict[str, Point], calls: Calls, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    burst = Generator(Calls(), GeneratorSettings("live", "vg0"), **counted).burst("offer", 2.5)
    monkeypatch.setattr(sending, "send", calls.of("send", lambda *_, **__: (burst, "printed")))
    one = replace(points["ways"], directions="back")
    context = context_of(calls, points)
    assert pieces_alone(context, one, tmp_path) == expected
    assert [line for line in calls if line.startswith("send")] == [
        "send TrialContext 64B*2 None 2.5 alone=sender receive=False",
        "send TrialContext 64B*2 None 2.5 alone=receiver receive=True",
    ]
    assert {path.name: path.read_text() for path in tmp_path.glob("alone*")} == {
        "alone_sender.jsonl": "printed", "alone_receiver.jsonl": "printed",
    }  # fmt: skip
    assert isinstance(pieces_alone(context, points["ways"], tmp_path), Missing)


@pytest.mark.parametrize(
    ("factors", "link", "expected"),
    [
        ({}, Limit(25e9), 3000.0),
        ({}, Limit(None, "virtual"), 1000 / 0.3),
        ({"load": "20kpps", "burst": 32}, Limit(25e9), 3000.0),  # xdpgen refuses bursts at max: each such block failed
        ({"arrangement": "shared"}, Limit(1.0), None),
        ({"directions": "both", "queues": 5}, Limit(1.0), None),
    ],
)
def test_a_generators_limit_is_what_the_cable_took(
    factors: Any, link: Limit, expected: float | None, points: dict[str, Point], calls: Calls, sessions: Calls
) -> None:
    one = replace(points["ways"], **{"directions": "back"} | factors)
    limit = generator_alone(context_of(calls, points, link=link), one)
    assert limit.rate == (None if expected is None else pytest.approx(expected))
    assert (limit.missing is None) == (expected is not None)
    assert ("generator sends offer for 0.3" in sessions) == (expected is not None)
    assert expected is None or (f"--dst-mac {NOBODY}" in sessions[0] and "--burst" not in sessions[0])
    mine = generator_alone(context_of(calls, points), replace(one, program=replace(one.program, frames="f.pcap")))
    assert mine.rate is None


@pytest.mark.parametrize(
    ("courses", "warmed"),
    [
        (["steady"], WarmedUp(1, 0.5, True)),
        (["step", "step", "steady"], WarmedUp(3, 3.5, True)),
        (["step"] * 6, WarmedUp(5, 15.5, False)),
        ([None], WarmedUp(1, 0.5, None)),  # too few intervals to tell
    ],
)
def test_a_warm_up_ends_when_the_rate_is_steady_or_after_five_bursts(
    courses: list[str | None], warmed: WarmedUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds, lasts = iter(courses), (0.5 * 2**n for n in range(9))
    monkeypatch.setattr(
        passes, "burst_course", lambda burst: None if (kind := next(kinds)) is None else SimpleNamespace(kind=kind)
    )
    sent: list[tuple[str, float]] = []
    generator: Any = SimpleNamespace(
        burst=lambda *given: sent.append(given) or SimpleNamespace(summary=SimpleNamespace(duration_s=next(lasts)))
    )
    assert passes.warm_up(generator, 0.4) == warmed
    assert sent == [("warmup", 0.4)] * warmed.bursts
    assert passes.warm_up(generator, 0) is None


def test_a_lab_with_one_link_forwards_nothing_and_one_with_two_tells_its_ports_numbers(
    points: dict[str, Point], calls: Calls, tmp_path: Path
) -> None:
    context = context_of(calls, points, second=None)
    with pytest.raises(UnsupportedError, match="needs two links"):
        module.measure(context, Trial(points["ways"], 1, 0, 0), tmp_path, TrialFacts())
    assert not any(line.startswith("attach") for line in calls)
    numbers = {"vd0": "10\n", "vd1": "20\n"}
    dut = SimpleNamespace(run=lambda argv: SimpleNamespace(text=numbers[argv[1].split("/")[4]]))
    for ends, expected in ((SECOND.ends, SECOND), (None, None)):
        lab: Any = SimpleNamespace(second_link=lambda ends=ends: ends, dut=dut, dut_interface="vd0")
        assert second_port(lab) == expected
