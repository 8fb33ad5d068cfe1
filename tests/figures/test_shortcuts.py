"""What is drawn by shortcuts through matplotlib is what matplotlib draws by itself."""

from contextlib import nullcontext

import pytest
from matplotlib import text
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from test_drawing import views

from xdplab.figures import draw, shortcuts
from xdplab.figures.save import render, sheet_of
from xdplab.figures.styles import STYLES


def svg(name: str) -> bytes:
    return render(sheet_of(draw.draw(views()[name])), "svg", STYLES["paper-1col"], name, {})


@pytest.mark.parametrize("name", ["latency", "long names", "throughput"])
def test_a_figure_is_the_same_to_the_byte(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    short = svg(name)
    monkeypatch.setattr(draw, "Panel", Axes)
    monkeypatch.setattr(shortcuts, "known_letters", nullcontext)
    assert svg(name) == short


def test_the_ticks_of_an_axis_are_alike_and_each_may_be_changed_alone() -> None:
    ax = Figure().add_subplot(axes_class=shortcuts.Panel)
    ax.set_xticks([0, 1, 2], ["a", "b", "c"])
    first, second, third = ax.get_xticklabels()
    second.set_fontsize(30)
    ax.xaxis.get_major_ticks()[2].tick1line.set_visible(False)
    assert (first.get_fontsize(), second.get_fontsize(), third.get_fontsize()) == (10, 30, 10)
    assert [tick.tick1line.get_visible() for tick in ax.xaxis.get_major_ticks()] == [True, True, False]
    assert ax.xaxis.get_ticks_position() == "bottom"


def test_letters_are_known_only_while_a_figure_is_written() -> None:
    usual = text.TextToPath
    with shortcuts.known_letters():
        assert text.TextToPath is not usual
    assert text.TextToPath is usual
