"""Injected events: each is found if it is present, and reported as missed if a tool does not see it."""

import json
from contextlib import nullcontext
from math import inf, log
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

from xdplab.analysis.decide.race import Known, Standing
from xdplab.cli import cli
from xdplab.studies.traffic import selftest
from xdplab.studies.traffic.selftest import (
    DELAYS_NS,
    Selftest,
    delays_found,
    equal_found,
    events_found,
    frames_between,
    page,
    slowdown_found,
)  # fmt: skip
from xdplab.studies.traffic.selftest_cases import SETTING, NegativeControl, backlog_found, share_found, switch_found


def delayed(error_ns: float = 0.0, verdict: str = "valid") -> pd.DataFrame:
    return pd.DataFrame([
        {"verdict": verdict, "reason": "the TG was deaf", "rodata": f"delay_every=1 delay_ns={ns}",
         "rate_requested_pps": rate, "latency_sent_p50_ns": 700.0 + ns + (error_ns if ns else 0) + r}
        for delay, rate in DELAYS_NS.items() for ns in (0, delay) for r in range(3)
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("trials", "holds", "words"),
    [
        (delayed(), [True] * 3, "10.00 µs (+0.00 µs), n = 3 at 5000pps"),
        (delayed(1500), [False, True, True], "11.50 µs (+1.50 µs), n = 3 at 5000pps"),
        (delayed(-12_000), [False] * 3, ""),
        (delayed(verdict="invalid"), [False] * 3, "no valid trial: the TG was deaf"),
    ],
)
def test_a_delay_is_recovered_within_1_us_and_1_percent(trials: pd.DataFrame, holds: list[bool], words: str) -> None:
    found = delays_found(trials)
    assert [control.holds for control in found] == holds
    assert found[0].found.startswith(words)


COLUMNS = ("lost_packets", "duplicate_packets", "reordered_packets", "foreign_packets")


def events(**other: Any) -> pd.DataFrame:
    rows = []
    for switch, column, action in (
        ("drop_every=0", None, None),
        ("drop_every=200", "lost_packets", "drop"),
        ("twice_every=200", "duplicate_packets", "redirect"),
        ("exchange_every=200", "reordered_packets", None),
        ("longer_every=200", "foreign_packets", None),
    ):
        counts: dict[str, Any] = dict.fromkeys(COLUMNS, 0) | ({column: 50} if column else {})
        actions = {"tx": 10_000, "drop": 0, "redirect": 0} | ({action: 50} if action else {})
        rows += [{"rodata": switch, "tx_packets": 10_000, **counts, "xdp_actions": json.dumps(actions)}] * 3
    table = pd.DataFrame(rows)
    for name, value in other.items():
        table.loc[4, name] = value  # the second trial with a loss
    return table


@pytest.mark.parametrize(
    ("wrong", "loss"),
    [
        ({}, True),
        ({"lost_packets": 49}, False),
        ({"reordered_packets": 1}, False),
        ({"lost_packets": None}, False),
        ({"xdp_actions": json.dumps({"drop": 49})}, False),
        ({"xdp_actions": None}, False),
    ],
)
def test_events_are_counted_exactly_and_one_count_that_is_off_does_not_hold(wrong: dict[str, Any], loss: bool) -> None:
    found = {control.control: control.holds for control in events_found(events(**wrong))}
    assert found == {"no event": True, "loss": loss, "duplicates": True, "reordering": True, "changed length": True}
    assert not any(control.holds for control in events_found(events().iloc[:0])), "without a trial nothing holds"


@pytest.mark.parametrize(
    ("verdicts", "timed", "named", "holds"),
    [
        ("vvii", (0, 0, 9, 9), SETTING, True),
        ("vvvv", (0, 0, 9, 9), SETTING, False),
        ("vvii", (0, 0, 9, 9), "", False),
        ("iiii", (9, 9, 9, 9), SETTING, False),
        ("vviv", (0, 0, 9, 0), SETTING, False),
    ],
)
def test_a_switch_holds_where_the_trials_after_it_are_invalid_and_it_is_named(verdicts, timed, named, holds) -> None:
    words = {"v": "valid", "i": "invalid"}
    trials = pd.DataFrame({"order": range(4), "verdict": [words[one] for one in verdicts], "bpf_timed_runs": timed})
    assert switch_found(trials, named).holds is holds


@pytest.mark.parametrize(
    ("verdict", "saw", "holds"), [("invalid", 1000, True), ("valid", 1000, False), ("invalid", 9000, False)]
)
def test_a_count_upstream_holds_where_most_frames_were_dropped_and_no_trial_is_valid(verdict, saw, holds) -> None:
    row = {"verdict": verdict, "actions_received": 10_000, "actions_counted": json.dumps({"drop": saw})}
    assert backlog_found(pd.DataFrame([row] * 3)).holds is holds
    assert not backlog_found(pd.DataFrame()).holds


@pytest.mark.parametrize(
    ("late", "holds"), [((250, 200), True), ((1000,), False), ((0,), False), ((0, 0, 1000, 0), False), ((), False)]
)
def test_stamped_frames_of_each_trial_must_be_a_fair_sample(late: tuple[int, ...], holds: bool) -> None:
    """A fixed distance between stamps that is the period of the delays would meet all of them, or none: one trial of
    four that meets all has the right share over all trials."""
    buckets = [row for t, held in enumerate(late) for row in ((str(t), 900, 1000 - held), (str(t), 100_500, held))]
    assert share_found(pd.DataFrame(buckets, columns=["trial_id", "latency_ns", "count"])).holds is holds


def standing(ratio: float, half: float) -> Standing:
    return Standing(Known(20, log(ratio), log(ratio) - half, log(ratio) + half), 0.02)


def test_races_hold_when_their_answer_is_the_right_one() -> None:
    assert equal_found(standing(1.001, 0.01)).holds
    assert not equal_found(standing(1.03, 0.01)).holds
    assert not equal_found(standing(1.0, inf)).holds
    assert slowdown_found(standing(0.97, 0.01), 100.0, 667).holds
    assert not slowdown_found(standing(1.03, 0.01), 100.0, 667).holds
    assert not slowdown_found(standing(0.97, 0.05), 100.0, 667).holds


def test_the_doctored_frames_make_3_percent() -> None:
    for period in (60.0, 105.0, 400.0):
        assert selftest.SLOW_FRAME_NS / frames_between(period) / period == pytest.approx(0.03, rel=0.01)


CONTROL = NegativeControl("loss", "50", "50 | exact", "exactly", True)
FOUND = Selftest("2026-11-22T12:00:00+00:00", "8", "a lab", {"CPU": "some"}, (CONTROL,), ("results/one",))


def test_the_page_and_the_exit_code_say_what_holds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "| loss | 50 | 50 \\| exact | exactly | yes |" in page(FOUND)
    failed = Selftest(**{**vars(FOUND), "controls": (NegativeControl("loss", "50", "49", "exactly", False),)})
    assert "| loss | 50 | 49 | exactly | **no** |" in page(failed)
    monkeypatch.setattr("xdplab.cli.selftest.require_timed", lambda name: None)
    monkeypatch.setattr("xdplab.studies.traffic.turns.lab_for", lambda name: nullcontext())
    for found, code in ((FOUND, 0), (failed, 1)):
        monkeypatch.setattr(selftest, "selftest", lambda lab, out, observer, found=found: found)
        said = CliRunner().invoke(cli, ["selftest", "--json", "--markdown", str(tmp_path / "page.md")])
        assert (said.exit_code, json.loads(said.output)["holds"]) == (code, not code)
        assert (tmp_path / "page.md").read_text() == page(found)
    shown = CliRunner().invoke(cli, ["selftest"]).output
    assert "NO" in shown
    assert "not all controls hold" in shown
