"""The outage study with real frames over a veth: each change lies within its burst, and the control loses nothing."""

from pathlib import Path

import pytest

from xdplab.run.progress import silent
from xdplab.studies.outage.points import CHANGES, MODES, OutageRequest
from xdplab.studies.outage.runs import STUDY

pytestmark = [pytest.mark.root, pytest.mark.lab]


def test_each_change_of_a_program_is_seen_in_the_marks_of_its_frames(tmp_path: Path) -> None:
    request = OutageRequest(places=("netns:test-outage",), repetitions=1, rate_pps=5000, window_s=0.6)
    run = STUDY.start(request, tmp_path)
    run.measure(silent())
    rows = run.rows().set_index(["mode", "event"])
    assert rows["dark_ms"].notna().all(), rows["null_reasons"].tolist()
    assert set(rows.index) == {(mode, event) for mode in MODES for event in CHANGES}
    assert rows["driver"].eq("veth").all()
    assert rows["arrived_packets"].gt(1000).all()
    assert rows.xs("control", level="event")["lost_packets"].eq(0).all()
    assert rows.xs("switch", level="event")["bare_packets"].gt(0).all()
