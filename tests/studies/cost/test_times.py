"""Times beside counts: those of the valid trials of a finished run of traffic, and of no other packet."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.cli.entry import ending_with_output

from xdplab.errors import PlanError
from xdplab.studies import kinds
from xdplab.studies.cost.rows import times_file
from xdplab.studies.kind import Run

SAMPLE = Path(__file__).resolve().parents[3] / "results" / "sample"


def _measured() -> pd.DataFrame:
    trials = pd.read_parquet(SAMPLE / "trials.parquet")
    return trials.loc[trials["verdict"].eq("valid") & trials["queues"].eq(1)]


def test_a_packets_time_is_the_median_of_its_valid_trials() -> None:
    rows: list[dict[str, Any]] = json.loads(times_file(SAMPLE))
    assert {(row["program"], row["mode"]) for row in rows} >= {("chase:0", "native"), ("chase:400", "generic")}
    for row in rows:
        trials = _measured()
        is_packet = trials["accesses"].eq(int(row["program"].partition(":")[2])) & trials["mode"].eq(row["mode"])
        of_packet = trials.loc[is_packet, "ns_per_packet"].dropna()
        assert row["ns_per_packet"] == pytest.approx(of_packet.median())
        assert (row["low_ns"], row["high_ns"]) == (of_packet.min(), of_packet.max())
        assert row["timed_trials"] == len(of_packet)


def test_points_that_differ_in_what_is_not_counted_have_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one of VLAN tags beside one without: a median of both is the time of neither."""
    rows = _measured()
    is_native = rows["mode"].eq("native") & rows["accesses"].eq(0)
    tagged = rows.loc[is_native].assign(point_id="another", vlan="1")
    monkeypatch.setattr(Run, "rows", lambda run: pd.concat([rows, tagged]))
    timed = [(row["program"], row["mode"]) for row in json.loads(times_file(SAMPLE))]
    assert ("chase:0", "native") not in timed
    assert ("chase:400", "native") in timed


@pytest.mark.guest
@pytest.mark.thorough
def test_a_run_of_traffic_is_counted_with_its_times_beside(tmp_path: Path) -> None:
    code, output, error = ending_with_output(["cost", str(SAMPLE), "--out", str(tmp_path)])
    assert code == 0, output + error
    (path,) = tmp_path.iterdir()
    run = kinds.open_run(path)
    rows = run.rows().query("part == 'whole'").set_index(["program", "mode"])
    assert len(rows) == 6
    assert rows["ns_per_packet"].notna().all()
    more = rows["instructions"]["chase:400", "native"] - rows["instructions"]["chase:0", "native"]
    assert more / 400 == pytest.approx(5, abs=1)  # four instructions of an access' address and the load of the chain
    assert {one.name for one in run.draw_figures() if one.files} == {"time"}
    assert run.figure() is not None
    with pytest.raises(PlanError, match="no run of traffic"):
        times_file(path)
