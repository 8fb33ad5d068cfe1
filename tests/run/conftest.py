"""A recorded run, without its tables."""

from pathlib import Path

import pytest
from tests.unpack import unpacked

from xdplab.run.rundir import RunDirectory

RECORDED = Path(__file__).with_name("recorded") / "tiny.tar.xz"


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A run with three valid trials of native mode; the user's cache directory is a temporary one."""
    monkeypatch.setenv("XDPLAB_CACHE", str(tmp_path / "cache"))
    unpacked(RECORDED, tmp_path / "results")
    return RunDirectory.open(tmp_path / "results" / "tiny")
