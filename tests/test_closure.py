"""What a reader of the main job must be able to reach, and what can be deleted without it."""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAIN_JOB = "xdplab.studies.traffic.kind"
PLUGGED_IN = (
    "xdplab.bisect",
    "xdplab.thesis",
    "xdplab.history",
    "xdplab.claims",
    "xdplab.figures",
    "xdplab.labs.vm",
    "xdplab.labs.uml",
    "xdplab.deploy.dpdk",
)
MOST_FILES, MOST_LINES = 97, 17_500


def modules() -> dict[str, Path]:
    files = sorted((ROOT / "src").rglob("*.py"))
    names = [".".join(path.relative_to(ROOT / "src").with_suffix("").parts) for path in files]
    return {name.removesuffix(".__init__"): path for name, path in zip(names, files, strict=True)}


def imports(path: Path) -> Iterator[str]:
    """Yield each name that a file imports, also within functions; relative imports are not used."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def reached(start: str) -> dict[str, Path]:
    """Return the modules that ``start`` imports, directly or not, with the packages on the way but the root."""
    files = modules()
    found: dict[str, Path] = {}
    waiting = [start]
    while waiting:
        name = waiting.pop()
        while name and name not in files:
            name = name.rpartition(".")[0]
        if name in ("", "xdplab") or name in found:
            continue
        found[name] = files[name]
        waiting += [name.rpartition(".")[0], *imports(files[name])]
    return found


def test_the_main_job_reaches_no_plug_in_and_can_be_read() -> None:
    found = reached(MAIN_JOB)
    assert [name for name in found if name.startswith(PLUGGED_IN)] == []
    lines = sum(len(path.read_text().splitlines()) for path in found.values())
    assert (len(found) <= MOST_FILES, lines <= MOST_LINES) == (True, True), (len(found), lines)


@pytest.fixture(scope="module")
def without_plug_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("copy")
    ignored = shutil.ignore_patterns("*.egg-info", "*.pyc.*")  # what is compiled comes along, not what is just being
    shutil.copytree(ROOT / "src", copy / "src", ignore=ignored)
    shutil.copytree(ROOT / "results" / "sample", copy / "results" / "sample")
    shutil.copytree(ROOT / "plans", copy / "plans")
    shutil.copy(ROOT / "pyproject.toml", copy)
    for name in ("thesis", "history", "bisect", "claims"):
        shutil.rmtree(copy / "src" / "xdplab" / name)
    (copy / "claims.yaml").write_text("name: p\nblocks: [{}]\nclaims: [{none: {count: lost_packets, exactly: 0}}]\n")
    for table in (copy / "results" / "sample").glob("*.parquet"):
        table.unlink()  # `tables` derives them again
    return copy


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--help", 0),
        ("import --help", 0),
        ("import thesis logs", 2),
        ("regenerate logs", 2),
        ("history results", 2),
        ("bisect mine.bpf.c", 2),
        ("claims results/sample", 2),
        ("plan claims.yaml", 2),
        ("plan plans/quick.yaml", 0),
        ("tables results/sample", 0),
        ("show results/sample", 0),
        ("audit results/sample", 0),
        ("figures results/sample --only throughput", 0),
    ],
)
def test_all_commands_but_their_own_work_without_the_plug_ins(without_plug_ins: Path, words: str, code: int) -> None:
    environment = os.environ | {"PYTHONPATH": str(without_plug_ins / "src")}
    argv = [sys.executable, "-m", "xdplab", *words.split()]
    result = subprocess.run(argv, cwd=without_plug_ins, env=environment, capture_output=True, text=True)
    assert result.returncode == code, result.stdout + result.stderr
    assert "Traceback" not in result.stderr


def test_the_layers_hold_without_the_plug_ins(without_plug_ins: Path) -> None:
    pytest.importorskip("importlinter", reason="import-linter is not installed: `shell/setup.sh --dev`")
    environment = os.environ | {"PYTHONPATH": str(without_plug_ins / "src")}
    argv = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()"]
    result = subprocess.run(argv, cwd=without_plug_ins, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
