"""The kernel log of test_bpf, and jitbench's lines."""

import json
from pathlib import Path

import pytest

from xdplab.errors import FormatError
from xdplab.studies.jit.kerneltests import parse_test_bpf
from xdplab.studies.jit.subjects import parse_jitbench

LOG = (Path(__file__).parent / "recorded" / "test_bpf.txt").read_text()
KERNEL = {"type": "kernel", "compiles": True}
SUBJECT = {
    "type": "subject", "name": "64", "insns": 70, "verdict": 5, "xlated_bytes": 560, "jited_bytes": 300,
    "times": 100, "ns": [1200, 1000, 1100], "failed": None, "error": None, "words": None,
    "passed": None, "policy_requested": None, "policy": None,
}  # fmt: skip


def test_each_line_of_a_recorded_log():
    tests = parse_test_bpf(LOG)
    assert [t.number for t in tests] == list(range(61))
    assert all(t.passed and t.suite == "test_bpf" and t.jited is not True for t in tests)
    assert (tests[0].name, tests[0].ns) == ("TAX", (425, 425, 425))
    assert tests[29].name == "JGE (jt 0), test 1"
    assert [t.number for t in tests if t.jited is None] == [50, 51, 52, 53, 55, 56, 59]  # rightly refused


def test_a_wrong_result_is_no_time():
    log = "[ 1.0] test_bpf: #3 X jited:1 12 ret 4 != 5 (0x4 != 0x5)FAIL (1 times)\n"
    log += "[ 1.1] test_bpf: #4 Y FAIL to prog_create err=-22 len=3\n"
    log += "[ 1.2] test_bpf: Summary: 0 PASSED, 2 FAILED, [1/1 JIT'ed]\n"
    wrong, refused = parse_test_bpf(log)
    assert (wrong.ns, wrong.passed, wrong.jited, wrong.ending) == ((12, None), False, True, "FAIL (1 times)")
    assert (refused.name, refused.ns, refused.passed, refused.jited) == ("Y", (), False, None)


def test_suites_are_told_by_their_ends():
    log = "test_bpf: #0 a jited:0 3 PASS\ntest_bpf: Summary: 1 PASSED, 0 FAILED, [0/1 JIT'ed]\n"
    log += "test_bpf: #0 b jited:0 4 PASS\ntest_bpf: test_tail_calls: Summary: 1 PASSED, 0 FAILED, [0/1 JIT'ed]\n"
    log += "test_bpf: #0 c PASS\ntest_bpf: test_skb_segment: Summary: 1 PASSED, 0 FAILED\n"
    assert [(t.suite, t.name) for t in parse_test_bpf(log)] == [
        ("test_bpf", "a"),
        ("test_tail_calls", "b"),
        ("test_skb_segment", "c"),
    ]


@pytest.mark.parametrize(
    "log",
    [
        LOG.replace("#30 ", "30 "),  # a line that another message interrupts
        "".join(LOG.splitlines(keepends=True)[:-1]),
        "\n".join(LOG.splitlines()[5:]) + "\n",
        "nothing of it\n",
        LOG.replace("#2 ADD_SUB_MUL_K jited:0 192 PASS", "#2 ADD_SUB_MUL_K jited:0 PASS"),
    ],
)
def test_a_log_that_was_cut_is_refused(log):
    with pytest.raises(FormatError):
        parse_test_bpf(log)


def bench(*lines: dict[str, object]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_a_subject_costs_what_its_best_round_took():
    found = parse_jitbench(bench(KERNEL, SUBJECT))
    assert found.compiles
    assert found.subjects["64"].per_run == 10.0


def test_a_failure_has_the_kernels_message():
    words = "0: (85) call 1\nR1 type=ctx expected=map_ptr\nprocessed 1 insns (limit 1000000)\n"
    failed = SUBJECT | {"ns": [], "failed": "BPF_PROG_LOAD", "error": "Permission denied", "words": words}
    subject = parse_jitbench(bench(KERNEL, failed)).subjects["64"]
    assert subject.failed == "BPF_PROG_LOAD: Permission denied: R1 type=ctx expected=map_ptr"


MAY_BE_NULL = ("jited_bytes", "passed", "policy_requested", "policy")
"""Fields that are null where there is nothing to tell; one that is not there would look the same."""


@pytest.mark.parametrize(
    "text",
    [
        bench(SUBJECT),
        bench(KERNEL, SUBJECT | {"ns": []}),
        bench(KERNEL, SUBJECT | {"ns": [0]}),
        bench(KERNEL, SUBJECT | {"failed": "send"}),
        bench(KERNEL, SUBJECT | {"verdict": -1}),
        *(bench(KERNEL, {key: SUBJECT[key] for key in SUBJECT if key != name}) for name in MAY_BE_NULL),
        bench(KERNEL)[:-3],
        "",
    ],
)
def test_half_an_answer_is_refused(text):
    with pytest.raises(FormatError):
        parse_jitbench(text)
