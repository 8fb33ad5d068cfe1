"""What is derived of recorded runs, plans and a replayed run is what it was: `python -m tests.oracle` says more."""

import io
from pathlib import Path

import pandas as pd
import pytest

from tests.oracle import derive, expected
from tests.oracle.__main__ import MOST_BYTES
from tests.oracle.kinds import RECORDED

LONG = ("sample", "thesis", "import", "ports", "afxdp", "shared", "windows")
"""Runs whose tables have the columns of others: live, labs and race."""
SUBJECTS = [pytest.param(name, marks=pytest.mark.thorough) if name in LONG else name for name in derive.SUBJECTS]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_what_is_derived_is_what_it_was(subject: str, tmp_path: Path) -> None:
    if why := derive.missing(subject):
        pytest.skip(why)
    assert expected.differences(subject, derive.SUBJECTS[subject](tmp_path)) == []


def test_the_recorded_runs_are_small() -> None:
    assert sum(run.archive.stat().st_size for run in RECORDED.values()) <= MOST_BYTES


def test_valid_trials_of_every_mode_and_engine_are_among_them() -> None:
    tables = [expected.texts(run)["trials.csv"] for run in ("live", "afxdp")]
    rows = pd.concat([pd.read_csv(io.BytesIO(table), skiprows=[1]) for table in tables])
    valid = rows[rows["verdict"] == "valid"]
    engines = {(mode, engine) for mode in ("native", "generic", "af_xdp") for engine in ("live", "afxdp")}
    assert set(zip(valid["mode"], valid["engine"], strict=True)) == engines


TABLE = b"trial_id,rate,mode\nobject,float64,object\nab,0.1,native\ncd,2.5,generic\n"


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (TABLE, []),
        (TABLE.replace(b"0.1", b"0.10000000000000001"), []),
        (TABLE.replace(b"2.5", b"2.51"), ["t.csv row 3 (cd), column rate: expected '2.5', got '2.51'"]),
        (TABLE.replace(b"2.5", b""), ["t.csv row 3 (cd), column rate: expected '2.5', got ''"]),
        (TABLE.replace(b"float64", b"Int64"), ["row 1 (object), column rate: expected 'float64', got 'Int64'"]),
        (TABLE.replace(b"mode", b"way"), ["columns: expected ['mode'], got ['way']"]),
        (TABLE.replace(b"cd,2.5,generic\n", b""), ["rows: expected 3, got 2"]),
    ],
)
def test_the_first_cell_that_differs_is_named(
    got: bytes, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expected, "FOLDER", tmp_path)
    expected.write("live", {"t.csv": TABLE, "t.svg": b"1"})
    found = expected.differences("live", {"t.csv": got, "t.svg": b"1"})
    assert len(found) == len(words)
    assert all(word in line for word, line in zip(words, found, strict=True))


def test_files_that_are_gone_and_new_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected, "FOLDER", tmp_path)
    expected.write("live", {"a.txt": b"1", "b.svg": b"1"})
    assert [line.split(": ")[0] for line in expected.differences("live", {"c.txt": b"1", "b.svg": b"2"})] == [
        "live a.txt", "live c.txt", "live b.svg",
    ]  # fmt: skip
