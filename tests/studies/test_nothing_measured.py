"""The figures of a study without a measurement say so."""

import importlib

import pytest

from xdplab.errors import NotApplicableError
from xdplab.run.frames import typed
from xdplab.studies.kinds import STUDIES, kind_named


@pytest.mark.parametrize("name", [name for name in STUDIES if kind_named(name).pictures.views])
def test_each_figure_of_no_rows_says_why_it_is_not_drawn(name: str) -> None:
    rows = importlib.import_module(f"xdplab.studies.{name}.rows")
    table = typed([], rows.COLUMNS)
    table = rows.joined(table) if name == "verifier" else table
    for make in kind_named(name).pictures.views.values():
        with pytest.raises(NotApplicableError):
            make(table)
