"""A session in a lab whose parts write down what is asked of them: all that it sets, and what it ends."""

from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.doubles.calls import AtOnce, Calls, shown

from xdplab.deploy.device import Applied
from xdplab.deploy.settings import Values
from xdplab.errors import CutOffError, HostError, ResultsError, UnsupportedError, XdplabError
from xdplab.hosts import Result
from xdplab.labs.base import Cpus, GeneratorPlace, LinkEnds
from xdplab.plan import Plan, Trial, parse_plan, points_of
from xdplab.studies.traffic import session as module
from xdplab.studies.traffic.session import TrafficSession
from xdplab.studies.traffic.two_ports import SecondPort
from xdplab.studies.trial_facts import Limit, TimingLimits, TrialFacts

WHOLE = Path(__file__).with_name("session.txt")
SECOND = LinkEnds("vd1", "vg1", "02:00:00:00:00:01", "02:00:00:00:00:02")
COUNTS = "RX:\t512\nRX Mini:\tn/a\nRX Jumbo:\tn/a\nTX:\t256\n"
RINGS = f"Ring parameters for vd0:\nPre-set maximums:\n{COUNTS.replace('2', '24')}Current hardware settings:\n{COUNTS}"


class Device:
    """A device whose watchdog dies when ``lost`` is set."""

    calls = Calls()
    lost: str | None = None
    boots = False

    def __init__(self, host: Any, interface: str, state: str) -> None:
        self.host, self.interface = host, interface
        self.calls.append(f"guard {shown(self)} {state}")
        mtu = 9000 if interface == "vg1" else 1500
        tags = {} if interface == "vg1" else {"features.rxvlan": True, "features.txvlan": True}
        self.before = SimpleNamespace(values={"link.mtu": mtu} | tags, with_queues=lambda n: SimpleNamespace(
            only=lambda names: f"{n} queues: {sorted(names)}"))  # fmt: skip

    def take(self) -> bool:
        self.calls.append(f"take {shown(self)}")
        Device.lost = None
        return self.boots and self.interface == "vg0"

    def require(self) -> None:
        if self.lost == self.interface:
            raise HostError(f"{self.interface}: its watchdog is gone")


def applied(host: Any, interface: str, wanted: Values, before: Values | None = None) -> Applied:
    obtained = {"xps.0": "0x1", "xps.1": "0x2"} if "xps.0" in wanted else dict(wanted)
    if "rings.rx" in wanted:
        obtained = {"rings.rx": 1024}
    return Applied(host.name, interface, obtained if "xps.0" in wanted else dict(wanted), before or {}, obtained)


def fail(*_: object, **__: object) -> None:
    raise HostError("it broke")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls = Calls()
    monkeypatch.setattr(Device, "calls", calls)
    monkeypatch.setattr(Device, "lost", None)
    tools = SimpleNamespace(name="tools", reader="/dut/reader", reader_on_tg="/tg/reader", sampler="/dut/sampler")
    for name, answer in {
        "apply": applied, "queues_now": 3, "restore": None, "await_nothing_attached": None,
        "build_tools": tools, "refuse_way_out": None, "put_all_back": None,
        "machine_of": TimingLimits("tsc", 950_000), "link_rate": Limit(25e9), "known_pdr": {"k": 5.0},
        "generator_alone": lambda context, point: Limit(float(point.frame_bytes)), "measure": None,
        "pieces_alone": "pieces",
        "set_queues": lambda *ends: (Applied(ends[0].host.name, ends[0].interface, {"q": 1}, {}, {"q": 1}),),
        "install": lambda *of, **_: SimpleNamespace(name=f"probe of {of[1]}", close=calls.of(f"close {of[1]}")),
        "prepare_programs": lambda lab, run, tools, points, retries: {"tools": tools(), "points": len(points)},
        "run_together": lambda host, asked: [Result("dut", (), 0, RINGS.encode(), b"", 0.1)] * len(asked),
        "second_port": SecondPort(SECOND, (10, 20)),
    }.items():  # fmt: skip
        monkeypatch.setattr(module, name, calls.of(name, answer))
    monkeypatch.setattr(module, "kept_sysctls", calls.within("sysctls"))
    monkeypatch.setattr(module, "unthrottled", calls.within("unthrottled", {"rt": "-1"}))
    monkeypatch.setattr(module, "GuardedDevice", Device)
    monkeypatch.setattr(module, "ThreadPoolExecutor", AtOnce)
    monkeypatch.setattr(module, "of_each", lambda ends, ask: [ask(end) for end in ends])
    masks = SimpleNamespace(question=lambda name: ["masks", name], values_in=lambda _: {"0": "0xf", "1": "0xf"})
    monkeypatch.setattr(module, "XPS", masks)
    return calls


def lab_of(calls: Calls, **other: Any) -> Any:
    def host(name: str) -> Any:
        answer = SimpleNamespace(text=" 6.1.0 \n")
        return SimpleNamespace(name=name, run=calls.of(f"{name} runs", answer), await_return=calls.of(f"await {name}"))

    given = {
        "name": "lab", "dut": host("dut"), "tg": host("tg"), "dut_interface": "vd0", "tg_interface": "vg0",
        "arrangement": "split", "virtual": True, "generator": GeneratorPlace(), "regain": calls.of("regain"),
        "cpus": lambda _=None: Cpus((0, 1, 2, 3), (4, 5, 6, 7)), "turn": calls.within("turn"),
        "second_link": lambda make: SECOND, "state_dir": lambda of: f"/state/{of.name}",
        "work_dir": lambda of: f"/work/{of.name}",
    }  # fmt: skip
    return SimpleNamespace(**given | other)


def plan_of(folder: Path, *, throttling: str = "off") -> tuple[Plan, list[Trial]]:
    """Two blocks: one between two ports, with all that can be set, and one of a user's program."""
    (folder / "p.bpf.c").write_text("int x;")
    program = {"file": str(folder / "p.bpf.c"), "setup": [["true"]], "action": "drop"}
    blocks = [
        {"points": {"accesses": 0, "queues": 2, "frame_bytes": [2000, 64]},
         "traffic": {"directions": "both", "vlan": 5}},
        {"points": {"program": program, "device": [{"rings.rx": 1000}]}, "passes": ["rate", "harness"]},
    ]  # fmt: skip
    plan = parse_plan({"name": "t", "blocks": blocks, "trial": {"throttling": throttling, "retries": 4}})
    points = [replace(point, arrangement="split") for point in points_of(plan, "split")]
    return plan, [Trial(point, 1, point.two_ports, order) for order, point in enumerate(points)]


def run_of() -> Any:
    events = SimpleNamespace(events=lambda _: iter([{}]))
    return SimpleNamespace(name="run", run_id="ab12", journal=events)


@pytest.fixture
def session(calls: Calls, tmp_path: Path) -> TrafficSession:
    plan, trials = plan_of(tmp_path)
    return TrafficSession(lab_of(calls), run_of(), plan, trials)


def test_all_that_a_session_asks_for_is_in_its_order(session: TrafficSession, calls: Calls) -> None:
    """From both ports' settings to their restoring; a block begins with what the one before it changed. What a lost
    connection took is made again, for a host that rebooted with all that is on it."""
    first, *wide, mine = session._trials
    wide = [replace(first, point=replace(first.point, directions="forth")), *wide]  # steered for the one both ways

    def measured() -> TrialFacts:
        session.measure(mine, Path("raw"), facts := TrialFacts())
        return facts

    with session:
        machine, alone = session._context.machine, session._context.alone
        session._context.staying = SimpleNamespace(end=calls.of("generator ends"))  # type: ignore[assignment]
        for block in ([mine], wide):
            calls.append(f"\nenter a block of {shown([trial.point for trial in block])}")
            session.enter_block(block)
            calls.append(f"known: ring {machine.rx_ring_entries}, xps {shown(machine.xps)}, {shown(machine.device)}")
            calls.extend(f"known: {shown(one)}" for one in machine.settings or ())
            session.leave_block()
        calls.append("\nmeasure")
        facts = measured()
        assert (facts.harness, facts.mended, facts.waited_s is None) == ("pieces", None, False)
        for boots in (False, True):
            Device.lost, Device.boots = "vg0", boots
            calls.append(f"\nmeasure after a lost connection{' and a reboot' * boots}")
            again = measured().mended
            assert again is not None
            assert (again.lost, again.booted) == ("vg0: its watchdog is gone", ("tg",) * boots)
        calls.append("\nend")
    assert calls.lines == WHOLE.read_text().splitlines()
    assert machine is not session._context.machine
    assert alone is session._context.alone
    assert (machine.kernel, machine.tg_machine) == ("6.1.0", TimingLimits("tsc", 950_000))
    assert machine.switched_off == {"rt": "-1"}


@pytest.mark.parametrize(
    ("broken", "ended"),
    [("build_tools", ""), ("refuse_way_out", ""), ("link_rate", "unthrottled ends "), ("install", "")],
)
def test_a_session_that_cannot_begin_restores_what_it_has(
    broken: str, ended: str, session: TrafficSession, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, broken, calls.of("broken", fail))
    with pytest.raises(HostError, match="it broke"), session:
        pass
    lines = " ".join(calls).partition("broken")[2]
    assert lines.endswith(f"{ended}put_all_back [dut.vd0 tg.vg0 dut.vd1 tg.vg1] at_once=True sysctls ends")


@pytest.mark.parametrize(
    ("error", "lost", "raised", "says"),
    [
        (HostError("no answer"), "vg0", CutOffError, "no answer: vg0: its watchdog is gone"),
        (HostError("no answer"), None, HostError, "no answer"),
        (ResultsError("the disk is full"), "vg0", ResultsError, "the disk is full"),
        (None, "vd0", CutOffError, "vd0: its watchdog is gone"),
    ],
)
def test_a_trial_whose_connection_is_lost_is_cut_off(
    error: XdplabError | None, lost: str | None, raised: type[XdplabError], says: str,
    session: TrafficSession, calls: Calls, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def breaks(*_: object) -> None:
        Device.lost = lost
        if error is not None:
            raise error

    monkeypatch.setattr(module, "measure", breaks)
    *_, mine = session._trials
    with session:
        session.enter_block([mine])
        calls.clear()
        with pytest.raises(raised) as caught:
            session.measure(mine, Path("raw"), TrialFacts())
        assert (type(caught.value), caught.value.message) == (raised, says)
        assert calls.count("await dut") == 2 * (raised is CutOffError)
        Device.lost = None


@pytest.mark.parametrize("lost", ["vg0", None])
def test_a_block_that_a_lost_connection_interrupts_is_set_again(
    lost: str | None, session: TrafficSession, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> Any:
        monkeypatch.setattr(module, "set_queues", calls.of("queues", ()))
        Device.lost = lost
        raise UnsupportedError("no such queue")

    monkeypatch.setattr(module, "set_queues", breaks)
    with session, nullcontext() if lost else pytest.raises(UnsupportedError):
        session.enter_block(session._trials[-1:])
    assert calls.count("regain") == calls.count("queues dut.vd0 tg.vg0 1") == (lost is not None)


@pytest.mark.parametrize("lost", ["vd0", "vg0", None])
def test_a_connection_that_is_lost_at_a_blocks_end_is_mended_by_the_next(
    lost: str | None, session: TrafficSession, calls: Calls
) -> None:
    *_, mine = session._trials
    with session:
        session.enter_block([mine])
        session._context.staying = SimpleNamespace(end=fail)  # type: ignore[assignment]
        Device.lost = lost
        with nullcontext() if lost == "vd0" else pytest.raises(HostError, match="it broke"):
            session.leave_block()
        session._context.staying = SimpleNamespace(end=lambda: None)  # type: ignore[assignment]
        session.enter_block([mine])
        session.measure(mine, Path("raw"), TrialFacts())
    assert calls.count("regain") == (lost is not None)


MOONGEN = GeneratorPlace("moongen", path="/opt/MoonGen", pci="0000:3b:00.1", hugepages=4)


@pytest.mark.parametrize(
    ("place", "queues", "restored"),
    [
        (GeneratorPlace(follows=True), "dut.vd0 None 1", "[dut.vd0 tg.vg0] at_once=False"),
        (MOONGEN, "dut.vd0 None 1", "[dut.vd0 0000:3b:00.1] at_once=True"),
    ],
)
def test_a_tap_is_restored_after_its_duts_device_and_dpdk_has_a_port_of_its_own(
    place: GeneratorPlace, queues: str, restored: str, calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded = lambda host, port, state: SimpleNamespace(  # noqa: E731
        name=port.pci, host=host, take=calls.of(f"take {shown(vars(port))} {state}"), require=lambda: None
    )
    monkeypatch.setattr(module, "GuardedPort", guarded)
    plan, trials = plan_of(tmp_path, throttling="kept")
    session = TrafficSession(lab_of(calls, generator=place), run_of(), plan, [mine := trials[-1]])
    with session:
        session.enter_block([mine, replace(mine, point=replace(mine.point, engine="testpmd"))])
        assert not any("rxvlan" in line for line in calls)
        session.enter_block([mine, replace(mine, point=replace(mine.point, vlan="5"))])
    assert f"set_queues {queues}" in calls
    assert f"put_all_back {restored}" in calls
    assert calls.count("apply dut vd0 link.promisc=True") == 2
    assert "apply dut vd0 features.rxvlan=False,features.txvlan=False" in calls
    assert not any("unthrottled" in line or "link.mtu" in line or "second_port" in line for line in calls)
    assert ("take pci=0000:3b:00.1,driver=vfio-pci,hugepages=4 /state/tg" in calls) == (place is MOONGEN)


def test_a_device_without_masks_is_left_and_one_whose_mtu_has_no_room_is_refused(
    session: TrafficSession, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.XPS, "values_in", lambda _: {})
    *_, mine = session._trials
    with session:
        session.enter_block([mine])
        assert session._context.machine.xps is None
        assert not any("xps" in line for line in calls)
        for mtu, error in ((1499, pytest.raises(UnsupportedError, match="no room")), (1500, nullcontext())):
            with error:
                session.enter_block([replace(mine, point=replace(mine.point, device=(("link.mtu", mtu),)))])


@pytest.mark.parametrize(("stamps", "fails"), [({"stamp"}, False), (set(), False), ({"stamp"}, True)])
def test_a_generator_is_tried_without_sending_and_its_port_is_given_back(
    stamps: set[str], fails: bool, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    able = SimpleNamespace(can=stamps, addresses={"flows": 5})
    adapter = SimpleNamespace(name="adapter", capabilities={"usual": able, "other": None})
    installed = SimpleNamespace(adapter=adapter, port="0", program="/opt/it/bin")
    monkeypatch.setattr(module, "generator_of", lambda lab: installed)

    def started(host: Any, settings: Any, program: str, *, adapter: Any, deadline_s: float) -> Any:
        of, to = settings.addresses, settings.frames.stamp
        calls.append(
            f"{host.name} {settings.engine} {settings.interface} {settings.cpus} {of.src_mac} {of.dst_mac} {to}"
        )
        calls.append(f"{program} {adapter.name} {of.flows} {deadline_s:g}")
        start = calls.of("start", fail if fails else "ready")
        return nullcontext(SimpleNamespace(start=start, stop=calls.of("stop")))

    monkeypatch.setattr(module, "Generator", started)
    port = SimpleNamespace(take=calls.of("take"), put_back=calls.of("put back"))
    monkeypatch.setattr(module, "_dpdk_port", lambda lab: port)
    lab = lab_of(calls, tg_mac="02:00:00:00:00:02", lock=calls.within("lock"))
    with pytest.raises(HostError) if fails else nullcontext():
        assert module.try_generator(lab) == "ready"
    sends = f"tg usual 0 (4,) 02:00:00:00:00:02 {module.NOBODY} {'all' if stamps else 'none'}"
    ended = [] if fails else ["stop"]
    assert calls == [
        "lock doctor", "take", sends, "/opt/it/bin adapter 5 120", "start", *ended, "put back", "lock ends",
    ]  # fmt: skip
    monkeypatch.setattr(module, "_dpdk_port", lambda lab: None)
    calls.clear()
    with suppress(HostError):
        module.try_generator(lab)
    assert not {"take", "put back"} & set(calls)
