"""What `--format` writes for github-action-benchmark and Bencher: each form is as its reader's schema asks."""

from typing import Any

import pandas as pd
import pytest
from tests.cli.entry import ending_with_output

from xdplab.cli.common import MISUSED
from xdplab.run.frames import typed
from xdplab.studies.cost.rows import COLUMNS
from xdplab.studies.cost.trackers import TRACKERS


def rows(trial: str, **others: Any) -> list[dict[str, Any]]:
    of_packet = {"program": "a.bpf.c", "kernel": "6.12", "mode": "native", "frame_bytes": 64, "flows": 1}
    of_packet |= {"trial_id": trial, "kernel_release": "6.12.1", "compiler": "clang 14", **others}
    whole = {"part": "whole", "instructions": 305.0, "low_instructions": 211.0, "high_instructions": 399.0}
    program = {"part": "program", "exact": "55/2"} | dict.fromkeys(
        ("instructions", "low_instructions", "high_instructions"), 27.5
    )
    line = {"part": "line", "name": "return 0;", "exact": "1", "instructions": 1.0, "called_exact": "0"}
    whole |= {"came_back": 1.0, "passed_on": 0.0}
    return [of_packet | part for part in (whole, program, line)]


TABLE: pd.DataFrame = typed([*rows("1"), *rows("2", mode="generic"), *rows("3")], COLUMNS)


def test_github_action_benchmark_takes_it() -> None:
    """Its tool customSmallerIsBetter: a list of name, unit and value; range and extra are texts, if they are there."""
    entries = TRACKERS["github-action-benchmark"](TABLE)
    assert len({entry["name"] for entry in entries}) == len(entries) == 6
    for entry in entries:
        assert {"name", "unit", "value"} <= entry.keys() <= {"name", "unit", "value", "range", "extra"}
        assert all(isinstance(value, float if name == "value" else str) for name, value in entry.items())
    assert [(entry["value"], entry.get("range")) for entry in entries[:2]] == [(305.0, "± 94"), (27.5, None)]


def test_bencher_takes_it() -> None:
    """https://bencher.dev/bmf.json: benchmark → measure → numbers, of which it needs the first."""
    benchmarks = TRACKERS["bencher"](TABLE)
    assert len(benchmarks) == 3
    for measures in benchmarks.values():
        assert list(measures) == ["instructions-whole", "instructions-program"]
        assert [list(metric.values()) for metric in measures.values()] == [[305.0, 211.0, 399.0], [27.5] * 3]
        assert all(metric.keys() == {"value", "lower_value", "upper_value"} for metric in measures.values())


@pytest.mark.parametrize("verb", ["run plan.yaml", "race a.bpf.c b.bpf.c", "claims run", "selftest", "show run"])
@pytest.mark.parametrize("form", TRACKERS)
def test_other_commands_refuse_it(verb: str, form: str) -> None:
    code, _, error = ending_with_output([*verb.split(), "--format", form])
    assert code in (2, MISUSED)
    assert form in error
