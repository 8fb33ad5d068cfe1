"""The drawing has every mark of the table, nothing is clipped or overlaps, and no state is left behind."""

import functools
import hashlib
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import synthetic
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from xdplab.analysis.verdicts import RULES_VERSION
from xdplab.errors import FigureError, NotApplicableError, ResultsError
from xdplab.figures import FORMATS, paper
from xdplab.figures.catalogue import figure, view
from xdplab.figures.draw import draw
from xdplab.figures.factors import FigureFiles
from xdplab.figures.kinds import CUT, OF_ALL_FIGURES, SHAPES, UPWARDS, paint
from xdplab.figures.marks import Axes, Look, Order, View, Words, marks_frame
from xdplab.figures.save import provenance, render, save, sheet_of
from xdplab.figures.scales import BREAK
from xdplab.figures.styles import STYLES

BUSY = {"mode": synthetic.MODES, "queues": (1, 2), "accesses": (0, 1, 100, 400, 1600, 12800)}


NAMES = (
    *("throughput", "service_time", "access_cost", "programs", "latency", "evenness", "baseline", "counters"),
    *("alone", "powers of ten", "long names"),
)


@functools.cache
def views() -> dict[str, View]:
    split = synthetic.run(arrangement="split", workload="chase", vary=BUSY)
    bad = (split["mode"] == "generic") & (split["accesses"] == 400)
    split.loc[bad, "verdict"] = "invalid"
    names = ["loadbalancer_maglev.bpf.c", "firewall.bpf.c", "x.bpf.c", "katran_balancer_kern.bpf.c"]
    users = synthetic.run(vary={"mode": ("native", "generic"), "program_name": names}, workload=None, accesses=None)
    paced = [
        synthetic.run(load=f"{k}kpps", rate_requested_pps=k * 1e3, vary={"mode": synthetic.MODES}, accesses=0)
        for k in (20, 50, 100)
    ]
    rings = synthetic.run(engine="afxdp", accesses=0, vary={"queues": (2, 4, 8), "mode": synthetic.MODES})
    sizes = synthetic.run(vary={"frame_bytes": (64, 128, 256, 512, 1024, 1500), "mode": synthetic.MODES}, accesses=0)
    few = synthetic.run(workload="chase", vary={"accesses": (0, 100, 400)}).assign(
        perf_packets=1e8, l1d_misses=2e3, branch_misses=3e3, xsk_dropped=4e6
    )
    bars = [{"x": f"p{n}{'q' * 28}", "value": 9.7 - n, "low": 9.0 - n, "high": 10.0 - n} for n in range(4)]
    same = {"figure": "f", "file": "f", "kind": "bar", "panel": "", "hue": "", "n": 3, "verdict": "valid"}
    long = marks_frame([same | bar | {"points": "p"} for bar in bars])
    return {
        "powers of ten": view("counters", few),
        "long names": View(long, Look(Axes("program", "ns"), Order(), Words(bar_values=True))),
        "throughput": view("throughput", split),
        "service_time": view("service_time", split),
        "access_cost": view("access_cost", synthetic.quick()),
        "programs": view("programs", users),
        "latency": view("latency", pd.concat(paced, ignore_index=True)),
        "evenness": view("evenness", rings),
        "baseline": view("baseline", sizes),
        "counters": view("counters", synthetic.quick(), where={"program": "chase-read", "queues": 1}),
        "alone": view("throughput", synthetic.run(repetitions=1)),
    }


def seen(sheet: Figure) -> list[Text]:
    return paper.visible_texts(sheet, [ax for ax in sheet.axes if ax.get_visible()])


@pytest.mark.parametrize(
    ("name", "style"),
    [
        pytest.param(name, style, marks=[pytest.mark.thorough] * (name != "throughput" and style != "paper-1col"))
        for style in STYLES
        for name in NAMES
    ],
)
def test_texts_are_on_the_page_readable_and_apart(name: str, style: str) -> None:
    sheet = sheet_of(draw(views()[name], style))
    sheet.canvas.draw()
    page = sheet.bbox
    assert sheet.get_figwidth() == STYLES[style].width_in
    on_page = []
    for text in seen(sheet):
        box = text.get_window_extent()
        assert text.get_fontsize() >= 6, f"{text.get_text()!r} is too small to print"
        out = max(page.x0 - box.x0, box.x1 - page.x1, page.y0 - box.y0, box.y1 - page.y1)
        assert out < 1, f"{text.get_text()!r} leaves the page by {out:.0f} pixels"
        on_page.append((text, box))
    for (one, a), (other, b) in combinations(on_page, 2):
        if one.get_rotation() % 90 or other.get_rotation() % 90:
            continue  # the box of slanted text is larger than the text
        over = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        assert not (over[0] > 1 and over[1] > 1.5), f"{one.get_text()!r} lies on {other.get_text()!r}"


@pytest.mark.parametrize("name", ["throughput", "evenness", "programs"])
def test_every_mark_is_drawn_at_its_value(name: str) -> None:
    axes = np.atleast_1d(np.asarray(draw(views()[name]), dtype=object))
    drawn: list[float] = []
    for ax in axes.flat:
        drawn += [float(patch.get_height()) for patch in ax.patches]
        drawn += [
            float(y) for line in ax.lines if line.get_marker() not in ("None", None, "_") for y in line.get_ydata()
        ]
    missing = [value for value in views()[name].marks["value"] if not any(np.isclose(value, y) for y in drawn)]
    assert missing == []


def test_invalid_and_limited_marks_look_different_and_the_legend_says_so() -> None:
    sheet = sheet_of(draw(views()["throughput"]))
    words = {text.get_text() for text in sheet.legends[0].get_texts()}
    assert {"invalid", "generator-limited"} <= words
    markers = {line.get_marker() for ax in sheet.axes for line in ax.lines}
    assert {"o", "^", "x"} <= markers
    bars = draw(
        View(marks_frame([bar | {"verdict": v} for bar, v in zip(BARS, ("valid", "invalid"), strict=True)]), LOOK)
    )
    left, right = sorted(bars.patches, key=lambda patch: patch.get_x())
    assert left.get_facecolor()[:3] != (1, 1, 1)
    assert right.get_facecolor()[:3] == (1, 1, 1)
    assert right.get_hatch()


def test_an_invalid_bar_stands_behind_the_valid_one_of_its_place_and_hides_none_of_it() -> None:
    rows = [{"x": "a", "value": value, "verdict": verdict} for value, verdict in ((2.0, "valid"), (3.0, "invalid"))]
    behind, front = plot(row | {"kind": "bar"} for row in rows).patches
    assert (behind.get_height(), front.get_height()) == (3.0, 2.0)
    assert behind.get_width() > front.get_width()


LOOK = Look(Axes("x", "y (unit)"))
PLACE = {"figure": "f", "file": "f", "kind": "bar", "panel": "", "hue": ""}
BARS = [PLACE | {"x": "a", "value": 2.0}, PLACE | {"x": "b", "value": 3.0}]
LOG = {"x_scale": "log", "y_scale": "log"}


def plot(rows: Iterable[dict[str, object]], words: Words | None = None, **axes: Any) -> Any:
    """Draw marks that differ from `PLACE` in what is given."""
    marks = marks_frame([PLACE | row for row in rows])
    return draw(View(marks, Look(Axes("x", "y", **axes), words=words or Words())), "paper-1col")


def log_sheet(growth: float, count: int, panels: Sequence[str] = ("",)) -> Figure:
    """Draw x against its square on two log axes, in each panel alike."""
    xs = sorted({round(2 * growth**k) for k in range(count)})
    rows = ({"panel": panel, "x": x, "kind": "point", "value": float(x) ** 2} for panel in panels for x in xs)
    sheet = sheet_of(plot(rows, **LOG))
    sheet.canvas.draw()
    return sheet


def test_an_interval_may_leave_the_axis_but_values_never_do() -> None:
    trials = synthetic.run(repetitions=2, vary={"accesses": [0, 100]})
    first = trials["repetition"] == 1
    trials.loc[first, "forwarded_pps"] = trials.loc[first, "forwarded_pps"] * 1.4
    ax = figure("throughput", trials)
    marks = view("throughput", trials).marks
    assert ax.get_ylim()[0] == 0
    assert marks["value"].max() < ax.get_ylim()[1] < marks["high"].max()


def test_a_mark_with_an_unknown_column_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a mark has no y; its columns are .*value"):
        marks_frame([{"figure": "alone", "kind": "point", "x": 1, "y": 2.0}])


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(NotApplicableError):
        draw(View(marks_frame([]), LOOK))
    with pytest.raises(FigureError, match="unknown style 'poster' \\(one of paper-1col"):
        draw(views()["alone"], "poster")


def test_nothing_global_changes() -> None:
    import matplotlib.pyplot as plt

    before, open_figures = dict(mpl.rcParams), plt.get_fignums()
    ax = figure("throughput", synthetic.run(repetitions=1), style="slides")
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == open_figures
    assert isinstance(ax.figure.canvas, FigureCanvasAgg)
    assert ax.figure._repr_png_().startswith(b"\x89PNG"), "shows itself in a notebook"


def test_several_panels_know_their_figure_as_one_does(tmp_path: Path) -> None:
    panels = figure("throughput", synthetic.run(vary={"mode": synthetic.MODES, "accesses": [0, 1]}, repetitions=1))
    assert panels.shape == (1, 3)
    panels.figure.savefig(tmp_path / "f3.pdf")
    assert (tmp_path / "f3.pdf").read_bytes().startswith(b"%PDF")
    assert panels._repr_png_().startswith(b"\x89PNG")


def test_equal_marks_give_equal_bytes_with_their_provenance(tmp_path: Path) -> None:
    trials = synthetic.run(repetitions=2, vary=BUSY, workload="chase")
    source = provenance(trials)
    files = [
        save(view("throughput", trials), "t", FigureFiles(tmp_path / part, formats=FORMATS), source)
        for part in ("a", "b")
    ]
    for one, other in zip(*files, strict=True):
        assert hashlib.sha256(one.read_bytes()).digest() == hashlib.sha256(other.read_bytes()).digest(), one.suffix
    words = f"run 4f3a; rules {RULES_VERSION}".encode()
    assert all(words in file.read_bytes() for file in files[0][:3])
    marks = pd.read_csv(files[0][3])
    assert np.allclose(marks["value"], view("throughput", trials).marks["value"], rtol=1e-15)
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize("reader", [{}, {"figure.constrained_layout.use": True}, {"figure.autolayout": True}])
def test_a_file_is_drawn_once(monkeypatch: pytest.MonkeyPatch, reader: dict[str, bool]) -> None:
    with mpl.rc_context(reader):
        axes = draw(views()["alone"])
    sheet, drawn, draw_sheet = sheet_of(axes), list[str](), Figure.draw
    monkeypatch.setattr(Figure, "draw", lambda self, renderer: drawn.append("once") or draw_sheet(self, renderer))
    for suffix in FORMATS:
        drawn.clear()
        assert render(sheet, suffix, STYLES["paper-1col"], "t", {})
        assert drawn == ["once"], suffix


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match=r"file/t\.svg cannot be written"):
        save(views()["alone"], "t", FigureFiles(tmp_path / "file"))


def test_tick_labels_run_from_left_to_right() -> None:
    sheet = sheet_of(draw(views()["throughput"]))
    for ax in sheet.axes:
        shown = [label for label in ax.get_xticklabels() if label.get_text()]
        boxes = [label.get_window_extent() for label in shown]
        assert not any(a.overlaps(b) for a, b in combinations(boxes, 2)), "what has no room stands in a second line"
        assert shown[-1].get_text() == "12800", "the largest N is never left out"


@pytest.mark.parametrize(("growth", "count", "panels"), [(1.05, 200, ("",)), (1.3, 35, "abcdef")])
def test_many_values_on_a_log_axis_are_labelled_by_decades(growth: float, count: int, panels: Sequence[str]) -> None:
    """Six panels, three in a row: each decade had a label, so the labels 1000 and 10000 overlapped."""
    sheet = log_sheet(growth, count, panels)
    for ax in sheet.axes:
        left, right = ax.get_xlim()
        ticks = [tick.label1 for tick in ax.xaxis._update_ticks() if left <= tick.get_loc() <= right]
        labels = [label for label in ticks if label.get_text()]
        assert len(labels) == 4 if panels == ("",) else len(labels) >= 2
        assert {label.get_text() for label in labels} <= {"10", "100", "1000", "10000"}
        assert all(a.get_window_extent().x1 < b.get_window_extent().x0 for a, b in pairwise(labels))
    assert not any("e+" in text.get_text() for text in seen(sheet)), "no number is written as a power"


def test_no_mark_of_a_log_axis_is_cut_by_its_end() -> None:
    """Over six decades a margin of a fixed factor was less than half a marker: the largest program's was cut."""
    sheet = log_sheet(1.3, 28, "abcdef")
    for ax in sheet.axes:
        radius = max(line.get_markersize() for line in ax.lines) / 2 * sheet.dpi / 72
        (left, bottom), (right, top) = ax.transData.transform([(x, x**2) for x in (2, round(2 * 1.3**27))])
        box = ax.get_window_extent()
        assert min(left - box.x0, bottom - box.y0, box.x1 - right, box.y1 - top) > radius


def test_few_values_on_a_log_axis_are_labelled_each() -> None:
    ax = plot(({"x": x, "kind": "line", "value": float(x)} for x in (1, 4, 32, 700)), x_scale="log")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "4", "32", "700"]


@pytest.mark.parametrize("counts", [(0, 100, 400, 1600), (0, 1), (100, 400), (0,)])
def test_zero_stands_in_a_slot_of_its_own_and_the_rest_of_an_axis_of_counts_is_logarithmic(
    counts: tuple[int, ...],
) -> None:
    ax = plot(({"x": x, "kind": "line", "value": 5.0 + x} for x in counts), x_scale="counts")
    assert [label.get_text() for label in ax.get_xticklabels()] == [str(x) for x in counts]
    places = dict(zip(counts, ax.get_xticks(), strict=True))
    left, right = ax.get_xlim()
    above = [x for x in counts if x]
    assert all(np.isclose(places[b] - places[a], np.log10(b / a)) for a, b in pairwise(above))
    if len(above) > 1:
        assert (places[above[-1]] - places[above[0]]) / (right - left) > 0.65, "the data have the room"
    joined = [line for line in ax.lines if line.get_linestyle() not in ("None", "")]
    assert [x for line in joined for x in line.get_xdata()] == [places[x] for x in above], "no line crosses the break"
    assert any(line.get_gid() == BREAK for line in ax.lines) == (0 in counts and len(counts) > 1)


def test_an_interval_stands_beside_its_marker_where_it_is_seen() -> None:
    rows = [
        {"x": x, "kind": "line", "value": 9.0, "low": 8.99, "high": 9.01, "hue": hue} for x in (0, 9) for hue in "ab"
    ]
    ax = plot(rows, x_scale="counts")
    ax.figure.canvas.draw()
    radius = max(line.get_markersize() for line in ax.lines if line.get_marker() in SHAPES) / 2 * ax.figure.dpi / 72
    lanes = []
    for bars in (container.lines[2][0] for container in ax.containers):
        at = bars.get_transform().transform(bars.get_segments()[0])[0, 0]
        lanes.append(at - ax.transData.transform((bars.get_segments()[0][0, 0], 9.0))[0])
    assert radius < min(lanes)
    assert max(lanes) < 6 * ax.figure.dpi / 72, "a few points, on any scale: else it seems to be another N's"
    assert len(set(lanes)) == 2, "two hues at one place have two intervals"


@pytest.mark.parametrize(
    ("kinds", "hue", "looks"),
    [
        (("line", "raw"), "", []),
        (("line",), "JIT", ["D"]),
        (("beside",), "JIT", ["D"]),
        (("dot",), "JIT", ["o"]),
        (("bar", "point"), "JIT", ["bar"]),
    ],
)
def test_a_legend_shows_each_hue_as_it_is_drawn_and_no_ring_alone(
    kinds: tuple[str, ...], hue: str, looks: list[str]
) -> None:
    """One value is no line: none stands in the legend."""
    axes = Look(Axes("", ""), Order(hues=("interpreter", hue)))
    ax = draw(View(marks_frame({"x": "a", "kind": kind, "value": 1.0, "hue": hue} for kind in kinds), axes))
    handles = [handle for legend in ax.figure.legends for handle in legend.legend_handles]
    assert [getattr(handle, "get_marker", lambda: "bar")() for handle in handles] == looks
    assert all(handle.get_linestyle() == "None" for handle in handles if looks != ["bar"])


def test_bars_stand_on_zero_also_where_a_cost_came_out_negative() -> None:
    rows = [{"x": x, "value": value, "low": -9.0, "high": 9.0} for x, value in (("a", -0.3), ("b", -0.6))]
    low, high = plot(rows, Words(bar_values=True)).get_ylim()
    assert low < -0.6 < 0 < high


def test_samples_get_a_box_with_their_median_and_every_one_of_them_is_seen() -> None:
    values = {"JIT": [3.0, 1.0, 2.0, 9.0, 4.0], "module": [1.0, 1.0, 1.5]}
    rows = [
        {"kind": "sample", "hue": hue, "x": "empty", "value": v, "label": "#3" if v == 9 else None}
        for hue, all_of_it in values.items()
        for v in all_of_it
    ]
    axes = draw(View(marks_frame(rows), Look(Axes(x_label="benchmark", y_label="time, ns"))))
    lines = [line.get_ydata() for line in axes.lines]
    for all_of_it in values.values():
        assert any(sorted(y) == sorted(all_of_it) for y in lines)
        assert any(len(y) == 2 and set(y) == {np.median(all_of_it)} for y in lines)
    assert [text.get_text() for text in axes.texts] == ["#3"]


@pytest.mark.filterwarnings("error")
def test_an_interval_that_leaves_the_axis_is_cut_and_marked() -> None:
    ends = (("a", 2.0, -5.0), ("b", 90.0, 60.0))
    rows = [{"x": x, "kind": "line", "value": value, "low": low, "high": 200.0} for x, value, low in ends]
    ax = plot(rows, y_scale="log")
    assert 0 < ax.get_ylim()[0] < 2
    heads = [(line.get_xdata()[0], line.get_ydata()[0]) for line in ax.lines if line.get_gid() == CUT]
    assert (0.0, ax.get_ylim()[0]) in heads
    assert not any(x == 1.0 and y < 90 for x, y in heads)
    assert CUT in [text.get_text() for legend in ax.figure.legends for text in legend.get_texts()]
    whole = [row | {"low": row["value"] * 0.9, "high": row["value"] * 1.1} for row in rows]  # type: ignore[operator]
    assert not [line for line in plot(whole, y_scale="log").lines if line.get_gid() == CUT]


def test_the_head_of_such_an_interval_stays_off_the_title() -> None:
    rows = [{"x": x, "kind": "line", "value": 90.0, "low": 60.0, "panel": "title"} for x in "ab"]
    ax = plot([rows[0] | {"high": 1e9}, rows[1] | {"high": 95.0}], y_scale="log")
    assert [line.get_marker() for line in ax.lines if line.get_gid() == CUT] == [UPWARDS]


def test_points_of_two_hues_in_one_place_are_both_seen_and_no_legend_joins_them() -> None:
    rows = [{"kind": "point", "hue": hue, "x": 1.0, "value": 2.0} for hue in "ab"]
    ax = plot([*rows, *({"kind": "fit", "hue": "b", "x": x, "value": x} for x in (1.0, 3.0))], **LOG)
    first, second = (line.get_marker() for line in ax.lines if line.get_marker() in SHAPES)
    assert first != second
    handles = [handle for legend in ax.figure.legends for handle in legend.legend_handles]
    assert [handle.get_linestyle() == "None" for handle in handles] == [True, False]


def test_a_backend_has_one_colour_whatever_stands_beside_it() -> None:
    """JIT was blue beside user space and orange beside the interpreter; other hues now take free colours."""
    pairs = [["interpreter", "JIT"], ["JIT", "user space"], ["module"], ["JIT", "mine", "module"], list(OF_ALL_FIGURES)]
    seen: dict[str, set[object]] = {}
    for hues in pairs:
        for hue, colour in paint(hues, "colorblind").items():
            seen.setdefault(hue, set()).add(colour.color)
    assert {hue for hue, colours in seen.items() if len(colours) > 1} == set()
    four = {next(iter(seen[hue])) for hue in ("interpreter", "JIT", "module", "user space", "mine")}
    assert len(four) == 5
    assert [one.color for one in paint(["a", "b"], "colorblind").values()] == [
        one.color for one in list(paint(["a", "b", "c"], "colorblind").values())[:2]
    ]


def test_hues_beside_one_of_all_figures_have_colours_of_their_own() -> None:
    """Of six parts of a load, one of which is the JIT, two were orange."""
    parts = ["open", "prepare", "verify", "JIT: bpf_int_jit_compile()", "rest", "attach"]
    assert len({paint.color for paint in paint(parts, "colorblind").values()}) == 6


def test_forms_of_one_thing_have_its_colour_and_their_own_dashes() -> None:
    things = {"BPF, bounded": "BPF", "BPF, unrolled": "BPF", "module, bounded": "module"}
    found = paint(list(things), "colorblind", things)
    alone = paint(["BPF", "module"], "colorblind")
    assert {hue: found[hue].color for hue in things} == {hue: alone[thing].color for hue, thing in things.items()}
    assert found["BPF, bounded"].dash != found["BPF, unrolled"].dash


BELOW = {"kind": "below", "x": "", "value": 256.0}
"""A mark of what is shorter than a step of the clock."""


def test_labels_beside_marks_do_not_overlap() -> None:
    """All calls of two backends were shorter than a step of the clock: "18 calls" and "17 calls" overlapped."""
    hues = enumerate(("interpreter", "JIT", "module"), start=110)
    rows = [BELOW | {"hue": hue, "label": f"{n} calls", "panel": panel} for n, hue in hues for panel in "abc"]
    for ax in plot(rows, y_scale="log", from_zero=False).flat[:3]:
        boxes = [text.get_window_extent() for text in ax.texts]
        assert len(boxes) == 3
        assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))


def test_words_below_the_lowest_mark_stand_above_the_axis() -> None:
    """`27 calls` below the step of user-mode Linux' clock lay on the axis' line, beside calls of 10 µs."""
    samples = [{"kind": "sample", "hue": "a", "x": "", "value": value} for value in (300.0, 900.0, 11_000.0)]
    rows = [*samples, BELOW | {"hue": "b", "label": "27 calls"}]
    panels = plot(
        (row | {"panel": panel} for panel in "abcdef" for row in rows), y_scale="log", share_y=False, from_zero=False
    )
    for ax in panels.flat:
        (words,) = [text for text in ax.texts if text.get_text() == "27 calls"]
        assert words.get_window_extent().y0 > ax.get_window_extent().y0


def test_what_is_below_a_value_is_a_triangle_at_it_with_words_in_the_legend() -> None:
    """Beside it is a marker of another hue; each has its own place."""
    beside = {"kind": "beside", "hue": "a", "x": "here", "value": 900.0, "low": 800.0, "high": 1000.0}
    rows = [beside, BELOW | {"x": "here", "hue": "b", "label": "7 calls"}]
    sheet = sheet_of(plot(rows, Words(legend={"below": "shorter than a step"}), y_scale="log"))
    assert {"7 calls", "shorter than a step"} <= {text.get_text() for text in sheet.findobj(Text)}
    lines = [line for line in sheet.findobj(mpl.lines.Line2D) if line.axes is not None]
    triangle, dot = (next(line for line in lines if line.get_marker() == marker) for marker in "vo")
    assert triangle.get_ydata()[0] == 256.0
    assert triangle.get_xdata()[0] > dot.get_xdata()[0]


def test_a_dollar_in_a_program_s_name_is_a_dollar(tmp_path: Path) -> None:
    """matplotlib took the text between two dollar signs for a formula: a traceback, or text in italics."""
    names = [r"b$\frac{$\$.bpf.c", "a$(id)$HOME.bpf.c"]
    trials = synthetic.run(vary={"program_name": names}, workload=None, accesses=None)
    axes = figure("programs", trials)
    save(view("programs", trials), "programs", FigureFiles(tmp_path))
    said = " ".join(text.get_text() for text in seen(sheet_of(axes)))
    assert all(name in said.replace("\n", "") for name in names), said


def test_long_names_are_broken_into_lines_and_leave_the_panel_its_height() -> None:
    """Turned by 30 degrees, the labels took two thirds of the figure, and the axis label was cut off."""
    names = [f"inject.bpf.c, rodata delay_every=321 delay_ns={delay}" for delay in (0, 2000)]
    two = synthetic.run(vary={"program_name": names}, workload=None, accesses=None, mode="native")
    sheet = sheet_of(draw(view("programs", two), STYLES["paper-1col"]))
    (ax,) = sheet.axes
    labels = [label for label in ax.get_xticklabels() if label.get_text()]
    assert [label.get_rotation() for label in labels] == [0.0, 0.0]
    assert [" ".join(label.get_text().split()) for label in labels] == names
    assert all("\n" in label.get_text() for label in labels)
    assert ax.get_position().height > 0.4
    word = ax.yaxis.label.get_window_extent()
    assert sheet.bbox.y0 <= word.y0 < word.y1 <= sheet.bbox.y1


def test_labels_that_need_more_than_four_lines_are_turned() -> None:
    names = [f"{letter * 24}.bpf.c" for letter in "abcdefgh"]
    many = synthetic.run(vary={"program_name": names}, workload=None, accesses=None, mode="native")
    sheet = sheet_of(draw(view("programs", many), STYLES["paper-1col"]))
    (ax,) = sheet.axes
    labels = [label for label in ax.get_xticklabels() if label.get_text()]
    assert {label.get_rotation() for label in labels} == {30.0}
    assert [label.get_text() for label in labels] == names


def test_tick_labels_with_less_than_a_space_between_them_touch() -> None:
    """`busybox insmod` and `busybox rmmod` were read as one word."""
    sheet = Figure(figsize=(4, 2))
    FigureCanvasAgg(sheet)
    ax = sheet.add_axes((0.0, 0.3, 1.0, 0.6))
    words = ["busybox insmod", "busybox rmmod"]
    ax.set_xticks([1, 2], labels=words)
    widths = [label.get_window_extent().width for label in ax.get_xticklabels()]
    for gap, touch in ((-1, True), (2, True), (8, False)):
        ax.set_xlim(0, ax.get_window_extent().width / (sum(widths) / 2 + gap))
        assert paper._collide(ax) is touch, gap


def test_panels_with_many_categories_stand_below_each_other() -> None:
    """Five places with twelve benchmarks each were drawn in three columns: axes of no height, below turned labels."""
    places = [f"vm, Linux 6.{n}.117+deb12-amd64, instructions counted" for n in range(5)]
    benchmarks = [f"benchmark {n}, by its compiler" for n in range(12)]
    mark = {"figure": "counts", "file": "counts", "kind": "beside", "hue": "JIT", "n": 1, "verdict": "valid"}
    marks = [
        mark | {"panel": panel, "x": x, "value": 10.0 ** (at % 6), "low": None, "high": None}
        for panel in places for at, x in enumerate(benchmarks)
    ]  # fmt: skip
    axes = draw(View(marks_frame(marks), Look(Axes(x_label="", y_label="instructions", y_scale="log"))), "paper-1col")
    assert axes.shape == (5, 1)
    sheet = sheet_of(axes)
    for ax in axes.flat:
        box = ax.get_window_extent()
        assert box.height > 0.3 * STYLES["paper-1col"].panel_height_in * sheet.dpi
        apart = box.width / len(benchmarks) * np.sin(np.radians(30))
        assert apart > 0.9 * ax.get_xticklabels()[0].get_fontsize() / 72 * sheet.dpi


@pytest.mark.parametrize(
    ("values", "words"), [((91.2, 0.03, 0.0), ["91.20", "0.03", "0.00"]), ((912.0, 0.4), ["912.0", "0.4"])]
)
def test_a_value_above_a_bar_is_not_0_beside_a_large_one(values: tuple[float, ...], words: list[str]) -> None:
    """Beside a cost of 90 ns, one of 0.4 ns was written as 0."""
    ax = plot(({"x": x, "value": value} for x, value in zip("abc", values, strict=False)), Words(bar_values=True))
    assert [text.get_text() for text in ax.texts] == words
