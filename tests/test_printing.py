"""Rows as a person reads them: unbroken in a file, and on a narrow terminal under headings of what they share."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys

import pytest
from rich.console import Console

from xdplab.cli import common, screen

PLACES = {"a machine with a long name, Linux 6.18": "ns", "another place altogether, Linux 6.1": "instructions"}
ROWS = [
    {"place": place, "unit": unit, "benchmark": name, "jit": "331,108 (330,000–332,000)"}
    for place, unit in PLACES.items()
    for name in ("empty", "primes", "chain 32")
]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Console:
    out = Console(file=io.StringIO(), width=screen.WIDE)
    monkeypatch.setattr(screen, "console", lambda: out)
    return out


def test_a_file_gets_every_row_on_a_line_of_its_own() -> None:
    code = f"from xdplab.cli.common import show; show({ROWS!r}, as_json=False, title='Medians')"
    unsaid = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=unsaid)
    title, head, *lines = piped.stdout.splitlines()
    assert (title.strip(), head.split()) == ("Medians", ["place", "unit", "benchmark", "jit"])
    assert len(lines) == len(ROWS)
    assert all(row["place"] in line and row["jit"] in line for row, line in zip(ROWS, lines, strict=True))


def test_on_a_narrow_terminal_what_rows_share_is_their_heading(printed: Console) -> None:
    printed.width = 60
    common.show(ROWS, as_json=False, title="Medians")
    lines = [line.rstrip() for line in printed.file.getvalue().splitlines()]
    assert lines[:4] == [
        "Medians",
        "place: a machine with a long name, Linux 6.18, unit: ns",
        "benchmark  jit",
        "empty      331,108 (330,000–332,000)",
    ]
    assert "place: another place altogether, Linux 6.1, unit:" in lines
    assert sum(row["jit"] in line for row in ROWS[:1] for line in lines) == len(ROWS)


def test_rows_that_share_nothing_stay_one_table(printed: Console) -> None:
    printed.width = 20
    common.show([{"lab": "one", "label": "x" * 30}, {"lab": "two", "label": "y" * 30}], as_json=False)
    assert printed.file.getvalue().splitlines()[0].split() == ["lab", "label"]


def test_the_width_is_that_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "77")
    assert screen.console().width == 77
    monkeypatch.delenv("COLUMNS")
    assert screen.console().width == screen.WIDE, "what pytest captures is no terminal"


@pytest.mark.parametrize(("wanted", "plain"), [("1", True), ("", False)])
def test_no_color_leaves_bold_and_italic_out_too(wanted: str, plain: bool) -> None:
    """FORCE_COLOR makes the pipe a terminal that has colours."""
    code = f"from xdplab.cli.common import show; show({ROWS!r}, as_json=False, title='Medians')"
    environment = os.environ | {"NO_COLOR": wanted, "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert ("\x1b" not in piped.stdout) is plain


@pytest.mark.parametrize("wanted", ["1", ""])
def test_no_color_holds_for_the_bar_of_a_watched_run(wanted: str) -> None:
    """A bar moves its cursor, which is no colour; what is left out is each `ESC[…m` (SGR)."""
    code = "from xdplab.run.watching import bar; b = bar(); b.show(3, 9, 'three of nine'); b.close()"
    environment = os.environ | {"NO_COLOR": wanted, "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert "three of nine" in piped.stdout
    assert bool(re.search(r"\x1b\[[0-9;]*m", piped.stdout)) is not bool(wanted)
