"""Every figure of the sample in results/ against its rows: this file computes each mark's value and interval again."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from scipy.stats import t

import xdplab as xl
from xdplab.cli import cli

pytestmark = pytest.mark.thorough

SAMPLE = Path(__file__).resolve().parents[2] / "results" / "sample"
COLUMNS = {
    "throughput": ("forwarded_pps", 1e-6),
    "baseline": ("forwarded_pps", 1e-6),
    "busy": ("host_busy_cores", 1.0),
    "service_time": ("ns_per_packet", 1.0),
    "latency": ("latency_{hue}_ns", 1e-3),
}
"""For each figure: the column of its values, and the factor to the axis' unit."""
NOT_HERE = {"programs", "harness", "counters", "evenness", "labs"}
OF_SEVERAL = {"access_cost"}
"""Its marks are differences of two points, computed by `costs`."""
MODES = {"native": "native", "generic": "generic", "AF_XDP": "af_xdp"}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("sample") / "out"
    done = CliRunner().invoke(cli, ["figures", str(SAMPLE), "--out", str(folder)])
    assert done.exit_code == 0, done.output
    return done.output, folder


def values(figure: str, hue: str, points: str) -> pd.Series:
    """Return the values of the valid trials of some points, in the axis' unit."""
    column, scale = COLUMNS[figure]
    rows = xl.open(SAMPLE).trials
    chosen = rows[rows["point_id"].isin(points.split(",")) & (rows["verdict"] == "valid")]
    return chosen[column.format(hue=hue.replace(".", ""))].dropna().astype(float) * scale


def costs(kind: str, hue: str) -> list[float]:
    """The CPU time of an access in each repetition, in ns: from the rates at N and 0, or from their test runs."""
    rows = xl.open(SAMPLE).trials
    rows = rows[(rows["mode"] == MODES[hue]) & (rows["load"] == "max") & (rows["verdict"] == "valid")]
    cpus = rows["dut_cpus"] - rows["other_busy_cores"].fillna(0)
    rows = rows.assign(bar=1e9 * cpus / rows["forwarded_pps"], point=rows["testrun_raw_ns"])
    by = rows.pivot(index="repetition", columns="accesses", values=kind).astype(float)
    zero, most = by.columns.min(), by.columns.max()
    assert zero == 0 < most
    return list(((by[most] - by[0]) / most).dropna())


def interval(found: list[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean."""
    series = pd.Series(found)
    half = t.ppf(0.975, len(series) - 1) * series.std() / len(series) ** 0.5
    return series.mean() - half, series.mean() + half


def test_each_figure_is_drawn_or_says_why_not(drawn: tuple[str, Path]) -> None:
    said, folder = drawn
    assert {path.stem for path in folder.glob("*.svg")} == set(COLUMNS) | OF_SEVERAL
    assert all(f"no figure {name}: " in said for name in NOT_HERE)


@pytest.mark.parametrize("figure", COLUMNS)
def test_each_mark_is_computed_from_its_rows(drawn: tuple[str, Path], figure: str) -> None:
    marks = pd.read_csv(drawn[1] / f"{figure}.csv")
    shown = marks[marks["kind"].isin(["line", "bar", "point"]) & marks["points"].notna() & marks["value"].notna()]
    assert len(shown) >= 3
    for mark in shown.itertuples():
        found = values(figure, str(mark.hue), str(mark.points))
        assert len(found) == mark.n
        middle = found.median() if figure == "latency" else found.mean()
        assert mark.value == pytest.approx(middle), mark
        if figure != "latency" and not pd.isna(mark.low):
            assert (mark.low, mark.high) == pytest.approx(interval(list(found))), mark


@pytest.mark.parametrize("figure", COLUMNS)
def test_each_repetition_is_a_dot_of_its_own(drawn: tuple[str, Path], figure: str) -> None:
    marks = pd.read_csv(drawn[1] / f"{figure}.csv")
    raw = marks[marks["kind"] == "raw"]
    assert not raw.empty
    for (hue, points), dots in raw.groupby(["hue", "points"], dropna=False):
        found = values(figure, str(hue), str(points))
        assert sorted(dots["value"]) == pytest.approx(sorted(found))


def test_the_cost_of_an_access_is_computed_from_rates_and_test_runs(drawn: tuple[str, Path]) -> None:
    marks = pd.read_csv(drawn[1] / "access_cost.csv")
    raw = marks["kind"] == "raw"
    shown = marks[~raw]
    assert {(mark.kind, mark.hue) for mark in shown.itertuples()} == {
        *(("bar", hue) for hue in MODES),
        *(("point", hue) for hue in MODES if hue != "AF_XDP"),  # its program has no test run in the kernel
    }
    for mark in shown.itertuples():
        found = costs(mark.kind, mark.hue)
        assert (mark.value, mark.n) == (pytest.approx(sum(found) / len(found)), len(found)), mark
        assert (mark.low, mark.high) == pytest.approx(interval(found)), mark
    for hue in MODES:
        dots = marks[raw & (marks["hue"] == hue)]["value"]
        assert sorted(dots) == pytest.approx(sorted([*costs("bar", hue), *costs("point", hue)]))
