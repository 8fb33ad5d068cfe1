"""A run with distant servers: each byte of both SSH connections is delayed, as on a slow and lossy line.

The servers are hosts of a netns lab, reached by an inventory, through real sshds; a relay stands before each proxy. TCP
hides a loss but not its time: the following bytes wait for the retransmission too, and so they do in the relay.
"""

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.end_to_end.conftest import plan, xdplab
from tests.end_to_end.test_kill import leftovers
from tests.labs.rack import rack, written
from xdplab import labs
from xdplab.deploy.device import snapshot
from xdplab.labs import Lab
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import read_state

pytestmark = [pytest.mark.root, pytest.mark.lab, pytest.mark.nightly]

ONE_WAY_S, LOSS, BITS_S = 0.1, 0.05, 1e6
AGAIN_S = 0.4
"""Seconds until a lost segment arrives: one retransmission timeout of this line."""

# Arguments: seconds one way, share of lost segments, bits per second, seconds of a retransmission, then the proxy.
RELAY = """
import os, queue, random, subprocess, sys, threading, time
delay, loss, rate, again = map(float, sys.argv[1:5])
proxy = subprocess.Popen(sys.argv[5:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def received(source):
    try:
        return os.read(source, 1448)
    except ConnectionResetError:  # its reader has ended with words on the way
        return b""
def line(source, sink, seed):
    on_the_way, chance = queue.Queue(45), random.Random(seed)  # 64 KiB, as a socket's buffer
    def deliver():
        while segment := on_the_way.get():
            due, data = segment
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                while data:
                    data = data[os.write(sink, data):]
            except BrokenPipeError:  # its reader has ended: the rest is on the way to nobody
                pass
        os.close(sink)
    threading.Thread(target=deliver).start()
    free = due = 0.0
    while data := received(source):
        free = max(free, time.monotonic()) + 8 * len(data) / rate
        due = max(due, free + delay + again * (chance.random() < loss))
        on_the_way.put((due, data))
    on_the_way.put(None)
threading.Thread(target=line, args=(0, proxy.stdin.fileno(), 1), daemon=True).start()
line(proxy.stdout.fileno(), 1, 2)
"""

BLOCK = "[{points: {mode: [native, af_xdp], accesses: 0, queues: 2}, traffic: {engine: afxdp, load: 5kpps}}]"
TRIALS = 2 * 2


def far(servers: Lab, folder: Path) -> str:
    """Return an inventory of a lab's hosts, each behind a slow line."""
    content = rack(servers, folder)
    words = [sys.executable, "-c", RELAY, *(f"{value:g}" for value in (ONE_WAY_S, LOSS, BITS_S, AGAIN_S))]
    for role in ("dut", "tg"):
        content[role]["proxy"] = [*words, *content[role]["proxy"]]
    return written(content, folder)


def seconds(deed: Callable[[], object]) -> float:
    began = time.monotonic()
    deed()
    return time.monotonic() - began


def test_a_run_over_slow_links_measures_each_trial(lab: Lab, lab_name: str, tmp_path: Path) -> None:
    if lab.kind == "inventory":
        pytest.skip("XDPLAB_TEST_INVENTORY is set: this makes its own")
    rack_file = far(lab, tmp_path)
    with contextlib.closing(labs.open_lab(rack_file)) as there:
        answer_s = seconds(lambda: there.dut.run(["true"]))
        carried_s = seconds(lambda: there.dut.run(["head", "-c", "500000", "/dev/zero"]))
    assert answer_s > 4 * ONE_WAY_S, "a channel and a command are two answers"
    assert carried_s > 8 * 500_000 / BITS_S
    (tmp_path / "far.yaml").write_text(plan(BLOCK, repetitions=2, window_s=0.3, retries=0))
    before = [snapshot(host, name).values for host, name in ((lab.dut, "vd0"), (lab.tg, "vg0"))]
    argv = ["--lab", rack_file, "run", "far.yaml", "--out", "out", "--no-figures"]
    xdplab(*argv, cwd=tmp_path, timeout_s=1200)
    (run,) = (tmp_path / "out").iterdir()
    table = pd.read_parquet(run / "trials.parquet")
    assert len(table) == TRIALS
    assert set(table["verdict"]) == {"valid"}, table[["trial_id", "verdict", "reason"]].to_string()
    assert (table["rx_packets"] == table["tx_packets"]).all()
    assert {attempt.status for attempt in read_state(RunDirectory(run)).attempts} == {"measured"}
    assert [snapshot(host, name).values for host, name in ((lab.dut, "vd0"), (lab.tg, "vg0"))] == before
    assert leftovers(lab) == []
    assert xdplab("--lab", rack_file, "restore").stdout.count("nothing to restore") == 2
