"""Texts whose outlines are kept are those that matplotlib writes by itself."""

from contextlib import nullcontext

import pytest
from matplotlib import text
from test_drawing import views

from xdplab.figures import draw, letters
from xdplab.figures.save import render, sheet_of
from xdplab.figures.styles import STYLES


def svg(name: str) -> bytes:
    return render(sheet_of(draw.draw(views()[name])), "svg", STYLES["paper-1col"], name, {})


@pytest.mark.parametrize("name", ["latency", "long names", "throughput"])
def test_a_figure_is_the_same_to_the_byte(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = svg(name)
    monkeypatch.setattr(letters, "known_letters", nullcontext)
    assert svg(name) == kept


def test_letters_are_known_only_while_a_figure_is_written() -> None:
    usual = text.TextToPath
    with letters.known_letters(), letters.known_letters():
        assert text.TextToPath is not usual
    assert text.TextToPath is usual
