"""Planted regressions in real repositories, counted in guests and raced in a lab."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from bisect_planted import COMMITS, FILE, REGRESSIONS, bisected, git, plant


@pytest.mark.thorough
@pytest.mark.guest
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.nightly] * (name != "one more map lookup")) for name in REGRESSIONS],
)
def test_a_planted_regression_is_found_by_its_cost(name: str, tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    planted = plant(tmp_path / "repo", REGRESSIONS[name], random.Random(name))
    answer = bisected(planted)
    assert [one["key"] for one in answer["suspects"]] == planted.right, answer
    assert answer["difference"]["lines"], answer


@pytest.mark.thorough
@pytest.mark.guest
def test_git_bisect_run_finds_it_with_a_baseline(tmp_path: Path) -> None:
    (repo := tmp_path / "repo").mkdir()
    planted = plant(repo, REGRESSIONS["a clock"], random.Random(12), commits=6, broken=1)
    xdplab = [sys.executable, "-m", "xdplab"]
    git(repo, "checkout", "-q", planted.hashes[0])
    write = [*xdplab, "cost", FILE, "--write", "../good.json", "--out", "../results"]
    subprocess.run(write, cwd=repo, check=True, capture_output=True)
    git(repo, "bisect", "start", planted.hashes[-1], planted.hashes[0])
    run = ["git", "bisect", "run", *xdplab, "bisect", "--judge", "../good.json", FILE]
    done = subprocess.run(run, cwd=repo, capture_output=True, text=True, check=False)
    assert f"{planted.hashes[planted.at]} is the first bad commit" in done.stdout, done.stdout + done.stderr


@pytest.mark.thorough
@pytest.mark.root
@pytest.mark.lab
def test_a_commit_that_slows_it_is_found_by_races(tmp_path: Path) -> None:
    (repo := tmp_path / "repo").mkdir()
    old, new = REGRESSIONS["a loop"]
    planted = plant(repo, (old, new.replace("i < 8", "i < 400")), random.Random(5), commits=8, broken=1)
    answer = bisected(planted, "--by", "race", "--lab", "netns:test-bisect")
    suspects = [one["key"] for one in answer["suspects"]]
    assert planted.hashes[planted.at] in suspects, answer
    assert len(suspects) < COMMITS // 8
