"""Keys of rows: equal exactly where each column's text is equal, whatever the columns hold."""

import pandas as pd
from hypothesis import example, given, settings
from hypothesis import strategies as st

from xdplab.analysis.series import key_of, objects
from xdplab.analysis.values import is_null

TEXTS = st.one_of(st.none(), st.sampled_from(["", "-", "a", "a|b", "b", "1"]))
MIXED = st.one_of(TEXTS, st.sampled_from([1, 1.0, True, 0, float("nan"), 12800]))
NUMBERS = st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([0.5, 1e9, 0.1 + 0.2]))


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    rows = draw(st.integers(0, 12))

    def column(cells: st.SearchStrategy[object], dtype: str) -> pd.Series:
        return pd.Series(draw(st.lists(cells, min_size=rows, max_size=rows)), dtype=dtype)

    found = pd.DataFrame(
        {
            "text": column(TEXTS, "string"),
            "object": column(MIXED, "object"),
            "number": column(NUMBERS, "Float64"),
            "float": column(st.one_of(st.just(float("nan")), st.floats(-2, 2)), "float64"),
            "count": column(st.one_of(st.none(), st.integers(0, 3)), "Int64"),
            "flag": column(st.one_of(st.none(), st.booleans()), "boolean"),
        }
    )
    found.index = pd.Index(draw(st.permutations(range(10, 10 + rows))))
    return found


def text(value: object) -> str:
    """-0.0 is 0.0: they are equal."""
    return "-" if is_null(value) else str(abs(value)) if isinstance(value, float) and value == 0 else str(value)


@settings(max_examples=200, deadline=None)
@example(pd.DataFrame({"float": [-0.0, -0.0]}), ["float"])
@example(pd.DataFrame({"float": [-0.0, 0.0]}), ["float"])
@example(pd.DataFrame({"object": pd.Series([-0.0, "a"], dtype="object")}), ["object"])
@given(
    frames(), st.lists(st.sampled_from(["text", "object", "number", "float", "count", "flag"]), min_size=1, unique=True)
)
def test_a_key_is_the_texts_of_its_row(rows: pd.DataFrame, columns: list[str]) -> None:
    cells = [[text(value) for value in rows[name].tolist()] for name in columns]
    expected = ["|".join(row) for row in zip(*cells, strict=True)]
    found = key_of(rows, tuple(columns))
    assert found.tolist() == expected
    assert found.index.equals(rows.index)
    assert found.dtype == object
    for name in columns:
        assert [value is None for value in objects(rows[name])] == [is_null(value) for value in rows[name]]
