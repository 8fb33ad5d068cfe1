"""Words of another user's run or plan steer no terminal, and no page or figure of it is broken by them."""

import ast
import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests import forked
from tests.cli.entry import ending

import xdplab.cli
from xdplab.text import visible

SAMPLE = Path(__file__).resolve().parents[2] / "results" / "sample"
EVIL = "\x1b]0;TITLE\x07\x1b[2J\x1b[31mRED\x9b2J\u202eback\r\x00\b"
PRINTS = {"common.py", "screen.py"}
"""The modules whose functions print; the others call those."""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDPLAB_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "runs" / "evil"
    shutil.copytree(SAMPLE, place, ignore=shutil.ignore_patterns("*.parquet"))
    events = [json.loads(line) for line in (place / "journal.jsonl").read_text().splitlines()]
    finished = [event for event in events if event["event"] == "finished"]
    finished[-1] |= {"status": "failed", "reason": f"reason {EVIL}"}
    for event in finished:
        event["facts"] |= {"lab": f"lab {EVIL}", "label": f"label {EVIL}"}
    events.append({"event": "waiting", "time": events[-1]["time"], "why": f"why {EVIL}"})
    (place / "journal.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (place / "note.txt").write_text(f"note {EVIL}")
    (place / "tags.txt").write_text(f"tag{EVIL}")
    return place


def steering(text: str) -> set[str]:
    """Return the control characters of a text, but for those that xdplab writes itself."""
    return {char for char in text if char != "\n" and visible(char) != char}


@pytest.mark.thorough
@pytest.mark.parametrize("columns", ["50", "300"])
def test_no_verb_prints_a_control_character_of_a_strangers_run(
    run: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    verbs = ["runs {folder}", "status {run}", "show {run}", "show {run} --format markdown", "show {run} --format csv"]
    for verb in (*verbs, "audit {run}", "compare {run} {sample}"):
        done = forked.xdplab(*verb.format(folder=run.parent, run=run, sample=SAMPLE).split())
        assert "Traceback" not in done.stderr, verb
        assert steering(done.stdout + done.stderr) == set(), verb
    (row,) = json.loads(forked.xdplab("runs", str(run.parent), "--json").stdout)
    assert EVIL[:-4] in row["note"], "a program gets the words as they are"


@pytest.mark.thorough
def test_figures_and_the_report_of_a_strangers_run_are_whole(run: Path, tmp_path: Path) -> None:
    drawn = forked.xdplab("figures", str(run))
    assert drawn.returncode == 0, drawn.stderr
    figures = list(run.rglob("*.svg"))
    assert len(figures) > 5
    for path in figures:
        ElementTree.parse(path)
    page = tmp_path / "page.html"
    done = forked.xdplab("report", str(run), "--out", str(page))
    assert done.returncode == 0, done.stderr
    written = [*figures, *run.rglob("figures/**/*.txt"), *run.rglob("figures/**/*.html"), run / "audit.md", page]
    forked.xdplab("audit", str(run))
    for path in written:
        assert steering(path.read_text()) == set(), path
    assert "note \\x1b]0;TITLE" in page.read_text()


def test_an_error_about_a_strangers_plan_is_one_line_of_visible_characters(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(json.dumps({"name": "p", f"key{EVIL}": 1, "blocks": []}))
    code, error = ending(["plan", str(tmp_path / "plan.yaml")])
    assert (code, len(error.splitlines()), steering(error)) == (2, 1, set())
    assert "key\\x1b]0;TITLE" in error


def test_every_line_of_the_commands_is_printed_by_one_module() -> None:
    """What click or Python prints, they print as it is."""
    found = []
    for path in Path(xdplab.cli.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("click.echo", "click.secho", "print"):
                found.append(path.name)
    assert set(found) == PRINTS
