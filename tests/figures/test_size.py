"""A figure for a column of one's own: its size, its rows and columns of panels, and its caption for LaTeX."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
from click.testing import CliRunner
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from xdplab.cli import cli
from xdplab.errors import FigureError
from xdplab.figures.catalogue import figure, view
from xdplab.figures.factors import taken
from xdplab.figures.paper import CAPTION, unreadable
from xdplab.figures.save import latex, sheet_of
from xdplab.figures.styles import STYLES, inches

SAMPLE = Path(__file__).resolve().parents[2] / "results" / "sample"
MODES = ("native", "generic")


def alone() -> Any:
    return synthetic.run(workload="chase", vary={"accesses": (0, 100)})


def crossed() -> Any:
    """Two modes, each of two queues, but generic of one only; each at two loads."""
    trials = synthetic.run(workload="chase", vary={"mode": MODES, "queues": (1, 2), "accesses": (0, 100)})
    return trials[~(trials["mode"].eq("generic") & trials["queues"].eq(2))].reset_index(drop=True)


@pytest.mark.parametrize(
    ("length", "size_in"), [("3.3in", 3.3), ("84 mm", 3.307), ("8.4cm", 3.307), ("241.147pt", 3.3367), (3.3, 3.3)]
)
def test_a_length_has_a_unit(length: str | float, size_in: float) -> None:
    assert inches(length) == pytest.approx(size_in, abs=1e-3)


@pytest.mark.parametrize("length", ["", "wide", "3.3 ft", "0in", "-1in", "1e9in", "nan"])
def test_what_is_no_length_is_refused(length: str) -> None:
    with pytest.raises(FigureError):
        inches(length)


@pytest.mark.parametrize(
    ("options", "style", "size"),
    [
        ({}, "paper-1col", (3.4, None)),
        ({"width": "acm"}, "paper-1col", (3.33, None)),
        ({"width": "a4"}, "paper-2col", (6.3, None)),
        ({"width": "slide"}, "slides", (10.0, 5.625)),
        ({"width": "85mm", "height": 2}, "paper-1col", (3.346, 2.0)),
        ({"width": "acm", "style": "notebook"}, "notebook", (3.33, None)),
    ],
)
def test_a_width_has_the_type_sizes_of_its_place(options: dict[str, Any], style: str, size: tuple[float, Any]) -> None:
    _, chosen = taken(options)
    assert (chosen.name, chosen.height_in) == (style, size[1])
    assert chosen.width_in == pytest.approx(size[0], abs=1e-3)


@pytest.mark.parametrize(
    ("trials", "size"),
    [
        (alone, {"width": 1.0}),
        pytest.param(crossed, {"width": 3.3, "height": 1.0}, marks=pytest.mark.thorough),
        pytest.param(crossed, {"width": 0.5, "height": 0.5}, marks=pytest.mark.thorough),
    ],
)
def test_a_size_in_which_nothing_can_be_read_is_refused_with_the_smallest_that_works(
    trials: Callable[[], Any], size: dict[str, float]
) -> None:
    with pytest.raises(FigureError) as refused:
        figure("throughput", trials(), **size)
    smallest = re.search(r"works is ([\d.]+)(?: x ([\d.]+))? in", str(refused.value))
    assert smallest
    works = dict(zip(size, map(float, filter(None, smallest.groups())), strict=True))
    drawn = figure("throughput", trials(), **works)
    assert unreadable(np.atleast_2d(np.asarray(drawn, dtype=object))) == ""
    with pytest.raises(FigureError):
        figure("throughput", trials(), **works | {[*works][-1]: works[[*works][-1]] - 0.1})


def test_two_factors_make_the_rows_and_columns_of_panels() -> None:
    axes: Any = figure("throughput", crossed(), panel=["mode", "queues"])
    titles = [[ax.get_title() if ax.get_visible() else None for ax in row] for row in axes]
    assert titles == [["native, 1 queue", "native, 2 queues"], ["generic, 1 queue", None]], (
        "what is missing has its place"
    )
    assert view("throughput", crossed(), panel="mode,queues").marks.equals(
        view("throughput", crossed(), panel=["mode", "queues"]).marks
    )


@pytest.mark.parametrize("wrong", [{"panel": "mode,queues,load"}, {"panel": "mod"}, {"hue": "mode", "panel": "mode"}])
def test_a_choice_that_no_figure_can_show_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(FigureError):
        view("throughput", crossed(), **wrong)


def test_a_factor_of_one_level_tells_nothing_apart() -> None:
    found = view("throughput", crossed(), hue="queues", panel="mode,frame_bytes", where={"queues": "1"})
    assert set(found.marks["panel"]) == set(MODES)
    assert set(found.marks["hue"]) == {""}


@pytest.mark.parametrize("style", STYLES)
def test_a_paper_has_the_words_about_a_lab_in_its_own_caption(style: str) -> None:
    sheet = sheet_of(figure("throughput", crossed(), style=style))
    assert any(text.get_gid() == CAPTION for text in sheet.texts) == (not style.startswith("paper"))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("50 % of a_b & #3 {x}", r"50~\% of a\_b \& \#3 \{x\}"),
        (
            "~ ^ \\ <a> 2.3 ± 0.1",
            r"\textasciitilde{} \textasciicircum{} \textbackslash{} \textless{}a\textgreater{} 2.3 $\pm$ 0.1",
        ),
        ("--extend", "-{}-extend"),
        ("c·N − 5 µs", r"c$\cdot$N $-$ 5 $\mu$s"),
    ],
)
def test_a_caption_of_latex_prints_the_text(text: str, written: str) -> None:
    assert latex(text) == written


def test_a_pdf_of_a_notebook_has_the_fonts_that_journals_take(tmp_path: Path) -> None:
    sheet = sheet_of(figure("throughput", crossed(), width="acm"))
    assert isinstance(sheet, Figure)
    sheet.savefig(tmp_path / "f.pdf")
    assert b"/Type3" not in (tmp_path / "f.pdf").read_bytes()


def test_the_command_takes_what_the_notebook_takes(tmp_path: Path) -> None:
    chosen = ["--only", "throughput", "--width", "ieee", "--hue", "mode", "--panel", "", "--format", "pdf,png"]
    where = ["--where", "load=max,mode=native,mode=generic", "--no-caption", "--out", str(tmp_path)]
    drawn = CliRunner().invoke(cli, ["figures", str(SAMPLE), *chosen, *where])
    assert drawn.exit_code == 0, drawn.output
    assert {path.name for path in tmp_path.iterdir()} == {
        f"throughput.{end}" for end in ("pdf", "png", "csv", "txt", "tex")
    }
    assert {line.split(",")[4] for line in (tmp_path / "throughput.csv").read_text().splitlines()[1:]} == set(MODES)
    assert all(f".{end}" in drawn.output for end in ("pdf", "png", "tex")), "what was written"
    assert ".svg" not in drawn.output
    assert r"AF\_XDP" not in (tmp_path / "throughput.tex").read_text()


@pytest.mark.parametrize("name", ["service_time", "throughput"])
def test_the_interval_beside_the_last_marker_lies_within_a_narrow_panel(name: str) -> None:
    trials = synthetic.run(workload="chase", vary={"mode": synthetic.MODES[:3], "accesses": (0, 400, 1600)})
    axes: Any = figure(name, trials, width="acm", panel="mode")
    assert axes.shape == (1, 3)
    for ax in axes.flat:
        lines = [lines for bars in ax.containers if isinstance(bars, ErrorbarContainer) for lines in bars.lines[2]]
        ends = [line.get_transform().transform(ends)[0][0] for line in lines for ends in line.get_segments()]
        assert ends
        assert max(ends) <= ax.bbox.x1
