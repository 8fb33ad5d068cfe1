"""Two programs in one run: which is faster, from the command line and from the notebook."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from pydantic import TypeAdapter

import xdplab as xl
from tests.end_to_end.conftest import plan, run_of, source, trials_of, xdplab
from tests.run import recomputed
from xdplab.cli.answers import ANSWERS
from xdplab.errors import UnsupportedError
from xdplab.run.rundir import RunDirectory
from xdplab.studies.cost.points import KERNEL

pytestmark = [pytest.mark.root, pytest.mark.lab]

TURNS = '__u64 sum = 0; for (int i = 0; i < %d; i++) { sum += i; asm volatile("" : "+r"(sum)); } return back(ctx);'


def program(folder: Path, name: str, turns: int) -> Path:
    path = folder / f"{name}.bpf.c"
    path.write_text(source("reflect", TURNS % turns))
    return path


@pytest.mark.thorough
def test_a_program_that_does_more_loses_the_race_and_the_rest_is_not_measured(lab_name: str, tmp_path: Path) -> None:
    quick, slow = program(tmp_path, "quick", 1), program(tmp_path, "slow", 3000)
    options = ["--window", "0.1", "--at-most", "30", "--out", "out"]
    done = xdplab("--lab", lab_name, "race", quick.name, slow.name, *options, "--json", cwd=tmp_path, check=False)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["verdict"], found["by"]) == ("differs", "slices")
    assert 0 < found["low"] < found["ratio"] < found["high"] < 0.9
    run = RunDirectory.open(tmp_path / found["status"]["path"])
    assert run.journal.count("finished") == 2 * found["pairs"] < 60
    by_side = pd.read_parquet(run.path / "trials.parquet").groupby("program_name")
    quicks, slows = by_side.get_group("quick.bpf.c"), by_side.get_group("slow.bpf.c")
    assert slows["slices_ratio"].between(found["low"] * 0.9, found["high"] * 1.1).all()
    assert (slows["slices_pairs"] > 50).all()
    assert quicks["slices_ratio"].isna().all()
    # The windows agree, less exactly: on a shared machine their ratio may be off by a third.
    assert slows["forwarded_pps"].median() / quicks["forwarded_pps"].median() == pytest.approx(found["ratio"], rel=0.4)
    xdplab("report", str(run.path), "--out", "race.html", cwd=tmp_path)
    assert "Which is faster, quick.bpf.c or slow.bpf.c?" in (tmp_path / "race.html").read_text()
    assert [line for lines in recomputed.differences(run.path).values() for line in lines] == []
    (answer, *_) = xl.open(run.path).on_disk.summary()
    assert re.match(r"slow\.bpf\.c is \d\d\.\d+% slower than quick\.bpf\.c \(.*ns per packet; test run \+", answer), (
        answer
    )
    assert xl.open(run.path).summary()["program_name"].tolist() == ["quick.bpf.c", "slow.bpf.c"]


def test_a_race_that_is_not_supported_is_not_undecided(lab_name: str, tmp_path: Path) -> None:
    sides = ("race", "array", "chase", "--mode", "offload", "--at-most", "3")
    assert xdplab("--lab", lab_name, *sides, cwd=tmp_path, check=False).returncode == UnsupportedError.exit_code


@pytest.mark.thorough
@pytest.mark.guest
def test_a_race_counts_instructions_too_and_says_in_which_kernel(lab_name: str, tmp_path: Path) -> None:
    names = [program(tmp_path, name, turns).name for name, turns in (("one", 1), ("ten", 10))]
    options = ["--window", "0.1", "--at-most", "3", "--cost", "--json", "--out", "out"]
    done = xdplab("--lab", lab_name, "race", *names, *options, cwd=tmp_path, check=False)
    cost = json.loads(done.stdout)["cost"]
    TypeAdapter(ANSWERS["race"]).validate_json(done.stdout, strict=True)
    assert cost["traffic"]["kernel"] == KERNEL
    assert f"Linux {KERNEL}" in done.stderr, "it is not the lab's"
    (whole, *_) = cost["totals"]
    assert (whole["name"], whole["difference"] > 0) == ("whole", True)


@pytest.mark.thorough
def test_a_race_is_one_call_in_the_notebook(lab_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sides = [xl.program(str(program(tmp_path, name, turns)), action="tx") for name, turns in (("a", 3000), ("b", 1))]
    trial = {"warmup_s": 0, "window_s": 0.1, "pause_s": 0}
    found = xl.race(*sides, lab=lab_name, at_least=3, at_most=30, trial=trial)
    assert found.verdict == "differs"
    assert "b.bpf.c is" in repr(found)
    assert "faster than a.bpf.c" in repr(found)


def test_sides_that_cannot_be_exchanged_are_compared_by_windows_and_the_reason_is_told(
    lab_name: str, tmp_path: Path
) -> None:
    """Three pairs decide nothing: tests/studies/traffic/test_open_ended.py has the answers."""
    program(tmp_path, "a", 1)
    sides = [f"{{points: {{mode: {mode}, program: {{file: a.bpf.c}}}}}}" for mode in ("native", "generic")]
    text = plan(f"[{', '.join(sides)}]", warmup_s=0, window_s=0.1) + "race: {at_least: 3, at_most: 3}\n"
    run = run_of(lab_name, tmp_path, text.replace("repetitions: 1\n", ""))
    line = xl.open(run).on_disk.summary()[0]
    assert "(the sides differ in mode)" in line
    assert trials_of(run)["slices_ratio"].isna().all()
