"""Users' programs as people have them, each by its keys of a plan, with real traffic."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import measured, plan, xdplab
from xdplab.errors import ProgramError
from xdplab.labs import Lab

pytestmark = [pytest.mark.root, pytest.mark.lab]

PROGRAMS = """
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>
#include "verdict.h"
#define MAP(name, kind, held) struct { __uint(type, kind); __uint(max_entries, 4); __type(key, __u32); \\
    __type(value, held); } name SEC(".maps")
MAP(jump, BPF_MAP_TYPE_PROG_ARRAY, __u32);
MAP(ports, BPF_MAP_TYPE_DEVMAP, struct bpf_devmap_val);
MAP(asked, BPF_MAP_TYPE_ARRAY, __u32);
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, __u32);
    __uint(pinning, LIBBPF_PIN_BY_NAME); } seen SEC(".maps");
const volatile struct { __u32 low, high; } limits = {1, 2};
SEC("xdp") int enter(struct xdp_md *ctx) { bpf_tail_call(ctx, &jump, 1); return XDP_PASS; }
SEC("xdp/last") int last(struct xdp_md *ctx) { return VERDICT; }
SEC("xdp") int hand_on(struct xdp_md *ctx) { return bpf_redirect_map(&ports, 0, 0); }
SEC("xdp/devmap") int leave(struct xdp_md *ctx) { return ctx->egress_ifindex ? XDP_PASS : XDP_DROP; }
SEC("xdp") int ask(struct xdp_md *ctx)
{
    __u32 zero = 0, *told = bpf_map_lookup_elem(&asked, &zero);
    return told && *told == 1 && limits.high == 7 && limits.low == 1 ? XDP_DROP : XDP_PASS;
}
SEC("xdp") int route(struct xdp_md *ctx)
{
    struct bpf_fib_lookup way = {.family = 2, .l4_protocol = IPPROTO_UDP, .ifindex = ctx->ingress_ifindex,
        .ipv4_src = __builtin_bswap32(0xc6120001), .ipv4_dst = __builtin_bswap32(0xc6130001), .tot_len = 46};
    return bpf_fib_lookup(ctx, &way, sizeof(way), 0) ? XDP_PASS : bpf_redirect(way.ifindex, 0);
}
SEC("xdp") int refused(struct xdp_md *ctx) { return *(int *)(long)ctx->data; }
SEC("tc") int classify(struct __sk_buff *skb) { return 2; }
char LICENSE[] SEC("license") = "GPL";
"""
VETH = "ip link show $1 || ip link add $1 type veth peer name $1p; ip link set $1 up; ip link set $1p up; "
VETH += "ethtool -K $1p gro on"
ROUTE = "ip addr replace 10.9.0.1/24 dev own1; ip route replace 198.19.0.0/16 via 10.9.0.2; "
ROUTE += "ip neigh replace 10.9.0.2 lladdr 02:00:00:00:00:99 dev own1 nud permanent; "
ROUTE += "echo 1 >/proc/sys/net/ipv4/ip_forward"
FILE = {"file": "src/own.bpf.c", "cflags": ["-Iinc", "-DVERDICT_IS=XDP_DROP"]}
PORTS = {"ports": {0: {"device": "own0", "program": "leave"}}}
KEYS: list[dict[str, Any]] = [
    {"function": "enter", "action": "drop", "maps": {"jump": {1: "last"}}},
    {"function": "hand_on", "action": "redirect", "maps": PORTS, "setup": [["sh", "veth.sh", "own0"]]},
    {"function": "ask", "action": "drop", "rodata": {"limits": {"high": 7}}, "maps": {"asked": "asked.csv"}},
    {"function": "route", "action": "redirect", "setup": [["sh", "veth.sh", "own1"], ["sh", "-c", ROUTE]]},
]


@pytest.mark.thorough
def test_programs_chosen_by_function_do_what_their_plan_says(lab: Lab, lab_name: str, tmp_path: Path) -> None:
    """Each trial's counted actions must be the plan's, or it is invalid; `refused` is never loaded."""
    (tmp_path / "src").mkdir()
    (tmp_path / "inc").mkdir()
    (tmp_path / "src/own.bpf.c").write_text(PROGRAMS)
    (tmp_path / "inc/verdict.h").write_text("#define VERDICT VERDICT_IS\n")
    (tmp_path / "veth.sh").write_text(VETH)
    (tmp_path / "asked.csv").write_text("key,value\n0,1\n")
    points = {"mode": "native", "program": [FILE | keys for keys in KEYS]}
    text = plan(json.dumps([{"points": points, "traffic": {"load": "20kpps"}}]))
    for _ in range(2):  # in one lab: the first leaves it as it was
        trials = measured(lab_name, tmp_path, text).set_index("function")
        assert trials["verdict"].to_dict() == dict.fromkeys((keys["function"] for keys in KEYS), "valid"), trials[
            "reason"
        ]
        counted = trials["actions_counted"].map(json.loads)
        assert counted["enter"]["drop"] == sum(counted["enter"].values()) > 0
        assert counted["route"]["redirect"] == sum(counted["route"].values()) > 0
    assert lab.dut.run(["cat", "/proc/sys/net/ipv4/ip_forward"]).text.strip() == "0"


@pytest.mark.parametrize("program", [{"section": "tc"}, {}], ids=["a classifier", "several"])
def test_what_is_no_program_for_the_link_is_told_with_the_users_file(
    lab_name: str, tmp_path: Path, program: dict[str, object]
) -> None:
    """What else is refused: tests/native/xdpload/test_xdpload_programs.py, tests/programs/test_programs_build.py."""
    (tmp_path / "own.bpf.c").write_text(PROGRAMS)
    (tmp_path / "verdict.h").write_text("#define VERDICT XDP_DROP\n")
    points = {"program": {"file": "own.bpf.c", "action": "drop", **program}}
    (tmp_path / "plan.yaml").write_text(plan(json.dumps([{"points": points}])))
    done = xdplab("--lab", lab_name, "run", str(tmp_path / "plan.yaml"), "--out", str(tmp_path / "out"), check=False)
    told = [line for line in done.stderr.splitlines() if line.startswith("xdplab: ") and "waiting" not in line]
    assert done.returncode == ProgramError.exit_code
    assert ["own.bpf.c" in line for line in told] == [True], told
