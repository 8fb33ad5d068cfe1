"""An inventory that names a netns lab's hosts as servers: run, search, restore.

With XDPLAB_TEST_INVENTORY set, every other end-to-end test runs over such an inventory too.
"""

import os
from pathlib import Path

import pytest

from tests.end_to_end.conftest import _inventory_of, measured, plan, xdplab
from xdplab.deploy.device import snapshot
from xdplab.labs import Lab

pytestmark = [pytest.mark.thorough, pytest.mark.root, pytest.mark.lab]

BLOCKS = """
  - points: {mode: [native, generic, af_xdp], queues: 2, accesses: 0}
    traffic: {engine: afxdp}
  - points: {mode: native, accesses: 1600}
    traffic: {engine: afxdp, load: [max, 20kpps]}
    arrangement: split
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="split needs two CPUs, and only one is allowed here")
def test_servers_are_measured_and_put_back(lab: Lab, lab_name: str, tmp_path: Path) -> None:
    if lab.kind == "inventory":
        pytest.skip("XDPLAB_TEST_INVENTORY is set: all tests do this")
    rack = _inventory_of(lab_name, tmp_path)
    before = [snapshot(host, name).values for host, name in ((lab.dut, "vd0"), (lab.tg, "vg0"))]
    table = measured(rack, tmp_path, plan(BLOCKS))
    late = table["reason"].str.startswith("the sender had its own core")  # true if other work used that core
    assert not late.all()
    assert set(table.loc[~late, "verdict"]) == {"valid"}, table[["mode", "arrangement", "reason"]]
    assert (table["rx_packets"] > 0).all()
    assert set(table["arrangement"]) == {"shared", "split"}
    split = table[table["arrangement"] == "split"]
    assert (split["generator_pps"] > 1e5).all(), "tested alone, before the DUT had a program"
    assert table[table["arrangement"] == "shared"]["generator_pps"].isna().all()
    assert [snapshot(host, name).values for host, name in ((lab.dut, "vd0"), (lab.tg, "vg0"))] == before
    for _ in range(2):
        assert xdplab("--lab", rack, "restore").stdout.count("nothing to restore") == 2
