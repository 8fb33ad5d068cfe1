"""A run's tables against an independent recomputation from its raw files; each null has a reason."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from tests.oracle.kinds import RECORDED
from tests.run import recomputed
from tests.run.nulls import unexplained
from tests.unpack import unpacked

from xdplab.studies.kinds import open_run

SAMPLE = Path(__file__).resolve().parents[2] / "results" / "sample"


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample, with tables derived by the current code."""
    folder = Path(shutil.copytree(SAMPLE, tmp_path_factory.mktemp("sample") / "sample"))
    for table in folder.glob("*.parquet"):
        table.unlink()
    open_run(folder).keep_tables()
    return folder


def test_each_column_of_the_sample_is_what_its_raw_files_say(sample: Path) -> None:
    found = recomputed.differences(sample)
    assert len(found) > 80
    assert [line for lines in found.values() for line in lines] == []


@pytest.mark.parametrize("name", ["live", "afxdp", "labs", "shared", "race", "windows"])
def test_each_column_of_a_recorded_run_is_what_its_raw_files_say(name: str, tmp_path: Path) -> None:
    folder = unpacked(RECORDED[name].archive, tmp_path) / name
    open_run(folder).keep_tables()
    assert {recomputed.unknown(a.point) for a, _ in recomputed.attempts_of(folder)} == {None}
    found = recomputed.differences(folder)
    assert len(found) > 80
    assert [line for lines in found.values() for line in lines] == []


@pytest.mark.parametrize("name", ["programs", "ports"])
def test_what_it_does_not_know_is_counted_and_the_rest_is_recomputed(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended with a traceback at the first capture."""
    folder = unpacked(RECORDED[name].archive, tmp_path) / name
    open_run(folder).keep_tables()
    assert recomputed.main(folder) == 2
    printed = capsys.readouterr().out
    assert ("not recomputed: " in printed, "agrees" in printed) == (True, True)


@pytest.mark.parametrize(
    ("file", "told", "instead", "columns"),
    [
        ("xdpgen.jsonl", r'("burst":"rate","duration_s":0).5', r"\1.6", {"window_s", "offered_pps"}),
        ("counters/dut.iplink.after.json", r'("rx":{"bytes":\d+,"packets":)\d+', r"\g<1>7", {"dut_rx_packets"}),
        ("counters/dut.ethtool.after.txt", r"(rx_queue_0_xdp_packets: )\d+", r"\g<1>7", {"rx_by_queue"}),
        ("xdpload.jsonl", r'("verified_insns":)\d+', r"\g<1>7", {"verified_insns"}),
    ],
)
def test_what_a_raw_file_tells_otherwise_is_found(
    sample: Path, tmp_path: Path, file: str, told: str, instead: str, columns: set[str]
) -> None:
    copy = Path(shutil.copytree(sample, tmp_path / "copy"))
    attempt = sorted(copy.glob("raw/*/1/xdpload.jsonl"))[0].parent
    text, changed = re.subn(told, instead, (attempt / file).read_text())
    assert changed
    (attempt / file).write_text(text)
    assert columns <= {column for column, lines in recomputed.differences(copy).items() if lines}


def test_a_frame_that_came_twice_was_forwarded_once(sample: Path, tmp_path: Path) -> None:
    """The rate counted a duplicate twice, although the loss counted it once."""
    copy = Path(shutil.copytree(sample, tmp_path / "copy"))
    for file in copy.glob("raw/*/1/xdpgen.jsonl"):
        file.write_text(re.sub(r'("burst":"rate".*"duplicates":)0', r"\g<1>50", file.read_text()))
    before = pd.read_parquet(sample / "trials.parquet")
    for table in copy.glob("*.parquet"):
        table.unlink()
    open_run(copy).keep_tables()
    trials = pd.read_parquet(copy / "trials.parquet")
    again = trials["duplicate_packets"] == 50
    assert again.sum() > 10
    assert (trials.loc[again, "forwarded_pps"] < before.loc[again, "forwarded_pps"]).all()
    assert [line for lines in recomputed.differences(copy).values() for line in lines] == []


def test_each_null_of_a_measured_trial_has_its_reason(sample: Path) -> None:
    trials = pd.read_parquet(sample / "trials.parquet")
    assert unexplained(trials) == []
    reasons = [json.loads(text) for text in trials["null_reasons"]]
    assert {said["late_p99_ns"] for said in reasons if "late_p99_ns" in said} == {"at maximum load no frame is due"}


def test_a_socket_s_row_does_not_describe_a_kernel_program(sample: Path) -> None:
    """The accesses of af_xdp happen in user space: such a trial never loads the twin for the kernel."""
    trials = pd.read_parquet(sample / "trials.parquet")
    sockets = trials[trials["mode"] == "af_xdp"]
    assert sockets[["program_insns", "verified_insns", "jited_bytes"]].isna().all(axis=None)
    assert trials.loc[trials["mode"] != "af_xdp", ["program_insns", "jited_bytes"]].notna().all(axis=None)
