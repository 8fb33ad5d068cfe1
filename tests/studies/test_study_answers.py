"""A study's answer: sentences of its data come first, and its tables fit a terminal. Of the oracle's recorded runs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner
from tests.oracle.derive import opened_once
from tests.oracle.expected import texts
from tests.oracle.kinds import RECORDED
from tests.unpack import unpacked

from xdplab.analysis.sentences import MOST, estimate, span
from xdplab.cli import cli
from xdplab.cli.common import BROADEST
from xdplab.studies.kind import Run
from xdplab.studies.kinds import open_run
from xdplab.studies.tables import Table

STUDIES = ("verifier", "execution", "loading", "jit", "offload", "outage", "neighbour")
"""What their sentences say is in the oracle."""


@pytest.fixture(params=STUDIES)
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run[Any]]:
    unpacked(RECORDED[request.param].archive, tmp_path)
    with opened_once():
        yield open_run(tmp_path / request.param)


def test_a_study_answers_first_in_three_sentences_and_its_tables_fit_a_terminal(recorded: Run[Any]) -> None:
    sentences = recorded.summary()[:MOST]
    assert all(line.endswith(".") for line in sentences)
    shown = CliRunner().invoke(cli, ["show", str(recorded.directory.path)]).output
    answer, _, tables = shown.partition("\n\n")
    assert answer.startswith(sentences[0])
    assert [line for line in tables.splitlines() if len(line) > BROADEST] == []
    words, meanings = " ".join(shown.split()).lower(), [table.meaning for table in recorded.tables().values()]
    assert [line for line in meanings if line and words.count(line.rstrip(".").lower()) != 1] == []
    placed = [table for table in recorded.tables().values() if table.above]
    for place in {str(place) for table in placed for place in table.frame[table.above[0]]}:
        assert sum(line.startswith(place) for line in tables.splitlines()) == sum(
            place in set(table.frame[table.above[0]]) for table in placed
        )


@pytest.mark.parametrize("name", [*STUDIES, "cost"])
def test_each_table_has_a_line_but_one_of_times_that_were_measured_once(name: str) -> None:
    tables = {
        file: text.decode().split("\n")[2] for file, text in texts(name).items() if re.match(r"tables/.*\.md", file)
    }
    untold = [file for file, line in tables.items() if line.startswith("|")]
    assert (bool(tables), untold) == (True, ["tables/compile.md"] if name == "loading" else [])


@pytest.mark.parametrize(
    ("values", "exact", "told"),
    [
        ({"a": (2.0, 1.9, 2.1)}, False, "2 [1.9, 2.1]"),
        ({"a": (2.0, None, None)}, False, "about 2"),
        ({"a": (2.0, None, None)}, True, "2"),
        ({"a": (2.0, 1.9, 2.1), "b": (1.0, 0.9, 1.1)}, False, "1 [0.9, 1.1] (b) to 2 [1.9, 2.1] (a)"),
        ({"a": (2.0, None, None), "b": (1.0, None, None)}, False, "about 1 (b) to 2 (a)"),
        ({"a": (2.0, -0.5, 4.5)}, False, "about 2"),
    ],
)
def test_a_span_has_the_ends_their_names_and_intervals(values: dict[str, Any], exact: bool, told: str) -> None:
    assert span([(name, estimate(*ends)) for name, ends in values.items()], exact=exact) == told


def test_a_unit_stands_above_its_rows_where_the_place_has_one() -> None:
    rows = pd.DataFrame({"place": ["a", "a", "b"], "unit": ["ns", "ns", "k"], "cost": [1, 2, 3]})
    assert Table("", rows).above == ["place", "unit"]
    assert Table("", rows.assign(unit=["ns", "ms", "k"])).above == ["place"]
    assert Table("", rows[["cost"]]).above == []
