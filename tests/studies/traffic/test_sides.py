"""The DUT's side of a trial, whose loader or application writes down what is asked of it."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.doubles.calls import AtOnce, Calls, shown

from xdplab.deploy.afxdp import AfxdpReady, AfxdpRequest, QueueReady, QueueStats, Stats
from xdplab.deploy.deployment import Deployment, Sockets
from xdplab.deploy.xdp import InKernel, RunStats, XdpRequest
from xdplab.errors import HostError, ProgramError
from xdplab.studies.traffic import dut
from xdplab.studies.traffic.dut import SESSION_S, AfxdpSide, KernelSide
from xdplab.studies.traffic.two_ports import TwoPortSide
from xdplab.studies.trial_facts import HintCounts, Missing

FIRST, OTHER = XdpRequest("/a.o", "vd0", "native", init={"a": "1"}), XdpRequest("/b.o", "vd1", "generic")
HOST: Any = SimpleNamespace(name="dut")
READER: Any = SimpleNamespace(name="reader")


class Loader:
    """xdpload with a program on a port, whose numbers are those of the port."""

    def __init__(self, calls: Calls, request: XdpRequest) -> None:
        if request.mode == "gone":
            raise HostError("it is gone")
        number = int(request.interface[-1:]) + 1
        loaded = SimpleNamespace(program_id=number, name="p", tag="t", jit=True, load_ns=2, verified_insns=3,
                                 xlated_insns=4, jited_bytes=5, device=None, map_ids=(7, 8))  # fmt: skip
        self.request, self.loaded = request, loaded
        self.attached = SimpleNamespace(attach_ns=6, mode_obtained=f"{request.mode} as obtained")
        self.raw, self.name = (
            f"printed at {request.interface}",
            f"{'counter' if request.count_actions else 'loader'} of {request.object}",
        )

        answers = {
            "in_kernel": None, "close": None, "detach": None, "fill": None, "bpf_stats": None, "stats_cost": 4.5,
            "runstats": RunStats(9, number), "records": "records",
            "count": [10 * number, number, 300 + number, 400 + number, 9], "begin_slices": None,
            "await_slices": None, "exchange": None, "decided": "decided",
        }  # fmt: skip
        for name, answer in answers.items():
            setattr(self, name, calls.of(f"{request.interface} {name}", answer))
        self.calls = calls

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *error: object) -> None:
        self.calls.append(f"{self.request.interface} ends")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    calls = Calls()
    loads = lambda host, binary, request, deadline_s: Loader(calls, request)  # noqa: E731
    monkeypatch.setattr(dut, "attach", calls.of("attach", loads))
    monkeypatch.setattr(dut, "ThreadPoolExecutor", AtOnce)
    return calls


def test_a_program_is_attached_read_and_let_go(calls: Calls) -> None:
    side = KernelSide(HOST, READER, "/xdpload", FIRST, queues=3)
    side.require()
    side.fill()
    side.bpf_stats(True)
    assert calls == [
        f"attach dut /xdpload {shown(FIRST)} deadline_s={SESSION_S}", "vd0 in_kernel reader",
        "vd0 fill", "vd0 bpf_stats True",
    ]  # fmt: skip
    assert side.deployment == Deployment("vd0", "native", "native as obtained", 3, 1, "p", "t", True, 2, 6, 3, 4, 5)
    assert (side.counts(), side.stats_cost(), side.runstats(), side.records()) == (None, 4.5, RunStats(9, 1), "records")
    assert (side.hints(), side.raw_files()) == (HintCounts(10, 1, 301, 401), {"xdpload.jsonl": b"printed at vd0"})
    calls.clear()
    side.stop()
    side.close()
    assert calls == ["vd0 detach", "vd0 close"]


def test_a_port_is_let_go_of_if_the_program_is_not_at_the_other_one(calls: Calls) -> None:
    with pytest.raises(HostError):
        TwoPortSide(HOST, READER, "/xdpload", (FIRST, replace(OTHER, mode="gone")), queues=1)
    assert [line for line in calls if "close" in line] == ["vd0 close"]


def test_a_rival_takes_turns_and_the_counter_gives_its_place_back(calls: Calls) -> None:
    side = KernelSide(HOST, READER, "/xdpload", FIRST, queues=1)
    calls.clear()
    side.slices("/xdpload", OTHER, calls.of("sends"), 17)
    assert side.decided("/xdpload", FIRST, calls.of("sends")) == ("decided", b"printed at vd0")
    rival, counter = replace(OTHER, mode="none"), replace(FIRST, init={}, count_actions=True, share_maps=(7, 8))
    assert calls == [
        f"attach dut /xdpload {shown(rival)} deadline_s={SESSION_S}", "vd1 fill",
        "vd0 begin_slices loader of /b.o 0.005 100 17", "vd0 await_slices 31.6", "sends", "vd1 ends",
        f"attach dut /xdpload {shown(counter)} deadline_s={SESSION_S}", "vd0 exchange counter of /a.o", "sends",
        "vd0 decided", "vd0 exchange loader of /a.o", "vd0 detach", "vd0 ends",
    ]  # fmt: skip


def test_slices_that_are_not_measured_are_an_error(calls: Calls) -> None:
    side = KernelSide(HOST, READER, "/xdpload", FIRST, queues=1)

    def gone(within_s: float) -> None:
        raise HostError("no frame came")

    side._loader.await_slices = gone  # type: ignore[method-assign]
    with pytest.raises(HostError, match="no frame came"):
        side.slices("/xdpload", OTHER, calls.of("sends"), 17)
    assert calls[-2:] == ["sends", "vd1 ends"]


def test_two_ports_are_read_and_ended_together(calls: Calls) -> None:
    side = TwoPortSide(HOST, READER, "/xdpload", (FIRST, OTHER), queues=2)
    calls.clear()
    side.require()
    side.stop()
    side.close()
    asked = ("in_kernel reader", "detach", "close")
    assert calls == [f"{port} {what}" for what in asked for port in ("vd0", "vd1")]
    assert side.hints() == HintCounts(10 + 20, 1 + 2, 301 + 302, 401 + 402)
    assert side.raw_files() == {"xdpload.jsonl": b"printed at vd0", "xdpload_second.jsonl": b"printed at vd1"}
    assert (side.deployment.interface, side.runstats()) == ("vd0", RunStats(9, 1))


@pytest.mark.parametrize("error", [ProgramError("BPF statistics were on"), None])
def test_why_a_program_has_no_test_run_is_kept(
    error: ProgramError | None, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(loader: Loader, frames: Any) -> str:
        if error:
            raise error
        return f"of {loader.name} {frames}"

    monkeypatch.setattr(dut, "run_frames", run)
    frames: Any = "frames"
    expected: Any = Missing("BPF statistics were on") if error else "of loader of /a.o frames"
    assert KernelSide(HOST, READER, "/xdpload", FIRST, queues=1).testrun(frames) == expected


STATS = Stats((QueueStats(0, *range(11)),), 2, 900)


@pytest.mark.parametrize(("bind", "fits"), [("zerocopy", True), ("copy", False)])
def test_an_application_is_asked_as_a_program_is_and_one_that_is_bound_otherwise_is_ended(
    bind: str, fits: bool, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = AfxdpReady((QueueReady(0, 3, "zerocopy"), QueueReady(1, 2, "zerocopy")), 5, "native", "fifo")
    request = AfxdpRequest("vd0", 1, "/w.so", attach="generic", bind=bind)
    forwarder = SimpleNamespace(ready=ready, request=request, stats=calls.of("stats", STATS), stop=calls.of("stop"),
                                close=calls.of("close"), raw="printed")  # fmt: skip
    monkeypatch.setattr(dut, "forward", calls.of("forward", forwarder))
    monkeypatch.setattr(dut, "verify", calls.of("verify", InKernel("as obtained", 5, "p", "t", False)))
    begins = f"forward dut /afxdp {shown(request)} deadline_s={SESSION_S}"
    if not fits:
        with pytest.raises(HostError, match="bound zerocopy, copy"):
            AfxdpSide(HOST, READER, "/afxdp", request)
        assert calls == [begins, "close"]
        return
    side, asks = AfxdpSide(HOST, READER, "/afxdp", request), "verify reader vd0 program_id=5 mode=generic"
    side.require()
    sockets = Sockets("generic", "as obtained", "zerocopy", "zerocopy", "fifo", (3, 2))
    assert side.deployment == Deployment("vd0", "af_xdp", "af_xdp", 2, 5, "p", "t", False, sockets=sockets)
    assert (side.counts(), side.raw_files()) == (STATS, {"afxdp.jsonl": b"printed"})
    side.stop()
    side.close()
    assert calls == [begins, asks, asks, "stats", "stats", "stop", "close"]
    assert (side.stats_cost(), side.runstats(), side.records()) == (None, None, None)
    assert isinstance(side.testrun(None), Missing)  # type: ignore[arg-type]
