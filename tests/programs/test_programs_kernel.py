"""In the kernel: a counting build counts N, a report describes the program, refusals have the kernel's message."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from xdplab.errors import ProgramError
from xdplab.plan.maps import INDEXED
from xdplab.programs.build import build
from xdplab.programs.onhost import calibrated_testrun, load_report
from xdplab.programs.onhost import testrun as measure
from xdplab.programs.program import cache_directory
from xdplab.programs.proof import prove
from xdplab.programs.spec import ACCESSING, MAP_TYPES, OPS, ProgramSpec, UserProgram
from xdplab.studies.traffic.prepare import _load_and_prove

pytestmark = pytest.mark.root
KINDS = [(w, m) for w in ACCESSING for m in (MAP_TYPES if w == "lookup" else (None,))]


@pytest.mark.parametrize(
    ("workload", "map_type", "op"),
    [
        pytest.param(*kind, op, marks=[pytest.mark.thorough] * (op != OPS[0] and kind[1] not in (None, MAP_TYPES[0])))
        for kind in KINDS
        for op in OPS
    ],
)
def test_the_kernel_counts_n(workload, map_type, op, cache, dut):
    forms = [(33, "unrolled", "xdp"), (100, "loop", "xdp"), (1600, "bounded", "xdp"), (100, "bounded", "tc")]
    if map_type in (None, MAP_TYPES[0]):  # without accesses all map types are one program: test_programs_spec.py
        forms.append((0, "bounded", "xdp"))
    for n, form, hook in forms:
        built = build(ProgramSpec(workload, n, op, form, map_type=map_type, hook=hook), cache)
        proof = prove(built, dut.host, xdpload=dut.xdpload, folder=dut.folder)
        assert proof.kernel == (n, n, n)
        assert json.loads((built.directory / "proof.json").read_text())["kernel"] == [n, n, n]


@pytest.mark.parametrize(
    ("form", "op", "n"), [("bounded", "read", 9300), ("bounded", "write", 9300), ("loop", "read", 3600)]
)
def test_the_kernel_counts_n_behind_the_first_buffer(form, op, n, cache, dut):
    built = build(ProgramSpec("packet", n, op, form, frags=True), cache)
    proof = prove(built, dut.host, xdpload=dut.xdpload, folder=dut.folder)
    assert proof.kernel == (n,) * 4


@pytest.mark.parametrize("map_type", MAP_TYPES)
def test_a_lookup_hits_as_often_as_it_promises(map_type, cache, dut):
    indexed = map_type in INDEXED
    for entries, hit in ((1000, 100), *(((1000, 0), (1000, 37), (1, 0)) if not indexed else ())):
        spec = ProgramSpec("lookup", 300, entries=entries, map_type=map_type, hit=hit)
        proof = prove(build(spec, cache), dut.host, xdpload=dut.xdpload, folder=dut.folder)
        assert proof.kernel == (300, 300, 300)
        assert sum(packet.loads for packet in proof.bytecode) == pytest.approx(1200 * hit / 100, abs=10)


def test_another_share_of_hits_than_promised_is_found_in_the_kernel(cache, dut):
    built = build(ProgramSpec("lookup", 300, entries=1000, map_type="hash", hit=40), cache)
    wrong = replace(built, program=replace(built.program, hit=60))
    with pytest.raises(ProgramError, match=r"120 lookups of .* find an entry"):
        prove(wrong, dut.host, xdpload=dut.xdpload, folder=dut.folder)


def test_all_ways_of_looking_agree(cache, dut):
    built = build(ProgramSpec("lookup", 100, map_type="hash"), cache)
    proof = prove(built, dut.host, xdpload=dut.xdpload, folder=dut.folder, user=True)
    assert (proof.accesses, proof.kernel, proof.user_native) == (100, (100, 100, 100), 300)
    assert proof.user[0].loads == proof.bytecode[0].loads == 100
    assert "xdplab_workload" in (built.directory / "workload_user.txt").read_text()


def test_a_report_says_what_the_kernel_made_of_it(cache, dut):
    built = build(ProgramSpec("lookup", 100, map_type="hash"), cache)
    report = load_report(dut.host, dut.xdpload, built, dut.folder)
    assert report.lookup_inlined is False
    assert report.calls == ("__htab_map_lookup_elem",)
    assert report.xlated_bytes == 8 * report.xlated_insns == len((built.directory / "xlated.bin").read_bytes())
    assert report.jited_bytes == len((built.directory / "jited.bin").read_bytes())
    assert "call __htab_map_lookup_elem" in (built.directory / "xlated.txt").read_text()
    assert json.loads((built.directory / "load.json").read_text())["tag"] == report.tag
    assert 0 < report.load_ms < 1000
    assert report.verified_insns > 100


def test_whether_the_kernel_inlined_a_lookup_is_read_from_its_image(cache, dut):
    built = build(ProgramSpec("lookup", 100), cache)
    report = load_report(dut.host, dut.xdpload, built, dut.folder)
    assert report.lookup_inlined == (not any("lookup_elem" in name for name in report.calls))


def test_a_refusal_has_the_verifiers_message(tmp_path, cache, dut):
    text = '#include <linux/bpf.h>\n__attribute__((section("xdp"), used)) int f(struct xdp_md *c) {'
    (tmp_path / "wild.c").write_text(text + " return *(volatile int *)(long)c->data; }\n")
    for program, words in (
        (
            ProgramSpec("lookup", 8200, form="loop"),
            r"refuses xdplab_lookup(.|\n)*sequence of 8193 jumps is too complex",
        ),
        (UserProgram(str(tmp_path / "wild.c")), "invalid access to packet, off=0 size=4"),
    ):
        with pytest.raises(ProgramError, match=words):
            load_report(dut.host, dut.xdpload, build(program, cache), dut.folder)


def test_a_packets_cost_grows_with_n(cache, dut):
    costs = {}
    for n in (0, 400, 12800):
        built = build(ProgramSpec("chase", n), cache)
        run = measure(dut.host, dut.xdpload, built, dut.folder, 64)
        assert len(run.runs_ns) == 5
        costs[n] = run.testrun_ns
    promises = replace(built, program=replace(built.program, action="redirect"))
    with pytest.raises(ProgramError, match="returns 3 instead of XDP_REDIRECT"):
        measure(dut.host, dut.xdpload, promises, dut.folder, 64)
    # 32 times as many: other work on the machine changes either cost by half, but not by five.
    assert 6 * (costs[400] - costs[0]) < costs[12800] - costs[0] < 160 * (costs[400] - costs[0])


@pytest.mark.parametrize(("probe_ns", "repeat"), [(25.0, 800_000), (0.0, 1_000_000), (5e7, 1)])
def test_a_run_takes_20_ms(probe_ns, repeat):
    asked = []

    def run(frame_bytes: int, repeat: int, runs: int) -> list[float]:
        asked.append((frame_bytes, repeat, runs))
        return [probe_ns] * runs

    result = calibrated_testrun(run, 64)
    assert asked[-1] == (64, repeat, 5)
    assert result.testrun_ns == probe_ns
    assert calibrated_testrun(run, bytes(60)).frame_bytes == result.frame_bytes == 64


@pytest.mark.thorough
def test_an_n_too_large_for_the_verifier_is_told_with_the_largest_that_is_not(dut):
    """The largest N is measured there, from the verifier's instructions per access of two smaller programs."""
    spec = ProgramSpec("array", 250_000)
    lab, tools = SimpleNamespace(dut=dut.host, dut_interface="lo"), SimpleNamespace(xdpload=dut.xdpload)
    with pytest.raises(ProgramError) as caught:
        _load_and_prove(lab, tools, build(spec, cache_directory()), dut.folder)
    assert caught.value.message.startswith(f"accesses: 250000 of {spec.name} are too many: ")
    assert "BPF program is too large" in caught.value.message
    (largest,) = re.findall(r"N up to about ([0-9,]+) in this form", caught.value.remedy)
    assert 20_000 < int(largest.replace(",", "")) < 250_000
