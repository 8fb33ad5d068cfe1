"""What a user sees during a run: its size, a first figure, and how to continue after Ctrl-C."""

import gc
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from xdplab.cli import FEW_COLLECTIONS, conduct
from xdplab.cli.plan import tell_extent
from xdplab.cli.run import FirstFigure
from xdplab.errors import FigureError
from xdplab.plan import load_plan, parse_plan, points_of, schedule
from xdplab.plan.points import extent
from xdplab.run.progress import silent
from xdplab.studies.traffic.run_files import plan_trials


def shown(*seen: tuple[int, float | None]) -> list[str]:
    """Start trials of these repetitions with this time to go; return the names of the figures drawn."""
    drawn: list[str] = []
    drawing: Any = SimpleNamespace(draw_figures=lambda names: drawn.extend(names) or [])
    first: Any = FirstFigure(silent(), drawing)
    for repetition, left_s in seen:
        state = SimpleNamespace(eta_s=left_s, last={}, total=9, open_ended=False, waiting=None)
        first.started(state, SimpleNamespace(repetition=repetition, trial_id="t", point="p"))
    return drawn


def test_one_figure_once_each_point_was_measured_once() -> None:
    assert shown((1, None), (1, 300.0), (2, 200.0), (2, 199.0), (3, 100.0)) == ["throughput"]


def test_the_last_seconds_are_not_paused_for_a_figure() -> None:
    assert shown((1, 20.0), (2, 10.0), (3, 200.0)) == []


def test_a_figure_that_fails_ends_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    def fails(names: Any) -> list[str]:
        raise FigureError("no valid trial")

    state: Any = SimpleNamespace(eta_s=99.0, last={}, total=9, open_ended=False, waiting=None)
    trial: Any = SimpleNamespace(repetition=2, trial_id="t", point="p")
    drawing: Any = SimpleNamespace(draw_figures=fails)
    FirstFigure(silent(), drawing).started(state, trial)
    assert capsys.readouterr().out == "after one repetition: no figure throughput yet: no valid trial\n"


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        ({}, "interrupted; no trial had finished: `xdplab resume results/r` continues\n"),
        ({"t": 1}, "interrupted; 1 of 9 trials are kept: `xdplab resume results/r` continues\n"),
    ],
)
def test_ctrl_c_says_what_is_kept_and_the_whole_command(
    ended: dict[str, int], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(seen: Any) -> Any:
        raise KeyboardInterrupt

    state = SimpleNamespace(owed=["t"], last=ended, total=9)
    run: Any = SimpleNamespace(
        kind=SimpleNamespace(name="traffic"), state=state, directory=SimpleNamespace(path=Path("results/r"))
    )
    with pytest.raises(KeyboardInterrupt):
        conduct.conduct(run, interrupted, new=False)
    assert capsys.readouterr().out == f"measuring into results/r\n{words}"


def test_how_much_a_plan_is() -> None:
    plan = load_plan(Path(__file__).resolve().parents[2] / "plans" / "smoke.yaml")
    trials = schedule(plan, points_of(plan, "shared"))
    points = len({trial.point.point_id for trial in trials})
    about = f"{points} points, {len(trials)} trials, about "
    assert re.fullmatch(re.escape(about) + r"\d+ s", extent(plan, trials)), "of seconds it says seconds"


def test_commands_of_setup_are_quoted_once_and_named_in_each_label(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.c").write_text("int x;")
    program = {"file": str(tmp_path / "a.c"), "action": "drop", "setup": [["bpftool", "map", "update"]]}
    plan = parse_plan({"name": "p", "blocks": [{"points": {"mode": ["native", "generic"], "program": program}}]})
    trials = plan_trials(plan, "shared")
    tell_extent(plan, trials)
    (quoted,) = [line for line in capsys.readouterr().out.splitlines() if "bpftool map update" in line]
    label = quoted.partition(":")[0]
    assert all(label in str(trial.point) and "bpftool" not in str(trial.point) for trial in trials)


def test_what_trials_leave_is_collected_while_a_run_goes_on() -> None:
    """With the rare collections of a command, 0.4 MB per 100 trials stayed: `json.dumps` with ``indent`` leaves cycles
    that hold 100 objects. Without full ones, 0.16 MB stayed: Python keeps up to 2,000 freed tuples of each length, and
    `tuple` of a generator, as in `dataclasses.fields`, takes none of them."""

    def left() -> int:
        return sum(getattr(one, "__name__", "") == "_iterencode" for one in gc.get_objects())

    def measure(seen: object) -> None:
        before = sys.getallocatedblocks()
        for _ in range(1000):
            json.dumps({}, indent=1)
            for length in range(1, 11):
                tuple(number for number in range(length))
        assert left() < 100
        gc.collect(0)
        assert sys.getallocatedblocks() - before < 5000

    before = gc.get_threshold()
    gc.set_threshold(*FEW_COLLECTIONS)
    try:
        run: Any = SimpleNamespace(kind=SimpleNamespace(name="traffic"), state=SimpleNamespace(owed=["t"]))
        conduct.measure_missing(run, measure, new=False, as_json=True)
        assert gc.get_threshold() == FEW_COLLECTIONS
    finally:
        gc.set_threshold(*before)
