"""Labs as a factor: what the analysis says of made-up labs with known speeds."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic import Row, finish, measured, point

from xdplab.analysis.finding_rules import find
from xdplab.analysis.labs import by_lab, lab_ratios, labs_differ
from xdplab.errors import FigureError
from xdplab.figures import explore
from xdplab.figures.album import draw_all
from xdplab.figures.catalogue import view
from xdplab.figures.factors import FigureFiles
from xdplab.studies.traffic.audits import labs_compared


def run_in(labs: Mapping[str, float], *, points: int = 4, repetitions: int = 6) -> pd.DataFrame:
    """Return trials of equal points, taken in turn by labs whose rates are ``labs`` times the model's."""
    rng, rows = np.random.default_rng(5), list[Row]()
    for repetition in range(1, repetitions + 1):
        for number in range(points):
            name = sorted(labs)[(repetition + number) % len(labs)]
            row = measured(point(lab=name, accesses=400 * number), rng, repetition)
            for column in ("rx_packets", "dut_tx_packets", "tx_packets", "dut_rx_packets"):
                row[column] = int(int(str(row[column])) * labs[name])
            for column in ("offered_pps", "forwarded_pps"):
                row[column] = float(str(row[column])) * labs[name]
            rows.append(row)
    return finish(rows)


def test_what_a_lab_takes_is_found_with_its_interval() -> None:
    (found,) = lab_ratios(run_in({"a.yaml": 1.0, "b.yaml": 0.9}))
    assert (found.a, found.b, found.points, found.trials) == ("a.yaml", "b.yaml", 4, 24)
    assert found.low < 0.9 < found.high
    assert found.high - found.low < 0.06
    assert found.differs


def test_labs_that_differ_are_a_finding_and_equal_ones_are_none() -> None:
    trials = run_in({"a.yaml": 1.0, "b.yaml": 1.0, "c.yaml": 0.9})
    found = [finding for finding in find(trials) if finding.rule == "labs differ"]
    assert [finding.what.split(" of what")[0][:20] for finding in found] == ["lab c.yaml forwards "] * 2
    assert {finding.severity for finding in found} == {"warning"}
    assert set(found[0].evidence) == {"ratio", "low", "high", "median_pps_a.yaml", "median_pps_c.yaml"}
    assert found[0].files
    assert list(labs_differ(run_in({"a.yaml": 1.0, "b.yaml": 1.0}))) == []


def test_points_of_one_lab_only_say_nothing_of_labs() -> None:
    trials = run_in({"a.yaml": 1.0})
    assert lab_ratios(trials) == []
    assert by_lab(trials).empty
    assert labs_compared(trials, {}).lines() == []


def test_without_a_spare_repetition_there_is_no_interval() -> None:
    assert lab_ratios(run_in({"a.yaml": 1.0, "b.yaml": 0.9}, points=1, repetitions=2)) == []


def test_each_point_has_its_median_by_lab() -> None:
    trials = run_in({"a.yaml": 1.0, "b.yaml": 0.9}, points=2)
    rates = by_lab(trials)
    assert len(rates) == 4
    assert list(rates["n"]) == [3] * 4
    one = trials[(trials["lab"] == "a.yaml") & (trials["accesses"] == 0)]["forwarded_pps"]
    medians = rates.set_index(["point_id", "lab"])["median"]
    assert medians[trials["point_id"][0], "a.yaml"] == pytest.approx(one.median())
    lines = labs_compared(trials, {}).lines()
    assert any(line.startswith("| b.yaml / a.yaml | 0.") for line in lines)


def test_the_figure_puts_equal_labs_at_one(tmp_path: Path) -> None:
    """Each mark shows one point: no average joins two."""
    drawn_marks = view("labs", run_in({"a.yaml": 1.0, "b.yaml": 0.8})).marks
    means = drawn_marks[drawn_marks["n"].notna()]  # marks of single repetitions are beside them
    marks = means.pivot(index="points", columns="x", values="value")
    assert len(marks) == 4
    assert (marks["b.yaml"] / marks["a.yaml"]).to_numpy() == pytest.approx(0.8, rel=0.05)
    assert ((marks["a.yaml"] + marks["b.yaml"]) / 2).to_numpy() == pytest.approx(1, rel=1e-6)
    (drawn,) = draw_all(run_in({"a.yaml": 1.0, "b.yaml": 0.8}), FigureFiles(tmp_path), ["labs"])
    assert drawn.files
    (none,) = draw_all(run_in({"a.yaml": 1.0}), FigureFiles(tmp_path), ["labs"])
    assert "no point was measured in several labs" in none.reason


def test_what_differs_between_labs_is_not_told_of_repetitions_and_loads() -> None:
    """Both labs are steady: their points had "loads in two classes", and repetitions that "differ by 16 %"."""
    trials = run_in({"a.yaml": 1.0, "b.yaml": 0.8}, repetitions=8)
    rules = {finding.rule for finding in find(trials)}
    assert "labs differ" in rules
    assert not {"program loads form classes", "repetitions differ", "repetition apart"} & rules


def test_no_mark_of_a_plot_joins_labs() -> None:
    trials = run_in({"a.yaml": 1.0, "b.yaml": 0.8})
    with pytest.raises(FigureError, match="one mark would join labs that measured one point: they differ in lab"):
        explore.plot(trials, "forwarded_pps", "accesses", None, None)
    drawn = explore.plot(trials, "forwarded_pps", "accesses", "lab", None, marker="s")
    assert drawn.ax.lines[0].get_marker() == "s", "a reader's own choice goes before the usual one"
