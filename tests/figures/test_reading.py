"""Figures are drawn from narrow tables: no figure may miss a column, and no mark or caption may differ."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from xdplab import analysis, figures
from xdplab.figures import catalogue
from xdplab.figures.album import draw_all
from xdplab.figures.catalogue import OF_ONE_TRIAL, READ, REASONS, narrowed, read_narrowed
from xdplab.figures.factors import FACTORS, FigureFiles, _combined, free_factors, label_order, levels
from xdplab.studies.kinds import open_run
from xdplab.studies.traffic.trials import settled_trials

SAMPLE = Path(__file__).parents[2] / "results" / "sample" / "trials.parquet"
ANALYSIS = ("series", "cost_rules", "intervals", "labs", "fit")
NOT_OF_AN_ALBUM = ("explore", "comparing")
"""Modules whose figures the album does not draw."""


def sources() -> list[Path]:
    (of_figures,), (of_analysis,) = ([Path(path) for path in package.__path__] for package in (figures, analysis))
    own = [path for path in sorted(of_figures.glob("*.py")) if path.stem not in NOT_OF_AN_ALBUM]
    return [*own, *(of_analysis / f"{name}.py" for name in ANALYSIS)]


@pytest.fixture(scope="module")
def sample() -> pd.DataFrame:
    return pd.read_parquet(SAMPLE)


def test_every_column_that_figures_name_is_read(sample: pd.DataFrame) -> None:
    named = {word for path in sources() for word in re.findall(r'"([a-z0-9_]+)"', path.read_text())}
    assert {"forwarded_pps", "null_reasons"} <= named
    assert [name for name in sample if name in named | set(FACTORS) and name not in READ] == []


@pytest.mark.thorough
def test_a_figure_of_the_narrow_table_is_that_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks as CSV and captions as text, to the byte; the pictures are made of these."""
    sample = settled_trials(open_run(SAMPLE.parent).directory)  # with the factors that came after the file
    draw_all(sample, FigureFiles(tmp_path / "narrow"))
    monkeypatch.setattr("xdplab.figures.album.narrowed", lambda trials: trials)
    draw_all(sample, FigureFiles(tmp_path / "whole"))
    made, expected = ({p.name: p.read_bytes() for p in (tmp_path / name).glob("*.*")} for name in ("narrow", "whole"))
    assert made.keys() == expected.keys()
    assert len(made) >= 20
    assert {name for name in made if made[name] != expected[name]} == set()


@pytest.mark.parametrize("cells", [catalogue.MOST_CELLS, 1])
def test_a_file_is_read_as_its_table_is_narrowed(
    sample: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, cells: int
) -> None:
    """At once, and column by column."""
    monkeypatch.setattr(catalogue, "MOST_CELLS", cells)
    read = read_narrowed(SAMPLE)
    pd.testing.assert_frame_equal(read, narrowed(sample))
    pd.testing.assert_frame_equal(narrowed(read), read)
    assert len(read.columns) < 0.6 * len(sample.columns)
    assert read[REASONS].isna().equals(sample[REASONS].isna())


def test_texts_are_sorted_categories_but_those_of_one_trial(sample: pd.DataFrame) -> None:
    """A million rows have few levels: as texts, they took ten times as long to copy and to count."""
    read = read_narrowed(SAMPLE)
    texts = {name for name in read if isinstance(sample[name].dtype, pd.StringDtype)}
    held = {name for name in texts if isinstance(read[name].dtype, pd.CategoricalDtype)}
    assert texts - held == {*OF_ONE_TRIAL}
    assert {"mode", "verdict", "point_id"} <= held
    assert all(read[name].cat.categories.is_monotonic_increasing for name in held)
    for name in held - {REASONS}:
        assert read[name].astype("str").equals(sample[name].astype("str"))


def test_free_factors_are_counted_over_combinations_as_over_rows() -> None:
    """Against pandas' own count over all rows, with nulls, categories and more combinations than 64 bits number."""
    rng = np.random.default_rng(3)
    names = list(FACTORS)[:40]
    trials = pd.DataFrame({name: rng.integers(0, 60, 500) for name in names}).astype("Int64")
    trials[names[1]] = pd.Series(rng.choice(["a", "b"], 500), dtype="category").where(trials[names[2]] > 20)
    trials[names[3]] = trials[names[0]] * 2
    trials[names[4]] = pd.NA
    trials[names[5]] = trials[names[0]].where(trials[names[0]] > 9)
    for held in ([], names[:1], names[1:2], [names[1], names[3]], names[6:30]):
        there = [name for name in names if name not in held]
        counts = trials.groupby(held, dropna=False)[there].nunique() if held else trials[there].nunique().to_frame().T
        assert free_factors(trials, held) == [name for name in there if (counts[name] > 1).any()]
    place, combinations = _combined(trials, names)
    assert (combinations.reset_index(drop=True).iloc[place][names[0]].to_numpy() == trials[names[0]].to_numpy()).all()
    assert len(combinations) == len(trials.drop_duplicates())


def test_null_reasons_stay_null_and_equal_ones_meet() -> None:
    texts = ['{"access_ns": "a", "xps": "x"}', None, '{"access_ns": "a", "xps": "y"}']
    found = narrowed(pd.DataFrame({REASONS: pd.Series(texts, dtype="str"), "xps": [1, 2, 3]}))
    assert list(found) == [REASONS]
    assert found[REASONS].tolist()[0] == found[REASONS].tolist()[2] == '{"access_ns": "a"}'
    assert found[REASONS].isna().tolist() == [False, True, False]


def test_an_order_of_programs_that_a_run_gives_is_that_of_hues_and_bars() -> None:
    """A race's first program stands first, whatever its name."""
    names = ["new.c", "old.c", "new.c"]
    trials = pd.DataFrame({"program_name": pd.Categorical(names, ["old.c", "new.c"], ordered=True)})
    kept = narrowed(trials)
    assert levels(kept, "program_name") == ["old.c", "new.c"]
    assert label_order(kept, ["program_name"], alone=True) == ("old.c", "new.c")
