"""From a plan to trustworthy numbers, through the command line, with real packets over SSH."""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.cli.entry import ending
from tests.end_to_end.conftest import measured, plan, run_of, source, trials_of, xdplab
from tests.run import recomputed
from xdplab.labs import Lab
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import attempts_of
from xdplab.studies.traffic.run_files import run_trials_of
from xdplab.studies.traffic.trials import attempt_rows

pytestmark = [pytest.mark.root, pytest.mark.lab]

MODES = """
  - points: {mode: [native, generic, af_xdp], workload: array, accesses: [0, 1600], working_set_bytes: 4096}
    passes: [rate, bpf_stats, perf]
  - points: {mode: native, workload: chase, accesses: [0, 1600], working_set_bytes: 4096}
    passes: [rate, bpf_stats, perf]
  - points: {mode: [native, generic, af_xdp], queues: [4], workload: packet, op: write, accesses: 60, frame_bytes: 512}
    traffic: {engine: afxdp, load: 20kpps, stamp: all}
  - points: {mode: offload, workload: array, accesses: 0}
  - points: {mode: af_xdp, workload: array, accesses: 0, xsk_bind: zerocopy}
metrics: [{name: forks, argv: [awk, "/^processes/ {print $2}", /proc/stat], when: after}]
"""


@pytest.fixture(scope="module")
def modes(lab_name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run of MODES."""
    return run_of(lab_name, tmp_path_factory.mktemp("modes"), plan(MODES, pause_s=0.02, retries=0))


@pytest.fixture(scope="module")
def trials(modes: Path) -> pd.DataFrame:
    return trials_of(modes)


@pytest.fixture(scope="module")
def valid(trials: pd.DataFrame) -> pd.DataFrame:
    return trials[trials["verdict"] == "valid"]


def test_every_point_has_a_verdict(trials: pd.DataFrame) -> None:
    place = trials["mode"].mask(trials["xsk_bind"].eq("zerocopy").fillna(False), "zerocopy")
    verdicts = dict.fromkeys(zip(place, trials["verdict"], strict=True))
    assert sorted(verdicts) == [
        *(("af_xdp", "valid"), ("generic", "valid"), ("native", "valid")),
        *(("offload", "unsupported"), ("zerocopy", "unsupported")),
    ], trials[["mode", "verdict", "reason"]].to_string()
    reasons = trials[trials["verdict"] == "unsupported"].set_index("mode")["reason"]
    assert "offload" in reasons["offload"], "the driver's own message"
    assert "zero" in reasons["af_xdp"].lower()


def test_an_independent_recomputation_agrees_in_each_column(modes: Path, valid: pd.DataFrame) -> None:
    found = recomputed.differences(modes)
    assert len(found) > 80
    assert [line for lines in found.values() for line in lines] == []
    assert valid["program_run_ns"].count() >= 6
    assert valid["perf_packets"].count() >= 8


def test_tg_and_dut_count_the_same_frames(valid: pd.DataFrame) -> None:
    apart = (valid["rx_packets"] - valid["dut_tx_packets"]).abs() / valid["rx_packets"]
    assert (apart <= 0.01).all(), valid[["mode", "rx_packets", "dut_tx_packets"]]
    assert (valid["rx_packets"] > 0).all()
    assert (valid["mode_obtained"] == valid["mode"]).all()


def test_traffic_reaches_every_queue_and_a_cpu_sends_by_the_queue_that_it_receives_by(valid: pd.DataFrame) -> None:
    several = valid[valid["queues"] == 4]
    reached = several[several["mode"].isin(["native", "af_xdp"])]
    assert (reached["queues_reached"] == 4).all(), several[["mode", "rx_by_queue"]]
    assert (reached["evenness"] > 0.9).all()
    for masks in several["xps"].map(json.loads):
        assert sorted(masks) == ["0", "1", "2", "3"]
        assert all(bin(int(mask, 16)).count("1") == 1 for mask in masks.values())
    assert (several["reordered_packets"] == 0).all(), several[["mode", "reordered_packets"]]


def test_a_paced_load_is_offered_and_its_latency_measured(valid: pd.DataFrame) -> None:
    paced = valid[valid["load"] == "20kpps"]
    assert (paced["rate_requested_pps"] == 20e3).all()
    assert (paced["offered_pps"] <= 20.1e3).all(), paced["offered_pps"]
    short = paced[paced["offered_pps"] < 19.9e3]  # other work on this machine: then the reason must say so
    assert (short["limited_by"] != "none").all(), short[["mode", "offered_pps", "limited_by"]]
    assert (paced["latency_samples"] == paced["rx_packets"]).all()
    assert (paced["latency_min_ns"] <= paced["latency_p50_ns"]).all()
    assert (paced["latency_p50_ns"] <= paced["latency_p999_ns"]).all()
    assert (valid["latency_from"] == paced["load"].map({"20kpps": "due"}).reindex(valid.index).fillna("sent")).all()


def test_more_accesses_cost_more_and_the_test_run_agrees_on_the_order(valid: pd.DataFrame) -> None:
    # So many accesses, because the 0.1 µs per packet of 400 array accesses were lost in other work on the machine.
    many = valid[valid["mode"].isin(["native", "generic"]) & valid["load"].eq("max") & valid["accesses"].eq(1600)]
    assert (many["access_ns"] > 0).all(), many[["mode", "workload", "access_ns"]]
    chase, array = (many[many["workload"] == w]["testrun_ns"].mean() for w in ("chase", "array"))
    assert chase > array > 0
    assert (many["program_run_ns"] > 0).all()


def test_each_trial_runs_its_own_program_by_itself(valid: pd.DataFrame) -> None:
    kernel, sockets = valid[valid["mode"] != "af_xdp"], valid[valid["mode"] == "af_xdp"]
    runs = [tuple(json.loads(values)) for values in kernel["testrun_all_ns"]]
    assert all(len(set(values)) > 1 for values in runs)
    assert len(set(runs)) == len(runs)  # two modes share one program, and each measured it
    assert sockets["testrun_raw_ns"].isna().all()
    assert all("user space" in json.loads(reasons)["testrun_raw_ns"] for reasons in sockets["null_reasons"])


def test_an_access_is_recorded_as_the_machine_sees_it(valid: pd.DataFrame) -> None:
    many = valid[valid["accesses"].eq(1600)]
    assert set(many["mode"]) == {"native", "generic", "af_xdp"}
    assert many["access_loads"].between(0.98, 1.05).all(), many[["mode", "workload", "access_loads"]]
    assert many["access_stores"].between(0, 0.05).all()
    assert many["access_bytes"].between(7.9, 8.5).all()
    if platform.machine() == "x86_64":
        assert set(many.loc[many["workload"] == "chase", "access_chain"]) == {"and shl add load"}


def test_what_the_times_rest_on_is_in_each_row(valid: pd.DataFrame) -> None:
    assert valid["clocksource"].notna().all()
    assert valid["rt_runtime_us"].notna().all()
    assert set(valid["cycles_per_ns_from"]) <= {"perf", "additions"}
    assert valid["cycles_per_ns"].between(0.3, 8).all()
    assert valid["clock_change"].notna().all()
    assert valid["stats_cost_ns"].dropna().between(2, 500).all(), valid["stats_cost_ns"]
    assert (valid["dut_cpus"].isna() | valid["dut_cpus"].between(1, 4)).all()
    assert valid["cpu_busy_cores"].isna().all(), "the CPUs are shared"
    assert valid.groupby("load")["batch"].unique().map(list).to_dict() == {"max": [60], "20kpps": [32]}
    assert (valid["forks"] > 0).all(), "the plan's own metric"


def test_no_trial_is_valid_without_the_readings_that_it_rests_on(modes: Path, tmp_path: Path) -> None:
    """As if the tools had printed nothing: the files that the verdicts need are empty."""
    shutil.copytree(modes, tmp_path / "run")
    for file in (tmp_path / "run" / "raw").glob("*/*/counters/dut.*"):
        file.write_bytes(b"")
    run = RunDirectory.open(tmp_path / "run")
    trials = {trial.trial_id: trial for trial in run_trials_of(run)}
    table = pd.DataFrame([attempt_rows(run, trials[a.trial_id], a, window_s=0.2).row for a in attempts_of(run)])
    judged = table[table["verdict"] != "unsupported"]
    assert set(judged["verdict"]) == {"invalid"}
    assert judged["reason"].str.contains("is empty|neither TG nor DUT|no count of the DUT").all(), judged["reason"]


COUNTER = """
const volatile __u32 every = 1;
struct { __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, __u64); }
    seen SEC(".maps");
"""
COUNT = """__u32 zero = 0; __u64 *n = bpf_map_lookup_elem(&seen, &zero); if (n) *n += every; return XDP_DROP;"""
MINE = "{file: mine.bpf.c, action: drop"


def test_a_program_of_another_project_is_measured(lab_name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.bpf.c").write_text(source("count_and_drop", COUNT, COUNTER))
    points = f"{{mode: [native, generic], program: {MINE}, rodata: {{every: 3}}}}}}"
    (tmp_path / "mine.yaml").write_text(plan(f"[{{points: {points}}}]"))
    out = xdplab("--lab", lab_name, "run", "mine.yaml", "--out", "out", cwd=tmp_path)
    table = trials_of(next((tmp_path / "out").iterdir()))
    assert set(table["verdict"]) == {"valid"}, table["reason"]
    assert set(table["forwarded_source"]) == {"dut"}
    assert table["accesses"].isna().all()
    for actions in map(json.loads, table["actions_counted"]):
        assert [action for action, frames in actions.items() if frames] == ["drop"]
    assert (table["forwarded_pps"] > 1e4).all()
    assert "figure programs, forwarding rate by program" in out.stdout


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="split needs two CPUs, and only one is allowed here")
@pytest.mark.parametrize("modes", ["native", pytest.param("[generic, af_xdp]", marks=pytest.mark.thorough)])
def test_on_cpus_of_its_own_the_dut_is_an_open_loop(lab_name: str, tmp_path: Path, modes: str) -> None:
    block = f"{{points: {{mode: {modes}, accesses: 1600}}, arrangement: split}}"
    table = measured(lab_name, tmp_path, plan(f"[{block}]", window_s=0.3))
    assert set(table["arrangement"]) == {"split"}
    assert set(table["verdict"]) == {"valid"}, table[["mode", "accesses", "reason"]]
    saturated = table[table["accesses"] == 1600]
    assert (saturated["limited_by"] == "dut").all(), saturated[["mode", "limited_by", "loss_ratio"]]
    assert (saturated["loss_ratio"] > 0).all()


@pytest.mark.thorough
def test_a_users_own_frames_are_sent_as_they_are(lab_name: str, tmp_path: Path) -> None:
    """Frame sizes, flows and bits come from the file; a plan that requests others is refused."""
    frame = bytes.fromhex("ffffffffffff020000000001") + b"\x88\xb5" + bytes(range(86))
    other = b"\x02" + frame[1:] + bytes(100)
    header = bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000")
    records = b"".join(bytes(8) + len(f).to_bytes(4, "little") * 2 + f for f in (frame, other))
    (tmp_path / "mine.pcap").write_bytes(header + records)
    (tmp_path / "mine.bpf.c").write_text(source("count_and_drop", COUNT, COUNTER))
    traffic = "{engine: afxdp, load: 10kpps, stamp: none}"
    text = plan(f"[{{points: {{program: {MINE}, frames: mine.pcap}}}}, traffic: {traffic}}}]")
    (row,) = measured(lab_name, tmp_path, text).to_dict("records")
    assert row["verdict"] == "valid", row["reason"]
    assert row["forwarded_pps"] == pytest.approx(row["offered_pps"], rel=0.05)
    assert row["frame_mean_bytes"] == (104 + 204) / 2
    assert row["forwarded_l2_bps"] == row["forwarded_pps"] * 154 * 8
    assert row["flows"] == 2
    assert pd.isna(row["frame_bytes"])
    assert row["testrun_raw_ns"] > 0
    (tmp_path / "other.yaml").write_text(text.replace("stamp: none", "flows: 200"))
    refused = xdplab("--lab", lab_name, "run", "other.yaml", "--out", "out", cwd=tmp_path, check=False)
    assert refused.returncode
    assert "flows: 200 cannot be set" in refused.stderr


def test_a_run_brings_its_lab_up_and_takes_it_down_and_resumes_with_nothing_to_do(tmp_path: Path) -> None:
    name = f"netns:e2e-own-{os.getpid()}"
    (tmp_path / "one.yaml").write_text(f"lab: {name}\n" + plan("[{points: {accesses: 0}}]", warmup_s=0, window_s=0.1))
    argv = [sys.executable, "-m", "xdplab", "run", "one.yaml", "--out", "out", "--no-figures"]  # as a user starts it
    subprocess.run(argv, cwd=tmp_path, capture_output=True, check=True, timeout=300)
    (run,) = (tmp_path / "out").iterdir()
    assert name not in xdplab("lab", "status").stdout
    journal = (run / "journal.jsonl").read_bytes()
    assert "nothing is missing" in xdplab("resume", str(run)).stdout
    assert (run / "journal.jsonl").read_bytes() == journal
    assert str(tmp_path) not in (run / "plan.yaml").read_text() + (run / "manifest.json").read_text()


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("{points: {queues: 64}}", "queues: 64"),
        ("{points: {frame_bytes: 9300}}", "frame_bytes"),
        ("{points: {workload: packet, form: loop, accesses: 12800}}", "too complex"),
        ("{arrangement: hosts}", "arrangement"),
        ("{points: {program: {file: bad.bpf.c}}}", "bad.bpf.c"),
        ("{points: {program: {file: absent.bpf.c}}}", "absent.bpf.c"),
    ],
)
def test_what_this_lab_cannot_measure_is_one_line_before_anything_is_measured(
    lab_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: str, words: str
) -> None:
    """Other plans that are refused: tests/cli/messages.txt."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.bpf.c").write_text("this is no C")
    (tmp_path / "bad.yaml").write_text(plan(f"[{block}]"))
    code, output = ending(["--lab", lab_name, "run", "bad.yaml", "--out", "out"])
    assert code not in (0, 130)
    (line,) = [row for row in output.splitlines() if row.startswith("xdplab: ")]  # a long step is named beside it
    assert words in line
    assert not any("finished" in journal.read_text() for journal in tmp_path.glob("out/*/journal.jsonl"))


def test_a_second_run_in_the_same_lab_is_refused(lab: Lab, lab_name: str, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(plan("[{points: {accesses: 0}}]"))
    with lab.lock("the first run"):
        done = xdplab("--lab", lab_name, "run", "one.yaml", "--out", "out", cwd=tmp_path, check=False)
    assert done.returncode == 3
    assert "the first run" in done.stderr


TARGETS = """
struct { __uint(type, BPF_MAP_TYPE_%s); __uint(max_entries, 64); __type(key, __u32); __type(value, __u32); }
    %s SEC(".maps");
"""
CPU_1 = ["bpftool", *["map", "update", "name", "targets", "key", "1", "0", "0", "0", "value", "8", "0", "0", "0"]]
SECOND_VETH = """
set -e
test -e /sys/class/net/out0 || ip link add out0 type veth peer name out1
ip link set out0 up; ip link set out1 up; ethtool -K out1 gro on
bpftool map update name targets key 0 0 0 0 value $(printf '%d 0 0 0' $(cat /sys/class/net/out0/ifindex))
"""


def redirecting(kind: str, key: int = 0, name: str = "targets") -> str:
    return source("redirects", f"return bpf_redirect_map(&{name}, {key}, XDP_DROP);", TARGETS % (kind, name))


@pytest.mark.thorough
@pytest.mark.skipif(os.cpu_count() == 1, reason="one CPU: there is no other to redirect to")
def test_redirected_frames_are_followed_to_their_target(lab: Lab, lab_name: str, tmp_path: Path) -> None:
    """Targets: a device behind a second veth, a CPU whose queue overflows, a socket, none of these; shares of mixed."""
    sink = tmp_path / "sink"
    subprocess.run(["gcc", "-O2", "-o", sink, Path(__file__).with_name("sink.c"), "-lxdp", "-lbpf"], check=True)
    there = lab.work_dir(lab.dut)
    lab.dut.put(sink, f"{there}/sink", mode=0o755)
    for name, text in {
        "devmap": redirecting("DEVMAP"),
        "cpumap": redirecting("CPUMAP", 1),
        "xskmap": redirecting("XSKMAP"),
        "socket": redirecting("XSKMAP", name="sockets"),  # a map that holds a socket lives as long as the socket
        "nowhere": source("nowhere", "return bpf_redirect(9999, 0);"),
        "mixed": source("mixed", "return bpf_get_prandom_u32() % 4 ? XDP_DROP : XDP_PASS;"),
    }.items():
        (tmp_path / f"{name}.bpf.c").write_text(text)
    programs: list[dict[str, Any]] = [
        {"file": "devmap.bpf.c", "action": "redirect", "setup": [["sh", "-c", SECOND_VETH]]},
        {"file": "cpumap.bpf.c", "action": "redirect", "setup": [CPU_1]},
        {"file": "xskmap.bpf.c", "action": "drop"},
        {"file": "xskmap.bpf.c", "action": "redirect"},
        {"file": "nowhere.bpf.c", "action": "redirect"},
        {"file": "mixed.bpf.c", "action": "mixed"},
    ]
    blocks: list[dict[str, Any]] = [{"points": {"mode": ["native", "generic"], "program": programs}}]
    for mode in ("native", "generic"):
        setup = [[f"{there}/sink", "vd0", "sockets", f"{there}/{mode}.count"]]
        points = {"mode": mode, "program": [{"file": "socket.bpf.c", "action": "redirect", "setup": setup}]}
        blocks.append({"points": points, "traffic": {"load": "20kpps"}})
    table = measured(lab_name, tmp_path, plan(json.dumps(blocks), window_s=0.1, pause_s=0.02))

    def rows(name: str, action: str = "redirect") -> list[dict[str, Any]]:
        return table[table["program_name"].eq(f"{name}.bpf.c") & table["action"].eq(action)].to_dict("records")

    def target(row: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
        (one,) = json.loads(row["redirect_targets"])
        assert row["verdict"] == "valid", row["reason"]
        assert (one["kind"], one["name"]) == (kind, name)
        return dict(one)

    for row in rows("devmap"):
        device = target(row, "device", "out0")
        assert device["arrived"] == device["accepted"] > 0
        assert "out0" in row["reason"]
    for row in rows("cpumap"):
        cpu = target(row, "cpu", "1")
        assert cpu["arrived"] + cpu["dropped"] == cpu["accepted"]
        assert cpu["busy_ns"] > 0
    for row in rows("socket"):
        socket = target(row, "socket", "0")
        read = int(lab.dut.run(["cat", f"{there}/{row['mode']}.count"]).text)
        assert 0 < socket["arrived"] == socket["accepted"] <= read
    assert {row["verdict"] for row in rows("xskmap", "drop")} == {"valid"}
    assert {row["verdict"] for row in rows("xskmap")} == {"invalid"}
    for row in rows("nowhere"):
        assert row["verdict"] == "invalid"
        assert "the kernel refused" in row["reason"]
    for row in rows("mixed", "mixed"):
        counts = json.loads(row["actions_counted"])
        assert counts["drop"] / sum(counts.values()) == pytest.approx(0.75, abs=0.02)
        assert "the program decided" in row["reason"]
