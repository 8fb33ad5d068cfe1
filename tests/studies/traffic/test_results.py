"""What a run says at its end: an answer only of valid trials, and one line for all trials of a reason."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from tests.analysis import synthetic

from xdplab.analysis.findings import Finding
from xdplab.cli import conduct
from xdplab.cli.common import NOTHING_VALID
from xdplab.errors import UnsupportedError
from xdplab.plan import parse_plan
from xdplab.run import watching
from xdplab.studies.traffic import race
from xdplab.studies.traffic.results import OF_WINDOWS, summary, tables


def run_of(rows: pd.DataFrame, last: dict[str, Any] | None = None) -> Any:
    """Return as much of a run of these rows as its summary and its exit code read."""
    state = SimpleNamespace(failed=[], owed=[], last=last or {"t": SimpleNamespace(status="measured")})
    place = SimpleNamespace(path=Path("results/r"))
    rooms = {"kind": SimpleNamespace(of_results=None), "directory": place, "state": state}
    return SimpleNamespace(rows=lambda _=None: rows, plan=None, findings=list, **rooms)


def judged(*verdicts: tuple[str, str]) -> pd.DataFrame:
    rows = synthetic.run(vary={"accesses": [0]}, repetitions=len(verdicts))
    return rows.assign(verdict=[verdict for verdict, _ in verdicts], reason=[reason for _, reason in verdicts])


def test_ten_trials_of_one_reason_are_one_line_and_no_answer_is_given() -> None:
    lines = summary(run_of(judged(*[("invalid", "it kept all")] * 10)))
    assert len(lines) == 2
    assert "10 measured, 10 invalid" in lines[0]
    assert "10 trials" in lines[1]
    assert "it kept all" in lines[1]


def test_reasons_that_differ_in_numbers_only_are_one_line_and_stand_for_all() -> None:
    lines = summary(run_of(judged(("valid", ""), ("invalid", "lost 3 of 9"), ("invalid", "lost 4 of 9"))))
    assert [line for line in lines if "lost" in line] == ["  invalid, 2 trials, as: lost 3 of 9"]


@pytest.mark.parametrize(("by", "doubted"), [("slices", False), ("windows", True)])
def test_what_both_slices_share_is_no_doubt_of_a_race(monkeypatch: pytest.MonkeyPatch, by: str, doubted: bool) -> None:
    sides = [{"points": {"mode": "native", "workload": workload}} for workload in ("array", "chase")]
    run = run_of(judged(("valid", "")))
    run.plan = parse_plan({"name": "r", "blocks": sides, "race": {}})
    run.findings = lambda: [Finding("drift", "warning", "rates move")]
    monkeypatch.setattr(race, "race_line", lambda directory: "b is slower")
    monkeypatch.setattr(race, "standing_of", lambda directory: SimpleNamespace(by=by))
    lines = summary(run)
    assert lines[0] == "b is slower"
    assert ("rates move" in lines[1]) is doubted


@pytest.mark.parametrize(("ratio", "told"), [(0.97, True), (None, False)])
def test_rates_of_windows_are_told_to_be_no_answer_where_slices_gave_it(
    monkeypatch: pytest.MonkeyPatch, ratio: float | None, told: bool
) -> None:
    rows = judged(("valid", "")).assign(slices_ratio=pd.array([ratio], dtype="Float64"))
    run = run_of(rows)
    run.plan = parse_plan(
        {"name": "r", "blocks": [{"points": {"workload": name}} for name in ("array", "chase")], "race": {}}
    )
    monkeypatch.setattr(race, "side_order", lambda directory: rows["point_id"].tolist())
    assert (OF_WINDOWS in tables(run)["points"].title) is told


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["valid", "invalid"], 0),
        (["invalid", "invalid"], NOTHING_VALID),
        (["invalid", "unsupported"], NOTHING_VALID),
        (["accepted", "rejected"], 0),  # a study's own
    ],
)
def test_a_run_without_a_valid_trial_has_an_exit_code_of_its_own(
    verdicts: list[str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(judged(*((verdict, "") for verdict in verdicts)))
    answer = SimpleNamespace(verdicts=watching.counted(run.rows()))
    monkeypatch.setattr("xdplab.studies.kept.answer_of", lambda *of: answer)
    assert conduct.exit_code(run) == code


def test_failed_and_unsupported_come_first() -> None:
    run = run_of(judged(("invalid", "")))
    run.state.owed = ["t"]
    assert conduct.exit_code(run) == 1
    unsupported = run_of(judged(("unsupported", "")), {"t": SimpleNamespace(status="unsupported")})
    assert conduct.exit_code(unsupported) == UnsupportedError.exit_code
