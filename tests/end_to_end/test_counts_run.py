"""Counts that something upstream, or another load of the program, would make false: with real traffic."""

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.end_to_end.conftest import measured, plan, source

pytestmark = [pytest.mark.thorough, pytest.mark.root, pytest.mark.lab]

SEEN = "__u64 seen;"
PROGRAMS = {
    "slow": "for (int i = 0; i < 300; i++) __sync_fetch_and_add(&seen, 1); return XDP_DROP;",
    "budget": "return __sync_fetch_and_add(&seen, 1) < 2000 ? XDP_PASS : XDP_DROP;",
    "reflect": "return back(ctx);",
    "shrink": "int kept = back(ctx), left = 60 - (ctx->data_end - ctx->data); "
    "return left < 0 && bpf_xdp_adjust_tail(ctx, left) ? XDP_DROP : kept;",
    "rewrite": "if (__sync_fetch_and_add(&seen, 1) % 200 == 0) { unsigned char *at = (void *)(long)ctx->data; "
    "if (at + 60 <= (unsigned char *)(long)ctx->data_end) for (int i = 42; i < 60; i++) at[i] ^= 255; } "
    "return back(ctx);",
}
BLOCK = """
  - points: {{mode: {mode}, frame_bytes: {size}, program: [{programs}]}}
    traffic: {{engine: live, load: {load}}}
"""


def trials_with(
    folder: Path, lab_name: str, mode: str, *programs: str, size: int = 64, load: str = "max", window_s: float = 0.3
) -> pd.DataFrame:
    for name, body in PROGRAMS.items():
        (folder / f"{name}.bpf.c").write_text(source(name, body, SEEN))
    blocks = BLOCK.format(mode=mode, programs=", ".join(programs), size=size, load=load)
    return measured(lab_name, folder, plan(blocks, window_s=window_s)).set_index(["mode", "program_name", "action"])


def on_dut(command: str) -> str:
    return "setup: " + json.dumps([["sh", "-c", command]])


RPS = "/sys/class/net/vd0/queues/rx-0/rps_cpus"


def test_the_links_count_is_not_the_programs_where_a_backlog_drops_between_them(lab_name: str, tmp_path: Path) -> None:
    """Receive packet steering queues frames for another CPU behind the link's count: 3.5 Mpps were valid for 0.9."""
    steered = f"{{file: slow.bpf.c, action: drop, {on_dut(f'echo 2 > {RPS}')}}}"
    plain = f"{{file: reflect.bpf.c, action: tx, {on_dut(f'echo 0 > {RPS}')}}}"
    trials = trials_with(tmp_path, lab_name, "generic", steered, plain)
    slow = trials.loc["generic", "slow.bpf.c", "drop"]
    assert slow["verdict"] == "invalid"
    assert slow["host_softnet_dropped"] > 0.1 * slow["tx_packets"]
    assert sum(json.loads(slow["actions_counted"]).values()) < 0.9 * slow["actions_received"]
    assert trials.loc["generic", "reflect.bpf.c", "tx"]["verdict"] == "valid"


def test_actions_are_counted_with_the_maps_of_the_measured_load(lab_name: str, tmp_path: Path) -> None:
    """Of a fresh copy's first frames all were passed, where nine in ten of the window were dropped."""
    programs = [f"{{file: budget.bpf.c, action: {action}}}" for action in ("pass", "drop", "mixed")]
    trials = trials_with(tmp_path, lab_name, "generic", *programs).loc["generic", "budget.bpf.c"]
    assert trials["verdict"].to_dict() == {"pass": "invalid", "drop": "valid", "mixed": "valid"}
    for counts in trials["actions_counted"].map(json.loads):
        assert counts["drop"] == sum(counts.values()) > 0


def test_bits_are_of_the_size_that_came_back_and_rewritten_frames_came_back(lab_name: str, tmp_path: Path) -> None:
    programs = [f"{{file: {name}.bpf.c, action: tx}}" for name in ("shrink", "rewrite", "reflect")]
    trials = trials_with(tmp_path, lab_name, "[native, generic]", *programs, size=1518, load="20kpps")
    size = (trials["forwarded_l2_bps"] / trials["forwarded_pps"] / 8).xs("tx", level="action").unstack("mode")
    assert size.loc["shrink.bpf.c"].to_list() == pytest.approx([64, 64])
    assert size.loc[["rewrite.bpf.c", "reflect.bpf.c"]].to_numpy().ravel() == pytest.approx([1518] * 4)
    rewrite = trials.xs("rewrite.bpf.c", level="program_name")
    assert (rewrite["verdict"].eq("valid") & rewrite["lost_packets"].eq(0)).all(), rewrite["reason"].to_list()
    assert rewrite["foreign_packets"].gt(0).all()


def test_forwarding_that_stops_in_the_window_is_no_rate(lab_name: str, tmp_path: Path) -> None:
    """Its frames counted as sent: the TG's device refused them before it counts."""
    stop = on_dut("(sleep 1.5; ethtool -K vd0 gro off) >/dev/null 2>&1 &")
    program = f"{{file: reflect.bpf.c, action: tx, {stop}}}"
    trial = trials_with(tmp_path, lab_name, "generic", program, window_s=2.0).iloc[0]
    assert trial["verdict"] == "invalid"
    assert trial["tg_port_tx_packets"] == trial["dut_rx_packets"] < 0.99 * trial["tx_packets"]
    if trial["rx_packets"]:  # it stopped within the window
        assert trial["rate_change"] < -0.5


PORTS = """
struct { __uint(type, BPF_MAP_TYPE_DEVMAP); __uint(max_entries, 8); __type(key, __u32); __type(value, __u32); }
    ports SEC(".maps");
const volatile __u32 slot;
"""
BROADCAST = "return bpf_redirect_map(&ports, slot, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS);"
TWO_VETHS = """
set -e
for n in 1 2; do
    test -e /sys/class/net/many$n || ip link add many$n type veth peer name peer$n
    ip link set many$n up; ip link set peer$n up; ethtool -K peer$n gro on
    bpftool map update name ports key $n 0 0 0 value $(printf '%d 0 0 0' $(cat /sys/class/net/many$n/ifindex))
done
"""


def test_a_broadcasts_many_targets_are_told(lab_name: str, tmp_path: Path) -> None:
    """Every frame arrived at both, and was said to have gone to a device that is not there."""
    (tmp_path / "all.bpf.c").write_text(source("all", BROADCAST, PORTS))
    keys = f"action: redirect, {on_dut(TWO_VETHS)}"
    programs = [f"{{file: all.bpf.c, rodata: {{slot: {n}}}, {keys}}}" for n in (0, 1)]
    trials = trials_with(tmp_path, lab_name, "[native, generic]", *programs)
    assert trials["verdict"].eq("valid").all(), trials["reason"].to_list()
    for targets in trials["redirect_targets"].map(json.loads):
        (target,) = targets
        assert (target["kind"], target["name"]) == ("broadcast", "many1, many2")
        assert target["arrived"] == 2 * target["accepted"] > 0
    assert trials["reason"].str.contains("many1, many2").all()
