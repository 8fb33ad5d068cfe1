"""The verifier's statistics over versions, bpfverify's lines, and the output of both generations of PREVAIL."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xdplab.errors import FormatError
from xdplab.formats.reading import last_words, message_of, refused_line
from xdplab.formats.verifier import StepLog, VerifierStats, parse_bpfverify, parse_stats
from xdplab.studies.verifier.prevail import PrevailAnswer, parse_answer, parse_list

RECORDED = Path(__file__).parent / "recorded" / "prevail"
LOG = """verification time 1842 usec
stack depth 8+0+16
processed 16013 insns (limit 1000000) max_states_per_insn 4 total_states 1001 peak_states 57 mark_read 5
"""
LINE = {
    "type": "program", "object": "a.o", "verdict": "accepted", "load_ns": [1, 2], "verify_us": [3, None], "log": LOG
}  # fmt: skip


def recorded(name: str) -> PrevailAnswer:
    stdout, stderr, code = (RECORDED.joinpath(f"{name}.{end}").read_text() for end in ("stdout", "stderr", "exit"))
    return parse_answer("check" if name.startswith("check") else "prevail", stdout, stderr, int(code))


def test_statistics_of_the_log():
    assert parse_stats(LOG) == VerifierStats(1842, 16013, 1000000, 4, 1001, 57, 5, (8, 0, 16))
    assert parse_stats("R1 invalid mem access 'scalar'\n") == VerifierStats()
    assert parse_stats("verification time 3 usec\n" + LOG).verify_us == 1842  # the last verification counts
    for digits, count in ((19, int("9" * 19)), (20, None)):
        assert parse_stats(LOG.replace("16013", "9" * digits)).processed_insns == count


SINCE_7_2 = LOG.replace("8+0+16", "8+0+16 max 48").replace("processed 1", "insns processed 3+1+2\nprocessed 1")


def test_the_stack_along_a_chain_of_calls_is_known_where_the_kernel_says_it():
    assert parse_stats(SINCE_7_2).stack_depths == (8, 0, 16)
    assert (parse_stats(LOG).stack_chain, parse_stats(SINCE_7_2).stack_chain) == (None, 48)
    assert parse_stats("stack depth \n" + "stack depth 1" * 2).stack_depths is None


STEPS = """0: (b7) r0 = 0                        ; R0_w=0
; return data[100];
from 3 to 5: R0_w=0 R1=ctx()
"""


BACKTRACKING_6_4 = """func#0 @0
4: (57) r3 &= 252                     ; R3_w=scalar(smin=0,smax=umax=252,var_off=(0x0; 0xfc))
5: (0f) r2 += r3
mark_precise: frame0: last_idx 5 first_idx 0 subseq_idx -1
mark_precise: frame0: regs=r3 stack= before 4: (57) r3 &= 252
mark_precise: frame0: parent state regs= stack=:  R2_rw=pkt(r=4) R10=fp0
"""
BACKTRACKING_5_10 = """2: (0f) r2 += r3
last_idx 2 first_idx 0
regs=8 stack=0 before 1: (07) r2 += 100
parent didn't have regs=8 stack=0 marks
 R1=ctx(id=0,off=0,imm=0) R10=fp0 fp-8_w=mmmmmmmm
"""
A_CALL = """12: (85) call pc+3
caller:
 R6=ctx() R10=fp0
callee:
 frame1: R1=ctx() R10=fp0
"""
A_RETURN = """21: (95) exit
returning from callee:
 frame1: R0=0 R10=fp0
to caller at 13:
 R0=0 R10=fp0
frame 0: propagating r6,fp-8
"""
A_LOOP = """1: (05) goto pc-1
infinite loop detected at insn 1
cur state: R0=scalar() R10=fp0
old state: R0=scalar() R10=fp0
"""


@pytest.mark.parametrize(
    ("log", "words"),
    [
        *((work + "R3 unbounded memory access\n" + LOG, "R3 unbounded memory access")
          for work in (BACKTRACKING_6_4, BACKTRACKING_5_10, A_CALL, A_RETURN)),
        (A_LOOP + LOG, "infinite loop detected at insn 1"),
        (BACKTRACKING_6_4 + "R1 type=ctx expected=fp\n", "R1 type=ctx expected=fp"),
        ("", ""),
        (LOG, ""),
        (STEPS + LOG, ""),
        (STEPS + SINCE_7_2, ""),
        ("The sequence of 8193 jumps is too complex.\n" + SINCE_7_2, "The sequence of 8193 jumps is too complex."),
        (STEPS + "R1 invalid mem access 'scalar'\n" + LOG, "R1 invalid mem access 'scalar'"),
        ("BPF program is too large.\n" + LOG, "BPF program is too large."),
        ("back-edge\n" + STEPS + "a\nb\nc\nd\n", "b; c; d"),
        (
            "libbpf: prog 'p': BPF program load failed: -22\nlibbpf: prog 'p': -- BEGIN PROG LOAD LOG --\n"
            + STEPS + "math between pkt pointer and register\n" + LOG
            + "-- END PROG LOAD LOG --\nlibbpf: prog 'p': failed to load: -22\nlibbpf: failed to load object 'o'\n",
            "math between pkt pointer and register",
        ),
        ("libbpf: Kernel error message: Peer MTU\n", "Peer MTU"),
    ],
)  # fmt: skip
def test_last_line(log, words):
    assert last_words(log) == words


def test_lines_of_bpfverify():
    refused = LINE | {"verdict": "rejected", "log": "R0 !read_ok\n" + LOG, "cause": "the verifier's own finding"}
    first, second = parse_bpfverify(f"{json.dumps(LINE)}\n{json.dumps(refused)}\n")
    assert (first.load_ns, first.complaint, first.code.insns) == ((1, 2), None, None)
    assert second.complaint == "R0 !read_ok"
    assert first.steps is None
    for more, log in (
        ({}, StepLog(7, False, None, None)),
        ({"true_bytes": 10, "first_bytes": 3}, StepLog(7, False, 9, 3)),
    ):
        (one,) = parse_bpfverify(json.dumps(LINE | {"steps": {"bytes": 7, "full": False} | more}) + "\n")
        assert one.steps == log


@pytest.mark.parametrize(
    "changed",
    [
        *({"verdict": "fine"}, {"load_ns": [1.5]}, {"load_ns": 3}, {"object": None}, {"insns": "7"}, {"name": 4}),
        *({"verify_us": [1]}, {"verify_us": 1}, {"steps": 1}, {"steps": {"bytes": 5}}, {"steps": {"full": True}}),
        *({"steps": {"bytes": 5, "full": 1}}, {"steps": {"bytes": "5", "full": True}}),
    ],
)
def test_a_line_that_bpfverify_never_writes_is_refused(changed):
    with pytest.raises(FormatError, match="line 2"):
        parse_bpfverify(f"{json.dumps(LINE)}\n{json.dumps(LINE | changed)}\n")


def test_a_cut_line_is_refused():
    with pytest.raises(FormatError):
        parse_bpfverify(json.dumps(LINE)[:-5])


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_rows_or_a_format_error(data):
    with contextlib.suppress(FormatError):
        parse_bpfverify(data)


@settings(deadline=None)
@given(st.sampled_from(["check", "prevail"]), st.text(max_size=200), st.text(max_size=50), st.integers(0, 255))
def test_any_text_is_an_answer_or_a_format_error(generation, stdout, stderr, code):
    with contextlib.suppress(FormatError):
        assert parse_answer(generation, stdout, stderr, code).verdict in ("accepted", "rejected", "loader")


def test_the_old_generation_prints_time_and_memory():
    assert recorded("check_pass") == PrevailAnswer("accepted", None, 0.0052213, 7256)
    failed = recorded("check_fail")
    assert (failed.verdict, failed.resident_kb) == ("rejected", 27304)


def test_the_new_generation_prints_neither():
    assert recorded("prevail_pass") == PrevailAnswer("accepted", None, None, None)
    failed = recorded("prevail_fail")
    assert failed.verdict == "rejected"
    assert failed.cause.startswith("224: Lower bound must be at least meta_offset")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("check_missing", "Can't find section"),
        ("check_unreadable", "Invalid symbol section"),
        ("prevail_missing", "Section not found"),
        ("prevail_unreadable", "Invalid symbol section"),
        ("prevail_unnamed", "no such program"),
    ],
)
def test_what_prevail_cannot_read_is_no_verdict_on_the_program(name, words):
    answer = recorded(name)
    assert answer.verdict == "loader"
    assert words in answer.cause
    assert ".o" not in answer.cause  # the path is of this machine


def test_a_source_line_behind_the_complaint_does_not_hide_it():
    log = "0: R1=ctx()\nR2 invalid mem access 'scalar'\n; return *data; @ a.c:9\nprocessed 2 insns (limit 1)\n"
    assert last_words(log) == "R2 invalid mem access 'scalar'"


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("; int *v = f(); @ a.c:8\n5: (85) call f\n; *v += 1; @ a.c:9\n6: R0=0\nR0 invalid\n", "a.c:9: `*v += 1;`"),
        (STEPS + "R1 invalid mem access 'scalar'\n" + LOG, "`return data[100];`"),  # before 6.10 without its place
        ("0: R1=ctx()\nR2 invalid\n; return *data; @ a.c:9\n", ""),  # of what was not looked at
        ("; return 1; @ a.c:3\n0: (b7) r0 = 1\n" + LOG, ""),  # nothing was refused
        ("libbpf: Kernel error message: Peer MTU\n", ""),
    ],
)  # fmt: skip
def test_a_refusal_names_the_last_source_line_that_was_looked_at(log, line):
    assert refused_line(log) == line
    assert message_of({"message": "refused", "log": log}).endswith(f", at {line}" if line else last_words(log))


def test_both_list_the_same_programs():
    old, new = (parse_list(name, (RECORDED / f"{name}_list.stdout").read_text()) for name in ("check", "prevail"))
    assert len(old) == 8
    assert set(old) == {(section, section) for section, _ in new} or set(old) == set(new)


def test_an_old_answer_without_its_row_is_refused():
    with pytest.raises(FormatError):
        parse_answer("check", "all is well\n", "", 0)
    with pytest.raises(FormatError):
        parse_answer("prevail", "FAIL: xdp\n", "", 0)
