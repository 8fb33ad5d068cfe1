"""A run in its labs: where its hosts stand, what they are asked, what is built and put there, and in which order."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.attempts import attempt_of
from tests.doubles.calls import AtOnce, Calls, shown

from xdplab.errors import LabError, PlanError
from xdplab.hosts import Result
from xdplab.labs.base import GeneratorPlace
from xdplab.plan import Plan, parse_plan
from xdplab.run.rundir import RunDirectory
from xdplab.studies.kind import Where
from xdplab.studies.traffic import kind, limits, runs, turns
from xdplab.studies.traffic.kind import TRAFFIC
from xdplab.studies.traffic.pdr import FILE, known_pdr
from xdplab.studies.traffic.run_files import create_run, run_trials_of
from xdplab.studies.traffic.turns import lab_for, labs_of
from xdplab.studies.trial_facts import TimingLimits


def answer(text: str, code: int = 0) -> Result:
    return Result("dut", ("asked",), code, text.encode(), b"", 0.1)


@pytest.mark.parametrize(
    ("source", "runtime", "period", "expected"),
    [
        ("tsc", "950000", "1000000", TimingLimits("tsc", 950_000)),
        ("tsc", "475000", "500000", TimingLimits("tsc", 950_000)),
        ("kvm-clock", "-1", "500000", TimingLimits("kvm-clock", -1)),
        ("", "0", "1000000", TimingLimits(None, 0)),
        ("tsc", "", "1000000", TimingLimits("tsc", None)),
        ("tsc", "950000", "", TimingLimits("tsc", None)),
    ],
)
def test_real_time_threads_may_run_a_part_of_each_second(
    source: str, runtime: str, period: str, expected: TimingLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "run_together", lambda *_: [answer(f"{one}\n") for one in (source, runtime, period)])
    assert limits.machine_of(SimpleNamespace()) == expected  # type: ignore[arg-type]


ROUTE, NONE = '[{"dst":"x","dev":"%s"}]', '[{"type":"blackhole","dst":"x","dev":"out0"}]'


@pytest.mark.parametrize(
    ("version", "routes", "forwards", "out"),
    [
        (4, {"vd0": ROUTE % "out0"}, "0", "from vd0 to out0"),
        (4, {"vd1": ROUTE % "out0"}, "0", "from vd1 to out0"),
        (4, {"vd0": ROUTE % "vd1"}, "1", None),  # between two ports of the lab
        (4, {"vd0": NONE}, "1", None),
        (4, {"vd0": '[{"dst":"x"}]'}, "1", None),
        (4, {}, "1", None),
        (6, {"vd0": ROUTE % "out0"}, "1", "from vd0 to out0"),
        (6, {"vd0": ROUTE % "out0"}, "0", None),  # `ip route get` answers as if it forwarded
    ],
)
def test_a_dut_that_would_route_the_frames_of_a_point_out_of_the_lab_is_refused(
    version: int, routes: dict[str, str], forwards: str, out: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def together(host: object, asked: list[list[str]]) -> list[Result]:
        (*_, source, of_port, port), (_, file) = asked
        prefix = "" if version == 4 else "2001:2::"
        assert (source, of_port) == (f"{prefix}10.0.0.1", "iif")
        assert asked[0][:3] == ["ip", "-j", f"-{version}"]
        assert file == f"/proc/sys/net/ipv{version}/conf/all/forwarding"
        last = asked[0][5] == f"{prefix}10.0.0.9"  # the route of the second point alone leads out
        return [answer(routes.get(port, ""), port not in routes or not last), answer(forwards)]

    monkeypatch.setattr(limits, "run_together", together)
    points: Any = [SimpleNamespace(ip_version=version, src_ip="10.0.0.1", dst_ip=f"10.0.0.{n}") for n in (2, 9)]
    if out is None:
        limits.refuse_way_out(SimpleNamespace(name="dut"), ["vd0", "vd1"], points)  # type: ignore[arg-type]
        return
    with pytest.raises(LabError, match=f"{out}, out of the lab") as caught:
        limits.refuse_way_out(SimpleNamespace(name="dut"), ["vd0", "vd1"], points)  # type: ignore[arg-type]
    assert ("ipv4/conf" in str(caught.value.remedy)) == (version == 4)


def lab_called(calls: Calls, name: str, **other: Any) -> Any:
    given = {"name": name, "arrangement": "shared", "generator": GeneratorPlace(), "lock": calls.within(f"lock {name}")}
    return SimpleNamespace(**given | other)


def plan_of(**keys: Any) -> Plan:
    blocks = [{"points": {"accesses": [0, 1]}}, {"points": {"accesses": 0}, "lab": "netns:b"}]
    return parse_plan({"name": "t", "blocks": blocks, "repetitions": 1} | keys)


def state_of(lab: str) -> dict[str, Any]:
    return {"lab": lab, "label": lab, "virtual": True, "arrangement": "shared", "xdplab": {}, "dut": {}, "tg": {}}


class Measuring:
    """A session of a lab."""

    facts = dict

    def __init__(self, calls: Calls, lab: Any) -> None:
        self.calls, self.lab = calls, lab

    def enter_block(self, trials: Any) -> None: ...

    def measure(self, trial: Any, raw: Path, facts: Any) -> None:
        self.calls.append(f"measure in {self.lab.name}")

    def leave_block(self) -> None: ...

    def __enter__(self) -> "Measuring":
        return self

    def __exit__(self, *error: object) -> None:
        self.calls.append(f"session in {self.lab.name} ends")


def test_a_run_holds_its_labs_asks_their_hosts_and_measures_what_it_owes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, plan = Calls(), plan_of(trial={"retries": 3, "pause_s": 0.0})
    run = create_run(plan, tmp_path, lab="netns:a", arrangement="shared")
    first = next(trial for trial in run_trials_of(run) if trial.point.lab == "auto")
    run.journal.append("finished", **vars(attempt_of(first.trial_id)))
    labs = {name: lab_called(calls, f"netns:{name}") for name in "ab"}
    monkeypatch.setattr(turns, "use_lab", lambda name: calls.within("use", labs["b"])(name))
    monkeypatch.setattr(runs, "host_states", lambda lab, when: calls.of("ask")(lab, when) or state_of(lab.name))
    monkeypatch.setattr(runs, "ThreadPoolExecutor", AtOnce)
    monkeypatch.setattr(runs, "words_of", lambda folder: "whose")
    for name in ("prepare", "load", "begin", "keep_up", "keep_soon"):
        monkeypatch.setattr(runs.maker, name, calls.of(f"maker {name}") if name != "prepare" else lambda _: None)

    def session(lab: Any, folder: RunDirectory, read: Plan, trials: Any) -> Measuring:
        calls.append(f"session in {lab.name} of {len(trials)} {read == plan}")
        return Measuring(calls, lab)

    watched = ("started", "finished", "interrupted", "ended")
    seen: list[str] = []
    observer: Any = SimpleNamespace(**{name: lambda *_, name=name: seen.append(name) for name in watched})
    method = runs.TrafficMethod(session)
    assert (method.retries(plan), replace(method, searches=True).retries(plan)) == (3, 0)
    paused = plan.model_copy(update={"trial": plan.trial.model_copy(update={"pause_s": 0.5})})
    assert (method.pause_s(paused), replace(method, searches=True).pause_s(paused)) == (0.5, 0.0)
    state = runs.InLab(labs["a"], method, steal=True).measure(TRAFFIC.run(run), observer)
    assert state.owed == []
    assert seen == ["started", "finished", "started", "finished", "ended"]
    lines = [f"lock netns:{name} whose steal=True" for name in "ba"]
    lines += [*(f"ask netns:{name} before" for name in "ba"), *(f"session in netns:{name} of 1 True" for name in "ba")]
    lines += ["maker load", "maker keep_up 1", "measure in netns:b", "maker keep_up 2", "measure in netns:a"]
    lines += ["maker keep_soon", *(f"ask netns:{name} after" for name in "ba"), "maker begin"]
    ends = [f"{what} netns:{name} ends" for what in ("session in", "lock") for name in "ab"]
    assert calls == ["use netns:b", *lines, *ends, "use ends"]
    hosts = list(run.journal.events("hosts"))
    assert [(event["when"], event["session"], event["state"]) for event in hosts] == [
        (when, 0, state_of(f"netns:{name}")) for when in ("before", "after") for name in "ba"
    ]
    manifest = json.loads((run.path / "manifest.json").read_text())
    assert manifest == {"run_id": run.run_id, "seed": plan.seed, "sessions": json.loads(json.dumps(hosts))}


def test_a_plan_is_checked_in_each_lab_that_it_names_before_a_run_is_made_or_extended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, plan = Calls(), plan_of()
    monkeypatch.setattr(turns, "use_lab", lambda name: nullcontext(lab_called(calls, name)))
    monkeypatch.setattr(runs, "check_plan", lambda checked, lab, name: calls.append(f"{lab.name} as {name}"))
    lab, files = lab_called(calls, "netns:a"), {FILE: {"search": "s", "pdr_pps": {"x": 1.0}}}
    run = runs.start(plan, lab, tmp_path, only={"accesses": "1"}, files=files)
    assert calls == ["netns:a as auto", "netns:b as netns:b"]
    assert (len(run_trials_of(run)), known_pdr(run), runs.lab_of(run)) == (2, {"x": 1.0}, "netns:a")
    files = {FILE: {"search": "t", "pdr_pps": {"y": 2.0}}}
    assert runs.start(plan, lab, tmp_path / "other", extend=run, files=files) is run
    assert (len(run_trials_of(run)), known_pdr(run)) == (3, {"x": 1.0, "y": 2.0})
    with pytest.raises(PlanError, match="is not what lab netns:a can be"):
        runs.start(
            plan.model_copy(update={"blocks": plan.blocks[:1]}),
            lab_called(calls, "netns:a", arrangement="hosts"),
            tmp_path,
            extend=run,
        )


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"arrangement": "split"}, "lab netns:a is of arrangement shared, netns:b of split"),
        ({"name": "netns:a"}, "netns:b is the lab of the plan itself"),
        ({}, None),
    ],
)
def test_labs_of_one_run_are_alike_and_none_has_two_names(
    other: dict[str, str], says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls()
    monkeypatch.setattr(turns, "use_lab", lambda name: nullcontext(lab_called(calls, **{"name": name} | other)))
    refused = pytest.raises(LabError, match=says) if says else nullcontext()
    with refused, labs_of(plan_of().blocks, lab_called(calls, "netns:a")) as labs:
        assert {name: lab.name for name, lab in labs.items()} == {"auto": "netns:a", "netns:b": "netns:b"}


def test_a_lab_is_reached_on_both_sides_while_it_is_brought_up(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls()

    class Reached:
        name = arrangement = "a"
        dut = property(lambda self: calls.append("dut"))
        tg = property(lambda self: calls.append("tg"))

    monkeypatch.setattr(turns, "use_lab", lambda name: calls.within("use", Reached())(name))
    monkeypatch.setattr(turns, "labs_of", calls.within("labs of"))
    with lab_for("netns:a", plan := plan_of()):
        assert sorted(calls[1:3]) == ["dut", "tg"]
        assert calls[3:] == [f"labs of {shown(plan.blocks)} a"]


@pytest.mark.parametrize(
    ("where", "last", "measures"),
    [
        (Where(), [], "the lab of its plan"),
        (Where(), ["netns:b", "netns:c"], "shared"),
        (Where(lab="netns:x", steal=True), ["netns:b", "netns:c"], "one"),
        (Where(labs=("netns:d",)), [], "given"),
        (Where(lab="netns:x", steal=True), [], "one"),
    ],
)
def test_a_run_goes_on_where_it_was_measured_unless_told_otherwise(
    where: Where, last: list[str], measures: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = create_run(plan_of(), tmp_path, lab="netns:a", arrangement="shared")
    for labs in ([["netns:z"]] if last else []) + ([last] if last else []):
        run.record("shared", labs=labs, scheduler=None)
    monkeypatch.setattr(kind, "use_lab", lambda name: nullcontext(f"{name} is up"))
    monkeypatch.setattr(kind, "fleet", SimpleNamespace(joined=lambda labs, *_: nullcontext(tuple(labs))))
    with kind.at(TRAFFIC.run(run), where) as place:
        expected = {"shared": tuple(last), "given": ("netns:d",)}.get(measures)
        if expected:
            assert place == expected
        else:
            assert (place.lab, place.steal) == (f"{where.lab or 'netns:a'} is up", where.steal)
