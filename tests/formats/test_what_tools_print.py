"""What every parser stands on: a tool's text is read whole, or refused with the tool, the line and the field."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from xdplab.errors import FormatError
from xdplab.formats import reading


@dataclass(frozen=True)
class Inner:
    x: int


@dataclass(frozen=True)
class Row:
    n: int
    size: float
    word: str
    truth: bool
    many: tuple[int, ...]
    pair: tuple[int, str]
    named: Mapping[str, float]
    inner: Inner
    maybe: int | None = None
    other: Any = 5


LINE = {"n": 0, "size": 0, "word": "", "truth": False, "many": [1, 2], "pair": [3, "a"], "named": {"b": 4, "c": 5.5},
        "inner": {"x": 6, "y": 7}, "more": 8}  # fmt: skip


def test_a_record_has_what_its_line_says() -> None:
    row = reading.record_of(Row, LINE, "tool")
    assert row == Row(0, 0.0, "", False, (1, 2), (3, "a"), {"b": 4.0, "c": 5.5}, Inner(6))
    assert reading.record_of(Row, LINE | {"maybe": 9, "other": [1]}, "tool").maybe == 9
    assert reading.record_of(Row, LINE | {"maybe": None, "other": [1]}, "tool").other == [1]


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        *(("n", value, "n") for value in (-1, 1.0, True, None, "1")),
        *(("maybe", value, "maybe") for value in (-1, "1")),
        *(("size", value, "size") for value in (-0.1, True, None, "1", float("nan"), 10**400)),
        *(("word", 1, "word"), ("truth", 1, "truth"), ("many", 1, "many"), ("many", [1, -1], "many")),
        *(("pair", [3], "pair"), ("pair", [3, "a", 4], "pair"), ("pair", "3a", "pair"), ("pair", [3, 4], "pair")),
        *(("named", {"b": 4, "c": "5"}, "named.c"), ("inner", {"x": -6}, "x"), ("inner", {"y": 7}, "x")),
    ],
)
def test_a_field_that_does_not_fit_is_named_with_its_line(name: str, value: object, field: str) -> None:
    with pytest.raises(FormatError, match=rf"^tool: line 3: .*field `{field}`"):
        reading.record_of(Row, LINE | {name: value}, "tool", line=3)


@pytest.mark.parametrize("name", [name for name in LINE if name != "more"])
def test_a_field_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(FormatError, match=rf"^tool: line 3: no field `{name}`"):
        reading.record_of(Row, {key: value for key, value in LINE.items() if key != name}, "tool", line=3)


@pytest.mark.parametrize(
    ("read", "text", "fact"),
    [
        (reading.lines_of, "a\nb", r"line 2: .*: 'b'"),
        (reading.lines_of, "a\n\0b\n", "line 2: a NUL byte"),
        (reading.lines_of, b"a\nb\n\xff\n", "line 3: binary bytes"),
        (reading.lines_of, " \n", "tool: empty"),
        (reading.objects_of, '{}\n{"a": 1\n', "line 2: not JSON"),
        (reading.objects_of, "{}\n{}\n[]\n", "line 3: not a JSON object: '\\[\\]'"),
        (reading.json_of, "{}\n]", "line 2: not JSON"),
        (reading.json_of, "[" * 100_000, "JSON that no tool writes"),
    ],
)
def test_what_is_cut_or_of_another_kind_is_refused_with_its_line(
    read: Callable[[object, str], object], text: object, fact: str
) -> None:
    with pytest.raises(FormatError, match=fact):
        read(text, "tool")


def test_lines_end_in_either_way_and_words_are_counts_in_ascii_digits() -> None:
    assert reading.lines_of("a\r\n\nb\n\n", "tool") == ["a", "", "b"]
    assert (reading.count_of("007", "tool"), reading.count_of("ff", "tool", base=16)) == (7, 255)
    for word in ("-1", "+1", "1_0", "", "1.0", "٣", "ff", " 1"):
        with pytest.raises(FormatError, match=r"^tool: line 4: not a count"):
            reading.count_of(word, "tool", line=4)
    with pytest.raises(FormatError, match=r"not a JSON list: '{}'"):
        reading.as_list({}, "tool")
    for value, number in ((1, 1.0), (2.5, 2.5), (True, None), ("1", None), (float("inf"), None), (10**400, None)):
        assert reading.optional_number(value) == number
