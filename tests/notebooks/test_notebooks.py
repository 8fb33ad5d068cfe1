"""The notebooks run from their first cell to their last as an ordinary user, in a lab that root made."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from xdplab import labs
from xdplab.lazy import lazy

nbclient, nbformat = lazy("nbclient"), lazy("nbformat")  # they take seconds, of each process that collects tests
NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
USER = 31337
SYSTEM_PYTHON = "/usr/bin/python3"

EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=240, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[1])
"""


def as_user(python: list[str], home: Path, *argv: str) -> list[str]:
    drop = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    clean = ["env", "-u", "SUDO_UID", "-u", "XDG_RUNTIME_DIR", "-u", "XDG_CACHE_HOME", f"HOME={home}"]
    return [*drop, *clean, *python, *argv]


@pytest.fixture(scope="module")
def python() -> list[str]:
    """A Python that an ordinary user can run with this xdplab, or a skip with the reason."""
    paths = os.pathsep.join(path for path in sys.path if path)
    for candidate in ([sys.executable], [f"PYTHONPATH={paths}", SYSTEM_PYTHON]):
        tried = as_user(candidate, Path("/nonexistent"), "-c", "import xdplab.notebook, nbclient, ipykernel")
        if subprocess.run(tried, capture_output=True, check=False, cwd="/").returncode == 0:
            return candidate
    pytest.skip(f"another user can run neither {sys.executable} nor {SYSTEM_PYTHON} with this xdplab")


@pytest.fixture
def users_own() -> Iterator[Path]:
    """A folder of the user's. Not pytest's: another pytest session closes the folder above those to other users."""
    with tempfile.TemporaryDirectory(prefix="xdplab-notebooks-") as name:
        yield Path(name)


@pytest.mark.thorough
@pytest.mark.root
@pytest.mark.lab
@pytest.mark.parametrize(
    ("name", "figures"), [("01_first_measurement.ipynb", 2), ("03_my_program.ipynb", 2)], ids=["first", "mine"]
)
def test_a_notebook_runs_as_an_ordinary_user(users_own: Path, python: list[str], name: str, figures: int) -> None:
    folder = users_own / "notebooks"
    shutil.copytree(NOTEBOOKS, folder, ignore=shutil.ignore_patterns("results", ".ipynb_checkpoints"))
    shutil.copytree(NOTEBOOKS.parent / "results" / "sample", users_own / "results" / "sample")
    for path in (users_own, folder, *folder.iterdir()):
        os.chown(path, USER, USER)
    labs.up("netns", for_user=str(USER))
    try:
        argv = as_user(python, users_own, "-c", EXECUTE, name)
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    finally:
        labs.down("netns", for_user=str(USER))
    assert done.returncode == 0, done.stderr[-3000:]
    notebook = nbformat.read(folder / name, as_version=4)
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in shown) == figures
    assert not [output for output in shown if output.output_type == "error"]
    assert all(path.stat().st_uid == USER for path in folder.rglob("*"))


@pytest.mark.thorough
@pytest.mark.root
@pytest.mark.lab
def test_counts_and_times_of_two_programs_stand_beside_each_other(tmp_path: Path) -> None:
    folder = tmp_path / "notebooks"
    shutil.copytree(NOTEBOOKS, folder, ignore=shutil.ignore_patterns("results", ".ipynb_checkpoints"))
    notebook = nbformat.read(folder / "09_why_slower.ipynb", as_version=4)
    with labs.use_lab("netns"):
        place = {"metadata": {"path": str(folder)}}
        nbclient.NotebookClient(notebook, timeout=240, kernel_name="python3", resources=place).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in shown), "a packet's call stacks"
    times = notebook.cells[-2]["outputs"][-1]["data"]["text/plain"]
    assert "count_array.bpf.c" in times
    assert "count_hash.bpf.c" in times


READERS = ("00_tour", "02_what_limits_a_rate", "04_latency", "08_hardware")
"""Notebooks that measure nothing. 06 and 07 run in the tests of their studies."""


@pytest.mark.parametrize(
    "name", [READERS[0], *(pytest.param(name, marks=pytest.mark.thorough) for name in READERS[1:])]
)
def test_a_notebook_without_a_lab_runs(name: str) -> None:
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    place = {"metadata": {"path": str(NOTEBOOKS)}}
    nbclient.NotebookClient(notebook, timeout=240, kernel_name="python3", resources=place).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert name == "08_hardware" or any("image/png" in output.get("data", {}) for output in shown)


@pytest.mark.thorough
def test_the_thesis_notebook_runs_on_made_up_logs_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDPLAB_THESIS_DATA", raising=False)
    monkeypatch.delenv("XDPLAB_THESIS_RUN", raising=False)
    monkeypatch.setenv("XDPLAB_RESULTS", str(tmp_path))
    notebook = nbformat.read(NOTEBOOKS / "05_thesis_figures.ipynb", as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=240, kernel_name="python3", resources=place).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    text = "\n".join(output.get("text", "") for output in shown)
    assert "the logs below are made up, and their numbers are not the thesis'" in text
    assert "in 2 trials the generator counted 0 frames" in text  # one per frame size
    assert sum("image/png" in output.get("data", {}) for output in shown) == 3


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_asks_shows_and_gives_something_to_try(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    text = "\n".join(cell.source for cell in cells)
    for part in ("**Question.**", "**What you will see.**", "**Try.**"):
        assert part in text, part
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    assert "../../" not in code
    assert not re.search(r"[\"']/(home|root|work|opt|mnt)", code)


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_are_committed_without_outputs(path: Path) -> None:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert cells
    assert not any(cell.outputs or cell.execution_count for cell in cells)


def test_the_first_notebook_has_at_most_ten_cells_of_code() -> None:
    cells = nbformat.read(NOTEBOOKS / "01_first_measurement.ipynb", as_version=4).cells
    assert sum(cell.cell_type == "code" for cell in cells) <= 10
