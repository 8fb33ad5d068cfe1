"""The first things a user sees: a bare command shows its help, and no table is wider than the terminal."""

import subprocess
import sys

import pytest

from xdplab import text
from xdplab.cli import common, screen

ROWS = [
    {
        "accesses": n,
        "mode": mode,
        "load": load,
        "Mpps": "0.0199977 ± 0.0000018",
        "p50 µs": p50,
        "limited by": "shared_cpu",
    }
    for n in (0, 400)
    for mode, load, p50 in (("native", "20kpps", "0.84 ± 0.32"), ("generic", "max", None), ("af_xdp", "max", None))
]


@pytest.mark.parametrize("words", ["", "study", "lab", "kernels", "programs", "import"])
def test_a_command_without_its_verb_shows_its_help_line_by_line(words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "xdplab", *words.split()], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: ")
    assert "Commands:" in done.stderr.splitlines()


@pytest.mark.parametrize("columns", [30, 60, 80, 200])
def test_a_table_breaks_no_word_and_no_line_is_wider_than_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    screen.print_table(ROWS, "a title")
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= columns
    said = set(shown.replace(",", " ").split())
    assert {"0.0199977", "0.0000018", "shared_cpu", "generic", "20kpps", "0.84"} <= said


def test_a_table_of_one_row_or_none_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    screen.print_table([])
    screen.print_table([{"run": "a", "note": None}])
    assert "run" in capsys.readouterr().out


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_sentence_is_as_wide_as_the_terminal_and_its_command_can_be_pasted(columns: int) -> None:
    command = "`xdplab audit results/a-run`"
    said = (
        f"What to doubt:\n  sample: the sender was late {'again and ' * 20}again: {command} says why\n|{'-' * 300}|\n"
    )
    shown = common.fitted(said, columns)
    assert shown.replace("\n", " ").split() == said.split()
    lines = shown.splitlines()
    assert max(len(line) for line in lines if "|" not in line) <= columns
    assert any(command in line for line in lines), "a command is not broken"
    assert all(line.startswith("    ") for line in lines[2:-1]), "a continued cell is below its beginning"


def test_a_pipe_gets_sentences_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    common.tell("a " * 300)
    assert capsys.readouterr().out == "a " * 300 + "\n"


@pytest.mark.parametrize(
    ("taken", "shown"),
    [(0, "0 bytes"), (840, "840 bytes"), (38_400, "38 kB"), (428_000, "0.4 MB"), (4_700_000, "4.7 MB")],
)
def test_no_file_has_a_size_of_nothing(taken: int, shown: str) -> None:
    assert text.size(taken) == shown
