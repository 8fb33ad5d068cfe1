"""Readable rows: unbroken in a file, and on a narrow terminal under headings with the values that they share."""

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable

import pytest
from rich.console import Console

from xdplab.cli import common, screen

SGR = re.compile(r"\x1b\[[0-9;]*m")
PLACES = {"a machine with a long name, Linux 6.18": "ns", "another place altogether, Linux 6.1": "instructions"}
ROWS = [
    {"place": place, "unit": unit, "benchmark": name, "jit": "331,108 (330,000–332,000)"}
    for place, unit in PLACES.items()
    for name in ("empty", "primes", "chain 32")
]


Shown = Callable[..., list[str]]


@pytest.fixture
def shown_in(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shown:
    """Return the lines that a terminal of some width shows for rows."""

    def show(columns: int, rows: list[dict[str, str]], title: str | None = None) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(columns))
        common.show(rows, title=title)
        return capsys.readouterr().out.splitlines()

    return show


def test_a_file_gets_every_row_on_a_line_of_its_own() -> None:
    code = f"from xdplab.cli.common import show; show({ROWS!r}, title='Medians')"
    unsaid = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=unsaid)
    title, head, *lines = piped.stdout.splitlines()
    assert (title.strip(), head.split()) == ("Medians", ["place", "unit", "benchmark", "jit"])
    assert len(lines) == len(ROWS)
    assert all(row["place"] in line and row["jit"] in line for row, line in zip(ROWS, lines, strict=True))


def test_on_a_narrow_terminal_what_rows_share_is_their_heading(shown_in: Shown) -> None:
    lines = [line.rstrip() for line in shown_in(60, ROWS, "Medians")]
    assert lines[:4] == [
        "Medians",
        "place: a machine with a long name, Linux 6.18, unit: ns",
        "benchmark  jit",
        "empty      331,108 (330,000–332,000)",
    ]
    assert "place: another place altogether, Linux 6.1, unit:" in lines
    assert sum(row["jit"] in line for row in ROWS[:1] for line in lines) == len(ROWS)


def test_rows_that_share_nothing_stay_one_table(shown_in: Shown) -> None:
    lines = shown_in(20, [{"lab": "one", "label": "x" * 30}, {"lab": "two", "label": "y" * 30}])
    assert lines[0].split() == ["lab", "label"]


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        ROWS[:1],
        [{"a": "長い名前", "b": "[bold]no markup[/]"}, {"a": "e\u0301", "b": ""}],
        [{"only": ":smile: 3"}],
    ],
)
@pytest.mark.parametrize("title", [None, "Medians of [all]"])
@pytest.mark.parametrize("colours", ["", "1"])
def test_a_table_that_fits_is_written_as_rich_writes_it(
    monkeypatch: pytest.MonkeyPatch, shown_in: Shown, rows: list[dict[str, str]], title: str | None, colours: str
) -> None:
    """Such a table does not need rich, whose import takes as long as click's."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", colours)
    monkeypatch.delenv("NO_COLOR", raising=False)
    ours = shown_in(200, rows, title)
    out = Console(file=io.StringIO(), width=200, emoji=False, highlight=False)
    if title:
        out.print(title, style="italic", markup=False)
    screen._print_rows(out, rows)
    rich = out.file.getvalue().splitlines()
    assert [SGR.sub("", line) for line in ours] == [SGR.sub("", line) for line in rich]
    assert ["\x1b[1m" in line for line in ours] == ["\x1b[1m" in line for line in rich], "which line is bold"
    assert ["\x1b[3m" in line for line in ours] == ["\x1b[3m" in line for line in rich], "which line is italic"
    assert any("\x1b" in line for line in ours) is bool(colours)


def test_a_cell_with_control_characters_does_not_steer_the_terminal(shown_in: Shown) -> None:
    assert "\x08" not in "".join(shown_in(200, [{"name": "back\x08space", "n": "2"}]))


def test_the_width_is_that_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "77")
    assert screen.console().width == 77
    monkeypatch.delenv("COLUMNS")
    assert screen.console().width == screen.WIDE, "the output that pytest captures is not a terminal"


@pytest.mark.parametrize(("wanted", "plain"), [("1", True), ("", False)])
def test_no_color_leaves_bold_and_italic_out_too(wanted: str, plain: bool) -> None:
    """FORCE_COLOR makes rich treat the pipe as a terminal with colours."""
    code = f"from xdplab.cli.common import show; show({ROWS!r}, title='Medians')"
    environment = os.environ | {"NO_COLOR": wanted, "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert ("\x1b" not in piped.stdout) is plain


@pytest.mark.parametrize("wanted", ["1", ""])
def test_no_color_holds_for_the_bar_of_a_watched_run(wanted: str) -> None:
    """A bar moves its cursor, which is not a colour; only `ESC[…m` (SGR) is left out."""
    code = "from xdplab.run.watching import bar; b = bar(); b.show(3, 9, 'three of nine'); b.close()"
    environment = os.environ | {"NO_COLOR": wanted, "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert "three of nine" in piped.stdout
    assert bool(re.search(r"\x1b\[[0-9;]*m", piped.stdout)) is not bool(wanted)
