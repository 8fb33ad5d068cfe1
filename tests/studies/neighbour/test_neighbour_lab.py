"""The neighbour study with real TCP on veth: XDP_PASS lets it through, a program that drops does not."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.available import or_skip
from tests.end_to_end.conftest import attached

from xdplab import labs
from xdplab.run.frames import why_null
from xdplab.run.progress import silent
from xdplab.studies.neighbour.points import ARMS, NONE, NeighbourRequest
from xdplab.studies.neighbour.runs import STUDY
from xdplab.studies.neighbour.tcp import DUT_ADDRESS, TG_ADDRESS, require_tool

pytestmark = [pytest.mark.root, pytest.mark.lab]
DROP = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("xdp") int drop(struct xdp_md *ctx) { return XDP_DROP; }
char LICENSE[] SEC("license") = "Dual BSD/GPL";
"""


@pytest.fixture
def lab() -> Iterator[labs.Lab]:
    with labs.use_lab(f"netns:test-{secrets.token_hex(4)}") as lab, or_skip("iperf3"):
        require_tool(lab)
        yield lab


def test_tcp_passes_or_the_reason_is_there_and_the_ports_are_as_before(
    lab: labs.Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xdplab.studies.neighbour.tcp.CONNECT_MS", 300)
    (tmp_path / "drop.bpf.c").write_text(DROP)
    request = NeighbourRequest(places=(lab.name,), repetitions=1, seconds=1, file=str(tmp_path / "drop.bpf.c"))
    run = STUDY.start(request, tmp_path)
    run.measure(silent())
    rows = run.rows().set_index("arm")
    assert list(rows.index) == [*ARMS]
    through, yours = rows.iloc[:4], rows.iloc[4:]
    assert through["throughput_bps"].gt(1e7).all(), rows["throughput_bps"]
    assert through["cpu_s"].gt(0).all()
    assert through["rtt_us"].between(1, 1e6).all()
    assert list(through["mode_obtained"].dropna()) == ["native", "generic", "tcx"]
    assert ["tso" in rows.loc[arm, "tg_offloads"] for arm in (NONE, "XDP_PASS native")] == [True, False]
    assert why_null(yours, "throughput_bps").str.startswith("TCP does not get through your program").all()
    for host, port, address in ((lab.dut, lab.dut_interface, DUT_ADDRESS), (lab.tg, lab.tg_interface, TG_ADDRESS)):
        shown = host.run(["ip", "-j", "address", "show", "dev", port]).text
        assert address not in shown
        assert json.loads(host.run(["ip", "-j", "neighbor", "show", "dev", port]).text or "[]") == []
        assert not attached(host, port)
