"""A disk that is really full: one line and exit code 7, measured trials are kept, and `resume` completes the run."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from tests.end_to_end.conftest import plan, xdplab
from xdplab.errors import ResultsError
from xdplab.run.journal import Journal

pytestmark = [pytest.mark.thorough, pytest.mark.root, pytest.mark.lab]

PLAN = plan("[{points: {mode: [native, generic], accesses: [0, 100]}}]", repetitions=2, window_s=0.1)
TRIALS = 8


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m,nr_inodes=0", "xdplab-full", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def resize(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)


@pytest.mark.parametrize("kilobytes", [300, 900])
def test_a_full_disk_is_a_line_and_costs_no_trial(lab_name: str, tmp_path: Path, disk: Path, kilobytes: int) -> None:
    (tmp_path / "full.yaml").write_text(PLAN)
    resize(disk, f"{kilobytes}k")
    argv = ["--lab", lab_name, "run", str(tmp_path / "full.yaml"), "--out", str(disk), "--no-figures"]
    done = xdplab(*argv, check=False)
    words = done.stdout + done.stderr
    assert "Traceback" not in words
    if done.returncode == 0:
        pytest.fail(f"{kilobytes} kB were enough: take less")
    assert done.returncode == 7, words
    told = [line for line in done.stderr.splitlines() if "xdplab:" in line and "waiting: " not in line]
    assert len(told) == 1, done.stderr
    assert "No space left on device" in done.stderr
    runs = [path for path in disk.iterdir() if path.is_dir() and not path.name.startswith(".")]
    if not runs:
        return  # nothing was measured, so nothing is kept
    measured = {path: path.read_bytes() for path in runs[0].glob("raw/*/[0-9]*/**/*") if path.is_file()}
    resize(disk, "100m")
    xdplab("--lab", lab_name, "resume", str(runs[0]), "--no-figures")
    table = pd.read_parquet(runs[0] / "trials.parquet").drop_duplicates("trial_id", keep="last")
    assert (len(table), set(table["verdict"])) == (TRIALS, {"valid"})
    assert {path: path.read_bytes() for path in measured} == measured
    assert not [path for path in runs[0].rglob(".*") if path.name.endswith(".partial")]


@pytest.mark.parametrize("reserved", [True, False])
def test_a_reserved_line_fits_on_a_disk_that_has_become_full(disk: Path, reserved: bool) -> None:
    journal = Journal(disk / "journal.jsonl")
    journal.append("first")
    before = journal.path.stat().st_size
    if reserved:
        journal.reserve()
    assert journal.path.stat().st_size == before
    with pytest.raises(OSError, match="No space left"):
        (disk / "raw").write_bytes(bytes(200_000_000))
    if reserved:
        for number in range(7):
            journal.append("next", facts="." * 8000, number=number)
    else:
        with pytest.raises(ResultsError, match="No space left"):
            journal.append("next", facts="." * 8000)
    assert [line["event"] for line in journal.events()] == ["first"] + 7 * reserved * ["next"]
