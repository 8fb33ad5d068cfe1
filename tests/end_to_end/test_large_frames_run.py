"""Plans with frames above 1518 bytes, with real traffic: the MTU of both ends, several buffers, what is refused."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.conftest import measured, plan, run_of, source, trials_of
from xdplab.deploy.device import snapshot
from xdplab.labs import Lab

pytestmark = [pytest.mark.root, pytest.mark.lab]

TRAFFIC = "{engine: afxdp, load: 2kpps, ip_version: 6}"
SIZES = f"""
  - points: {{mode: [native, generic, af_xdp], frame_bytes: 9216, workload: packet, op: write, accesses: 9300}}
    traffic: {TRAFFIC}
  - points: {{mode: native, frame_bytes: [1518, 3524], accesses: 0}}
    traffic: {TRAFFIC}
"""


def mtus(lab: Lab) -> list[object]:
    ends = ((lab.dut, lab.dut_interface), (lab.tg, lab.tg_interface))
    return [snapshot(host, interface).values["link.mtu"] for host, interface in ends]


def test_each_frame_of_any_size_comes_back_and_the_mtu_is_as_it_was(lab: Lab, lab_name: str, tmp_path: Path) -> None:
    """The receiver checks the UDP checksum over the whole frame; the program has written each byte of it."""
    run = run_of(lab_name, tmp_path, plan(SIZES))
    trials = trials_of(run)
    assert len(trials) == 8  # the largest with their baselines
    assert trials["verdict"].eq("valid").all(), trials["reason"].tolist()
    for column in ("dut_rx_packets", "rx_packets"):
        assert trials[column].eq(trials["tx_packets"]).all(), column
    assert trials["foreign_packets"].eq(0).all()
    assert trials.loc[trials["mode"] == "af_xdp", "dut_foreign_packets"].eq(0).all()
    assert set(zip(trials["frame_bytes"], trials["frags"], strict=True)) == {(1518, "off"), (3524, "off"), (9216, "on")}
    for trial, size in zip(trials["trial_id"], trials["frame_bytes"], strict=True):
        settings = json.loads((run / f"raw/{trial}/1/applied.json").read_text())["settings"]
        of_mtu = [one for one in settings if "link.mtu" in one["requested"]]
        assert {one["interface"] for one in of_mtu} == {lab.dut_interface, lab.tg_interface}
        assert all(one["requested"] == one["obtained"] == {"link.mtu": max(1500, size - 18)} for one in of_mtu)
    assert mtus(lab) == [1500, 1500]


@pytest.mark.thorough
def test_ctrl_c_brings_the_mtu_back(lab: Lab, lab_name: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(plan(f"[{{points: {{frame_bytes: 9216}}, traffic: {TRAFFIC}}}]", 30))
    argv = [sys.executable, "-m", "xdplab", "--lab", lab_name, "run", "p.yaml", "--out", "out"]
    child = subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    next(line for line in child.stdout if "measured" in line)
    assert mtus(lab) == [9198, 9198]
    child.send_signal(signal.SIGINT)
    rest = child.communicate(timeout=60)[0]
    assert child.returncode == 130, rest
    assert mtus(lab) == [1500, 1500]


REFUSED = f"""
  - points: {{mode: native, frame_bytes: 9000, frags: false}}
    traffic: {TRAFFIC}
  - points: {{mode: af_xdp, xsk_attach: [native, generic], frame_bytes: 9000, frags: false}}
    traffic: {TRAFFIC}
  - points: {{mode: native, frame_bytes: 9000, device: [{{link.mtu: 5000}}]}}
    traffic: {TRAFFIC}
  - points: {{mode: native, frame_bytes: 9000}}
  - points: {{mode: [native, generic], frame_bytes: 9000,
             program: [{{file: back.bpf.c}}, {{file: buffers.bpf.c, section: xdp.frags}}]}}
    traffic: {TRAFFIC}
"""


@pytest.mark.thorough
def test_what_is_impossible_is_unsupported_in_the_kernels_own_words(lab_name: str, tmp_path: Path) -> None:
    text = source("reflector", "return back(ctx);")
    (tmp_path / "back.bpf.c").write_text(text)
    (tmp_path / "buffers.bpf.c").write_text(text.replace('SEC("xdp")', 'SEC("xdp.frags")'))
    trials = measured(lab_name, tmp_path, plan(REFUSED))
    reasons = {
        (
            row["program_name"],
            row["xsk_attach"] or row["mode"],
            row["frags"],
            row["engine"],
            row["device"],
            row["mode"],
        ): (row["verdict"], row["reason"])
        for row in trials.to_dict("records")
    }
    too_large = "Peer MTU is too large to set XDP"
    for (program, attach, frags, engine, device, _), (verdict, reason) in reasons.items():
        if (attach, frags) == ("generic", "off"):
            assert (verdict, "one descriptor a frame" in reason) == ("unsupported", True), reason
        elif (program, attach) == ("back.bpf.c", "native") or frags == "off":
            assert (verdict, too_large in reason) == ("unsupported", True), reason
        elif engine == "live":
            assert (verdict, "engine afxdp sends larger ones" in reason) == ("unsupported", True), reason
        elif device != "none":
            assert (verdict, "link.mtu below 8982" in reason) == ("unsupported", True), reason
        else:
            assert verdict == "valid", reason
    assert len(reasons) == 9
