"""Changes planted in the gallery's programs: each is found, with sign and line; what changes nothing gives 0."""

import shutil
from pathlib import Path

import pytest
from tests.cli.entry import ending_with_output
from tests.studies.cost.interpreter import interpreted

from xdplab.resources import shipped
from xdplab.studies import kinds
from xdplab.studies.cost.counts import measurement_in
from xdplab.studies.cost.gate import Case, CostDifference, cases_of

pytestmark = [pytest.mark.thorough, pytest.mark.guest]

GALLERY = shipped("xdp_progs") / "gallery"
SWAP = "    swap_macs(ethernet);\n"
IP_SWAP = "    swap_macs((struct ethhdr *)ip - 1);\n"
LOOKUP = "    __u32 *drops = bpf_map_lookup_elem(&filter_prefixes, &from);\n"
FLOW = "    __u16 from_port, to_port;\n"

PLANTED = [
    ("empty", SWAP, f"{SWAP}    if (ethernet->h_dest[0] == 0xff)\n        return XDP_DROP;\n", +1, "0xff"),
    ("empty", SWAP, f"{SWAP}    if (ethernet->h_proto == 0)\n        return XDP_DROP;\n", +1, "h_proto"),
    ("empty", SWAP, "", -1, "__builtin_memcpy"),
    ("empty", SWAP, f"{SWAP}    if (!bpf_ktime_get_ns())\n        return XDP_DROP;\n", +1, "ktime"),
    ("empty", SWAP, f"{SWAP}    if (bpf_get_smp_processor_id() > 99)\n        return XDP_DROP;\n", +1, "smp_processor"),
    ("empty", SWAP, f"{SWAP}    ethernet->h_source[5] ^= 1;\n", +1, "^= 1"),
    ("empty", SWAP, f"{SWAP}    ethernet->h_proto ^= ethernet->h_source[0];\n", +1, "h_proto ^="),
    ("empty", SWAP, f"{SWAP}    for (int i = 0; i < ETH_ALEN; i++)\n        ethernet->h_source[i] ^= 3;\n", +1, "^= 3"),
    ("empty", "ethernet + 1) >", "ethernet + 2) >", 0, ""),
    ("prefixes", LOOKUP, LOOKUP.replace("bpf_map", "ip->ttl > 9 ? NULL : bpf_map"), -1, "bpf_map_lookup_elem"),
    ("prefixes", LOOKUP, LOOKUP + LOOKUP.replace("*drops", "*again") + "    if (again)\n        return XDP_DROP;\n", +1,
     "again"),
    ("prefixes", "LPM_TRIE", "HASH", +1, "bpf_map_lookup_elem"),
    ("prefixes", "{.length = 32,", "{.length = ip->ttl > 3 ? 32 : 24,", +1, "ttl > 3"),
    ("prefixes", "    if (!ip)", "    if (!ip || ip->ttl < 2)", +1, "ttl < 2"),
    ("prefixes", IP_SWAP, "", -1, "__builtin_memcpy"),
    ("prefixes", IP_SWAP, f"    ip->tos = 4;\n{IP_SWAP}", +1, "tos"),
    ("ipip", "#pragma unroll", "#pragma clang loop unroll(disable)", +1, "sum += word"),
    ("ipip", "    outer->check = folded(sum);\n", "    outer->check = 0;\n", -1, "word"),
    ("ipip", "    swap_macs(first);\n", "", -1, "__builtin_memcpy"),
    ("ipip", "bpf_htonl(near_end)", "bpf_htonl(near_end + (inner_bytes & 1))", +1, "near_end"),
    ("ipip", "    __u32 sum = 0;\n", "    __u32 sum = 0;\n    outer->id = inner_bytes;\n", +1, "id = inner"),
    ("ipip", "    *first = ", "    if (!bpf_ktime_get_ns())\n        return XDP_DROP;\n    *first = ", +1, "ktime"),
    ("balancer", "remember = true", "remember = false", +1, "hash"),
    ("balancer", "    count(!known);\n", "", -1, "balancer_cases"),
    ("balancer", "    if (udp->check)\n", "    if (!udp->check)\n", +1, "corrected"),
    ("balancer", IP_SWAP, "", -1, "__builtin_memcpy"),
    ("balancer", "    if (!udp ||", "    if (!udp || udp->dest == 0 ||", +1, "dest == 0"),
    ("balancer", "BPF_MAP_TYPE_PERCPU_ARRAY", "BPF_MAP_TYPE_ARRAY", -1, "balancer_cases"),
    ("balancer", "BPF_MAP_TYPE_LRU_HASH", "BPF_MAP_TYPE_HASH", -1, "known"),
    ("balancer", FLOW, f"{FLOW}    __u64 padding[2];\n", +1, "balancer_flows"),
    ("balancer", "    ip->daddr = backend;\n", "    ip->daddr = backend;\n    ip->id = backend;\n", +1, "id = backend"),
]  # fmt: skip
"""Program, what is replaced by what, the sign of the difference (0: none), and a word of a line that is to be named."""

UNUSED = "ALWAYS int unused(int a) { return a + 1; }\n\n"
MAIN = {"empty": "empty", "prefixes": "filter", "ipip": "encapsulate", "balancer": "balance"}
NEUTRAL = {
    "a comment": lambda text, _: text.replace("#include", "// nothing\n#include", 1),
    "lines": lambda text, _: "\n\n\n" + text,
    "a name": lambda text, main: text.replace(f"int {main}(", "int renamed("),
    "an unused macro": lambda text, _: text.replace('#include "gallery.h"', '#include "gallery.h"\n#define UNUSED 7'),
    "an unused function": lambda text, _: text.replace('SEC("xdp")', f'{UNUSED}SEC("xdp")'),
    "another word for a type": lambda text, _: text.replace("__u32", "unsigned int"),
    "a local's name": lambda text, _: text.replace("ethernet", "header").replace("from", "origin"),
    "indentation": lambda text, _: text.replace("\n    ", "\n\t"),
}


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Case], Path]:
    """Every program, counted in one guest, and the run."""
    folder = tmp_path_factory.mktemp("planted")
    shutil.copy(GALLERY / "gallery.h", folder)
    sources = {program: (GALLERY / f"{program}.bpf.c").read_text() for program in MAIN}
    texts = {f"{program}-0": text for program, text in sources.items()}
    for number, (program, old, new, _, _) in enumerate(PLANTED, start=1):
        assert sources[program].count(old) >= 1, old
        texts[f"{program}-{number}"] = sources[program].replace(old, new)
    for program, main in MAIN.items():
        for number, changed in enumerate(NEUTRAL.values(), start=1):
            texts[f"{program}-same{number}"] = changed(sources[program], main)
    for name, text in texts.items():
        (folder / f"{name}.bpf.c").write_text(text)
    files = [str(folder / f"{name}.bpf.c") for name in texts]
    code, _, error = ending_with_output(["cost", *files, "--mode", "test_run", "--out", str(folder / "out")])
    assert code == 0, error
    (run,) = (folder / "out").iterdir()
    return {case.name.removesuffix(".bpf.c"): case for case in cases_of(kinds.open_run(run).rows())}, run


def test_each_planted_change_is_found_with_its_sign_and_its_line(counted: tuple[dict[str, Case], Path]) -> None:
    cases, _ = counted
    wrong, unnamed = [], []
    for number, (program, old, new, sign, word) in enumerate(PLANTED, start=1):
        difference = CostDifference(cases[f"{program}-0"], cases[f"{program}-{number}"])
        change = difference.new.totals["whole"] - difference.old.totals["whole"]
        if (change > 0) - (change < 0) != sign:
            wrong.append((number, program, old, new, str(change)))
        if not any(word in line for line in difference.lines.get("line", [])) and sign:
            unnamed.append((number, program, word))
    assert wrong == []
    assert len(unnamed) <= 2, unnamed


def test_what_changes_nothing_gives_nothing(counted: tuple[dict[str, Case], Path]) -> None:
    cases, _ = counted
    for program in MAIN:
        for number, name in enumerate(NEUTRAL, start=1):
            difference = CostDifference(cases[f"{program}-0"], cases[f"{program}-same{number}"])
            assert difference.growth[0] <= 0, (program, name)
            assert CostDifference(difference.new, difference.old).growth[0] <= 0, (program, name)


def test_a_change_is_as_large_as_the_machine_code_that_an_interpreter_executes(
    counted: tuple[dict[str, Case], Path],
) -> None:
    cases, path = counted
    run = kinds.open_run(path)
    checked = 0
    for trial, _, raw in run.plan.attempts():
        name = trial.point.program.removesuffix(".bpf.c")
        if name.startswith("empty") and not cases[name].totals["called"]:
            frame = bytes.fromhex((path / trial.point.frames).read_text().split()[0])
            assert cases[name].totals["program"] == len(interpreted(measurement_in(raw), frame)), name
            checked += 1
    assert checked >= 10
