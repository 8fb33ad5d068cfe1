"""The sample in results/: real, small, anonymous, and read without a lab and without root."""

import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from xdplab.cli import cli
from xdplab.errors import FigureError, PlanError
from xdplab.figures.styles import STYLES
from xdplab.run.rundir import RunDirectory
from xdplab.studies.traffic.trials import latencies_of

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "results" / "sample"
MACHINE = ("/root", "/home", "/work", 'command_line":{"value')


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sample without its tables: they are derived again from its raw files."""
    monkeypatch.setenv("XDPLAB_CACHE", str(tmp_path / "cache"))
    wanted = shutil.ignore_patterns("*.parquet", "figures", "tables", "audit.*")
    return Path(shutil.copytree(SAMPLE, tmp_path / "sample", ignore=wanted))


def test_it_is_small_and_names_no_machine() -> None:
    files = [path for path in SAMPLE.rglob("*") if path.is_file() and path.parent.name not in ("figures", "tables")]
    assert sum(path.stat().st_size for path in files) <= 1_300_000
    for path in files:
        content = path.read_bytes().decode(errors="replace")
        assert not [word for word in MACHINE if word in content], path


def test_latencies_of_two_directions_are_those_of_both(copy: Path) -> None:
    """The histogram was of the first direction only, beside quantiles that are of both."""
    run = RunDirectory.open(copy)
    before = latencies_of(run)
    name = str(before["trial_id"].iloc[0])
    (output,) = (copy / "raw" / name).glob("*/xdpgen.jsonl")
    shutil.copy(output, output.with_name("xdpgen_back.jsonl"))
    twice = before["count"].where(before["trial_id"].ne(name), 2 * before["count"])
    pd.testing.assert_frame_equal(latencies_of(run), before.assign(count=twice))


def test_a_page_shows_a_figure_in_every_style(copy: Path, tmp_path: Path) -> None:
    drawn = CliRunner().invoke(
        cli, ["figures", str(copy), "--gallery", "--only", "access_cost", "--out", str(tmp_path / "out")]
    )
    assert drawn.exit_code == 0, drawn.output
    page = (tmp_path / "out" / "gallery.html").read_text()
    images = re.findall(r'<img src="([^"]+)"', page)
    assert images == [f"{style}/access_cost.svg" for style in STYLES]
    assert all((tmp_path / "out" / image).is_file() for image in images)


def test_figures_are_asked_for_by_name_and_what_is_not_there_is_an_error(copy: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    names = [word for name in ("throughput", "evenness", "baseline") for word in ("--only", name)]
    drawn = CliRunner().invoke(cli, ["figures", str(copy), *names, "--out", str(out)])
    assert {path.stem for path in out.glob("*.svg")} == {"throughput", "baseline"}
    assert isinstance(drawn.exception, FigureError)
    assert "only one queue was used" in str(drawn.exception)
    for others in (("--style", "slides"), ("--explain", "throughput", "x")):
        assert isinstance(CliRunner().invoke(cli, ["figures", str(copy), "--gallery", *others]).exception, PlanError)


def test_a_mark_is_explained_by_its_value_its_repetitions_and_each_raw_file_once(copy: Path) -> None:
    done = CliRunner().invoke(cli, ["figures", str(copy), "--explain", "throughput", "native||400"])
    mark, repetitions, *files = done.output.splitlines()
    assert mark == "throughput: native |  | 400: 1.14956 line, n = 3"
    assert repetitions == "  one repetition each: 1.15895, 1.1423, 1.14744"
    assert [line.split(",")[0] for line in files] == [f"  repetition {number}" for number in (1, 2, 3)]
    for line in files:
        folder, _, names = line.partition(", valid: ")[2].partition("/: ")
        assert {copy / folder / name for name in names.split(", ")} == {
            path for path in (copy / folder).rglob("*") if path.is_file()
        }


def test_git_keeps_the_sample_and_no_other_run() -> None:
    def ignored(path: str) -> bool:
        asked = ["git", "-C", str(ROOT), "check-ignore", "-q", "--no-index", path]
        return subprocess.run(asked, check=False, capture_output=True).returncode == 0

    if not (ROOT / ".git").exists():
        pytest.skip("this is not a git checkout")
    assert ignored("results/2026-01-31-quick/journal.jsonl")
    assert ignored("results/sample/figures/throughput.svg")
    assert not ignored("results/README.md")
    assert not any(ignored(str(path.relative_to(ROOT))) for path in SAMPLE.glob("programs/*/*"))


def test_make_figures_does_not_take_the_sample_for_a_run_of_ones_own() -> None:
    planned = subprocess.run(["make", "-n", "figures"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "sample" not in planned.stdout
