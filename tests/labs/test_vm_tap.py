"""A lab with a guest behind a tap: traffic from a namespace of this machine through virtio-net, and nothing is left."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.available import guest_kernel
from tests.end_to_end.conftest import measured, plan
from tests.waiting import children, runs, until

from xdplab import labs
from xdplab.deploy.native import build_tool
from xdplab.deploy.queues import Endpoint, set_queues
from xdplab.deploy.xdp import XdpRequest, attach
from xdplab.errors import LabError
from xdplab.formats.ethtool import parse_statistics
from xdplab.generators import Generator, GeneratorSettings
from xdplab.hosts.local import LocalHost
from xdplab.labs.vm import kernels, tap
from xdplab.labs.vm.lab import KEEPERS
from xdplab.programs.build import build
from xdplab.programs.spec import ProgramSpec

pytestmark = [pytest.mark.thorough, pytest.mark.root, pytest.mark.guest]
NAME = "vm:6.1.0:functional:tap"  # a name of its own: other tests end guests of 6.1
BLOCKS = """
- points: {mode: [native, generic], queues: 4, workload: array, accesses: 0}
  traffic: {engine: afxdp, load: 2kpps}
  passes: [rate]
- points: {mode: offload, workload: array, accesses: 0}
  passes: [rate]
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[tap.TapLab]:
    if not Path("/dev/net/tun").exists():
        pytest.skip("this kernel has no tap: there is no /dev/net/tun")
    guest_kernel()
    with labs.use_lab(NAME) as lab:
        yield lab


def test_the_guest_is_the_dut_and_the_tg_is_here(lab: tap.TapLab) -> None:
    releases = [host.run(["uname", "-r"]).text.strip() for host in (lab.dut, lab.tg)]
    assert releases == [kernels.kernel("6.1").release, os.uname().release]
    assert "virtio_net" in lab.dut.run(["ethtool", "-i", lab.dut_interface]).text
    assert "type tap" in " ".join(lab.tg.run(["ip", "-d", "link", "show", lab.tg_interface]).text.split("tun "))
    assert lab.clock is None
    assert lab.label == "virtual lab, vm 6.1.0, functional: no times, tap"


def test_four_queues_carry_what_the_tg_sends_and_both_ends_count_the_same(lab: tap.TapLab, tmp_path: Path) -> None:
    set_queues(Endpoint(lab.dut, lab.dut_interface), None, 4)
    program = build(ProgramSpec(workload="array", accesses=0), tmp_path).object
    build_tool(LocalHost(), "xdpload", str(lab.native_dir))
    xdpload = build_tool(lab.dut, "xdpload", f"{lab.work_dir(lab.dut)}/native")
    xdpgen = build_tool(lab.tg, "xdpgen", f"{lab.work_dir(lab.tg)}/native")
    there = f"{lab.work_dir(lab.dut)}/tap.o"
    lab.dut.put(program, there)
    sending = GeneratorSettings("afxdp", lab.tg_interface, queues=4).changed(
        rate_pps=2000.0,
        src_mac=lab.tg_mac,
        dst_mac=lab.dut_mac,
        settle_s=5.0,  # at most: beside real-time threads an emulated guest may be late for seconds
    )
    request = XdpRequest(there, lab.dut_interface, "native", section="xdp")
    with attach(lab.dut, xdpload, request, deadline_s=60.0) as loader, Generator(lab.tg, sending, xdpgen) as generator:
        assert loader.attached.mode_obtained == "native"
        generator.start()
        burst = generator.burst("rate", 0.3)
        counted = parse_statistics(lab.dut.run(["ethtool", "-S", lab.dut_interface]).stdout)
        generator.stop()
        loader.detach()
    received = [counted[f"rx_queue_{queue}_xdp_packets"] for queue in range(4)]
    sent = sum(counted[f"rx_queue_{queue}_xdp_tx"] for queue in range(4))
    assert all(received), received
    assert burst.summary.tx_packets == sum(received)
    assert 0 < burst.summary.rx_packets == sent


@pytest.mark.nightly
def test_a_plan_runs_through_it_and_rates_stay_null(lab: tap.TapLab, tmp_path: Path) -> None:
    trials = measured(NAME, tmp_path, plan(BLOCKS, window_s=0.3, settle_s=0.5, pause_s=0.02, retries=0)).set_index(
        "mode"
    )
    assert trials["verdict"].to_dict() == {"native": "valid", "generic": "valid", "offload": "unsupported"}
    assert "(virtio_net) does not take" in trials.loc["offload", "reason"]
    assert (trials.loc[["native", "generic"], "rx_packets"] > 0).all()
    assert trials.loc["native", "queues_reached"] == 4
    assert trials["forwarded_pps"].isna().all()


def test_a_split_of_its_cpus_is_refused(lab: tap.TapLab) -> None:
    with pytest.raises(LabError, match="CPUs are threads of this machine"):
        lab.place("split", 1)


def test_whoever_is_not_root_is_told_what_to_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LabError, match="need root") as refused:
        labs.up("vm:6.1:count:asked:tap")
    assert "xdplab --lab vm:6.1:count:asked:tap lab up --for-user" in str(refused.value.remedy)


def test_nothing_is_left_when_the_keeper_is_killed(lab: tap.TapLab) -> None:
    """The last test of this lab."""
    (row,) = [row for row in KEEPERS.status(0) if row["lab"] == NAME]
    tree = [*children(row["pid"]), *(pid for child in children(row["pid"]) for pid in children(child))]
    assert len(tree) >= 3  # QEMU, the holder of the namespace, and its PID 1
    os.kill(row["pid"], signal.SIGKILL)
    assert until(lambda: not any(map(runs, tree)), 5.0)
    assert tap.tap_link.INTERFACE not in subprocess.check_output(["ip", "-br", "link"], text=True)
    assert not any(row["lab"] == NAME for row in KEEPERS.status(0))
