"""Programs that call a driver's kfuncs for metadata are loaded for its device: users' own and generated ones."""

import json
from pathlib import Path

import pytest

from tests.end_to_end.conftest import plan, run_of, trials_of
from xdplab.labs import Lab

pytestmark = [pytest.mark.root, pytest.mark.lab]

HINTED = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
enum xdp_rss_hash_type { ANY_TYPE };
extern int bpf_xdp_metadata_rx_hash(const struct xdp_md *ctx, __u32 *hash, enum xdp_rss_hash_type *type) __ksym;
SEC("xdp") int hinted(struct xdp_md *ctx)
{
    enum xdp_rss_hash_type type = 0;
    __u32 hash = 0;
    return bpf_xdp_metadata_rx_hash(ctx, &hash, &type) ? XDP_DROP : XDP_PASS;
}
SEC("xdp") int plain(struct xdp_md *ctx) { return XDP_DROP; }
char LICENSE[] SEC("license") = "GPL";
"""
FUNCTIONS = [{"file": "own.bpf.c", "function": "hinted", "action": "mixed"}]
FUNCTIONS += [{"file": "own.bpf.c", "function": "plain", "action": "drop"}]


BLOCKS = [
    {
        "points": {"mode": "native", "program": FUNCTIONS},
        "traffic": {"load": "20kpps", "engine": ["live", "afxdp"]},
    },
    {"points": {"mode": "generic", "program": FUNCTIONS}, "traffic": {"load": "20kpps"}},
    {
        "points": {"mode": "native", "workload": ["rx_hash", "rx_vlan_tag"], "accesses": [0, 100]},
        "traffic": {"engine": "afxdp"},
    },
]


@pytest.fixture(scope="module")
def run(lab_name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hints")
    (folder / "own.bpf.c").write_text(HINTED)
    return run_of(lab_name, folder, plan(json.dumps(BLOCKS)))


def test_a_users_program_with_hints_is_loaded_for_its_device_and_its_neighbour_is_not(lab: Lab, run: Path) -> None:
    """veth knows the hash of a frame that came as an skb, and of no other: the actions say it."""
    trials = trials_of(run).dropna(subset="function").set_index(["function", "mode", "engine"]).sort_index()
    hinted, plain = trials.loc["hinted"], trials.loc["plain"]
    assert set(hinted.loc["generic", "verdict"]) == {"unsupported"}
    assert hinted.loc["generic", "reason"].str.contains("Can't attach device-bound programs in generic mode").all()
    assert set(plain["verdict"]) == {"valid"} == set(hinted.loc["native", "verdict"]), trials["reason"]
    facts = [json.loads(file.read_text()) for file in run.glob("raw/*/*/applied.json")]
    bound = {(one["point"]["function"], one["deployment"]["device"]) for one in facts if one["point"]["function"]}
    assert bound == {("hinted", lab.dut_interface), ("plain", None)}
    assert hinted["testrun_raw_ns"].isna().all()
    assert plain["testrun_raw_ns"].notna().all()
    actions = hinted.loc["native", "actions_counted"].map(json.loads)
    assert actions["live"]["drop"] > 0 == actions["live"]["pass"]
    assert actions["afxdp"]["pass"] > 0 == actions["afxdp"]["drop"]


def test_calls_of_kfuncs_are_counted_and_a_refusal_has_no_cost_of_an_answer(run: Path) -> None:
    """Of a frame that came as an skb a veth knows the hash, and no VLAN where the tag stayed in the frame."""
    trials = trials_of(run).dropna(subset="accesses")
    assert set(trials["verdict"]) == {"valid"}, trials["reason"]
    calling = trials[trials["accesses"] > 0].set_index("workload")
    assert calling["hints_refused_percent"].to_dict() == {"rx_hash": 0.0, "rx_vlan_tag": 100.0}
    assert calling["access_ns"].notna().to_dict() == {"rx_hash": True, "rx_vlan_tag": False}
    assert "ENODATA" in json.loads(calling.loc["rx_vlan_tag", "null_reasons"])["access_ns"]
    proofs = [json.loads(file.read_text()) for file in run.glob("programs/*/proof.json")]
    assert sorted(one["kernel"][0] for one in proofs) == [0, 100, 100]
    calls = {call for file in run.glob("programs/*/load.json") for call in json.loads(file.read_text())["calls"]}
    assert {"veth_xdp_rx_hash", "veth_xdp_rx_vlan_tag"} <= calls
