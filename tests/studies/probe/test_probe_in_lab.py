"""A probe of a veth: it says what the kernel's source and `ethtool -S` by hand say, and the port is as before."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cli.test_answers import validate

from xdplab.cli import cli
from xdplab.deploy.device import snapshot
from xdplab.deploy.xdp import attached_program
from xdplab.labs import use_lab

pytestmark = [pytest.mark.root, pytest.mark.lab]

LARGEST_MTU = 4096 - 256 - 320 - 14
"""veth_xdp_set: a page without XDP's headroom, struct skb_shared_info and the Ethernet header."""
KNOWN = {
    ("mode", "native"): "works", ("mode", "tc"): "works", ("mode", "offload"): "refused",
    ("mode", "AF_XDP copy"): "works", ("mode", "AF_XDP zero copy"): "refused",
    ("burst", "redirected into the port"): "works", ("MTU", "frames in several buffers with xdp.frags"): "works",
    ("queues", "2"): "works", ("ring", "rx and tx"): "refused", ("RSS", "rss.hkey"): "refused",
}  # fmt: skip
COUNTED = {
    ("native", "drop"): "rx_queue_0_xdp_drops", ("native", "tx"): "rx_queue_0_xdp_tx",
    ("native", "redirect"): "rx_queue_0_xdp_redirect", ("generic", "drop"): "link.rx.packets",
}  # fmt: skip


def test_a_veth_is_what_its_source_says_and_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xdplab.studies.probe.asking.OUTAGE_S", 0.5)
    monkeypatch.setattr("xdplab.studies.probe.bench.SETTLE_S", 0.1)  # a veth counts at once
    with use_lab("netns:test-probe") as lab:
        before = snapshot(lab.dut, lab.dut_interface).values, snapshot(lab.tg, lab.tg_interface).values
        done = CliRunner().invoke(cli, ["probe", lab.name, "--json", "--publish", "--markdown", str(tmp_path / "p.md")])
        after = snapshot(lab.dut, lab.dut_interface).values, snapshot(lab.tg, lab.tg_interface).values
        assert attached_program(lab.dut, lab.dut_interface).program_id is None
        names = [lab.name, lab.dut_interface, lab.tg_interface, lab.dut_mac, lab.tg_mac]
    assert done.exit_code == 0, done.output
    assert after == before
    probe = validate("probe", done.stdout)
    answers = {(answer["topic"], answer["question"]): answer for answer in probe["answers"]}
    assert {key: answers[key]["result"] for key in KNOWN} == KNOWN
    assert answers["MTU", "with xdp"]["found"] == str(LARGEST_MTU)
    bursts = {(burst["mode"], burst["action"]): burst for burst in probe["bursts"]}
    assert all(burst["sent"] == burst["seen"] == 1000 for burst in bursts.values())
    assert {key for key, name in COUNTED.items() if name in bursts[key]["exact"]} == set(COUNTED)
    assert {row["kind"] for row in probe["table"]} == {"received", "drop", "tx", "sent", "redirect"}
    page = (tmp_path / "p.md").read_text()
    assert "the table of drivers holds" in page
    assert not [name for name in names if name in done.stdout or name in page]
