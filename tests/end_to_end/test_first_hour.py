"""A stranger's first hour after the set-up: the exit code and output of each command of README and tutorial."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.conftest import needs_root, xdplab

pytestmark = [pytest.mark.root, pytest.mark.lab, pytest.mark.nightly, needs_root]

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs/use/tutorial.md"
POINT_ROW = r"^{first} +\d+ +[\d.]+ ± [\d.]+ "


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}[^\n]*\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)


def test_the_first_hour_from_doctor_to_a_page_for_a_colleague(lab_name: str, tmp_path: Path) -> None:
    def said(*argv: str, codes: tuple[int, ...] = (0,)) -> str:
        done = xdplab("--lab", lab_name, *argv, cwd=tmp_path, check=False)
        assert done.returncode in codes, f"{argv} ended {done.returncode}\n{done.stdout}\n{done.stderr}"
        for unread in ("Traceback", "nan", "<NA>", "None"):
            assert not re.search(rf"(?<![\w/]){unread}\b", done.stdout + done.stderr), (
                f"{argv}: {unread}\n{done.stdout}"
            )
        return done.stdout

    verdicts = [row["verdict"] for row in json.loads(said("doctor", "--json"))]
    assert verdicts == sorted(verdicts, key=["missing", "warn", "ok"].index)  # the tutorial: problems first
    assert "BTF" in said("doctor", "--all")

    for name in ("first", "again"):
        measured = said("run", "smoke", "--name", name, "--no-figures")
        assert "3 points, 9 trials" in measured or "9 trials: 9 measured" in measured
        assert re.search(POINT_ROW.format(first="1600"), measured, re.MULTILINE), measured
        assert "one page for a colleague: `xdplab report" in measured
    assert said("show", "latest").splitlines()[0].startswith("3 points, mean ± half of its 95 % interval")
    assert [line.split()[0].split("-", 3)[-1] for line in said("runs").splitlines()] == ["run", "again", "first"]
    first, again = sorted((tmp_path / "results").iterdir(), key=lambda path: path.stat().st_mtime)
    compared = said("compare", str(first), str(again), codes=(0, 1, 2))
    assert re.search(r"^Answer: (equivalent|differs|undecided)", compared, re.MULTILINE), compared

    (copies,) = (block for block in blocks("bash") if block.startswith("cp "))
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    subprocess.run(["bash", "-e", "-c", copies], cwd=tmp_path, check=True)
    (race,) = (line for line in "".join(blocks("bash")).splitlines() if line.startswith("xdplab race"))
    words = race.removeprefix("xdplab ").removesuffix(" || true").split()
    raced = said(*words, codes=(0, 1, 2))
    answer = re.search(r"^((?:test run|undecided|b\.bpf\.c) .*\d pairs, by .*)$", raced, re.MULTILINE)
    assert answer, raced
    shown = said("show", "latest")
    for name in ("a.bpf.c", "b.bpf.c"):
        assert re.search(POINT_ROW.format(first=re.escape(name)), shown, re.MULTILINE), shown
    assert answer[0] in shown

    assert said("audit", "latest").splitlines()[0].startswith("# Audit of ")
    page = tmp_path / "build" / "race.html"
    assert said("report", "latest", "--out", str(page)).startswith(f"report: {page}")
    text = html.unescape(page.read_text())
    assert answer[1] in text
    assert "a.bpf.c" in text
    assert "b.bpf.c" in text
