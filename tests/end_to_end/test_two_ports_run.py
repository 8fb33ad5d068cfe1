"""Plans whose DUT forwards between two ports, in one direction and in both at once, with real traffic."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests import forked
from tests.end_to_end.conftest import attached, measured, plan, xdplab
from tests.labs.rack import rack, written
from tests.waiting import until
from xdplab.analysis.verdicts import sender_in_time
from xdplab.deploy.device import queues_now
from xdplab.errors import LabError
from xdplab.labs import Lab, use_lab
from xdplab.labs.base import Arrangement, Cpus
from xdplab.plan import load_plan
from xdplab.run.progress import silent
from xdplab.studies.traffic import runs
from xdplab.studies.traffic.kind import TRAFFIC
from xdplab.studies.traffic.two_ports import TwoPortSide

pytestmark = [pytest.mark.root, pytest.mark.lab]

PORTS = """
  - points: {mode: [native, generic], workload: packet, op: write, accesses: 16}
    traffic: {load: [10kpps, max], directions: [back, one, both]}
  - points: {mode: native}
    traffic: {load: 10kpps, directions: [one, both], engine: afxdp}
"""
COUNTS = ("tx_packets", "dut_rx_packets", "dut_tx_packets", "rx_packets")


def measured_here(lab: Lab, folder: Path, text: str) -> tuple[dict[str, Any], Path]:
    """Measure a plan's one trial in this process; return its row and its raw files."""
    (folder / "plan.yaml").write_text(text)
    run = runs.start(load_plan(folder / "plan.yaml"), lab, folder)
    TRAFFIC.run(run).measure_at(runs.InLab(lab), silent())
    (row,) = pd.read_parquet(run.path / "trials.parquet").to_dict("records")
    (raw,) = run.path.glob("raw/*/1")
    return row, raw


def packets(raw: Path, folder: str, role: str, direction: str) -> int:
    """Return what a port's link statistics gained in the window, from the raw files alone."""
    before, after = (
        json.loads((raw / folder / f"{role}.iplink.{when}.json").read_bytes())[0]["stats64"][direction]["packets"]
        for when in ("before", "after")
    )
    return int(after) - int(before)


@pytest.mark.thorough
def test_each_directions_counts_are_those_of_the_four_ports(lab_name: str, tmp_path: Path) -> None:
    trials = measured(lab_name, tmp_path, plan(PORTS))
    assert trials["verdict"].eq("valid").all(), trials[["mode", "directions", "engine", "reason"]].to_dict("records")
    assert (trials["directions"] == "both").sum() == 9  # two modes, N and loads; one by sockets
    for row in trials.to_dict("records"):
        raw = next(tmp_path.glob(f"out/*/raw/{row['trial_id']}/1"))
        if row["directions"] == "back":
            assert row["action"] == "tx"
            assert not (raw / "counters_second").exists()
            assert pd.isna(row["forth_tx_packets"])
            continue
        first, second = ("counters", "counters_second")
        forth, back = ([row[f"{way}_{name}"] for name in COUNTS] for way in ("forth", "back"))
        ports = (packets(raw, first, "dut", "rx"), packets(raw, second, "dut", "tx"), packets(raw, second, "tg", "rx"))
        assert tuple(forth[1:]) == ports
        assert forth[0] == forth[1]  # the TG lost none
        assert row["action"] == "redirect"
        if row["mode"] == "native":
            decided = json.loads(row["xdp_actions"])
            assert decided["redirect"] == forth[1] == sum(decided.values())
        if row["directions"] == "one":
            assert pd.isna(back).all()
            assert (row["tx_packets"], row["rx_packets"]) == (forth[0], forth[3])
            assert packets(raw, second, "dut", "rx") == packets(raw, first, "tg", "rx") == 0
            continue
        ports = (packets(raw, second, "dut", "rx"), packets(raw, first, "dut", "tx"), packets(raw, first, "tg", "rx"))
        assert tuple(back[1:]) == ports
        assert back[0] == back[1]
        whole = [row[name] for name in COUNTS]
        assert whole == [there + other for there, other in zip(forth, back, strict=True)]
        if row["load"] == "10kpps":
            assert forth[0] == back[0] == 1000  # half of the load each
        assert row["forwarded_pps"] == pytest.approx((forth[3] + back[3]) / row["window_s"], rel=0.05)


@pytest.mark.thorough
def test_a_broken_direction_is_named(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The DUT's second port has no program: half of the frames are forwarded, and the sum would look like a loss."""
    attach = TwoPortSide.__init__

    def half_attached(side: TwoPortSide, *args: object, **options: object) -> None:
        attach(side, *args, **options)  # type: ignore[arg-type]
        side._back.stop()

    monkeypatch.setattr(TwoPortSide, "__init__", half_attached)
    monkeypatch.setattr(TwoPortSide, "require", lambda side: None)
    monkeypatch.setattr(TwoPortSide, "stop", lambda side: super(TwoPortSide, side).stop())
    row, _ = measured_here(lab, tmp_path, plan("[{traffic: {directions: both, load: 10kpps}}]"))
    assert row["verdict"] == "invalid"
    assert row["reason"].startswith("from the second port to the first: of 1000 frames")
    assert [row[f"forth_{name}"] for name in COUNTS] == [1000] * 4
    assert row["back_rx_packets"] == 0


@pytest.mark.parametrize("arrangement", [pytest.param("shared", marks=pytest.mark.thorough), "split"])
@pytest.mark.parametrize("mode", ["native", pytest.param("generic", marks=pytest.mark.thorough)])
def test_both_directions_reach_two_queues_each(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrangement: Arrangement, mode: str
) -> None:
    """It needs four CPUs of the TG. Here two serve as four, which sleeping senders of a low load can share."""
    two = sorted(os.sched_getaffinity(0))[:2]
    if len(two) < 2:
        pytest.skip("this machine has one CPU")
    monkeypatch.setattr(lab, "cpus", lambda arrangement=None: Cpus(dut=(*two, *two), tg=(*two, *two)))
    points = f"{{mode: {mode}, queues: 2}}, arrangement: {arrangement}"
    traffic = "{directions: both, load: 4kpps, engine: afxdp, flows: 8}"
    row, raw = measured_here(lab, tmp_path, plan(f"[{{points: {points}, traffic: {traffic}}}]", settle_s=0.5))
    assert row["tx_packets"] == 800, row["reason"]
    assert [row[f"{way}_{name}"] for way in ("forth", "back") for name in COUNTS] == [400] * 8, row["reason"]
    # Two CPUs are not four cores: a machine that wakes sleepers late makes such senders late.
    assert row["verdict"] == "valid" or row["reason"] == sender_in_time(row), row["reason"]
    for output in ("xdpgen.jsonl", "xdpgen_back.jsonl"):
        lines = map(json.loads, (raw / output).read_text().splitlines())
        (summary,) = [line for line in lines if (line["type"], line.get("burst")) == ("summary", "rate")]
        assert summary["tx_by_queue"] == [200, 200]


def with_two_links(lab: Lab, folder: Path) -> dict[str, Any]:
    """Return an inventory of the hosts of ``lab`` with both of its links."""
    content, ends = rack(lab, folder), lab.second_link()
    content["dut"]["second_interface"] = {"name": ends.dut_interface, "mac": ends.dut_mac}
    content["tg"]["second_interface"] = {"name": ends.tg_interface, "mac": ends.tg_mac}
    return content


@pytest.mark.thorough
def test_an_inventory_of_two_links_forwards_both_ways(lab: Lab, tmp_path: Path) -> None:
    inventory = written(with_two_links(lab, tmp_path), tmp_path)
    trials = measured(inventory, tmp_path, plan("[{traffic: {directions: [back, one, both], load: 10kpps}}]"))
    assert trials["verdict"].eq("valid").all(), trials[["directions", "reason"]].to_dict("records")
    (both,) = trials[trials["directions"] == "both"].to_dict("records")
    assert [both[f"{way}_{name}"] for way in ("forth", "back") for name in COUNTS] == [1000] * 8
    assert xdplab("--lab", inventory, "restore").stdout.count("nothing to restore") == 4


@pytest.mark.thorough
def test_the_doctor_examines_both_links(lab: Lab, tmp_path: Path) -> None:
    """Each end is tried in the modes, and each port is described; rows of the second link name its port."""
    ends, inventory = lab.second_link(), written(with_two_links(lab, tmp_path), tmp_path)
    found = json.loads(xdplab("--lab", inventory, "doctor", "--json", check=False).stdout)
    for role, first, second in (
        ("dut", lab.dut_interface, ends.dut_interface),
        ("tg", lab.tg_interface, ends.tg_interface),
    ):
        rows = {row["check"]: row for row in found if row["host"] == role}
        of_modes = {check.removesuffix(f" on {first}") for check in rows if check.endswith(f" on {first}")}
        assert len(of_modes) >= 3, sorted(rows)
        for check in of_modes:
            one, other = rows[f"{check} on {first}"], rows[f"{check} on {second}"]
            assert (other["found"], other["verdict"]) == (one["found"], one["verdict"])
        for check in ("driver", "queues", "rings", "XDP counters"):
            assert rows[f"{check} on {second}"]["found"] == rows[check]["found"], check
        assert rows[f"driver on {second}"]["found"].startswith("veth")
    with lab.lock("a run"), use_lab(inventory) as rack_lab, rack_lab.lock("another run"):
        busy = json.loads(xdplab("--lab", inventory, "doctor", "--json", check=False).stdout)
    assert not [row for row in busy if row["check"] == f"native XDP on {ends.dut_interface}"]
    assert "another run" in str([row for row in busy if row["check"] == "XDP modes"])


@pytest.mark.thorough
def test_each_port_of_an_inventory_is_checked_and_locked(lab: Lab, tmp_path: Path) -> None:
    content = with_two_links(lab, tmp_path)
    inventory = written(content, tmp_path)
    with use_lab(inventory) as first, first.lock("the first"):
        second_only = {role: content[role] | {"interface": content[role]["second_interface"]} for role in ("dut", "tg")}
        for role in second_only.values():
            del role["second_interface"]
        other = written(content | second_only, tmp_path, "other")
        with use_lab(other) as second, pytest.raises(LabError, match="a run is going on in this lab: the first on"):
            second.lock().__enter__()
    content["dut"]["second_interface"] = {"name": "vd1", "mac": "02:00:00:00:00:99"}
    refused = pytest.raises(LabError, match=r"vd1 has MAC .*, the inventory says 02:00:00:00:00:99")
    with use_lab(written(content, tmp_path)) as wrong, refused:
        wrong.lock().__enter__()


@pytest.mark.thorough
def test_after_a_kill_all_four_ports_are_as_before(lab: Lab, lab_name: str, tmp_path: Path) -> None:
    ends = lab.second_link()
    assert lab.second_link(make=False) == ends
    assert lab.second_link() == ends  # made once
    ports = [(lab.dut, lab.dut_interface), (lab.dut, ends.dut_interface)]
    ports += [(lab.tg, lab.tg_interface), (lab.tg, ends.tg_interface)]
    assert xdplab("--lab", lab_name, "restore").stdout.count("nothing to restore") == 4
    before = [queues_now(*port) for port in ports]
    (tmp_path / "p.yaml").write_text(plan("[{traffic: {directions: both, load: 10kpps}}]", repetitions=9, window_s=1))
    child = forked.Started("--lab", lab_name, "run", str(tmp_path / "p.yaml"), "--out", str(tmp_path / "out"))
    assert until(lambda: all(attached(*port) for port in ports), 60, every_s=0.02)
    assert [queues_now(*port) for port in ports] != before
    os.kill(child.pid, signal.SIGKILL)
    child.wait()

    def as_before() -> bool:
        return not any(attached(*port) for port in ports) and [queues_now(*port) for port in ports] == before

    assert until(as_before, 20), (before, [(attached(*port), queues_now(*port)) for port in ports])
