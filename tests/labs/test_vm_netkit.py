"""A guest whose link is a netkit: a program that runs as the other end sends, its counts, an older kernel's words."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.available import guest_kernel
from tests.end_to_end.conftest import measured, plan

from xdplab import labs
from xdplab.deploy.native import build_tool
from xdplab.deploy.xdp import XdpRequest, attach
from xdplab.errors import HostError, LabError
from xdplab.generators import Generator, GeneratorSettings
from xdplab.hosts.local import LocalHost
from xdplab.labs.vm.lab import VmLab
from xdplab.programs.build import build
from xdplab.programs.spec import ProgramSpec

pytestmark = [pytest.mark.thorough, pytest.mark.guest]
NAME = "vm:6.12:functional:netkit"
BLOCKS = (
    "[{points: {mode: [netkit, tcx, native], workload: array, accesses: 0}, traffic: {load: 1kpps}, passes: [rate]}]"
)


@pytest.fixture(scope="module")
def lab() -> Iterator[VmLab]:
    guest_kernel("6.12")
    with labs.use_lab(NAME) as lab:
        yield lab


def link_counts(lab: VmLab) -> dict[str, int]:
    folder = f"/sys/class/net/{lab.dut_interface}/statistics"
    return {name: int(lab.dut.run(["cat", f"{folder}/{name}"]).text) for name in ("rx_packets", "tx_packets")}


def test_each_frame_comes_back_and_only_the_way_back_is_counted_at_the_duts_end(lab: VmLab, tmp_path: Path) -> None:
    program = build(ProgramSpec(workload="array", accesses=100, hook="tc"), tmp_path).object
    tools = {}
    for host, tool in ((lab.dut, "xdpload"), (lab.tg, "xdpgen")):
        build_tool(LocalHost(), tool, str(lab.native_dir))
        tools[tool] = build_tool(host, tool, f"{lab.work_dir(host)}/native")
    there = f"{lab.work_dir(lab.dut)}/netkit.o"
    lab.dut.put(program, there)
    request = XdpRequest(there, lab.dut_interface, "netkit", section="tc")
    sending = GeneratorSettings("live", lab.tg_interface).changed(
        rate_pps=1000.0, src_mac=lab.tg_mac, dst_mac=lab.dut_mac, settle_s=5.0
    )
    with (
        attach(lab.dut, tools["xdpload"], request, deadline_s=60.0) as loader,
        Generator(lab.tg, sending, tools["xdpgen"]) as generator,
    ):
        assert loader.attached.mode_obtained == "netkit"
        with pytest.raises(HostError, match="already has"):
            attach(lab.dut, tools["xdpload"], request, deadline_s=60.0)
        generator.start()
        before = link_counts(lab)
        burst = generator.burst("rate", 0.3).summary
        after = link_counts(lab)
        generator.stop()
        loader.detach()
    gained = {name: after[name] - before[name] for name in after}
    assert burst.rx_packets == burst.tx_packets > 0
    assert gained == {"rx_packets": 0, "tx_packets": burst.tx_packets}


@pytest.mark.nightly
def test_a_plan_runs_through_it_beside_tcx_and_native_is_refused(lab: VmLab, tmp_path: Path) -> None:
    trials = measured(NAME, tmp_path, plan(BLOCKS, window_s=0.3, settle_s=0.5, pause_s=0.02, retries=0)).set_index(
        "mode"
    )
    assert trials["verdict"].to_dict() == {"netkit": "valid", "tcx": "valid", "native": "unsupported"}
    counts = trials.loc[["netkit", "tcx"], ["tx_packets", "rx_packets", "dut_tx_packets"]]
    assert (counts.nunique(axis=1).eq(1) & counts["tx_packets"].gt(0)).all(), counts
    assert trials["dut_rx_packets"].isna().to_dict() == {"netkit": True, "tcx": False, "native": True}


@pytest.mark.nightly
def test_a_kernel_without_it_says_so() -> None:
    guest_kernel("6.1")
    with labs.use_lab("vm:6.1:functional:netkit") as lab, pytest.raises(LabError, match="no netkit pair"):
        lab.dut_interface  # noqa: B018 - the link is made on first use
