"""xdpload sessions are attached and verified, and end with their owner; every refusal has the right error class."""

import json
import threading
from pathlib import Path

import pytest
from tests.doubles.hosts import Played

from xdplab.deploy import xdp
from xdplab.deploy.deployment import Deployment
from xdplab.deploy.device import restore, snapshot
from xdplab.deploy.xdp import InKernel, XdpRequest, attach, attached_program, await_nothing_attached, verify
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
        assert Deployment.of_loader(loader, found, queues=8).mode_obtained == mode
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
        "p.o", "vd0", "native", section="xdp", rodata={"n": 4}, init={"state": "f"}, max_entries={"m": 8}
    )
    expected = "xdpload --object p.o --interface vd0 --mode native --section xdp"
    assert " ".join(request.argv("xdpload")) == f"{expected} --rodata n=4 --init state=f --max-entries m=8"
