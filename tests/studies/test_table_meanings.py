"""Below a table stands what it means: made from its rows, of exact counts, or where an interval supports it.

The lines of recorded runs are in the oracle; that each table has one is in test_study_answers.py.
"""

import pandas as pd
import pytest

from xdplab.analysis.sentences import estimate
from xdplab.studies.meaning import ranging, supported, table_with_line


def rows(unit: str, *values: float) -> pd.DataFrame:
    keys = {"name": [*"abcd"[: len(values)]], "on": [*"xyxy"[: len(values)]]}
    return pd.DataFrame({"place": "here", "unit": unit, **keys, "ratio": values})


@pytest.mark.parametrize(
    ("shown", "facts"),
    [
        (rows("instructions", 3.0, 2.0, 4.0), ["2 (b)", "4 (c)"]),
        (rows("instructions", 20.0, 2.0, 5.0, 6.0).assign(name=[*"aabb"]), ["2 (a y)", "20 (a x)"]),
        (rows("instructions", 3.0), ["3"]),
        (rows("ns", 3.0, 2.0, 4.0), []),
        (rows("instructions", float("nan")), []),
        (rows("instructions"), []),
        (rows("instructions", 3.0).assign(place="there (published)"), []),
    ],
)
def test_a_range_is_of_exact_counts_of_this_run(shown: pd.DataFrame, facts: list[str]) -> None:
    line = table_with_line("t", shown, ranging("ratio", ["name", "on"], "it is", "times"), shown).meaning
    assert bool(line) == bool(facts)
    assert [fact for fact in facts if fact not in line] == []


NONE = float("nan")


@pytest.mark.parametrize(("ends", "told"), [((2, 1.9, 2.1), True), ((2, NONE, NONE), False), ((2, 0.5, 8), False)])
def test_a_measured_value_is_told_if_its_interval_supports_it(ends: tuple[float, float, float], told: bool) -> None:
    values = [("a", estimate(1.0, 0.9, 1.1)), ("b", estimate(*ends))]
    assert bool(supported(values, "times")) == told
