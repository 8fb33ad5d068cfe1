"""From raw files to rows: one recorded attempt per mode, engine and N, and its row. Needs neither root nor a lab.

If a rule or a column changes on purpose, `python tests/studies/test_golden_attempts.py` writes the rows again: read the
difference before you commit it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.unpack import unpacked

from xdplab.run.rundir import RunDirectory
from xdplab.studies.traffic import runs
from xdplab.studies.traffic.latencies import latencies_of

RECORDED = Path(__file__).with_name("recorded")
ATTEMPTS, ROWS = RECORDED / "attempts.tar.xz", RECORDED / "attempts.rows.json"
MEASURED = (
    "mode_obtained", "tx_packets", "rx_packets", "dut_rx_packets", "dut_tx_packets", "lost_packets",
    "duplicate_packets", "reordered_packets", "foreign_packets", "tx_errors", "offered_pps", "forwarded_pps",
    "forwarded_source", "forwarded_l2_bps", "access_ns", "testrun_raw_ns", "latency_min_ns", "latency_p50_ns",
    "latency_p99_ns", "latency_max_ns", "latency_samples", "latency_from", "latency_sent_p99_ns", "late_p99_ns",
    "host_busy_cores", "softnet_dropped", "xsk_dropped", "program_hash", "program_insns", "jited_bytes",
    "sched_policy", "verdict", "limited_by",
)  # fmt: skip


def rows_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the current row of each recorded attempt, by its point's name."""
    unpacked(ATTEMPTS, folder)
    table = runs.trials_table(RunDirectory.open(folder / "golden"))
    shown = json.loads(table[["mode", "engine", "accesses", "load", *MEASURED]].to_json(orient="records"))
    names = ("mode", "engine", "accesses", "load")
    return {" ".join(str(row[name]) for name in names): {name: row[name] for name in MEASURED} for row in shown}


EXPECTED: dict[str, dict[str, Any]] = json.loads(ROWS.read_text()) if ROWS.exists() else {}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDPLAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        return rows_of(tmp_path_factory.mktemp("golden"))


def test_every_mode_and_engine_is_recorded(rows: dict[str, dict[str, Any]]) -> None:
    assert set(rows) == set(EXPECTED)
    assert {tuple(point.split()[:2]) for point in rows} == {
        (mode, engine) for mode in ("native", "generic", "af_xdp") for engine in ("live", "afxdp")
    }


@pytest.mark.parametrize("point", EXPECTED)
def test_an_attempt_gives_the_row_it_gave(rows: dict[str, dict[str, Any]], point: str) -> None:
    for name, expected in EXPECTED[point].items():
        found = rows[point][name]
        assert found == (pytest.approx(expected, rel=1e-9) if isinstance(expected, float) else expected), name


def test_latencies_of_two_directions_are_those_of_both(tmp_path: Path) -> None:
    """The histogram was of the first direction only, beside quantiles that are of both."""
    unpacked(ATTEMPTS, tmp_path)
    run = RunDirectory.open(tmp_path / "golden")
    before = latencies_of(run)
    name = str(before["trial_id"].iloc[0])
    (output,) = (run.path / "raw" / name).glob("*/xdpgen.jsonl")
    shutil.copy(output, output.with_name("xdpgen_back.jsonl"))
    after = latencies_of(run)
    twice = before["count"].where(before["trial_id"].ne(name), 2 * before["count"])
    pd.testing.assert_frame_equal(after, before.assign(count=twice))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["XDPLAB_CACHE"] = scratch
        ROWS.write_text(json.dumps(rows_of(Path(scratch)), indent=1, sort_keys=True) + "\n")
