"""What a run of study cost says of packets that differ in little."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pandas as pd

from xdplab.studies.cost.summaries import lines, results

PARTS = {"whole": 378.0, "program": 15.0, "called": 0.0, "path": 363.0}


def table(*cases: dict[str, Any]) -> pd.DataFrame:
    """Return the rows of packets, each with one source line."""
    rows = [
        {"program": "a", "mode": "native", "kernel": "6.12", "frame_bytes": 64, "flows": 1, "exact": str(count),
         "part": part, "instructions": count, "called_instructions": 0.0, "file": "a.c", "line": 6, "share": None,
         "came_back": 1.0, "passed_on": 0.0, "trial_id": f"t{number}"} | case
        for number, case in enumerate(cases)
        for part, count in {**PARTS, "line": 9.0}.items()
    ]  # fmt: skip
    return pd.DataFrame(rows)


PLAN: Any = Mock(attempts=lambda: [])


def test_a_trial_that_older_rules_gave_a_cost_is_named() -> None:
    trial = Mock(trial_id="t1", point="b.bpf.c, native")
    plan: Any = Mock(attempts=lambda: [(trial, Mock(status="measured"), Path())])
    *_, told = results(plan, table({}))
    assert told.endswith(": b.bpf.c, native")


def test_each_packet_has_a_sentence_of_its_own() -> None:
    for cases in (
        [{"frame_bytes": 64}, {"frame_bytes": 1500}],
        [{"flows": 1}, {"flows": 16}],
        [{}, {"mode": "generic"}],
    ):
        first, second = results(PLAN, table(*cases))
        assert first != second
    (alone,) = results(PLAN, table({}))
    assert "64 B" not in alone


def test_frames_that_do_not_come_back_are_accounted_for() -> None:
    shares = ((1.0, 0.0), (0.25, 0.75), (0.0, 0.0))
    (complete,), (passed,), (dropped,) = (
        results(PLAN, table({"came_back": back, "passed_on": on})) for back, on in shares
    )
    assert "came back" not in complete
    assert "75.0%" in passed
    assert "--map" not in passed
    assert "--map" in dropped


def test_lines_of_a_header_are_named_with_their_file() -> None:
    places = pd.DataFrame({"file": ["/of/mine.bpf.c", "/of/mine.h"], "line": [20, 4]})
    rows = table({}, {}).query("part == 'line'").reset_index(drop=True).assign(**places, function=None, offset_bytes=0)
    rows["name"] = "text"
    assert list(lines(rows)["line"]) == ["mine.bpf.c:20", "mine.h:4"]
    assert list(lines(rows.head(1))["line"]) == ["20"]
    of_both = table({}).query("part != 'line'")
    (text,) = results(PLAN, pd.concat([of_both, rows.assign(trial_id="t0", instructions=[9.0, 16.0])]))
    assert "; line mine.h:4 takes most: 16" in text
