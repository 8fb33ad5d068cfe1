"""What a shell may leave out: an open output, the working directory, memory, a library. Each is told in one line."""

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SAMPLE = Path(__file__).resolve().parents[2] / "results" / "sample"
XDPLAB = (sys.executable, "-m", "xdplab")


def closed(*numbers: int) -> Callable[[], None]:
    return lambda: [os.close(number) for number in numbers] and None


def remove_directory() -> None:
    Path.cwd().rmdir()


def leave_out_library() -> None:
    Path("unicorn.py").write_text("raise ModuleNotFoundError(name='unicorn')")


def put_a_file_in_place_of_the_cache() -> None:
    Path("../cache").touch()


def full_output() -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)


def limit_memory(megabytes: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


@pytest.mark.parametrize(
    ("verb", "left_out", "code", "words"),
    [
        ("status {run}", closed(1), 7, "standard output is closed"),
        ("plan smoke", remove_directory, 7, "the working directory was removed"),
        ("show {run}", limit_memory(60), 3, "got no more memory"),
        ("programs prove array", put_a_file_in_place_of_the_cache, 7, "XDPLAB_CACHE"),
        ("plan smoke", full_output, 7, "standard output"),
        ("programs prove array", leave_out_library, 3, "needs Python's module unicorn"),
    ],
)
def test_what_is_missing_is_told_in_one_line(
    tmp_path: Path, verb: str, left_out: Callable[[], None], code: int, words: str
) -> None:
    run, place = tmp_path / "run", tmp_path / "place"
    shutil.copytree(SAMPLE, run, ignore=shutil.ignore_patterns("*.parquet"))
    place.mkdir()
    environment = os.environ | {"XDPLAB_CACHE": str(tmp_path / "cache"), "PYTHONPATH": ":".join(filter(None, sys.path))}
    done = subprocess.run(
        [*XDPLAB, *verb.format(run=run).split()], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        check=False, cwd=place, env=environment, preexec_fn=left_out, timeout=60,
    )  # fmt: skip
    assert (done.returncode, len(done.stderr.splitlines())) == (code, 1), done.stderr
    assert words in done.stderr


@pytest.mark.parametrize("numbers", [(0,), (2,), (0, 2), (0, 1, 2)])
def test_no_file_of_a_run_takes_the_place_of_a_closed_stream(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    """A message would be written into it."""
    run = tmp_path / "run"
    shutil.copytree(SAMPLE, run, ignore=shutil.ignore_patterns("*.parquet"))
    out = None if 1 in numbers else subprocess.PIPE
    argv = [*XDPLAB, "status", str(run)]
    done = subprocess.run(argv, stdout=out, text=True, check=False, preexec_fn=closed(*numbers))
    assert done.returncode == (7 if 1 in numbers else 0)
    assert out is None or "complete" in done.stdout
