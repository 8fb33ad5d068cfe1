"""loadbench on this machine's kernel: the steps that it times, and its error for a refused program."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from xdplab.studies.guests import driver
from xdplab.studies.loading import runs
from xdplab.studies.loading.passes import LoadBench, parse_loadbench
from xdplab.studies.loading.points import BPF, LoadingPoint

pytestmark = pytest.mark.root
REFUSED = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("xdp") int bad(struct xdp_md *context) { return *(int *)(long)(context->data + 100); }
char LICENSE[] SEC("license") = "Dual BSD/GPL";
"""
STEPS = ("open_ns", "prepare_ns", "load_ns", "attach_ns", "detach_ns", "close_ns")
Bench = Callable[..., LoadBench]


def interfaces() -> set[str]:
    return {path.name for path in Path("/sys/class/net").iterdir() if path.name in ("veth0", "veth1")}


@pytest.fixture(scope="module")
def bench() -> Bench:
    command = driver("loadbench")

    def run(*arguments: str) -> LoadBench:
        return parse_loadbench(subprocess.run([command, *arguments], capture_output=True, timeout=60).stdout)

    return run


@pytest.fixture(scope="module")
def simple() -> Path:
    return runs.bpf_object(LoadingPoint("load", "host", BPF, "clock")).object


def test_each_step_of_each_repetition(bench: Bench, simple: Path):
    before = interfaces()
    found = bench("bpf", str(simple), "--repetitions", "3")
    assert found.error is None
    assert [cycle["rank"] for cycle in found.cycles] == [0, 1, 2]
    assert all((cycle[step] or 0) > 0 for cycle in found.cycles for step in STEPS)
    assert found.sizes["insns"] == 3
    assert not interfaces() - before  # its own veth pair disappears with it


def test_the_log_is_no_more_than_its_load(bench: Bench):
    point = LoadingPoint("load", "host", BPF, "array", "unrolled", 1600)
    found = bench("bpf", str(runs.bpf_object(point).object), "--repetitions", "5", "--watch", "log")
    assert len(found.cycles) == 5
    shares = [cycle["logged_us"] * 1000 / cycle["load_ns"] for cycle in found.cycles]  # in whole µs, rounded down
    assert max(shares) <= 1
    assert median(shares) > 0.3  # one load may have waited for a CPU, which its log does not include


def test_the_budget_ends_the_repetitions(bench: Bench, simple: Path):
    assert 1 <= len(bench("bpf", str(simple), "--repetitions", "10000", "--budget-ms", "200").cycles) < 1000


def test_a_refused_program_ends_with_the_verifiers_message(bench: Bench, tmp_path: Path):
    (tmp_path / "bad.c").write_text(REFUSED)
    headers = f"-I/usr/include/{os.uname().machine}-linux-gnu"
    subprocess.run(
        ["clang", "-O2", "-g", "-target", "bpf", headers, "-c", "bad.c", "-o", "bad.o"], cwd=tmp_path, check=True
    )
    error = bench("bpf", str(tmp_path / "bad.o")).error
    assert error is not None
    assert error.step == "load"
    assert "prohibited" in error.message


def test_what_is_no_object_is_said(bench: Bench):
    error = bench("bpf", "/bin/true").error
    assert error is not None
    assert error.step == "open"


def test_a_process_that_does_nothing(bench: Bench):
    found = bench("start", "--repetitions", "3")
    assert all(0 < cycle["own_ns"] <= cycle["start_ns"] * 1.1 for cycle in found.cycles)


def test_whole_processes_and_those_that_undo_them(bench: Bench, tmp_path: Path):
    kept = str(tmp_path / "kept")
    found = bench("--repetitions", "3", "process", "/bin/mkdir", kept, "then", "/bin/rmdir", kept)
    assert [cycle["rank"] for cycle in found.cycles] == [0, 1, 2]
    for name in ("run_ns", "run_own_ns", "then_ns", "then_own_ns"):
        assert all((cycle[name] or 0) > 0 for cycle in found.cycles)
    assert not Path(kept).exists()
    alone = bench("--repetitions", "2", "process", "/bin/echo", "its words are no line")
    assert all("then_ns" not in cycle for cycle in alone.cycles)


def test_a_process_that_fails_is_told(bench: Bench):
    for words, said in (
        (("/bin/false",), "/bin/false ended with exit code 1"),
        (("/nowhere",), "cannot start /nowhere"),
    ):
        error = bench("process", *words).error
        assert error is not None
        assert (error.step, said in error.message) == ("process", True)


@pytest.mark.parametrize("words", [("then", "/bin/true"), ("/bin/true", "then")])
def test_a_missing_command_is_refused(words: tuple[str, ...]):
    done = subprocess.run([driver("loadbench"), "process", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "a command is missing" in done.stderr


@pytest.mark.skipif(shutil.which("bpftool") is None, reason="bpftool is not installed")
def test_a_command_without_its_undo_leaves_no_pinned_program(bench: Bench, simple: Path):
    pin = Path("/sys/fs/bpf/xdplab-test-pin")
    found = bench("--repetitions", "1", "process", str(shutil.which("bpftool")), "prog", "load", str(simple), str(pin))
    assert len(found.cycles) == 1
    assert not pin.exists()


def test_the_loader_loads_and_says_nothing(bench: Bench, simple: Path, tmp_path: Path):
    assert len(bench("--repetitions", "2", "process", driver("loadbench"), "loader", str(simple)).cycles) == 2
    done = subprocess.run([driver("loadbench"), "loader", "/bin/true"], capture_output=True, timeout=10, check=False)
    assert done.returncode != 0


@pytest.mark.parametrize(
    "arguments",
    [(), ("riddle",), ("process",), ("loader",), ("bpf",), ("bpf", "a.o", "--watch", "graph"), ("start", "--loads")],
)
def test_unknown_arguments(bench: Bench, arguments: tuple[str, ...]):
    done = subprocess.run([driver("loadbench"), *arguments], capture_output=True, timeout=10, check=False)
    assert done.returncode == 2
    assert done.stdout == b""
