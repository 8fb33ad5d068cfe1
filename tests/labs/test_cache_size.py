"""The cache of guests: its size, its limit, and what is removed first."""

import json
import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from xdplab import labs
from xdplab.cli import cli
from xdplab.doctor.checks import CheckedHost, Row, Subject, rows_of
from xdplab.doctor.machine import CHECKS
from xdplab.errors import PlanError
from xdplab.hosts.local import LocalHost
from xdplab.labs import cache
from xdplab.resources import cache_root, state_root

MB = 1_000_000
DAYS = {"kernels/6.1.0_1": 30, "kernels/5.10.0_1": 20, "headers/6.1.0_1": 10, "modules/abc": 1, "vm/states/s": 0.1}
"""The content of the cache in these tests, and how many days ago each item was used."""


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    root = tmp_path / "xdplab"
    for name, days in DAYS.items():
        (root / name).mkdir(parents=True)
        (root / name / "file").write_bytes(b"x" * MB)
        used = time.time() - days * cache.DAY_S
        os.utime(root / name, (used, used))
    (root / "kernels" / "apt").mkdir()
    (root / "kernels" / ".lock").touch()
    monkeypatch.setattr(labs, "status", lambda: [])
    return root


@pytest.mark.parametrize(
    ("of_all", "own", "cache", "state"),
    [
        ("/x", "", "/x/xdplab", "/x/xdplab"),
        ("", "", "/home/me/.cache/xdplab", "/home/me/.local/state/xdplab"),  # not a folder of where it runs
        ("/x", "/y", "/y", "/y"),
    ],
)
def test_cache_and_state_lie_where_the_user_says(
    of_all: str, own: str, cache: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    for name in ("CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", of_all)
        monkeypatch.setenv(f"XDPLAB_{name}", own)
    assert (cache_root(), state_root()) == (Path(cache), Path(state))


def names() -> list[str]:
    return [str(entry.path.relative_to(cache.cache_dir())) for entry in cache.entries()]


def test_what_is_kept_is_listed_by_its_last_use() -> None:
    assert names() == list(DAYS)
    shown = json.loads(CliRunner().invoke(cli, ["kernels", "list", "--json"]).output)
    assert [row["kept"] for row in shown] == list(DAYS)
    assert all(1e6 <= row["bytes"] < 1.2e6 for row in shown)


def test_clean_leaves_what_was_used_lately_and_what_a_guest_runs_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labs, "status", lambda: [{"kind": "vm", "release": "6.1.0", "version": "1"}])
    done = CliRunner().invoke(cli, ["kernels", "clean"])
    assert done.exit_code == 0
    assert names() == ["kernels/6.1.0_1", "headers/6.1.0_1", "modules/abc", "vm/states/s"]
    monkeypatch.setattr(labs, "status", lambda: [])
    CliRunner().invoke(cli, ["kernels", "clean", "--unused-days", "0"])
    assert names() == []
    assert (cache.cache_dir() / "kernels" / "apt").is_dir()


def test_what_is_made_beyond_the_limit_removes_what_was_used_longest_ago(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cache.LIMIT_NAME, "5")
    cache.make(kept / "kernels" / "new", lambda folder: None, what="a kernel", space_mb=0)
    assert names() == ["kernels/5.10.0_1", "headers/6.1.0_1", "modules/abc", "vm/states/s", "kernels/new"]
    monkeypatch.setenv(cache.LIMIT_NAME, "0")
    cache.make(kept / "kernels" / "newer", lambda folder: None, what="a kernel", space_mb=0)
    assert names() == ["modules/abc", "vm/states/s", "kernels/new", "kernels/newer"], "a guest may still run from these"


def test_what_is_used_again_is_not_the_oldest(kept: Path) -> None:
    cache.mark_used(kept / "kernels" / "6.1.0_1")
    assert names()[-1] == "kernels/6.1.0_1"


def cache_size() -> Row:
    (row,) = rows_of(CHECKS, CheckedHost(LocalHost(), "here"), Subject.HERE)
    return row


def test_doctor_warns_above_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_size().verdict == "ok"
    monkeypatch.setenv(cache.LIMIT_NAME, "3")
    row = cache_size()
    assert (row.verdict, "`xdplab kernels clean`" in str(row.remedy)) == ("warn", True)
    assert "5 MB" in row.found
    monkeypatch.setenv(cache.LIMIT_NAME, "much")
    with pytest.raises(PlanError, match="XDPLAB_CACHE_MB=much: not a number of MB"):
        cache_size()
