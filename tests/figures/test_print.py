"""Printable figures: short captions, honest axes, readable values, colours that keep their meaning."""

from pathlib import Path

import numpy as np
import pandas as pd
import seaborn
import synthetic
from matplotlib.colors import to_rgb
from matplotlib.container import ErrorbarContainer

from xdplab.figures.album import draw_all
from xdplab.figures.catalogue import view
from xdplab.figures.draw import draw
from xdplab.figures.factors import FigureFiles
from xdplab.figures.kinds import BAR_VALUE, paint
from xdplab.figures.marks import LOG, Axes, Look, View, Words, marks_frame
from xdplab.figures.paper import CAPTION
from xdplab.figures.save import save, sheet_of

SIZES = {"frame_bytes": (64, 512, 1500), "mode": synthetic.MODES}


def bars(values: dict[str, list[tuple[str, float, float]]], **words: bool) -> View:
    """Return the bars by hue: (x, value, half of the interval)."""
    rows = [
        {"kind": "bar", "panel": "", "hue": hue, "x": x, "value": value, "low": value - half, "high": value + half}
        for hue, places in values.items()
        for x, value, half in places
    ]
    return View(marks_frame(rows), Look(Axes("x", "y"), words=Words(**words)))


def test_the_caption_is_short_on_the_figure_and_whole_beside_it(tmp_path: Path) -> None:
    reason = "the driver of vd0 (veth) does not take the program for offload: " + "and says so at length " * 6
    trials = synthetic.run(workload="chase", vary={"mode": synthetic.MODES, "accesses": (0, 100)})
    last = trials["mode"].eq(synthetic.MODES[-1])
    trials.loc[last, ["verdict", "reason"]] = ["unsupported", reason]
    found = view("throughput", trials)
    sheet = sheet_of(draw(found, "notebook"))
    (words,) = [text for text in sheet.texts if text.get_gid() == CAPTION]
    assert len(words.get_text().splitlines()) <= 4
    assert "virtual lab" in words.get_text()
    assert "Unsupported" in words.get_text()
    written = save(found, "t", FigureFiles(tmp_path, formats=("svg",)))
    (beside,) = [file.read_text() for file in written if file.suffix == ".txt"]
    assert beside.splitlines() == list(found.look.words.caption)
    assert reason.strip() in beside, "a reason is not cut"


def test_an_axis_that_is_not_linear_says_so() -> None:
    found = view("throughput", synthetic.run(workload="chase", vary={"accesses": (0, 1, 100)}))
    assert found.look.axes.x_scale == "counts"
    assert [LOG in title for title in found.look.axes.titles] == [True, False]


def test_a_counter_that_stayed_zero_is_said_and_takes_no_panel() -> None:
    trials = synthetic.run(workload="chase", vary={"accesses": (0, 100)}).assign(softnet_dropped=0, softnet_squeezed=3)
    found = view("counters", trials)
    assert not any("backlog drops" in str(panel) for panel in found.marks["panel"].unique())
    assert "0 in every trial: backlog drops (frames)" in " ".join(found.look.words.caption)


def test_bars_stand_around_their_label_where_a_mode_is_absent() -> None:
    sizes = synthetic.run(vary=SIZES, accesses=0)
    absent = sizes["mode"].eq(synthetic.MODES[-1]) & sizes["frame_bytes"].ne(64)
    ax = sheet_of(draw(view("baseline", sizes[~absent].reset_index(drop=True)))).axes[0]
    middles = np.array([patch.get_x() + patch.get_width() / 2 for patch in ax.patches])
    for place in (0, 1, 2):
        near = middles[np.abs(middles - place) < 0.5]
        assert abs(near.min() + near.max() - 2 * place) < 1e-9


def test_values_over_bars_have_equal_decimals_and_keep_off_the_interval() -> None:
    found = bars({"a": [("x", 2.85, 0.4), ("z", 0.294, 0.1)], "b": [("x", 1.483, 1.4)]}, bar_values=True)
    ax = sheet_of(draw(found)).axes[0]
    words = {text.get_text(): text for text in ax.texts if text.get_gid() == BAR_VALUE}
    assert set(words) == {"2.85", "0.29", "1.48"}
    assert words["1.48"].xy[1] >= 1.483 + 1.4, "above the end of its interval"  # type: ignore[attr-defined]


def test_a_value_over_a_bar_keeps_off_every_interval_of_its_bar() -> None:
    """The interval of a mark upon the bar, and one that leaves the axis."""
    found = bars({"a": [("x", 1.0, 0.1), ("z", 3.0, 40.0)]}, bar_values=True)
    beside = {"kind": "point", "panel": "", "hue": "a", "x": "x", "value": 1.5, "low": 1.0, "high": 2.0}
    ax = sheet_of(draw(View(marks_frame([*found.marks.to_dict("records"), beside]), found.look))).axes[0]
    lines = [line for bars_of in ax.containers if isinstance(bars_of, ErrorbarContainer) for line in bars_of.lines[2]]
    intervals = [ax.transData.transform(ends) for line in lines for ends in line.get_segments()]
    for text in (text for text in ax.texts if text.get_gid() == BAR_VALUE):
        box = text.get_window_extent()
        for (x, low), (_, high) in intervals:
            assert not (box.x0 <= x <= box.x1 and low < box.y1 and box.y0 < high), text.get_text()


def test_a_mode_has_one_colour_and_a_program_another() -> None:
    alone, all_three = paint(["generic"], "colorblind"), paint(["native", "generic", "AF_XDP"], "colorblind")
    assert alone["generic"].color == all_three["generic"].color
    trials = synthetic.run(vary={"accesses": (0, 100), "workload": ("chase", "array")})
    programs = view("throughput", trials).look
    used = {to_rgb(one.color) for one in paint(list(programs.order.hues), programs.order.palette).values()}
    assert used.isdisjoint({to_rgb(one.color) for one in all_three.values()})


def test_the_colours_are_seaborns() -> None:
    for palette, count in (("colorblind", 10), ("viridis", 4)):
        ours = [to_rgb(one.color) for one in paint([str(at) for at in range(count)], palette).values()]
        assert np.allclose(ours, seaborn.color_palette(palette, count), atol=1e-12)


def test_markers_that_lie_on_each_other_are_both_seen() -> None:
    paints = list(paint(["native", "generic", "AF_XDP"], "colorblind").values())
    sizes = [one.size for one in paints]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)
    assert len({one.shape for one in paints}) == len(paints), "also without colours"


def test_evenness_of_several_frame_sizes_is_one_figure(tmp_path: Path) -> None:
    rings = synthetic.run(engine="afxdp", accesses=0, queues=2, vary={"frame_bytes": (64, 512, 1500)})
    done = draw_all(rings, FigureFiles(tmp_path), ["evenness"])
    assert [item.stem for item in done if item.files] == ["evenness"]
    assert pd.read_csv(tmp_path / "evenness.csv")["panel"].nunique() == 3
