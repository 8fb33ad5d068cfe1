"""xdpload sessions are attached and verified, and end with their owner; every refusal has the right error class."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.doubles.hosts import Played

from xdplab.deploy import xdp
from xdplab.deploy.deployment import Deployment
from xdplab.deploy.device import restore, snapshot
from xdplab.deploy.xdp import (
    Decided,
    FreshRuns,
    InKernel,
    Outcomes,
    PortFrame,
    RecordCounts,
    RunStats,
    XdpLoader,
    XdpRequest,
    attach,
    attached_program,
    await_nothing_attached,
    verify,
)
from xdplab.errors import HostError, ProgramError
from xdplab.hosts.tool import ToolSession

pytestmark = pytest.mark.root


@pytest.fixture
def request_drop(drop_object: Path) -> XdpRequest:
    return XdpRequest(str(drop_object), "vd0", "native")


@pytest.mark.parametrize("answer", ["loaded", "attached"])
def test_a_signal_between_two_answers_leaves_no_program(lab, xdpload, request_drop, monkeypatch, answer):
    """The loader survived, and the TG's device was restored while its program was attached: "vg0 is not as it was"."""
    before = snapshot(lab.tg.host, "vg0")
    read = ToolSession.read

    def interrupted(session: ToolSession, kind: str, timeout_s: float = 30.0) -> dict[str, object]:
        found = read(session, kind, timeout_s)
        if kind == answer:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(ToolSession, "read", interrupted)
    with pytest.raises(KeyboardInterrupt) as kept:  # its traceback keeps the loader alive
        attach(lab.dut.host, xdpload, request_drop)
    await_nothing_attached(lab.dut.host, "vd0", within_s=5)
    restore(lab.tg.host, "vg0", before)
    assert kept.value is not None


def test_what_a_lost_connection_held_is_awaited(monkeypatch):
    """The kernel releases it after the connection's end, not with it."""
    shown = [InKernel("native", 7, "drop", "tag", True)] * 2 + [InKernel(None, None, None, None, False)]
    monkeypatch.setattr(xdp, "attached_program", lambda host, interface: shown.pop(0))
    await_nothing_attached(Played(), "vd0")
    assert not shown


@pytest.mark.parametrize("mode", ["native", "generic"])
def test_attach_verify_detach(lab, xdpload, drop_object, mode):
    host = lab.dut.host
    with attach(host, xdpload, XdpRequest(str(drop_object), "vd0", mode)) as loader:
        found = verify(host, "vd0", program_id=loader.loaded.program_id, mode=mode)
        assert (found.tag, found.program_name) == (loader.loaded.tag, "drop")
        assert loader.attached.mode_obtained == mode
        with pytest.raises(HostError, match=f"in offload mode, but the kernel says program .* in {mode} mode"):
            verify(host, "vd0", program_id=loader.loaded.program_id, mode="offload")
        assert loader.loaded.xlated_insns == 2
        assert len(loader.testrun(64, 1000, 3)) == 3
        assert Deployment.of_loader(loader, queues=8).mode_obtained == mode
        loader.detach()
    await_nothing_attached(host, "vd0", within_s=0)
    assert [json.loads(line)["type"] for line in loader.raw.splitlines()] == [
        "loaded",
        "attached",
        "testrun",
        "detached",
    ]


def test_bpf_statistics_count_the_runs(lab, xdpload, request_drop):
    with attach(lab.dut.host, xdpload, request_drop) as loader:
        loader.bpf_stats(True)
        lab.send(1000)
        stats, cost = loader.runstats(), [loader.stats_cost() for _ in range(3)]
        loader.bpf_stats(False)
        with pytest.raises(HostError, match="not switched on"):
            loader.stats_cost()
    assert stats.run_cnt == 1000
    assert stats.run_time_ns > 0
    assert 0 < max(cost) < 3 * min(cost)  # whatever else the CPU does meanwhile


def test_an_object_that_is_not_there_is_a_program_error(lab, xdpload):
    with pytest.raises(ProgramError, match=r"/nosuch\.o"):
        attach(lab.dut.host, xdpload, XdpRequest("/nosuch.o", "vd0", "native"))


def test_the_program_of_a_process_that_is_still_ending_is_waited_for(lab, xdpload, request_drop):
    """As after a lost connection: under a flood, the kernel takes a second or more to detach a program."""
    former = attach(lab.dut.host, xdpload, request_drop)
    ending = threading.Timer(3.0, former.close)
    ending.start()
    try:
        with attach(lab.dut.host, xdpload, request_drop) as now:
            assert attached_program(lab.dut.host, "vd0").program_id == now.loaded.program_id
    finally:
        ending.join()


def test_verify_names_what_it_finds_instead(lab, drop_object):
    lab.attach(lab.dut, drop_object)
    with pytest.raises(HostError, match=r"should run program 999999999 in native mode, but the kernel says program"):
        verify(lab.dut.host, "vd0", program_id=999999999, mode="native")
    with pytest.raises(HostError, match="vg0 should run program 1 in generic mode, but the kernel says nothing"):
        verify(lab.tg.host, "vg0", program_id=1, mode="generic")


def test_a_tool_that_cannot_start_is_a_host_error(lab, request_drop):
    with pytest.raises(HostError, match="No such file or directory"):
        attach(lab.dut.host, "/no/such/xdpload", request_drop)


def test_the_command_line_is_the_contracts():
    request = XdpRequest(
        "p.o", "vd0", "native", section="xdp", rodata={"n": 4, "on": True}, init={"state": "f"}, max_entries={"m": 8}
    )
    expected = "xdpload --object p.o --interface vd0 --mode native --section xdp"
    filled = "--rodata n=4 --rodata on=1 --init state=f --max-entries m=8"
    assert " ".join(request.argv("xdpload")) == f"{expected} {filled}"
    more = replace(request, program="mine", options=("--map", "m"), entries={"m": "e"}, count_actions=True)
    shared = f" --program mine --map m --count-actions --share-maps {{}} {filled}"
    for maps, names in (((), "none"), ((3, 4), "3,4")):
        words = " ".join(replace(more, share_maps=maps).argv("xdpload"))
        assert words == f"{expected}{shared.format(names)} --entries m=e"


ACTIONS = {"aborted": 1, "drop": 2, "pass": 3, "tx": 4, "redirect": 5, "other": 6}
RECORDS = {
    "ring_records": 1,
    "ring_full": 2,
    "perf_records": 3,
    "perf_lost": 4,
    "others": False,
    "reader_ns": 5,
    "cpus": [6],
}
FRESH = {"call_ns": [1.5], "empty_call_ns": [0.5], "empty_ns": 0.25, "actions": ACTIONS}


@pytest.mark.parametrize(
    ("ask", "line", "answer", "value"),
    [
        (lambda one: one.count("seen"), "count seen", {"values": [1, 2]}, [1, 2]),
        (lambda one: one.count(), "count", {"values": [1, 2]}, [1, 2]),
        (lambda one: one.records(), "records", RECORDS, RecordCounts(1, 2, 3, 4, False, 5, (6,))),
        (lambda one: one.decided(), "decided", ACTIONS | {"targets": None, "targets_missing": "why"},
         Decided(ACTIONS, None, "why")),
        (lambda one: one.bpf_stats(True), "bpf_stats on", {}, None),
        (lambda one: one.bpf_stats(False), "bpf_stats off", {}, None),
        (lambda one: one.stats_cost(), "stats_cost", {"run_time_ns": 90, "run_cnt": 20}, 4.5),
        (lambda one: one.runstats(), "runstats", {"run_time_ns": 90, "run_cnt": 20}, RunStats(90, 20)),
        (lambda one: one.begin_slices(one, 0.005, 100, 17), "alternate 9 5000 100 17", {}, None),
        (lambda one: one.await_slices(3.0), "waits 3.0", {}, None),
        (lambda one: one.exchange(one), "exchange 9", {}, None),
        (lambda one: one.fill(), "fill", {}, None),
        (lambda one: one.give([PortFrame(b"\1\2", 1), PortFrame(64)]), "frames 2|0x0102 1|64 0", {}, None),
        (lambda one: one.outcomes(7), "outcomes 7", {"actions": ACTIONS, "changed": 8, "call_ns": 9.5},
         Outcomes(ACTIONS, 8, 9.5)),
        (lambda one: one.fresh_runs(7, 3), "fresh 7 3", FRESH, FreshRuns((1.5,), (0.5,), 0.25, ACTIONS)),
        (lambda one: one.testruns([PortFrame(64, 1), PortFrame(65)], 7, 3), "testrun 64 7 3 1|testrun 65 7 3 0",
         {"ns": [1, 2]}, [[1.0, 2.0], [1.0, 2.0]]),
        (lambda one: one.testrun(64, 7, 3), "testrun 64 7 3 0", {"ns": [1, 2]}, [1.0, 2.0]),
        (lambda one: one.detach(), "detached", {}, None),
    ],
)  # fmt: skip
def test_a_loader_is_asked_in_its_words_and_its_answers_are_those_of_their_names(
    ask: Any, line: str, answer: dict[str, Any], value: Any
) -> None:
    lines: list[str] = []
    loader = XdpLoader.__new__(XdpLoader)

    def answered(text: str, kind: str = "", within_s: float = 0) -> dict[str, Any]:
        lines.append(text.replace("\n", "|"))
        return answer

    vars(loader).update(
        loaded=SimpleNamespace(program_id=9, record_maps=1),
        request=XdpRequest("p.o", "vd0", "native", entries={"m": "e"}),
        ask=answered, ask_each=lambda texts, kind: [answered(text) for text in texts], finish=lines.extend,
        read=lambda kind, within_s: answered(f"waits {within_s}"),
    )  # fmt: skip
    assert ask(loader) == value
    assert "|".join(lines) == line
    vars(loader).update(loaded=SimpleNamespace(record_maps=0), request=XdpRequest("p.o", "vd0", "native"))
    lines.clear()
    loader.fill()
    assert (loader.records(), lines) == (None, []), "a program without records or entries is not asked for them"


@pytest.mark.parametrize("mode", ["native", "tc", "tcx"])
def test_what_is_attached_is_read_from_the_kernel_or_by_the_loader_in_the_modes_of_tc(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = XdpLoader.__new__(XdpLoader)
    obtained = {"mode_obtained": mode, "attach_ns": 1}
    vars(loader).update(
        loaded=SimpleNamespace(program_id=9, name="p", tag="t", jit=True), request=XdpRequest("p.o", "vd0", mode),
        host=SimpleNamespace(name="dut"), ask=lambda *_: obtained,
    )  # fmt: skip
    monkeypatch.setattr(xdp, "verify", lambda reader, port, program_id, mode: f"{reader} {port} {program_id} {mode}")
    asked: Any = loader.in_kernel("reader")  # type: ignore[arg-type]
    assert asked == ("reader vd0 9 native" if mode == "native" else InKernel(mode, 9, "p", "t", True))
    obtained["mode_obtained"] = "offload"
    vars(loader).update(read=lambda kind: obtained)
    for asks in (loader._read_attached, *[lambda: loader.in_kernel("reader")] * (mode != "native")):  # type: ignore[arg-type]
        with pytest.raises(HostError, match=f"should run program 9 in {mode} mode first"):
            asks()
