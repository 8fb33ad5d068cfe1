"""jitbench on this machine's kernel: every class and every filter returns the model's result."""

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from tests.compiled import build_once

from xdplab.studies.jit import classes, subjects
from xdplab.studies.jit.classes import CLASSES, SIZES
from xdplab.studies.jit.filters import PACKET_FILTERS, SECCOMP_FILTERS
from xdplab.studies.jit.points import BENCH
from xdplab.studies.jit.rows import _amplified
from xdplab.studies.jit.subjects import JitBench, JitLoad, parse_jitbench


@pytest.fixture(scope="module")
def command() -> str:
    return build_once("jitbench")


@pytest.fixture(scope="module")
def sanitized() -> str:
    return build_once("jitbench", sanitize=True)


def run(command: str, what: str, asked: list[JitLoad], times: int = 20, rounds: int = 3) -> JitBench:
    lines = "".join(one.line for one in asked)
    done = subprocess.run(
        [command, what, str(times), str(rounds)], input=lines.encode(), capture_output=True, check=True
    )
    assert done.stderr == b""
    return parse_jitbench(done.stdout)


def all_as_the_model_says(found: JitBench, asked: list[JitLoad]) -> None:
    for one in asked:
        subject = found.subjects[one.name]
        assert subject.failed is None, (one.name, subject.failed)
        assert one.expected in (None, subject.verdict), one.name
        assert len(subject.ns) == 3


@pytest.mark.thorough
@pytest.mark.root
def test_every_class_returns_what_the_model_says(sanitized: str):
    asked_of = {name: subjects.of_class(one, classes.encode) for name, one in CLASSES.items()}
    with ThreadPoolExecutor(8) as threads:  # they wait for the kernel most of the time
        answers = dict(
            zip(asked_of, threads.map(lambda a: run(sanitized, "programs", a, times=2), asked_of.values()), strict=True)
        )
    for name, insn_class in CLASSES.items():
        found, asked = answers[name], asked_of[name]
        all_as_the_model_says(found, asked)
        small, large = (found.subjects[str(k)] for k in SIZES)
        assert large.insns - small.insns == (SIZES[1] - SIZES[0]) * len(insn_class.body(0))
        if found.compiles:
            assert (large.jited_bytes or 0) - (small.jited_bytes or 0) >= 2 * (SIZES[1] - SIZES[0])


@pytest.mark.root
@pytest.mark.parametrize("name", PACKET_FILTERS)
def test_every_filter_lets_through_what_the_model_says(sanitized: str, name: str):
    asked = subjects.of_filter(PACKET_FILTERS[name])
    all_as_the_model_says(run(sanitized, "sockets", asked), asked)
    asked = subjects.of_traffic(PACKET_FILTERS[name])
    all_as_the_model_says(run(sanitized, "traffic", asked), asked)


@pytest.mark.root
@pytest.mark.parametrize("name", PACKET_FILTERS)
def test_many_packet_sockets_run_the_filter_on_every_datagram(sanitized: str, name: str):
    """A packet that passes is counted by each of them; of one socket less, or one datagram, the count would differ."""
    asked = subjects.of_many(PACKET_FILTERS[name])
    found = run(sanitized, "traffic", asked, times=5)
    all_as_the_model_says(found, asked)
    for one in asked:
        assert found.subjects[one.name].passed == one.expected * 5 * subjects.MANY_TAPS


@pytest.mark.root
@pytest.mark.parametrize(
    ("bound", "obtained"), [([], "SCHED_FIFO"), (["setpriv", "--bounding-set", "-sys_nice"], "SCHED_OTHER")]
)
def test_a_refused_scheduling_policy_is_told(command: str, tmp_path: Path, bound: list[str], obtained: str):
    """Ordinary scheduling was measured as if nothing else had run."""
    argv = ["prlimit", "--rtprio=0", *bound, command, "traffic", "5", "3"]
    asked = subjects.of_many(PACKET_FILTERS["ip"])
    done = subprocess.run(argv, input="".join(one.line for one in asked), capture_output=True, text=True, check=True)
    found = parse_jitbench(done.stdout).subjects.values()
    policies = {(one.policy_requested, one.policy) for one in found if one.passed is not None}
    assert policies == {("SCHED_FIFO", obtained)}
    (tmp_path / BENCH.format("")).write_text(done.stdout)
    (row,) = _amplified(tmp_path, "time")
    assert (row["policy_requested"], row["policy"]) == ("SCHED_FIFO", obtained)


@pytest.mark.root
@pytest.mark.parametrize("name", PACKET_FILTERS)
@pytest.mark.parametrize("kind", subjects.TCP_KINDS)
def test_a_packet_socket_sees_the_segments_of_a_connection(sanitized: str, name: str, kind: str):
    bench, payload = subjects.TCP_KINDS[kind]
    asked = subjects.of_tcp(PACKET_FILTERS[name], payload)
    found = run(sanitized, bench, asked)
    all_as_the_model_says(found, asked)
    assert found.subjects[subjects.OPEN].passed >= 20
    assert found.subjects[subjects.NONE].passed is None
    for one in asked:
        assert bool(found.subjects[one.name].passed) == bool(one.expected)


@pytest.mark.root
def test_a_full_ring_buffer_or_a_lost_entry_would_be_seen(command: str):
    """A program that finds no room, or whose key is not there, does not return what its model says."""
    reserve = CLASSES["ring buffer reserve, submit"]
    small = [replace(one, number=4096) for one in subjects.of_class(reserve, classes.encode)]
    found = run(command, "programs", small, times=100)
    assert found.subjects["256"].verdict != small[1].expected
    lookup = [replace(one, number=2) for one in subjects.of_class(CLASSES["map lookup hash"], classes.encode)]
    found = run(command, "programs", lookup)
    assert found.subjects["64"].verdict != lookup[0].expected


@pytest.mark.root
def test_a_system_call_is_granted_or_refused(command: str):
    asked = subjects.of_seccomp(SECCOMP_FILTERS["seccomp"], "host", "6.1.0")
    all_as_the_model_says(run(command, "seccomp", asked), asked)


@pytest.mark.root
def test_what_the_kernel_refuses_leaves_the_rest_measured(sanitized: str):
    good = subjects.of_class(CLASSES["add64 reg"], classes.encode)
    bad = JitLoad("bad", classes.encode([classes.helper(1), classes.leave()]).hex(), "00", 0, None)
    found = run(sanitized, "programs", [bad, *good])
    assert "R1 type=ctx expected=map_ptr" in str(found.subjects["bad"].failed)
    assert all(found.subjects[one.name].ns for one in good)
    unknown = JitLoad("unknown", "ff" * 8, "00", 0, None)
    assert "SO_ATTACH_FILTER: Invalid argument" in str(run(sanitized, "sockets", [unknown]).subjects["unknown"].failed)


CODE = "0" * 16


@pytest.mark.parametrize(
    "words", ["one two three", "a 0 - 0", "a 00 - 0", f"a {CODE} zz 0", "a - - x", "a - - 0 more", "a - - 0 hash b"]
)
def test_lines_that_are_no_subjects_are_refused(sanitized: str, words: str):
    done = subprocess.run(
        [sanitized, "sockets", "1", "1"], input=f"{words}\n".encode(), capture_output=True, check=False
    )
    assert done.returncode == 2
    assert b"line 1 is not NAME CODE DATA NUMBER" in done.stderr
    assert done.stdout == b""


@pytest.mark.parametrize("arguments", [[], ["nothing", "1", "1"], ["sockets", "0", "1"], ["sockets", "1", "5000"]])
def test_what_it_cannot_do_is_refused_on_one_line(command: str, arguments: list[str]):
    done = subprocess.run([command, *arguments], capture_output=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert re.fullmatch(rb"jitbench: [^\n]+ \(see --help\)\n", done.stderr)
