"""A trial that the journal calls finished is on the disk, whatever happens to the machine a moment later."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("power_cut.py")

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mounts a file system on a loop device"),
    pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="needs mkfs.ext4"),
]


def test_a_power_cut_loses_nothing_that_the_journal_calls_finished(tmp_path: Path) -> None:
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, str(SCRIPT), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(SCRIPT.parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "failed to setup loop device" in done.stderr:
        pytest.skip(f"no loop device here: {done.stderr.strip().splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    cuts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [cut.get("finished") for cut in cuts] == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6], cuts
    assert all(cut["lost"] == [] and cut["owed"] == 0 and cut["planned"] == 6 for cut in cuts), cuts
