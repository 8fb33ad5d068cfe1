"""The SVG's text for a pointer over each mark, at the place where it is drawn, and ids by which a page hides a hue."""

import re

from xdplab.figures.draw import Sheet, draw
from xdplab.figures.marks import Axes, Look, View, Words, marks_frame
from xdplab.figures.save import render, sheet_of
from xdplab.figures.styles import style_named

MARKS = marks_frame(
    {"figure": "f", "file": "f", "kind": "beside", "panel": "p", "hue": hue, "x": x, "value": value, "low": value - 1,
     "high": value + 1, "n": 3, "verdict": verdict, "points": "0123456789ab"}
    for hue, x, value, verdict in (
        ("a<b", "64", 5.0, "valid"), ("a<b", "1500", 4.0, "valid"), ("c", "64", 3.0, "invalid"),
    )
)  # fmt: skip
VIEW = View(MARKS, Look(Axes("size (B)", "rate (Mpps)", from_zero=True), words=Words(hue_title="mode")))


def drawn() -> tuple[Sheet, str]:
    style = style_named("paper-1col")
    sheet = sheet_of(draw(VIEW, style))
    assert isinstance(sheet, Sheet)
    return sheet, render(sheet, "svg", style, "f", {}).decode()


def test_each_mark_says_value_interval_verdict_and_trials() -> None:
    _, svg = drawn()
    said = re.findall(r"<circle class=\"(series-\d)\" [^>]*><title>(.*?)</title>", svg, re.DOTALL)
    assert said[0] == ("series-0", "a&lt;b, p, size (B): 64\nrate (Mpps): 5 [4, 6], n = 3\ntrials 0123456789ab-r…")
    assert [hue for hue, _ in said] == ["series-0", "series-0", "series-1"]
    assert "\ninvalid\n" in said[2][1]


def test_the_tooltip_is_on_the_mark() -> None:
    """Read from the file: where matplotlib has written the marker, and where the disc is."""
    _, svg = drawn()
    group = re.findall(r'<g id="series-0-\d+">(.*?)</g>\s*</g>', svg, re.DOTALL)
    marker = [
        (float(x), float(y)) for part in group for x, y in re.findall(r'<use [^>]*x="([\d.]+)" y="([\d.]+)"', part)
    ]
    discs = re.findall(r'<circle class="series-0" cx="([\d.]+)" cy="([\d.]+)"', svg)
    for x, y in discs:
        assert any(abs(float(x) - a) < 0.1 and abs(float(y) - b) < 0.1 for a, b in marker), (x, y, marker)


def test_each_hue_and_its_entry_in_the_legend_have_ids_in_the_file_alone() -> None:
    sheet, svg = drawn()
    assert len(re.findall(r'id="series-0-\d+"', svg)) >= 2  # marker and interval
    assert len(re.findall(r'<g aria-label="a&lt;b" id="legend-0-\d+"', svg)) == 2  # handle and text
    assert len(re.findall(r'id="legend-1-\d+"', svg)) == 2
    assert not [one for one in sheet.findobj() if str(one.get_gid()).startswith(("series", "legend"))]
