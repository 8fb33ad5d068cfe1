"""Watching a run: plain lines without a terminal, a sentence after an interrupt, verdicts and the time left."""

import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from tests.attempts import attempt_of

from xdplab.run import watching
from xdplab.run.state import RunState


def state_of(ended: int, total: int) -> RunState:
    state = RunState("r")
    state.plan([f"t{n}" for n in range(total)], [0] * total, costs_s=[2.0] * total)
    for n in range(ended):
        state.add(attempt_of(f"t{n}", took_s=2.0))
    return state


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "POLL_S", 0.0)
    monkeypatch.setattr(watching, "LINE_S", 0.0)


def going(states: list[RunState]) -> tuple[Callable[[], RunState], Callable[[], bool]]:
    left: Iterator[RunState] = iter(states)
    shown = [states[0]]

    def step() -> bool:
        following = next(left, None)
        shown[0] = following or shown[0]
        return following is not None

    return lambda: shown[0], step


def test_lines_have_the_verdicts_and_the_time_that_is_left(soon: None, capsys: pytest.CaptureFixture[str]) -> None:
    state, under_way = going([state_of(n, 4) for n in (0, 1, 1, 4)])
    assert watching.watch(state, under_way, lambda: {"valid": 1}, "r")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 trials: none measured, 4 still missing"
    assert state_of(1, 4).text == "4 trials: 1 measured, 3 still missing"
    assert lines[1] == "1 of 4 trials: 1 valid, 6 s to go"
    assert lines[-1] == "4 of 4 trials: 1 valid"
    assert len(lines) == 3


def test_a_trial_that_ends_while_verdicts_are_counted_is_not_left_out(
    soon: None, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, steps = [1], iter([True, False])

    def verdicts() -> dict[str, int]:
        ended[0] = 2
        return {"valid": 2}

    assert watching.watch(lambda: state_of(ended[0], 4), lambda: next(steps), verdicts, "r")
    assert capsys.readouterr().out.splitlines()[0] == "2 of 4 trials: 2 valid, 4 s to go"


def test_an_interrupt_ends_the_watching_in_a_sentence(soon: None, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> bool:
        raise KeyboardInterrupt

    assert not watching.watch(lambda: state_of(1, 4), interrupted, dict, "lb-first")
    (line,) = capsys.readouterr().out.splitlines()
    assert "the run continues" in line
    assert "xdplab status lb-first" in line


def test_a_notebook_gets_widgets_and_a_pipe_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ipywidgets")
    assert isinstance(watching.bar(), watching.Lines)
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setattr(sys.modules.get("IPython") or __import__("IPython"), "get_ipython", lambda: shell)
    assert isinstance(watching.bar(), watching.WidgetBar)
