"""dpdk-testpmd as a generator: its tool against a double, and against the real one over a veth where there is one."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.end_to_end.conftest import measured, plan
from tests.labs.rack import rack, written

from xdplab import labs
from xdplab.formats.generator import Output, parse_output
from xdplab.generators import GeneratorSettings
from xdplab.generators.testpmd import ADDRESSES, TOOL, eal_arguments
from xdplab.generators.testpmd import testpmd as adapter  # pytest would take the name for a test's

HERE = Path(__file__).parent
SOURCE = Path(adapter.__code__.co_filename).with_name(TOOL)
SETTINGS = GeneratorSettings("testpmd", "0").changed(queues=2, stamp="none", batch=32, settle_s=0.01, **ADDRESSES)


def command(*eal: str, path: str = str(HERE / "testpmd_double.py")) -> list[str]:
    words = adapter(path, port=0, cores=(1, 0), eal=eal).argv(SETTINGS, str(SOURCE))
    assert words[:3] == ["sh", "-c", 'exec python3 "$0" "$@"']
    return [sys.executable, *words[3:]]


def ran(*bursts: str, eal: tuple[str, ...] = ()) -> tuple[Output, int]:
    """Ask for the bursts one by one, and close the pipe after the last one."""
    with subprocess.Popen(command(*eal), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as tool:
        lines = [tool.stdout.readline()]
        for burst in bursts if "ready" in lines[0] else ():
            tool.stdin.write(f"burst {burst}\n")
            tool.stdin.flush()
            while "histogram" not in lines[-1]:
                lines.append(tool.stdout.readline())
            lines.append("")
        tool.stdin.close()
        lines.append(tool.stdout.read())
        return parse_output("".join(lines)), tool.wait(30)


def test_frames_that_come_late_count_and_missed_ones_are_the_ports() -> None:
    output, code = ran("path 0.02", "rate 0.3")
    assert code == 0
    assert output.ready.settings["src_mac"] == "00:01:02:03:04:00"
    assert [burst.name for burst in output.bursts] == ["path", "rate"]
    for burst in output.bursts:
        s = burst.summary
        assert s.rx_window_packets == s.tx_packets - 10
        assert s.rx_packets == s.tx_packets - 3
        assert s.lost_packets == s.device_rx_missed == 3
        assert s.device_tx_packets == s.tx_packets == sum(part.tx_packets for part in burst.intervals)
        assert s.device_rx_packets == s.rx_packets
        assert s.duplicates is None
        assert "no number" in s.missing["duplicates"]
    assert output.bursts[1].summary.duration_s == pytest.approx(0.3, abs=0.25)
    assert output.bursts[1].summary.tx_packets / output.bursts[1].summary.duration_s == pytest.approx(1000, rel=0.1)


def test_dpdks_own_reason_is_told() -> None:
    output, code = ran("rate 0.1", eal=("--no-port",))
    assert code == 1
    assert "No probed ethernet devices" in output.failure.message


def test_it_ends_with_its_pipe() -> None:
    with subprocess.Popen(command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as tool:
        assert json.loads(tool.stdout.readline())["type"] == "ready"
        tool.stdin.write("burst long 600\n")
        tool.stdin.flush()
        assert json.loads(tool.stdout.readline())["type"] == "interval"
        began = time.monotonic()
        tool.stdin.close()
        assert tool.wait(30) == 1
        assert time.monotonic() - began < 5


def test_the_one_card_is_named_as_this_dpdk_wants_it() -> None:
    assert eal_arguments([], "0000:3b:00.0")[2:] == ["-a", "0000:3b:00.0"]
    assert eal_arguments(["--no-pci"], "0000:3b:00.0")[:2] == ["--no-pci", "--file-prefix"]
    assert "-a" not in eal_arguments(["--no-pci"], "0000:3b:00.0")


BLOCKS = """
- points: {mode: [generic, af_xdp, native], xsk_attach: generic, workload: array, accesses: [0, 100]}
  traffic: {engine: testpmd, stamp: none, src_ip: 10.254.0.0, dst_ip: 10.253.0.0, src_port: 1000, dst_port: 1001}
  passes: [rate]
"""


@pytest.fixture
def rack_with_testpmd(tmp_path: Path) -> Iterator[str]:
    if not shutil.which("dpdk-testpmd"):
        pytest.skip("no dpdk-testpmd (package dpdk)")
    with labs.use_lab(f"netns:pmd-{os.getpid()}") as lab:
        content = rack(lab, tmp_path)
        dpdk = ["--no-huge", "-m", "256", "--no-pci", "--no-shconf"]
        vdev = f"--vdev=net_af_packet0,iface={lab.tg_interface},framecnt=4096"
        content["tg"]["generator"] = {"kind": "testpmd", "hugepages": 0, "dpdk": [*dpdk, vdev]}
        yield written(content, tmp_path)


@pytest.mark.root
@pytest.mark.lab
def test_trials_with_the_real_testpmd_are_valid(rack_with_testpmd: str, tmp_path: Path) -> None:
    trials = measured(rack_with_testpmd, tmp_path, plan(BLOCKS, window_s=0.3, settle_s=0.3, pause_s=0.02))
    native = trials["mode"] == "native"
    assert trials["verdict"][~native].eq("valid").all(), trials["reason"].tolist()
    assert trials["verdict"][native].eq("unsupported").all()
    there, back = ("tx_packets", "tg_port_tx_packets", "dut_rx_packets"), ("dut_tx_packets", "rx_packets")
    for _, row in trials[~native].iterrows():
        # At maximum load the AF_XDP application may lose frames; the kernel's program runs in the sender's call.
        alike = [(*there, *back)] if row["mode"] == "generic" else [there, back]
        for counts in alike:
            assert len({row[name] for name in counts}) == 1, row[[*there, *back]].to_dict()
