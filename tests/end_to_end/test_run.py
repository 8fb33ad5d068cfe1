"""From a plan to trustworthy numbers, through the command line, with real packets over SSH."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.cli.entry import ending
from tests.end_to_end.conftest import needs_root, xdplab
from tests.run import recomputed
from tests.run.nulls import unexplained
from xdplab.labs import Lab
from xdplab.run.rundir import RunDirectory
from xdplab.run.state import attempts_of
from xdplab.studies.traffic.rows import attempt_rows
from xdplab.studies.traffic.run_files import run_trials_of

pytestmark = [pytest.mark.root, pytest.mark.lab, needs_root]

MODES = """
name: modes
repetitions: 1
trial: {warmup_s: 0.05, window_s: 0.2, pause_s: 0.02, retries: 0}
metrics: [{name: forks, argv: [awk, "/^processes/ {print $2}", /proc/stat], when: after}]
blocks:
  - points: {mode: [native, generic, af_xdp], workload: [array, chase], accesses: [0, 1600], working_set_bytes: 4096}
    passes: [rate, bpf_stats, perf]
  - points: {mode: [native, generic, af_xdp], queues: [4], workload: packet, op: write, accesses: 60, frame_bytes: 512}
    traffic: {engine: afxdp, load: 20kpps, stamp: all}
  - points: {mode: offload, workload: array, accesses: 0}
  - points: {mode: af_xdp, workload: array, accesses: 0, xsk_bind: zerocopy}
"""


@pytest.fixture(scope="module")
def measured(lab_name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run of MODES."""
    folder = tmp_path_factory.mktemp("modes")
    (folder / "modes.yaml").write_text(MODES)
    xdplab("--lab", lab_name, "run", "modes.yaml", "--out", "out", "--no-figures", cwd=folder)
    (run,) = (folder / "out").iterdir()
    return run


@pytest.fixture(scope="module")
def trials(measured: Path) -> pd.DataFrame:
    return pd.read_parquet(measured / "trials.parquet")


def test_every_point_has_a_verdict(trials: pd.DataFrame) -> None:
    expected = {"native": {"valid"}, "generic": {"valid"}, "offload": {"unsupported"}}
    for mode, verdicts in expected.items():
        assert set(trials[trials["mode"] == mode]["verdict"]) == verdicts, trials[["mode", "verdict", "reason"]]
    sockets = trials[trials["mode"] == "af_xdp"]
    assert set(sockets[sockets["xsk_bind"] == "copy"]["verdict"]) == {"valid"}
    assert set(sockets[sockets["xsk_bind"] == "zerocopy"]["verdict"]) == {"unsupported"}


def test_an_independent_recomputation_agrees_in_each_column(measured: Path) -> None:
    assert [line for lines in recomputed.differences(measured).values() for line in lines] == []


def test_each_null_has_its_reason(trials: pd.DataFrame) -> None:
    assert unexplained(trials) == []


def test_a_feature_that_the_driver_lacks_has_the_drivers_message(trials: pd.DataFrame) -> None:
    reasons = trials[trials["verdict"] == "unsupported"].set_index("mode")["reason"]
    assert "offload" in reasons["offload"]
    assert "zero" in reasons["af_xdp"].lower()


def test_tg_and_dut_count_the_same_frames(trials: pd.DataFrame) -> None:
    valid = trials[trials["verdict"] == "valid"]
    apart = (valid["rx_packets"] - valid["dut_tx_packets"]).abs() / valid["rx_packets"]
    assert (apart <= 0.01).all(), valid[["mode", "rx_packets", "dut_tx_packets"]]
    assert (valid["rx_packets"] > 0).all()


def test_the_kernel_confirms_each_mode(trials: pd.DataFrame) -> None:
    valid = trials[trials["verdict"] == "valid"]
    assert (valid["mode_obtained"] == valid["mode"]).all()


def test_traffic_reaches_every_queue(trials: pd.DataFrame) -> None:
    several = trials[(trials["queues"] == 4) & (trials["mode"].isin(["native", "af_xdp"]))]
    assert (several["queues_reached"] == 4).all(), several[["mode", "rx_by_queue"]]
    assert (several["evenness"] > 0.9).all()


def test_a_paced_load_is_offered_and_its_latency_measured(trials: pd.DataFrame) -> None:
    paced = trials[trials["load"] == "20kpps"]
    assert (paced["rate_requested_pps"] == 20e3).all()
    assert (paced["offered_pps"] <= 20.1e3).all(), paced["offered_pps"]
    short = paced[paced["offered_pps"] < 19.9e3]  # other work on this machine: then the reason must say so
    assert (short["limited_by"] != "none").all(), short[["mode", "offered_pps", "limited_by"]]
    assert (paced["latency_samples"] == paced["rx_packets"]).all()
    assert (paced["latency_min_ns"] <= paced["latency_p50_ns"]).all()
    assert (paced["latency_p50_ns"] <= paced["latency_p999_ns"]).all()


def test_more_accesses_cost_more_and_the_test_run_agrees_on_the_order(trials: pd.DataFrame) -> None:
    # So many accesses, because the 0.1 µs per packet of 400 array accesses were lost in other work on the machine.
    many = trials[trials["mode"].isin(["native", "generic"]) & trials["load"].eq("max") & trials["accesses"].eq(1600)]
    assert (many["access_ns"] > 0).all(), many[["mode", "workload", "access_ns"]]
    chase, array = (many[many["workload"] == w]["testrun_ns"].mean() for w in ("chase", "array"))
    assert chase > array > 0
    assert (many["program_run_ns"] > 0).all()


def test_each_trial_runs_its_own_program_by_itself(trials: pd.DataFrame) -> None:
    kernel = trials[trials["mode"].isin(["native", "generic"]) & trials["verdict"].eq("valid")]
    runs = [json.loads(values) for values in kernel["testrun_all_ns"]]
    assert [min(values) for values in runs] == kernel["testrun_raw_ns"].to_list()
    assert all(len(set(values)) > 1 for values in runs)
    assert len({tuple(values) for values in runs}) == len(runs)  # two modes share one program, and each measured it
    sockets = trials[trials["mode"].eq("af_xdp") & trials["verdict"].eq("valid")]
    assert sockets["testrun_raw_ns"].isna().all()
    assert all("user space" in json.loads(reasons)["testrun_raw_ns"] for reasons in sockets["null_reasons"])


def test_an_access_is_recorded_as_the_machine_sees_it(trials: pd.DataFrame) -> None:
    many = trials[trials["verdict"].eq("valid") & trials["accesses"].eq(1600)]
    assert set(many["mode"]) == {"native", "generic", "af_xdp"}
    assert many["access_loads"].between(0.98, 1.05).all(), many[["mode", "workload", "access_loads"]]
    assert many["access_stores"].between(0, 0.05).all()
    assert many["access_bytes"].between(7.9, 8.5).all()
    if platform.machine() == "x86_64":
        assert set(many.loc[many["workload"] == "chase", "access_chain"]) == {"and shl add load"}


def test_what_is_missing_is_null_with_a_reason(trials: pd.DataFrame) -> None:
    row = trials[(trials["verdict"] == "valid") & (trials["load"] == "max")].iloc[0]
    reasons = json.loads(row["null_reasons"])
    assert row["cpu_busy_cores"] is pd.NA
    assert "share" in reasons["cpu_busy_cores"]
    if row["host_cycles"] is pd.NA:
        assert reasons["host_cycles"]


def lines_of(run: Path, row: Any, kind: str, burst: str = "rate", of: str | None = None) -> list[dict[str, Any]]:
    raw = run / "raw" / row.trial_id / str(row.attempt) / "xdpgen.jsonl"
    lines = [json.loads(line) for line in raw.read_text().splitlines()]
    return [x for x in lines if (x["type"], x.get("burst"), x.get("of")) == (kind, burst, of)]


def quantile(histogram: dict[str, Any], share: float) -> float:
    """Return the nearest-rank percentile: the middle of its bucket."""
    rank, seen = max(1, -(-round(1000 * share) * histogram["count"] // 1000)), 0
    for lower, count in histogram["buckets"]:
        seen += count
        if seen >= rank:
            width = 1 << max(0, lower.bit_length() - 8)
            return min(max(lower + (width - 1) / 2, histogram["min"]), histogram["max"])
    raise AssertionError("no value")


def test_the_columns_are_what_the_raw_files_say(measured: Path, trials: pd.DataFrame) -> None:
    """Recompute the values from the raw lines, without the code that made the table."""
    for row in trials[trials["verdict"] == "valid"].itertuples():
        (s,) = lines_of(measured, row, "summary")
        assert row.offered_pps == pytest.approx(s["tx_packets"] / s["duration_s"])
        assert row.drained_packets == s["rx_packets"] - s["rx_window_packets"]
        assert row.forwarded_pps == pytest.approx(s["rx_window_packets"] / s["rx_window_s"])
        assert (row.window_requested_s, row.forwarded_window_s) == (0.2, pytest.approx(s["rx_window_s"]))
        assert row.lost_packets == s["tx_packets"] - (s["rx_packets"] - s["duplicates"])
        assert row.reordered_packets == s["reordered"]
        paced = row.load != "max"
        assert row.latency_from == ("due" if paced else "sent")
        (sent,) = lines_of(measured, row, "histogram", of="from_sent")
        headline = lines_of(measured, row, "histogram", of="from_due")[0] if paced else sent
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
            assert getattr(row, f"latency_{name}_ns") == pytest.approx(quantile(headline, share))
            assert getattr(row, f"latency_sent_{name}_ns") == pytest.approx(quantile(sent, share))
        if paced:
            (late,) = lines_of(measured, row, "histogram", of="lateness")
            assert row.late_p99_ns == pytest.approx(quantile(late, 0.99))
            assert late["count"] == s["tx_packets"]
        bursts = lines_of(measured, row, "summary", "warmup")
        assert row.warmup_s == pytest.approx(sum(burst["duration_s"] for burst in bursts))
        assert 1 <= len(bursts) <= 5


def test_the_statistics_own_cost_is_taken_off(trials: pd.DataFrame) -> None:
    known = trials[trials["program_run_ns"].notna()]
    assert len(known) >= 8
    assert known["program_run_ns"].equals(known["program_run_raw_ns"] - known["stats_cost_ns"])
    assert known["stats_cost_ns"].between(2, 500).all(), known["stats_cost_ns"]


def test_perfs_counts_belong_to_the_frames_that_the_dut_received_meanwhile(
    measured: Path, trials: pd.DataFrame
) -> None:
    counted = trials[trials["perf_packets"].notna()]
    assert len(counted) >= 12
    for row in counted.itertuples():
        (s,) = lines_of(measured, row, "summary", "perf")
        assert row.perf_packets == pytest.approx(s["tx_packets"], rel=0.01)


def test_a_cpu_sends_by_the_queue_that_it_receives_by(trials: pd.DataFrame) -> None:
    several = trials[(trials["queues"] == 4) & (trials["verdict"] == "valid")]
    for masks in several["xps"].map(json.loads):
        assert sorted(masks) == ["0", "1", "2", "3"]
        assert all(bin(int(mask, 16)).count("1") == 1 for mask in masks.values())
    assert (several["reordered_packets"] == 0).all(), several[["mode", "reordered_packets"]]


def test_what_the_times_rest_on_is_in_each_row(trials: pd.DataFrame) -> None:
    valid = trials[trials["verdict"] == "valid"]
    assert valid["clocksource"].notna().all()
    assert valid["rt_runtime_us"].notna().all()
    assert set(valid["cycles_per_ns_from"]) <= {"perf", "additions"}
    assert valid["cycles_per_ns"].between(0.3, 8).all()
    assert valid["clock_change"].notna().all()
    assert (valid["dut_cpus"].isna() | valid["dut_cpus"].between(1, 4)).all()
    assert set(valid[valid["load"] == "max"]["batch"]) == {60}  # live
    assert set(valid[valid["load"] == "20kpps"]["batch"]) == {32}  # AF_XDP


def test_no_trial_is_valid_without_the_readings_that_it_rests_on(measured: Path, tmp_path: Path) -> None:
    """As if the tools had printed nothing: the files that the verdicts need are empty."""
    shutil.copytree(measured, tmp_path / "run")
    for file in (tmp_path / "run" / "raw").glob("*/*/counters/dut.*"):
        file.write_bytes(b"")
    run = RunDirectory.open(tmp_path / "run")
    trials = {trial.trial_id: trial for trial in run_trials_of(run)}
    table = pd.DataFrame([attempt_rows(run, trials[a.trial_id], a, window_s=0.2).row for a in attempts_of(run)])
    judged = table[table["verdict"] != "unsupported"]
    assert set(judged["verdict"]) == {"invalid"}
    assert judged["reason"].str.contains("is empty|neither TG nor DUT|no count of the DUT").all(), judged["reason"]


def test_the_plans_own_metric_is_a_column(trials: pd.DataFrame) -> None:
    valid = trials[trials["verdict"] == "valid"]
    assert (valid["forks"] > 0).all()


USER_PROGRAM = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

const volatile __u32 every = 1;
struct { __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, __u64); }
    seen SEC(".maps");

SEC("xdp")
int count_and_drop(struct xdp_md *ctx) {
    __u32 zero = 0;
    __u64 *n = bpf_map_lookup_elem(&seen, &zero);
    if (n)
        *n += every;
    return XDP_DROP;
}
char _license[] SEC("license") = "GPL";
"""


def test_a_program_of_another_project_is_measured(lab_name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.bpf.c").write_text(USER_PROGRAM)
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nrepetitions: 2\ntrial: {warmup_s: 0.05, window_s: 0.2}\n"
        "blocks: [{points: {mode: [native, generic], program: {file: mine.bpf.c, action: drop, rodata: {every: 3}}}}]\n"
    )
    out = xdplab("--lab", lab_name, "run", "mine.yaml", "--out", "out", cwd=tmp_path)
    (run,) = (tmp_path / "out").iterdir()
    table = pd.read_parquet(run / "trials.parquet")
    assert set(table["verdict"]) == {"valid"}, table["reason"]
    assert set(table["forwarded_source"]) == {"dut"}
    assert table["accesses"].isna().all()
    for actions in map(json.loads, table["actions_counted"]):
        assert [action for action, frames in actions.items() if frames] == ["drop"]
    assert unexplained(table) == []
    assert (table["forwarded_pps"] > 1e4).all()
    assert "figure programs, forwarding rate by program" in out.stdout


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="split needs two CPUs, and only one is allowed here")
def test_on_cpus_of_its_own_the_dut_is_an_open_loop(lab_name: str, tmp_path: Path) -> None:
    (tmp_path / "split.yaml").write_text(
        "name: split\nrepetitions: 1\ntrial: {warmup_s: 0.1, window_s: 0.3}\n"
        "blocks: [{points: {mode: [native, generic, af_xdp], workload: array, accesses: 1600}, arrangement: split}]\n"
    )
    xdplab("--lab", lab_name, "run", "split.yaml", "--out", "out", "--no-figures", cwd=tmp_path)
    (run,) = (tmp_path / "out").iterdir()
    table = pd.read_parquet(run / "trials.parquet")
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
    (tmp_path / "mine.bpf.c").write_text(USER_PROGRAM)
    plan = (
        "name: frames\nrepetitions: 1\ntrial: {warmup_s: 0, window_s: 0.2}\n"
        "blocks: [{points: {program: {file: mine.bpf.c, action: drop, frames: mine.pcap}},"
        " traffic: {engine: afxdp, load: 10kpps, stamp: none}}]\n"
    )
    (tmp_path / "mine.yaml").write_text(plan)
    xdplab("--lab", lab_name, "run", "mine.yaml", "--out", "out", cwd=tmp_path)
    (run,) = (tmp_path / "out").iterdir()
    table = pd.read_parquet(run / "trials.parquet")
    assert list(table["verdict"]) == ["valid"], table["reason"]
    assert table["forwarded_pps"][0] == pytest.approx(table["offered_pps"][0], rel=0.05)
    assert table["frame_mean_bytes"][0] == (104 + 204) / 2
    assert table["forwarded_l2_bps"][0] == table["forwarded_pps"][0] * 154 * 8
    assert table["flows"][0] == 2
    assert pd.isna(table["frame_bytes"][0])
    assert "several sizes" in json.loads(table["null_reasons"][0])["frame_bytes"]
    assert table["testrun_raw_ns"][0] > 0
    (tmp_path / "other.yaml").write_text(plan.replace("stamp: none", "flows: 200"))
    refused = xdplab("--lab", lab_name, "run", "other.yaml", "--out", "out", cwd=tmp_path, check=False)
    assert refused.returncode
    assert "flows: 200 cannot be set: the frames of mine.pcap have their own" in refused.stderr


PUSH = """
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>
SEC("xdp") int push(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	struct ethhdr old, *new;
	if (data + sizeof(old) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	__builtin_memcpy(old.h_dest, ((struct ethhdr *)data)->h_source, 6);
	__builtin_memcpy(old.h_source, ((struct ethhdr *)data)->h_dest, 6);
	old.h_proto = 0xb588;
	if (bpf_xdp_adjust_head(ctx, -20))
		return XDP_ABORTED;
	new = (void *)(long)ctx->data;
	if ((void *)(new + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	*new = old;
	return XDP_TX;
}
char _license[] SEC("license") = "GPL";
"""


@pytest.mark.thorough
def test_frames_that_come_back_rewritten_are_not_lost(lab_name: str, tmp_path: Path) -> None:
    """A program that adds a header gave a loss of 1.0 although the counts agreed."""
    (tmp_path / "push.bpf.c").write_text(PUSH)
    (tmp_path / "push.yaml").write_text(
        "name: push\nrepetitions: 1\ntrial: {warmup_s: 0, window_s: 0.2}\n"
        "blocks: [{points: {program: {file: push.bpf.c}}, traffic: {load: 20kpps}}]\n"
    )
    xdplab("--lab", lab_name, "run", "push.yaml", "--out", "out", "--no-figures", cwd=tmp_path)
    (run,) = (tmp_path / "out").iterdir()
    table = pd.read_parquet(run / "trials.parquet")
    assert list(table["verdict"]) == ["valid"], table["reason"]
    assert table["rx_packets"][0] == 0
    assert abs(table["loss_ratio"][0]) < 0.02


@pytest.mark.thorough
def test_figures_compare_and_audit_need_no_lab(lab_name: str, tmp_path: Path) -> None:
    plan = (
        "name: two\nrepetitions: 2\ntrial: {warmup_s: 0.05, window_s: 0.1}\n"
        "blocks: [{points: {accesses: [0, 400, 1600]}}]\n"
    )
    (tmp_path / "two.yaml").write_text(plan)
    for _ in range(2):
        xdplab("--lab", lab_name, "run", "two.yaml", "--out", "out", "--no-figures", cwd=tmp_path)
    first, second = sorted((tmp_path / "out").iterdir())
    drawn = xdplab("figures", str(first), "--style", "slides").stdout
    for suffix in ("svg", "pdf", "png", "csv"):
        assert (first / "figures" / f"throughput.{suffix}").stat().st_size > 0
    assert "no figure evenness: only one queue was used" in drawn
    # Before the rows come the differences of the runs' environment and the answer; the answer is also at the end.
    done = xdplab("compare", str(first), str(second), "--json", check=False)
    found = json.loads(done.stdout)
    assert len(found["points"]) == 3
    assert done.returncode == {"equivalent": 0, "differs": 1, "undecided": 2}[found["verdict"]]
    assert found["environment"] == []
    events = [json.loads(line) for line in (second / "journal.jsonl").read_text().splitlines()]
    for session in (event for event in events if event["event"] == "hosts"):
        session["state"]["dut"]["kernel"] = {"value": "9.9.9"}
    (second / "journal.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    told = xdplab("compare", str(first), str(second), check=False).stdout.splitlines()
    assert told[0] == "What differs around the runs:"
    assert told[1].startswith("  dut kernel: ")
    assert told[1].endswith("9.9.9")
    assert any(line.startswith("Answer: ") for line in told)
    alone = xdplab("compare", str(first), str(second), "--equal", str(first), check=False)
    assert "one equal run has no spread" in alone.stderr
    json.loads(xdplab("audit", str(first), "--json").stdout)
    state = json.loads(xdplab("status", str(first), "--json").stdout)[0]
    assert (state["trials"], state["measured"], state["owed"], state["state"]) == (6, 6, 0, "complete")


def test_a_finished_run_resumes_with_nothing_to_do(lab_name: str, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(
        "name: one\nrepetitions: 1\ntrial: {warmup_s: 0, window_s: 0.1}\nblocks: [{points: {accesses: 0}}]\n"
    )
    xdplab("--lab", lab_name, "run", "one.yaml", "--out", "out", "--no-figures", cwd=tmp_path)
    (run,) = (tmp_path / "out").iterdir()
    journal = (run / "journal.jsonl").read_bytes()
    assert "nothing is missing" in xdplab("resume", str(run)).stdout
    assert (run / "journal.jsonl").read_bytes() == journal
    assert str(tmp_path) not in (run / "plan.yaml").read_text() + (run / "manifest.json").read_text()


def test_a_run_brings_its_lab_up_and_takes_it_down(tmp_path: Path) -> None:
    name = f"netns:e2e-own-{os.getpid()}"
    (tmp_path / "one.yaml").write_text(
        f"name: one\nlab: {name}\nrepetitions: 1\ntrial: {{warmup_s: 0, window_s: 0.1}}\n"
        "blocks: [{points: {accesses: 0}}]\n"
    )
    xdplab("run", "one.yaml", "--out", "out", "--no-figures", cwd=tmp_path)
    assert name not in xdplab("lab", "status").stdout


@pytest.mark.parametrize(
    ("plan", "options", "words"),
    [
        ("name: x\nblocks: [{points: {queus: 1}}]", [], "block 1, points.queus"),
        ("name: x\nblocks: [{points: {queues: 64}}]", [], "queues: 64"),
        ("name: x\nblocks: [{points: {frame_bytes: 9000}}]", [], "frame_bytes"),
        ("name: x\nblocks: [{points: {workload: packet, form: loop, accesses: 12800}}]", [], "too complex"),
        ("name: x\nblocks: [{arrangement: hosts}]", [], "arrangement"),
        ("name: x\nblocks: [{}]", ["--only", "colour=red"], "colour"),
        ("name: x\nmetrics: [{name: ipc, argv: [uptime]}]\nblocks: [{}]", [], "ipc is a column already"),
        ("name: x\nblocks: [{points: {program: {file: absent.bpf.c}}}]", [], "absent.bpf.c"),
        ("name: x\nblocks: [{points: {program: {file: bad.bpf.c}}}]", [], "bad.bpf.c|error"),
        ("not: [a plan", [], "not YAML"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_measured(
    lab_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: str, options: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.bpf.c").write_text("this is no C")
    (tmp_path / "bad.yaml").write_text(plan)
    code, said = ending(["--lab", lab_name, "run", "bad.yaml", "--out", "out", *options])
    assert code not in (0, 130)
    (line,) = [row for row in said.splitlines() if row.strip()]
    assert any(word in line for word in words.split("|")), line
    journals = list(tmp_path.glob("out/*/journal.jsonl"))
    assert not any("finished" in journal.read_text() for journal in journals)


def test_a_second_run_in_the_same_lab_is_refused(lab: Lab, lab_name: str, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("name: one\nblocks: [{points: {accesses: 0}}]\n")
    with lab.lock("the first run"):
        done = xdplab("--lab", lab_name, "run", "one.yaml", "--out", "out", cwd=tmp_path, check=False)
    assert done.returncode == 3
    assert "the first run" in done.stderr


RETURNS = """#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("xdp") int returns(struct xdp_md *ctx) { return XDP_%s; }
char _license[] SEC("license") = "GPL";
"""


@pytest.mark.thorough
def test_a_program_that_does_not_do_what_the_plan_says_is_invalid(lab_name: str, tmp_path: Path) -> None:
    """Each program with each declared action, by the driver's counters (native) and by counting instructions (both)."""
    for name in ("drop", "pass", "tx", "aborted"):
        (tmp_path / f"{name}.bpf.c").write_text(RETURNS % name.upper())
    programs = [
        f"{{file: {does}.bpf.c, action: {said}}}"
        for does in ("drop", "pass", "tx", "aborted")
        for said in ("drop", "pass", "tx")
    ]
    (tmp_path / "said.yaml").write_text(
        "name: said\nrepetitions: 1\ntrial: {warmup_s: 0.05, window_s: 0.1, pause_s: 0.02}\n"
        f"blocks: [{{points: {{mode: [native, generic], program: [{', '.join(programs)}]}}}}]\n"
    )
    xdplab("--lab", lab_name, "run", "said.yaml", "--out", "out", "--no-figures", cwd=tmp_path)
    (run,) = (tmp_path / "out").iterdir()
    table = pd.read_parquet(run / "trials.parquet")
    table["does"] = table["program_name"].str.split(".").str[0]
    as_said = table["does"].eq(table["action"])
    assert set(table[as_said]["verdict"]) == {"valid"}, list(table[as_said]["reason"])
    assert set(table[~as_said]["verdict"]) == {"invalid"}, list(table[~as_said]["reason"])
    native = table[table["mode"].eq("native") & table["does"].ne("aborted")]
    for column, rows in (("xdp_actions", native), ("actions_counted", table)):
        counts = [json.loads(text) for text in rows[column]]
        assert all(max(c, key=c.get) == does for c, does in zip(counts, rows["does"], strict=True)), column


REDIRECTS = """#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct { __uint(type, BPF_MAP_TYPE_%s); __uint(max_entries, 64); __type(key, __u32); __type(value, __u32); }
    targets SEC(".maps");
SEC("xdp") int redirects(struct xdp_md *ctx) { return bpf_redirect_map(&targets, %d, XDP_DROP); }
char _license[] SEC("license") = "GPL";
"""
CPU_1 = ["bpftool", *["map", "update", "name", "targets", "key", "1", "0", "0", "0", "value", "8", "0", "0", "0"]]
NOWHERE = """#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("xdp") int nowhere(struct xdp_md *ctx) { return bpf_redirect(9999, 0); }
char _license[] SEC("license") = "GPL";
"""
MIXED = """#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("xdp") int mixed(struct xdp_md *ctx) { return bpf_get_prandom_u32() % 4 ? XDP_DROP : XDP_PASS; }
char _license[] SEC("license") = "GPL";
"""
SECOND_VETH = """
set -e
test -e /sys/class/net/out0 || ip link add out0 type veth peer name out1
ip link set out0 up; ip link set out1 up; ethtool -K out1 gro on
bpftool map update name targets key 0 0 0 0 value $(printf '%d 0 0 0' $(cat /sys/class/net/out0/ifindex))
"""


@pytest.mark.thorough
def test_redirected_frames_are_followed_to_their_target(lab: Lab, lab_name: str, tmp_path: Path) -> None:
    """Targets: a device behind a second veth, a CPU whose queue overflows, a socket, none of these; shares of mixed."""
    if os.cpu_count() == 1:
        pytest.skip("one CPU: there is no other to redirect to")
    for kind in ("devmap", "cpumap", "xskmap"):
        (tmp_path / f"{kind}.bpf.c").write_text(REDIRECTS % (kind.upper(), kind == "cpumap"))
    # A map that holds a socket lives as long as the socket, so it has a name of its own.
    (tmp_path / "socket.bpf.c").write_text((REDIRECTS % ("XSKMAP", 0)).replace("targets", "sockets"))
    sink = tmp_path / "sink"
    subprocess.run(["gcc", "-O2", "-o", sink, Path(__file__).with_name("sink.c"), "-lxdp", "-lbpf"], check=True)
    there = lab.work_dir(lab.dut)
    lab.dut.put(sink, f"{there}/sink", mode=0o755)
    (tmp_path / "nowhere.bpf.c").write_text(NOWHERE)
    (tmp_path / "mixed.bpf.c").write_text(MIXED)
    programs: list[dict[str, Any]] = [
        {"file": "devmap.bpf.c", "action": "redirect", "setup": [["sh", "-c", SECOND_VETH]]},
        {"file": "cpumap.bpf.c", "action": "redirect", "setup": [CPU_1]},
        {"file": "xskmap.bpf.c", "action": "drop"},
        {"file": "xskmap.bpf.c", "action": "redirect"},
        {"file": "nowhere.bpf.c", "action": "redirect"},
        {"file": "mixed.bpf.c", "action": "mixed"},
    ]
    plan: dict[str, Any] = {
        "name": "redirects",
        "repetitions": 1,
        "trial": {"warmup_s": 0.05, "window_s": 0.1, "pause_s": 0.02},
        "blocks": [{"points": {"mode": ["native", "generic"], "program": programs}}],
    }
    for mode in ("native", "generic"):
        setup = [[f"{there}/sink", "vd0", "sockets", f"{there}/{mode}.count"]]
        points = {"mode": mode, "program": [{"file": "socket.bpf.c", "action": "redirect", "setup": setup}]}
        plan["blocks"].append({"points": points, "traffic": {"load": "20kpps"}})
    (tmp_path / "redirects.yaml").write_text(json.dumps(plan))
    xdplab("--lab", lab_name, "run", "redirects.yaml", "--out", "out", "--no-figures", cwd=tmp_path)
    (run,) = (tmp_path / "out").iterdir()
    table = pd.read_parquet(run / "trials.parquet")

    def rows(name: str, action: str) -> list[dict[str, Any]]:
        return table[table["program_name"].eq(f"{name}.bpf.c") & table["action"].eq(action)].to_dict("records")

    for row in rows("devmap", "redirect"):
        (target,) = json.loads(row["redirect_targets"])
        assert row["verdict"] == "valid", row["reason"]
        assert (target["kind"], target["name"]) == ("device", "out0")
        assert target["arrived"] == target["accepted"] > 0
        assert "to device out0: of" in row["reason"]
    for row in rows("cpumap", "redirect"):
        (target,) = json.loads(row["redirect_targets"])
        assert row["verdict"] == "valid", row["reason"]
        assert (target["kind"], target["name"]) == ("cpu", "1")
        assert target["arrived"] + target["dropped"] == target["accepted"]
        assert target["busy_ns"] > 0
    for row in rows("socket", "redirect"):
        (target,) = json.loads(row["redirect_targets"])
        assert row["verdict"] == "valid", row["reason"]
        assert (target["kind"], target["name"]) == ("socket", "0")
        assert (
            0
            < target["arrived"]
            == target["accepted"]
            <= int(lab.dut.run(["cat", f"{there}/{row['mode']}.count"]).text)
        )
    assert {row["verdict"] for row in rows("xskmap", "drop")} == {"valid"}
    assert {row["verdict"] for row in rows("xskmap", "redirect")} == {"invalid"}
    for row in rows("nowhere", "redirect"):
        assert row["verdict"] == "invalid"
        assert "the kernel refused" in row["reason"]
    for row in rows("mixed", "mixed"):
        counts = json.loads(row["actions_counted"])
        assert counts["drop"] / sum(counts.values()) == pytest.approx(0.75, abs=0.02)
        assert "the program decided" in row["reason"]
