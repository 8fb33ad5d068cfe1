"""microbench: every benchmark gives the same result in BPF and in user space; pace, cold calls, refusals."""

import json
import time
from pathlib import Path

import pytest

from xdplab.errors import FormatError
from xdplab.studies.execution.benchmarks import BPF, all_benchmarks, build, parse_microbench

COUNTS = (1, 100)
COMPARED = [b for b in all_benchmarks(COUNTS).values() if not b.trap]
NAMES = [b.name for b in COMPARED if BPF in b.wrappers]
FOR_USER_SPACE = [b.name for b in COMPARED if BPF not in b.wrappers]
FIXED = {"empty": 1, "primes": 25}


@pytest.mark.root
@pytest.mark.parametrize("name", NAMES)
def test_bpf_gives_what_user_space_gives(name: str, called) -> None:
    bpf, user = called(name, "bpf", "--calls", "3"), called(name, "user", "--calls", "3")
    if all_benchmarks(COUNTS)[name].clock_result:
        assert all(100 * c.begin_ns <= c.result <= 100 * c.end_ns for c in (*bpf.calls, *user.calls))
    else:
        assert [c.result for c in bpf.calls] == [c.result for c in user.calls]
    if name in FIXED:
        assert {c.result for c in user.calls} == {FIXED[name]}
    assert bpf.jited_bytes > 0 or Path("/proc/sys/net/core/bpf_jit_enable").read_text().strip() == "0"
    assert user.jited_bytes is None
    assert user.xlated_bytes is None


@pytest.mark.parametrize("name", FOR_USER_SPACE)
def test_what_another_compiler_makes_gives_the_same(name: str, called) -> None:
    """Such a benchmark exists in user space alone, beside the one whose text it shares."""
    (shared,) = {b.name for b in COMPARED if b.kernel == all_benchmarks(COUNTS)[name].kernel.rpartition("_")[0]}
    found = [called(one, "user", "--calls", "3").calls for one in (name, shared)]
    assert [call.result for call in found[0]] == [call.result for call in found[1]]


def test_what_one_compiler_alone_understands_is_not_given_to_the_other(tmp_path: Path, monkeypatch) -> None:
    """gcc 16 needs a flag that clang refuses; here a script takes it, and calls this machine's gcc without."""
    gcc = tmp_path / "gcc"
    gcc.write_text('#!/bin/bash\nexec gcc "${@/#-fno-fuse-ops-with-volatile-access/-O2}"\n')
    gcc.chmod(0o755)
    monkeypatch.setenv("MAKEFLAGS", f"CC={gcc}")
    chosen = [b for b in all_benchmarks(COUNTS).values() if b.name in FOR_USER_SPACE]
    assert set(build(chosen)) >= {f"{b.kernel}.so" for b in chosen}


@pytest.mark.parametrize("links", [1, 2, 31, 32])
def test_a_chain_is_as_long_as_it_is_asked_to_be(links: int, called) -> None:
    """Each link is one step of xorshift."""
    value = links
    for _ in range(links):
        for shift in (13, -7, 17):
            value ^= (value << shift if shift > 0 else value >> -shift) & (1 << 64) - 1
    found = called("chain 1", "user", "--calls", "2", "--input", str(links))
    assert {call.result for call in found.calls} == {value}


@pytest.mark.root
def test_a_chain_beyond_the_kernels_limit_ends_with_its_reason(microbench, objects: Path) -> None:
    path = str(objects / "chain.bpf.o")
    done = microbench("--backend", "bpf", "--benchmark", "chain", "--object", path, "--input", "40", "--calls", "1")
    assert done.returncode == 1
    assert "gave up" in json.loads(done.stdout.splitlines()[-1])["message"]
    with pytest.raises(FormatError, match="end"):
        parse_microbench(done.stdout)


@pytest.mark.parametrize("wrapper", ["user", pytest.param("bpf", marks=pytest.mark.root)])
def test_cold_calls_begin_anew_and_warm_ones_go_on(wrapper: str, called) -> None:
    warm = [c.result for c in called("matrix", wrapper, "--calls", "4").calls]
    cold = [c.result for c in called("matrix", wrapper, "--calls", "4", "--cold", "--evict-bytes", "1000000").calls]
    assert len(set(warm)) == 4
    assert set(cold) == {warm[0]}


def test_there_is_a_pause_before_each_call(called) -> None:
    before = time.monotonic()
    called("empty", "user", "--calls", "10", "--pause-us", "20000")
    assert 0.2 <= time.monotonic() - before < 5


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--backend", "user"),
        ("--backend", "user", "--object", "x", "--calls", "-1"),
        ("--backend", "user", "--object", "x", "--calls", "many"),
        ("--backend", "user", "--object", "x", "--colder"),
    ],
)
def test_a_wrong_command_line_is_refused_on_one_line(arguments: tuple[str, ...], microbench) -> None:
    done = microbench(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith((b"microbench: ", b"%s: unrecognized option" % done.args[0].encode()))
    assert done.stderr.count(b"\n") == 1
    assert not done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--backend", "elsewhere", "--object", "x"), "no backend elsewhere"),
        (("--backend", "user", "--object", "/nowhere.so"), "nowhere.so"),
        (("--backend", "bpf", "--object", "/nowhere.o"), "nowhere.o"),
        (("--backend", "module", "--object", "/nowhere.ko"), "inserting /nowhere.ko"),
        (("--backend", "user", "--object", "x", "--state", "/nowhere"), "reading /nowhere"),
        (("--backend", "own-module", "--object", "/nowhere.ko"), "--file"),
    ],
)
def test_a_failure_is_one_line_that_names_the_thing(arguments: tuple[str, ...], words: str, microbench) -> None:
    done = microbench(*arguments)
    assert (done.returncode, done.stderr) == (1, b"")
    assert words in json.loads(done.stdout)["message"]


def test_a_state_larger_than_the_working_set_is_refused(microbench, objects: Path, tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(bytes(1 << 20))
    path = str(objects / "primes.so")
    done = microbench("--backend", "user", "--object", path, "--state", str(tmp_path / "state"))
    assert done.returncode == 1
    assert "working set" in json.loads(done.stdout)["message"]


LOADED = {"type": "loaded", "backend": "user", "jited_bytes": None, "xlated_bytes": None}
CALL = {"type": "call", "index": 0, "begin_ns": 5, "end_ns": 9, "result": 1}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([LOADED, CALL], "end"),
        ([CALL, {"type": "end", "calls": 1}], "loaded"),
        ([LOADED, CALL, {"type": "end", "calls": 2}], "1 calls"),
        ([LOADED, CALL | {"end_ns": 4}, {"type": "end", "calls": 1}], "before it begins"),
        ([LOADED, CALL | {"result": "x"}, {"type": "end", "calls": 1}], "result"),
    ],
)
def test_an_output_that_is_not_whole_is_refused(lines: list[dict[str, object]], words: str) -> None:
    with pytest.raises(FormatError, match=words):
        parse_microbench("".join(json.dumps(line) + "\n" for line in lines))
