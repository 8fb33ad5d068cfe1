"""A wheel built from the checkout and installed elsewhere measures and draws: it contains all that it needs."""

import json
import os
import shutil
import site
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.nightly
Installed = Callable[..., str]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Run the wheel's xdplab in its own folder, with the dependencies of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    run = {"check": True, "capture_output": True, "text": True, "cwd": folder}
    build = ["-m", "pip", "wheel", str(ROOT), "--no-deps", "-q", "-w", str(folder)]
    subprocess.run([sys.executable, *build], **run)  # type: ignore[call-overload]
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "venv"], **run)  # type: ignore[call-overload]
    python = folder / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", str(wheel)], **run)  # type: ignore[call-overload]
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    (folder / "elsewhere").mkdir()

    def ask(*words: str, code: int | None = 0) -> str:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        argv = [folder / "venv" / "bin" / "xdplab", *words]
        done = subprocess.run(
            argv, cwd=folder / "elsewhere", env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert code is None or done.returncode == code, done.stderr
        return done.stdout + done.stderr

    where = subprocess.run([python, "-c", "import xdplab; print(xdplab.__file__)"], **run)  # type: ignore[call-overload]
    assert where.stdout.startswith(str(folder)), "the checkout would be tested, not the wheel"
    return ask


def test_doctor_and_the_shipped_plans_are_there(installed: Installed) -> None:
    assert json.loads(installed("doctor", "--json", code=None))
    assert "points" in installed("plan", "quick")


def test_the_sample_is_drawn(installed: Installed, tmp_path: Path) -> None:
    sample = shutil.copytree(ROOT / "results" / "sample", tmp_path / "sample")
    installed("figures", str(sample), "--only", "throughput", "--format", "pdf", "--out", str(tmp_path / "out"))
    assert (tmp_path / "out" / "throughput.pdf").stat().st_size > 5000


@pytest.mark.root
@pytest.mark.lab
def test_it_measures(installed: Installed) -> None:
    assert "9 valid" in installed("--lab", "netns:wheel", "run", "smoke", "--no-figures")
