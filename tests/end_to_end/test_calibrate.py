"""Runs calibrate a machine; comparisons then name the calibration, and a baseline file replaces a run."""

import json
from pathlib import Path

import pytest

from tests.end_to_end.conftest import plan, xdplab

pytestmark = [pytest.mark.thorough, pytest.mark.root, pytest.mark.lab]

PLAN = plan("[{points: {accesses: 0}}]", repetitions=2, warmup_s=0, window_s=0.1)


def test_runs_of_this_machine_say_how_far_equal_runs_lie_apart(
    lab_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDPLAB_STATE", str(tmp_path / "state"))
    (tmp_path / "tiny.yaml").write_text(PLAN)
    done = xdplab("--lab", lab_name, "calibrate", "tiny.yaml", "--runs", "3", "--json", cwd=tmp_path, check=False)
    found = json.loads(done.stdout)
    assert done.returncode == (1 if found["unfit"] else 0), done.stderr
    assert (len(found["names"]), found["points"], found["repetitions"]) == (3, 1, 2)
    assert 0 < found["between"] < 1
    (folder,) = (tmp_path / "state" / "calibration").iterdir()
    first, second, _ = sorted(path for path in folder.iterdir() if path.is_dir())

    compared = xdplab("compare", str(first), str(second), cwd=tmp_path, check=False)
    assert compared.returncode in (0, 1, 2), compared.stderr
    assert f"by the calibration of {found['date'][:10]}: 3 equal runs of" in compared.stdout

    xdplab("compare", str(first), "--save-baseline", "base.json", cwd=tmp_path)
    against = xdplab("compare", str(second), "--baseline", "base.json", "--json", cwd=tmp_path, check=False)
    plain = json.loads(xdplab("compare", str(first), str(second), "--json", cwd=tmp_path, check=False).stdout)
    gate = json.loads(against.stdout)
    assert against.returncode == compared.returncode
    for name in ("ratio", "low", "high", "verdict"):
        assert gate["points"][0][name] == pytest.approx(plain["points"][0][name]), name
    assert gate["runs"][0].endswith("(baseline)")
