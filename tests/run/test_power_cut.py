"""A trial that the journal calls finished is on the disk, whatever happens to the machine a moment later."""

import shutil
from pathlib import Path

import pytest
from tests.run.power_cut import cuts

pytestmark = [pytest.mark.root, pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="needs mkfs.ext4")]


def test_a_power_cut_loses_nothing_that_the_journal_calls_finished(tmp_path: Path) -> None:
    try:
        found = cuts(tmp_path)
    except RuntimeError as error:
        if "mount" not in str(error) and "loop device" not in str(error):
            raise
        pytest.skip(f"no loop device here: {error}")
    assert [cut.get("finished") for cut in found] == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6], found
    assert all(cut["lost"] == [] and cut["owed"] == 0 and cut["planned"] == 6 for cut in found), found
