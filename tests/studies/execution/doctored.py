"""Wrappers of the execution study with other code than the project's, for the tests of the proof of equal work."""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from xdplab.compiler import find_clang
from xdplab.resources import shipped
from xdplab.studies.execution.benchmarks import all_benchmarks

Edit = tuple[str, str, str]
"""A file of the tool's folder, a text in it, and what replaces that text."""


def doctored(folder: Path, edits: Iterable[Edit], *targets: str) -> Path:
    """Make ``folder`` a copy of the tool with ``edits``, and make's ``targets`` in it; each edit must find its text."""
    shutil.copytree(shipped("microbench"), folder, ignore=shutil.ignore_patterns("*.o", "*.so", "microbench"))
    shutil.copytree(shipped("common"), folder / "common")
    for benchmark in all_benchmarks().values():
        (folder / f"kernels/{benchmark.kernel}.h").write_bytes(benchmark.header)
    for file, right, wrong in edits:
        text = (folder / file).read_text()
        assert right in text
        (folder / file).write_text(text.replace(right, wrong))
    if targets:
        make(folder, *targets)
    return folder


def make(folder: Path, *targets: str) -> None:
    subprocess.run(["make", "-s", f"CLANG={find_clang()}", *targets], cwd=folder, check=True, capture_output=True)
