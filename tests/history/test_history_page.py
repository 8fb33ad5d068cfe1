"""The page of a history: one file, its changes first, a plot for each series, every mark a way to its run."""

import os
import re
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from tests.history.test_history import RATE, over_time

from xdplab.cli import cli
from xdplab.history import page
from xdplab.history.changes import changes
from xdplab.history.page import HEIGHT, NUMBER_WIDTH, WIDTH, shapes
from xdplab.history.table import history

ROOT = Path(__file__).parents[2]
STEP = np.where(np.arange(20) < 12, 0.0, -0.1)


def rows_of(logs: Any, **around: Any) -> pd.DataFrame:
    """Return the rows of runs of a point, each with an interval of a percent."""
    rows = over_time(np.asarray(logs))
    ends = {"low": rows["value"] * 0.99, "high": rows["value"] * 1.01}
    return rows.assign(**(ends | {"run_id": rows["path"]} | around))


def written(rows: pd.DataFrame, folder: Path) -> str:
    return page.write_page(rows, changes(rows), ["an odd file"], folder / "h.html").read_text()


def svgs(text: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(one) for one in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


def test_a_change_is_listed_first_and_marked_and_both_lead_to_its_run(tmp_path: Path) -> None:
    for name in ("a b#1", "r12"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs" / "r12" / "report.html").touch()
    rows = rows_of(STEP)
    rows["path"] = [str(tmp_path / "runs" / ("a b#1" if name == "r11" else name)) for name in rows["run"]]
    (tmp_path / "page").mkdir()
    text = written(rows, tmp_path / "page")
    assert text.index("r11") < text.index("<svg")
    links = [unquote(unescape(link)) for link in re.findall(r'href="([^"#]+)"', text)]
    assert {"../runs/a b#1/", "../runs/r12/report.html"} <= set(links)
    assert all((tmp_path / "page" / link).exists() for link in links if link.endswith(("#1/", ".html")))
    (drawn,) = svgs(text)
    (mark,) = [one for one in drawn.iter("a") if one.get("class") == "mark"]
    assert (mark.get("href"), mark.findtext("text")) == ("../runs/r12/report.html", "1")


def test_the_page_loads_nothing_and_runs_nothing(tmp_path: Path) -> None:
    text = written(rows_of(STEP, run="<script>alert(1)</script>"), tmp_path)
    assert "<script" not in text
    assert re.findall(r"(?:src=|url\(|@import|https?:)", text) == []


def test_each_metric_point_and_place_has_a_plot_and_those_with_a_change_are_first(tmp_path: Path) -> None:
    still = rows_of(np.zeros(20), point="still", metric="first")
    text = written(pd.concat([still, rows_of(STEP, point="moved", place=None), rows_of(STEP, point="moved")]), tmp_path)
    assert [svg.get("aria-label", "").split(" of ")[1].split(":")[0] for svg in svgs(text)] == [
        "moved",
        "moved, lab",
        "still, lab",
    ]


@pytest.mark.parametrize(("metric", "value", "unit"), [
    (RATE, 4.4e6, "Mpps"), (RATE, 2e4, "kpps"), (RATE, 3.0, "pps"), ("testrun_raw_ns", 27.0, "ns"),
    ("latency_p99_ns", 1.5e4, "µs"), ("instructions", 27.0, ""),
])  # fmt: skip
def test_the_axis_has_short_numbers_and_their_unit(metric: str, value: float, unit: str) -> None:
    drawn = shapes(rows_of(np.log(value / 1e6) + np.linspace(0, 0.1, 9)), metric, [], [])
    assert drawn.unit == unit
    assert all(len(tick.text) <= 6 for tick in drawn.values)


@pytest.mark.parametrize("logs", [[0.0], [0.0, 0.0], np.linspace(-3, 3, 50), np.zeros(3000), np.sin(np.arange(3000))])
def test_all_shapes_are_within_the_plot_and_no_text_is_over_another(logs: Any) -> None:
    rows = rows_of(logs, low=1.0, high=1e9) if len(logs) == 2 else rows_of(logs)
    changed = [run for run in (10, 12, 14, 900) if run < len(rows)]
    rows["begun"] = [f"{2000 + n // 300}-01-01T00:00:00+00:00" for n in range(len(rows))]
    drawn = shapes(rows, RATE, changed, [])
    numbers = [float(number) for number in re.findall(r"[-.\d]+", drawn.dots.replace("h0", "") + drawn.intervals)]
    assert all(0 <= number <= WIDTH for number in numbers)
    assert all(0 <= spot.y <= HEIGHT for spot in drawn.places)
    dates = [tick.at for tick in drawn.dates]
    assert all(after - before >= 100 for before, after in pairwise(dates))
    assert len(drawn.intervals) < 20_000
    for first, second in pairwise(drawn.spots):
        assert first.row != second.row or second.x - first.x >= NUMBER_WIDTH


def test_a_page_of_two_thousand_runs_is_small(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = pd.concat([rows_of(rng.normal(0, 0.02, 2000), point=f"p{n}") for n in range(3)])
    rows["begun"] = [f"{2000 + n // 300}-01-{1 + n % 28:02}T00:00:00+00:00" for n in range(2000)] * 3
    assert len(written(rows, tmp_path)) < 3 * 60_000


def test_more_plots_than_a_page_holds_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MOST_PLOTS", 2)
    text = written(pd.concat([rows_of(np.zeros(3), point=f"p{n}") for n in range(5)]), tmp_path)
    assert len(svgs(text)) == 2
    assert "3 more series" in text


def test_the_command_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDPLAB_CACHE", str(tmp_path / "cache"))
    asked = ["history", str(ROOT / "results" / "sample"), "--html", str(tmp_path / "h.html")]
    result = CliRunner().invoke(cli, asked)
    assert result.exit_code == 0, result.output
    text = (tmp_path / "h.html").read_text()
    assert len(svgs(text)) == len(history(ROOT / "results" / "sample").rows)
    assert os.path.relpath(ROOT / "results" / "sample", tmp_path) in text
