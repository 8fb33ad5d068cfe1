"""The outage study without a lab: what the runs of frames at the listener mean, and what is not measured and why."""

from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest

from xdplab.analysis.sentences import sentence
from xdplab.errors import HostError, LabError, PlanError, UnsupportedError
from xdplab.run.frames import why_null
from xdplab.run.progress import silent
from xdplab.studies.outage.bench import HEARD, FrameRun, Gaps, OutageFacts, gaps_of
from xdplab.studies.outage.points import CHANGES, MODES, OutagePoint, OutageRequest, gather, smallest
from xdplab.studies.outage.rows import results
from xdplab.studies.outage.runs import STUDY, OutageStudy
from xdplab.studies.points import StudyTrial

WHOLE = FrameRun(0, 99, 1, 50)


@pytest.mark.parametrize(
    ("runs", "event", "gaps"),
    [
        ([WHOLE], "control", Gaps(100, lost=0, longest=0, bare=0, held_ns=50)),
        ([FrameRun(0, 9, 1, 5), FrameRun(13, 20, 1, 7)], "control", Gaps(18, lost=3, longest=3, bare=0, held_ns=7)),
        (
            [FrameRun(0, 9, 0, 5), FrameRun(12, 20, 1, 4), FrameRun(22, 22, 1, 0)],
            "attach",
            Gaps(20, 3, 2, bare=0, held_ns=5),
        ),
        (
            [FrameRun(0, 9, 1, 0), FrameRun(10, 14, 0, 0), FrameRun(16, 20, 2, 9)],
            "switch",
            Gaps(20, 1, 1, bare=5, held_ns=9),
        ),
        (
            [FrameRun(0, 9, 1, 0), FrameRun(11, 14, 1, 0), FrameRun(10, 10, 1, 0), FrameRun(15, 20, 0, 0)],
            "detach",
            Gaps(21, 0, 0, 0, 0),
        ),
        (
            [FrameRun(0, 9, 1, 0), FrameRun(9, 9, 1, 0), FrameRun(10, 12, 2, 0)],
            "replace",
            Gaps(14, 0, 0, bare=0, held_ns=0),
        ),
    ],
    ids=["nothing lost", "a hole", "two holes", "bare between", "overtaken", "twice"],
)
def test_missing_numbers_are_lost_and_unmarked_frames_between_two_programs_are_bare(
    runs: list[FrameRun], event: str, gaps: Gaps
) -> None:
    assert gaps_of(runs, CHANGES[event]) == gaps


@pytest.mark.parametrize(("runs", "event"), [([], "control"), ([WHOLE], "attach"), ([WHOLE], "switch")])
def test_a_burst_that_does_not_hold_the_change_measures_nothing(runs: list[FrameRun], event: str) -> None:
    with pytest.raises(HostError):
        gaps_of(runs, CHANGES[event])


def test_each_change_is_made_in_both_modes_at_each_place() -> None:
    points = gather(OutageRequest(places=("netns", "netns:a"))).points
    assert len(points) == len({point.point_id for point in points}) == 2 * len(MODES) * len(CHANGES)
    assert {point.place for point in gather(smallest(OutageRequest())).points} == {"netns"}


@pytest.mark.parametrize(
    ("request_of", "error"), [({"places": ("host",)}, LabError), ({"rate_pps": 1_000_000, "window_s": 2.0}, PlanError)]
)
def test_what_cannot_be_measured_is_refused_before_anything_runs(request_of: dict[str, Any], error: Any) -> None:
    with pytest.raises(error):
        gather(OutageRequest(**request_of))


class Prepared(OutageStudy):
    """Gives what a listener might hear; one lab cannot be had."""

    def enter_block(self, trials: Any) -> None:
        if trials[0].point.place == "netns:none":
            raise UnsupportedError("there is no such card")

    def measure(self, trial: StudyTrial[OutagePoint], raw: Path, facts: OutageFacts) -> None:
        before, after = CHANGES[trial.point.event]
        facts.driver, facts.late_ns = "veth", 1000
        lost, bare = (4, [[60, 69, 0, 0]]) if trial.point.event == "switch" else (0, [])
        runs = [[0, 49, before, 0], *bare, [70 if bare else 50 + lost, 99, after, 2_000_000]]
        (raw / HEARD).write_text(f'{{"type":"listening"}}\n{{"type":"heard","dropped":0,"runs":{runs}}}\n')


def test_a_row_has_what_was_lost_or_why_it_was_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = STUDY.start(OutageRequest(places=("netns:one", "netns:none"), repetitions=2, rate_pps=1000), tmp_path)
    monkeypatch.setattr("xdplab.studies.outage.runs.OutageStudy", Prepared)
    run.measure(silent())
    rows = run.rows()
    switch = rows[rows["place"].eq("netns:one") & rows["event"].eq("switch")].iloc[0]
    assert switch[["dark_ms", "lost_packets", "bare_ms", "held_ms", "resolution_ms"]].tolist() == [10, 10, 10, 2, 1]
    attach = rows[rows["place"].eq("netns:one") & rows["event"].eq("attach")]
    assert attach["dark_ms"].eq(0).all()
    assert why_null(attach, "bare_ms").notna().all()
    missing = rows[rows["place"].eq("netns:none")]
    assert missing["dark_ms"].isna().all()
    assert why_null(missing, "dark_ms").str.contains("no such card").all()
    assert len(run.summary()[:3]) == 3
    assert {drawn.name for drawn in run.draw_figures() if drawn.files} == {"dark", "bare", "held"}
    tables = run.tables()
    assert set(tables) == {"outage", "missing"}
    of_switch = tables["outage"].frame.set_index(["change", "mode"]).loc[("switch", "native")]
    assert of_switch[["n", "bare ms"]].tolist() == [2, "10 (10 to 10)"]
    assert "Frames pass without a program: switch (native) 10 (10 to 10) ms" in run.summary()[1]


UNSHOWN = "No change is shown to be darker than the controls"
JUDGED = "to judge a change takes six repetitions, and a control"


@pytest.mark.parametrize(
    ("control", "attach", "answer"),
    [
        ([0.0] * 6, [10.0] * 6, "Dark are attach (native) 10 [10, 10] ms."),
        ([0.0] * 6, [0.0, 0.0, 10.0, 10.0, 10.0, 10.0], f"{UNSHOWN}."),
        ([0.0] * 5 + [10.0], [10.0] * 6, f"{UNSHOWN}."),
        (
            [0.0] * 3,
            [12.0, 10.0, 40.0],
            f"Dark, median of 3: attach (native) 12 (10 to 40) ms, the others 0 ms; {JUDGED}.",
        ),
        ([0.0] * 3, [0.0] * 3, f"Dark, median of 3: every change 0 ms; {JUDGED}."),
        ([0.0], [10.0], f"Dark, median of 1: attach (native) 10 ms, the others 0 ms; {JUDGED}."),
        ([None] * 6, [10.0] * 6, f"Dark, median of 6: attach (native) 10 [10, 10] ms; {JUDGED}."),
    ],
    ids=["darker", "its interval is not", "as dark as a control", "no interval", "none", "measured once", "no control"],
)
def test_a_change_is_dark_if_its_whole_interval_is_above_each_control_and_few_repetitions_are_shown(
    control: list[float | None], attach: list[float | None], answer: str
) -> None:
    events = ["control"] * len(control) + ["attach"] * len(attach)
    rows = pd.DataFrame({"event": events, "dark_ms": pd.array([*control, *attach], dtype="Float64")})
    rows = rows.assign(place="netns", label="a lab", mode="native", lost_packets=0, bare_ms=0.0, held_ms=0.0)
    first, *_ = results(cast("Any", None), rows.assign(resolution_ms=1.0))
    assert sentence(first) == answer
