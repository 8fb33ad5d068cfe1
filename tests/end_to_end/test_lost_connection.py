"""An SSH connection that is lost during a run costs the current trial, which is measured again.

The servers are hosts of a netns lab, reached by an inventory, through real sshds; a connection is cut by ending its
proxy.
"""

import os
import signal
import time
from pathlib import Path

import pandas as pd
import pytest

from tests import forked
from tests.end_to_end.conftest import _inventory_of, plan, xdplab
from tests.waiting import until
from xdplab.deploy.device import snapshot
from xdplab.labs import Lab
from xdplab.labs.cache import native_dir
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import read_state

pytestmark = [pytest.mark.root, pytest.mark.lab]

BLOCK = "[{points: {mode: [native, af_xdp], accesses: 0}, traffic: {engine: afxdp, load: 5kpps}}]"
POINTS = 2


def children(of: int) -> dict[str, int]:
    """Return the proxies of a run by the host to which they lead."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")[:-1]
            parent = (entry / "stat").read_text().rpartition(") ")[2].split()[1]
        except OSError:
            continue
        if int(parent) == of and words and words[-1] in (b"dut", b"tg"):
            found[words[-1].decode()] = int(entry.name)
    return found


@pytest.mark.parametrize(
    ("victims", "after", "repetitions"),
    [
        (("dut", "tg"), (3,), 2),
        pytest.param(("dut",), (1,), 1, marks=pytest.mark.thorough),
        pytest.param(("tg",), (3,), 2, marks=pytest.mark.thorough),
        pytest.param(("dut",), (3, 8, 13), 8, marks=pytest.mark.thorough),
    ],
)
def test_a_run_goes_on_after_a_lost_connection(
    lab: Lab, lab_name: str, tmp_path: Path, victims: tuple[str, ...], after: tuple[int, ...], repetitions: int
) -> None:
    if lab.kind == "inventory":
        pytest.skip("XDPLAB_TEST_INVENTORY is set: this makes its own")
    rack = _inventory_of(lab_name, tmp_path)
    for host in (lab.dut, lab.tg):  # a server builds its tools: test_inventory_run.py
        host.run(
            ["sh", "-c", 'mkdir -p "$1" && ln -sfn "$2" "$1/native"', "sh", "/tmp/xdplab/rack/rack", str(native_dir())]
        )
    (tmp_path / "cut.yaml").write_text(plan(BLOCK, repetitions, window_s=0.3, retries=0))
    before = [snapshot(host, name).values for host, name in ((lab.dut, "vd0"), (lab.tg, "vg0"))]
    child = forked.Started("--lab", rack, "run", "cut.yaml", "--out", "out", "--no-figures", cwd=tmp_path)
    try:
        for count in after:
            cut(child, tmp_path, victims, count)
        said = "".join(child.communicate(timeout=400))
    finally:
        child.kill()
        child.wait()
    assert child.returncode == 0, said
    (run,) = (tmp_path / "out").iterdir()
    table = pd.read_parquet(run / "trials.parquet").drop_duplicates("trial_id", keep="last")
    assert len(table) == POINTS * repetitions
    assert set(table["verdict"]) == {"valid"}, table[["trial_id", "verdict", "reason"]].to_string()
    failed = [a for a in read_state(RunDirectory(run)).attempts if a.status != "measured"]
    assert len(failed) <= len(after), "one trial per cut, not those after it"
    assert [snapshot(host, name).values for host, name in ((lab.dut, "vd0"), (lab.tg, "vg0"))] == before
    assert xdplab("--lab", rack, "restore").stdout.count("nothing to restore") == 2


def cut(run: forked.Started, folder: Path, victims: tuple[str, ...], started: int) -> None:
    """End the run's connections to ``victims`` in the middle of its ``started``-th attempt."""

    def begun() -> bool:
        assert run.poll() is None, run.communicate()[0]
        return sum(j.read_text().count('"started"') for j in folder.glob("out/[0-9]*/journal.jsonl")) >= started

    assert until(begun, 300, every_s=0.02)
    time.sleep(0.4)
    proxies = children(run.pid)
    for victim in victims:
        os.kill(proxies[victim], signal.SIGKILL)
